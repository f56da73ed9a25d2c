"""With `expose_recent` a client is listed what its principal used last, from the next session on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_hub.catalog import Route
from mcp_hub.hub.recent_tools import MAX_PRINCIPALS, RecentTools
from mcp_hub.protocol.kinds import TOOLS
from tests.downstream.network.visitor import ERAS, TOKENS, network_hub, visiting
from tests.fakes.client import fake, hub
from tests.hub.exposure.listing import META, many, names

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("modern", [False, True])
async def test_recently_used_tools_are_listed_after_a_restart(tmp_path: Path, modern: bool) -> None:
    servers = {"a": many(tmp_path, 150, 100), "b": fake()}
    root = {"expose_recent": 3, "expose_always": ["b/add"], "modern": modern}
    async with hub(tmp_path, servers, **root) as client:
        assert await names(client) == [*META, "b__add"]
        for name in ("a__tool_009", "a__tool_001", "a__tool_005", "a__tool_009", "hub_search"):
            await client.call(name, {"query": "tool"})
        await client.call("hub_call", {"tool": "b__pid"})
        assert await names(client) == [*META, "b__add"]
    for _ in range(2):
        async with hub(tmp_path, servers, **root) as client:
            assert await names(client) == [*META, "b__add", "a__tool_005", "a__tool_009", "b__pid"]
    async with hub(tmp_path, servers, expose_always=["b/add"], modern=modern) as client:
        assert await names(client) == [*META, "b__add"]


@pytest.mark.parametrize("era", ERAS)
async def test_each_principal_is_listed_only_its_own_recently_used_tools(tmp_path: Path, era: str) -> None:
    servers, listen = {"a": many(tmp_path, 150, 100)}, {"principals": {name: TOKENS[name] for name in ("alice", "bob")}}
    for count in (2, 3):
        async with (
            network_hub(tmp_path, servers, listen, expose_recent=5) as (_, base),
            visiting(base, era, TOKENS["alice"]) as alice,
            visiting(base, era, TOKENS["bob"]) as bob,
        ):
            assert len(await alice.names("tools/list")) == count
            assert await bob.names("tools/list") == META
            assert await alice.text("a__tool_007") == "called tool_007"
            assert len(await alice.names("tools/list")) == count


async def test_a_session_is_listed_tools_used_in_an_earlier_session(tmp_path: Path) -> None:
    servers, listen = {"a": many(tmp_path, 150, 100)}, {"token": TOKENS["alice"]}
    async with (
        network_hub(tmp_path, servers, listen, expose_recent=5) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as first,
        visiting(base, "handshake", TOKENS["alice"]) as second,
    ):
        await first.text("a__tool_007")
        assert await second.names("tools/list") == [*META, "a__tool_007"]


async def test_a_refused_tool_is_not_listed_even_if_recently_used(tmp_path: Path) -> None:
    servers = {"a": many(tmp_path, 150, 100)}
    async with hub(tmp_path, servers, expose_recent=5) as client:
        await client.call("a__tool_007")
    async with hub(tmp_path, {"a": {**servers["a"], "disable_tools": ["tool_007"]}}, expose_recent=5) as client:
        assert await names(client) == META


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format": 1, "principals": {"": [1, ["a"], [1, 2]], "x": 5}}'])
async def test_a_file_that_cannot_be_used_is_ignored(tmp_path: Path, content: str) -> None:
    servers = {"a": many(tmp_path, 150, 100)}
    async with hub(tmp_path, servers, expose_recent=5) as client:
        await client.call("a__tool_007")
    (file,) = (tmp_path / "cache").glob("recent-*.json")
    assert json.loads(file.read_text())["principals"] == {"": [["a", "tool_007"]]}
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(content)
    async with hub(tmp_path, servers, expose_recent=5) as client:
        assert await names(client) == META
        assert await client.text("a__tool_001") == "called tool_001"
    async with hub(tmp_path, servers, expose_recent=5) as client:
        assert await names(client) == [*META, "a__tool_001"]


async def test_the_file_of_recently_used_tools_keeps_a_bounded_number_of_principals(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    for run in range(2):
        recent = RecentTools(3, tmp_path / "cache", config)
        for number in range(MAX_PRINCIPALS):
            recent.used(f"run {run}, principal {number}", Route("up", TOOLS, "echo"))
        await recent.close()
    (file,) = (tmp_path / "cache").glob("recent-*.json")
    principals = json.loads(file.read_text())["principals"]
    assert len(principals) == MAX_PRINCIPALS
    assert {name.split(",")[0] for name in principals} == {"run 1"}
