"""All four cells: a client of each era, on each transport, and upstreams that can speak only one of the two."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

from tests.fakes.client import HUB as MCP_HUB
from tests.fakes.client import free_port
from tests.peers.catalogue import (
    ONE_ERA_SERVERS,
    REVISION,
    TRANSPORTS,
    Era,
    RealServer,
    Transport,
    hub_config,
    real_servers,
)
from tests.peers.programs import network_server
from tests.peers.real_clients import ANSWERED

pytestmark = pytest.mark.anyio

HUB = [*MCP_HUB, "serve"]
MODES: dict[Era, Literal["auto", "legacy"]] = {"handshake": "legacy", "modern": "auto"}
CELLS = list(itertools.product(MODES, TRANSPORTS, REVISION))


@dataclass(frozen=True)
class Hubs:
    """A hub with all servers of one era behind it: on a network, or as a command."""

    config: Path
    base: str

    @contextlib.asynccontextmanager
    async def client(self, era: Era, transport: Transport) -> AsyncIterator[Client]:
        server: Any = f"{self.base}/mcp"
        if transport == "stdio":
            server = StdioServerParameters(command=HUB[0], args=[*HUB[1:], "--config", str(self.config)])
        elif transport == "sse":
            server = sse_client(f"{self.base}/sse")
        async with asyncio.timeout(ANSWERED), Client(server, mode=MODES[era]) as client:
            assert client.protocol_version == REVISION[era]
            yield client


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hubs]:
    tmp = tmp_path_factory.mktemp("eras")
    async with real_servers(tmp, list(ONE_ERA_SERVERS)) as place:
        config, port = hub_config(place, list(ONE_ERA_SERVERS)), free_port()
        command = [*HUB, "--sse", "--port", str(port), "--config", str(config)]
        async with network_server(command, port, log=tmp / "hub.log"):
            yield Hubs(config, f"http://127.0.0.1:{port}")


def upstreams(era: Era) -> list[RealServer]:
    return [server for server in ONE_ERA_SERVERS.values() if server.era == era]


@pytest.mark.parametrize(("era", "transport"), list(itertools.product(MODES, TRANSPORTS)))
async def test_a_client_of_either_era_lists_everything_of_servers_of_both_eras(
    hubs: Hubs, era: Era, transport: Transport
) -> None:
    async with hubs.client(era, transport) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        resources = [str(resource.uri) for resource in (await client.list_resources()).resources]
        templates = [template.uri_template for template in (await client.list_resource_templates()).resource_templates]
    assert sorted(tools) == sorted(
        f"{name}__{tool}" for name in ONE_ERA_SERVERS for tool in ("add", "countdown", "echo")
    )
    assert sorted(prompts) == sorted(f"{name}__greet" for name in ONE_ERA_SERVERS)
    assert sorted(resources) == sorted(f"fixture://{name}/greeting" for name in ONE_ERA_SERVERS)
    assert sorted(templates) == sorted(f"fixture://{name}/items/{{number}}" for name in ONE_ERA_SERVERS)


@pytest.mark.parametrize(("era", "transport", "upstream_era"), CELLS)
async def test_tools_progress_resources_and_prompts_cross_the_eras(
    hubs: Hubs, era: Era, transport: Transport, upstream_era: Era
) -> None:
    async with hubs.client(era, transport) as client:
        for server in upstreams(upstream_era):
            await _use(client, server.name)


async def _use(client: Client, name: str) -> None:
    """Use one of everything the server has."""
    reported: list[tuple[float, float | None, str | None]] = []
    all_reported = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total, message))
        if len(reported) == 3:
            all_reported.set()

    echoed = await client.call_tool(f"{name}__echo", {"text": "grüße"})
    assert _text(echoed.content[0]) == f"{name} heard grüße"
    added = await client.call_tool(f"{name}__add", {"a": 20, "b": 22})
    assert added.structured_content == {"result": 42}
    counted = await client.call_tool(f"{name}__countdown", {"steps": 3}, progress_callback=on_progress)
    assert _text(counted.content[0]) == f"{name} counted 3"
    await all_reported.wait()
    assert reported == [(1, 3, "2 to go"), (2, 3, "1 to go"), (3, 3, "0 to go")]
    for uri, ending in (("greeting", "greets"), ("items/7", "has item 7")):
        resource = await client.read_resource(f"fixture://{name}/{uri}")
        assert _text(resource.contents[0]) == f"{name} {ending}"
    prompt = await client.get_prompt(f"{name}__greet", {"who": "Ada"})
    assert _text(prompt.messages[0].content) == f"{name} says: greet Ada"


def _text(block: Any) -> str:
    text: str = block.text
    return text
