"""What clients are told of the tokens a hub with a verifier wants (RFC 9728). Pure."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from mcp_hub.config.listen import Listen, Verify

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
MCP: Final = "/mcp"

_WILDCARDS: Final = frozenset({"", "*", "0.0.0.0", "::"})


def has_resource(listen: Listen) -> bool:
    """Whether the URL of the hub is known; a header of a client's never says it."""
    return listen.verify is not None and _resource(listen, listen.verify, listen.port) is not None


def _resource(listen: Listen, verify: Verify, port: int | None) -> str | None:
    if verify.resource is not None:
        return verify.resource
    if listen.public_host:
        return f"https://{listen.public_host[0]}{MCP}"
    scheme = "http" if listen.tls is None else "https"
    if listen.host not in _WILDCARDS:
        host = listen.host.strip("[]")
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port or listen.port}{MCP}"
    return next((one for one in verify.issued.audience if one.startswith("https://")), None)


class ProtectedResource:
    """The metadata of one listener. `port` is always that of its own socket."""

    def __init__(self, listen: Listen, verify: Verify) -> None:
        self._listen = listen
        self._verify = verify

    def resource(self, port: int | None) -> str:
        """The URL of the hub as its clients know it."""
        return _resource(self._listen, self._verify, port) or MCP

    def document(self, port: int | None) -> dict[str, Any]:
        """The metadata."""
        issued = self._verify.issued
        found: dict[str, Any] = {
            "resource": self.resource(port),
            "resource_name": "mcp-hub",
            "authorization_servers": [issued.issuer],
            "bearer_methods_supported": ["header"],
        }
        if issued.required_scopes:
            found["scopes_supported"] = list(issued.required_scopes)
        return found

    def challenge(self, port: int | None, error: str | None = None) -> bytes:
        """The value of `WWW-Authenticate`."""
        parts = urlsplit(self.resource(port))
        where = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"
        words = ['realm="mcp-hub"', *([f'error="{error}"'] if error is not None else [])]
        if self._verify.issued.required_scopes:
            words.append(f'scope="{" ".join(self._verify.issued.required_scopes)}"')
        words.append(f'resource_metadata="{where}"')
        return f"Bearer {', '.join(words)}".encode()
