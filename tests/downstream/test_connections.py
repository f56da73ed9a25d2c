"""What a connection does with bytes: in order, within bounds, and nothing is read in two ways."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.transport.http1 import heads, server_connection
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest
from mcp_hub.transport.http1.listener import Listener
from tests.downstream.scripted import (
    BOTH,
    HANG_BOUND,
    Connection,
    Response,
    Served,
    call,
    connected,
    fetch,
    initialized,
    message,
    request,
    serving,
)
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio


def get(path: str = "/healthz", head: str = "", version: str = "1.1") -> bytes:
    return f"GET {path} HTTP/{version}\r\nHost: localhost\r\n{head}\r\n".encode()


async def rest(connection: Connection) -> bytes:
    """Everything up to the end of the connection."""
    async with asyncio.timeout(HANG_BOUND):
        return await connection.reader.read()


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
        assert await rest(connection) == b""


async def test_the_body_of_a_request_with_connection_close_may_come_later() -> None:
    async with serving() as served, connected(served) as connection:
        whole = request(served, "POST", "/mcp", [*BOTH, ("Connection", "close")], message("initialize", {}))
        connection.send(whole[:-5])
        assert (await fetch(served, "GET", "/healthz")).status == 200
        connection.send(whole[-5:])
        assert (await connection.response()).status == 200
        assert await rest(connection) == b""


async def test_invalid_http_gets_an_error_after_the_replies_before_it() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(request(served, "POST", "/mcp", session, call("wait", {"text": "first"})) + get() + b"\0\0\0\0")
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        served.dispatcher.release.set()
        assert (await connection.response()).json["result"]["content"][0]["text"] == "first"
        assert [(await connection.response()).status for _ in range(2)] == [200, 400]
        assert await rest(connection) == b""


async def test_invalid_http_ends_an_open_stream() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get("/mcp", "".join(f"{name}: {value}\r\n" for name, value in await initialized(served))))
        assert (await connection.head()).status == 200
        connection.send(b"\0\0\0\0")
        assert b"HTTP/1.1" not in await rest(connection)
        async with asyncio.timeout(HANG_BOUND):
            while any(session.busy for session in served.app.streamable.handshake.sessions._sessions.values()):
                await asyncio.sleep(0)


async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "KEEP_CONNECTION", 0.05)
    async with serving() as served, connected(served) as connection:
        connection.send(get())
        assert (await connection.response()).status == 200
        assert await rest(connection) == b""


# --- versions, methods, heads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["", "Connection: keep-alive\r\n"])
async def test_a_connection_of_http_1_0_ends_with_its_answer(head: str) -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get(head=head, version="1.0"))
        answer = await connection.response()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await rest(connection) == b""


async def test_a_stream_of_http_1_0_has_no_chunks() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get("/sse", version="1.0"))
        answer = await connection.head()
        assert (answer.headers["connection"], answer.headers.get("transfer-encoding")) == ("close", None)
        async with asyncio.timeout(HANG_BOUND):
            assert (await connection.reader.readuntil(b"\n\n")).startswith(b"event: endpoint\ndata: /messages?")


async def test_the_answer_to_head_has_a_length_and_no_body() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get().replace(b"GET", b"HEAD") + get())
        bodiless, whole = await connection.head(), await connection.response()
        assert bodiless.headers["content-length"] == whole.headers["content-length"] == str(len(whole.body))


async def test_every_answer_is_dated() -> None:
    async with serving() as served:
        answer = await fetch(served, "GET", "/healthz")
        assert parsedate_to_datetime(answer.headers["date"]).tzinfo is not None


@pytest.mark.parametrize(
    "text",
    [
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: local\0host\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n{}",
    ],
)
async def test_an_invalid_head_ends_its_connection(text: bytes) -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(text + get())
        said = await rest(connection)
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert said.count(b"HTTP/1.1") == 1


async def test_a_head_beyond_its_bound_is_refused_however_it_comes() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get() + get(head=f"X-Long: {'x' * 2 * heads.MAX_HEAD}\r\n"))
        assert (await connection.response()).status == 200
        assert (await connection.head()).status == 431
        assert await connection.ended()


def sized(size: int, body: bytes = b"") -> bytes:
    """A request whose head has so many bytes, in lines of about 1000."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    lines, left = [], size - len(get(head=length))
    while left:
        line = left if left < 2000 else 1000
        lines.append(f"X-Filler: {'x' * (line - len('X-Filler: ') - 2)}\r\n")
        left -= line
    return get(head=length + "".join(lines)) + body


