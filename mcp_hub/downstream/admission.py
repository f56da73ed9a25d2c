"""Who may use the listener: checks `Host`, `Origin` and the bearer token.

A web page that a person visits can reach a listener on the same machine (DNS rebinding, forged requests), so these
checks hold on loopback too. They use the raw bytes of the headers, never a URL built from what the client sent.
"""

from __future__ import annotations

import hmac
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Final, Literal

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.credentials import is_loopback
from mcp_hub.config.listen import TOKEN_HOLDER, TOKEN_VARIABLE, UNIX, Listen
from mcp_hub.downstream.verifier import ProtectedResource, Reason, Verifier, has_resource
from mcp_hub.security import ANONYMOUS, Principal
from mcp_hub.transport.http1.peers import CertifiedPeer, Peer, UnixPeer

_PROXY_HEADERS: Final = frozenset({b"forwarded", b"via", b"x-real-ip"})
"""Headers that only proxies add, besides those that begin with `X-Forwarded-`."""

Unproven = Literal["uid", "forwarded", "certificate", "certificate_ended"]
"""Why the identity that a connection proves is not accepted."""


class PeerPrincipals:
    """Finds the principal that a connection proves, for one listener."""

    def __init__(self, listen: Listen, *, own_uid: int | None = None, now: Callable[[], float] = time.time) -> None:
        """`own_uid`: the user of the hub; None: that of the process. `now` returns seconds of the epoch."""
        self._own_uid = own_uid if own_uid is not None else os.getuid() if hasattr(os, "getuid") else None
        self._now = now
        self._behind_proxy = bool(listen.public_host) or UNIX in listen.trusted_proxies
        """Whether connections over a Unix socket come from a reverse proxy, whose user id proves nothing."""
        self._by_name = {} if listen.tls is None or listen.tls.client_ca is None else dict(_names_of(listen))

    @property
    def principals(self) -> Iterable[Principal]:
        """The principals that a certificate can prove."""
        return self._by_name.values()

    def of(self, peer: Peer | None, headers: Iterable[tuple[bytes, bytes]]) -> Principal | Unproven | None:
        """Returns the principal that a connection proves, or why it is not accepted; None if it proves nothing.

        The anonymous principal is the user who runs the hub.
        """
        if isinstance(peer, UnixPeer):
            if self._own_uid is None or peer.uid != self._own_uid:
                return "uid"
            return "forwarded" if self._behind_proxy or any(shows_proxy(name) for name, _ in headers) else ANONYMOUS
        if isinstance(peer, CertifiedPeer):
            principals = {self._by_name[name] for name in peer.names if name in self._by_name}
            if len(principals) != 1:
                return "certificate"
            return principals.pop() if self._now() < peer.until else "certificate_ended"
        return None


def shows_proxy(name: bytes) -> bool:
    """Returns whether only proxies add a header of this name."""
    return name in _PROXY_HEADERS or name.startswith(b"x-forwarded-")


def _names_of(listen: Listen) -> Iterator[tuple[str, Principal]]:
    for name, settings in listen.principals.items():
        for alias in settings.certificate or (name,):
            yield _normalized(alias), Principal(name, settings.profile, label=name)


def _normalized(name: str) -> str:
    """Normalises a name as those of certificates are: DNS names to lower case."""
    return name if ":" in name or "@" in name else name.lower()


def check_certificates(listen: Listen) -> CodedText | None:
    """Returns what is wrong with the settings of client certificates, as a text for the user; None if nothing is."""
    by_certificate = listen.tls is not None and listen.tls.client_ca is not None
    if by_certificate and not listen.principals:
        text = "listen.tls.client_ca lets nobody in: name who has a certificate in listen.principals"
        return CodedText(text, codes.VALUE_WRONG)
    owners: dict[str, str] = {}
    for name, settings in listen.principals.items():
        if settings.certificate and not by_certificate:
            text = (
                f"listen.principals.{name}.certificate needs listen.tls.client_ca, which says whose certificates count"
            )
            return CodedText(text, codes.VALUE_WRONG)
        if settings.token is None and not by_certificate:
            text = f"listen.principals.{name}.token is missing: set it, or listen.tls.client_ca for its certificate"
            return CodedText(text, codes.TOKEN_MISSING)
        for alias in map(_normalized, settings.certificate or (name,)) if by_certificate else ():
            if owners.setdefault(alias, name) != name:
                text = f"listen.principals: {owners[alias]} and {name} have the same certificate, {alias}"
                return CodedText(text, codes.VALUE_WRONG)
    return None


