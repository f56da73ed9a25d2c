"""The settings of the listener as frozen models, and their reader: address, authentication, limits.

All durations are seconds, all sizes bytes.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from mcp_hub import codes
from mcp_hub.config.credentials import Scopes, is_loopback, port_from
from mcp_hub.config.field_types import After, Before, Duration, SecretStr, Size, ValidationError, parse_duration
from mcp_hub.config.fields import Fields, FieldValue
from mcp_hub.config.findings import Findings, only_known
from mcp_hub.config.settings import Exposed, Frozen, read_model
from mcp_hub.errors import ConfigError

MAX_VERIFIED_SECONDS = 3600.0
"""The maximum of `cache`, in seconds, and so the longest time for which a revoked token is still accepted."""

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"
]
"""Only algorithms with a public key: whoever can verify a token must not be able to make one."""


def _check_web_address(value: str) -> str:
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


WebAddress = Annotated[str, After(_check_web_address)]
"""A URL with https, or with http to this machine."""


class Jwt(Frozen):
    """Tokens that their issuer has signed (JWT)."""

    issuer: WebAddress
    """The value that `iss` must have."""
    audience: Annotated[tuple[str, ...], Meta(min_length=1)]
    """One of these must be in `aud`, so that tokens for other servers are refused."""
    jwks_uri: WebAddress | None = None
    """Where the issuer publishes its keys; either this or `public_key`."""
    public_key: str | None = None
    """The issuer's public key in PEM; either this or `jwks_uri`."""
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ("RS256",)
    """Accepted algorithms; a token signed with another one is refused."""
    required_scopes: Scopes = ()
    """Scopes that a token must have."""

    def __post_init__(self) -> None:
        if (self.jwks_uri is None) == (self.public_key is None):
            raise ValueError("must have one of jwks_uri and public_key")
        if self.public_key is not None and "-----BEGIN" not in self.public_key:
            raise ValueError("needs the public_key as PEM, which begins with -----BEGIN PUBLIC KEY-----")
        if self.public_key is not None and "PRIVATE" in self.public_key:
            raise ValueError("has a private key; public_key is the other half, which begins with BEGIN PUBLIC KEY")


class Introspection(Frozen):
    """Tokens that their issuer verifies (RFC 7662)."""

    issuer: WebAddress
    """The authorization server that issues the tokens."""
    endpoint: WebAddress
    """The URL that the hub asks whether a token is valid."""
    client_id: str
    """The id of the hub at the issuer."""
    client_secret: SecretStr
    """The secret of `client_id`."""
    method: Literal["basic", "post"] = "basic"
    """How the hub authenticates to the issuer."""
    audience: tuple[str, ...] = ()
    """One of these must be in `aud`; (): the issuer decides about the audience."""
    required_scopes: Scopes = ()
    """Scopes that a token must have."""


class TokenVerification(Frozen):
    """Verification of tokens that others issue: one of `jwt` and `introspection`."""

    jwt: Jwt | None = None
    """Tokens that the hub verifies by their signature."""
    introspection: Introspection | None = None
    """Tokens that the hub asks their issuer about."""
    profile: str | None = None
    """The profile of callers with such a token."""
    profile_claim: str | None = None
    """The claim that names the profile. A token without it gets `profile`; without that it is refused."""
    resource: WebAddress | None = None
    """The URL of the hub for its clients, used in the metadata; None: made from `public_host` or `host`."""
    cache: Annotated[Duration, Meta(le=MAX_VERIFIED_SECONDS)] = 60.0
    """Seconds that a verified token is accepted without asking again, at most until it expires."""

    def __post_init__(self) -> None:
        if (self.jwt is None) == (self.introspection is None):
            raise ValueError("must have one of jwt and introspection")

    @property
    def issued(self) -> Jwt | Introspection:
        """The settings of whichever of the two is given."""
        settings = self.jwt or self.introspection
        assert settings is not None
        return settings


