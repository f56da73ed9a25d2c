"""A replica that stops: the health that balancers see, the ownership it hands over, the calls it finishes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.fakes.client import PATIENCE, fake
from tests.replicas.raw_client import code_of, raw, text_of
from tests.replicas.served import cluster
from tests.replicas.test_questions import written
from tests.replicas.test_sessions import again, of_one_client

pytestmark = pytest.mark.anyio


async def test_a_stopping_replica_is_unready_but_live_and_serves_until_it_stops(tmp_path: Path) -> None:
    listen = {"shutdown_delay": 8}
    async with (
        cluster(tmp_path, {"up": fake()}, 2, balanced=False, listen=listen) as served,
        raw(served.url) as client,
        aiohttp.ClientSession() as http,
    ):
        assert await state(http, f"{served.url}/healthz/ready") == (200, {"status": "ok", "store": "ok"})
        await client.begin()
        served.signal(0, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while (await state(http, f"{served.url}/healthz/ready"))[0] == 200:
                pass
        assert await state(http, f"{served.url}/healthz/live") == (200, {"status": "ok", "store": "ok"})
        assert text_of(await client.call("up__echo", {"text": "a"})) == "a"
        assert await served.replicas[0][0].exited() == 0
        assert text_of(await client.call("up__echo", {"text": "a"}, served.urls[1])) == "a"


async def test_a_stopping_replica_finishes_its_calls_and_hands_over_its_ownership_at_once(tmp_path: Path) -> None:
    record = tmp_path / "record"
    servers = {"own": of_one_client(tmp_path), "up": fake("--record", str(record))}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        first = text_of(await client.call("own__pid"))
        calling = asyncio.ensure_future(client.call("up__sleep", {"seconds": 6}))
        await written(record, '"sleep"')
        served.signal(0, signal.SIGTERM)
        answer = await again(client, "own__pid", url=served.urls[1])
        while code_of(answer) is None and text_of(answer) == first:  # the signal is still on its way
            answer = await again(client, "own__pid", url=served.urls[1])
        assert code_of(answer) == "session_restarted"
        assert not calling.done()  # it is still being drained
        second = text_of(await again(client, "own__pid", url=served.urls[1]))
        assert text_of(await calling) == "slept"
        assert await served.replicas[0][0].exited() == 0
        assert text_of(await client.call("own__pid", url=served.urls[1])) == second != first


async def state(http: aiohttp.ClientSession, url: str) -> tuple[int, object]:
    async with http.get(url) as response:
        return response.status, await response.json()
