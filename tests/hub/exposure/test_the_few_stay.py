"""The few tools that a client is listed: they stay and keep their order, so that its prompt cache is of use."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.hub import exposure
from mcp_hub.hub.composition import config_of
from mcp_hub.policy.selection import EVERYTHING
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import Caller
from tests.downstream.network.visitor import ERAS, TOKENS, network_hub, visiting
from tests.fakes.callers import a_principal
from tests.fakes.client import FAKE, StdioClient, fake
from tests.hub.exposure.listing import CHAT, META, chatting, many, names, tools

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"
ALWAYS = {"expose_always": ["a/tool_00*", "grown*"]}
FIRST = [*META, *(f"a__tool_00{n}" for n in range(10))]


def write(file: Path, listed: list[dict[str, Any]]) -> dict[str, Any]:
    """The entry of a server that lists these tools, and one that says that they have changed."""
    file.write_text(json.dumps({"tools": [*listed, {"name": "changed", "inputSchema": {"type": "object"}}]}))
    return fake("--lists", str(file))


async def list_anew(client: StdioClient, file: Path, listed: list[dict[str, Any]]) -> None:
    """Has the server list other tools, and waits until the client has been told."""
    count = len([message for message in client.notifications if message["method"] == CHANGED])
    write(file, listed)
    await client.call("a__changed")
    await client.notified(CHANGED, count + 1)


async def test_a_short_list_keeps_its_order_and_new_tools_are_appended(tmp_path: Path) -> None:
    file = tmp_path / "lists.json"
    entry = write(file, tools(150, 150))
    async with chatting(tmp_path, {"a": entry}, **ALWAYS) as client:
        assert await names(client) == FIRST
        before = (await client.request("tools/list"))["tools"][len(META) :]
        changed = [{"name": "grown", "inputSchema": {"type": "object"}}, *reversed(tools(150, 150))]
        await list_anew(client, file, changed)
        assert await names(client) == [*FIRST, "a__grown"]
        assert (await client.request("tools/list"))["tools"][len(META) : -1] == before


async def test_a_short_list_stays_short_for_the_whole_session(tmp_path: Path) -> None:
    file = tmp_path / "lists.json"
    entry = write(file, tools(150, 150))
    async with chatting(tmp_path, {"a": entry}, **ALWAYS) as client:
        assert await names(client) == FIRST
        await list_anew(client, file, tools(30, 4))
        assert await names(client) == FIRST
    async with chatting(tmp_path, {"a": entry}, **ALWAYS) as client:
        assert len(await names(client)) == 31


def catalog_of(definitions: list[dict[str, Any]]) -> Catalog:
    items = [Item(Route("a", TOOLS, tool["name"]), tool["name"], tool) for tool in definitions]
    return Catalog.build([CatalogSource("a", "a", tuple(items))])


async def test_a_short_list_of_an_idle_principal_ends_but_not_one_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "SESSION_LIFE", -1.0)
    large, small = catalog_of(tools(150, 150)), catalog_of(tools(30, 4))
    lists = exposure.Exposure(config_of({"servers": {"a": {"command": "x"}}}), EVERYTHING, None, lambda _: large)
    client = Envelope(client_info={"name": CHAT, "version": "1"})
    for caller, expected in ((Caller(), 0), (a_principal("ann"), 30)):
        assert (await lists.listed(large, caller, client)).server_tools == 0
        assert (await lists.listed(small, caller, client)).server_tools == expected


async def test_a_removed_tool_leaves_the_short_list(tmp_path: Path) -> None:
    file = tmp_path / "lists.json"
    entry = write(file, tools(150, 150))
    async with chatting(tmp_path, {"a": entry}, **ALWAYS) as client:
        await names(client)
        await list_anew(client, file, tools(150, 150)[1:])
        assert await names(client) == [name for name in FIRST if name != "a__tool_000"]


async def test_tools_of_an_unavailable_server_stay_in_the_short_list(tmp_path: Path) -> None:
    flag = tmp_path / "may_start"
    flag.touch()
    start = f'test -e "{flag}" && exec "{sys.executable}" "{FAKE}"'
    entry = {"command": "sh", "args": ["-c", start], "health": {"unlist_after": "100ms"}}
    async with chatting(tmp_path, {"a": many(tmp_path, 150, 150), "b": entry}, expose_always=["b/echo"]) as client:
        short_list = await names(client)
        assert short_list == [*META, "b__echo"]
        flag.unlink()
        await client.call("b__crash")
        await client.notified(CHANGED)  # its tools are no longer in the whole list
        assert await names(client) == short_list


@pytest.mark.parametrize("era", ERAS)
async def test_each_client_of_a_hub_has_its_own_short_list(tmp_path: Path, era: str) -> None:
    servers = {"a": many(tmp_path, 150, 150)}
    principals = {"alice": TOKENS["alice"], "bob": {"token": TOKENS["bob"], "expose": "all"}}
    async with network_hub(tmp_path, servers, {"principals": principals}, expose="search", **ALWAYS) as (_, base):
        for _ in range(2):
            async with visiting(base, era, TOKENS["alice"]) as alice, visiting(base, era, TOKENS["bob"]) as bob:
                for _ in range(2):
                    assert await alice.names("tools/list") == FIRST
                    assert len(await bob.names("tools/list")) == 150


async def test_active_groups_are_listed_and_the_group_switch_always(tmp_path: Path) -> None:
    groups = {"large": {"description": "All of a.", "servers": ["a"]}}
    async with chatting(tmp_path, {"a": many(tmp_path, 150, 150), "b": fake()}, groups=groups) as client:
        small = await names(client)
        assert small[0] == "reset_equipped_tools"
        assert "b__echo" in small
        assert "hub_search" not in small
        await client.call("reset_equipped_tools", {"large": True})
        assert await names(client) == ["reset_equipped_tools", *META]
        assert await client.text("a__tool_001") == "called tool_001"
        assert await client.text("hub_call", {"tool": "b__echo", "arguments": {"text": "x"}}) == "x"


async def test_tools_of_a_group_that_is_off_are_not_in_the_short_list(tmp_path: Path) -> None:
    groups = {"few": {"description": "Some of a.", "tools": ["a/tool_000", "a/tool_001"]}}
    async with chatting(tmp_path, {"a": many(tmp_path, 150, 150)}, groups=groups, **ALWAYS) as client:
        off = ["reset_equipped_tools", *META, *(f"a__tool_00{n}" for n in range(2, 10))]
        assert await names(client) == off
        for _ in range(2):
            await client.call("reset_equipped_tools", {"few": True})
            assert await names(client) == [*off, "a__tool_000", "a__tool_001"]
            await client.call("reset_equipped_tools", {"few": False})
            assert await names(client) == off


async def test_tools_of_a_group_that_is_off_stay_away_with_their_server(tmp_path: Path) -> None:
    flag = tmp_path / "may_start"
    flag.touch()
    start = f'test -e "{flag}" && exec "{sys.executable}" "{FAKE}"'
    entry = {"command": "sh", "args": ["-c", start], "health": {"unlist_after": "100ms"}}
    groups = {"of_b": {"description": "All of b.", "tools": ["b/echo"], "active": True}}
    servers = {"a": many(tmp_path, 150, 150), "b": entry}
    async with chatting(tmp_path, servers, groups=groups, expose_always=["b/echo"]) as client:
        short_list = await names(client)
        assert short_list == ["reset_equipped_tools", *META, "b__echo"]
        flag.unlink()
        await client.call("b__crash")
        await client.notified(CHANGED)
        assert await names(client) == short_list
        await client.call("reset_equipped_tools", {"of_b": False})
        assert await names(client) == short_list[:-1]


async def test_meta_tools_enabled_by_the_configuration_are_listed_once(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"a": many(tmp_path, 150, 150)}, meta_tools=True) as client:
        assert await names(client) == META
        assert await names(client, "claude-code") == META  # the name of a handshake is that of its beginning
