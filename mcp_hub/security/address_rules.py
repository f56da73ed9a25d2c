"""Rules for connections to web pages: public addresses, and those that the configuration allows."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from mcp_hub.text import printable

SETTING: Final = "web.allow_addresses"
RULE: Final = "address"
"""The name of this rule in a refusal: the address was refused, not the URL."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "100.64.0.0/10",  # shared by customers of one provider
        "168.63.129.16",  # metadata of Azure, although in a public network
        "192.0.0.0/24",  # protocols; metadata of Oracle's cloud
        "192.88.99.0/24",  # relays of 6to4
        "198.18.0.0/15",  # benchmarks
        "64:ff9b:1::/48",  # local NAT64, where the IPv4 address has no fixed position
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)
"""Networks that are not public, although `ipaddress` of some supported Python versions says so."""

_PRIVATE_NAMES: Final = (
    ".local", ".localhost", ".localdomain", ".internal", ".intranet", ".private", ".corp", ".home", ".lan", ".arpa",
    ".test", ".invalid",
)  # fmt: skip
"""Endings of names that no public name server resolves. Metadata services of clouds are below `.internal`."""


class AddressRules(msgspec.Struct, frozen=True, dict=True):
    """Allows public addresses and those of `allow`.

    `allow` has networks, addresses and names (`wiki.intranet`, `*.corp`), each also with `:port`.
    """

    allow: tuple[str, ...] = ()

    def refused(self, host: str, address: str, port: int) -> str | None:
        """Returns why the hub refuses to connect to `address`, to which `host` resolves; None if it does not."""
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return f"{host!r} resolves to {address!r}, which is not an IP address."
        if all(_is_public(meaning) for meaning in _meanings(ip)):
            return None
        name = host.lower().rstrip(".").strip("[]")
        if any(entry.covers(name, ip, port) for entry in self._entries):
            return None
        return (
            f"{host!r} leads to the address {ip}, which is not a public one, and is not reached "
            f"(setting: {SETTING}; to allow it, write {self._line(host, ip, port)} at the top of the configuration)."
        )

    def refused_name(self, host: str, port: int) -> str | None:
        """Returns why the hub refuses to reach a host through a proxy that resolves names; None if it does not.

        The address is not known here, so names that are never public are refused.
        """
        name = host.lower().rstrip(".").strip("[]")
        if "." in name and not name.endswith(_PRIVATE_NAMES):
            return None
        if any(entry.names(name, port) for entry in self._entries):
            return None
        return (
            f"{host!r} is the name of a private network, and is not reached "
            f"(setting: {SETTING}; to allow it, write {self._line(host, None, port)} at the top of the configuration)."
        )

    def _line(self, host: str, address: Address | None, port: int) -> str:
        """Returns the setting that would allow this address."""
        host_text = host.strip("[]") if host.strip("[]") != str(address) else str(address)
        entry = f"[{host_text}]:{port}" if ":" in host_text else f"{host_text}:{port}"
        section, _, key = SETTING.partition(".")
        return f"{section}: {{{key}: {json.dumps([*self.allow, entry])}}}"

    @cached_property
    def _entries(self) -> tuple[_Entry, ...]:
        return tuple(_Entry.read(text) for text in self.allow)

    def to_json(self) -> dict[str, Any]:
        """Returns the rules as a JSON object for `from_json`."""
        return {"allow": list(self.allow)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AddressRules:
        """Makes rules from the JSON object of `to_json`."""
        return cls(tuple(data.get("allow", ())))


_NAME: Final = re.compile(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?")


def problem_of_entries(texts: Iterable[str]) -> str | None:
    """Returns a text about invalid entries of `AddressRules.allow`, with hints; None if all are valid."""
    invalid_entries = [text for text in texts if not _is_entry(text)]
    if not invalid_entries:
        return None
    quoted = ", ".join(repr(printable(text, 100)) for text in invalid_entries)
    hints = [hint for text in invalid_entries if (hint := _hint(text)) is not None]
    verb = "is no address, network or name" if len(invalid_entries) == 1 else "are no addresses, networks or names"
    return "; ".join([f"{quoted} {verb}, such as 10.0.0.0/8, wiki.intranet or 127.0.0.1:8000", *hints])


def _is_entry(text: str) -> bool:
    host, port = _split(text.strip().lower())
    if port is not None and not 0 < port < 65536:
        return False
    try:
        ipaddress.ip_network(host, strict=False)
        return True
    except ValueError:
        return _NAME.fullmatch(host) is not None and not re.fullmatch(r"[\d.-]+", host)


def _hint(text: str) -> str | None:
    """Returns a hint what to write instead of an invalid entry, None if there is none."""
    if text.strip() == "*":
        return "all addresses are 0.0.0.0/0"
    host = text.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if host and _is_entry(host):
        return f"for {printable(text, 100)!r} write {host}"
    if (wildcard := re.fullmatch(r"((?:\d{1,3}\.){1,3})\*", text.strip())) is not None:
        parts = wildcard[1].split(".")[:-1]
        return f"for {text.strip()!r} write {'.'.join([*parts, *['0'] * (4 - len(parts))])}/{8 * len(parts)}"
    return None


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
            return any(
                meaning.version == self.network.version and meaning in self.network for meaning in _meanings(address)
            )
        return self.names(name, port)

    def names(self, name: str, port: int) -> bool:
        if self.name is None or self.port not in (None, port):
            return False
        return name.endswith(self.name[1:]) if self.name.startswith("*.") else name == self.name


def _split(text: str) -> tuple[str, int | None]:
    """Splits `host`, `host:port`, `[v6]:port` or `v6` into (host or network, port)."""
    if text.startswith("["):
        host, _, port_part = text[1:].partition("]")
        return host, int(port_part[1:]) if port_part[1:].isdecimal() else None
    host, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and ":" not in host:
        return host, int(port)
    return text, None


def _meanings(address: Address) -> tuple[Address, ...]:
    """Returns the address and the IPv4 addresses that it represents by mapping, translation or tunnel."""
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
