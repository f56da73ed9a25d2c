"""The client at the other end of a connection: its address, and the identity that the connection itself proves."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mcp_hub.config.listen import UNIX

_CREDENTIALS: Final = struct.Struct("3i")
"""`struct ucred` of Linux: process, user, group."""
_MACOS_CREDENTIALS: Final = struct.Struct("2I")
"""The beginning of `struct xucred` of macOS: version, user."""
_MACOS_LEVEL, _MACOS_OPTION = 0, 1
"""SOL_LOCAL and LOCAL_PEERCRED."""


class UnixPeer(msgspec.Struct, frozen=True):
    """The other end of a Unix socket."""

    uid: int | None
    """The id of the user that has connected; None if the system does not tell."""

    @property
    def address(self) -> str:
        """The name that is used as an address in records and limits, such as `unix:1000`."""
        return UNIX if self.uid is None else f"{UNIX}:{self.uid}"


class CertifiedPeer(msgspec.Struct, frozen=True):
    """A client with a certificate of an authority that the listener trusts."""

    names: tuple[str, ...]
    """The names of its certificate; those of DNS in lower case."""
    until: float
    """When the certificate expires, in seconds since the epoch."""
    address: str = ""
    """The address of the client."""


Peer = UnixPeer | CertifiedPeer


def address_of(transport: asyncio.BaseTransport) -> str:
    """Returns the client's address; `""` where it has none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else ""


def unix_peer(transport: asyncio.BaseTransport) -> UnixPeer:
    """Returns the other end of a connection over a Unix socket."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    return UnixPeer(None if connection is None else _uid_of(connection))


def _uid_of(connection: socket.socket, platform: str = sys.platform) -> int | None:
    try:
        if platform == "linux":
            option = socket.SO_PEERCRED  # type: ignore[attr-defined,unused-ignore]  # not on every platform
            return int(_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))[1])
        if platform == "darwin":
            size = _MACOS_CREDENTIALS.size
            # The structure continues with groups; the system fills as much of it as there is room for.
            return int(_MACOS_CREDENTIALS.unpack(connection.getsockopt(_MACOS_LEVEL, _MACOS_OPTION, 76)[:size])[1])
    except (OSError, struct.error):
        pass
    return None


def certified_peer(transport: asyncio.BaseTransport, address: str) -> CertifiedPeer | None:
    """Returns the identity in the client's certificate; None for a client without a certificate."""
    certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert")
    if not certificate:
        return None
    return CertifiedPeer(_names_of(certificate), _expiry_of(certificate), address)


_SOUND: Final = {"URI": ":", "email": "@"}
"""A character that a name of each kind must contain, so that it cannot be mistaken for a name of another kind."""


def _names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns its alternative names (URI, DNS, email); if it has none of these, its common name."""
    names = []
    for kind, name in _pairs(certificate.get("subjectAltName")):
        if kind == "DNS" and not any(mark in name for mark in ":@*"):
            names.append(name.lower())
        elif kind in _SOUND and _SOUND[kind] in name:
            names.append(name)
    if not names:
        subject = [pair for part in certificate.get("subject", ()) for pair in _pairs(part)]
        common = [name for key, name in subject if key == "commonName" and ":" not in name][-1:]
        names = [name if "@" in name else name.lower() for name in common]
    return tuple(dict.fromkeys(names))


def _pairs(value: object) -> Iterable[tuple[str, str]]:
    for pair in value if isinstance(value, tuple) else ():
        if isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair):
            yield pair


def _expiry_of(certificate: Mapping[str, Any]) -> float:
    try:
        return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
    except (KeyError, ValueError):
        return -math.inf
