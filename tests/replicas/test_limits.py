"""Limits that hold for all replicas together, and their effect while the store is unavailable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import PATIENCE, fake
from tests.fakes.network import sdk
from tests.replicas.served import cluster

pytestmark = pytest.mark.anyio
ERAS = ["handshake", "modern"]
SLOW = 0.001
"""A rate, in calls a second, so low that no second call is allowed during a test."""


async def answered(client: Any, count: int) -> list[str]:
    """Makes `count` calls, each at the next replica; returns the texts of the refusals."""
    refused = []
    async with asyncio.timeout(PATIENCE):
        for number in range(count):
            result = await client.call_tool("up__echo", {"text": str(number)})
            if result.is_error:
                assert result.meta["mcp-hub/error"]["code"] == "overloaded"
                refused.append(result.content[0].text)
    return refused


@pytest.mark.parametrize("era", ERAS)
async def test_the_rate_limit_of_a_server_applies_to_all_replicas_together(tmp_path: Path, era: str) -> None:
    limited = {**fake(), "limits": {"rate": SLOW}}
    async with cluster(tmp_path, {"up": limited}) as served, sdk(f"{served.url}/mcp", era) as client:
        assert len(await answered(client, 6)) == 5


async def test_each_session_has_its_own_share_of_a_per_caller_rate(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": {**fake(), "limits": {"rate_per_caller": SLOW}}}) as served:
        for _ in range(2):
            async with sdk(f"{served.url}/mcp", "handshake") as client:
                assert len(await answered(client, 6)) == 5


@pytest.mark.parametrize("era", ERAS)
async def test_the_rate_limit_of_a_principal_applies_to_all_replicas_together(tmp_path: Path, era: str) -> None:
    listen = {"limits": {"rate": SLOW, "burst": 4}}
    async with cluster(tmp_path, {"up": fake()}, listen=listen) as served, sdk(f"{served.url}/mcp", era) as client:
        results = [await outcome(client) for _ in range(7)]
    assert results.count("overloaded") == 3


async def outcome(client: Any) -> str:
    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool("up__echo", {"text": "a"})
    return str(result.meta["mcp-hub/error"]["code"]) if result.is_error else "answered"


async def test_without_the_store_each_replica_applies_its_share_of_the_rate_and_logs_it(tmp_path: Path) -> None:
    limited = {**fake(), "limits": {"rate": SLOW}}
    async with cluster(tmp_path, {"up": limited}) as served, sdk(f"{served.url}/mcp", "modern") as client:
        served.store.pause()
        refused = await answered(client, 12)
        served.store.resume()
    assert len(refused) == 9
    assert "the store is unavailable: one of 3 replicas allows its share" in refused[-1]