@pytest.mark.parametrize("piece", [1 << 20, 16_384, 5000, 777])
@pytest.mark.parametrize("body", [b"", b"{}"])
@pytest.mark.parametrize("before", [b"", b"first", b"behind the first"], ids=["alone", "second", "in one piece"])
async def test_the_bound_of_a_head_holds_to_the_byte(piece: int, body: bytes, before: bytes) -> None:
    for size, status in ((heads.MAX_HEAD, 200), (heads.MAX_HEAD + 1, 431)):
        async with serving() as served, connected(served) as connection:
            data = sized(size, body)
            assert data.index(b"\r\n\r\n") + 4 == size
            if before == b"first":
                connection.send(get())
                assert (await connection.response()).status == 200
            elif before:
                data = get() + data
            for at in range(0, len(data), piece):
                connection.send(data[at : at + piece])
                await connection.writer.drain()
                await asyncio.sleep(0)
            if before not in (b"", b"first"):
                assert (await connection.response()).status == 200
            assert (await connection.head()).status == status


async def test_a_head_of_98_kb_is_refused() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(sized(98_000))
        assert (await connection.head()).status == 431
        assert await connection.ended()


async def test_a_head_that_is_never_complete_is_answered_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "HEAD_DEADLINE", 0.05)
    async with serving() as served, connected(served) as connection:
        connection.send(get()[:-4])
        assert (await connection.head()).status == 408
        assert await connection.ended()
        assert served.app.refusals.counts == {"head_too_slow": 1}


CHUNKED = b"2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "version", "status"),
    [
        (["gzip, chunked"], "1.1", 501),
        (["identity", "chunked"], "1.1", 501),
        (["identity, chunked"], "1.1", 501),
        (["gzip"], "1.1", 400),
        (["identity"], "1.1", 400),
        (["chunked, gzip"], "1.1", 400),
        (["chunked", "chunked"], "1.1", 400),
        (["chunked"], "1.0", 400),
        (["gzip, chunked"], "1.0", 501),
        (["chunked"], "1.1", 415),
        (["\tCHUNKED "], "1.1", 415),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["first", "second"])
async def test_only_one_transfer_coding_is_taken(lines: list[str], version: str, status: int, known: bool) -> None:
    async with serving() as served, connected(served) as connection:
        if known:  # the head of a request that is like the one before is not made again
            connection.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED)
            assert (await connection.response()).status == 415
        head = "".join(f"Transfer-Encoding: {line}\r\n" for line in lines)
        connection.send(f"POST /mcp HTTP/{version}\r\nHost: localhost\r\n{head}\r\n".encode() + CHUNKED + get())
        assert (await connection.response()).status == status
        if status != 415:
            assert await rest(connection) == b""
            assert served.app.refusals.counts["transfer_encoding"] + served.app.refusals.counts["bad_request"] == 1


# --- bodies ------------------------------------------------------------------------------------------------------


def chunked(body: bytes, trailer: bytes = b"", size: int = 7) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;x=y\r\n%b\r\n" % (len(each), each) for each in pieces) + b"0\r\n" + trailer + b"\r\n"


def in_chunks(lines: list[tuple[str, str]], host: str = "Host: localhost\r\n") -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"POST /mcp HTTP/1.1\r\n{host}{head}Transfer-Encoding: chunked\r\n\r\n".encode()