MAX_HOPS: Final = 10
"""Proxies in a row whose forwarding headers are followed."""

_FOR: Final = re.compile(rb'(?:^|;)[ \t]*for="?([^";]*)"?', re.IGNORECASE)


class TrustedProxies:
    """The reverse proxies of one listener: addresses, networks, and `unix` for every connection over a Unix socket.

    Their headers tell where a request comes from, for records and limits. They never authenticate its sender.
    """

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


Headers = Iterable[tuple[bytes, bytes]]
"""Header lines: names in lower case, values unchanged."""

MIN_TOKEN: Final = 32
"""The fewest bytes of a token; shorter ones can be guessed."""

_LOOPBACK_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_WILDCARDS: Final = frozenset({"", "*", "0.0.0.0", "::"})
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(
    rb"null|[a-z][a-z0-9+.-]{0,20}://(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?"
)
_OWN_SITES: Final = frozenset({b"none", b"same-origin"})
"""Values of Sec-Fetch-Site that are accepted: a navigation by the user (`none`), and the hub's own pages."""
_SETTINGS: Final = " (setting: listen.public_host, or listen.allowed_hosts for any other)"
_VISIBLE: Final = re.compile(r"[\x21-\x7e]*")
_SET_TOKEN: Final = "set listen.token (or listen.principals or listen.verify)"


class Refusal(msgspec.Struct, frozen=True):
    """The reply to a request that is refused; `text` is for the person who has to change a setting."""

    status: int
    text: str
    cause: str
    """One of `CAUSES` (refusal_log.py)."""
    challenge: bytes | None = None
    """The value of `WWW-Authenticate`."""
    retry_after: int | None = None
    """Value of `Retry-After`, in seconds."""
    said: str | None = None
    """The Host or Origin that is refused, if it is well-formed."""


def check_listener(listen: Listen) -> CodedText | None:
    """Returns why this listener may not start, as a text for the user; None if it may."""
    problem = check_tokens(listen) or check_certificates(listen)
    if problem is not None:
        return problem
    if listen.tls is not None and listen.socket_path is not None:
        text = f"listen.tls is for addresses, not for {listen.host}; a proxy in front of the socket has the certificate"
        return CodedText(text, codes.VALUE_WRONG)
    if not listen.authenticates and (exposure := _exposure(listen)) is not None:
        return CodedText(exposure, codes.TOKEN_MISSING)
    if listen.verify is not None and not has_resource(listen):
        text = "clients cannot be told what listen.verify is for: set listen.verify.resource to the URL they use"
        return CodedText(text, codes.RESOURCE_MISSING)
    return None


def check_tokens(listen: Listen) -> CodedText | None:
    """Returns what is wrong with the tokens of the configuration, as a text for the user; None if nothing is."""
    keys: dict[str, str] = {}
    for key, token in _tokens_of(listen):
        size = len(token.encode())
        if size < MIN_TOKEN:
            text = f"{key} has {size} bytes; a token that cannot be guessed has at least {MIN_TOKEN}"
        elif not _VISIBLE.fullmatch(token):
            text = f"{key} may have visible ASCII characters only; no header can carry blanks or line ends"
        elif keys.setdefault(token, key) != key:
            text = f"{key} is the same as {keys[token]}; each principal needs a token of its own"
        else:
            continue
        return CodedText(text, codes.TOKEN_WEAK)
    return None


def _exposure(listen: Listen) -> str | None:
    """Returns how others can reach a listener without authentication, as a text for the user; None if they cannot."""
    if listen.public_host:
        return f"{listen.public_host[0]} (public_host) lets others in: {_SET_TOKEN}"
    if UNIX in listen.trusted_proxies:
        return f"{UNIX} (trusted_proxies) is a proxy, which lets others in: {_SET_TOKEN}"
    if not listen.is_local:
        address = listen.host or "every address"
        return f"listening on {address} lets others in: {_SET_TOKEN}, or listen.host to 127.0.0.1"
    if "null" in (origin.strip().lower() for origin in listen.allowed_origins):
        return f"allowed_origins: null lets in every web page that you visit, by a frame in it: {_SET_TOKEN}"
    for host in listen.allowed_hosts:
        if not is_loopback(_host_name(host)):
            return f"{host} (allowed_hosts) lets others in, as public_host does: {_SET_TOKEN}"
    return None


