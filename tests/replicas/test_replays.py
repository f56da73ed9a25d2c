"""Somebody who can write the store, but has no replica key, puts back what replicas signed earlier."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from mcp_hub.catalog import Route
from mcp_hub.config.store import StoreSettings
from mcp_hub.downstream.replicas import _configured_keys
from mcp_hub.hub import Engine
from mcp_hub.policy.approvals import IDLE
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import Principal
from mcp_hub.store import Store
from mcp_hub.store.change_log import KEPT_SECONDS, Change
from tests.fakes.client import PATIENCE, fake
from tests.fakes.redis_server import RedisServer, redis_server
from tests.replicas.raw_client import code_of, raw, text_of
from tests.replicas.served import cluster
from tests.replicas.test_changes import replica

pytestmark = pytest.mark.anyio
KEY = "k" * 40
SECRET = "what-no-stranger-may-read"
FORGED = "forged-by-a-stranger"


class Stranger:
    """Listens where a replica listened, and answers every request as if it were that replica."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.heard += data
                self.asked.set()
                body = encode({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": FORGED}]}})
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                writer.write(head + body)
        writer.close()


async def put_back(redis: Redis, records: dict[bytes, bytes | None], ended: asyncio.Event) -> None:
    """Keeps signed records of members in the store, whatever happens to them."""
    while not ended.is_set():  # a cancellation may get lost in a command of the client
        for key, record in records.items():
            await redis.set(key, record or b"")
            prefix, _, owner = key.partition(b"member:")
            await redis.sadd(prefix + b"members", owner)
        await asyncio.sleep(0.05)


async def test_a_stranger_at_the_address_of_a_dead_replica_gets_no_request_of_a_client(tmp_path: Path) -> None:
    servers = {"own": fake(session="client")}
    async with (
        cluster(tmp_path, servers, 2, balanced=False, keys=[KEY]) as served,
        raw(served.url) as client,
        Redis(unix_socket_path=str(served.store.socket)) as redis,
    ):
        call: dict[str, Any] = {"name": "own__echo", "arguments": {"text": "there"}}
        for url in served.urls:
            assert text_of(await client.modern("tools/call", call, url)) == "there"
        records = {key: await redis.get(key) for key in await redis.keys("*:member:*")}
        assert len(records) == 2
        call["arguments"]["text"] = SECRET
        await served.end(0)
        stranger, port = Stranger(), int(served.urls[0].rpartition(":")[2])
        server = await asyncio.start_server(stranger.serve, "127.0.0.1", port)
        ended = asyncio.Event()
        putting = asyncio.ensure_future(put_back(redis, records, ended))
        async with server:
            answer = await client.modern("tools/call", call, served.urls[1])
            assert code_of(answer) == "server_unavailable"
            assert stranger.asked.is_set()
            assert SECRET.encode() not in stranger.heard
        ended.set()
        async with asyncio.timeout(PATIENCE):
            await putting
        await redis.delete(*records)
        async with asyncio.timeout(PATIENCE):
            while code_of(answer := await client.modern("tools/call", call, served.urls[1])) is not None:
                pass
        assert text_of(answer) == SECRET


class Attacker:
    """Reads and writes the store. It has entries that replicas have signed at any time, as it reads them all."""

    def __init__(self, server: RedisServer) -> None:
        self._store = Store(server.settings())
        keys = _configured_keys(StoreSettings.model_validate({"url": server.url, "keys": [KEY]}))
        assert keys is not None
        self._keys = keys

    async def log(self) -> list[bytes]:
        """Returns the entries of the log of changes."""
        return [fields[b"c"] for _, fields in await self._store.execute("XRANGE", self._store.key("changes"), "-", "+")]

    def signed(self, kind: str, about: str, value: Any, age: float) -> bytes:
        """Returns a change as a replica signed it `age` seconds ago."""
        change = Change("a", kind, about, value, time.time_ns() // 1000 - int(age * 1e6))
        payload = encode(msgspec.to_builtins(change))
        return self._keys.sign("change", payload).encode() + b" " + payload

    async def put(self, *entries: bytes) -> None:
        """Puts entries into the log, and makes the replicas read it."""
        for entry in entries:
            id = await self._store.execute("XADD", self._store.key("changes"), "*", "c", entry)
            await self._store.execute("SET", self._store.key("newest"), id)

    async def forget(self) -> None:
        """Deletes the log."""
        await self._store.execute("DEL", self._store.key("changes"))

    async def close(self) -> None:
        await self._store.close()


@contextlib.asynccontextmanager
async def attacked(directory: Path, count: int) -> AsyncIterator[tuple[Attacker, list[Engine], RedisServer]]:
    async with redis_server() as server, contextlib.AsyncExitStack() as stack:
        attacker = Attacker(server)
        stack.push_async_callback(attacker.close)
        hubs = [await stack.enter_async_context(joined(directory, n, server)) for n in range(count)]
        yield attacker, hubs, server


def joined(directory: Path, number: int, server: RedisServer) -> contextlib.AbstractAsyncContextManager[Engine]:
    return replica(directory / f"replica{number}", server, keys=[KEY])


async def all_has_been_read(attacker: Attacker, *hubs: Engine) -> None:
    """Returns when the replicas have read the whole log: they know a new label of a caller."""
    await attacker.put(attacker.signed("used", "principal mark", [["mark"], time.time()], 0))
    async with asyncio.timeout(PATIENCE):
        for hub in hubs:
            while not hub.used_labels.labels(hub.callers.of(Principal("mark")), 0.0):
                await asyncio.sleep(0.01)
            hub.callers.end(Principal("mark").key)


async def test_a_disabled_server_is_not_enabled_by_an_old_change(tmp_path: Path) -> None:
    async with attacked(tmp_path, 2) as (attacker, (first, second), server):
        await first.sharing.broadcast("switch", None, ["up", "enable"])
        (old,) = await attacker.log()
        for hub in (first, second):
            await hub.switch.disable("up")
        await second.sharing.broadcast("switch", None, ["up", "disable"])
        await attacker.put(old, old)
        await all_has_been_read(attacker, first, second)
        assert [hub.upstreams["up"].server.enabled for hub in (first, second)] == [False, False]
        await attacker.forget()
        async with joined(tmp_path, 2, server) as third:
            await third.switch.disable("up")
            await attacker.put(attacker.signed("switch", "", ["up", "enable"], 60))
            await all_has_been_read(attacker, first, second, third)
            assert not third.upstreams["up"].server.enabled


async def test_a_change_that_was_held_back_does_not_replace_a_later_one(tmp_path: Path) -> None:
    async with attacked(tmp_path, 1) as (attacker, (hub,), _):
        later = attacker.signed("switch", "", ["up", "disable"], 0)
        await attacker.put(later, attacker.signed("switch", "", ["up", "enable"], 5))
        await all_has_been_read(attacker, hub)
        assert not hub.upstreams["up"].server.enabled
        await attacker.put(attacker.signed("switch", "", ["up", "enable"], -1))
        await all_has_been_read(attacker, hub)
        assert hub.upstreams["up"].server.enabled


@pytest.mark.parametrize(("age", "is_taken"), [(IDLE - 60, True), (IDLE + 60, False), (KEPT_SECONDS + 60, False)])
async def test_a_replica_that_begins_takes_an_approval_of_a_principal_only_while_it_counts(
    tmp_path: Path, age: float, is_taken: bool
) -> None:
    async with attacked(tmp_path, 0) as (attacker, _, server):
        await attacker.put(attacker.signed("approved", "principal ann", ["up", "echo"], age))
        async with joined(tmp_path, 0, server) as hub:
            assert hub.approvals.has(hub.callers.of(Principal("ann")), Route("up", TOOLS, "echo")) is is_taken


async def test_an_approval_that_is_put_back_into_the_log_is_not_taken_by_replicas_that_run(tmp_path: Path) -> None:
    async with attacked(tmp_path, 1) as (attacker, (hub,), _):
        await attacker.put(attacker.signed("approved", "principal ann", ["up", "echo"], 60))
        await all_has_been_read(attacker, hub)
        assert not hub.approvals.has(hub.callers.of(Principal("ann")), Route("up", TOOLS, "echo"))


@pytest.mark.parametrize(("ahead", "is_taken"), [(25.0, True), (35.0, False)])
async def test_the_clocks_of_replicas_may_differ_by_thirty_seconds(
    tmp_path: Path, ahead: float, is_taken: bool
) -> None:
    async with attacked(tmp_path, 1) as (attacker, (hub,), _):
        await attacker.put(attacker.signed("switch", "", ["up", "disable"], -ahead))
        await all_has_been_read(attacker, hub)
        assert hub.upstreams["up"].server.enabled is not is_taken
        await hub.sharing.broadcast("switch", None, ["up", "enable"])  # its clock is behind
        ahead_change, *_, last_change = [json.loads(entry.partition(b" ")[2]) for entry in await attacker.log()]
        assert (last_change["at"] > ahead_change["at"]) is is_taken
