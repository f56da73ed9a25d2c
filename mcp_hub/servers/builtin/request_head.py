"""The head of one HTTP/1.1 message, and where its body ends: all a proxy needs to know of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

MAX_HEAD: Final = 256 * 1024
MAX_LINE: Final = 64 * 1024
_CHUNK: Final = 64 * 1024
_HOP_BY_HOP: Final = frozenset({"connection", "proxy-connection", "keep-alive"})


@dataclass(frozen=True, slots=True)
class Head:
    """The first line, its first two words, and the header lines as they came."""

    first: str
    method: str
    target: str
    lines: tuple[str, ...]

    def value(self, name: str) -> str:
        """The first value of a header, `""` if it is not there."""
        return next(iter(self.values(name)), "")

    def values(self, name: str) -> list[str]:
        """Every value of a header."""
        pairs = (line.partition(":") for line in self.lines)
        return [value.strip() for key, _, value in pairs if key.strip().lower() == name]

    def rewritten(self, first: str, drop: tuple[str, ...] = ()) -> bytes:
        """The head with another first line, without `drop`, of a connection that ends with this message."""
        dropped = {*_HOP_BY_HOP, *drop}
        kept = [line for line in self.lines if line.partition(":")[0].strip().lower() not in dropped]
        return "\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head, None at the end of the stream. Raises ValueError for what is no HTTP or too long."""
    lines: list[str] = []
    size = 0
    while True:
        line = await reader.readline()
        if not line.endswith(b"\n"):
            if line or lines:
                raise ValueError("the stream ended within a head")
            return None
        size += len(line)
        if size > MAX_HEAD:
            raise ValueError("the head is too long")
        text = line.decode("latin-1").rstrip("\r\n")
        if not text and lines:
            break
        if text:
            lines.append(text)
    words = lines[0].split(" ", 2)
    if len(words) < 2:
        raise ValueError("that is no HTTP")
    return Head(lines[0], words[0], words[1], tuple(lines[1:]))


async def body_of(head: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The body of a request in pieces, exactly as it came, never a byte more.

    Raises ValueError where its length is not certain: two readers of such a message may disagree where the next begins.
    """
    codings, lengths = head.values("transfer-encoding"), set(head.values("content-length"))
    if codings:
        if [coding.lower() for coding in codings] != ["chunked"] or lengths:
            raise ValueError("the length of the body is not certain")
        async for piece in _chunks(reader):
            yield piece
        return
    if len(lengths) > 1 or not all(length.isascii() and length.isdigit() for length in lengths):
        raise ValueError("the length of the body is not certain")
    rest = int(lengths.pop()) if lengths else 0
    while rest:
        piece = await reader.read(min(rest, _CHUNK))
        if not piece:
            raise EOFError
        rest -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readline()
        size = int(line.partition(b";")[0].strip(), 16)
        yield line
        rest = size + 2
        while rest and size:
            piece = await reader.read(min(rest, _CHUNK))
            if not piece:
                raise EOFError
            rest -= len(piece)
            yield piece
        if not size:
            while (line := await reader.readline()).strip():
                yield line
            yield line
            return
