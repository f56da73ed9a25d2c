"""No request hides inside of another one: where readers of HTTP could disagree, the connection ends.

A real hub on a real socket, in front of a process that writes down what it gets.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.downstream.raw_http import Connection, connected, request
from tests.fuzz.listening import META, MODERN_LINES, Front, call

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def raw(front: Front, head: list[str], body: bytes) -> AsyncIterator[Connection]:
    async with connected(front) as connection:  # type: ignore[arg-type]
        start = ["POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{front.port}", *head, "", ""]
        connection.send("\r\n".join(start).encode("latin-1") + body)
        yield connection


def hidden(front: Front) -> bytes:
    """A sound request that must not be seen where it is part of another one."""
    lines = MODERN_LINES
    return request(front, "POST", "/mcp", lines, call(meta=META).encode())  # type: ignore[arg-type]


TYPE = "Content-Type: application/json"


@pytest.mark.parametrize(
    "head",
    [
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 2"],
        ["Content-Length: 2", "Content-Length: 900"],
        ["Content-Length: 2, 900"],
        ["Content-Length: +2"],
        ["Content-Length: 0x2"],
        ["Content-Length: 2 2"],
        ["Content-Length: -1"],
        ["Content-Length: 99999999999999999999999999"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: identity, chunked, chunked", "Content-Length: 2"],
        ["Transfer-Encoding : chunked", "Content-Length: 2"],
        ["Content-Length : 2"],
        ["Content-Length: 2\r\n folded: 900"],
        ["X-Bare: a\nTransfer-Encoding: chunked", "Content-Length: 2"],
        ["X-Nul: a\0b", "Content-Length: 2"],
    ],
)
async def test_a_request_with_an_ambiguous_end_closes_its_connection(front: Front, head: list[str]) -> None:
    async with raw(front, [TYPE, *head], b"{}" + b"0\r\n\r\n" + hidden(front)) as connection:
        assert (await connection.head()).status == 400
        assert await connection.ended()
    assert front.called() == []


@pytest.mark.parametrize(
    ("head", "version", "status"),
    [
        (["Transfer-Encoding: gzip, chunked"], "1.1", 501),
        (["Transfer-Encoding: identity", "Transfer-Encoding: chunked"], "1.1", 501),
        (["Transfer-Encoding: chunked"], "1.0", 400),
    ],
)
async def test_a_transfer_coding_that_some_parsers_ignore_closes_the_connection(
    front: Front, head: list[str], version: str, status: int
) -> None:
    text = hidden(front).replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)
    coded = text.replace(b"Content-Length: ", "".join(f"{line}\r\n" for line in head).encode() + b"X-Length: ", 1)
    start, _, body = coded.partition(b"\r\n\r\n")
    async with connected(front) as connection:  # type: ignore[arg-type]
        connection.send(start + b"\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n" + hidden(front))
        assert (await connection.head()).status == status
        assert await connection.ended()
    assert front.called() == []


@pytest.mark.parametrize(
    "chunk",
    [b"2;x\n\r\n{}", b"+2\r\n{}\r\n", b"0x2\r\n{}\r\n", b"2\n{}\n", b"fffffffffffffffff\r\n{}", b" 2\r\n{}\r\n"],
)
async def test_a_chunk_with_an_ambiguous_size_closes_its_connection(front: Front, chunk: bytes) -> None:
    body = chunk + b"0\r\n\r\n" + hidden(front)
    async with raw(front, [TYPE, "Transfer-Encoding: chunked"], body) as connection:
        assert await connection.ended()
    assert front.called() == []


async def test_a_request_after_a_valid_chunked_one_is_answered_separately(front: Front) -> None:
    body = b"2\r\n{}\r\n0\r\n\r\n" + hidden(front)
    async with raw(front, [TYPE, "Transfer-Encoding: chunked"], body) as connection:
        assert (await connection.response()).status == 400
        assert "result" in (await connection.response()).json
    assert len(front.called()) == 1


async def test_a_pipelined_request_is_answered_after_the_one_before_it(front: Front) -> None:
    async with connected(front) as connection:  # type: ignore[arg-type]
        connection.send(hidden(front) + hidden(front))
        first, second = await connection.response(), await connection.response()
    assert ["result" in answer.json for answer in (first, second)] == [True, True]
    assert len(front.called()) == 2


@pytest.mark.parametrize(
    "target", ["http://evil.example/mcp", "//evil.example/mcp", "/mcp#x", "/%6dcp", "/mcp%2f", "/x/../mcp"]
)
async def test_no_form_of_the_request_target_bypasses_the_host_check(front: Front, target: str) -> None:
    async with connected(front) as connection:  # type: ignore[arg-type]
        body = call(meta=META).encode()
        connection.send(request(front, "POST", target, MODERN_LINES, body, host="evil.example"))  # type: ignore[arg-type]
        assert (await connection.head()).status in (400, 421)
    assert front.called() == []


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
@pytest.mark.parametrize(
    ("said", "host", "called"),
    [
        ("127.0.0.1:{port}", "127.0.0.1:{port}", 1),
        ("localhost", "LOCALHOST", 1),
        ("evil.example", "127.0.0.1:{port}", 0),
        ("127.0.0.1:{port}", "localhost:{port}", 0),
        ("127.0.0.1:{port}", "127.0.0.1", 0),
        ("127.0.0.1:{port}", "evil.example", 0),
        ("user@127.0.0.1:{port}", "127.0.0.1:{port}", 0),
    ],
)
async def test_a_url_names_the_same_host_as_the_host_header(
    front: Front, scheme: str, said: str, host: str, called: int
) -> None:
    said, host = said.format(port=front.port), host.format(port=front.port)
    async with connected(front) as connection:  # type: ignore[arg-type]
        body = call(meta=META).encode()
        connection.send(request(front, "POST", f"{scheme}://{said}/mcp", MODERN_LINES, body, host=host))  # type: ignore[arg-type]
        assert (await connection.head()).status in ((200,) if called else (400, 421))
    assert len(front.called()) == called


@pytest.mark.parametrize("default", ["http://localhost:80", "https://localhost:443"])
async def test_a_default_port_does_not_change_the_host(front: Front, default: str) -> None:
    async with connected(front) as connection:  # type: ignore[arg-type]
        for url in (default, default.rpartition(":")[0]):
            for host in ("localhost", default.partition("://")[2]):
                connection.send(request(front, "POST", f"{url}/mcp", MODERN_LINES, call(meta=META).encode(), host=host))  # type: ignore[arg-type]
                assert (await connection.response()).status == 200
