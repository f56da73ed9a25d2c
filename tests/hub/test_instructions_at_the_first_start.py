"""What servers say of themselves reaches a client at the first start, when no catalog is kept."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.hub import Engine, catalogs
from mcp_hub.hub.composition import read_config
from mcp_hub.protocol.era import Envelope, Era
from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, spawned, write_config
from tests.peers.catalogue import REAL_SERVERS, Place

pytestmark = pytest.mark.anyio

ASKS = """
import json, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "instructions": "USE WHEN"}
        send(id=message["id"], result={**result, "serverInfo": {"name": "x", "version": "1"}})
    elif method == "notifications/initialized":
        send(id="q", method="roots/list")
    elif method == "tools/list":
        send(id=message["id"], result={"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
    elif method == "server/discover":
        send(id=message["id"], error={"code": -32601, "message": "unknown"})
"""


async def introduced(client: StdioClient, name: str = "gemini-cli-mcp-client", **capabilities: Any) -> str:
    """The instructions that a client of this name gets."""
    info = {"name": name, "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
    return str((await client.request("initialize", params)).get("instructions"))


def served(tmp_path: Path, entry: dict[str, Any], **root: Any) -> list[str]:
    return [*HUB, "serve", "--config", str(write_config(tmp_path, {"up": entry}, **root))]


async def test_instructions_are_in_the_answer_to_initialize(tmp_path: Path) -> None:
    async with spawned(served(tmp_path, fake(), list_wait=None)) as client:
        assert "be kind" in await introduced(client)


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_client_of_each_era_waits_for_the_instructions_of_a_slow_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: Era
) -> None:
    for name in ("GIVES_UP", "DISCOVERED_WITHIN"):
        monkeypatch.setattr(catalogs, name, PATIENCE)
    config = read_config(write_config(tmp_path, {"up": fake("--start-delay", "0.5")})).config
    async with Engine(config) as engine, asyncio.timeout(PATIENCE):
        assert engine.instructions() is None
        await engine.catalogs.wait_for_instructions(Envelope(), era)
        await engine.wait_for_cached()
        assert "be kind" in str(engine.instructions())


async def test_instructions_of_a_real_server_come_at_the_first_start(tmp_path: Path) -> None:
    entry = REAL_SERVERS["everything_stdio"].entry(Place(tmp_path))
    async with spawned(served(tmp_path, entry)) as client:
        assert "## up" in await introduced(client)


@pytest.mark.parametrize("list_wait", [None, 10 * PATIENCE])
async def test_a_server_that_hangs_does_not_hold_back_a_client_longer_than_it_may_wait(
    tmp_path: Path, list_wait: float | None
) -> None:
    async with spawned(served(tmp_path, fake("--silent"), list_wait=list_wait)) as client:
        waiting = asyncio.ensure_future(introduced(client, "codex-mcp-client" if list_wait is None else "unknown"))
        assert await client.request("ping") == {}
        assert "up" not in await waiting
    assert catalogs.DISCOVERED_WITHIN < catalogs.GIVES_UP < 5.0


async def test_a_list_wait_of_nothing_answers_at_once(tmp_path: Path) -> None:
    async with spawned(served(tmp_path, fake("--silent"), list_wait="1ms")) as client:
        assert await introduced(client) == "None"


async def test_a_client_is_asked_nothing_before_its_handshake_is_complete(tmp_path: Path) -> None:
    async with spawned(served(tmp_path, {"command": sys.executable, "args": ["-c", ASKS]})) as client:
        assert "USE WHEN" in await introduced(client, roots={})
        assert not client.notifications
        client.notify("notifications/initialized")
        await client.notified("roots/list")
