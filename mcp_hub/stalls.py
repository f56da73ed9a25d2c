"""Whether something keeps the event loop, and so everybody, waiting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

log = logging.getLogger("mcp_hub")

EVERY: Final = 0.5
"""Seconds between two looks: a stall that is shorter may pass unseen, and so may a look that costs."""
STALL: Final = 0.2
"""Seconds of lateness that are told of."""


class Stalls:
    """`longest` is the longest lateness seen, in seconds, `count` how many were told of."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look while the block runs."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY
            await asyncio.sleep(EVERY)
            late = loop.time() - due
            self.longest = max(self.longest, late)
            if late > STALL:
                self.count += 1
                log.warning("everybody waited for %.1f s: the machine is busy, or the hub has a fault", late)
