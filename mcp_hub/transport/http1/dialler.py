"""Connects to a host, directly or through a proxy: tries its addresses with staggered starts, then does TLS."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import itertools
import math
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, TypeVar, cast

from mcp_hub.security.proxies import ForwardProxy
from mcp_hub.transport.http1.client_response import (
    CertificateRefused,
    CertificateWanted,
    ConnectFailed,
    ConnectTimeout,
    HttpFailure,
    NameUnknown,
    ProxyFailed,
    TlsFailed,
    wants_certificate,
)

STAGGER: Final = 0.25
"""Seconds an address has before the next one is tried in parallel."""
GOODBYE: Final = 0.5
"""Seconds for the TLS shutdown."""
_PROBES: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""TCP keep-alive options, in seconds and attempts: a host that vanished is noticed after two minutes."""

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


class Dialler:
    """Makes the connections of a pool."""

    async def dial(self, protocol: Callable[[], ProtocolT]) -> tuple[ProtocolT, socket.socket]:
        """Returns the connected protocol and its socket. Not bounded in time. Raises HttpFailure."""
        raise NotImplementedError

    def late(self) -> HttpFailure:
        """Returns the failure for a `dial` that took too long."""
        return ConnectTimeout()

    def close(self) -> None:
        """Cancels the resolution of a name."""


class HostDialler(Dialler):
    """Makes connections to one host; if `tls` is given, over TLS, and the host's certificate must match its name."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, addresses: Sequence[str] | None = None
    ) -> None:
        """`addresses`: the addresses to dial, instead of resolving the host's name."""
        self._addresses = Addresses(host, port, addresses)
        self._tls = tls
        self._name = host.rstrip(".")

    async def dial(self, protocol: Callable[[], ProtocolT]) -> tuple[ProtocolT, socket.socket]:
        """Returns the connected protocol and its socket. Not bounded in time. Raises HttpFailure."""
        addresses = await self._addresses.get()
        try:
            sock = await self._connect_first(addresses)
        except OSError as error:
            raise ConnectFailed(error) from None
        try:
            return await self._start_protocol(sock, protocol), sock
        except BaseException:
            sock.close()
            raise

    async def _start_protocol(self, sock: socket.socket, protocol: Callable[[], ProtocolT]) -> ProtocolT:
        loop = asyncio.get_running_loop()
        with tls_failures():
            if self._tls is None:
                _, connection = await loop.create_connection(protocol, sock=sock)
            else:
                _, connection = await loop.create_connection(
                    protocol,
                    sock=sock,
                    ssl=self._tls,
                    server_hostname=self._name,
                    ssl_shutdown_timeout=GOODBYE,
                )
            return connection

    async def _connect_first(self, addresses: list[Address]) -> socket.socket:
        if len(addresses) == 1:
            return await _connect(addresses[0])
        attempts: set[asyncio.Task[socket.socket]] = set()
        remaining = list(addresses)
        last_error: OSError = OSError("no address")
        try:
            while remaining or attempts:
                if remaining:
                    attempts.add(asyncio.get_running_loop().create_task(_connect(remaining.pop(0))))
                done, attempts = await asyncio.wait(
                    attempts, timeout=STAGGER if remaining else None, return_when=asyncio.FIRST_COMPLETED
                )
                for attempt in done:
                    error = attempt.exception()
                    if error is None:
                        attempts |= done - {attempt}
                        return attempt.result()
                    if not isinstance(error, OSError):
                        raise error
                    last_error = error
            raise last_error
        finally:
            await _cancel(attempts)

    def close(self) -> None:
        """Cancels the resolution of the host's name."""
        self._addresses.close()


