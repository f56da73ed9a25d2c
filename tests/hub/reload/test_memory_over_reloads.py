"""What a reload replaces is freed while the hub goes on."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.client import StdioClient, fake, hub, write_config

pytestmark = pytest.mark.anyio
MIB = 2**20
OFF = 200
LOADED = b"loaded servers.json again"


def servers(number: int) -> dict[str, Any]:
    """Returns one server, and 200 that are off, with a rule that depends on the number of the reload."""
    rules = {"enabled": False, "preset": {"greet": {"name": str(number)}}}
    return {"up": fake(), **{f"off{n}": {**fake(), **rules} for n in range(OFF)}}


async def reload(client: StdioClient, directory: Path, number: int) -> None:
    count = client.stderr.count(LOADED)
    write_config(directory, servers(number), watch=False)
    client.process.send_signal(signal.SIGHUP)
    await client.until(lambda: client.stderr.count(LOADED) > count)


async def test_forty_reloads_do_not_grow_the_memory_of_the_hub(tmp_path: Path) -> None:
    async with hub(tmp_path, servers(0), watch=False) as client:
        process = psutil.Process(client.process.pid)
        for number in range(1, 11):
            await reload(client, tmp_path, number)
        before = process.memory_info().rss
        for number in range(11, 51):
            await reload(client, tmp_path, number)
        assert await client.text("up__echo", {"text": "still here"}) == "still here"
        assert process.memory_info().rss < before + 16 * MIB
