"""One rate for all replicas, shared fairly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcp_hub.store import Store
from mcp_hub.store.shared_bucket import SharedBucket
from tests.fakes.redis_server import redis_server

pytestmark = pytest.mark.anyio
SLOW = 0.001
"""A rate, in tokens a second, so low that no token is refilled during a test."""


@asynccontextmanager
async def buckets(count: int) -> AsyncIterator[list[SharedBucket]]:
    """Opens buckets of so many replicas, each with its own connection to one store."""
    async with redis_server() as server:
        stores = [Store(server.settings()) for _ in range(count)]
        yield [SharedBucket(store, lambda: 3) for store in stores]
        for store in stores:
            await store.close()


async def test_replicas_share_one_token_bucket() -> None:
    async with buckets(3) as three:
        waits = [await three[i % 3].take("server", 6, "alice") for i in range(12)]
        assert waits[:6] == [0] * 6
        assert sum(wait > 0 for wait in waits[6:]) > 0
        assert all(wait <= 1 / 6 for wait in waits)


async def test_a_flooding_principal_leaves_other_principals_their_share() -> None:
    async with buckets(2) as (flooded, second):
        await second.take("server", 20, "bob")
        count = 0
        while await flooded.take("server", 20, "mallory") == 0:
            count += 1
        assert count >= 10
        assert [await second.take("server", 20, "bob") for _ in range(5)] == [0] * 5


async def test_a_single_principal_gets_the_whole_rate() -> None:
    async with buckets(1) as (alone,):
        assert [await alone.take("server", 10, "alice") for _ in range(10)] == [0] * 10


async def test_a_replica_whose_requests_the_store_refuses_allows_only_its_share() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        bucket = SharedBucket(store, lambda: 4)
        assert await bucket.take("server", SLOW, "alice", 40) == 0
        await store.execute("ACL", "SETUSER", "default", "-zadd")
        waits = [await bucket.take("server", SLOW, "alice", 40) for _ in range(40)]
        assert waits.count(0) == 10
        assert not store.is_unavailable
        await store.close()


@pytest.mark.parametrize("tokens", ["nan", "inf", "-inf", "1e308", "-5", "abc", b"\xff", ""])
@pytest.mark.parametrize("at", ["nan", "inf", "-inf", "1e308", "abc"])
async def test_a_bucket_with_values_that_are_none_gives_tokens_again(tokens: str | bytes, at: str) -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        bucket = SharedBucket(store, lambda: 4)
        assert await bucket.take("server", SLOW, "alice", 4) == 0
        for key in await store.execute("KEYS", "*"):
            if key.endswith(b":active"):
                await store.execute("ZADD", key, "+inf", "nobody", 1e12, "later", "-inf", "before")
            else:
                await store.execute("HSET", key, "tokens", tokens, "at", at)
        waits = [await bucket.take("server", SLOW, "alice", 4) for _ in range(5)]
        assert waits[:4] == [0] * 4
        assert waits[4] > 0
        await store.close()


async def test_different_names_have_different_buckets() -> None:
    async with buckets(1) as (bucket,):
        assert await bucket.take("a", SLOW, "alice") == 0
        assert await bucket.take("a", SLOW, "alice") > 0
        assert await bucket.take("b", SLOW, "alice") == 0


async def test_a_burst_up_to_the_bucket_size_is_allowed() -> None:
    async with buckets(1) as (bucket,):
        assert [await bucket.take("server", SLOW, "alice", room=3) for _ in range(3)] == [0] * 3
        assert await bucket.take("server", SLOW, "alice", room=3) > 0


async def test_the_store_receives_no_principal_name() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        await SharedBucket(store, lambda: 1).take("mail", 5, "alice@example.org" * 1000)
        keys = await store.execute("KEYS", "*")
        assert all(len(key) < 200 and b"alice" not in key for key in keys)
        assert len(keys) == 3
        await store.close()


async def test_tokens_are_refilled_over_time() -> None:
    async with buckets(1) as (bucket,):
        while await bucket.take("server", 50, "alice") == 0:
            pass
        async with asyncio.timeout(30):
            while await bucket.take("server", 50, "alice") > 0:
                await asyncio.sleep(0.01)


async def test_a_store_clock_set_back_blocks_nobody_for_long() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        bucket = SharedBucket(store, lambda: 1)
        assert await bucket.take("server", 5, "alice") == 0
        for key in await store.execute("KEYS", store.key("bucket:*")):
            if await store.execute("TYPE", key) == b"hash":
                await store.execute("HSET", key, "at", "99999999999", "tokens", "0")
        assert 0 < await bucket.take("server", 5, "alice") <= 0.2
        await store.close()


async def test_without_the_store_each_replica_applies_its_share_of_the_rate() -> None:
    now = 0.0
    async with redis_server() as server:
        store = Store(server.settings())
        bucket = SharedBucket(store, lambda: 3, clock=lambda: now)
        assert await bucket.take("server", 30, "alice") == 0
        server.pause()
        assert bucket.parts == 1
        assert [await bucket.take("server", 30, "alice") for _ in range(11)] == [0] * 10 + [pytest.approx(0.1)]
        assert bucket.parts == 3
        now += 0.1
        assert await bucket.take("server", 30, "alice") == 0
        server.resume()
        await store.close()