async def test_a_body_in_chunks_is_put_together() -> None:
    async with serving() as served, connected(served) as connection:
        text = "x" * 200_000
        data = in_chunks(await initialized(served)) + chunked(call("echo", {"text": text}), size=1000)
        for at in range(0, len(data), 50_001):
            connection.send(data[at : at + 50_001])
            await connection.writer.drain()
        assert (await connection.response()).json["result"]["content"][0]["text"] == text


async def test_trailers_do_not_become_headers() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(in_chunks(BOTH, host="") + chunked(call("echo"), b"Host: localhost\r\n"))
        assert (await connection.response()).status == 421
        stranger, known = session[:-1], f"{session[-1][0]}: {session[-1][1]}\r\n"
        connection.send(in_chunks(stranger) + chunked(call("echo"), known.encode()))
        assert (await connection.response()).status == 400
    assert "tools/call" not in served.dispatcher.asked


async def test_trailers_are_bounded() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(in_chunks(BOTH) + chunked(call("echo"))[:-2] + b"X: " + b"x" * 3 * heads.MAX_HEAD)
        assert (await connection.head()).status == 431
        assert await connection.ended()
        assert served.dispatcher.asked == []


async def test_a_body_with_an_invalid_chunk_is_refused() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(in_chunks(await initialized(served)) + b"2\r\n{}\r\n")
        assert (await fetch(served, "GET", "/healthz")).status == 200
        connection.send(b"zz\r\n")
        assert (await rest(connection)).startswith(b"HTTP/1.1 400")
    assert "tools/call" not in served.dispatcher.asked


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    async with serving() as served, connected(served) as connection:
        whole = request(served, "POST", "/mcp", [*BOTH, ("Expect", "100-continue")], message("initialize", {}))
        head, _, body = whole.partition(b"\r\n\r\n")
        connection.send(head + b"\r\n\r\n")
        assert (await connection.head()).status == 100
        connection.send(body)
        assert (await connection.response()).status == 200


async def test_a_refused_body_gets_no_100_continue() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n")
        connection.send(b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await connection.response()).status == 415
        connection.send(b"{}" + get())
        assert (await connection.response()).status == 200


async def test_a_body_that_is_refused_is_read_so_that_the_next_request_is_answered() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "PUT", "/mcp", [("Content-Length", "300000")]) + b"x" * 300_000 + get())
        assert (await connection.response()).status == 405
        assert (await connection.response()).status == 200


async def test_an_upgrade_is_ignored_and_the_body_is_read() -> None:
    async with serving() as served, connected(served) as connection:
        offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAE")]
        session = await initialized(served)
        hidden = request(served, "POST", "/mcp", session, call("echo", {"text": "hidden"}))
        whole = request(served, "POST", "/mcp", [*session, *offer], hidden)
        connection.send(whole[: -len(hidden)])
        assert (await fetch(served, "GET", "/healthz")).status == 200
        connection.send(hidden + request(served, "POST", "/mcp", [*session, *offer], call("echo", {"text": "seen"})))
        assert (await connection.response()).status == 400
        assert (await connection.response()).json["result"]["content"][0]["text"] == "seen"
        assert served.dispatcher.asked.count("tools/call") == 1


async def test_many_upgrades_are_ignored() -> None:
    async with serving() as served, connected(served) as connection:
        many = 500
        connection.send(get(head="Connection: upgrade\r\nUpgrade: x\r\n") * many + get("/nothing"))
        assert {(await connection.response()).status for _ in range(many)} == {200}
        assert (await connection.response()).status == 404


# --- who may fill memory -----------------------------------------------------------------------------------------


