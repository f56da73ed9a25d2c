"""Who may talk to the listener: `Host`, `Origin` and the bearer token, from the raw bytes of the headers.

Pure. A web page that a person visits can reach a listener on the same machine (DNS rebinding, forged requests), so
these checks hold on loopback too and nothing here is ever taken from a URL built from what the client says.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mcp_hub.config.listen import TOKEN_HOLDER, Listen, is_loopback
from mcp_hub.principals import ANONYMOUS, Principal
from mcp_hub.serve.protected_resource import has_resource

Headers = Iterable[tuple[bytes, bytes]]
"""Header lines as ASGI gives them: names in lower case, values untouched."""

MIN_TOKEN: Final = 32
"""Bytes; shorter ones can be guessed."""

_LOOPBACK_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_WILDCARDS: Final = frozenset({"", "*", "0.0.0.0", "::"})
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_SETTINGS: Final = " (setting: listen.public_host, or listen.allowed_hosts for any other)"
_VISIBLE: Final = re.compile(r"[\x21-\x7e]*")
_SAY_WHO: Final = "set listen.token (or listen.principals or listen.verify)"


class Refusal(msgspec.Struct, frozen=True):
    """The answer to a request that is not let in; `text` is for the person who has to change a setting."""

    status: int
    text: str
    challenge: bytes | None = None
    """Value of `WWW-Authenticate`."""
    retry_after: int | None = None
    """Seconds."""


def check_listener(listen: Listen) -> str | None:
    """Why this listener may not start, in words for the user; None if it may."""
    keys: dict[str, str] = {}
    for key, token in _tokens_of(listen):
        size = len(token.encode())
        if size < MIN_TOKEN:
            return f"{key} has {size} bytes; a token that cannot be guessed has at least {MIN_TOKEN}"
        if not _VISIBLE.fullmatch(token):
            return f"{key} may have visible ASCII characters only; no header can carry blanks or line ends"
        if keys.setdefault(token, key) != key:
            return f"{key} is the same as {keys[token]}; nobody could tell who it is"
    if not listen.authenticates and listen.public_host:
        return f"{listen.public_host[0]} (public_host) lets others in: {_SAY_WHO}"
    if not listen.authenticates and not is_loopback(listen.host):
        where = listen.host or "every address"
        return f"listening on {where} lets others in: {_SAY_WHO}, or listen.host to 127.0.0.1"
    if listen.verify is not None and not has_resource(listen):
        return "clients cannot be told what listen.verify is for: set listen.verify.resource to the URL they use"
    return None


def _tokens_of(listen: Listen) -> Iterable[tuple[str, str]]:
    """(the key of the setting, the token)."""
    if listen.token is not None:
        yield "listen.token", listen.token.get_secret_value()
    for name, one in listen.principals.items():
        yield f"listen.principals.{name}.token", one.token.get_secret_value()


def _principals_of(listen: Listen) -> Iterable[tuple[bytes, Principal]]:
    if listen.token is not None:
        yield listen.token.get_secret_value().encode(), Principal(TOKEN_HOLDER)
    for name, one in listen.principals.items():
        yield one.token.get_secret_value().encode(), Principal(name, one.profile, label=name)


class Gate:
    """The checks of one listener. `tokens` (token -> principal) replaces those of `listen`."""

    def __init__(self, listen: Listen, tokens: Mapping[bytes, str] | None = None) -> None:
        known = tokens.items() if tokens is not None else _principals_of(listen)
        self._tokens = {token: name if isinstance(name, Principal) else Principal(name) for token, name in known}
        self.principals = frozenset((principal, principal.profile) for principal in self._tokens.values())
        """Those who have a token here, each with its profile."""
        self._authenticates = bool(self._tokens) or listen.verify is not None
        self._scheme = b"http" if listen.tls is None else b"https"
        named = (*listen.public_host, *listen.allowed_hosts)
        self._any_host = listen.host in _WILDCARDS and not named and self._authenticates
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
        if not forwarded or self._authenticates:
            return None
        # Behind a proxy everybody looks like this machine, and only this machine may come without a token.
        return Refusal(403, f"A request through a proxy needs a token: {_SAY_WHO}.")

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
        default = 443 if self._scheme == b"https" else 80
        ends = {b"", b":%d" % port} if port == default else {b":%d" % port} if port is not None else set()
        return any(origin == self._scheme + b"://" + name + end for name in self._own_names for end in ends)

    def admit(self, headers: Headers) -> Principal | Refusal:
        """The principal whose token of the configuration the request has, or why nobody is let in by it."""
        if not self._authenticates:
            return ANONYMOUS
        if not any(name == b"authorization" for name, _ in headers):
            return Refusal(401, "The request needs a bearer token (setting: listen.token).", CHALLENGE)
        credentials = bearer(headers)
        found: Principal | None = None
        for token, principal in self._tokens.items():  # all of them, so that the time says nothing about which
            if hmac.compare_digest(token, credentials or b""):
                found = principal
        if credentials and found is not None:
            return found
        text = "The bearer token is not known here (setting: listen.token)."
        return Refusal(401, text, CHALLENGE + b', error="invalid_token"')


CHALLENGE: Final = b'Bearer realm="mcp-hub"'


def bearer(headers: Headers) -> bytes | None:
    """The one bearer token of a request; None where there is none, or more than one Authorization."""
    given = [value for name, value in headers if name == b"authorization"]
    scheme, _, credentials = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return credentials.strip(b" ") or None if scheme.lower() == b"bearer" else None


def _bracketed(host: str) -> bytes:
    host = host.strip("[]").lower()
    return (f"[{host}]" if ":" in host else host).encode()
