"""How the hub signs in to a server, as a model; `oauth_fields.py` reads it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from msgspec import Meta

from mcp_hub.config.frozen import Frozen
from mcp_hub.config.secret_str import SecretStr

Grant = Literal["authorization_code", "client_credentials"]
ClientAuth = Literal["none", "client_secret_post", "client_secret_basic"]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
TokenStore = Literal["file", "keyring"]


class OAuth(Frozen):
    """Where tokens for one server come from. What is not said is found out by discovery and registration."""

    grant: Grant = "authorization_code"
    """`authorization_code`: a user signs in with `mcp-hub login`. `client_credentials`: the hub does, as itself."""
    client_id: str | None = None
    """None: a client-id metadata document or dynamic registration."""
    client_secret: SecretStr | None = None
    token_endpoint_auth_method: ClientAuth | None = None
    """None: what the authorization server prefers."""
    private_key: SecretStr | None = None
    """PEM; with it the hub signs an assertion instead of sending a secret (client credentials only)."""
    signing_algorithm: Algorithm = "RS256"
    scopes: tuple[str, ...] = ()
    """Empty: those the server asks for."""
    issuer: str | None = None
    """The authorization server that `client_id` belongs to; its secret is sent to no other."""
    redirect_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """The port on 127.0.0.1 a sign-in comes back to; None: any."""
    client_metadata_url: str | None = None
    """Where the hub's client-id metadata document is published, by HTTPS."""

    def __post_init__(self) -> None:
        if self.grant == "client_credentials":
            if self.client_id is None or (self.client_secret is None) == (self.private_key is None):
                raise ValueError("client_credentials needs a client_id and either a client_secret or a private_key")
            if self.redirect_port is not None or self.client_metadata_url is not None:
                raise ValueError("redirect_port and client_metadata_url are for the grant authorization_code")
        elif self.private_key is not None:
            raise ValueError("a private_key is for the grant client_credentials")
        elif self.client_secret is not None and self.client_id is None:
            raise ValueError("a client_secret belongs to a client_id")
        if self.client_id is not None and self.client_metadata_url is not None:
            raise ValueError("client_id and client_metadata_url are two ways to say the same; keep one")


def is_loopback(host: str | None) -> bool:
    """Whether a name or literal address is this machine's own, without asking anybody."""
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().rstrip(".").endswith(".localhost")
