"""Who a request is let in as: by a token of the configuration, or by one that a verifier knows."""

from __future__ import annotations

from typing import Final

from mcp_hub.downstream.protected_resource import ProtectedResource
from mcp_hub.downstream.security import Gate, Headers, Refusal, bearer
from mcp_hub.downstream.verifier import Reason, Verifier
from mcp_hub.security.principals import Principal

COME_BACK: Final = 5
"""Seconds after which it is worth asking again whether a token is good."""

_UNKNOWN: Final = "The request needs a bearer token that is good here (settings: listen.verify, listen.token)."
_REFUSALS: Final[dict[Reason, tuple[int, str | None, str, str]]] = {
    "invalid": (401, "invalid_token", "The bearer token is not good here, or not any more.", "bad_token"),
    "scope": (403, "insufficient_scope", "The bearer token lacks a scope that is needed here.", "scope"),
    "profile": (403, "insufficient_scope", "The bearer token names no profile of this hub.", "profile"),
    "unreachable": (503, None, "Whether the bearer token is good cannot be found out now.", "verifier"),
    "busy": (503, None, "Too many tokens are being looked at; come back in a moment.", "verifier"),
}
"""Status, error of RFC 6750, words and cause of each reason."""


class Admission:
    """`verifier` and `resource` are there together, or neither is."""

    def __init__(self, gate: Gate, verifier: Verifier | None = None, resource: ProtectedResource | None = None) -> None:
        self._gate = gate
        self._verifier = verifier
        self._resource = resource

    async def admit(self, headers: Headers, port: int | None) -> Principal | Refusal:
        """The principal who sends the request, or why nobody is let in. `port` is the listener's own."""
        headers = list(headers)
        found = self._gate.admit(headers)
        if isinstance(found, Principal) or self._verifier is None or self._resource is None:
            return found
        if not any(name == b"authorization" for name, _ in headers):
            return Refusal(401, _UNKNOWN, "no_token", self._resource.challenge(port))
        token = bearer(headers)
        verified = await self._verifier.verify(token) if token is not None else None
        if isinstance(verified, Principal):
            return verified
        status, error, text, cause = _REFUSALS[verified.reason if verified is not None else "invalid"]
        if error is None:
            return Refusal(status, text, cause, retry_after=COME_BACK)
        return Refusal(status, text, cause, self._resource.challenge(port, error))
