"""What a connection does with bytes: in order, within bounds, and nothing is read in two ways."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_hub.transport.http1 import server_connection
from mcp_hub.transport.http1.listener import Listener
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import (
    BOTH,
    Line,
    call,
    connected,
    fetch,
    get,
    initialized,
    message,
    read_to_end,
    request,
    turns,
)
from tests.downstream.scripted import serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio


# --- one after the other -----------------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(request(served, "POST", "/mcp", session, call("wait", {"text": "first"})))
        connection.send(get("/nothing") + get() + request(served, "POST", "/mcp", session, call("echo", {}, 2)))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        served.dispatcher.release.set()
        assert (await connection.response()).json["result"]["content"][0]["text"] == "first"
        assert [(await connection.response()).status for _ in range(2)] == [404, 200]
        assert (await connection.response()).json["id"] == 2


async def test_more_pipelined_requests_than_are_parsed_at_once_are_all_answered() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await initialized(served), call("wait")))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        many = 4 * server_connection.PIECE // len(get())
        connection.send(get() * many + get("/nothing"))
        served.dispatcher.release.set()
        assert (await connection.response()).status == 200
        assert {(await connection.response()).status for _ in range(many)} == {200}
        assert (await connection.response()).status == 404


async def test_requests_after_connection_close_are_not_answered() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get(head="Connection: close\r\n") + get() + b"no http")
        answer = await connection.response()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await read_to_end(connection) == b""


async def test_the_body_of_a_request_with_connection_close_may_arrive_later() -> None:
    async with serving() as served, connected(served) as connection:
        data = request(served, "POST", "/mcp", [*BOTH, ("Connection", "close")], message("initialize", {}))
        connection.send(data[:-5])
        assert (await fetch(served, "GET", "/healthz")).status == 200
        connection.send(data[-5:])
        assert (await connection.response()).status == 200
        assert await read_to_end(connection) == b""


async def test_invalid_http_gets_an_error_after_the_replies_before_it() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(request(served, "POST", "/mcp", session, call("wait", {"text": "first"})) + get() + b"\0\0\0\0")
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        served.dispatcher.release.set()
        assert (await connection.response()).json["result"]["content"][0]["text"] == "first"
        assert [(await connection.response()).status for _ in range(2)] == [200, 400]
        assert await read_to_end(connection) == b""


async def test_invalid_http_ends_an_open_stream() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get("/mcp", "".join(f"{name}: {value}\r\n" for name, value in await initialized(served))))
        assert (await connection.head()).status == 200
        connection.send(b"\0\0\0\0")
        assert b"HTTP/1.1" not in await read_to_end(connection)
        async with asyncio.timeout(HANG_BOUND):
            while any(session.busy for session in served.app.streamable.handshake.sessions._sessions.values()):
                await asyncio.sleep(0)


async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "KEEP_CONNECTION", 0.05)
    async with serving() as served, connected(served) as connection:
        connection.send(get())
        assert (await connection.response()).status == 200
        assert await read_to_end(connection) == b""


# --- who may fill memory -----------------------------------------------------------------------------------------


async def test_reading_pauses_while_the_handler_does_not_read_the_body() -> None:
    from mcp_hub.transport.http1.exchange import MAX_UNASKED

    body_wanted = asyncio.Event()
    bodies: list[bytes] = []

    async def handler(request: Any, reply: Any) -> None:
        await body_wanted.wait()
        bodies.append(await request.body(10_000_000))
        await reply.send(202)

    connection, line = server_connection.ServerConnection(Listener(handler, 1)), Line()
    connection.connection_made(line)
    size = 20 * MAX_UNASKED
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    received = 0
    while line.reading:
        connection.data_received(b"x" * server_connection.PIECE)
        received += server_connection.PIECE
    assert MAX_UNASKED <= received <= MAX_UNASKED + server_connection.PIECE
    await turns()
    body_wanted.set()
    await turns()
    assert line.reading
    connection.data_received(b"x" * (size - received))
    await turns()
    assert bodies == [b"x" * size]
    assert line.written.startswith(b"HTTP/1.1 202 Accepted")
    connection.connection_lost(None)


async def test_pipelined_requests_pause_reading_and_are_bounded() -> None:
    release = asyncio.Event()

    async def handler(request: Any, reply: Any) -> None:
        await release.wait()
        await reply.send(202)

    connection, line = server_connection.ServerConnection(Listener(handler, 1)), Line()
    connection.connection_made(line)
    count = 16 * server_connection.PIECE // len(get())
    connection.data_received(get() * count)
    assert not line.reading
    assert len(connection._pipelined) <= server_connection.PIECE // len(get()) + 1
    release.set()
    async with asyncio.timeout(HANG_BOUND):
        while line.written.count(b"HTTP/1.1 202") < count:
            await asyncio.sleep(0)
    assert line.reading
    connection.connection_lost(None)


async def test_bytes_after_the_last_request_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "MAX_SPILL", 100_000)
    async with serving() as served, connected(served) as connection:
        lines = [*await initialized(served), ("Connection", "close")]
        connection.send(request(served, "POST", "/mcp", lines, call("hang")))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        connection.send(b"x" * 200_000)
        assert await connection.ended()
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
