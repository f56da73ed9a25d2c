"""Twelve ordinary servers with 300 tools: whoever lists and calls them, as agent frameworks do, can do so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.fakes.client import HUB, PATIENCE, write_config
from tests.fakes.forks import python_with
from tests.fakes.network import network_hub, sdk, text

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

ORDINARY = Path(__file__).parent / "ordinary_server.py"
SERVERS = 12


def servers() -> dict[str, Any]:
    python = python_with("fastmcp.server.server", "fastmcp.tools.function_tool", "fastmcp.server.context")
    ids = [f"team{number}" for number in range(SERVERS)]
    return {id: {"command": python, "args": [str(ORDINARY), id]} for id in ids}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its catalogs are kept, so that only the first hub starts all servers."""
    return tmp_path_factory.mktemp("ordinary")


@asynccontextmanager
async def client_of(directory: Path, transport: str, era: str, **root: Any) -> AsyncIterator[Client]:
    """A client of the SDK, which has no elicitation and gives itself the SDK's own name."""
    if transport == "stdio":
        config = write_config(directory, servers(), **root)
        command = StdioServerParameters(command=HUB[0], args=[*HUB[1:], "serve", "--config", str(config)])
        async with Client(stdio_client(command), mode="legacy" if era == "handshake" else "auto") as client:
            yield client
        return
    async with network_hub(directory, servers(), **root) as (_, base), sdk(f"{base}/mcp", era) as client:
        yield client


async def listed(client: Client) -> list[str]:
    names: list[str] = []
    cursor: str | None = None
    async with asyncio.timeout(PATIENCE):
        while True:
            page = await client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return names


WAYS = [("stdio", "handshake"), ("stdio", "modern"), ("http", "handshake"), ("http", "modern")]


@pytest.mark.parametrize(("transport", "era"), WAYS)
async def test_a_framework_lists_all_of_300_tools_and_calls_what_it_lists(
    directory: Path, transport: str, era: str
) -> None:
    async with client_of(directory, transport, era, expose_budget=100) as client:
        names = await listed(client)
        assert len(names) == 300
        assert await text(client, "team11__delete_label", {"name": "x"}) == "delete label x"


@pytest.mark.parametrize(("transport", "era"), WAYS)
async def test_with_expose_search_a_framework_reaches_every_tool_through_what_it_lists(
    directory: Path, transport: str, era: str
) -> None:
    async with client_of(directory, transport, era, expose="search") as client:
        assert await listed(client) == ["hub_search", "hub_read", "hub_call"]
        assert "team11__delete_label(name: string" in await text(
            client, "hub_search", {"query": "delete label", "server": "team11"}
        )
        inner = {"tool": "team11__delete_label", "arguments": {"name": "x"}}
        assert await text(client, "hub_call", inner) == "delete label x"
