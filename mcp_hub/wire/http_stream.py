"""One stream of events over all the connections it takes: what it is for, how far it came, when to open it again."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from mcp_hub.wire.link import RequestId

FIRST_DELAY: Final = 1.0
"""Seconds before a stream is opened again, if the upstream named no `retry`; doubled while nothing comes."""
LEAST_DELAY: Final = 0.05
MAX_DELAY: Final = 30.0


class Stream(msgspec.Struct):
    """What one stream of events, over all its connections, is for and how far it came. No `request`: standing."""

    request: RequestId | None
    answered: bool = False
    last_event_id: str | None = None
    retry: int | None = None
    arrived: int = 0

    def delay(self, fruitless: int) -> float:
        """Seconds before the next connection, with jitter upwards: `retry` is the least an upstream accepts."""
        first = FIRST_DELAY if self.retry is None else max(self.retry / 1000, LEAST_DELAY)
        return min(first * 2.0 ** min(fruitless, 16), MAX_DELAY) * (1 + random.random() / 4)
