"""A head that is known by its bytes means what it means when it is parsed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.transport.http1 import server_connection
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest
from mcp_hub.transport.http1.listener import Listener
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import (
    Line,
    Response,
    call,
    connected,
    fetch,
    get,
    initialized,
    read_to_end,
    request,
    turns,
)
from tests.downstream.scripted import Served, serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio


# --- a head like the one before ----------------------------------------------------------------------------------
# A head that equals the one before but for the digits of Content-Length is not parsed again.


def text_of(answer: Response) -> str:
    return str(answer.json["result"]["content"][0]["text"])


async def test_cached_heads_that_differ_in_content_length_get_their_own_bodies() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        for size in (3, 3, 40, 4000, 0, 15_000, 7, 100_000, 1):
            connection.send(request(served, "POST", "/mcp", session, call("echo", {"text": "x" * size})))
            assert text_of(await connection.response()) == "x" * size


@pytest.mark.parametrize("cut", [1, 30, -30, -5, -1], ids=["method", "line", "in the body", "nearly", "last byte"])
async def test_a_cached_head_and_its_body_may_arrive_in_pieces(cut: int) -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        for text in ("first", "second", "in pieces", "behind it"):
            data = request(served, "POST", "/mcp", session, call("echo", {"text": text}))
            if text == "in pieces":
                connection.send(data[:cut])
                assert (await fetch(served, "GET", "/healthz")).status == 200
                data = data[cut:]
            connection.send(data)
            assert text_of(await connection.response()) == text


async def test_two_requests_with_a_cached_head_in_one_piece_are_both_answered() -> None:
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
async def test_a_head_that_differs_in_one_byte_is_parsed_anew(old: bytes, new: bytes, status: int) -> None:
    async with serving() as served, connected(served) as connection:
        data = request(served, "POST", "/mcp", await initialized(served), call("echo", {"text": "first"}))
        for _ in range(2):
            connection.send(data)
            assert text_of(await connection.response()) == "first"
        assert data.count(old) == 1
        connection.send(data.replace(old, new))
        answer = await connection.response()
        assert answer.status == status
        alone = await _alone(served, data.replace(old, new))
        assert (answer.status, answer.body) == (alone.status, alone.body)


async def _alone(served: Served, data: bytes) -> Response:
    """The first response to `data` on a connection of its own."""
    async with connected(served) as connection:
        connection.send(data)
        return await connection.response()


async def test_a_response_to_head_has_no_body_for_a_cached_head() -> None:
    async with serving() as served, connected(served) as connection:
        for _ in range(3):
            connection.send(request(served, "HEAD", "/healthz", body=b"{}"))
            assert (await connection.head()).status == 200
        connection.send(get("/nothing"))
        assert (await connection.response()).status == 404


async def test_a_cached_head_whose_body_never_arrives_is_not_answered() -> None:
    async with serving() as served, connected(served) as connection:
        data = request(served, "POST", "/mcp", await initialized(served), call("echo", {"text": "first"}))
        for _ in range(2):
            connection.send(data)
            assert text_of(await connection.response()) == "first"
        connection.send(data[:-1])
        connection.writer.write_eof()
        assert await read_to_end(connection) == b""
        assert served.dispatcher.methods.count("tools/call") == 2


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


async def test_connection_close_ends_a_connection_with_cached_heads() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        data = request(served, "POST", "/mcp", session, call("echo", {"text": "first"}))
        for _ in range(2):
            connection.send(data)
            assert text_of(await connection.response()) == "first"
        lines = [*session, ("Connection", "close")]
        connection.send(request(served, "POST", "/mcp", lines, call("echo", {"text": "last"})) + data)
        answer = await connection.response()
        assert (text_of(answer), answer.headers["connection"]) == ("last", "close")
        assert await read_to_end(connection) == b""
        assert served.dispatcher.methods.count("tools/call") == 3


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
async def test_content_length_is_parsed_the_same_for_cached_and_new_heads(spelled: str, known: bool) -> None:
    line, status = LENGTHS[spelled]
    async with serving() as served, connected(served) as connection:
        body = call("echo", {"text": "text"})
        data = request(served, "POST", "/mcp", await initialized(served), body)
        for _ in range(2 * known):
            connection.send(data)
            assert text_of(await connection.response()) == "text"
        length_line = line.replace(b"%d", b"%d" % len(body)).replace(b"%x", b"%x" % len(body))
        for _ in range(2):
            connection.send(data.replace(b"Content-Length: %d" % len(body), length_line))
            answer = await connection.response()
            assert answer.status == status
            if status == 400:
                assert await read_to_end(connection) == b""
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
"""The parts of one request: method, target, lines, the line of its length, version, body."""


def of_parts(parts: tuple[bytes, ...]) -> bytes:
    method, target, lines, length, version, body = parts
    length = length.replace(b"%d", b"%d" % len(body)).replace(b"%x", b"%x" % len(body))
    return b"%b %b %b\r\nHost: x\r\n%b%b\r\n%b" % (method, target, version, lines, length, body)


async def echoed(pieces: Iterable[bytes]) -> tuple[bytes, bool]:
    """The output of a connection for these pieces, without dates, and whether it has closed; it echoes requests."""

    async def handler(message: HttpRequest, reply: HttpReply) -> None:
        body = message.arrived_body(1000)
        if body is None:
            body = await message.body(1000)
        facts = (message.method, message.path, message.query, message.headers, message.length, body)
        await reply.text(200, repr(facts))

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
    return re.sub(rb"date: [^\r]*\r\n", b"", line.written), line.closed


@pytest.mark.parametrize("pieces", ["AB A B", "BA A A", "AA B A", "A BA B", "AAB B A"])
async def test_different_heads_in_one_piece_are_not_confused(pieces: str) -> None:
    requests = {
        name: of_parts((b"POST", b"/a", b"X: %b\r\n" % name.encode(), b"Content-Length: %d\r\n", b"HTTP/1.1", b"{}"))
        for name in "AB"
    }
    expected = {name: (await echoed([data]))[0] for name, data in requests.items()}
    output, closed = await echoed(b"".join(requests[name] for name in piece) for piece in pieces.split())
    assert output == b"".join(expected[name] for name in pieces.replace(" ", ""))
    assert not closed


def cut_at(data: bytes, cuts: list[int]) -> list[bytes]:
    positions = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in pairwise([0, *positions, len(data)]) if start < end]


SCRIPTS = st.lists(st.tuples(PARTS, st.integers(1, 4)), min_size=1, max_size=4)
"""Requests, and how often each is sent in a row."""


@given(SCRIPTS, st.lists(st.integers(0, 2000), max_size=4))
def test_a_connection_answers_any_requests_as_fresh_connections_do(
    script: list[tuple[tuple[bytes, ...], int]], cuts: list[int]
) -> None:
    async def compared() -> None:
        requests = [of_parts(parts) for parts, times in script for _ in range(times)]
        expected, closed = b"", False
        for data in requests:
            if not closed:
                output, closed = await echoed([data])
                expected += output
        assert await echoed(requests) == (expected, closed), "a request at a time"
        assert await echoed(cut_at(b"".join(requests), cuts)) == (expected, closed), "cut anywhere"

    asyncio.run(compared())
