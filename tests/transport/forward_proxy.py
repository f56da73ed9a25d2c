"""A forward proxy on loopback that speaks CONNECT, absolute-form requests or SOCKS5, or misbehaves as a test says.

Names are resolved by `hosts`, so that a test sees which names only the proxy knows.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Misdeed = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@dataclass
class ForwardingProxy:
    """What the proxy was asked, and how it behaves. `port` is its own."""

    hosts: Mapping[str, int] = field(default_factory=dict)
    """Maps each name to the port of its stand-in on 127.0.0.1; the proxy does not know other names."""
    user: str = ""
    password: str = ""
    socks: bool = False
    answer: bytes | None = None
    """Bytes that answer every request instead; with empty bytes the proxy closes the connection."""
    silent: bool = False
    port: int = 0
    asked: list[str] = field(default_factory=list)
    """`CONNECT host:port`, `SOCKS host:port`, or a method and a URL."""
    credentials: list[str] = field(default_factory=list)
    tunnels: list[asyncio.StreamWriter] = field(default_factory=list)
    """The connections to its clients."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def expected(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def cut(self) -> None:
        """Closes all connections at once, as a proxy does when it was idle for too long or dies."""
        for writer in self.tunnels:
            writer.transport.abort()
        self.tunnels.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.tunnels.append(writer)
        try:
            if self.silent:
                await reader.read()
            elif self.answer is not None:
                await reader.read(1)
                writer.write(self.answer)
                await writer.drain()
                if self.answer:
                    await reader.read()
            else:
                await (self._socks(reader, writer) if self.socks else self._http(reader, writer))
        except (OSError, EOFError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            method, target, _ = lines[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            self.asked.append(f"{method} {target}")
            credentials = headers.get("proxy-authorization", "")
            self.credentials.append(credentials)
            if self.user and credentials != self.expected:
                writer.write(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n"
                    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
                )
                return
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            port = self._port(parts.hostname or "", parts.port or 80)
            if port is None:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nX-Squid-Error: ERR_DNS_FAIL 0\r\nContent-Length: 0\r\n\r\n")
                return
            upstream, out = await asyncio.open_connection("127.0.0.1", port)
            try:
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    await both_ways(reader, out, upstream, writer)
                    return
                forwarded = [line for line in lines[1:-2] if not line.lower().startswith("proxy-")]
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                path = target.split("/", 3)[3]
                first = f"{method} /{path} HTTP/1.1"
                out.write("\r\n".join([first, *forwarded, "Connection: close", "", ""]).encode() + body)
                while data := await upstream.read(65536):
                    writer.write(data)
                return
            finally:
                out.close()

    def _port(self, host: str, port: int) -> int | None:
        return port if host == "127.0.0.1" else self.hosts.get(host)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        if self.user:
            if 2 not in methods:
                writer.write(b"\x05\xff")
                return
            writer.write(b"\x05\x02")
            _, size = await reader.readexactly(2)
            user = (await reader.readexactly(size)).decode()
            password = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
            is_accepted = (user, password) == (self.user, self.password)
            writer.write(b"\x01\x00" if is_accepted else b"\x01\x01")
            if not is_accepted:
                return
        else:
            writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        requested_port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(f"SOCKS {host}:{requested_port}")
        port = self._port(host, requested_port)
        if port is None:
            writer.write(b"\x05\x04\x00\x01" + bytes(6))
            return
        upstream, out = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x05\x00\x00\x03\x05bound" + bytes(2))
        await both_ways(reader, out, upstream, writer)


async def both_ways(
    reader: asyncio.StreamReader,
    out: asyncio.StreamWriter,
    upstream: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Copies until both sides have ended."""

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    try:
        await asyncio.gather(copy(reader, out), copy(upstream, writer))
    finally:
        out.transport.abort()


@contextlib.asynccontextmanager
async def forwarding(tls: ssl.SSLContext | None = None, **settings: object) -> AsyncIterator[ForwardingProxy]:
    """Runs a proxy."""
    proxy = ForwardingProxy(**settings)  # type: ignore[arg-type]
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        for task in list(proxy.tasks):
            task.cancel()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)