TOKEN_VARIABLE = "MCP_HUB_TOKEN"
"""The environment variable that takes the place of `listen.token`."""
TOKEN_HOLDER = "token"
"""The principal of callers with `listen.token`."""

UNIX = "unix"
"""In `listen.host` the scheme of a Unix socket; in `trusted_proxies` every peer on one."""
MAX_SOCKET_PATH = 100
"""The maximum length of a Unix socket's path, in bytes; operating systems allow 104 to 108."""

MAX_SHUTDOWN_DELAY = 600.0
"""The maximum, in seconds; a service manager would not wait longer for the hub to stop."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def _delay(value: Any) -> float:
    """Returns the seconds of a duration, which may be 0. Raises ValueError."""
    return 0.0 if value in (0, "0", "0s") and value is not False else parse_duration(value)


class CallerLimits(Frozen):
    """The limits of one principal. Beyond them a call is answered with `overloaded`, a new session with 429."""

    sessions: Annotated[int, Meta(ge=1)] = 2000
    """Sessions of the handshake era, SSE streams and open `subscriptions/listen`, together."""
    calls: Annotated[int, Meta(ge=1)] = 1024
    """Concurrent requests."""
    rate: Annotated[float, Meta(gt=0)] | None = None
    """Calls per second."""
    burst: Annotated[int, Meta(ge=1)] | None = None
    """Calls that may come at once; None: the calls of one second."""


class UnreadLimits(Frozen):
    """How many bytes may wait until clients read them. A caller without waiting bytes always gets one result."""

    caller: Size = 128 * 1024 * 1024
    """The limit of one caller: twice the largest result (`max_frame`)."""
    total: Size = 256 * 1024 * 1024
    """The limit of all callers together; never less than `caller`."""


class NamedPrincipal(Frozen):
    """A principal with a token of its own."""

    SHORT: ClassVar[Mapping[type, str]] = {str: "token"}

    token: SecretStr | None = None
    """Its bearer token; None: it authenticates by a client certificate (`tls.client_ca`)."""
    certificate: tuple[str, ...] = ()
    """The names in client certificates that identify this principal; (): its own name."""
    profile: str | None = None
    """Its profile; None: it sees everything that the hub serves."""
    expose: Exposed | None = None
    """How its tools are listed to it; None: as its profile or the root sets it."""
    limits: CallerLimits | None = None
    """Its limits, in place of `listen.limits`."""
    admin: bool = False
    """Whether it sees everything on the live page, and may use its actions."""


class Tls(Frozen):
    """PEM files of the certificate, with its chain, and of the private key."""

    cert: Path
    """The certificate, followed by its chain."""
    key: Path
    """The private key of the certificate."""
    client_ca: Path | None = None
    """The authorities whose certificates identify clients; None: the hub asks no client for a certificate."""


def _check_names(principals: dict[str, NamedPrincipal]) -> dict[str, NamedPrincipal]:
    if not all(_NAME.fullmatch(name) for name in principals):
        raise ValueError("a principal's name has letters, digits, '.', '_', '@' and '-', at most 64 of them")
    if TOKEN_HOLDER in principals:
        raise ValueError(f"'{TOKEN_HOLDER}' is the principal of listen.token; choose another name")
    return principals


def _check_network(proxy: str) -> str:
    try:
        if proxy != UNIX:
            ipaddress.ip_network(proxy, strict=False)
    except ValueError:
        text = f"is not an address or network, such as 10.0.0.5 or 10.0.0.0/24, nor {UNIX!r}"
        raise ValueError(text) from None
    return proxy


def _check_host(host: str) -> str:
    path = _socket_path(host)
    if path is None:
        if "/" in host:
            raise ValueError(f"is not an address; write {UNIX}:/PATH for a Unix socket")
        return host
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ValueError("must name a Unix socket by its whole path, such as unix:/run/user/1000/hub.sock")
    if len(path.encode()) > MAX_SOCKET_PATH:
        raise ValueError(f"must have a path of at most {MAX_SOCKET_PATH} bytes, as the system takes no longer one")
    return host


def _socket_path(host: str) -> str | None:
    scheme, colon, path = host.partition(":")
    return path if scheme == UNIX and colon else None


_HOST_AND_PORT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")


def _check_public_host(name: str) -> str:
    if not _HOST_AND_PORT.fullmatch(name):
        raise ValueError(
            "must be the name of the hub for its clients, such as `hub.example` or `hub.example:8443`, not a URL"
        )
    return name.lower()


class Listen(Frozen):
    """The network side of `serve --sse` and `serve --http`."""

    host: Annotated[str, After(_check_host)] = "127.0.0.1"
    """An address, or `unix:/path` for a Unix socket."""
    port: Annotated[int, port_from(0)] = 8808
    """The TCP port; 0 takes any free one."""
    token: SecretStr | None = None
    """The bearer token of all callers without another one. At least 32 bytes."""
    principals: Annotated[dict[str, NamedPrincipal], After(_check_names)] = msgspec.field(default_factory=dict)
    """The principals by name."""
    verify: TokenVerification | None = None
    """Verification of tokens that an authorization server issues."""
    tls: Tls | None = None
    """Certificate and key; None: HTTP without TLS."""
    public_host: tuple[Annotated[str, After(_check_public_host)], ...] = ()
    """Names of the hub behind a reverse proxy, as `name` or `name:port`. They require authentication."""
    allowed_hosts: tuple[str, ...] = ()
    """Further values of `Host`, as `name` or `name:port`. On loopback and all addresses `localhost` is accepted too."""
    allowed_origins: tuple[str, ...] = ()
    """Further accepted values of `Origin`, as `scheme://host[:port]`."""
    trusted_proxies: tuple[Annotated[str, After(_check_network)], ...] = ()
    """Addresses or networks of reverse proxies, or `unix`, whose forwarded addresses count in records and limits."""
    max_body: Size = 4 * 1024 * 1024
    """The largest request."""
    shutdown_delay: Annotated[float, Before(_delay), Meta(ge=0, le=MAX_SHUTDOWN_DELAY)] = 0.0
    """Seconds for which `/healthz` answers 503 while the hub, which is stopping, still serves everybody."""
    limits: CallerLimits = CallerLimits()
    """The limits of each principal that has no limits of its own."""
    ui: bool | None = None
    """Whether the live page is served; None: only if the listener can be reached from this machine alone."""

    def with_options(self, **options: Any) -> Listen:
        """Returns these settings with the options that are not None, and with the token of the environment.

        Raises ConfigError for an option that is not valid.
        """
        options["token"] = os.environ.get(TOKEN_VARIABLE) or None
        given = {name: value for name, value in options.items() if value is not None}
        try:
            return Listen.model_validate({**msgspec.structs.asdict(self), **given})
        except ValidationError as error:
            at, text = error.errors[0]
            raise ConfigError(f"{str(at[0]).replace('_', '-')}: {text}", codes.VALUE_WRONG) from None

    @property
    def socket_path(self) -> Path | None:
        """The path of the Unix socket to listen on; None for an address."""
        path = _socket_path(self.host)
        return None if path is None else Path(path)

    @property
    def is_local(self) -> bool:
        """Whether `host` is a Unix socket or loopback, so that only this machine can connect."""
        return self.socket_path is not None or is_loopback(self.host)

    @property
    def serves_page(self) -> bool:
        """Whether the live page is served. By default not on a Unix socket, which no browser can open."""
        return is_loopback(self.host) and not self.public_host if self.ui is None else self.ui

    @property
    def is_reached_directly(self) -> bool:
        """Whether clients on a network may connect to the listener itself, and not only to a proxy in front of it."""
        return not self.is_local and not self.trusted_proxies

    def public_bases(self, port: int) -> list[str]:
        """Returns the URLs of the hub by its public names; those of the listener itself come first."""
        scheme = "http" if self.tls is None else "https"
        names = [f"{name}:{port}" if name in self.names_without_port else name for name in self.public_host]
        own = [f"{scheme}://{name}" for name in names if name.endswith(f":{port}") and self.is_reached_directly]
        return own + [f"https://{name}" for name in self.public_host if f"{scheme}://{name}" not in own]

    @property
    def names_without_port(self) -> tuple[str, ...]:
        """The public names for which no port is written, so that they may be names of the listener on its port."""
        return tuple(name for name in self.public_host if ":" not in name or name.endswith("]"))

    @property
    def authenticates(self) -> bool:
        """Whether every caller must authenticate."""
        return self.token is not None or bool(self.principals) or self.verify is not None

    @property
    def profiles(self) -> dict[tuple[str, ...], str]:
        """The profiles that principals are bound to, by the path of the key that names them."""
        profiles_by_key: dict[tuple[str, ...], str | None] = {
            ("principals", name, "profile"): principal.profile for name, principal in self.principals.items()
        }
        profiles_by_key["verify", "profile"] = self.verify.profile if self.verify is not None else None
        return {key: profile for key, profile in profiles_by_key.items() if profile is not None}


def read_listen(fields: Fields, findings: Findings) -> Listen | None:
    """Reads `listen`. Returns None if it is absent or not valid; the errors go to the findings."""
    if (field := fields.get("listen")) is None:
        return None
    value = field.value
    if isinstance(value, str) and value.startswith(f"{UNIX}:"):
        value = {"host": value}
    elif isinstance(value, str):
        # `HOST:PORT`, as in mcpproxy and many others.
        host, _, port = value.rpartition(":")
        value = {"port": port} | ({"host": host.strip("[]")} if host else {})
    if not isinstance(value, dict):
        fields.error(field.at, "must be a mapping with " + ", ".join(Listen.model_fields))
        return None
    known_values = only_known(value, Listen.model_fields, field.at, findings, Listen.model_fields)
    inner = fields.inner({name: FieldValue(item, (*field.at, name)) for name, item in known_values.items()})
    values = inner.typed(Listen, Listen.model_fields.keys() - {"host", "principals", "verify", "limits", "tls"})
    if (token := values.get("token")) is not None and not token:
        fields.error((*field.at, "token"), "must not be empty")
    values |= {"host": _host(inner), "principals": _principals(inner, findings)}
    for name, model in (("verify", TokenVerification), ("limits", CallerLimits), ("tls", Tls)):
        if known_values.get(name) is not None:
            values[name] = read_model(model, known_values[name], (*field.at, name), findings, fields.scope)
    return read_model(Listen, {name: item for name, item in values.items() if item is not None}, field.at, findings)


def _host(fields: Fields) -> str | None:
    host = fields.text("host")
    path = None if host is None else _socket_path(host.strip())
    return f"{UNIX}:{fields.scope.path(path)}" if path else host


def _principals(fields: Fields, findings: Findings) -> dict[str, NamedPrincipal]:
    principals = {}
    for name, field in (fields.mapping("principals") or {}).items():
        value = field.value.strip() if isinstance(field.value, str) else field.value
        if isinstance(value, dict) and isinstance(value.get("token"), str):
            value = {**value, "token": value["token"].strip()}
        principal = read_model(NamedPrincipal, value, field.at, findings)
        if principal is not None:
            principals[name] = principal
    return principals


def check_profiles(listen: Listen, profiles: Mapping[str, Any], findings: Findings) -> None:
    """Adds an error for every profile that `listen` names and that does not exist."""
    for key, profile in listen.profiles.items():
        if profile not in profiles:
            names = ", ".join(profiles) or "none"
            findings.error(("listen", *key), f"there is no profile {profile!r} in this file (there is: {names})")
    if listen.verify is not None and listen.verify.profile_claim is not None and not profiles:
        findings.error(("listen", "verify", "profile_claim"), "there are no 'profiles' in this file that it could name")
