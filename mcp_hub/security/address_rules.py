"""Which addresses the hub dials for a page: public ones, and those the configuration allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

SETTING: Final = "web.allow_addresses"
RULE: Final = "address"
"""Beside the code of a refusal: it was the address, not the URL."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "100.64.0.0/10",  # shared by customers of one provider
        "168.63.129.16",  # metadata of Azure, in a public network
        "192.0.0.0/24",  # protocols; metadata of Oracle's cloud
        "192.88.99.0/24",  # relays of 6to4
        "198.18.0.0/15",  # benchmarks
        "64:ff9b:1::/48",  # NAT64 of one's own, where the IPv4 address has no fixed place
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)
"""Networks that not every supported Python knows not to be public."""


class AddressRules(msgspec.Struct, frozen=True, dict=True):
    """`allow` has networks, addresses, names (`wiki.intranet`, `*.corp`), each also with `:port`."""

    allow: tuple[str, ...] = ()

    def refused(self, host: str, address: str, port: int) -> str | None:
        """Why `address`, found for `host`, must not be dialled, as a sentence for the user; None if it may be."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return f"{host!r} has the address {address!r}, which is none."
        if all(_is_public(one) for one in _meanings(found)):
            return None
        name = host.lower().rstrip(".").strip("[]")
        if any(entry.covers(name, found, port) for entry in self._entries):
            return None
        return (
            f"{host!r} leads to the address {found}, which is not a public one, and is not reached "
            f"(to allow it, add it to the setting: {SETTING})."
        )

    @cached_property
    def _entries(self) -> tuple[_Entry, ...]:
        return tuple(_Entry.read(text) for text in self.allow)

    def to_json(self) -> dict[str, Any]:
        """An object that `from_json` makes the same rules of."""
        return {"allow": list(self.allow)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AddressRules:
        """The rules in such an object."""
        return cls(tuple(data.get("allow", ())))


class _Entry(msgspec.Struct, frozen=True):
    name: str | None
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    port: int | None

    @classmethod
    def read(cls, text: str) -> _Entry:
        host, port = _split(text.strip().lower())
        try:
            return cls(None, ipaddress.ip_network(host, strict=False), port)
        except ValueError:
            return cls(host.rstrip("."), None, port)

    def covers(self, name: str, address: Address, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return any(one.version == self.network.version and one in self.network for one in _meanings(address))
        if self.name is not None and self.name.startswith("*."):
            return name.endswith(self.name[1:])
        return name == self.name


def _split(text: str) -> tuple[str, int | None]:
    """(host or network, port) of `host`, `host:port`, `[v6]:port`, `v6`."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, int(rest[1:]) if rest[1:].isdecimal() else None
    host, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and ":" not in host:
        return host, int(port)
    return text, None


def _meanings(address: Address) -> tuple[Address, ...]:
    """The address and the IPv4 addresses it stands for, by mapping, translation or tunnel."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner: list[Address] = [address]
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        inner.append(address.sixtofour)
    if address.teredo is not None:
        inner.extend(address.teredo)
    if address in _NAT64:
        return (ipaddress.IPv4Address(address.packed[-4:]),)
    if address.packed[:12] == bytes(12) and int(address) > 1:
        inner.append(ipaddress.IPv4Address(address.packed[-4:]))
    return tuple(inner)


def _is_public(address: Address) -> bool:
    if any(address.version == network.version and address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
