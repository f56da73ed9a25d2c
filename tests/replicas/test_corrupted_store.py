"""Two replicas whose store somebody fills with values that are none of theirs go on replicating."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from tests.fakes.client import PATIENCE, fake
from tests.hub.groups.hearing import RESET
from tests.replicas.raw_client import RawClient, code_of, raw, text_of
from tests.replicas.served import Cluster, cluster
from tests.replicas.test_streams import counting, first_events
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio
HUGE: Final = b"\xff" * 4_000_000
LAST_ID: Final = f"{2**64 - 1}-{2**64 - 1}"
NUMBERS: Final = ("abc", "", "-1", "nan", "1e999", "9" * 400, b"\x00\xff", HUGE)
WRONG_TYPES: Final[dict[str, tuple[str | bytes | int, ...]]] = {
    "a text": ("SET", "KEY", "abc"),
    "bytes": ("SET", "KEY", b"\x00\xff \xfe"),
    "a huge text": ("SET", "KEY", HUGE),
    "a list": ("RPUSH", "KEY", "abc", b"\xff", "9" * 400 + ":abc", HUGE),
    "a set": ("SADD", "KEY", "abc", b"\xff:\xfe", "", HUGE),
    "a sorted set": ("ZADD", "KEY", "inf", "abc", "-inf", b"\xff", 1e300, "x"),
    "a hash": ("HSET", "KEY", "changes", "abc", "own", b"\xff", "attempt", HUGE, "", "abc", "tokens", "nan", "at", "x"),
    "a stream": ("XADD", "KEY", LAST_ID, "x", b"\xff"),
}
"""A command for each type of value."""
KINDS: Final = {"members", "member", "changes", "newest", "owner", "state", "watches", "bucket", "stream"}


async def corrupt(redis: Redis, key: bytes, command: tuple[str | bytes | int, ...]) -> None:
    """Puts the value of a command in the place of a key's."""
    async with redis.pipeline() as both:  # so that no replica puts a value of its own between them
        both.delete(key)
        both.execute_command(*(key if part == "KEY" else part for part in command))  # type: ignore[no-untyped-call]
        await both.execute()


async def corrupt_content(redis: Redis, key: bytes, number: str | bytes) -> None:
    """Replaces each value within a key, and leaves its type."""
    kind = await redis.type(key)
    if kind == b"hash":
        await redis.hset(key, mapping=dict.fromkeys([*await redis.hkeys(key), b"changes", number], number))
    elif kind == b"list":
        await redis.rpush(key, number)
        await redis.lset(key, 0, number)
    elif kind == b"set":
        await redis.sadd(key, number)
    elif kind == b"stream":
        with contextlib.suppress(ResponseError):  # it has no id left
            await redis.xadd(key, {b"c": number, b"e": number})
    elif kind == b"string":
        await redis.set(key, number)


class Replicating:
    """A client whose requests need every kind of key, at two replicas."""

    def __init__(self, served: Cluster, client: RawClient) -> None:
        self._urls = served.urls
        self._client = client
        self._on = False

    async def check(self) -> None:
        """Returns when state of one replica is seen at the other, and calls reach the owner of their state."""
        self._on = not self._on
        async with asyncio.timeout(PATIENCE):
            await again(self._switch)
            for url in self._urls:
                await again(self._is_known, url)
                await again(self._call, "own__echo", url)
                await again(self._call, "rated__echo", url)
                _, events = await first_events(self._client, counting(2, 0.0), url, 3)
                assert text_of(events[-1]) == "counted"
            await again(self._subscribe)

    async def _switch(self) -> bool:
        answer = await self._call_raw(RESET, {"sums": self._on}, self._urls[0])
        return code_of(answer) is None

    async def _is_known(self, url: str) -> bool:
        tools = (await self._client.request("tools/list", {}, url)).get("result", {}).get("tools", [])
        return any(tool["name"] == "up__add" for tool in tools) is self._on

    async def _call(self, name: str, url: str) -> bool:
        answer = await self._call_raw(name, {"text": "there"}, url)
        return code_of(answer) is None and text_of(answer) == "there"

    async def _subscribe(self) -> bool:
        return "result" in await self._client.request("resources/subscribe", {"uri": "x:one"}, self._urls[1])

    async def _call_raw(self, name: str, arguments: dict[str, Any], url: str) -> dict[str, Any]:
        return await self._client.request("tools/call", {"name": name, "arguments": arguments}, url)


async def again(check: Callable[..., Awaitable[bool]], *args: str) -> None:
    while not await check(*args):
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("keys", [[], ["k" * 40]], ids=["keys in the store", "keys of the configuration"])
async def test_replicas_go_on_whatever_values_the_store_has(tmp_path: Path, keys: list[str]) -> None:
    servers = {
        "up": fake(),
        "asks": asking(),
        "own": fake(session="client"),
        "rated": fake(limits={"rate": 1000}),
    }
    root: dict[str, Any] = {"groups": {"sums": {"description": "adds", "tools": ["up/add"]}}}
    async with cluster(tmp_path, servers, 2, balanced=False, keys=keys, **root) as served, raw(served.url) as client:
        await client.begin(served.url)
        replicating = Replicating(served, client)
        await replicating.check()
        async with Redis(unix_socket_path=str(served.store.socket)) as redis:
            there = {key.split(b":")[2].decode() for key in await redis.keys()}
            assert there >= KINDS | (set() if keys else {"keys"})
            for command in WRONG_TYPES.values():
                for key in await redis.keys():
                    await corrupt(redis, key, command)
                await replicating.check()
            for number in NUMBERS:
                for key in await redis.keys():
                    await corrupt_content(redis, key, number)
                await replicating.check()
