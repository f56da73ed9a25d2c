"""The addresses of one host, asked for once for all who want to connect."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from typing import Any, Final

from mcp_hub.transport.http1.failures import NameUnknown

FRESH: Final = 10.0
"""Seconds an answer is used again."""

Address = tuple[int, int, int, Any]
"""Family, kind, protocol, and the address itself, as `socket` has them."""


class Addresses:
    """Of `host`, a name or a literal, at `port`."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._known: list[Address] = []
        self._until = 0.0
        self._asking: asyncio.Task[list[Address]] | None = None

    async def get(self) -> list[Address]:
        """At least one, families in turn as the system prefers them. Raises NameUnknown. Not bounded in time."""
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
        return socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", ~0)  # some systems do not take their own flags

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()


def _in_turn(addresses: list[Address]) -> list[Address]:
    families = dict.fromkeys(address[0] for address in addresses)
    rows = [[address for address in addresses if address[0] == family] for family in families]
    return [address for row in itertools.zip_longest(*rows) for address in row if address is not None]
