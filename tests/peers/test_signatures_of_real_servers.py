"""The signatures and stubs that search shows of what real servers list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.client import HUB, spawned
from tests.peers.catalogue import REAL_SERVERS, hub_config, real_servers
from tests.search.schemas import check_signature, check_stub

pytestmark = pytest.mark.anyio


async def test_signatures_and_stubs_keep_every_required_parameter_of_real_servers_and_its_type(tmp_path: Path) -> None:
    async with real_servers(tmp_path) as place:
        config = hub_config(place)
        async with spawned([*HUB, "serve", "--config", str(config)]) as client:
            await client.initialize()
            tools = (await client.request("tools/list"))["tools"]
    assert len(tools) > 5 * len(REAL_SERVERS)
    for tool in tools:
        check_signature(tool["name"], json.loads(json.dumps(tool["inputSchema"])))
        check_stub(tool["name"], tool["inputSchema"], tool.get("outputSchema"))
