"""Clients that trickle, flood or do not read cost themselves only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from mcp_hub.serve import connection as connections
from mcp_hub.serve import http, sending
from mcp_hub.serve.outbox import MAX_BYTES, MAX_WAITING, Outbox
from tests.loops import anyio_backend  # noqa: F401
from tests.serve.scripted import (
    BOTH,
    HANG_BOUND,
    Connection,
    Served,
    call,
    connected,
    fetch,
    initialized,
    message,
    progress,
    request,
    serving,
)

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def narrow(served: Served) -> AsyncIterator[Connection]:
    """A connection whose client has little room for what it does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", served.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


FLOOD = {"steps": 2000, "size": 20_000, "text": "the answer"}


def test_an_outbox_drops_notifications_when_full_and_keeps_answers() -> None:
    outbox = Outbox()
    for step in range(MAX_WAITING + 10):
        outbox.put(progress(step))
    outbox.put({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (len(outbox), outbox.dropped) == (MAX_WAITING + 1, 10)
    large = Outbox()
    for step in range(3):
        large.put(progress(step, "x" * MAX_BYTES))
    assert (len(large), large.dropped) == (1, 2)


async def test_a_flood_of_progress_is_thinned_and_its_answer_kept() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await initialized(served), call("progress", FLOOD)))
        await connection.head()
        steps = 0
        while "result" not in (found := (await connection.event())[1]):
            steps += 1
        assert 0 < steps <= MAX_WAITING
        assert found["result"]["content"][0]["text"] == "the answer"


async def test_a_client_that_does_not_read_its_answer_holds_up_nobody() -> None:
    async with serving() as served, narrow(served) as deaf:
        session = await initialized(served)
        deaf.send(request(served, "POST", "/mcp", session, call("progress", FLOOD)))
        await asyncio.wait_for(deaf.reader.readexactly(1), HANG_BOUND)
        answers = await asyncio.gather(
            *(fetch(served, "POST", "/mcp", session, call("echo", {}, number)) for number in range(20))
        )
        assert {answer.status for answer in answers} == {200}


async def test_a_client_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALLED_AFTER", 0.05)
    given_up = asyncio.Event()
    give_up = http.Reply.give_up
    monkeypatch.setattr(http.Reply, "give_up", lambda reply: (give_up(reply), given_up.set()))
    async with serving() as served, narrow(served) as deaf:
        deaf.send(request(served, "POST", "/mcp", await initialized(served), call("progress", FLOOD)))
        await deaf.head()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.wait_for(given_up.wait(), HANG_BOUND)
        deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await deaf.ended()


async def test_a_whole_answer_that_nobody_reads_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "UNREAD_DEADLINE", 0.05)
    async with serving() as served, narrow(served) as deaf:
        large = call("echo", {"text": "x" * 1_000_000, "repeated": 32})  # more than the buffers of any system take
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        deaf.send(request(served, "POST", "/mcp", await initialized(served), large))
        async with asyncio.timeout(HANG_BOUND):
            while not deaf.writer.transport.is_closing():
                deaf.send(b"\r\n")  # what arrives at a dropped connection is how its client learns of it
                await asyncio.sleep(0)
        assert await served_on(served)


async def test_an_sse_client_that_does_not_read_may_not_ask_for_more() -> None:
    async with serving() as served, narrow(served) as deaf:
        session = await initialized(served)
        deaf.send(request(served, "GET", "/sse", [("Accept", "text/event-stream")]))
        await deaf.head()
        _, where = await deaf.event()
        statuses = []
        async with asyncio.timeout(HANG_BOUND):
            while 503 not in statuses:
                answer = await fetch(served, "POST", where, BOTH[:1], call("progress", {"steps": 100, "size": 100_000}))
                statuses.append(answer.status)
        assert set(statuses) == {202, 503}
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 200


async def test_headers_that_trickle_end_at_their_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_DEADLINE", 0.05)
    async with serving() as served:
        for start in (b"", b"\r\n", b"POST /mcp HTTP/1.1\r\nHost: loc"):
            async with connected(served) as connection:
                connection.send(start)
                assert await connection.ended()


async def test_a_connection_that_waits_for_its_answer_is_not_taken_for_a_trickle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_DEADLINE", 0.05)
    passed = asyncio.Event()
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await initialized(served), call("wait")))
        asyncio.get_running_loop().call_later(0.2, passed.set)
        await passed.wait()
        served.dispatcher.release.set()
        assert (await connection.response()).status == 200
        connection.send(request(served, "GET", "/healthz"))
        assert (await connection.response()).status == 200


async def test_a_body_that_trickles_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_DEADLINE", 0.05)
    async with serving() as served, connected(served) as connection:
        whole = request(served, "POST", "/mcp", BOTH, message("initialize", {}))
        connection.send(whole[:-5])
        assert (await connection.response()).status == 408
        assert await connection.ended()
        assert served.dispatcher.asked == []


async def test_headers_without_end_are_refused() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                connection.send(b"x" * 65536)
                await connection.writer.drain()
        assert await served_on(served)


async def test_long_headers_within_the_limit_are_served() -> None:
    async with serving() as served:
        assert (await fetch(served, "GET", "/healthz", [("X-Long", "x" * 30_000)])).status == 200


async def test_many_slow_bodies_hold_up_nobody() -> None:
    async with serving() as served, contextlib.AsyncExitStack() as slow:
        session = await initialized(served)
        for _ in range(50):
            connection = await slow.enter_async_context(connected(served))
            connection.send(request(served, "POST", "/mcp", session, call("echo"))[:-10])
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 200


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
async def test_what_is_no_http_ends_its_connection_only(data: bytes) -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(data)
        async with asyncio.timeout(HANG_BOUND):
            assert (await connection.reader.read()).startswith(b"HTTP/1.1 400")
        assert await served_on(served)


async def served_on(served: Served) -> bool:
    return (await fetch(served, "GET", "/healthz")).status == 200