def _host_name(host: str) -> str:
    """Returns the name in `name` or `name:port`, without the brackets of an IPv6 address."""
    match = _HOST.fullmatch(host.removesuffix(":*").encode())
    return match[1].decode().strip("[]") if match is not None else host


def _tokens_of(listen: Listen) -> Iterable[tuple[str, str]]:
    """Yields (configuration key, token)."""
    if listen.token is not None:
        token = listen.token.get_secret_value()
        yield (TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) == token else "listen.token"), token
    for name, settings in listen.principals.items():
        if settings.token is not None:
            yield f"listen.principals.{name}.token", settings.token.get_secret_value()


def _principals_of(listen: Listen) -> Iterable[tuple[bytes, Principal]]:
    if listen.token is not None:
        yield listen.token.get_secret_value().encode(), Principal(TOKEN_HOLDER)
    for name, settings in listen.principals.items():
        if settings.token is not None:
            yield settings.token.get_secret_value().encode(), Principal(name, settings.profile, label=name)


class Gate:
    """The checks of one listener that need no I/O. `tokens` (token -> principal) replaces those of `listen`.

    `own_uid`: the user id that needs no token over a Unix socket; None for that of the process. `authenticated`:
    whether every request has to be authenticated even if `listen` names no principal.
    """

    def __init__(
        self,
        listen: Listen,
        tokens: Mapping[bytes, str] | None = None,
        *,
        own_uid: int | None = None,
        authenticated: bool = False,
    ) -> None:
        pairs = tokens.items() if tokens is not None else _principals_of(listen)
        self._tokens = {token: name if isinstance(name, Principal) else Principal(name) for token, name in pairs}
        self._peers = PeerPrincipals(listen, own_uid=own_uid)
        principals = (*self._tokens.values(), *self._peers.principals)
        self.principals = frozenset(principal.key for principal in principals)
        """The principals of the configuration, each with its profile."""
        self.authenticates = bool(principals) or listen.verify is not None or authenticated
        """Whether every request has to be authenticated, by what its connection proves or by a token."""
        self._proxies = TrustedProxies(listen.trusted_proxies)
        self._scheme = b"http" if listen.tls is None else b"https"
        hosts = (*listen.public_host, *listen.allowed_hosts)
        self._any_host = listen.host in _WILDCARDS and not hosts and self.authenticates
        own_names = set(_LOOPBACK_NAMES) if listen.is_local else set()
        if listen.host not in _WILDCARDS and listen.socket_path is None:
            own_names.add(_bracketed(listen.host))
        if listen.is_reached_directly:
            own_names |= {name.encode() for name in listen.names_without_port}
        self._own_names = frozenset(own_names)
        self._hosts = self._own_names | {host.lower().removesuffix(":*").encode() for host in hosts}
        if listen.host in _WILDCARDS:
            self._hosts |= _LOOPBACK_NAMES  # for health checks on this machine; a foreign page has none of these names
        pages = [f"{scheme}://{host}" for host in listen.public_host for scheme in ("https", "http")]
        self._pages = frozenset(page.lower().encode() for page in pages)
        """The origins of the hub's own pages behind a reverse proxy."""
        self._origins = self._pages | {origin.lower().rstrip("/").encode() for origin in listen.allowed_origins}
        self._admins = frozenset(name for name, settings in listen.principals.items() if settings.admin)

    def refusal(
        self,
        headers: Headers,
        port: int | None,
        authority: frozenset[bytes] | None = None,
        peer: Peer | None = None,
    ) -> Refusal | None:
        """Returns why a request is refused before its sender is authenticated; None if it is not.

        `port`: the listener's own. `authority`: the values of Host that agree with the request's URL, if its target is
        a whole URL. `peer`: what the connection proves about its client.
        """
        hosts, origins, sites, is_forwarded = [], [], [], False
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"sec-fetch-site":
                sites.append(value)
            elif shows_proxy(name):
                is_forwarded = True
        return (
            self._host(hosts, authority, peer)
            or self._forwarded(is_forwarded)
            or (None if self.authenticates else self._unproven(peer, headers))
            or self._origin(origins, port)
            or self._site(sites, origins)
        )

    def _host(self, hosts: list[bytes], authority: frozenset[bytes] | None, peer: Peer | None) -> Refusal | None:
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match is None:
            return Refusal(421, f"The request needs exactly one well-formed Host header{_SETTINGS}.", "host")
        host = match[0].decode()
        if authority is not None and match[0].lower() not in authority:
            return Refusal(421, "The URL of the request names another host than its Host header.", "target", said=host)
        if self._any_host or match[1].lower() in self._hosts or match[0].lower() in self._hosts:
            return None
        if isinstance(peer, UnixPeer) and match[1].lower() in _LOOPBACK_NAMES:
            return None  # for a Unix socket that was handed over together with a TCP socket
        text = f"The Host {host} is not accepted. If your reverse proxy is known by it, serve with --public-host {host}"
        return Refusal(421, f"{text}{_SETTINGS}.", "host", said=host)

    def _forwarded(self, is_forwarded: bool) -> Refusal | None:
        if not is_forwarded or self.authenticates:
            return None
        # Behind a proxy, every client seems to be on this machine, whose programs need no token.
        return Refusal(403, f"A request through a proxy needs a token: {_SET_TOKEN}.", "forwarded")

    def _unproven(self, peer: Peer | None, headers: Headers) -> Refusal | None:
        """Returns the refusal if what the connection proves is not accepted, such as a foreign uid; else None."""
        proven = None if peer is None else self._peers.of(peer, headers)
        return None if proven is None or isinstance(proven, Principal) else _UNPROVEN[proven]

    def _origin(self, origins: list[bytes], port: int | None) -> Refusal | None:
        if not origins:
            return None
        if len(origins) == 1 and self.allows_origin(origins[0], port):
            return None
        text = "The Origin of the request is not accepted. If it is your reverse proxy's, serve with --public-host HOST"
        origin = origins[0].decode() if len(origins) == 1 and _ORIGIN.fullmatch(origins[0]) else None
        return Refusal(
            403,
            f"{text} (setting: listen.public_host, or listen.allowed_origins for any other).",
            "origin",
            said=origin,
        )

    def _site(self, sites: list[bytes], origins: list[bytes]) -> Refusal | None:
        """Checks Sec-Fetch-Site, which browsers send with every request; some cross-site requests have no Origin."""
        if origins or all(site.strip(b" \t").lower() in _OWN_SITES for site in sites):
            return None
        text = "A web page of another site sends no request here without an Origin that is accepted"
        return Refusal(403, f"{text} (setting: listen.allowed_origins).", "cross_site")

    def allows_origin(self, origin: bytes, port: int | None) -> bool:
        """Returns whether pages of `origin` may send requests: configured ones, and those of the listener itself."""
        return origin.lower() in self._origins or self.is_own_origin(origin, port)

    def is_own_origin(self, origin: bytes, port: int | None) -> bool:
        """Returns whether `origin` is that of the hub's own pages: of the listener, or of a `public_host`."""
        origin = origin.lower()
        if origin in self._pages:
            return True
        default_port = 443 if self._scheme == b"https" else 80
        suffixes = {b"", b":%d" % port} if port == default_port else {b":%d" % port} if port is not None else set()
        return any(origin == self._scheme + b"://" + name + suffix for name in self._own_names for suffix in suffixes)

    def is_admin(self, principal: Principal) -> bool:
        """Returns whether a principal of the configuration is an admin, who sees and does everything."""
        return principal in self._admins

    def trusts(self, peer: str) -> bool:
        """Returns whether `peer` is the address of a trusted proxy, whose forwarding headers count."""
        return self._proxies.trusts(peer)

    def peer(self, peer: str, headers: Headers) -> str:
        """Returns the address a request comes from: `peer`, or the client that a trusted proxy names."""
        return self._proxies.client(peer, headers) if self.authenticates else peer

    def admit(self, headers: Headers, peer: Peer | None = None) -> Principal | Refusal:
        """Returns the principal who sends a request, by its token or by what its connection proves, or the refusal.

        The certificate of a trusted proxy says nothing about who sends requests through the proxy.
        """
        if not self.authenticates:
            return ANONYMOUS
        proven = None if peer is None else self._peers.of(peer, headers)
        if isinstance(peer, CertifiedPeer):
            if self.trusts(peer.address):
                proven = None
            elif proven is not None and not isinstance(proven, Principal):
                return _UNPROVEN[proven]
        if not any(name == b"authorization" for name, _ in headers):
            if isinstance(proven, Principal):
                return proven
            return Refusal(
                401, "The request needs a bearer token (listen.token, listen.principals).", "no_token", CHALLENGE
            )
        credentials = bearer(headers)
        by_token: Principal | None = None
        for token, principal in self._tokens.items():  # all of them, so that the time does not reveal which one matches
            if hmac.compare_digest(token, credentials or b""):
                by_token = principal
        if isinstance(proven, Principal) and proven is not ANONYMOUS and by_token != proven:
            return Refusal(403, "The bearer token is not one of the principal of the certificate.", "certificate")
        if credentials and by_token is not None:
            return by_token
        text = _UNKNOWN_TOKEN if credentials else _NOT_BEARER
        return Refusal(401, text, "bad_token", CHALLENGE + b', error="invalid_token"')


