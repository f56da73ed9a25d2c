"""Answers over HTTP/1.1 as servers and attackers write them: what is taken, what is refused, what stays bounded."""

import gzip
import socket
import struct
import zlib

import pytest

from mcp_hub.transport import http1
from mcp_hub.transport.http1.client_response import BUFFER, STEP, EmptyReply, IncompleteBody, NotHttp
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.pooled import ask, body_of, pooled, saying, until
from tests.transport.scripted_http import Reply, Request

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
TWO = OK + b"Content-Length: 2\r\n\r\n{}"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


# --- where a body ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        TWO,
        CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
        CHUNKED + b'1;name=value;quoted="a b"\r\n{\r\n01 \r\n}\r\n000\r\nTrailer: yes\r\nOther: too\r\n\r\n',
        b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + TWO,
        OK + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_complete_response_is_read_and_its_connection_reused(answer, in_pieces):
    async def script(request: Request, reply: Reply) -> None:
        if not in_pieces:
            await reply.raw(answer)
            return
        for at in range(len(answer)):
            await reply.raw(answer[at : at + 1])

    async with pooled(script) as (server, pool):
        for _ in range(2):
            response = await ask(pool)
            assert (response.status, await body_of(response)) == (200, b"{}")
            assert response.get("trailer") is None
        assert server.connections == 1


@pytest.mark.parametrize("status", [204, 304])
async def test_a_response_status_without_a_body_has_none(status):
    async with pooled(saying(b"HTTP/1.1 %d X\r\nContent-Length: 7\r\n\r\n" % status)) as (server, pool):
        for _ in range(2):
            assert await body_of(await ask(pool)) == b""
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        OK + b"Connection: close\r\n\r\n{}",
        OK + b"\r\n{}",
        OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
async def test_a_connection_closed_after_its_response_is_not_reused(answer):
    async with pooled(saying(answer, end=True)) as (server, pool):
        for _ in range(2):
            assert await body_of(await ask(pool)) == b"{}"
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 3\r\n\r\n{}",
        OK + b"Content-Length: 99999999\r\n\r\n{}",
        CHUNKED + b"5\r\n{}",
        CHUNKED + b"2\r\n{}\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\nTrailer: ye",
        CHUNKED + b"2\r\n{}\r\nzz\r\n",
        CHUNKED + b"2\r\n{}{}\r\n0\r\n\r\n",
        CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    ],
)
async def test_a_body_cut_short_is_an_error_and_never_an_end(answer):
    async with pooled(saying(answer, end=True)) as (_, pool):
        with pytest.raises(IncompleteBody):
            await body_of(await ask(pool))


async def test_data_received_before_a_body_broke_off_can_be_read():
    async with pooled(saying(CHUNKED + b"4\r\ndata\r\n", end=True)) as (_, pool):
        response = await ask(pool)
        await until(lambda: not pool.sockets)
        assert await response.chunk() == b"data"
        with pytest.raises(IncompleteBody):
            await response.chunk()


async def test_a_reset_connection_is_not_the_end_of_a_body():
    async def script(request: Request, reply: Reply) -> None:
        await reply.raw(OK + b"\r\n{}")
        handle = reply._writer.get_extra_info("socket")
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reply._writer.transport.abort()

    async with pooled(script) as (_, pool):
        response = await ask(pool)
        with pytest.raises(IncompleteBody):
            await body_of(response)


# --- what is no answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nBad name: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName: nu\0l\r\n\r\n",
        OK + b"Content-Length: two\r\n\r\n{}",
        OK + b"Content-Length: -2\r\n\r\n{}",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_ambiguous_and_invalid_responses_are_refused(answer):
    async with pooled(saying(answer)) as (_, pool):
        with pytest.raises(NotHttp):
            await ask(pool)
        await until(lambda: not pool.sockets)


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"X: " + b"x" * (http1.MAX_HEAD + 1),
        OK + b"X: " + b"x" * (http1.MAX_HEAD + 1) + b"\r\n\r\n",
        OK + b"".join(b"X%d: x\r\n" % n for n in range(http1.MAX_FIELDS + 1)) + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * http1.MAX_HEAD,
        b"HTTP/1.1 200 " + b"x" * (4 * http1.MAX_HEAD),
    ],
)
async def test_an_endless_head_is_refused(answer):
    async with pooled(saying(answer)) as (_, pool):
        with pytest.raises(NotHttp):
            await ask(pool)
        await until(lambda: not pool.sockets)


@pytest.mark.parametrize(
    "rest", [b"0\r\n" + b"X: x\r\n" * http1.MAX_HEAD, b"0\r\nX: " + b"x" * 999_999, b"1;" + b"x" * 999_999]
)
async def test_endless_trailers_and_chunk_extensions_are_refused(rest):
    async def script(request: Request, reply: Reply) -> None:
        await reply.raw(CHUNKED + b"2\r\n{}\r\n" + rest)
        await reply.gone()

    async with pooled(script) as (_, pool):
        with pytest.raises(IncompleteBody):
            await body_of(await ask(pool))
        await until(lambda: not pool.sockets)


