"""server-everything offers tools by what its client can do; from clients of both eras they work through the hub."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from tests.fakes.client import PATIENCE, write_config
from tests.matrix.cells import ERAS, Cell, connected, listening
from tests.peers.catalogue import REAL_SERVERS, Place, real_servers

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

TOOLS = {"trigger-sampling-request", "trigger-elicitation-request", "trigger-url-elicitation", "get-roots-list"}
ROUTES = [
    ("stdio", "everything_stdio"),
    ("http", "everything_stdio"),
    ("http", "everything_http"),
    ("sse", "everything_sse"),
]
"""Transport of the client, server."""
URL = "https://example.com/consent"


@contextlib.asynccontextmanager
async def client_session(tmp: Path, transport: str, server: str, era: str) -> AsyncIterator[Cell]:
    """A client that has made a first call, and so has a session of its own."""
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(real_servers(tmp, [server]))
        entry = {**REAL_SERVERS[server].entry(place), "session": "client"}
        config = write_config(tmp, {"e": entry}, list_wait=PATIENCE)
        urls = {} if transport == "stdio" else await stack.enter_async_context(listening(tmp, config))
        client, room = await stack.enter_async_context(connected(transport, era, urls, config))
        cell = Cell(client, room, era, "e")
        await cell.text("echo", {"message": "hello"})
        yield cell


async def tools_of(cell: Cell) -> set[str]:
    return {tool["name"].removeprefix("e__") for tool in await cell.all_of("tools")}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("transport", "server"), ROUTES)
async def test_server_everythings_tools_for_sampling_elicitation_and_roots_work(
    tmp_path: Path, transport: str, server: str, era: str
) -> None:
    async with client_session(tmp_path, transport, server, era) as cell:
        # A server that is quick has changed its list before the first call was answered.
        async with cell.hearing("notifications/tools/list_changed", since=0), asyncio.timeout(PATIENCE):
            while not await tools_of(cell) >= TOOLS:
                await cell.changed()
        assert "heard Resource trigger-sampling-request context: 2+2?" in await cell.text(
            "trigger-sampling-request", {"prompt": "2+2?"}
        )
        assert "User provided" in await cell.text("trigger-elicitation-request")
        assert "file:///home" in await cell.text("get-roots-list")
        assert "User completed" in await cell.text("trigger-url-elicitation", {"url": URL})


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_modern_client_gets_the_urls_from_the_servers_error(tmp_path: Path, transport: str) -> None:
    async with client_session(tmp_path, transport, "everything_stdio", "modern") as cell:
        async with asyncio.timeout(PATIENCE):
            while not await tools_of(cell) >= TOOLS:
                await cell.changed()
        text = await cell.text("trigger-url-elicitation", {"url": URL, "errorPath": True})
        assert "User completed" in text


@pytest.mark.parametrize("era", ERAS)
async def test_server_everythings_resource_updates_arrive(tmp_path: Path, era: str) -> None:
    async with client_session(tmp_path, "stdio", "everything_stdio", era) as cell:
        uri = (await cell.all_of("resources"))[0]["uri"]
        async with cell.watching(uri) as updated:
            await cell.text("toggle-subscriber-updates")
            await cell.until(lambda: len(updated) > 0)
        assert set(updated) == {uri}


async def test_a_client_without_a_capability_does_not_see_tools_that_need_it(tmp_path: Path) -> None:
    """Another client of the same hub, with a session of its own, keeps its own list."""
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    config = write_config(
        tmp_path,
        {"e": {**REAL_SERVERS["everything_stdio"].entry(Place(tmp_path)), "session": "client"}},
        list_wait=PATIENCE,
    )
    async with (
        listening(tmp_path, config) as urls,
        connected("http", "handshake", urls, config) as (able, room),
        Client(streamable_http_client(urls["http"]), mode="legacy", cache=None) as plain,
    ):
        for client in (able, plain):
            result = await client.call_tool("e__echo", {"message": "hello"})
            assert isinstance(result.content[0], types.TextContent)
        able_cell, plain_cell = Cell(able, room, "handshake", "e"), Cell(plain, room, "handshake", "e")
        async with asyncio.timeout(PATIENCE):
            while not await tools_of(able_cell) >= TOOLS:
                await able_cell.changed()
        assert not await tools_of(plain_cell) & TOOLS
        refused: Any = None
        try:
            refused = await plain.call_tool("e__get-roots-list", {})
        except Exception as error:
            refused = error
        assert "Unknown tool" in json.dumps(str(refused))