_UNPROVEN: Final[dict[Unproven, Refusal]] = {
    "uid": Refusal(403, f"A program of another user needs a token: {_SET_TOKEN}.", "uid"),
    "forwarded": Refusal(403, f"A request through a proxy needs a token: {_SET_TOKEN}.", "forwarded"),
    "certificate": Refusal(403, "No principal has this certificate (setting: listen.principals).", "certificate"),
    "certificate_ended": Refusal(403, "The certificate has ended; connect with a new one.", "certificate"),
}
_UNKNOWN_TOKEN: Final = "The bearer token is not known here (listen.token, listen.principals)."
_NOT_BEARER: Final = "The request needs one header `Authorization: Bearer TOKEN`; this one has another form."
CHALLENGE: Final = b'Bearer realm="mcp-hub"'


def bearer(headers: Headers) -> bytes | None:
    """Returns the bearer token of a request; None if there is none, or more than one Authorization."""
    values = [value for name, value in headers if name == b"authorization"]
    scheme, _, credentials = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return credentials.strip(b" ") or None if scheme.lower() == b"bearer" else None


def _bracketed(host: str) -> bytes:
    host = host.strip("[]").lower()
    return (f"[{host}]" if ":" in host else host).encode()


COME_BACK: Final = 5
"""Seconds after which a client may try again with a token that could not be verified."""

