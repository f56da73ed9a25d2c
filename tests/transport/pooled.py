"""Helpers for tests of a connection pool without a link: a pool, a scripted server, requests and bodies."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

from mcp_hub.transport.http1.client_response import HttpResponse
from mcp_hub.transport.http1.dialler import HostDialler
from mcp_hub.transport.http1.pool import HttpPool
from tests.transport.scripted_http import PATIENCE, Reply, Request, Script, Server, scripted


@contextlib.asynccontextmanager
async def pool_of(
    port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[HttpPool]:
    """Opens a pool, and closes it within the time limit."""
    pool = HttpPool(HostDialler(host, port, tls), **{"limit": 8, "connect": float(PATIENCE), "keep": 60.0, **settings})
    try:
        yield pool
    finally:
        async with asyncio.timeout(PATIENCE):
            await pool.close()


@contextlib.asynccontextmanager
async def pooled(script: Script, **settings: Any) -> AsyncIterator[tuple[Server, HttpPool]]:
    """A server that does what `script` says, and a pool of connections to it."""
    async with scripted(script) as server, pool_of(server.port, **settings) as pool:
        yield server, pool


def saying(*answers: bytes, end: bool = False) -> Script:
    """Returns a script that sends these raw answers in turn, the last one again and again; `end`: it then closes."""
    remaining = list(answers)

    async def script(request: Request, reply: Reply) -> None:
        await reply.raw(remaining.pop(0) if len(remaining) > 1 else remaining[0])
        if end:
            await reply.cut()

    return script


async def ask(pool: HttpPool, method: str = "POST", body: bytes | None = b"{}") -> HttpResponse:
    """Sends a request and returns the head of its response."""
    size = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    head = b"%b /mcp HTTP/1.1\r\nHost: up\r\n%b\r\n" % (method.encode(), size)
    async with asyncio.timeout(PATIENCE):
        return await pool.exchange(method, head, body)


async def body_of(response: HttpResponse) -> bytes:
    """Returns the whole body of a response."""
    parts = []
    async with asyncio.timeout(PATIENCE):
        while part := await response.chunk():
            parts.append(part)
    return b"".join(parts)


async def until(true: Any) -> None:
    """Waits until the condition holds, while the event loop runs."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0)
