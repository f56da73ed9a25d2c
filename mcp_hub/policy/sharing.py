"""What a hub shares with its other replicas: the counts of rates, and what callers have switched, used and allowed.

A hub that is one process shares nothing: then nothing here is ever awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    from mcp_hub.store.shared_bucket import SharedBucket

ChangeKind = Literal["groups", "used", "approved", "pins", "switch", "reload"]
"""What other replicas are told of."""
Publish = Callable[[ChangeKind, str, Any], Awaitable[None]]
"""`publish(kind, about, value)` tells the other replicas of a change; returns when those that are alive know of it.

Raises CallError while the store is away.
"""


class _Callers(Enum):
    EVERYBODY = "everybody"


EVERYBODY: Final = _Callers.EVERYBODY
"""Whom a change concerns that is not one caller's."""


class Sharing(msgspec.Struct):
    """How this hub reaches its other replicas; empty for one process."""

    bucket: SharedBucket | None = None
    """Where rates are counted; None: in this process."""
    publish: Publish | None = None
    """Tells the other replicas of a change; None: there are none."""
    place: str = ""
    """The name of this replica; "" for one process."""

    @property
    def note(self) -> str:
        """What to say beside a rate, where it is not the whole rate that applies here; else ""."""
        parts = self.bucket.parts if self.bucket is not None else 1
        return f" (the store is away: one of {parts} replicas takes its part)" if parts > 1 else ""

    async def tell(self, kind: ChangeKind, caller: Hashable | None, value: Any) -> None:
        """Tells the other replicas of what a caller has done. Raises CallError while the store is away."""
        name = shared_name(caller)
        if self.publish is not None and name is not None:
            await self.publish(kind, name, value)


def shared_name(caller: Hashable | None) -> str | None:
    """Returns what every replica calls a caller; None for one that this replica alone serves."""
    if isinstance(caller, str):
        return f"principal {caller}"
    if caller is EVERYBODY:
        return ""
    known = getattr(caller, "known_as", None)
    return None if known is None else f"session {known}"
