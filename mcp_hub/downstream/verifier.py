"""Verifies tokens of an authorization server with fastmcp's verifiers, and publishes which tokens clients need.

Verified tokens are cached for a while. Any failure rejects the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeGuard
from urllib.parse import urlsplit

from mcp_hub import codes
from mcp_hub.config.extras import missing
from mcp_hub.config.listen import Introspection, Jwt, Listen, TokenVerification
from mcp_hub.errors import ConfigError
from mcp_hub.security import Principal
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable

if TYPE_CHECKING:
    import httpx2

    from mcp_hub.transport.egress import Egress
    from mcp_hub.transport.http1.pool import HttpPool, RequestHeadEncoder

log = logging.getLogger("mcp_hub.downstream")

VERIFY_DEADLINE: Final = 10.0
"""Seconds that verifying one token may take; its client waits meanwhile."""
MAX_ASKING: Final = 64
"""Tokens that are verified at the same time; for one more the client is told to come back later."""
MAX_REMEMBERED: Final = 10_000
MAX_TOKEN: Final = 16 * 1024
"""Bytes of a token; longer ones are rejected."""
MAX_ANSWER: Final = 1024 * 1024
"""Bytes of a key set or of an introspection response."""
MAX_SUBJECT: Final = 1024
"""Characters of a token's subject."""
CLOCKS_DIFFER: Final = 30.0
"""Seconds by which an issuer's clock may be ahead."""
KEEP_ALIVE: Final = 4.0
"""Seconds an idle connection to the issuer is kept."""
KEYS_AGAIN_AFTER: Final = 5.0
"""Seconds between two attempts to fetch keys, so that tokens with invented key ids cause no flood of requests."""

Reason = Literal["invalid", "scope", "profile", "unreachable", "busy"]


@dataclass(frozen=True, slots=True)
class RejectedToken:
    """The token is not accepted. `unreachable` and `busy`: it may be valid, but that cannot be checked now."""

    reason: Reason


class _Access(Protocol):
    claims: dict[str, Any]
    scopes: list[str]


class _TokenVerifier(Protocol):
    async def verify_token(self, token: str) -> Any: ...


class Verifier:
    """Finds the principal of a token. `profiles`: those of the configuration. `now` returns seconds of the epoch.

    Raises ConfigError if the settings are not usable.
    """

    def __init__(
        self,
        verify: TokenVerification,
        profiles: Collection[str] = (),
        *,
        egress: Egress | None = None,
        now: Callable[[], float] = time.time,
        keys_again_after: float = KEYS_AGAIN_AFTER,
    ) -> None:
        self._verify = verify
        self._profiles = frozenset(profiles)
        self._now = now
        self._cache: Lru[bytes, tuple[Principal, float]] = Lru(MAX_REMEMBERED)
        """The principal of a token, and until when that is cached."""
        self._verifications: dict[bytes, asyncio.Task[Principal | RejectedToken]] = {}
        try:
            self._client, self._issuer = _client(egress)
            self._verifiers = _verifiers(verify.issued, self._client, keys_again_after)
        except Exception as error:
            reason = missing("verify") or printable(str(error), 300)
            raise ConfigError(f"listen.verify cannot be used: {reason}", codes.VALUE_WRONG) from None

    async def verify(self, token: bytes) -> Principal | RejectedToken:
        """Returns the principal of a token, or why it is rejected. Raises nothing but CancelledError."""
        if len(token) > MAX_TOKEN or not token.isascii():
            return RejectedToken("invalid")
        key = sha256(token).digest()
        cached = self._cache.get(key)
        if cached is not None:
            if self._now() < cached[1]:
                return cached[0]
            del self._cache[key]
        task = self._verifications.get(key)
        if task is None:
            if len(self._verifications) >= MAX_ASKING:
                return RejectedToken("busy")
            task = self._verifications[key] = asyncio.get_running_loop().create_task(
                self._check_token(key, token.decode())
            )
            task.add_done_callback(lambda _: self._verifications.pop(key, None))
        return await asyncio.shield(task)

    async def _check_token(self, key: bytes, token: str) -> Principal | RejectedToken:
        try:
            async with asyncio.timeout(VERIFY_DEADLINE):
                verifier = self._verifiers.get(_algorithm(token) if self._verify.jwt is not None else "")
                access: _Access | None = await verifier.verify_token(token) if verifier is not None else None
            if access is None:
                return self._reject("unreachable" if verifier is not None and self._issuer.broken else "invalid")
            return self._accept(key, access.claims, access.scopes)
        except TimeoutError:
            return self._reject("unreachable")
        except Exception:  # raised by a library on input from strangers
            log.exception("a token could not be verified")
            return RejectedToken("invalid")

    def _reject(self, reason: Reason) -> RejectedToken:
        if reason == "unreachable":
            source = self._verify.jwt.jwks_uri if self._verify.jwt is not None else self._verify.issued.issuer
            log.warning("tokens cannot be verified: %s does not answer as it should", printable(str(source), 300))
        return RejectedToken(reason)

    def _accept(self, key: bytes, claims: Mapping[str, Any], scopes: Collection[str]) -> Principal | RejectedToken:
        """Checks what the libraries do not: activity, times, subject, scopes and profile; then caches the principal."""
        now, issued = self._now(), self._verify.issued
        expires, not_before = claims.get("exp"), claims.get("nbf", now)
        if isinstance(issued, Introspection):
            expires = math.inf if expires is None else expires
            if claims.get("active") is not True or claims.get("iss", issued.issuer) != issued.issuer:
                return RejectedToken("invalid")
        if (
            not _is_timestamp(expires)
            or not _is_timestamp(not_before)
            or expires <= now
            or not_before > now + CLOCKS_DIFFER
        ):
            return RejectedToken("invalid")
        subject = next(
            ((kind, identity) for kind in ("sub", "client_id", "azp") if (identity := claims.get(kind))), None
        )
        if subject is None or not isinstance(subject[1], str) or len(subject[1]) > MAX_SUBJECT:
            return RejectedToken("invalid")
        if not set(issued.required_scopes) <= set(scopes):
            return RejectedToken("scope")
        profile = self._verify.profile
        if self._verify.profile_claim is not None:
            profile = claims.get(self._verify.profile_claim, profile)
            if not isinstance(profile, str) or profile not in self._profiles:
                return RejectedToken("profile")
        # This text differs from every principal's name in the configuration, and for each profile.
        principal = Principal(json.dumps([issued.issuer, *subject, profile]), profile)
        self._cache[key] = (principal, min(now + self._verify.cache, expires))
        return principal

    async def close(self) -> None:
        """Cancels all running verifications. Idempotent; never raises."""
        for task in list(self._verifications.values()):
            task.cancel()
        with contextlib.suppress(Exception):
            await self._client.aclose()


