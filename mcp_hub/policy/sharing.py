"""State that the replicas of a hub share: counts of calls for rates, and each caller's groups, labels and approvals.

A hub of one process shares nothing, and nothing here suspends its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from mcp_hub.security.callers import Caller
    from mcp_hub.store.shared_bucket import SharedBucket

ChangeKind = Literal["groups", "used", "approved", "pins", "switch", "reload"]
"""The kinds of changes that replicas send to each other."""
Publish = Callable[[ChangeKind, str, Any], Awaitable[None]]
"""`publish(kind, about, value)` sends a change to the other replicas and returns once all live ones have it.

Raises CallError while the store cannot be reached.
"""


class Sharing(msgspec.Struct):
    """What this hub shares with its other replicas; all fields are empty for a hub of one process."""

    bucket: SharedBucket | None = None
    """The token buckets that replicas share; None: this process has its own."""
    publish: Publish | None = None
    """Sends a change to the other replicas; None: there are none."""
    replica_name: str = ""
    """The name of this replica; "" for one process."""

    @property
    def note(self) -> str:
        """A note for errors about rates while this replica allows only its part of each rate, else ""."""
        parts = self.bucket.parts if self.bucket is not None else 1
        return f" (the store is unavailable: one of {parts} replicas allows its share)" if parts > 1 else ""

    async def broadcast(self, kind: ChangeKind, caller: Caller | None, value: Any) -> None:
        """Sends a change by a caller to the other replicas; None: it applies to all callers.

        Raises CallError while the store cannot be reached.
        """
        name = "" if caller is None else caller.key
        if self.publish is not None and name is not None:
            await self.publish(kind, name, value)
