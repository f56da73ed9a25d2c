"""Streams in the store: read again, and followed, by another replica."""

from __future__ import annotations

import pytest

from mcp_hub.store import Store
from mcp_hub.store.replica_keys import ReplicaKeys
from mcp_hub.store.stored_stream import MAX_EVENTS, StoredStream
from tests.fakes.redis_server import redis_server

pytestmark = pytest.mark.anyio
KEYS = ReplicaKeys([b"k" * 32])


async def test_another_replica_reads_the_events_after_an_event_id() -> None:
    async with redis_server() as server:
        first_store, second_store = Store(server.settings()), Store(server.settings())
        stream = StoredStream(first_store, lambda: KEYS, "s-1")
        for number in range(1, 6):
            await stream.append(number, b'{"n":%d}' % number)
        events = await StoredStream(second_store, lambda: KEYS, "s-1").read(2)
        assert events == [(3, b'{"n":3}'), (4, b'{"n":4}'), (5, b'{"n":5}')]
        assert await StoredStream(second_store, lambda: KEYS, "s-1").read(5) == []
        await first_store.close()
        await second_store.close()


async def test_an_event_at_another_place_than_it_was_signed_for_is_not_read() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        stream, other = StoredStream(store, lambda: KEYS, "s-1"), StoredStream(store, lambda: KEYS, "s-2")
        for number in (1, 2):
            await stream.append(number, b'{"n":%d}' % number)
        ((_, first), _) = await store.execute("XRANGE", store.key("stream:s-1"), "-", "+")
        await store.execute("XADD", store.key("stream:s-1"), "3-1", "e", first[b"e"])
        await store.execute("XADD", store.key("stream:s-1"), "4-1", "e", b'{"forged":true}')
        await store.execute("XADD", store.key("stream:s-2"), "1-1", "e", first[b"e"])
        assert await stream.read(0) == [(1, b'{"n":1}'), (2, b'{"n":2}')]
        assert await other.read(0) == []
        await stream.begin(b"[1]")
        await store.execute("COPY", store.key("stream:s-1:asked"), store.key("stream:s-2:asked"))
        assert (await stream.requests(), await other.requests()) == (b"[1]", None)
        await store.close()


async def test_events_after_discarded_ones_are_not_read() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        stream = StoredStream(store, lambda: KEYS, "s-1")
        for number in range(1, MAX_EVENTS + 50):
            await stream.append(number, b"{}")
        assert await stream.read(10) is None
        await stream.append(MAX_EVENTS + 60, b"{}")
        assert await stream.read(MAX_EVENTS + 40) is None
        assert await StoredStream(store, lambda: KEYS, "unknown").read(3) is None
        await store.close()


async def test_a_stream_expires() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        stream = StoredStream(store, lambda: KEYS, "s-1")
        await stream.append(1, b"{}")
        assert 0 < await store.execute("TTL", store.key("stream:s-1")) <= 300
        await store.close()
