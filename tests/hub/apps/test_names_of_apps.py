"""An app calls tools by the names that its server gave them; the hub finds the one that is meant, or refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import StdioClient, hub
from tests.fakes.network import network_hub, sdk
from tests.hub.apps.app_servers import APP, server, tool

pytestmark = pytest.mark.anyio


async def answers(client: StdioClient, *names: str) -> list[str]:
    """What a call of each name is answered with; "unknown" or "ambiguous" if it is refused as such."""
    said = []
    for name in names:
        message = await client.start("tools/call", {"name": name, "arguments": {}})
        error = message.get("error", {})
        assert error.get("code", -32602) == -32602
        refusal = "ambiguous" if "data" in error else "unknown"
        said.append(refusal if error else message["result"]["content"][0]["text"])
    return said


@pytest.fixture(params=[False, True], ids=["handshake", "modern"])
def modern(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_an_app_calls_tools_of_its_server_by_their_own_names(tmp_path: Path, modern: bool) -> None:
    servers = {
        "board": server(tmp_path, "board", tool("show", APP), tool("move"), tool("poll", visibility=["app"])),
        "plain": server(tmp_path, "plain", tool("other")),
    }
    async with hub(tmp_path, servers, modern=modern) as client:
        assert await answers(client, "show", "move", "poll", "board__move") == ["from board"] * 4
        assert await answers(client, "other", "none") == ["unknown"] * 2


async def test_a_listed_resource_makes_its_server_one_with_apps(tmp_path: Path) -> None:
    resource = {"uri": APP, "name": "app", "mimeType": "text/html;profile=mcp-app"}
    servers = {"board": server(tmp_path, "board", tool("move"), resources=(resource,))}
    async with hub(tmp_path, servers) as client:
        assert await answers(client, "move") == ["from board"]


async def test_the_old_spelling_of_the_app_of_a_tool_counts(tmp_path: Path) -> None:
    old = {"_meta": {"ui/resourceUri": APP}}
    async with hub(tmp_path, {"board": server(tmp_path, "board", tool("show", **old))}) as client:
        assert await answers(client, "show") == ["from board"]


async def test_a_tool_for_models_alone_is_unknown_by_its_servers_name(tmp_path: Path) -> None:
    tools = (tool("show", APP, ["model"]), tool("poll", APP, ["app"]), tool("nobody", APP, []))
    async with hub(tmp_path, {"board": server(tmp_path, "board", *tools)}) as client:
        assert await answers(client, "show", "board__show", "poll", "nobody") == [
            "unknown", "from board", "from board", "unknown",
        ]  # fmt: skip


async def test_a_name_of_two_servers_with_apps_is_ambiguous(tmp_path: Path, modern: bool) -> None:
    servers = {name: server(tmp_path, name, tool("show", APP), tool(f"only_{name}")) for name in ("one", "two")}
    servers["plain"] = server(tmp_path, "plain", tool("show"))
    async with hub(tmp_path, servers, modern=modern) as client:
        assert await answers(client, "show", "only_two") == ["ambiguous", "from two"]


async def test_a_name_of_two_servers_is_that_of_the_only_app_this_session_has_opened(tmp_path: Path) -> None:
    servers = {name: server(tmp_path, name, tool("show", APP), tool("move")) for name in ("one", "two")}
    async with hub(tmp_path, servers) as client:
        assert await answers(client, "move") == ["ambiguous"]
        await client.call("two__move")  # it opens no app
        assert await answers(client, "move") == ["ambiguous"]
        await client.call("two__show")
        assert await answers(client, "move", "show") == ["from two"] * 2
        await client.call("one__show")
        assert await answers(client, "move", "show") == ["ambiguous"] * 2


async def test_a_model_learns_nothing_of_a_name_that_apps_share(tmp_path: Path) -> None:
    servers = {name: server(tmp_path, name, tool("show", APP)) for name in ("one", "two")}
    async with hub(tmp_path, servers, expose="search") as client:
        for name in ("show", "none"):
            answer = await client.start("tools/call", {"name": "hub_call", "arguments": {"tool": name}})
            assert answer["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}


async def test_reading_its_resource_opens_an_app(tmp_path: Path) -> None:
    servers = {name: server(tmp_path, name, tool("show", APP), tool("move")) for name in ("one", "two")}
    async with hub(tmp_path, servers) as client:
        tools = (await client.request("tools/list"))["tools"]
        uris = {entry["name"]: entry["_meta"]["ui"]["resourceUri"] for entry in tools if "_meta" in entry}
        contents = (await client.request("resources/read", {"uri": uris["two__show"]}))["contents"]
        assert (contents[0]["uri"], contents[0]["text"]) == (uris["two__show"], f"text of {APP}")
        assert await answers(client, "move") == ["from two"]


async def test_what_one_session_has_opened_says_nothing_of_another(tmp_path: Path) -> None:
    servers = {name: server(tmp_path, name, tool("show", APP), tool("move")) for name in ("one", "two")}
    async with network_hub(tmp_path, servers) as (_, url):
        async with sdk(f"{url}/mcp", "handshake") as first, sdk(f"{url}/mcp", "handshake") as second:
            await first.call_tool("one__show", {})
            await second.call_tool("two__show", {})
            said = [(await client.call_tool("move", {})).content[0] for client in (first, second)]
            assert [block.text for block in said] == ["from one", "from two"]  # type: ignore[union-attr]
        async with sdk(f"{url}/mcp", "modern") as client:  # a principal may be several programs
            await client.call_tool("one__show", {})
            with pytest.raises(Exception) as caught:
                await client.call_tool("move", {})
            assert caught.value.error.code == -32602  # type: ignore[attr-defined]


async def test_an_exposed_name_comes_before_a_servers_own(tmp_path: Path) -> None:
    servers = {
        "plain": server(tmp_path, "plain", tool("move"), namespace=""),
        "board": server(tmp_path, "board", tool("show", APP), tool("move")),
    }
    async with hub(tmp_path, servers) as client:
        assert await answers(client, "move", "show") == ["from plain", "from board"]


@pytest.mark.parametrize(("root", "entry"), [({"blacklist": ["board/move"]}, {}), ({}, {"disable_tools": ["move"]})])
async def test_a_refused_tool_is_unknown_by_its_servers_name_too(
    tmp_path: Path, root: dict[str, Any], entry: dict[str, Any]
) -> None:
    servers = {"board": server(tmp_path, "board", tool("show", APP), tool("move"), **entry)}
    async with hub(tmp_path, servers, **root) as client:
        assert await answers(client, "show", "move", "board__move") == ["from board", "unknown", "unknown"]


async def test_a_refused_tool_of_another_server_does_not_make_a_name_ambiguous(tmp_path: Path) -> None:
    servers = {name: server(tmp_path, name, tool("show", APP)) for name in ("one", "two")}
    async with hub(tmp_path, servers, blacklist=["one/show"]) as client:
        assert await answers(client, "show") == ["from two"]
