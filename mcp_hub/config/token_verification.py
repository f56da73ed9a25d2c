"""The verification of tokens that an authorization server issues: its settings, as frozen models."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from mcp_hub.config.credentials import is_loopback
from mcp_hub.config.field_types import After, Before, Duration, SecretStr
from mcp_hub.config.settings import Frozen

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


def _split_words(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


def _as_texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


WebAddress = Annotated[str, After(_check_web_address)]
"""A URL with https, or with http to this machine."""
Texts = Annotated[tuple[str, ...], Before(_as_texts)]
Scopes = Annotated[tuple[Annotated[str, Meta(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$")], ...], Before(_split_words)]


class Jwt(Frozen):
    """Tokens that their issuer has signed (JWT)."""

    issuer: WebAddress
    """The value that `iss` must have."""
    audience: Annotated[Texts, Meta(min_length=1)]
    """One of these must be in `aud`, so that tokens for other servers are refused."""
    jwks_uri: WebAddress | None = None
    """Where the issuer publishes its keys; either this or `public_key`."""
    public_key: str | None = None
    """The issuer's public key in PEM; either this or `jwks_uri`."""
    algorithms: Annotated[tuple[Algorithm, ...], Before(_as_texts), Meta(min_length=1)] = ("RS256",)
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
    audience: Texts = ()
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
