"""The HTTP/1.1 that the browser's proxy needs: heads, bodies of known length, and bytes copied both ways."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

MAX_HEAD: Final = 256 * 1024
MAX_LINE: Final = 64 * 1024
CHUNK: Final = 64 * 1024
_HOP_BY_HOP: Final = frozenset({"connection", "proxy-connection", "keep-alive"})


@dataclass(frozen=True, slots=True)
class MessageHead:
    """The head of a request or response: its first line, the first two words of it, and the raw header lines."""

    first: str
    method: str
    target: str
    lines: tuple[str, ...]

    def value(self, name: str) -> str:
        """Returns the first value of a header, or "" if it is missing. `name` is in lower case."""
        return next(iter(self.values(name)), "")

    def values(self, name: str) -> list[str]:
        """Returns every value of a header. `name` is in lower case."""
        pairs = (line.partition(":") for line in self.lines)
        return [value.strip() for key, _, value in pairs if key.strip().lower() == name]

    def rewritten(self, first: str, drop: tuple[str, ...] = (), add: tuple[str, ...] = ()) -> bytes:
        """Returns the head with another first line, without the headers in `drop`, and with `Connection: close`.

        `add` has further header lines.
        """
        dropped = {*_HOP_BY_HOP, *drop}
        header_lines = [line for line in self.lines if line.partition(":")[0].strip().lower() not in dropped]
        return "\r\n".join([first, *header_lines, *add, "Connection: close", "", ""]).encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> MessageHead | None:
    """Reads the next head; None at the end of the stream. Raises ValueError if it is not HTTP or too long."""
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
    parts = lines[0].split(" ", 2)
    if len(parts) < 2:
        raise ValueError("not an HTTP message")
    return MessageHead(lines[0], parts[0], parts[1], tuple(lines[1:]))


async def body_of(head: MessageHead, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields the body of a request in pieces, exactly as it came and never a byte more.

    Raises ValueError if its length is ambiguous, as two readers could then disagree about where the next request
    begins, and EOFError if the stream ends within the body.
    """
    codings, lengths = head.values("transfer-encoding"), set(head.values("content-length"))
    if codings:
        if [coding.lower() for coding in codings] != ["chunked"] or lengths:
            raise ValueError("the length of the body is ambiguous")
        async for piece in _chunked_body(reader):
            yield piece
        return
    if len(lengths) > 1 or not all(length.isascii() and length.isdigit() for length in lengths):
        raise ValueError("the length of the body is ambiguous")
    remaining = int(lengths.pop()) if lengths else 0
    while remaining:
        piece = await reader.read(min(remaining, CHUNK))
        if not piece:
            raise EOFError
        remaining -= len(piece)
        yield piece


async def _chunked_body(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readline()
        size = int(line.partition(b";")[0].strip(), 16)
        yield line
        remaining = size + 2
        while remaining and size:
            piece = await reader.read(min(remaining, CHUNK))
            if not piece:
                raise EOFError
            remaining -= len(piece)
            yield piece
        if not size:
            while (line := await reader.readline()).strip():
                yield line
            yield line
            return


RESPONSE_WAIT: Final = 300.0
"""Seconds a server may take to begin its answer. The deadlines of the tools are shorter."""


class TargetUnreachable(Exception):
    """A host that the rules allow cannot be reached; `str()` says why."""


async def send_body(head: MessageHead, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
    """Copies the body of a request to `out`. Aborts `out` when the browser goes away or sends more than the body."""
    try:
        async for piece in body_of(head, reader):
            out.write(piece)
            await out.drain()
        # The browser was told `Connection: close`, so anything it sends now, or an end, means that it has gone.
        await reader.read(1)
    finally:
        out.transport.abort()


async def relay_response(upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies a response until its connection ends. Raises TargetUnreachable if there is none."""
    while True:
        async with asyncio.timeout(RESPONSE_WAIT):
            head = await read_head(upstream)
        if head is None:
            raise TargetUnreachable("the server closed the connection without an answer")
        writer.write(head.rewritten(head.first))
        await writer.drain()
        if not head.target.startswith("1"):  # the second word of a response is its status
            break
    while piece := await upstream.read(CHUNK):
        writer.write(piece)
        await writer.drain()


async def copy_both_ways(
    reader: asyncio.StreamReader,
    out: asyncio.StreamWriter,
    upstream: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Copies bytes in both directions until one side has ended."""
    tasks = [asyncio.ensure_future(_copy(reader, out)), asyncio.ensure_future(_copy(upstream, writer))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(CHUNK):
        sink.write(piece)
        await sink.drain()


async def answer(
    writer: asyncio.StreamWriter, status: str, text: str, extra_lines: str = "", *, keep: bool = False
) -> None:
    """Sends a response of the proxy's own with an HTML page of `text`. `extra_lines` are additional header lines."""
    page = refusal_page(text) if text else ""
    connection = "keep-alive" if keep else "close"
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n{extra_lines}Cache-Control: no-store\r\n"
        f"Content-Length: {len(page.encode())}\r\nConnection: {connection}\r\n\r\n{page}".encode()
    )
    await writer.drain()


def refusal_page(text: str) -> str:
    """Returns an HTML page with the text."""
    return f"<!doctype html><title>Refused</title><link rel=icon href=data:,><p>{html.escape(text)}</p>"