class PathDialler(Dialler):
    """Makes connections to the Unix socket at a path."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def dial(self, protocol: Callable[[], ProtocolT]) -> tuple[ProtocolT, socket.socket]:
        """Returns the connected protocol and its socket. Not bounded in time. Raises HttpFailure."""
        loop = asyncio.get_running_loop()
        sock = socket.socket(getattr(socket, "AF_UNIX"), socket.SOCK_STREAM)  # noqa: B009  # not on Windows
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, self._path)
            _, connection = await loop.create_unix_connection(protocol, sock=sock)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                raise ConnectFailed(error) from None
            raise
        return connection, sock


@contextlib.contextmanager
def tls_failures() -> Iterator[None]:
    """Turns failures of a TLS handshake into those of the HTTP client."""
    try:
        yield
    except ssl.CertificateError as error:
        raise CertificateRefused(getattr(error, "verify_message", "")) from None
    except ssl.SSLError as error:
        if wants_certificate(error):
            raise CertificateWanted from None
        raise TlsFailed(spoken=error.reason not in _NO_TLS) from None
    except OSError:
        raise TlsFailed from None  # the host closed the connection during the handshake


async def _cancel(attempts: set[asyncio.Task[socket.socket]]) -> None:
    for attempt in attempts:
        attempt.cancel()
    for result in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(result, socket.socket):
            result.close()


async def _connect(address: Address) -> socket.socket:
    family, kind, protocol, sockaddr = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PROBES:
            option = getattr(socket, name, None)
            if option is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
        await asyncio.get_running_loop().sock_connect(sock, sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""OpenSSL's reasons for a failed handshake with a host that does not use TLS."""
FRESH: Final = 10.0
"""Seconds an answer of the resolver is reused."""

Address = tuple[int, int, int, Any]
"""Family, type, protocol and address, as the `socket` module has them."""


class Addresses:
    """The addresses of `host` (a name or an address), cached for FRESH seconds and shared by all its connections."""

    def __init__(self, host: str, port: int, addresses: Sequence[str] | None = None) -> None:
        self._host = host
        self._port = port
        self._cached: list[Address] = _interleaved([_literal(address, port) for address in addresses or ()])
        self._expires_at = 0.0 if addresses is None else math.inf
        self._query: asyncio.Task[list[Address]] | None = None

    async def get(self) -> list[Address]:
        """Returns at least one address, alternating between families in the system's order. Not bounded in time.

        Raises NameUnknown.
        """
        if self._cached and asyncio.get_running_loop().time() < self._expires_at:
            return self._cached
        if self._query is None:
            self._query = asyncio.get_running_loop().create_task(self._resolve())
        resolved = await asyncio.shield(self._query)  # others may wait for the same
        if not resolved:
            raise NameUnknown(self._host)
        return resolved

    async def _resolve(self) -> list[Address]:
        loop = asyncio.get_running_loop()
        results: list[Any] = []
        try:
            with contextlib.suppress(OSError, UnicodeError):
                results = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=self._flags())
            self._cached = _interleaved(
                [(family, kind, protocol, sockaddr) for family, kind, protocol, _, sockaddr in results]
            )
            self._expires_at = loop.time() + FRESH
            return self._cached
        finally:
            self._query = None

    def _flags(self) -> int:
        for family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError, ValueError):
                socket.inet_pton(family, self._host.partition("%")[0])
                return socket.AI_NUMERICHOST
        return socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", ~0)  # some systems reject AI_ADDRCONFIG

    def close(self) -> None:
        """Cancels a running query."""
        if self._query is not None:
            self._query.cancel()


def _literal(address: str, port: int) -> Address:
    family, kind, protocol, _, sockaddr = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    return family, kind, protocol, sockaddr


def _interleaved(addresses: list[Address]) -> list[Address]:
    families = dict.fromkeys(address[0] for address in addresses)
    rows = [[address for address in addresses if address[0] == family] for family in families]
    return [address for row in itertools.zip_longest(*rows) for address in row if address is not None]


