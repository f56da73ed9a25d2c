from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.downstream.raw_http import initialized
from tests.fakes.client import fake
from tests.fakes.network import network_hub
from tests.fuzz.listening import Front, call


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Front]:
    directory = tmp_path_factory.mktemp("front")
    record = directory / "record"
    entry = fake("--record", str(record), enable_tools=["echo"], tools={"echo": {"preset": {"fixed": "ours"}}})
    async with network_hub(directory, {"up": entry}) as (_, base):
        hub = Front(int(base.rpartition(":")[2]), record)
        lines = await initialized(hub)  # type: ignore[arg-type]
        answer = await hub.post(lines, call())
        assert "result" in answer.json, answer
        yield hub


@pytest.fixture
def front(running: Front) -> Front:
    running.record.write_text("")
    return running
