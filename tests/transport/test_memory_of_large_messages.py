"""Memory of large messages is kept for the next one, and given back when none comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from tests.fakes.client import PATIENCE, fake, hub

pytestmark = pytest.mark.anyio
MIB = 2**20


async def test_memory_of_large_results_is_returned_to_the_system(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        await client.tool_names()
        process = psutil.Process(client.process.pid)
        before = process.memory_info().rss
        for _ in range(4):
            assert len(await client.text("up__big", {"bytes": 8 * MIB})) == 8 * MIB
        async with asyncio.timeout(PATIENCE):
            while process.memory_info().rss > before + 20 * MIB:
                assert await client.request("ping") == {}
