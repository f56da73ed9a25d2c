"""The browser's only way out: a proxy on loopback that dials only what the address rules allow.

The browser has no other way out (see chromium.py). The proxy resolves a name, checks every address of it and dials a
checked address, so a name that resolves differently after the check gains nothing. Other users of the machine cannot
use the proxy, as it asks for a credential that only this process and its browser know.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.lru import Lru
from mcp_hub.security.proxies import ForwardProxy, ProxyRules, ProxySettingError
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin.checked_lookups import CheckedLookups, RequestRefused
from mcp_hub.servers.builtin.chromium import READY_HOST
from mcp_hub.servers.builtin.proxy_http import (
    CHUNK,
    MessageHead,
    TargetUnreachable,
    answer,
    body_of,
    copy_both_ways,
    read_head,
    relay_response,
    send_body,
)
from mcp_hub.transport.egress import Egress, egress_failure
from mcp_hub.transport.http1.client_response import HttpFailure
from mcp_hub.transport.trust_store import UnusableCertificates

MAX_CONNECTIONS: Final = 256
"""Most connections at a time. A browser uses at most 32 to one proxy, WebSockets not counted."""
HEAD_WAIT: Final = 30.0
"""Seconds for the head of a request to arrive."""
DIAL_WAIT: Final = 10.0
"""Seconds for resolving a name, and for dialling each of its addresses."""
MAX_ADDRESSES: Final = 8
"""Most addresses of one name that are dialled."""
CHECK_LASTS: Final = 10.0
"""Seconds for which `check` caches its verdict. Addresses that are dialled are always checked anew."""
MAX_CHECKED: Final = 1000
USER: Final = "mcp-hub"


@dataclass
class Tunnel:
    """One open connection on behalf of the browser."""

    host: str
    port: int
    writers: list[asyncio.StreamWriter] = field(default_factory=list)


class Proxy:
    """A forward proxy on 127.0.0.1 for one browser. It serves absolute-form requests and CONNECT."""

    def __init__(self, addresses: AddressRules, urls: UrlRules, proxies: ProxyRules | None = None) -> None:
        """`proxies`: the rules for the proxies through which this one connects."""
        self.port = 0
        self.password = secrets.token_urlsafe(24)
        self.on_refused: Callable[[str, str], None] = lambda target, why: None
        """Called with the target and the reason of each refused request."""
        self.lookups = CheckedLookups(addresses)
        self._urls = urls
        self._egress = Egress(ProxyRules() if proxies is None else proxies)
        self._expected = b"Basic " + base64.b64encode(f"{USER}:{self.password}".encode())
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._tunnels: list[Tunnel] = []
        self._failures: Lru[str, str] = Lru(MAX_CHECKED)
        self._verdicts: Lru[tuple[str, int], tuple[float, RequestRefused | None]] = Lru(MAX_CHECKED)

    @property
    def url(self) -> str:
        """Returns the value for Chromium's `--proxy-server`."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens on a free port."""
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stops listening and ends every connection."""
        self.lookups.close()
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=DIAL_WAIT)

    def failure_at(self, url: str) -> str | None:
        """Returns why the last connection to the host and port of a URL failed, or None if it did not."""
        return self._failures.get(host_and_port(url))

    def cut(self, host: str, port: int) -> None:
        """Aborts every open connection to a host and port."""
        for tunnel in self._tunnels:
            if (tunnel.host, tunnel.port) == (host, port):
                for writer in tunnel.writers:
                    writer.transport.abort()

    async def check(self, host: str, port: int, scheme: str = "https") -> None:
        """Checks whether a host may be reached, by a verdict of the last `CHECK_LASTS` seconds if there is one.

        Raises RequestRefused or TargetUnreachable.
        """
        now = asyncio.get_running_loop().time()
        verdict = self._verdicts.get((host, port))
        if verdict is None or verdict[0] < now:
            refusal: RequestRefused | None = None
            try:
                await self._addresses_of(host, port, proxied=self._proxy_for(scheme, host, port) is not None)
            except RequestRefused as error:
                refusal = error
            verdict = self._verdicts[host, port] = (now + CHECK_LASTS, refusal)
        if verdict[1] is not None:
            raise RequestRefused(verdict[1].code, str(verdict[1]))

    def _proxy_for(self, scheme: str, host: str, port: int) -> ForwardProxy | None:
        try:
            return self._egress.proxy_for(scheme, host, port)
        except ProxySettingError as error:
            raise TargetUnreachable(str(error)) from None

    async def _addresses_of(self, host: str, port: int, *, proxied: bool = False) -> list[str]:
        try:
            return (await self.lookups.addresses_of(host, port, proxied=proxied, seconds=DIAL_WAIT))[:MAX_ADDRESSES]
        except (OSError, UnicodeError) as error:
            failure = (
                f"was not resolved within {DIAL_WAIT:g} s" if isinstance(error, TimeoutError) else "does not resolve"
            )
            raise TargetUnreachable(f"the name {host} {failure}") from None

    async def _dial(self, scheme: str, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        proxy = self._proxy_for(scheme, host, port)
        if proxy is not None:
            await self._addresses_of(host, port, proxied=True)
            try:
                async with asyncio.timeout(DIAL_WAIT):
                    return await self._egress.streams(scheme, host, port, limit=CHUNK)
            except (HttpFailure, UnusableCertificates, TimeoutError) as error:
                reason = egress_failure(error, proxy) or f"the proxy {proxy} opens no connection within {DIAL_WAIT:g} s"
                raise TargetUnreachable(f"{host}:{port} cannot be reached: {reason}") from None
        last_error = "the name has no address"
        for address in await self._addresses_of(host, port):
            if port == self.port and address == "127.0.0.1":
                raise RequestRefused("guard_blocked", "The browser's own proxy is not a page.")
            try:
                async with asyncio.timeout(DIAL_WAIT):
                    return await asyncio.open_connection(address, port, limit=CHUNK, flags=socket.AI_NUMERICHOST)
            except TimeoutError:  # an OSError as well
                last_error = f"no connection within {DIAL_WAIT:g} s"
            except OSError as error:
                last_error = error.strerror or type(error).__name__
        raise TargetUnreachable(f"{host}:{port} cannot be reached: {last_error}")

    @contextlib.asynccontextmanager
    async def _connected_tunnel(
        self, scheme: str, host: str, port: int, client: asyncio.StreamWriter
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await self._dial(scheme, host, port)
        tunnel = Tunnel(host, port, [writer, client])
        self._tunnels.append(tunnel)
        try:
            yield reader, writer
        finally:
            self._tunnels.remove(tunnel)
            writer.transport.abort()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError):
            pass  # either side went away or did not speak HTTP
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(HEAD_WAIT):
                head = await read_head(reader)
            if head is None:
                return
            if hmac.compare_digest(head.value("proxy-authorization").encode(), self._expected):
                break
            challenge = f'Proxy-Authenticate: Basic realm="{USER}"\r\n'
            await answer(writer, "407 Proxy Authentication Required", "", challenge, keep=True)
            async for _ in body_of(head, reader):  # skips the body, up to the next request
                pass
        try:
            if head.method == "CONNECT":
                await self._tunnel(head, reader, writer)
            else:
                await self._forward(head, reader, writer)
        except RequestRefused as refusal:
            self.on_refused(head.target, str(refusal))
            await answer(writer, "403 Forbidden", str(refusal))
        except TargetUnreachable as failure:
            url = f"https://{head.target}" if head.method == "CONNECT" else head.target
            self._failures[host_and_port(url)] = str(failure)
            await answer(writer, "502 Bad Gateway", f"The page cannot be opened: {failure}.")

    def _check(self, url: str) -> None:
        if (refusal := self._urls.refusal(url)) is not None:
            raise RequestRefused("guard_blocked", refusal)

    async def _tunnel(self, head: MessageHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = urlsplit(f"//{head.target}")
        host, port = target.hostname, target.port
        if not host or not port:
            raise TargetUnreachable(f"{head.target!r} is not a host and port")
        self._check(f"https://{head.target}/")
        async with self._connected_tunnel("https", host, port, writer) as (upstream, out):
            self._failures.pop(host_and_port(f"https://{head.target}"), None)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            first = await reader.read(CHUNK)
            if first.startswith(b"GET "):
                first = await self._websocket(head.target, first, reader)
            out.write(first)
            await copy_both_ways(reader, out, upstream, writer)

    async def _websocket(self, authority: str, first: bytes, reader: asyncio.StreamReader) -> bytes:
        """Reads the rest of the head of an unencrypted `ws:` request, and checks its whole URL."""
        async with asyncio.timeout(HEAD_WAIT):
            while b"\r\n\r\n" not in first and len(first) < CHUNK:
                data = await reader.read(CHUNK)
                if not data:
                    raise EOFError
                first += data
        path = first.split(b" ", 2)[1].decode("latin-1")
        self._check(f"ws://{authority}{path}")
        return first

    async def _forward(self, head: MessageHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = urlsplit(head.target)
        if target.scheme != "http" or not target.hostname:
            raise TargetUnreachable(f"{head.target[:200]!r} is not an http URL")
        if target.hostname == READY_HOST:
            await answer(writer, "200 OK", "")
            return
        self._check(head.target)
        host, port = target.hostname, target.port or 80
        async with self._connected_tunnel("http", host, port, writer) as (upstream, out):
            self._failures.pop(host_and_port(head.target), None)
            path = head.target.split("/", 3)[3] if head.target.count("/") >= 3 else ""
            request_target, credentials = f"/{path}", None
            proxy = self._proxy_for("http", host, port)
            if proxy is not None and proxy.forwards("http"):
                request_target, credentials = f"http://{target.netloc.rpartition('@')[2]}/{path}", proxy.authorization
            extra_lines = () if credentials is None else (f"Proxy-Authorization: {credentials}",)
            out.write(
                head.rewritten(
                    f"{head.method} {request_target} HTTP/1.1", drop=("proxy-authorization",), add=extra_lines
                )
            )
            send_task = asyncio.ensure_future(send_body(head, reader, out))
            try:
                await relay_response(upstream, writer)
            except TargetUnreachable:
                if reader.at_eof():  # the browser went away, and the connection to the server with it
                    return
                raise
            finally:
                send_task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, EOFError, ValueError):
                    await send_task


def host_and_port(url: str) -> str:
    """Returns `host:port` of a URL."""
    target = urlsplit(url)
    return f"{target.hostname}:{target.port or (443 if target.scheme in ('https', 'wss') else 80)}"
