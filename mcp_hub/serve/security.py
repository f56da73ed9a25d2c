"""Who may talk to the listener: `Host`, `Origin` and the bearer token, from the raw bytes of the headers.

Pure. A web page that a person visits can reach a listener on the same machine (DNS rebinding, forged requests), so
these checks hold on loopback too and nothing here is ever taken from a URL built from what the client says.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mcp_hub.config.models import Listen

Headers = Iterable[tuple[bytes, bytes]]
"""Header lines as ASGI gives them: names in lower case, values untouched."""

ANONYMOUS: Final = ""
TOKEN_HOLDER: Final = "token"
"""Principal of whoever knows `listen.token`."""
MIN_TOKEN: Final = 32
"""Bytes; shorter ones can be guessed."""

_LOOPBACK_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_WILDCARDS: Final = frozenset({"", "*", "0.0.0.0", "::"})
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_SETTINGS: Final = " (setting: listen.public_host, or listen.allowed_hosts for any other)"
_VISIBLE: Final = re.compile(r"[\x21-\x7e]*")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that is not let in; `text` is for the person who has to change a setting."""

    status: int
    text: str
    challenge: bytes | None = None
    """Value of `WWW-Authenticate`."""


def is_loopback(host: str) -> bool:
    """Whether a listener on `host` is reached from this machine only. Other names are not looked up: they are not."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_listener(listen: Listen) -> str | None:
    """Why this listener may not start, in words for the user; None if it may."""
    token = listen.token.get_secret_value() if listen.token is not None else None
    if token is not None and len(token.encode()) < MIN_TOKEN:
        return f"listen.token has {len(token.encode())} bytes; a token that cannot be guessed has at least {MIN_TOKEN}"
    if token is not None and not _VISIBLE.fullmatch(token):
        return "listen.token may have visible ASCII characters only; no header can carry blanks or line ends"
    if token is None and listen.public_host:
        return f"{listen.public_host[0]} (public_host) lets others in: set listen.token"
    if token is None and not is_loopback(listen.host):
        where = listen.host or "every address"
        return f"listening on {where} lets others in: set listen.token, or listen.host to 127.0.0.1"
    return None


class Gate:
    """The checks of one listener. `tokens` (token -> principal) replaces `listen.token`."""

    def __init__(self, listen: Listen, tokens: Mapping[bytes, str] | None = None) -> None:
        if tokens is None:
            tokens = {listen.token.get_secret_value().encode(): TOKEN_HOLDER} if listen.token is not None else {}
        self._tokens = dict(tokens)
        named = (*listen.public_host, *listen.allowed_hosts)
        self._any_host = listen.host in _WILDCARDS and not named and bool(tokens)
        own = set(_LOOPBACK_NAMES) if is_loopback(listen.host) else set()
        if listen.host not in _WILDCARDS:
            own.add(_bracketed(listen.host))
        self._own_names = frozenset(own)
        self._hosts = self._own_names | {host.lower().removesuffix(":*").encode() for host in named}
        pages = [f"{scheme}://{host}" for host in listen.public_host for scheme in ("https", "http")]
        self._origins = frozenset(origin.lower().rstrip("/").encode() for origin in (*listen.allowed_origins, *pages))

    def refusal(self, headers: Headers, port: int | None) -> Refusal | None:
        """Why a request is refused before it is asked who sends it. `port` is the listener's own."""
        hosts, origins, forwarded = [], [], False
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"forwarded" or name.startswith(b"x-forwarded-"):
                forwarded = True
        return self._host(hosts) or self._forwarded(forwarded) or self._origin(origins, port)

    def _host(self, hosts: list[bytes]) -> Refusal | None:
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match is None:
            return Refusal(421, f"The request needs exactly one well-formed Host header{_SETTINGS}.")
        if self._any_host or match[1].lower() in self._hosts or match[0].lower() in self._hosts:
            return None
        said = match[0].decode()
        text = f"The Host {said} is not accepted. If your reverse proxy is known by it, serve with --public-host {said}"
        return Refusal(421, f"{text}{_SETTINGS}.")

    def _forwarded(self, forwarded: bool) -> Refusal | None:
        if not forwarded or self._tokens:
            return None
        # Behind a proxy everybody looks like this machine, and only this machine may come without a token.
        return Refusal(403, "A request through a proxy needs a token: set listen.token.")

    def _origin(self, origins: list[bytes], port: int | None) -> Refusal | None:
        if not origins:
            return None
        if len(origins) == 1 and self.allows_origin(origins[0], port):
            return None
        text = "The Origin of the request is not accepted. If it is your reverse proxy's, serve with --public-host HOST"
        return Refusal(403, f"{text} (setting: listen.public_host, or listen.allowed_origins for any other).")

    def allows_origin(self, origin: bytes, port: int | None) -> bool:
        """Whether pages of `origin` may call: those that are configured, and the listener's own."""
        origin = origin.lower()
        if origin in self._origins:
            return True
        ends = {b"", b":80"} if port == 80 else {b":%d" % port} if port is not None else set()
        return any(origin == b"http://" + name + end for name in self._own_names for end in ends)

    def admit(self, headers: Headers) -> str | Refusal:
        """The principal who sends the request, or why nobody is let in."""
        if not self._tokens:
            return ANONYMOUS
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            return Refusal(401, "The request needs the bearer token of listen.token.", b'Bearer realm="mcp-hub"')
        scheme, _, credentials = given[0].partition(b" ")
        found: str | None = None
        for token, principal in self._tokens.items():  # all of them, so that the time says nothing about which
            if hmac.compare_digest(token, credentials.strip(b" ")):
                found = principal
        if len(given) == 1 and scheme.lower() == b"bearer" and found is not None:
            return found
        challenge = b'Bearer realm="mcp-hub", error="invalid_token"'
        return Refusal(401, "The bearer token is not that of listen.token.", challenge)


def _bracketed(host: str) -> bytes:
    host = host.strip("[]").lower()
    return (f"[{host}]" if ":" in host else host).encode()
