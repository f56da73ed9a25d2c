"""Forward proxies for outbound connections: their addresses, and which hosts are reached through which of them.

The environment variables are read as curl reads them (lower case first), with three differences: addresses of this
machine are reached directly unless the proxy was named for that server, `HTTP_PROXY` counts outside of CGI, and an
entry of `NO_PROXY` may begin with `*.` and have a port.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Final, Literal, Self
from urllib.parse import unquote, urlsplit

import msgspec

DIRECT: Final = "direct"
PROXY_SCHEMES: Final = ("http", "https", "socks5h")
_SPELLINGS: Final = {"socks5": "socks5h", **{scheme: scheme for scheme in PROXY_SCHEMES}}
"""Scheme as written -> kind of the proxy. A SOCKS proxy always resolves names itself, with `socks5` too."""
_PORTS: Final = {"http": 1080, "https": 443, "socks5h": 1080}
"""The default ports of curl."""
_ENCRYPTED: Final = frozenset({"https", "wss"})
_SEPARATORS: Final = re.compile(r"[\s,]+")
_MAX_EXEMPT: Final = 1000
"""Entries of `NO_PROXY` that are read."""


class ProxySettingError(ValueError):
    """A proxy's address is not usable. `str()` never has its user or password."""


class ForwardProxy(msgspec.Struct, frozen=True):
    """The address of one proxy. `str()` is safe to show: it has no user and no password."""

    kind: Literal["http", "https", "socks5h"]
    host: str
    port: int
    user: str = ""
    password: str = ""
    source: str = ""
    """The variable or key that sets it."""

    @classmethod
    def parse(cls, text: str, source: str) -> Self | None:
        """Reads an address such as `http://user:password@proxy.example:3128`; returns None for `direct`.

        The default scheme is `http`. Raises ProxySettingError if the address is not valid.
        """
        text = text.strip()
        if text.lower() == DIRECT:
            return None
        message = f"{source} is not the address of a proxy; write it like http://proxy.example:3128 or {DIRECT}"
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ProxySettingError(message) from None
        kind = _SPELLINGS.get(parts.scheme)
        if kind is None and re.fullmatch(r"[a-z][a-z0-9+.-]{0,20}", parts.scheme):
            schemes = ", ".join(f"{scheme}://" for scheme in PROXY_SCHEMES)
            raise ProxySettingError(f"{source} has the scheme {parts.scheme}://; a proxy is one of {schemes}")
        has_path = parts.path not in ("", "/") or parts.query or parts.fragment
        if kind is None or not host or port == 0 or has_path or re.search(r"[\s\x00-\x1f\x7f\\]", text):
            raise ProxySettingError(message)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if len(user.encode()) > 255 or len(password.encode()) > 255:
            raise ProxySettingError(f"{source} has a user or a password of more than 255 bytes")
        return msgspec.convert(
            {
                "kind": kind,
                "host": host,
                "port": port or _PORTS[kind],
                "user": user,
                "password": password,
                "source": source,
            },
            cls,
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.kind}://{host}:{self.port}"

    @property
    def authorization(self) -> str | None:
        """The value of `Proxy-Authorization`; None without a user."""
        if not self.user and not self.password:
            return None
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def forwards(self, scheme: str) -> bool:
        """Returns whether requests for URLs of a scheme are sent to the proxy itself instead of through a tunnel."""
        return scheme == "http" and self.kind != "socks5h"


class ProxyRules(msgspec.Struct, frozen=True):
    """Which hosts are reached through which proxy."""

    http: tuple[str, str] | None = None
    """(variable or key, address as written) of the proxy for `http://`; None: there is none."""
    https: tuple[str, str] | None = None
    exempt: str = ""
    """Hosts that are reached directly, in the form of `NO_PROXY`."""
    own: bool = False
    """Whether the proxy is set for one server: it is then used for exempt hosts and for this machine as well."""

    @classmethod
    def of(cls, environ: Mapping[str, str], configured: str | None = None, *, own: bool = False) -> Self:
        """Reads the rules of an environment. `configured`: a proxy that is used instead of those in its variables."""
        exempt = "" if own else environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        if configured is not None:
            return cls(("proxy", configured), ("proxy", configured), exempt, own)
        # In CGI the variable HTTP_PROXY comes from a header of the request.
        for_http = ("http_proxy",) if "REQUEST_METHOD" in environ else ("http_proxy", "HTTP_PROXY")
        for_all = ("all_proxy", "ALL_PROXY")
        return cls(
            _first(environ, *for_http, *for_all), _first(environ, "https_proxy", "HTTPS_PROXY", *for_all), exempt
        )

    def proxy_for(self, scheme: str, host: str, port: int) -> ForwardProxy | None:
        """Returns the proxy for a host, None if it is reached directly. Raises ProxySettingError for a bad address."""
        setting = self.https if scheme in _ENCRYPTED else self.http
        if setting is None or (not self.own and (is_this_machine(host) or is_exempt(self.exempt, host, port))):
            return None
        return ForwardProxy.parse(setting[1], setting[0])


def _first(environ: Mapping[str, str], *names: str) -> tuple[str, str] | None:
    return next(((name, value) for name in names if (value := environ.get(name, "").strip())), None)


def is_this_machine(host: str) -> bool:
    """Returns whether a host is a name or an address of loopback."""
    name = _plain(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and address.is_loopback


def is_exempt(exempt: str, host: str, port: int) -> bool:
    """Returns whether a value of `NO_PROXY` names a host.

    Its entries are separated by commas or blanks: names, which include their subdomains; addresses; networks
    (`10.0.0.0/8`). Each may have a port. A single `*` names every host.
    """
    if exempt.strip() == "*":
        return True
    name = _plain(host)
    address = _address(name)
    entries = [entry for entry in _SEPARATORS.split(exempt) if entry][:_MAX_EXEMPT]
    return any(_covers(entry.lower(), name, address, port) for entry in entries)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _covers(entry: str, name: str, address: _Address | None, port: int) -> bool:
    host, entry_port = _split(entry)
    if entry_port is not None and entry_port != port:
        return False
    if address is not None:
        try:
            network = ipaddress.ip_network(host, strict=False)
        except ValueError:
            return False
        return address.version == network.version and address in network
    suffix = host.removeprefix("*").strip(".")
    return bool(suffix) and (name == suffix or name.endswith(f".{suffix}"))


def _split(entry: str) -> tuple[str, int | None]:
    """Splits an entry into (host or network, port)."""
    if entry.startswith("["):
        host, _, tail = entry[1:].partition("]")
        return host + (tail if tail.startswith("/") else ""), int(tail[1:6]) if tail[1:6].isdecimal() else None
    host, colon, port = entry.rpartition(":")
    if colon and ":" not in host and port.isdecimal() and len(port) <= 5:
        return host, int(port)
    return entry, None


def _plain(host: str) -> str:
    return host.strip("[]").partition("%")[0].rstrip(".").lower()


def _address(name: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
