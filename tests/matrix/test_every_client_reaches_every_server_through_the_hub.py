"""Real clients, real servers, and the hub in between: every transport on both sides, both eras on both sides."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.clients.table import client_calling_itself
from mcp_hub.search.signatures import identifier_of
from tests.fakes.client import HUB as MCP_HUB
from tests.fakes.client import free_port
from tests.peers.catalogue import REAL_SERVERS, Place, Transport, hub_config, real_servers
from tests.peers.programs import network_server
from tests.peers.real_clients import REAL_CLIENTS, RealClient, run_client, run_client_on, text_of

pytestmark = pytest.mark.anyio

HUB = [*MCP_HUB, "serve"]
CALLED = {"handshake": "everything_http", "modern": "time"}
"""One upstream of each era, called by every client."""


@dataclass(frozen=True)
class Hubs:
    """One hub with all real servers behind it: running on a network, or a command for clients to start."""

    place: Place
    config: Path
    """What clients start it with."""
    urls: dict[Transport, str]
    tools: list[str]
    """Every tool of every server as the hub names it, asked of the servers themselves."""

    async def serve(
        self, client: str, transport: Transport, servers: list[str], meta_tool: str | None = None
    ) -> dict[str, Any]:
        """Let a client list all tools and call the known one of each of these servers, or a tool of the hub's do it."""
        servers_called = [REAL_SERVERS[name] for name in servers]
        calls = [(f"{server.name}__{server.tool}", server.arguments(self.place)) for server in servers_called]
        if meta_tool == "hub_call":
            calls = [(meta_tool, {"tool": tool, "arguments": arguments}) for tool, arguments in calls]
        elif meta_tool == "hub_run":
            calls = [
                (meta_tool, {"code": f"await {identifier_of(tool)}(**{tool_arguments!r})"})
                for tool, tool_arguments in calls
            ]
        command = [*HUB, "--config", str(self.config)] if transport == "stdio" else None
        return await run_client(client, transport, self.urls.get(transport), command, calls=calls)


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hubs]:
    tmp = tmp_path_factory.mktemp("matrix")
    async with real_servers(tmp) as place:
        config, port = hub_config(place), free_port()
        tools = await _tools_of_all(place)
        command = [*HUB, "--sse", "--port", str(port), "--config", str(config)]
        async with network_server(command, port, log=tmp / "hub.log"):
            base = f"http://127.0.0.1:{port}"
            # The hub of each client need not start all of them again: it has their lists from the first one.
            stdio_config = hub_config(place, name="started", defaults={"lazy": True})
            yield Hubs(place, stdio_config, {"http": f"{base}/mcp", "sse": f"{base}/sse"}, tools)


async def _tools_of_all(place: Place) -> list[str]:
    two_at_once = asyncio.Semaphore(2)

    async def tools_of(name: str) -> list[str]:
        async with two_at_once:
            answer = await run_client_on("typescript_sdk1", REAL_SERVERS[name].entry(place))
        return [f"{name}__{tool}" for tool in answer["tools"]]

    return sorted(itertools.chain.from_iterable(await asyncio.gather(*map(tools_of, REAL_SERVERS))))


@pytest.mark.parametrize(
    ("client", "transport"),
    [(client.name, transport) for client in REAL_CLIENTS.values() for transport in client.versions],
)
async def test_a_client_lists_every_tool_and_calls_upstreams_of_both_eras(
    hubs: Hubs, client: str, transport: Transport
) -> None:
    answer = await hubs.serve(client, transport, list(CALLED.values()))
    assert answer["protocolVersion"] == REAL_CLIENTS[client].versions[transport]
    # Servers hear what clients can be asked, on a network all of it; server-everything has more to show then.
    extra_tools = set(answer["tools"]) - set(hubs.tools)
    assert sorted(set(answer["tools"]) - extra_tools) == hubs.tools
    assert len(answer["tools"]) == len(hubs.tools) + len(extra_tools)
    assert all(name.startswith("everything") for name in extra_tools)
    for name, result in zip(CALLED.values(), answer["results"], strict=True):
        assert REAL_SERVERS[name].expected in text_of(result)


@pytest.mark.parametrize("name", REAL_SERVERS)
async def test_a_tool_of_each_real_server_works_through_the_hub(hubs: Hubs, name: str) -> None:
    answer = await hubs.serve("python_mcp2_auto", "http", [name])
    assert REAL_SERVERS[name].expected in text_of(answer["result"])


def test_the_test_servers_speak_the_eras_they_represent() -> None:
    assert {era: REAL_SERVERS[name].era for era, name in CALLED.items()} == {era: era for era in CALLED}


@pytest.mark.parametrize("expose", ["auto", "search", "code"])
async def test_every_client_lists_and_calls_in_each_way_of_exposing(tmp_path: Path, expose: str) -> None:
    """Each over one of its transports; `all` is what the other tests have."""
    servers, log = list(CALLED.values()), tmp_path / "calls.jsonl"
    async with real_servers(tmp_path, servers) as place:
        root = {"call_log": {"file": str(log)}, "expose_always": ["time/*"], "code_mode": {"writes": True}}
        config = hub_config(place, servers, expose, **root)
        port, base = free_port(), "http://127.0.0.1:"
        command = [*HUB, "--sse", "--port", str(port), "--config", str(config)]
        async with network_server(command, port, log=tmp_path / "hub.log"):
            urls: dict[Transport, str] = {"http": f"{base}{port}/mcp", "sse": f"{base}{port}/sse"}
            hubs = Hubs(place, config, urls, [])
            some_at_once = asyncio.Semaphore(3)
            meta_tool = {"search": "hub_call", "code": "hub_run"}.get(expose)
            own_tools = ["hub_search", "hub_run" if expose == "code" else "hub_read", "hub_call"]
            exposed_tools = [*own_tools, "time__get_current_time", "time__convert_time"]

            async def serve(number: int, client: RealClient) -> None:
                transport = list(client.versions)[number % len(client.versions)]
                # The inspector refuses what it was not listed, and calls it as the hub's tool says.
                tool_used = meta_tool if expose == "code" or client.name == "inspector" else None
                async with some_at_once:
                    answer = await hubs.serve(client.name, transport, servers, tool_used)
                assert (answer["tools"] == exposed_tools) == (meta_tool is not None), (
                    client.name,
                    transport,
                    answer["tools"],
                )
                for name, result in zip(servers, answer["results"], strict=True):
                    assert REAL_SERVERS[name].expected in text_of(result)

            await asyncio.gather(*(serve(number, client) for number, client in enumerate(REAL_CLIENTS.values())))
    records = [json.loads(line) for line in log.read_text().splitlines()]
    # None of them gives itself the name of a client in the table, whose lists differ.
    names = {record["client"] for record in records if record["event"] == "call" and record["tool"] == "convert_time"}
    assert names
    assert not any(map(client_calling_itself, names)), names
