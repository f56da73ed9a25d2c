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

Made = TypeVar("Made", bound=asyncio.BaseProtocol)


class Dialler:
    """Makes connections to one host; if `tls` is given, over TLS, and the host's certificate must match its name."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, addresses: Sequence[str] | None = None
    ) -> None:
        """`addresses`: the addresses to dial, instead of resolving the host's name."""
        self._addresses = Addresses(host, port, addresses)
        self._tls = tls
        self._name = host.rstrip(".")

    async def dial(self, protocol: Callable[[], Made]) -> tuple[Made, socket.socket]:
        """Returns the connected protocol and its socket. Not bounded in time. Raises HttpFailure."""
        addresses = await self._addresses.get()
        try:
            connected = await self._connected(addresses)
        except OSError as error:
            raise ConnectFailed(error) from None
        try:
            return await self._begun(connected, protocol), connected
        except BaseException:
            connected.close()
            raise

    async def _begun(self, connected: socket.socket, protocol: Callable[[], Made]) -> Made:
        loop = asyncio.get_running_loop()
        with tls_failures():
            if self._tls is None:
                _, made = await loop.create_connection(protocol, sock=connected)
            else:
                _, made = await loop.create_connection(
                    protocol,
                    sock=connected,
                    ssl=self._tls,
                    server_hostname=self._name,
                    ssl_shutdown_timeout=GOODBYE,
                )
            return made

    async def _connected(self, addresses: list[Address]) -> socket.socket:
        if len(addresses) == 1:
            return await _connect(addresses[0])
        attempts: set[asyncio.Task[socket.socket]] = set()
        left = list(addresses)
        failed: OSError = OSError("no address")
        try:
            while left or attempts:
                if left:
                    attempts.add(asyncio.get_running_loop().create_task(_connect(left.pop(0))))
                done, attempts = await asyncio.wait(
                    attempts, timeout=STAGGER if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for attempt in done:
                    error = attempt.exception()
                    if error is None:
                        attempts |= done - {attempt}
                        return attempt.result()
                    if not isinstance(error, OSError):
                        raise error
                    failed = error
            raise failed
        finally:
            await _give_up(attempts)

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

    async def dial(self, protocol: Callable[[], Made]) -> tuple[Made, socket.socket]:
        """Returns the connected protocol and its socket. Not bounded in time. Raises HttpFailure."""
        loop = asyncio.get_running_loop()
        connected = socket.socket(getattr(socket, "AF_UNIX"), socket.SOCK_STREAM)  # noqa: B009  # not on Windows
        try:
            connected.setblocking(False)
            await loop.sock_connect(connected, self._path)
            _, made = await loop.create_unix_connection(protocol, sock=connected)
        except BaseException as error:
            connected.close()
            if isinstance(error, OSError):
                raise ConnectFailed(error) from None
            raise
        return made, connected

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


async def _give_up(attempts: set[asyncio.Task[socket.socket]]) -> None:
    for attempt in attempts:
        attempt.cancel()
    for late in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(late, socket.socket):
            late.close()


async def _connect(address: Address) -> socket.socket:
    family, kind, protocol, to = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PROBES:
            option = getattr(socket, name, None)
            if option is not None:
                made.setsockopt(socket.IPPROTO_TCP, option, value)
        await asyncio.get_running_loop().sock_connect(made, to)
    except BaseException:
        made.close()
        raise
    return made


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
        self._known: list[Address] = _in_turn([_literal(one, port) for one in addresses or ()])
        self._until = 0.0 if addresses is None else math.inf
        self._asking: asyncio.Task[list[Address]] | None = None

    async def get(self) -> list[Address]:
        """Returns at least one address, alternating between families in the system's order. Not bounded in time.

        Raises NameUnknown.
        """
        if self._known and asyncio.get_running_loop().time() < self._until:
            return self._known
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        known = await asyncio.shield(self._asking)  # others may wait for the same
        if not known:
            raise NameUnknown(self._host)
        return known

    async def _ask(self) -> list[Address]:
        loop = asyncio.get_running_loop()
        found: list[Any] = []
        try:
            with contextlib.suppress(OSError, UnicodeError):
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=self._flags())
            self._known = _in_turn([(family, kind, protocol, to) for family, kind, protocol, _, to in found])
            self._until = loop.time() + FRESH
            return self._known
        finally:
            self._asking = None

    def _flags(self) -> int:
        for family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError, ValueError):
                socket.inet_pton(family, self._host.partition("%")[0])
                return socket.AI_NUMERICHOST
        return socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", ~0)  # some systems reject AI_ADDRCONFIG

    def close(self) -> None:
        """Cancels a running query."""
        if self._asking is not None:
            self._asking.cancel()


def _literal(address: str, port: int) -> Address:
    family, kind, protocol, _, to = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    return family, kind, protocol, to


def _in_turn(addresses: list[Address]) -> list[Address]:
    families = dict.fromkeys(address[0] for address in addresses)
    rows = [[address for address in addresses if address[0] == family] for family in families]
    return [address for row in itertools.zip_longest(*rows) for address in row if address is not None]
