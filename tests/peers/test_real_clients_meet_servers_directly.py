"""The real clients, without the hub in between: what the drivers do is what the clients do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.peers.catalogue import (
    ONE_ERA_SERVERS,
    REAL_CLIENTS,
    REVISION,
    SERVERS_BY_NAME,
    PeerFailed,
    Place,
    Transport,
    real_servers,
    run_client_on,
    text_of,
)

pytestmark = pytest.mark.anyio

DUAL = ("fastmcp_stdio", "fastmcp_http", "fastmcp_sse")


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with real_servers(tmp_path_factory.mktemp("peers"), [*DUAL, *ONE_ERA_SERVERS]) as place:
        yield place


@pytest.mark.parametrize(
    ("client", "transport"),
    [(client.name, transport) for client in REAL_CLIENTS.values() for transport in client.versions],
)
async def test_a_client_agrees_on_its_revision_with_a_server_of_both_eras(
    place: Place, client: str, transport: Transport
) -> None:
    server = SERVERS_BY_NAME[f"fastmcp_{transport}"]
    answer = await run_client_on(client, server.entry(place), server.tool, server.arguments(place))
    assert answer["protocolVersion"] == REAL_CLIENTS[client].versions[transport]
    assert sorted(answer["tools"]) == ["add", "echo"]
    assert server.expected in text_of(answer["result"])


@pytest.mark.parametrize("name", ONE_ERA_SERVERS)
async def test_a_server_of_one_era_is_called_in_that_era(place: Place, name: str) -> None:
    server = SERVERS_BY_NAME[name]
    answer = await run_client_on("python_mcp2_auto", server.entry(place), server.tool, server.arguments(place))
    assert answer["protocolVersion"] == REVISION[server.era]
    assert sorted(answer["tools"]) == ["add", "countdown", "echo"]
    assert server.expected in text_of(answer["result"])


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_a_handshake_client_cannot_reach_a_modern_server_without_the_hub(
    place: Place, transport: Transport
) -> None:
    with pytest.raises(PeerFailed, match="Unsupported protocol version"):
        await run_client_on("python_mcp2_legacy", ONE_ERA_SERVERS[f"modern_only_{transport}"].entry(place))