_TOKEN_NEEDED: Final = "The request needs a valid bearer token (settings: listen.verify, listen.token)."
_REFUSALS: Final[dict[Reason, tuple[int, str | None, str, str]]] = {
    "invalid": (401, "invalid_token", "The bearer token is not valid here, or has expired.", "bad_token"),
    "scope": (403, "insufficient_scope", "The bearer token lacks a required scope.", "scope"),
    "profile": (403, "insufficient_scope", "The bearer token names no profile of this hub.", "profile"),
    "unreachable": (503, None, "The bearer token cannot be verified now.", "verifier"),
    "busy": (503, None, "Too many tokens are being verified; try again in a moment.", "verifier"),
}
"""Status, error code of RFC 6750, text and cause for each reason."""


class Admission:
    """Authenticates requests: by a token of the configuration, or by the verifier.

    `verifier` and `resource` are given together, or neither is.
    """

    def __init__(self, gate: Gate, verifier: Verifier | None = None, resource: ProtectedResource | None = None) -> None:
        self._gate = gate
        self._verifier = verifier
        self._resource = resource

    async def admit(self, headers: Headers, port: int | None, peer: Peer | None = None) -> Principal | Refusal:
        """Returns the principal who sends the request, or the refusal.

        `port`: the listener's own. `peer`: what the connection proves.
        """
        headers = list(headers)
        admitted = self._gate.admit(headers, peer)
        if isinstance(admitted, Principal) or self._verifier is None or self._resource is None:
            return admitted
        if admitted.cause == "certificate":
            return admitted
        if not any(name == b"authorization" for name, _ in headers):
            return Refusal(401, _TOKEN_NEEDED, "no_token", self._resource.challenge(port))
        token = bearer(headers)
        if token is None:
            return Refusal(401, _NOT_BEARER, "bad_token", self._resource.challenge(port, "invalid_token"))
        verified = await self._verifier.verify(token)
        if isinstance(verified, Principal):
            return verified
        status, error, text, cause = _REFUSALS[verified.reason]
        if error is None:
            return Refusal(status, text, cause, retry_after=COME_BACK)
        return Refusal(status, text, cause, self._resource.challenge(port, error))
