"""What heads and bodies of requests a connection takes, and what it refuses."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime

import pytest

from mcp_hub.transport.http1 import heads, server_connection
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import BOTH, call, connected, fetch, get, initialized, message, read_to_end, request
from tests.downstream.scripted import serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio


# --- versions, methods, heads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["", "Connection: keep-alive\r\n"])
async def test_a_connection_of_http_1_0_ends_with_its_answer(head: str) -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get(head=head, version="1.0"))
        answer = await connection.response()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await read_to_end(connection) == b""


async def test_a_stream_of_http_1_0_has_no_chunks() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get("/sse", version="1.0"))
        answer = await connection.head()
        assert (answer.headers["connection"], answer.headers.get("transfer-encoding")) == ("close", None)
        async with asyncio.timeout(HANG_BOUND):
            assert (await connection.reader.readuntil(b"\n\n")).startswith(b"event: endpoint\ndata: /messages?")


async def test_a_response_to_head_has_a_content_length_and_no_body() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get().replace(b"GET", b"HEAD") + get())
        bodiless, complete = await connection.head(), await connection.response()
        assert bodiless.headers["content-length"] == complete.headers["content-length"] == str(len(complete.body))


async def test_every_response_has_a_date_header() -> None:
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
        output = await read_to_end(connection)
        assert output.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert output.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("end", [b"", b" HTTP/0.9", b" HTTP/2.0"])
async def test_other_versions_are_refused(end: bytes) -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get().replace(b" HTTP/1.1", end) + get())
        output = await read_to_end(connection)
        assert output.startswith(b"HTTP/1.1 505 HTTP Version Not Supported\r\n")
        assert output.count(b"HTTP/1.1") == 1


async def test_a_head_above_the_limit_is_refused_in_any_segmentation() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(get() + get(head=f"X-Long: {'x' * 2 * heads.MAX_HEAD}\r\n"))
        assert (await connection.response()).status == 200
        assert (await connection.head()).status == 431
        assert await connection.ended()


def sized(size: int, body: bytes = b"") -> bytes:
    """A request whose head has so many bytes, in lines of about 1000."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    lines, remaining = [], size - len(get(head=length))
    while remaining:
        line = remaining if remaining < 2000 else 1000
        lines.append(f"X-Filler: {'x' * (line - len('X-Filler: ') - 2)}\r\n")
        remaining -= line
    return get(head=length + "".join(lines)) + body


@pytest.mark.parametrize("piece", [1 << 20, 16_384, 5000, 777])
@pytest.mark.parametrize("body", [b"", b"{}"])
@pytest.mark.parametrize("before", [b"", b"first", b"behind the first"], ids=["alone", "second", "in one piece"])
async def test_the_limit_of_a_head_is_exact(piece: int, body: bytes, before: bytes) -> None:
    for size, status in ((heads.MAX_HEAD, 200), (heads.MAX_HEAD + 1, 431)):
        async with serving() as served, connected(served) as connection:
            data = sized(size, body)
            assert data.index(b"\r\n\r\n") + 4 == size
            if before == b"first":
                connection.send(get())
                assert (await connection.response()).status == 200
            elif before:
                data = get() + data
            for start in range(0, len(data), piece):
                connection.send(data[start : start + piece])
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
    monkeypatch.setattr(server_connection, "HEAD_DEADLINE", 0.5)
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
async def test_only_chunked_is_accepted_as_transfer_coding(
    lines: list[str], version: str, status: int, known: bool
) -> None:
    async with serving() as served, connected(served) as connection:
        if known:  # the head of a request that is like the one before is not made again
            connection.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED)
            assert (await connection.response()).status == 415
        head = "".join(f"Transfer-Encoding: {line}\r\n" for line in lines)
        connection.send(f"POST /mcp HTTP/{version}\r\nHost: localhost\r\n{head}\r\n".encode() + CHUNKED + get())
        assert (await connection.response()).status == status
        if status != 415:
            assert await read_to_end(connection) == b""
            assert served.app.refusals.counts["transfer_encoding"] + served.app.refusals.counts["bad_request"] == 1


# --- bodies ------------------------------------------------------------------------------------------------------


def chunked(body: bytes, trailer: bytes = b"", size: int = 7) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


def in_chunks(lines: list[tuple[str, str]], host: str = "Host: localhost\r\n") -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"POST /mcp HTTP/1.1\r\n{host}{head}Transfer-Encoding: chunked\r\n\r\n".encode()


async def test_a_chunked_body_is_decoded() -> None:
    async with serving() as served, connected(served) as connection:
        text = "x" * 200_000
        data = in_chunks(await initialized(served)) + chunked(call("echo", {"text": text}), size=1000)
        for start in range(0, len(data), 50_001):
            connection.send(data[start : start + 50_001])
            await connection.writer.drain()
        assert (await connection.response()).json["result"]["content"][0]["text"] == text


async def test_trailers_do_not_become_headers() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(in_chunks(BOTH, host="") + chunked(call("echo"), b"Host: localhost\r\n"))
        assert (await connection.response()).status == 421
        stranger, session_header = session[:-1], f"{session[-1][0]}: {session[-1][1]}\r\n"
        connection.send(in_chunks(stranger) + chunked(call("echo"), session_header.encode()))
        assert (await connection.response()).status == 400
    assert "tools/call" not in served.dispatcher.methods


async def test_trailers_are_bounded() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(in_chunks(BOTH) + chunked(call("echo"))[:-2] + b"X: " + b"x" * 3 * heads.MAX_HEAD)
        assert (await connection.head()).status == 431
        assert await connection.ended()
        assert served.dispatcher.methods == []


async def test_a_body_with_an_invalid_chunk_is_refused() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(in_chunks(await initialized(served)) + b"2\r\n{}\r\n")
        assert (await fetch(served, "GET", "/healthz")).status == 200
        connection.send(b"zz\r\n")
        assert (await read_to_end(connection)).startswith(b"HTTP/1.1 400")
    assert "tools/call" not in served.dispatcher.methods


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    async with serving() as served, connected(served) as connection:
        data = request(served, "POST", "/mcp", [*BOTH, ("Expect", "100-continue")], message("initialize", {}))
        head, _, body = data.partition(b"\r\n\r\n")
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


async def test_a_refused_body_is_drained_and_the_next_request_is_answered() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "PUT", "/mcp", [("Content-Length", "300000")]) + b"x" * 300_000 + get())
        assert (await connection.response()).status == 405
        assert (await connection.response()).status == 200


async def test_an_upgrade_is_ignored_and_the_body_is_read() -> None:
    async with serving() as served, connected(served) as connection:
        offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAE")]
        session = await initialized(served)
        hidden = request(served, "POST", "/mcp", session, call("echo", {"text": "hidden"}))
        data = request(served, "POST", "/mcp", [*session, *offer], hidden)
        connection.send(data[: -len(hidden)])
        assert (await fetch(served, "GET", "/healthz")).status == 200
        connection.send(hidden + request(served, "POST", "/mcp", [*session, *offer], call("echo", {"text": "seen"})))
        assert (await connection.response()).status == 400
        assert (await connection.response()).json["result"]["content"][0]["text"] == "seen"
        assert served.dispatcher.methods.count("tools/call") == 1


async def test_many_upgrades_are_ignored() -> None:
    async with serving() as served, connected(served) as connection:
        many = 500
        connection.send(get(head="Connection: upgrade\r\nUpgrade: x\r\n") * many + get("/nothing"))
        assert {(await connection.response()).status for _ in range(many)} == {200}
        assert (await connection.response()).status == 404
