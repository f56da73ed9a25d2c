"""The reverse proxies whose forwarding headers count, and the client that these headers name.

These headers tell where a request comes from, for records and limits. They never authenticate its sender.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from ipaddress import ip_address, ip_network
from typing import Final

from mcp_hub.config.listen import UNIX

MAX_HOPS: Final = 10
"""Proxies in a row whose forwarding headers are followed."""

_FOR: Final = re.compile(rb'(?:^|;)[ \t]*for="?([^";]*)"?', re.IGNORECASE)


class TrustedProxies:
    """The proxies of one listener: addresses, networks, and `unix` for every connection over a Unix socket."""

    def __init__(self, proxies: Collection[str]) -> None:
        self._networks = tuple(ip_network(proxy, strict=False) for proxy in proxies if proxy != UNIX)
        self._unix = UNIX in proxies

    def trusts(self, peer: str) -> bool:
        """Returns whether `peer` is the address of one of them."""
        if not self._networks or peer.partition(":")[0] == UNIX:
            return self._unix and peer.partition(":")[0] == UNIX
        try:
            address = ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Returns the address a request comes from: `peer`, or the client that a trusted proxy names.

        It reads X-Forwarded-For, or else Forwarded, and takes the last address that is not a trusted proxy.
        """
        if not self.trusts(peer):
            return peer
        lines = [value for name, value in headers if name == b"x-forwarded-for"]
        addresses = [value.decode("latin-1") for value in b",".join(lines).rsplit(b",", MAX_HOPS)]
        if not lines:
            lines = [value for name, value in headers if name == b"forwarded"]
            parts = b",".join(lines).rsplit(b",", MAX_HOPS) if lines else []
            addresses = [match[1].decode("latin-1") if (match := _FOR.search(part)) else "" for part in parts]
        for text in reversed(addresses[-MAX_HOPS:]):
            address = _address(text)
            if address is None:
                break
            peer = address
            if not self.trusts(peer):
                break
        return peer


def _address(text: str) -> str | None:
    """Returns the address in one element of X-Forwarded-For, which may have a port; None for anything else."""
    text = text.strip(" \t")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text.partition("%")[0]))  # without the zone, which may be any text
    except ValueError:
        return None
