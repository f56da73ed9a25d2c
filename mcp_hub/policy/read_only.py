"""The read-only policy: `hub_read` calls only tools that say that they only read, and that no review speaks against.

A client's user can then allow `hub_read` always and still be asked before each `hub_call`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from mcp_hub.catalog import CALL, READ, Route
from mcp_hub.errors import PermissionDenied
from mcp_hub.observability.stalls import in_slices
from mcp_hub.policy import Call, Json, Listed, Next, Policy, PolicyParts
from mcp_hub.policy.pins import PinReview
from mcp_hub.policy.screen import ScreenReview
from mcp_hub.protocol.kinds import only_reads


class NotReadOnly(PermissionDenied):
    """`hub_read` does not call this tool; the server got no request."""

    policy, refuses = "read-only", True


class ReadOnly(Policy):
    """Refuses calls by `hub_read` of tools that may change something, were flagged, or differ from their pins.

    `listed` returns a tool as its server lists it to a caller.
    """

    name = "read-only"
    always_within = True

    def __init__(self, listed: Listed, pins: PinReview, screen: ScreenReview) -> None:
        self._listed, self._pins, self._screen = listed, pins, screen

    @classmethod
    def of(cls, parts: PolicyParts) -> ReadOnly:
        """Makes the policy of a configuration."""
        return cls(parts.listed, parts.find(PinReview), parts.find(ScreenReview))

    def concerns(self, route: Route) -> bool:
        """Returns False: only calls of the hub's own tools are checked."""
        return False

    def __call__(self, call: Call, call_next: Next) -> Awaitable[Json]:
        """Runs the call. Raises NotReadOnly."""
        return self._check(call, call_next) if call.within == READ else call_next(call)

    async def _check(self, call: Call, call_next: Next) -> Json:
        reason = await self._reason(call)
        if reason is not None:
            call.refused_by = f"{READ}: {reason}"
            text = f"{READ} does not call {call.exposed!r}: {reason}. Call it by {CALL}."
            raise NotReadOnly(text, server=call.route.upstream, executed=False)
        return await call_next(call)

    async def _reason(self, call: Call) -> str | None:
        if not only_reads(self._listed(call.route, call.caller) or {}):
            return "it is not marked as read-only"
        if call.route in self._pins.notes:
            return "it has changed since it was pinned"
        flag = await in_slices(self._screen.finding(call.route))
        return f"screening found {flag.rule} in it" if flag is not None else None
