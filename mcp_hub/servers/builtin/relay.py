"""What a proxy passes on: one request, one answer, or the bytes of a tunnel; and what it answers itself."""

from __future__ import annotations

import asyncio
import html
from typing import Final

from mcp_hub.servers.builtin.request_head import Head, body_of, read_head

RESPONSE_WAIT: Final = 300.0
"""Seconds a server may take to begin its answer; the deadlines of the tools end before."""
CHUNK: Final = 64 * 1024


class Unreachable(Exception):
    """It may be reached, but cannot; `str()` says why."""


async def send_body(head: Head, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
    """Pass on the body of a request; ends `out` when the browser goes away, or sends what does not belong to it."""
    try:
        async for piece in body_of(head, reader):
            out.write(piece)
            await out.drain()
        # The browser was told that this connection ends with the answer: whatever comes now means that it has gone.
        await reader.read(1)
    finally:
        out.transport.abort()


async def relay_response(upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on an answer until its connection ends. Raises Unreachable if there is none."""
    while True:
        async with asyncio.timeout(RESPONSE_WAIT):
            head = await read_head(upstream)
        if head is None:
            raise Unreachable("the server closed the connection without an answer")
        writer.write(head.rewritten(head.first))
        await writer.drain()
        if not head.target.startswith("1"):  # for an answer, the second word is its status
            break
    while piece := await upstream.read(CHUNK):
        writer.write(piece)
        await writer.drain()


async def both_ways(
    reader: asyncio.StreamReader,
    out: asyncio.StreamWriter,
    upstream: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Copy until one side has ended."""
    ways = [asyncio.ensure_future(_copy(reader, out)), asyncio.ensure_future(_copy(upstream, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(CHUNK):
        sink.write(piece)
        await sink.drain()


async def answer(writer: asyncio.StreamWriter, status: str, text: str, more: str = "", *, keep: bool = False) -> None:
    """An answer of the proxy's own, with a page that has `text`; `more` are lines of the head."""
    page = refusal_page(text) if text else ""
    connection = "keep-alive" if keep else "close"
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n{more}Cache-Control: no-store\r\n"
        f"Content-Length: {len(page.encode())}\r\nConnection: {connection}\r\n\r\n{page}".encode()
    )
    await writer.drain()


def refusal_page(text: str) -> str:
    """A page that says it."""
    return f"<!doctype html><title>Refused</title><link rel=icon href=data:,><p>{html.escape(text)}</p>"
