"""Tokens that others issue: who a token stands for, asked of fastmcp's verifiers and remembered for a while.

Whatever goes wrong, nobody is let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeGuard

from mcp_hub.config.extras import missing
from mcp_hub.config.listen import Introspection, Jwt, Verify
from mcp_hub.errors import ConfigError
from mcp_hub.security.principals import Principal
from mcp_hub.security.trust import trusted_certificates
from mcp_hub.text import printable

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("mcp_hub.downstream")

VERIFY_DEADLINE: Final = 10.0
"""Seconds one token may take; its client waits meanwhile."""
MAX_ASKING: Final = 64
"""Tokens that are being asked about at the same time; who brings one more comes back later."""
MAX_REMEMBERED: Final = 10_000
MAX_TOKEN: Final = 16 * 1024
"""Bytes."""
MAX_ANSWER: Final = 1024 * 1024
"""Bytes of a set of keys, or of what is known of a token."""
MAX_SUBJECT: Final = 1024
"""Characters of who a token stands for."""
CLOCKS_DIFFER: Final = 30.0
"""Seconds by which an issuer's clock may be ahead."""
KEYS_AGAIN_AFTER: Final = 5.0
"""Seconds between two attempts to fetch keys, so that tokens with made-up keys cause no storm."""

Reason = Literal["invalid", "scope", "profile", "unreachable", "busy"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A token that lets nobody in. `unreachable` and `busy`: it may be good, but that is not known now."""

    reason: Reason


class _Access(Protocol):
    claims: dict[str, Any]
    scopes: list[str]


class _TokenVerifier(Protocol):
    async def verify_token(self, token: str) -> Any: ...


class Verifier:
    """`profiles` are those of the configuration. `now` gives seconds of the epoch.

    Raises ConfigError where the settings make no verifier.
    """

    def __init__(
        self,
        verify: Verify,
        profiles: Collection[str] = (),
        *,
        now: Callable[[], float] = time.time,
        keys_again_after: float = KEYS_AGAIN_AFTER,
    ) -> None:
        self._verify = verify
        self._profiles = frozenset(profiles)
        self._now = now
        self._known: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        """Who a token stands for, and until when that is believed."""
        self._asking: dict[bytes, asyncio.Task[Principal | Rejected]] = {}
        try:
            self._client, self._line = _client()
            self._verifiers = _verifiers(verify.issued, self._client, keys_again_after)
        except Exception as error:
            why = missing("verify") or printable(str(error), 300)
            raise ConfigError(f"listen.verify cannot be used: {why}") from None

    async def verify(self, token: bytes) -> Principal | Rejected:
        """Who the token stands for. Raises nothing but CancelledError."""
        if len(token) > MAX_TOKEN or not token.isascii():
            return Rejected("invalid")
        key = sha256(token).digest()
        remembered = self._known.get(key)
        if remembered is not None:
            if self._now() < remembered[1]:
                return remembered[0]
            del self._known[key]
        task = self._asking.get(key)
        if task is None:
            if len(self._asking) >= MAX_ASKING:
                return Rejected("busy")
            task = self._asking[key] = asyncio.get_running_loop().create_task(self._ask(key, token.decode()))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, key: bytes, token: str) -> Principal | Rejected:
        try:
            async with asyncio.timeout(VERIFY_DEADLINE):
                verifier = self._verifiers.get(_algorithm(token) if self._verify.jwt is not None else "")
                found: _Access | None = await verifier.verify_token(token) if verifier is not None else None
            if found is None:
                return self._said("unreachable" if verifier is not None and self._line.broken else "invalid")
            return self._take(key, found.claims, found.scopes)
        except TimeoutError:
            return self._said("unreachable")
        except Exception:  # of a library that is given what a stranger made up
            log.exception("a token could not be verified")
            return Rejected("invalid")

    def _said(self, reason: Reason) -> Rejected:
        if reason == "unreachable":
            asked = self._verify.jwt.jwks_uri if self._verify.jwt is not None else self._verify.issued.issuer
            log.warning("tokens cannot be verified: %s does not answer as it should", printable(str(asked), 300))
        return Rejected(reason)

    def _take(self, key: bytes, claims: Mapping[str, Any], scopes: Collection[str]) -> Principal | Rejected:
        """Everything that the libraries leave to their user."""
        now, issued = self._now(), self._verify.issued
        expires, begins = claims.get("exp"), claims.get("nbf", now)
        if isinstance(issued, Introspection):
            expires = math.inf if expires is None else expires
            if claims.get("active") is not True or claims.get("iss", issued.issuer) != issued.issuer:
                return Rejected("invalid")
        if not _is_time(expires) or not _is_time(begins) or expires <= now or begins > now + CLOCKS_DIFFER:
            return Rejected("invalid")
        subject = next(((kind, who) for kind in ("sub", "client_id", "azp") if (who := claims.get(kind))), None)
        if subject is None or not isinstance(subject[1], str) or len(subject[1]) > MAX_SUBJECT:
            return Rejected("invalid")
        if not set(issued.required_scopes) <= set(scopes):
            return Rejected("scope")
        profile = self._verify.profile
        if self._verify.profile_claim is not None:
            profile = claims.get(self._verify.profile_claim, profile)
            if not isinstance(profile, str) or profile not in self._profiles:
                return Rejected("profile")
        # A text that no principal of the configuration can have, and another one for each profile.
        principal = Principal(json.dumps([issued.issuer, *subject, profile]), profile)
        self._known[key] = (principal, min(now + self._verify.cache, expires))
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return principal

    async def close(self) -> None:
        """Ask no more. Idempotent, never raises."""
        for task in list(self._asking.values()):
            task.cancel()
        with contextlib.suppress(Exception):
            await self._client.aclose()


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _algorithm(token: str) -> str:
    """What a token says it is signed with, `""` if it is no JWT; that it is so is the verifier's to find out."""
    from fastmcp.utilities.auth import decode_jwt_header

    try:
        said = decode_jwt_header(token)
    except (ValueError, RecursionError):
        return ""
    found = said.get("alg") if isinstance(said, dict) else None
    return found if isinstance(found, str) else ""


class _Line:
    """Whether the issuer answered the last time it was asked."""

    broken = False


def _client() -> tuple[httpx2.AsyncClient, _Line]:
    """A client that takes no more than it must and follows nobody. Imported here: only verifiers need it."""
    import httpx2

    line = _Line()
    real = httpx2.AsyncHTTPTransport(verify=trusted_certificates(), limits=httpx2.Limits(max_connections=MAX_ASKING))

    class Bounded(httpx2.AsyncBaseTransport):
        """Reads whole answers of at most `MAX_ANSWER`, and knows whether there was one."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            line.broken = True
            answer = await real.handle_async_request(request)
            body = bytearray()
            try:
                async for chunk in answer.aiter_raw():
                    body += chunk
                    if len(body) > MAX_ANSWER:
                        raise httpx2.ReadError("the answer is too large")
            finally:
                await answer.aclose()
            if "content-encoding" in answer.headers:
                raise httpx2.ReadError("the answer is compressed though it must not be")
            line.broken = answer.status_code != 200
            return httpx2.Response(answer.status_code, headers=answer.headers, content=bytes(body))

        async def aclose(self) -> None:
            await real.aclose()

    headers = {"accept-encoding": "identity", "user-agent": "mcp-hub"}
    client = httpx2.AsyncClient(transport=Bounded(), timeout=VERIFY_DEADLINE, headers=headers, follow_redirects=False)
    return client, line


def _verifiers(
    issued: Jwt | Introspection, client: httpx2.AsyncClient, keys_again_after: float
) -> dict[str, _TokenVerifier]:
    """fastmcp's verifiers by the algorithm they are for. Imported here, as that takes a second."""
    # What they log has claims of strangers in it and goes to the terminal in a form of its own.
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL + 1)
    if isinstance(issued, Introspection):
        from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier

        asking = IntrospectionTokenVerifier(
            introspection_url=issued.endpoint,
            client_id=issued.client_id,
            client_secret=issued.client_secret.get_secret_value(),
            client_auth_method="client_secret_basic" if issued.method == "basic" else "client_secret_post",
            audience=list(issued.audience) or None,
            http_client=client,
        )
        return {"": asking}
    from fastmcp.server.auth.providers.jwt import JWTVerifier
    from joserfc.errors import SecurityWarning
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    warnings.filterwarnings("ignore", category=SecurityWarning)  # of EdDSA, by those who have chosen it
    if issued.public_key is not None:
        for algorithm in issued.algorithms:
            kinds: dict[str, Any] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey}
            kinds.get(algorithm[:2], OKPKey).import_key(issued.public_key)  # or no token would ever be good
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
