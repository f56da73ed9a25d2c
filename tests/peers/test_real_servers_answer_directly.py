"""The real servers, without the hub in between: what the hub is measured by."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.peers.catalogue import REAL_SERVERS, REVISION, Place, real_servers, run_client_on, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with real_servers(tmp_path_factory.mktemp("peers")) as place:
        yield place


@pytest.mark.parametrize("name", REAL_SERVERS)
async def test_a_real_server_speaks_its_era_and_does_its_work(place: Place, name: str) -> None:
    server = REAL_SERVERS[name]
    answer = await run_client_on("python_mcp2_auto", server.entry(place), server.tool, server.arguments(place))
    assert answer["protocolVersion"] == REVISION[server.era]
    assert server.tool in answer["tools"]
    assert server.expected in text_of(answer["result"])
