"""Instructions of servers reach clients, with a bound, and only from servers that the client may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.hub.self_description import MAX_OF_ALL, merge_instructions
from mcp_hub.security.screening import MAX_INSTRUCTIONS
from tests.fakes.client import fake, hub

pytestmark = pytest.mark.anyio


async def test_instructions_of_visible_servers_are_passed_on_from_the_cached_catalog(tmp_path: Path) -> None:
    servers = {"a": fake(), "b": fake("--era", "dual"), "hidden": fake(enable_tools=[])}
    rules = {"blacklist": ["hidden/*"]}
    async with hub(tmp_path, servers, **rules) as client:
        await client.tool_names()
    async with hub(tmp_path, servers, handshake=False, **rules) as client:
        text = (await client.initialize())["instructions"]
    assert "## a\nbe kind" in text
    assert "hidden" not in text


async def test_a_modern_client_gets_instructions_too(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake()}, modern=True) as client:
        await client.tool_names()
        assert "## a\nbe kind" in (await client.request("server/discover"))["instructions"]


def test_instructions_are_cut_and_bounded() -> None:
    assert merge_instructions([("a", None), ("b", "  ")]) is None
    text = merge_instructions([(f"s{n}", "x" * 10_000) for n in range(10)])
    assert text is not None
    assert len(text) < MAX_OF_ALL + 1000
    assert "x" * (MAX_INSTRUCTIONS + 1) not in text
    assert "instructions of s3, s4" in text
