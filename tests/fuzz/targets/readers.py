"""Bytes to several readers of HTTP/1.1: what the hub accepts, h11 and uvicorn read in the same way or refuse.

No reader may see another number of messages, or another body, without the hub refusing them. What h11 or uvicorn alone
refuse is no finding: they cannot be made to pass it on.
"""

from __future__ import annotations

import asyncio
import re
from functools import cache

from tests.fuzz.supply import Supply, split
from tests.transport import corpora, readers
from tests.transport.readers import Message

STARTS = (b"POST / HTTP/1.1\r\nHost: a\r\n", b"GET /p?q HTTP/1.1\r\nHost: a\r\n", b"POST / HTTP/1.0\r\nHost: a\r\n")
STATUSES = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 204 X\r\n",
    b"HTTP/1.1 304 X\r\n",
    b"HTTP/1.1 100 X\r\n",
)
LINES = (
    *(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: 05\r\n", b"Content-Length: 5, 5\r\n"),
    *(b"content-length:5 \r\n", b"Content-Length: +5\r\n", b"Content-Length: 5_0\r\n", b"Content-Length : 5\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:\tChunked\r\n", b"Transfer-Encoding: chunked,\r\n"),
    *(b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: \r\n"),
    *(
        b"Transfer-Encoding: chunked, chunked\r\n",
        b"Transfer-Encoding: chunked;x=y\r\n",
        b"Transfer_Encoding: chunked\r\n",
    ),
    *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection: close, x\r\n", b"Connection: x,Close\r\n"),
    *(
        b"Connection: upgrade\r\nUpgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
        b"TE: trailers\r\n",
        b"X:\r\n",
        b"X: \t y \r\n",
    ),
    *(
        b"Proxy-Connection: close\r\n",
        b"Trailer: x\r\n",
        b"Host: b\r\n",
        b"X: a\r\n b\r\n",
        b"\x0bX: y\r\n",
        b"X: \xff\r\n",
    ),
)
BODIES = (
    *(
        b"",
        b"hello",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5;x=y\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"0\r\n\r\n",
    ),
    *(
        b"5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
        b"05\r\nhello\r\n00\r\n\r\n",
    ),
    *(b"5\nhello\n0\n\n", b"0x5\r\nhello\r\n0\r\n\r\n", b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n', b"5\r\nhelloX\n0\r\n\r\n"),
    *(b"\r\n", b"5\r\nhello\r\n0\r\n", b"ffffffffffffffff\r\n", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
)
BYTES = (
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\0",
    b"\x0b",
    b"\x0c",
    b"\x7f",
    b"\x80",
    b"\xa0",
    b"\xff",
    b":",
    b",",
    b";",
    b"-",
    b"0",
)
TOKENS = (*STARTS, *STATUSES, *LINES, *BODIES, *BYTES)
CORPORA = ("llhttp", "h11", "gunicorn", "httptools")
SEEDS = (
    *(
        (b"\x01" if case.side == "response" else b"\x00") + b"\x00" + case.text
        for name in CORPORA
        for case in corpora.cases(name)
    ),
    *(bytes([2 + kind, 0]) + bytes(range(n, n + 24)) for kind in range(2) for n in range(0, 200, 5)),
)


def target(data: bytes) -> None:
    supply = Supply(data)
    kind = supply.below(4)
    if kind < 2:
        cuts = supply.cuts(4)
        pieces = split(supply.rest(), cuts)
    else:
        at_once = supply.below(2)
        made = _made(supply, STATUSES if kind == 3 else STARTS)
        pieces = made if at_once else split(b"".join(made), supply.cuts(4))
    runner().run(_responses(pieces) if kind % 2 else _requests(pieces))


def _made(supply: Supply, starts: tuple[bytes, ...]) -> list[bytes]:
    """Messages of known parts, some twice, into which a byte or two are put."""
    made: list[bytes] = []
    for _ in range(1 + supply.below(3)):
        if made and supply.below(2):
            text = bytearray(made[-1])
        else:
            lines = b"".join(supply.one_of(LINES) for _ in range(supply.below(5)))
            text = bytearray(supply.one_of(starts) + lines + b"\r\n" + supply.one_of(BODIES))
        for _ in range(supply.below(3)):
            at = supply.below(65536) % (len(text) + 1)
            text[at : at + supply.below(2)] = supply.one_of(BYTES)
        made.append(bytes(text))
    return made


async def _requests(pieces: list[bytes]) -> None:
    ours = await readers.listener(pieces)
    for name, theirs in (
        ("h11", readers.h11_server(pieces)),
        ("uvicorn on h11", await readers.uvicorn_h11(pieces)),
        ("uvicorn on httptools", await readers.uvicorn_httptools(pieces)),
    ):
        told = f"{name} reads {theirs}, the hub {ours}: {pieces}"
        seen, here = ours.whole, theirs.whole
        if name == "uvicorn on httptools":  # the body of an offer to upgrade is the next request for it
            offer = next((n for n, one in enumerate(theirs.messages) if one.header("upgrade")), None)
            seen, here = seen[:offer], here[:offer]
        assert all(_is_same(one, other, path=name != "h11") for one, other in zip(seen, here, strict=False)), told
        if len(seen) > len(here):
            assert theirs.end == "refused", told
        elif len(seen) < len(here):
            assert ours.end in ("refused", "closed"), told


def _is_same(one: Message, other: Message, *, path: bool) -> bool:
    """Whether what the hub reads is what another reader reads. `path`: that one takes the target apart."""
    if isinstance(one.start, tuple) and isinstance(other.start, tuple):
        plain = not path or re.fullmatch(r"/[^#?]*(\?[^#]+)?", one.start[1])
        if one.start[0] != other.start[0] or (plain and one.start[1] != other.start[1]):
            return False
    elif one.start != other.start:
        return False
    mine, others = _fields(one), _fields(other)
    return one.body == other.body and mine == others[: len(mine)]  # for httptools trailers are headers


def _fields(message: Message) -> readers.Headers:
    """Its headers as they can be compared: h11 writes the coding in lower case, the hub drops an offer to upgrade."""
    fields = [(name, value.lower() if name == "transfer-encoding" else value) for name, value in message.headers]
    return [one for one in fields if one[0] != "upgrade"]


async def _responses(pieces: list[bytes]) -> None:
    ours, theirs = await readers.client(pieces), readers.h11_client(pieces)
    if ours.end == "switched" or any(one.header("content-encoding") for one in ours.messages):
        return  # h11 leaves the one to its caller, and does not know the other
    if ours.whole and theirs.end != "refused":
        assert theirs.whole, f"h11 waits for more, the hub reads {ours}: {pieces}"
        assert _is_same(ours.whole[0], theirs.whole[0], path=False), f"h11 reads {theirs}, the hub {ours}: {pieces}"
        old = b"".join(pieces).startswith(b"HTTP/1.0")
        assert ours.end != "open" or theirs.end == "open" or old, f"h11 ends the connection, the hub keeps it: {pieces}"
    if theirs.whole and not ours.whole:
        assert ours.end == "refused", f"h11 reads {theirs}, the hub waits for more: {pieces}"


@cache
def runner() -> asyncio.Runner:
    return asyncio.Runner()
