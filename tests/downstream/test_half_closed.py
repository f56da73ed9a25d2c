"""A client that ends its half of the connection gets its answers; one that has gone is noticed all the same."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_hub.config.models import Listen
from mcp_hub.transport.http1 import send_buffer
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.network.test_tls import certificate
from tests.downstream.raw_http import BOTH, Connection, Response, call, connected, initialized, modern, request
from tests.downstream.scripted import Served, serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio

JSON_ONLY = [("Content-Type", "application/json"), ("Accept", "application/json")]


async def answer(connection: Connection) -> Response:
    """The next response behind the signs of life before it."""
    while True:
        response = await connection.response()
        if response.status != 100:
            return response


async def session_of(served: Served) -> list[tuple[str, str]]:
    """A session of a client that takes no event stream: nothing is written until the answer is."""
    return [*JSON_ONLY, (await initialized(served))[-1]]


async def test_a_half_closed_client_gets_its_response_before_the_connection_closes() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await session_of(served), call("wait", {"text": "late"})))
        connection.writer.write_eof()
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        assert (await connection.head()).status == 100
        served.dispatcher.release.set()
        assert (await answer(connection)).json["result"]["content"][0]["text"] == "late"
        assert await connection.ended()
        assert not served.dispatcher.cancelled.is_set()


async def test_pipelined_requests_of_a_half_closed_client_are_all_answered() -> None:
    async with serving() as served, connected(served) as connection:
        lines = await session_of(served)
        connection.send(
            b"".join(request(served, "POST", "/mcp", lines, call("echo", {}, request_id)) for request_id in range(5))
        )
        connection.writer.write_eof()
        assert [(await answer(connection)).json["id"] for _ in range(5)] == [0, 1, 2, 3, 4]
        assert await connection.ended()


async def test_a_half_closed_client_gets_a_whole_stream_that_begins_later() -> None:
    async with serving() as served, connected(served) as connection:
        lines, body = modern("tools/call", {"name": "progress", "_meta": {}})
        connection.send(request(served, "POST", "/mcp", lines, body))
        connection.writer.write_eof()
        head = await connection.head()
        while head.status == 100:
            head = await connection.head()
        assert head.headers["content-type"] == "text/event-stream"
        events = [await connection.event() for _ in range(4)]
        assert "result" in events[2][1]
        assert events[3] == ("end", None)


@pytest.mark.parametrize("reset", [False, True], ids=["both halves closed", "reset"])
async def test_a_disconnected_client_cancels_its_call(reset: bool) -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await session_of(served), call("hang")))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        if reset:
            sock = connection.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.writer.close()
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)


async def test_a_half_closed_client_that_disconnects_cancels_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_buffer, "LAST_LOOK", 0.02)
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await session_of(served), call("hang")))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        connection.writer.write_eof()
        assert [(await connection.head()).status for _ in range(3)] == [100, 100, 100]
        connection.writer.close()
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)


async def test_a_half_closed_client_with_an_incomplete_request_is_closed() -> None:
    async with serving() as served, connected(served) as connection:
        lines = await session_of(served)
        data = request(served, "POST", "/mcp", lines, call("wait", {"text": "first"}))
        connection.send(data + data[:-3])
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        connection.writer.write_eof()
        served.dispatcher.release.set()
        assert (await answer(connection)).json["result"]["content"][0]["text"] == "first"
        assert await connection.ended()
        assert served.dispatcher.methods.count("tools/call") == 1
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", BOTH, b"{}")[:-1])
        connection.writer.write_eof()
        assert await connection.ended()


async def test_a_half_closed_tls_connection_counts_as_disconnected(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    async with serving(Listen.model_validate({"port": 0, "tls": tls})) as served:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=tls["cert"])
        client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)

        async def take_part(step: Callable[[], object]) -> None:
            """Does a step of the client, and sends and receives what TLS wants for it."""
            while True:
                try:
                    step()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await asyncio.wait_for(reader.read(65536), HANG_BOUND))
            writer.write(outgoing.read())

        await take_part(client.do_handshake)
        lines, body = modern("tools/call", {"name": "hang"})
        await take_part(lambda: client.write(request(served, "POST", "/mcp", lines, body)))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.unwrap()  # it has said that it sends no more, and could still read
        writer.write(outgoing.read())
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
        writer.close()


async def test_a_half_closed_http_1_0_connection_counts_as_disconnected() -> None:
    async with serving() as served, connected(served) as connection:
        lines = await session_of(served)
        data = request(served, "POST", "/mcp", lines, call("hang")).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        connection.send(data)
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        connection.writer.write_eof()
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