def _is_timestamp(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _algorithm(token: str) -> str:
    """Returns the algorithm that a JWT claims, `""` if it is not a JWT. The verifier checks the claim."""
    from fastmcp.utilities.auth import decode_jwt_header

    try:
        header = decode_jwt_header(token)
    except (ValueError, RecursionError):
        return ""
    algorithm = header.get("alg") if isinstance(header, dict) else None
    return algorithm if isinstance(algorithm, str) else ""


_HOP_HEADERS: Final = frozenset({"connection", "transfer-encoding", "content-length"})


class _IssuerHealth:
    """Whether the issuer failed to answer the last request."""

    broken = False


def _client(egress: Egress | None) -> tuple[httpx2.AsyncClient, _IssuerHealth]:
    """Returns an HTTP client that bounds answers and follows no redirects. httpx2 is imported here to save startup."""
    import httpx2
    from yarl import URL

    from mcp_hub.transport.egress import Egress, whole
    from mcp_hub.transport.http1.client_response import HttpFailure
    from mcp_hub.transport.trust_store import UnusableCertificates

    health = _IssuerHealth()
    outbound = Egress.of() if egress is None else egress
    origins: dict[str, tuple[HttpPool, RequestHeadEncoder]] = {}

    class Bounded(httpx2.AsyncBaseTransport):
        """Connects as the hub's egress settings say, bounds answers to MAX_ANSWER bytes, and updates `health`."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            health.broken = True
            url = URL(str(request.url), encoded=True)
            origin = str(url.origin())
            try:
                if origin not in origins:  # the origin of the issuer's keys, or of its introspection endpoint
                    connections = await outbound.connections(
                        url, {}, limit=MAX_ASKING, connect=VERIFY_DEADLINE, keep=KEEP_ALIVE
                    )
                    origins.setdefault(origin, connections)
                pool, heads = origins[origin]
                body = await request.aread()
                raw = [(name.decode(), value.decode()) for name, value in request.headers.raw]
                headers = {name: value for name, value in raw if name.lower() not in _HOP_HEADERS}
                size = len(body) if body or request.method == "POST" else None
                head = heads.head(request.method, url.raw_path_qs, headers, size)
                response = await pool.exchange(request.method, head, body if size is not None else None)
                try:
                    if "content-encoding" in dict(response.headers):
                        raise httpx2.ReadError("the answer is compressed though it must not be")
                    answer = await whole(response, MAX_ANSWER)
                finally:
                    response.close()
            except (HttpFailure, UnusableCertificates, ValueError) as error:
                raise httpx2.ConnectError(type(error).__name__) from None
            health.broken = answer.status != 200
            response_headers = [(name, value) for name, value in answer.headers if name not in _HOP_HEADERS]
            return httpx2.Response(answer.status, headers=response_headers, content=answer.content)

        async def aclose(self) -> None:
            for pool, _ in origins.values():
                await pool.close()

    headers = {"accept-encoding": "identity", "user-agent": "mcp-hub"}
    client = httpx2.AsyncClient(transport=Bounded(), timeout=VERIFY_DEADLINE, headers=headers, follow_redirects=False)
    return client, health


def _verifiers(
    issued: Jwt | Introspection, client: httpx2.AsyncClient, keys_again_after: float
) -> dict[str, _TokenVerifier]:
    """Returns fastmcp's verifiers by algorithm. fastmcp is imported here, as that takes a second."""
    # fastmcp's log lines contain claims from strangers and bypass the hub's own format.
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL + 1)
    if isinstance(issued, Introspection):
        from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier

        introspection = IntrospectionTokenVerifier(
            introspection_url=issued.endpoint,
            client_id=issued.client_id,
            client_secret=issued.client_secret.get_secret_value(),
            client_auth_method="client_secret_basic" if issued.method == "basic" else "client_secret_post",
            audience=list(issued.audience) or None,
            http_client=client,
        )
        return {"": introspection}
    from fastmcp.server.auth.providers.jwt import JWTVerifier
    from joserfc.errors import SecurityWarning
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    warnings.filterwarnings("ignore", category=SecurityWarning)  # joserfc warns of EdDSA even if the user has chosen it
    if issued.public_key is not None:
        for algorithm in issued.algorithms:
            kinds: dict[str, Any] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey}
            kinds.get(algorithm[:2], OKPKey).import_key(issued.public_key)  # fails early for a wrong key
    return {
        algorithm: JWTVerifier(
            public_key=issued.public_key,
            jwks_uri=issued.jwks_uri,
            issuer=issued.issuer,
            audience=list(issued.audience),
            algorithm=algorithm,
            http_client=client if issued.jwks_uri is not None else None,
            jwks_refresh_interval=keys_again_after,
        )
        for algorithm in issued.algorithms
    }


WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
MCP: Final = "/mcp"

_WILDCARDS: Final = frozenset({"", "*", "0.0.0.0", "::"})


def has_resource(listen: Listen) -> bool:
    """Returns whether the hub's URL is known from the configuration; it is never taken from a header."""
    return listen.verify is not None and _resource(listen, listen.verify, listen.port) is not None


def _resource(listen: Listen, verify: TokenVerification, port: int | None) -> str | None:
    if verify.resource is not None:
        return verify.resource
    if listen.public_host:
        return f"https://{listen.public_host[0]}{MCP}"
    scheme = "http" if listen.tls is None else "https"
    if listen.host not in _WILDCARDS and listen.socket_path is None:
        host = listen.host.strip("[]")
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port or listen.port}{MCP}"
    return next((audience for audience in verify.issued.audience if audience.startswith("https://")), None)


class ProtectedResource:
    """The protected resource metadata of one listener (RFC 9728). `port` is always that of its own socket.

    `mounted`: the hub serves only paths below its mount, so the metadata is there too.
    """

    def __init__(self, listen: Listen, verify: TokenVerification, *, mounted: bool = False) -> None:
        self._mounted = mounted
        self._listen = listen
        self._verify = verify

    def resource(self, port: int | None) -> str:
        """Returns the hub's URL as clients know it."""
        return _resource(self._listen, self._verify, port) or MCP

    def document(self, port: int | None) -> dict[str, Any]:
        """Returns the metadata document."""
        issued = self._verify.issued
        document: dict[str, Any] = {
            "resource": self.resource(port),
            "resource_name": "mcp-hub",
            "authorization_servers": [issued.issuer],
            "bearer_methods_supported": ["header"],
        }
        if issued.required_scopes:
            document["scopes_supported"] = list(issued.required_scopes)
        return document

    def challenge(self, port: int | None, error: str | None = None) -> bytes:
        """Returns the value of `WWW-Authenticate`."""
        url = urlsplit(self.resource(port))
        base, path = f"{url.scheme}://{url.netloc}", url.path.rstrip("/")
        metadata_url = f"{base}{path.removesuffix(MCP)}{WELL_KNOWN}" if self._mounted else f"{base}{WELL_KNOWN}{path}"
        parameters = ['realm="mcp-hub"', *([f'error="{error}"'] if error is not None else [])]
        if self._verify.issued.required_scopes:
            parameters.append(f'scope="{" ".join(self._verify.issued.required_scopes)}"')
        parameters.append(f'resource_metadata="{metadata_url}"')
        return f"Bearer {', '.join(parameters)}".encode()
