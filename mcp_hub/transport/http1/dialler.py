"""From a host to a connection: its addresses tried side by side, then TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from mcp_hub.transport.http1.addresses import Address, Addresses
from mcp_hub.transport.http1.failures import CertificateRefused, NotConnected, TlsFailed

STAGGER: Final = 0.25
"""Seconds an address has before the next one is tried beside it."""
GOODBYE: Final = 0.5
"""Seconds for the end of TLS to be said."""
_PROBES: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""TCP keep-alive, in seconds and attempts: a silent host is found dead after two minutes."""

Made = TypeVar("Made", bound=asyncio.BaseProtocol)


class Dialler:
    """Connections to one host, by TLS where `tls` is given (the name its certificate must have is the host's)."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._addresses = Addresses(host, port)
        self._tls = tls
        self._name = host.rstrip(".")

    async def dial(self, protocol: Callable[[], Made]) -> tuple[Made, socket.socket]:
        """What `protocol` made, connected, and its socket. Raises HttpFailure. Not bounded in time."""
        addresses = await self._addresses.get()
        try:
            connected = await self._connected(addresses)
        except OSError as error:
            raise NotConnected(error) from None
        try:
            return await self._begun(connected, protocol), connected
        except BaseException:
            connected.close()
            raise

    async def _begun(self, connected: socket.socket, protocol: Callable[[], Made]) -> Made:
        loop = asyncio.get_running_loop()
        try:
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
        except ssl.CertificateError as error:
            raise CertificateRefused(getattr(error, "verify_message", "")) from None
        except ssl.SSLError:
            raise TlsFailed from None
        except OSError as error:
            raise NotConnected(error) from None

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

    def close(self) -> None:
        """Ask for addresses no more."""
        self._addresses.close()


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
