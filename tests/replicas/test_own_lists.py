"""Lists of the modern era that are a principal's own: the same at every replica, and every change of them is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.client import ENVELOPE, MODERN, PATIENCE, fake, write_config
from tests.replicas.raw_client import Json, RawClient, code_of, events_of, raw, text_of
from tests.replicas.served import cluster
from tests.replicas.test_sessions import of_one_client

pytestmark = pytest.mark.anyio
TOKEN = "a" * 40
OWN = {"own": fake(session="client")}
LISTS = ("tools", "resources", "prompts", "resources/templates")


async def test_a_modern_client_is_listed_its_own_tools_by_every_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, OWN, balanced=False) as served, raw(served.url) as client:
        assert not await listed(client, served.urls[2], "own__grown")
        await grow(client, served.urls[1])
        assert [await listed(client, url, "own__grown") for url in served.urls * 2] == [True] * 6
        for name in LISTS:
            answers = [await client.modern(f"{name}/list", {}, url) for url in served.urls]
            assert answers[0]["result"] == answers[1]["result"] == answers[2]["result"]


async def test_own_lists_are_the_common_ones_only_while_the_owner_cannot_be_known(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, OWN, balanced=False) as served,
        raw(served.url) as client,
        listening(served.urls[2]) as before,
        asyncio.timeout(PATIENCE),
    ):
        await grow(client, served.urls[1])
        assert "tools/list_changed" in (await anext(before))["method"]
        served.store.pause()
        while await listed(client, served.urls[0], "own__grown"):  # until the lease of the owner has ended
            await asyncio.sleep(0.05)
        assert await listed(client, served.urls[2], "own__echo")
        served.store.resume()
        while not all([await listed(client, url, "own__grown") for url in served.urls]):
            await asyncio.sleep(0.05)


async def test_a_client_listens_again_where_its_principal_is_owned_now(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, OWN, 2, balanced=False) as served,
        raw(served.url) as client,
        listening(served.urls[0]) as stream,
        asyncio.timeout(PATIENCE),
    ):
        served.signal(0, signal.SIGSTOP)
        call = {"name": "own__echo", "arguments": {"text": "a"}}
        while code_of(await client.modern("tools/call", call, served.urls[1])) is not None:
            pass
        served.signal(0, signal.SIGCONT)
        assert "complete" in json.dumps([message async for message in stream])
        assert await listed(client, served.urls[0], "own__echo")


async def test_a_principal_with_another_profile_is_owned_by_one_replica_again(tmp_path: Path) -> None:
    servers = {"own": of_one_client(tmp_path)}
    profiles = {name: {"tools": ["own/*"]} for name in ("former", "present")}

    def listen(profile: str) -> dict[str, Any]:
        return {"principals": {"ann": {"token": TOKEN, "profile": profile}}}

    root: dict[str, Any] = {"profiles": profiles, "watch": False}
    async with (
        cluster(tmp_path, servers, 2, balanced=False, listen=listen("former"), **root) as served,
        raw(served.url, TOKEN) as client,
    ):
        pid: Json = {"name": "own__pid", "arguments": {}}
        former = text_of(await client.modern("tools/call", pid, served.urls[0]))
        for number, url in enumerate(served.urls):
            changed = {**listen("present"), "port": int(url.rpartition(":")[2])}
            store = {"url": served.store.url, "keys": []}
            write_config(tmp_path / f"replica{number}", servers, store=store, listen=changed, **root)
        served.replicas[0][0].process.send_signal(signal.SIGHUP)  # the other reloads with it
        for process, _ in served.replicas:
            await process.until(lambda process_now=process: b"loaded servers.json again" in process_now.stderr)
        pids = {text_of(await client.modern("tools/call", pid, url)) for url in served.urls[::-1] * 2}
    assert len(pids) == 1
    assert former not in pids


async def test_own_lists_at_all_replicas_are_those_of_the_next_owner_after_the_first_is_gone(tmp_path: Path) -> None:
    async with cluster(tmp_path, OWN, balanced=False) as served, raw(served.url) as client:
        await grow(client, served.urls[0])
        await served.end(0)
        others = served.urls[1:]
        assert [await listed(client, url, "own__grown") for url in others] == [False, False]
        with contextlib.suppress(AssertionError):  # the loss is reported once
            await grow(client, others[0])
        await grow(client, others[1])
        assert [await listed(client, url, "own__grown") for url in others] == [True, True]


async def test_a_modern_client_is_told_of_changes_of_its_own_lists_by_every_replica(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, OWN, balanced=False) as served,
        raw(served.url) as client,
        contextlib.AsyncExitStack() as stack,
        asyncio.timeout(PATIENCE),
    ):
        streams = [await stack.enter_async_context(listening(url)) for url in served.urls]
        await grow(client, served.urls[1])
        for stream in streams:
            assert "tools/list_changed" in (await anext(stream))["method"]


async def grow(client: RawClient, url: str) -> None:
    """Makes the server list one more tool to this client."""
    call = {"name": "own__grow", "arguments": {"name": "grown"}}
    assert text_of(await client.modern("tools/call", call, url)) == "grown"
    async with asyncio.timeout(PATIENCE):
        while not await listed(client, url, "own__grown"):
            pass


async def listed(client: RawClient, url: str, name: str) -> bool:
    answer = await client.modern("tools/list", {}, url)
    return name in [tool["name"] for tool in answer["result"]["tools"]]


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncIterator[AsyncIterator[Json]]:
    """Listens for changes of lists; yields the notifications after the acknowledgement."""
    params: Json = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": MODERN,
        "Mcp-Method": "subscriptions/listen",
    }

    async with aiohttp.ClientSession() as http, http.post(f"{url}/mcp", json=message, headers=headers) as response:
        assert response.status == 200, await response.text()
        messages = events_of(response)
        assert "acknowledged" in (await anext(messages))[1]["method"]  # type: ignore[index]

        async def notifications() -> AsyncIterator[Json]:
            async for _, notification in messages:
                if notification is not None:
                    yield notification

        yield notifications()