async def test_a_101_response_has_no_body_and_ends_the_use_of_its_connection():
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nother words"
    async with pooled(saying(switching)) as (server, pool):
        for _ in range(2):
            response = await ask(pool)
            assert response.status == 101
            response.close()
        assert server.connections == 2


@pytest.mark.parametrize("cut", ["nothing", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_connection_closed_before_the_head_is_reported_as_such(cut):
    async with pooled(saying(b"" if cut == "nothing" else cut.encode(), end=True)) as (server, pool):
        with pytest.raises(EmptyReply):
            await ask(pool)
        assert server.connections == 1


# --- answers nobody asked for --------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [TWO, b"HTTP/1.1 200 OK\r\n", b"junk"])
async def test_a_second_response_without_a_request_closes_the_connection(extra):
    async with pooled(saying(TWO + extra)) as (server, pool):
        for _ in range(2):
            assert await body_of(await ask(pool)) == b"{}"
        assert server.connections == 2


async def test_data_on_an_idle_connection_closes_it():
    async def script(request: Request, reply: Reply) -> None:
        await reply.raw(TWO)
        replies.append(reply)

    replies: list[Reply] = []
    async with pooled(script) as (server, pool):
        assert await body_of(await ask(pool)) == b"{}"
        assert len(pool.sockets) == 1
        await replies[0].raw(OK + b"Content-Length: 8\r\n\r\nsmuggled")
        await until(lambda: not pool.sockets)
        assert await body_of(await ask(pool)) == b"{}"
        assert server.connections == 2


# --- compressed bodies ---------------------------------------------------------------------------------------


TEXT = b'{"text":"' + b"abc" * 5000 + b'"}'


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("x-gzip", gzip.compress(TEXT, mtime=0)),
        ("GZIP", gzip.compress(TEXT[:100], mtime=0) + gzip.compress(TEXT[100:], mtime=0) + b"\0\0"),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("identity", TEXT),
        ("none", TEXT),
        ("UTF-8", TEXT),
        ("gzip, identity", gzip.compress(TEXT, mtime=0)),
        ("utf-8,GZIP", gzip.compress(TEXT, mtime=0)),
    ],
)
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_body_in_an_accepted_content_coding_is_decoded(coding, data, in_pieces):
    async def script(request: Request, reply: Reply) -> None:
        await reply.head(200, Content_Encoding=coding, Transfer_Encoding="chunked")
        for at in range(0, len(data), 7 if in_pieces else len(data)):
            await reply.chunk(data[at : at + (7 if in_pieces else len(data))])
        await reply.end()

    async with pooled(script) as (server, pool):
        for _ in range(2):
            assert await body_of(await ask(pool)) == TEXT
        assert server.connections == 1


def encoded(coding: bytes, data: bytes) -> bytes:
    return OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (coding, len(data), data)


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        (b"gzip", gzip.compress(TEXT, mtime=0)[:-9]),
        (b"gzip", gzip.compress(TEXT, mtime=0)[:5]),
        (b"gzip", TEXT),
        (b"gzip", gzip.compress(TEXT, mtime=0) + b"junk"),
        (b"deflate", zlib.compress(TEXT)[:-4]),
        (b"deflate", raw_deflate(TEXT)[:-4]),
    ],
)
async def test_corrupt_or_truncated_compressed_data_is_an_error(coding, data):
    async with pooled(saying(encoded(coding, data))) as (_, pool):
        with pytest.raises(IncompleteBody):
            await body_of(await ask(pool))


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, gzip"])
async def test_an_unaccepted_content_coding_is_refused_if_there_is_a_body(coding):
    async with pooled(saying(encoded(coding, b""), encoded(coding, TEXT))) as (_, pool):
        assert await body_of(await ask(pool)) == b""
        with pytest.raises(NotHttp):
            await body_of(await ask(pool))


async def test_highly_compressed_data_is_inflated_in_bounded_steps():
    bomb = gzip.compress(b"\0" * 50_000_000)
    async with pooled(saying(encoded(b"gzip", bomb))) as (_, pool):
        response = await ask(pool)
        sizes = []
        while part := await response.chunk():
            sizes.append(len(part))
        assert sum(sizes) == 50_000_000
        assert max(sizes) <= STEP


# --- what waits for its reader -------------------------------------------------------------------------------


async def test_reading_pauses_while_nobody_reads_the_body():
    size = 40_000_000

    async def script(request: Request, reply: Reply) -> None:
        await reply.head(200, Content_Length=str(size))
        await reply.raw(b"x" * size)

    async with pooled(script) as (_, pool):
        response = await ask(pool)
        await until(lambda: response.size > BUFFER)
        await ask(pool)  # some time for more to come, on another connection
        assert BUFFER < response.size <= BUFFER + 2 * 256 * 1024
        assert len(await body_of(response)) == size
        assert len(pool.sockets) == 2
