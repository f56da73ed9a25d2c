"""Clients that keep a server waiting: some trickle a head, some a body, some ask for much and never read it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from tests.load.clients import PATIENCE, Client, opened

PAUSE = 0.5
"""Seconds between two bytes of a client that trickles."""
UNREAD = 1024 * 1024
"""Bytes of an unread answer: more than the socket buffers of both sides hold."""


@contextlib.asynccontextmanager
async def slow_clients(port: int, count: int, tool: str) -> AsyncIterator[None]:
    """Runs slow clients beside the block, a third of each kind. `tool` answers with as many `bytes` as requested."""
    heads = count // 3
    bodies = await opened(port, "handshake", count // 3)
    deaf = [Client(port, "handshake") for _ in range(count - heads - len(bodies))]
    trickling = [asyncio.create_task(_trickle_head(port)) for _ in range(heads)]
    trickling += [asyncio.create_task(_trickle_body(client)) for client in bodies]
    try:
        for client in deaf:
            await client.open()
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send("tools/call", {"name": tool, "arguments": {"bytes": UNREAD}}, 1)
        for client in deaf:  # once the answer has begun, the hub can only wait
            async with asyncio.timeout(PATIENCE):
                await client.reader.readuntil(b"\r\n\r\n")
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        yield
    finally:
        for task in trickling:
            task.cancel()
        await asyncio.gather(*trickling, return_exceptions=True)
        for client in (*bodies, *deaf):
            client.writer.transport.abort()


async def _trickle_head(port: int) -> None:
    """Sends headers that never end, over a new connection whenever the hub closes the old one."""
    while True:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            await _trickle(writer)
        finally:
            writer.transport.abort()


async def _trickle_body(client: Client) -> None:
    """Sends a body that never ends."""
    params = {"name": "nobody", "arguments": {"text": "x" * 1000}}
    client.send("tools/call", params, 1, keep=1000)
    await _trickle(client.writer)


async def _trickle(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while not writer.transport.is_closing():
            writer.write(b"x")
            await asyncio.sleep(PAUSE)
