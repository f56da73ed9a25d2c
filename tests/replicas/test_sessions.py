"""A session of the handshake era, served by whichever replica a request reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.client import fake
from tests.fakes.network import sdk, text
from tests.replicas.served import cluster

pytestmark = pytest.mark.anyio


async def test_a_session_is_served_by_every_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}) as served, sdk(f"{served.url}/mcp", "handshake") as client:
        for number in range(12):
            assert await text(client, "up__echo", {"text": str(number)})
            assert (await client.list_tools()).tools