class Line(asyncio.Transport):
    """The other side of a connection, in the hands of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.said = b""
        self.closed = False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: Any) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_reading_pauses_while_nobody_asks_for_the_body() -> None:
    from mcp_hub.transport.http1.exchange import MAX_UNASKED

    wanted = asyncio.Event()
    bodies: list[bytes] = []

    async def handler(request: Any, reply: Any) -> None:
        await wanted.wait()
        bodies.append(await request.body(10_000_000))
        await reply.send(202)

    connection, line = server_connection.ServerConnection(Listener(handler, 1)), Line()
    connection.connection_made(line)
    size = 20 * MAX_UNASKED
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    fed = 0
    while line.reading:
        connection.data_received(b"x" * server_connection.PIECE)
        fed += server_connection.PIECE
    assert MAX_UNASKED <= fed <= MAX_UNASKED + server_connection.PIECE
    await turns()
    wanted.set()
    await turns()
    assert line.reading
    connection.data_received(b"x" * (size - fed))
    await turns()
    assert bodies == [b"x" * size]
    assert line.said.startswith(b"HTTP/1.1 202 Accepted")
    connection.connection_lost(None)


async def test_pipelined_requests_pause_reading_and_are_bounded() -> None:
    turn = asyncio.Event()

    async def handler(request: Any, reply: Any) -> None:
        await turn.wait()
        await reply.send(202)

    connection, line = server_connection.ServerConnection(Listener(handler, 1)), Line()
    connection.connection_made(line)
    many = 16 * server_connection.PIECE // len(get())
    connection.data_received(get() * many)
    assert not line.reading
    assert len(connection._waiting) <= server_connection.PIECE // len(get()) + 1
    turn.set()
    async with asyncio.timeout(HANG_BOUND):
        while line.said.count(b"HTTP/1.1 202") < many:
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


# --- a head like the one before ----------------------------------------------------------------------------------
# A head that equals the one before but for the digits of Content-Length is not parsed again.


def text_of(answer: Response) -> str:
    return str(answer.json["result"]["content"][0]["text"])


async def test_equal_heads_with_other_lengths_have_their_own_bodies() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        for size in (3, 3, 40, 4000, 0, 15_000, 7, 100_000, 1):
            connection.send(request(served, "POST", "/mcp", session, call("echo", {"text": "x" * size})))
            assert text_of(await connection.response()) == "x" * size


@pytest.mark.parametrize("cut", [1, 30, -30, -5, -1], ids=["method", "line", "in the body", "nearly", "last byte"])
async def test_a_known_head_may_come_in_pieces_and_so_may_its_body(cut: int) -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        for text in ("first", "second", "in pieces", "behind it"):
            whole = request(served, "POST", "/mcp", session, call("echo", {"text": text}))
            if text == "in pieces":
                connection.send(whole[:cut])
                assert (await fetch(served, "GET", "/healthz")).status == 200
                whole = whole[cut:]
            connection.send(whole)
            assert text_of(await connection.response()) == text


async def test_two_requests_with_a_known_head_in_one_piece_are_both_answered() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        for texts in (["first"], ["second", "longer than that"], ["third", "fourth", "x"], ["last"]):
            connection.send(
                b"".join(request(served, "POST", "/mcp", session, call("echo", {"text": text})) for text in texts)
            )
            assert [text_of(await connection.response()) for _ in texts] == texts


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"POST", b"PUT", 405),
        (b"POST", b"PoST", 400),
        (b"/mcp", b"/mcq", 404),
        (b"/mcp HTTP/1.1", b"/mcp HTTP/1.2", 400),
        (b"Mcp-Session-Id: ", b"Mcp-Session-Id: x", 404),
        (b"Content-Type: application/json", b"Content-Type: application/jsom", 415),
        (b"Host: 127.0.0.1", b"Host: 127.0.0.2", 421),
        (b"Accept: ", b"Accepu: ", 200),
        (b"Content-Length", b"Content-Lengtk", 400),
    ],
)
async def test_a_head_that_differs_in_one_byte_is_read_anew(old: bytes, new: bytes, status: int) -> None:
    async with serving() as served, connected(served) as connection:
        whole = request(served, "POST", "/mcp", await initialized(served), call("echo", {"text": "first"}))
        for _ in range(2):
            connection.send(whole)
            assert text_of(await connection.response()) == "first"
        assert whole.count(old) == 1
        connection.send(whole.replace(old, new))
        answer = await connection.response()
        assert answer.status == status
        alone = await _alone(served, whole.replace(old, new))
        assert (answer.status, answer.body) == (alone.status, alone.body)


async def _alone(served: Served, data: bytes) -> Response:
    """The first response to `data` on a connection of its own."""
    async with connected(served) as connection:
        connection.send(data)
        return await connection.response()


async def test_the_answer_to_head_has_no_body_though_the_head_is_known() -> None:
    async with serving() as served, connected(served) as connection:
        for _ in range(3):
            connection.send(request(served, "HEAD", "/healthz", body=b"{}"))
            assert (await connection.head()).status == 200
        connection.send(get("/nothing"))
        assert (await connection.response()).status == 404


async def test_a_known_head_whose_body_never_comes_is_not_answered() -> None:
    async with serving() as served, connected(served) as connection:
        whole = request(served, "POST", "/mcp", await initialized(served), call("echo", {"text": "first"}))
        for _ in range(2):
            connection.send(whole)
            assert text_of(await connection.response()) == "first"
        connection.send(whole[:-1])
        connection.writer.write_eof()
        assert await rest(connection) == b""
        assert served.dispatcher.asked.count("tools/call") == 2


@pytest.mark.parametrize("known", [0, 1, 2])
async def test_each_request_that_expects_100_continue_gets_one(known: int) -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        for _ in range(known):
            connection.send(request(served, "POST", "/mcp", session, call("echo", {"text": "first"})))
            assert text_of(await connection.response()) == "first"
        for _ in range(3):
            lines = [*session, ("Expect", "100-continue")]
            connection.send(request(served, "POST", "/mcp", lines, call("echo", {"text": "asked for"})))
            assert (await connection.head()).status == 100
            assert text_of(await connection.response()) == "asked for"


async def test_a_request_with_connection_close_ends_a_connection_whose_heads_are_known() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        whole = request(served, "POST", "/mcp", session, call("echo", {"text": "first"}))
        for _ in range(2):
            connection.send(whole)
            assert text_of(await connection.response()) == "first"
        lines = [*session, ("Connection", "close")]
        connection.send(request(served, "POST", "/mcp", lines, call("echo", {"text": "last"})) + whole)
        answer = await connection.response()
        assert (text_of(answer), answer.headers["connection"]) == ("last", "close")
        assert await rest(connection) == b""
        assert served.dispatcher.asked.count("tools/call") == 3


LENGTHS = {
    "leading zeros": (b"Content-Length: 00%d", 200),
    "more digits than any body has": (b"Content-Length: 0000000000%d", 200),
    "two blanks": (b"Content-Length:  %d", 200),
    "no blank": (b"Content-Length:%d", 200),
    "a blank behind": (b"Content-Length: %d ", 200),
    "a plus": (b"Content-Length: +%d", 400),
    "a minus": (b"Content-Length: -%d", 400),
    "a blank within": (b"Content-Length: 0 %d", 400),
    "a blank before the colon": (b"Content-Length : %d", 400),
    "hexadecimal": (b"Content-Length: 0x%x", 400),
    "a list": (b"Content-Length: %d, %d", 400),
    "twice": (b"Content-Length: %d\r\nContent-Length: %d", 400),
    "twice, unlike": (b"Content-Length: %d\r\nContent-Length: 0%d", 400),
    "twice, the first unusual": (b"Content-Length:  %d\r\nContent-Length: %d", 400),
    "beside chunks": (b"Content-Length: %d\r\nTransfer-Encoding: chunked", 400),
}


@pytest.mark.parametrize("spelled", LENGTHS)
@pytest.mark.parametrize("known", [False, True], ids=["first", "known"])
async def test_a_length_is_read_alike_whether_the_head_is_known_or_not(spelled: str, known: bool) -> None:
    line, status = LENGTHS[spelled]
    async with serving() as served, connected(served) as connection:
        body = call("echo", {"text": "text"})
        whole = request(served, "POST", "/mcp", await initialized(served), body)
        for _ in range(2 * known):
            connection.send(whole)
            assert text_of(await connection.response()) == "text"
        said = line.replace(b"%d", b"%d" % len(body)).replace(b"%x", b"%x" % len(body))
        for _ in range(2):
            connection.send(whole.replace(b"Content-Length: %d" % len(body), said))
            answer = await connection.response()
            assert answer.status == status
            if status == 400:
                assert await rest(connection) == b""
                break
            assert text_of(answer) == "text"


EXTRA = [
    *(b"", b"", b"X: 1\r\n", b"X: 2\r\n", b"x: 1\r\n", b"X: a\r\nX: b\r\n", b"X: a\r\n b\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Upgrade: x\r\nConnection: upgrade\r\n"),
]
PARTS = st.tuples(
    st.sampled_from([b"POST", b"POST", b"POST", b"PUT", b"GET", b"HEAD"]),
    st.sampled_from([b"/a", b"/a", b"/b", b"/a?b"]),
    st.sampled_from(EXTRA),
    st.sampled_from([b"Content-Length: %d\r\n"] * 6 + [b"%b\r\n" % line for line, _ in LENGTHS.values()]),
    st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0"]),
    st.sampled_from([b"", b"{}", b"0123456789", b"x" * 100, b"\r\n\r\n", b"Content-Length: 5\r\n\r\n"]),
)
"""Of one request: method, target, lines, the line of its length, version, body."""


def of_parts(parts: tuple[bytes, ...]) -> bytes:
    method, target, lines, length, version, body = parts
    length = length.replace(b"%d", b"%d" % len(body)).replace(b"%x", b"%x" % len(body))
    return b"%b %b %b\r\nHost: x\r\n%b%b\r\n%b" % (method, target, version, lines, length, body)


async def echoed(pieces: Iterable[bytes]) -> tuple[bytes, bool]:
    """What a connection says to these pieces, without dates, and whether it has closed; requests are echoed."""

    async def handler(message: HttpRequest, reply: HttpReply) -> None:
        body = message.whole(1000)
        if body is None:
            body = await message.body(1000)
        seen = (message.method, message.path, message.query, message.headers, message.length, body)
        await reply.text(200, repr(seen))

    listener, line = Listener(handler, 1), Line()
    connection = server_connection.ServerConnection(listener)
    connection.connection_made(line)
    for piece in pieces:
        if not line.closed:
            connection.data_received(piece)
            await turns()
    async with asyncio.timeout(HANG_BOUND):
        while listener.tasks and not line.closed:
            await asyncio.sleep(0)
    connection.connection_lost(None)
    await turns()
    return re.sub(rb"date: [^\r]*\r\n", b"", line.said), line.closed


@pytest.mark.parametrize("pieces", ["AB A B", "BA A A", "AA B A", "A BA B", "AAB B A"])
async def test_heads_that_came_in_one_piece_are_not_taken_for_each_other(pieces: str) -> None:
    of = {
        name: of_parts((b"POST", b"/a", b"X: %b\r\n" % name.encode(), b"Content-Length: %d\r\n", b"HTTP/1.1", b"{}"))
        for name in "AB"
    }
    alone = {name: (await echoed([one]))[0] for name, one in of.items()}
    said, closed = await echoed(b"".join(of[name] for name in piece) for piece in pieces.split())
    assert said == b"".join(alone[name] for name in pieces.replace(" ", ""))
    assert not closed


def cut_at(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in pairwise([0, *places, len(data)]) if start < end]


SCRIPTS = st.lists(st.tuples(PARTS, st.integers(1, 4)), min_size=1, max_size=4)
"""Requests, and how often each is sent in a row."""


@given(SCRIPTS, st.lists(st.integers(0, 2000), max_size=4))
def test_a_connection_answers_any_requests_as_fresh_connections_do(
    script: list[tuple[tuple[bytes, ...], int]], cuts: list[int]
) -> None:
    async def compared() -> None:
        requests = [of_parts(parts) for parts, times in script for _ in range(times)]
        expected, closed = b"", False
        for one in requests:
            if not closed:
                said, closed = await echoed([one])
                expected += said
        assert await echoed(requests) == (expected, closed), "a request at a time"
        assert await echoed(cut_at(b"".join(requests), cuts)) == (expected, closed), "cut anywhere"

    asyncio.run(compared())
