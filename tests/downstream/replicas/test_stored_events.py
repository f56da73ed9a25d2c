"""A stream whose replica is gone, ended by another one out of what the store has of it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from mcp_hub.downstream.event_stream import EventLog
from mcp_hub.downstream.replicas.shared_sessions import EventId, stream_of, write_rest
from mcp_hub.store import Store
from mcp_hub.store.replica_keys import ReplicaKeys
from mcp_hub.store.stored_stream import StoredStream
from mcp_hub.transport.http1.listener import Listener
from mcp_hub.transport.http1.server_connection import ServerConnection
from tests.downstream.raw_http import Line, get
from tests.fakes.client import PATIENCE
from tests.fakes.redis_server import redis_server

pytestmark = pytest.mark.anyio
KEYS = ReplicaKeys([b"k" * 32])
ANSWER = {"jsonrpc": "2.0", "id": 7, "result": {}}
CALLS = [[7, "tools/call", "up__one"], ["b", "tools/call", "up__two"]]


async def written(store: Store, last: EventId) -> list[Any]:
    """The messages that a client gets when it resumes at an event of a dead replica."""
    done = asyncio.Event()

    async def handler(request: Any, reply: Any) -> None:
        assert await write_rest(request, reply, stream_of(store, lambda: KEYS, "session", last), last, lambda: False)
        done.set()

    connection, line = ServerConnection(Listener(handler, 1)), Line()
    connection.connection_made(line)
    connection.data_received(get())
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    connection.connection_lost(None)
    return [json.loads(data) for data in re.findall(rb"data: (\{.*\})", line.written)]


async def test_a_request_answered_before_its_replica_died_is_not_answered_again() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        stream = StoredStream(store, lambda: KEYS, "session:gone:1")
        await stream.begin(json.dumps(CALLS).encode())
        await stream.append(1, json.dumps(ANSWER).encode())  # and then it died, before it could end the stream
        messages = await written(store, EventId("gone", 1, 0))
        assert messages[0] == ANSWER
        assert [message["id"] for message in messages] == [7, "b"]
        assert await written(store, EventId("gone", 1, 1)) == messages[1:]
        await store.close()


async def test_the_answered_members_of_a_batch_are_not_answered_again() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        stream = StoredStream(store, lambda: KEYS, "session:gone:1")
        await stream.begin(json.dumps([*CALLS, [9, "ping", None]]).encode())
        await stream.append(1, json.dumps([ANSWER, {**ANSWER, "id": "b"}]).encode())  # the third one was cancelled
        messages = await written(store, EventId("gone", 1, 1))
        assert [message["id"] for message in messages] == [9]
        await store.close()


async def test_an_event_number_that_no_store_can_hold_is_no_event_id() -> None:
    assert EventId.of(f"gone.1-{10**17}") == EventId("gone", 1, 10**17)
    for number in (2**64, 10**40):
        assert EventId.of(f"gone.1-{number}") is None
        assert EventId.of(f"gone.{number}-1") is None


async def test_a_client_that_already_has_the_response_gets_no_second_one() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        stream = StoredStream(store, lambda: KEYS, "session:gone:1")
        await stream.begin(json.dumps(CALLS[:1]).encode())
        await stream.append(1, json.dumps(ANSWER).encode())
        assert await written(store, EventId("gone", 1, 1)) == []
        await store.close()


class SlowKeeper:
    """Keeps an event only after `release` is set."""

    prefix = "here."

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.keep_called = asyncio.Event()
        self.events: list[tuple[int, bytes | None]] = []

    async def begin(self, stream: int, asked: Any) -> None: ...

    async def keep(self, stream: int, number: int, data: bytes | None) -> bool:
        self.keep_called.set()
        await self.release.wait()
        self.events.append((number, data))
        return True


async def test_an_event_is_stored_before_the_end_of_its_stream_even_if_its_client_left() -> None:
    keeper, log = SlowKeeper(), EventLog(1)
    for message in (b"1", b"2", b"3"):
        log.put(message)
    log.take_event()
    keeping = asyncio.ensure_future(log.keep_written(keeper))
    await keeper.keep_called.wait()
    keeping.cancel()
    keeper.release.set()
    await log.keep_end(keeper)
    assert keeper.events == [(1, b"1"), (2, b"2"), (3, b"3"), (4, None)]


async def test_the_end_of_a_stream_is_stored_after_the_event_still_being_stored() -> None:
    keeper, log = SlowKeeper(), EventLog(1)
    log.put(b"1")
    log.take_event()
    keeping = asyncio.ensure_future(log.keep_written(keeper))
    await keeper.keep_called.wait()
    log.put(b"2")
    ending = asyncio.ensure_future(log.keep_end(keeper))
    keeper.release.set()
    async with asyncio.timeout(PATIENCE):
        assert await keeping
        await ending
    assert keeper.events == [(1, b"1"), (2, b"2"), (3, None)]
