"""Every feature, for clients over http of both eras and servers over every transport in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.matrix.cells import ERAS, SERVERS, Cell, configured, connected, listening
from tests.matrix.features import *  # noqa: F403

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Path, Path]]:
    tmp = tmp_path_factory.mktemp("http")
    async with configured(tmp) as config:
        yield tmp, config


@pytest.fixture(scope="module", params=ERAS)
async def client(request: pytest.FixtureRequest, place: tuple[Path, Path]) -> AsyncIterator[Cell]:
    """The only client that calls anything on its hub: with several, log messages of some servers are nobody's."""
    async with (
        listening(*place) as urls,
        connected("http", request.param, urls, place[1]) as (client, room),
    ):
        yield Cell(client, room, request.param, "")


@pytest.fixture(params=["_".join(server) for server in SERVERS])
def cell(request: pytest.FixtureRequest, client: Cell) -> Cell:
    return Cell(client.client, client.room, client.era, request.param)
