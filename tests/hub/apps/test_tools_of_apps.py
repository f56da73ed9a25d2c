"""Tools that only apps may call are no models' tools; tools with an app are listed to every client that shows apps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.library import Hub
from mcp_hub.protocol.era import CAPABILITIES_KEY
from tests.fakes.client import RpcError, StdioClient, hub
from tests.fakes.network import network_hub, sdk
from tests.hub.apps.app_servers import APP, UI, server, tool
from tests.hub.exposure.listing import META, many

pytestmark = pytest.mark.anyio

BOARD = (tool("show", APP), tool("move"), tool("poll", visibility=["app"]))


@pytest.mark.parametrize("few", [{"expose": "search"}, {"meta_tools": True}], ids=["few", "all"])
async def test_a_model_neither_finds_nor_calls_a_tool_for_apps_alone(tmp_path: Path, few: dict[str, Any]) -> None:
    async with hub(tmp_path, {"board": server(tmp_path, "board", *BOARD)}, **few) as client:
        for query in ("poll", ""):
            for detail in ("brief", "full"):
                found = await client.text("hub_search", {"query": query, "detail": detail})
                assert "poll" not in found
        assert "board__move" in await client.text("hub_search", {"query": ""})
        listed = (await client.request("tools/list"))["tools"]
        (search,) = (entry for entry in listed if entry["name"] == "hub_search")
        assert "2 tools of 1 server" in search["description"]
        for name in ("board__poll", "poll", "move", "show"):
            with pytest.raises(RpcError) as caught:
                await client.call("hub_call", {"tool": name})
            assert caught.value.error == {"code": -32602, "message": f"Unknown tool: {name}"}
        assert await client.text("board__poll") == "from board"  # the client says whether its app or its model calls


async def test_a_program_cannot_call_a_tool_for_apps_alone(tmp_path: Path) -> None:
    code_mode = {"enabled": True, "writes": True}
    async with hub(tmp_path, {"board": server(tmp_path, "board", *BOARD)}, code_mode=code_mode) as client:
        for program in ("await board__poll()", "await call_tool('board__poll', {})", "await call_tool('move', {})"):
            assert (await client.call("hub_run", {"code": program}))["isError"]
        assert "from board" in await client.text("hub_run", {"code": "await board__move()"})


async def test_the_definitions_of_an_activated_group_have_no_tool_for_apps_alone(tmp_path: Path) -> None:
    groups = {"boards": {"tools": ["board/*"], "description": "boards"}}
    async with hub(tmp_path, {"board": server(tmp_path, "board", *BOARD)}, groups=groups) as client:
        answer = await client.call("reset_equipped_tools", {"boards": True})
        names = [entry["name"] for entry in json.loads(answer["content"][1]["text"])["tools"]]
        assert names == ["board__show", "board__move"]
        assert "board__poll" in await client.tool_names()


def test_a_program_that_asks_for_the_tools_of_models_is_given_none_for_apps_alone(tmp_path: Path) -> None:
    with Hub({"mcpServers": {"board": server(tmp_path, "board", *BOARD)}, "cache_dir": str(tmp_path / "kept")}) as own:
        assert [card.name for card in own.list_sync()] == ["show", "move"]


async def listed_with(client: StdioClient, capabilities: dict[str, Any]) -> list[str]:
    params: dict[str, Any] = {}
    if client.modern:
        params["_meta"] = {CAPABILITIES_KEY: capabilities}
    else:
        info = {"name": "a client", "version": "1"}
        handshake = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        await client.request("initialize", handshake)
        client.notify("notifications/initialized")
    return [entry["name"] for entry in (await client.request("tools/list", params))["tools"]]


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
async def test_a_short_list_has_the_tools_of_apps_if_the_client_shows_apps(tmp_path: Path, modern: bool) -> None:
    servers = {"board": server(tmp_path, "board", *BOARD), "many": many(tmp_path, 50)}
    of_apps = [*META, "board__show", "board__poll"]
    settings: dict[str, Any] = {"modern": modern, "handshake": False, "expose": "search"}
    async with hub(tmp_path, servers, **settings) as client:
        assert await listed_with(client, UI) == of_apps
        if modern:  # one principal may be several programs of one name
            assert await listed_with(client, {}) == META
            assert await listed_with(client, UI) == of_apps
    async with hub(tmp_path, servers, **settings) as client:
        assert await listed_with(client, {}) == META


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_shared_server_is_told_that_its_clients_may_show_apps(tmp_path: Path, era: str) -> None:
    shared = server(tmp_path, "board", *BOARD, options=("--era", era, "--apps-if-declared"))
    async with network_hub(tmp_path, {"board": shared}) as (_, url), sdk(f"{url}/mcp", era) as client:
        listed = [entry.name for entry in (await client.list_tools()).tools]
        assert listed == ["board__show", "board__move", "board__poll"]
