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
NEUTRAL = (
    *(b"Connection: keep-alive\r\n", b"Connection: close\r\n", b"Connection: close, x\r\n", b"Connection: x,Close\r\n"),
    *(b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Connection: upgrade\r\n", b"Upgrade: h2c\r\n", b"TE: trailers\r\n"),
    *(b"Expect: 100-continue\r\n", b"Proxy-Connection: close\r\n", b"Trailer: x\r\n", b"X:\r\n", b"X: \t y \r\n"),
    *(b"Transfer_Encoding: chunked\r\n", b"Content_Length: 9\r\n", b"X-Content-Length: 9\r\n", b"X: \xff\r\n"),
)
FRAMES = (
    *(b"Content-Length: 5\r\n", b"Content-Length: 05\r\n", b"content-length:5 \r\n", b"Content-Length: \t 5\t\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:\tChunked \r\n", b"Content-Length: 0\r\n"),
    *(b"Content-Length: 5, 5\r\n", b"Content-Length: +5\r\n", b"Content-Length: 5_0\r\n", b"Content-Length : 5\r\n"),
    *(b"Transfer-Encoding: chunked,\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: \r\n"),
    *(b"Transfer-Encoding: chunked, chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Host: b\r\n"),
    *(b"Transfer-Encoding: chunked;x=y\r\n", b"X: a\r\n b\r\n", b"\x0bX: y\r\n", b"X: y\n"),
)
CHUNKS = (
    *(b"5\r\nhello\r\n0\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n", b"05\r\nhello\r\n00\r\n\r\n"),
    *(
        b"1\r\nh\r\n4\r\nello\r\n0\r\nX: y\r\n\r\n",
        b'5;x="a b"\r\nhello\r\n0;y\r\n\r\n',
        b"0\r\nConnection: close\r\n\r\n",
    ),
    *(b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n"),
    *(
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n',
        b"5\r\nhelloX\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n",
    ),
    *(b"ffffffffffffffff\r\n", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
)
BODIES = (b"", b"hello", b"\r\n", *CHUNKS)
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
TOKENS = (*STARTS, *STATUSES, *NEUTRAL, *FRAMES, *BODIES, *BYTES)
CORPORA = ("llhttp", "h11", "gunicorn", "httptools")
SEEDS = (
    *(
        (b"\x01" if case.side == "response" else b"\x00") + b"\x00" + case.text
        for name in CORPORA
        for case in corpora.cases(name)
    ),
    *(bytes([kind, 0]) + bytes(range(n, n + 24)) for kind in (2, 3, 4) for n in range(0, 200, 8)),
)


def target(data: bytes) -> None:
    supply = Supply(data)
    kind = supply.below(5)
    if kind < 2:
        cuts = supply.cuts(4)
        pieces = split(supply.rest(), cuts)
    elif kind < 4:
        at_once = supply.below(2)
        starts = STATUSES if kind == 3 else STARTS
        messages = [_changed(supply, _message(supply, starts), 3) for _ in range(1 + supply.below(3))]
        pieces = messages if at_once else split(b"".join(messages), supply.cuts(4))
    else:  # one after the other with the same head, but for a byte: the listener does not parse a head that it knows
        line, framing = supply.one_of(NEUTRAL), supply.one_of(FRAMES[:4])
        sound = STARTS[0] + (line + framing if supply.below(2) else framing + line) + b"\r\nhello"
        pieces = [sound, *(_changed(supply, sound, 2) for _ in range(3))]
    runner().run(_responses(pieces) if kind % 2 else _requests(pieces))


def _changed(supply: Supply, text: bytes, max_changes: int) -> bytes:
    """Returns the text with some bytes replaced or inserted."""
    changed = bytearray(text)
    for _ in range(max(0, supply.below(max_changes + 1) - 1)):
        at = supply.below(65536) % (len(changed) + 1)
        changed[at : at + supply.below(2)] = supply.one_of(BYTES)
    return bytes(changed)


def _message(supply: Supply, starts: tuple[bytes, ...]) -> bytes:
    start, kind = supply.one_of(starts), supply.below(8)
    if kind < 2:
        framing, body = b"", b""
    elif kind < 4:
        framing, body = supply.one_of(FRAMES[:4]), b"hello"
    elif kind < 7:
        framing, body = supply.one_of(FRAMES[4:6]), supply.one_of(CHUNKS)
    else:
        framing, body = supply.one_of(FRAMES) + supply.one_of(FRAMES), supply.one_of(BODIES)
    lines = b"".join(supply.one_of(NEUTRAL) for _ in range(supply.below(3)))
    return start + (lines + framing if supply.below(2) else framing + lines) + b"\r\n" + body


async def _requests(pieces: list[bytes]) -> None:
    ours = await readers.listener(pieces)
    for name, theirs in (
        ("h11", readers.h11_server(pieces)),
        ("uvicorn on h11", await readers.uvicorn_h11(pieces)),
        ("uvicorn on httptools", await readers.uvicorn_httptools(pieces)),
    ):
        explanation = f"{name} reads {theirs}, the hub {ours}: {pieces}"
        hub_messages, peer_messages = ours.whole, theirs.whole
        if name == "uvicorn on httptools":  # the body of an offer to upgrade is the next request for it
            offer = next((n for n, message in enumerate(theirs.messages) if message.header("upgrade")), None)
            hub_messages, peer_messages = hub_messages[:offer], peer_messages[:offer]
        assert all(
            _is_same(first, second, path=name != "h11")
            for first, second in zip(hub_messages, peer_messages, strict=False)
        ), explanation
        if len(hub_messages) > len(peer_messages):
            assert theirs.end == "refused", explanation
        elif len(hub_messages) < len(peer_messages):
            assert ours.end in ("refused", "closed"), explanation


def _is_same(ours: Message, theirs: Message, *, path: bool) -> bool:
    """Whether the hub and another reader read the same. `path`: the other reader splits the request target."""
    if isinstance(ours.start, tuple) and isinstance(theirs.start, tuple):
        plain = not path or re.fullmatch(r"/[^#?]*(\?[^#]+)?", ours.start[1])
        if ours.start[0] != theirs.start[0] or (plain and ours.start[1] != theirs.start[1]):
            return False
    elif ours.start != theirs.start:
        return False
    our_fields, their_fields = _fields(ours), _fields(theirs)
    # For httptools trailers are headers.
    return ours.body == theirs.body and our_fields == their_fields[: len(our_fields)]


def _fields(message: Message) -> readers.Headers:
    """Its headers as they can be compared: h11 writes the coding in lower case, the hub drops an offer to upgrade."""
    fields = [(name, value.lower() if name == "transfer-encoding" else value) for name, value in message.headers]
    return [field for field in fields if field[0] != "upgrade"]


async def _responses(pieces: list[bytes]) -> None:
    ours, theirs = await readers.client(pieces), readers.h11_client(pieces)
    if ours.end == "switched" or any(message.header("content-encoding") for message in ours.messages):
        return  # h11 leaves the one to its caller, and does not know the other
    if ours.whole and theirs.end != "refused":
        assert theirs.whole, f"h11 waits for more, the hub reads {ours}: {pieces}"
        assert _is_same(ours.whole[0], theirs.whole[0], path=False), f"h11 reads {theirs}, the hub {ours}: {pieces}"
        old = b"HTTP/1.0 " in b"".join(pieces)  # which may say `keep-alive`; h11 ends it nevertheless
        assert ours.end != "open" or theirs.end == "open" or old, f"h11 ends the connection, the hub keeps it: {pieces}"
    if theirs.whole and not ours.whole:
        assert ours.end == "refused", f"h11 reads {theirs}, the hub waits for more: {pieces}"


@cache
def runner() -> asyncio.Runner:
    return asyncio.Runner()