MAX_HEAD: Final = 16 * 1024
"""Bytes of a proxy's answer to CONNECT."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r?\n)")
_CHALLENGE: Final = re.compile(rb"\nproxy-authenticate:[ \t]*([A-Za-z0-9-]{1,30})", re.IGNORECASE)
_UNREACHABLE: Final = frozenset({502, 503, 504})
_SOCKS_REPLIES: Final = {
    1: "it failed",
    2: "its rules forbid it",
    3: "it cannot reach the network",
    4: "it cannot reach the host",
    5: "the host refused the connection",
    6: "the connection took too long",
    7: "it does not support connections",
    8: "it does not support this kind of address",
}
_NO_CREDENTIALS, _WITH_PASSWORD, _NONE_OF_THEM = 0, 2, 255


class ProxyDialler(Dialler):
    """Makes connections to one host through a proxy. The proxy resolves the host's name.

    Args:
        proxy: the proxy.
        to_proxy: the TLS context for an `https` proxy.
        tls: the TLS context for the host; None: no TLS with the host.
        tunnels: whether to open a tunnel; otherwise the connection ends at the proxy, which forwards each request.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        proxy: ForwardProxy,
        to_proxy: ssl.SSLContext | None,
        *,
        tunnels: bool = True,
    ) -> None:
        self._host, self._port, self._tls = host.rstrip("."), port, tls
        self._proxy = proxy
        self._dialler = HostDialler(proxy.host, proxy.port, to_proxy)
        self._tunnels = tunnels
        self._reached = False

    async def dial(self, protocol: Callable[[], ProtocolT]) -> tuple[ProtocolT, socket.socket]:
        """Returns the connected protocol and the socket to the proxy. Not bounded in time. Raises HttpFailure."""
        if not self._tunnels:
            return await self._dial_proxy(protocol)
        tunnel, handle = await self._dial_proxy(TunnelProtocol)
        self._reached = True
        try:
            await (self._socks(tunnel) if self._proxy.kind == "socks5h" else self._connect(tunnel))
            return await self._start_protocol(tunnel.ready(), protocol), handle
        except EOFError:
            tunnel.abort()
            raise ProxyFailed("answer", "closes the connection before the tunnel is open") from None
        except BaseException:
            tunnel.abort()
            raise

    def late(self) -> HttpFailure:
        """Returns the failure for a `dial` that took too long."""
        if self._reached:
            return ProxyFailed("refused", f"opens no connection to {self._target} in time")
        return ProxyFailed("connect", "does not accept a connection in time")

    def close(self) -> None:
        """Cancels the resolution of the proxy's name."""
        self._dialler.close()

    @property
    def _target(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    async def _dial_proxy(self, protocol: Callable[[], ProtocolT]) -> tuple[ProtocolT, socket.socket]:
        try:
            return await self._dialler.dial(protocol)
        except NameUnknown:
            raise ProxyFailed("name", "has a host that is not known") from None
        except CertificateRefused as error:
            raise ProxyFailed("tls", f"has a certificate that is not valid: {error}") from None
        except TlsFailed:
            raise ProxyFailed("tls", "does not speak TLS; its address may have to begin with http://") from None
        except ConnectFailed as error:
            reason = os.strerror(error.error.errno) if error.error.errno else str(error)
            raise ProxyFailed("connect", f"does not accept a connection: {reason}") from None

    async def _start_protocol(self, transport: asyncio.Transport, protocol: Callable[[], ProtocolT]) -> ProtocolT:
        connection = protocol()
        if self._tls is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
            return connection
        with tls_failures():
            inner = await asyncio.get_running_loop().start_tls(
                transport, connection, self._tls, server_hostname=self._host, ssl_shutdown_timeout=GOODBYE
            )
        if inner is None:
            raise TlsFailed
        connection.connection_made(inner)
        return connection

    # --- CONNECT ---------------------------------------------------------------------------------------------------

    async def _connect(self, tunnel: TunnelProtocol) -> None:
        credentials = self._proxy.authorization
        lines = [f"CONNECT {self._target} HTTP/1.1", f"Host: {self._target}", "User-Agent: mcp-hub"]
        lines += [f"Proxy-Authorization: {credentials}"] if credentials is not None else []
        tunnel.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        while True:
            head = await tunnel.head()
            match = _STATUS.match(head)
            if match is None:
                raise ProxyFailed("answer", "does not answer with HTTP; its address may have to begin with socks5h://")
            if (status := int(match[1])) >= 200:
                break
        if status in (401, 407):  # tinyproxy answers 401
            self._fail_credentials(_CHALLENGE.search(head))
        if not 200 <= status < 300:
            reason = f"HTTP {status} {http.client.responses.get(status, '')}".rstrip()
            predicate = "cannot reach" if status in _UNREACHABLE else "opens no connection to"
            raise ProxyFailed("refused", f"{predicate} {self._target} ({reason})")

    def _fail_credentials(self, challenge: re.Match[bytes] | None) -> NoReturn:
        scheme = challenge[1].decode() if challenge is not None else "Basic"
        if scheme.lower() != "basic":
            raise ProxyFailed("credentials", f"wants credentials by {scheme}, which the hub does not speak")
        if self._proxy.authorization is None:
            raise ProxyFailed("credentials", "wants a user and a password")
        raise ProxyFailed("credentials", "does not accept its user and password")

    # --- SOCKS5 (RFC 1928, RFC 1929) --------------------------------------------------------------------------------

    async def _socks(self, tunnel: TunnelProtocol) -> None:
        user, password = self._proxy.user.encode(), self._proxy.password.encode()
        methods = [_NO_CREDENTIALS, _WITH_PASSWORD] if user or password else [_NO_CREDENTIALS]
        tunnel.write(bytes([5, len(methods), *methods]))
        version, method = await tunnel.read(2)
        if version != 5 or method not in (*methods, _NONE_OF_THEM):
            raise ProxyFailed("answer", "does not answer with SOCKS5; its address may have to begin with http://")
        if method == _NONE_OF_THEM:
            demand = "another sign-in than by user and password" if user or password else "a user and a password"
            raise ProxyFailed("credentials", f"wants {demand}")
        if method == _WITH_PASSWORD:
            tunnel.write(bytes([1, len(user)]) + user + bytes([len(password)]) + password)
            _, status = await tunnel.read(2)
            if status != 0:
                raise ProxyFailed("credentials", "does not accept its user and password")
        tunnel.write(b"\x05\x01\x00" + self._socks_address() + self._port.to_bytes(2, "big"))
        version, reply, _, kind = await tunnel.read(4)
        if version != 5 or kind not in (1, 3, 4):
            raise ProxyFailed("answer", "does not answer with SOCKS5")
        if reply != 0:
            raise ProxyFailed("refused", f"opens no connection to {self._target}: {_SOCKS_REPLIES.get(reply, reply)}")
        await tunnel.read(({1: 4, 4: 16}.get(kind) or (await tunnel.read(1))[0]) + 2)

    def _socks_address(self) -> bytes:
        try:
            address = ipaddress.ip_address(self._host.partition("%")[0])
        except ValueError:
            name = self._host.encode()
            if len(name) > 255:
                raise ProxyFailed("refused", "cannot be given a host of more than 255 characters") from None
            return bytes([3, len(name)]) + name
        return bytes([1 if address.version == 4 else 4]) + address.packed


class TunnelProtocol(asyncio.Protocol):
    """A connection to a proxy until the tunnel is open: reads the proxy's answers, but no byte beyond them."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the asyncio transport (asyncio.Protocol)."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keeps what the proxy sent, within bounds (asyncio.Protocol)."""
        self._data += data
        if len(self._data) > MAX_HEAD:
            self.abort()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Makes pending reads raise EOFError (asyncio.Protocol)."""
        self._closed = True
        self._wake()

    def eof_received(self) -> bool:
        """Makes pending reads raise EOFError (asyncio.Protocol)."""
        self._closed = True
        self._wake()
        return False

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait_for_data(self) -> None:
        if self._closed:
            raise EOFError
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def write(self, data: bytes) -> None:
        """Sends bytes of the handshake. Raises EOFError if the connection is gone."""
        if self._closed or self._transport is None:
            raise EOFError
        self._transport.write(data)

    async def read(self, size: int) -> bytes:
        """Waits for `size` bytes. Raises EOFError if the connection ends before."""
        while len(self._data) < size:
            await self._wait_for_data()
        data = bytes(self._data[:size])
        del self._data[:size]
        return data

    async def head(self) -> bytes:
        """Waits for the head of an answer. Raises EOFError if the connection ends, or the head is too large."""
        while True:
            if self._data and not b"HTTP/".startswith(self._data[:5]):
                return bytes(self._data)  # this is not HTTP, so the end of a head may never come
            if (end := self._data.find(b"\r\n\r\n")) >= 0:
                return await self.read(end + 4)
            await self._wait_for_data()

    def ready(self) -> asyncio.Transport:
        """Returns the transport of the open tunnel.

        Raises ProxyFailed if the proxy has sent more than its answer, EOFError if the connection is gone.
        """
        if self._data:
            raise ProxyFailed("answer", "sends data into the tunnel before anything was asked")
        if self._closed or self._transport is None:
            raise EOFError
        return self._transport

    def abort(self) -> None:
        """Closes the connection at once."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()
