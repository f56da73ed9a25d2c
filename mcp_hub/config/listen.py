"""The network side as frozen models: where the hub listens, who comes in, and how much each may do.

All durations are seconds, all sizes bytes.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from mcp_hub.config.checks import After, Before
from mcp_hub.config.frozen import Frozen
from mcp_hub.config.quantities import Duration, Size
from mcp_hub.config.secret_str import SecretStr

TOKEN_HOLDER = "token"
"""Principal of whoever knows `listen.token`."""
MAX_VERIFIED_SECONDS = 3600.0
"""The longest a verified token is believed without asking again: a revoked one is good for no longer."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"
]
"""Those with a public key: who can check a token must not be able to make one."""


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine only. Other names are not looked up: they are not."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _web_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or any(ord(char) < 33 or char in '"\\<>' for char in value) or not value.isascii():
        raise ValueError("must be a URL such as https://login.example/keys")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("must be a URL without a user, a password or a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError("must begin with https:// (http:// is for this machine only)")
    return value


def _words(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


WebAddress = Annotated[str, After(_web_address)]
"""https, or http to this machine."""
Texts = Annotated[tuple[str, ...], Before(_texts)]
Scopes = Annotated[tuple[Annotated[str, Meta(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$")], ...], Before(_words)]


class CallerLimits(Frozen):
    """What one principal may have; beyond it the answer is `overloaded`, or 429 where there is no call yet."""

    sessions: Annotated[int, Meta(ge=1)] = 2000
    """Sessions of the handshake era and SSE streams, together."""
    calls: Annotated[int, Meta(ge=1)] = 1024
    """Requests at once."""
    rate: Annotated[float, Meta(gt=0)] | None = None
    """Calls per second."""
    burst: Annotated[int, Meta(ge=1)] | None = None
    """Calls that may come at once; None: as many as come in a second."""


class Unread(Frozen):
    """How much may wait for clients to read it; one result always passes to a caller for whom nothing waits."""

    caller: Size = 128 * 1024 * 1024
    """Bytes for one caller: twice the largest result (`max_frame`)."""
    total: Size = 256 * 1024 * 1024
    """Bytes for all callers together; never less than for one."""


class NamedPrincipal(Frozen):
    """Somebody who is known by a token of his own."""

    token: SecretStr
    profile: str | None = None
    """All that this principal sees and reaches; None: all that is served."""
    limits: CallerLimits | None = None
    """In place of `listen.limits`."""


class Jwt(Frozen):
    """Tokens that are signed by their issuer."""

    issuer: WebAddress
    audience: Annotated[Texts, Meta(min_length=1)]
    """One of these must be in `aud`: a token for another server is not for this one."""
    jwks_uri: WebAddress | None = None
    public_key: str | None = None
    """PEM."""
    algorithms: Annotated[tuple[Algorithm, ...], Before(_texts), Meta(min_length=1)] = ("RS256",)
    required_scopes: Scopes = ()

    def __post_init__(self) -> None:
        if (self.jwks_uri is None) == (self.public_key is None):
            raise ValueError("must have one of jwks_uri and public_key")
        if self.public_key is not None and "-----BEGIN" not in self.public_key:
            raise ValueError("needs the public_key as PEM, which begins with -----BEGIN PUBLIC KEY-----")
        if self.public_key is not None and "PRIVATE" in self.public_key:
            raise ValueError("has a private key; public_key is the other half, which begins with BEGIN PUBLIC KEY")


class Introspection(Frozen):
    """Tokens that only their issuer can read (RFC 7662)."""

    issuer: WebAddress
    endpoint: WebAddress
    client_id: str
    client_secret: SecretStr
    method: Literal["basic", "post"] = "basic"
    """How the hub says who it is."""
    audience: Texts = ()
    """One of these must be in `aud`; () leaves that to the issuer."""
    required_scopes: Scopes = ()


class Verify(Frozen):
    """Tokens that others issue: one of `jwt` and `introspection`."""

    jwt: Jwt | None = None
    introspection: Introspection | None = None
    profile: str | None = None
    """Of whoever comes in this way."""
    profile_claim: str | None = None
    """The claim that names the profile; without it in the token, `profile`, and without that nobody is let in."""
    resource: WebAddress | None = None
    """The URL of the hub as its clients know it, for the metadata; None: made from `public_host` or `host`."""
    cache: Annotated[Duration, Meta(le=MAX_VERIFIED_SECONDS)] = 60.0
    """How long a verified token is believed, at most until it expires."""

    def __post_init__(self) -> None:
        if (self.jwt is None) == (self.introspection is None):
            raise ValueError("must have one of jwt and introspection")

    @property
    def issued(self) -> Jwt | Introspection:
        """What is said of the tokens."""
        found = self.jwt or self.introspection
        assert found is not None
        return found


class Tls(Frozen):
    """Certificate (with its chain) and private key, PEM files."""

    cert: Path
    key: Path


def _names(principals: dict[str, NamedPrincipal]) -> dict[str, NamedPrincipal]:
    if not all(_NAME.fullmatch(name) for name in principals):
        raise ValueError("a principal's name has letters, digits, '.', '_', '@' and '-', at most 64 of them")
    if TOKEN_HOLDER in principals:
        raise ValueError(f"'{TOKEN_HOLDER}' is the principal of listen.token; choose another name")
    return principals


def _networks(proxies: tuple[str, ...]) -> tuple[str, ...]:
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy, strict=False)
        except ValueError:
            raise ValueError(f"{proxy!r} is no address or network, such as 10.0.0.5 or 10.0.0.0/24") from None
    return proxies


class Listen(Frozen):
    """The network side of `serve --sse` and `serve --http`."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8808
    token: SecretStr | None = None
    """Bearer token of everybody who has no other. At least 32 bytes."""
    principals: Annotated[dict[str, NamedPrincipal], After(_names)] = msgspec.field(default_factory=dict)
    """By name."""
    verify: Verify | None = None
    tls: Tls | None = None
    public_host: tuple[str, ...] = ()
    """Names, `name` or `name:port`, under which a reverse proxy makes the listener known; it needs a token then."""
    allowed_hosts: tuple[str, ...] = ()
    """More values of `Host` to accept, `name` or `name:port`; loopback names are always accepted on loopback."""
    allowed_origins: tuple[str, ...] = ()
    """More values of `Origin` to accept, `scheme://host[:port]`."""
    trusted_proxies: Annotated[tuple[str, ...], After(_networks)] = ()
    """Addresses or networks of reverse proxies whose word on where requests come from is believed, for records."""
    max_body: Size = 4 * 1024 * 1024
    limits: CallerLimits = CallerLimits()
    """Of each principal."""

    @property
    def authenticates(self) -> bool:
        """Whether nobody comes in without saying who it is."""
        return self.token is not None or bool(self.principals) or self.verify is not None

    @property
    def profiles(self) -> dict[tuple[str, ...], str]:
        """The profiles that are named here, by the path of the key that names them."""
        named: dict[tuple[str, ...], str | None] = {
            ("principals", name, "profile"): one.profile for name, one in self.principals.items()
        }
        named["verify", "profile"] = self.verify.profile if self.verify is not None else None
        return {key: profile for key, profile in named.items() if profile is not None}
