"""Connects to a host: resolves its addresses, tries them with staggered starts, then does the TLS handshake."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from mcp_hub.transport.http1.client_response import (
    CertificateRefused,
    CertificateWanted,
    ConnectFailed,
    ConnectTimeout,
    HttpFailure,
    NameUnknown,
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

    def late(self) -> HttpFailure:
        """Returns the failure where `dial` was not done in time."""
        return ConnectTimeout()

    def close(self) -> None:
        """Cancels the resolution of the host's name."""
        self._addresses.close()


class PathDialler:
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

    def late(self) -> HttpFailure:
        """Returns the failure where `dial` was not done in time."""
        return ConnectTimeout()

    def close(self) -> None:
        """Does nothing: a path has no addresses."""


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
