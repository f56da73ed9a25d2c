"""Requests of clients that one replica forwards to the one that owns their state."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from mcp_hub.downstream.event_stream import KEEP_ALIVE
from mcp_hub.downstream.replicas.forwarding import LIMIT
from tests.fakes.client import ENVELOPE, MODERN, PATIENCE, fake
from tests.replicas.raw_client import Json, raw, text_of
from tests.replicas.served import cluster
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio


async def written(record: Path, text: str) -> None:
    while not record.exists() or text not in record.read_text():
        await asyncio.sleep(0.01)


async def test_a_forwarded_call_is_cancelled_as_soon_as_its_client_leaves(tmp_path: Path) -> None:
    record = tmp_path / "record"
    servers = {"own": fake("--record", str(record), session="client")}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        assert text_of(await client.modern("tools/call", {"name": "own__pid", "arguments": {}}, served.urls[0]))
        sleep = {"name": "own__sleep", "arguments": {"seconds": 600}}
        calling = asyncio.ensure_future(client.modern("tools/call", sleep, served.urls[1]))
        async with asyncio.timeout(PATIENCE):
            await written(record, '"sleep"')
        calling.cancel()
        async with asyncio.timeout(KEEP_ALIVE / 2):  # the owner begins the response of a silent call after KEEP_ALIVE
            await written(record, "notifications/cancelled")
        async with aiohttp.ClientSession() as http, http.get(f"{served.urls[1]}/metrics") as response:
            assert "mcp_hub_forwards_broken_total 0" in await response.text()


async def test_forwarded_calls_are_answered_beside_hundreds_of_forwarded_listeners(tmp_path: Path) -> None:
    servers = {"own": {**asking(), "session": "client"}}
    async with (
        cluster(tmp_path, servers, 2, balanced=False) as served,
        raw(served.url) as client,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        contextlib.AsyncExitStack() as listening,
        asyncio.timeout(PATIENCE),
    ):
        call = {"name": "own__echo", "arguments": {"text": "there"}}
        assert text_of(await client.modern("tools/call", call, served.urls[0])) == "there"
        for number in range(LIMIT):
            await listening.enter_async_context(listener(http, served.urls[1], number))
        assert text_of(await client.modern("tools/call", call, served.urls[1])) == "there"


@contextlib.asynccontextmanager
async def listener(http: aiohttp.ClientSession, url: str, number: int) -> AsyncIterator[None]:
    """Subscribes a client to the changes of a resource."""
    params: Json = {"notifications": {"resourceSubscriptions": ["x:one"]}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": params}
    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": MODERN,
        "Mcp-Method": "subscriptions/listen",
    }
    async with http.post(f"{url}/mcp", json=message, headers=headers) as response:
        assert response.status == 200, await response.text()
        while b"acknowledged" not in await response.content.readline():
            pass
        yield
