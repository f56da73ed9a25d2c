"""The waits between attempts to connect: longer after each failure, drawn at random, ended by whoever needs it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Final

FIRST: Final = 0.5
LAST: Final = 30.0
SHORT_LIFE: Final = 10.0
"""Seconds; a connection that lived shorter counts as one more failure, not as a recovery."""


class BackingOff:
    """`failures` are connections in a row that failed or did not last."""

    def __init__(self) -> None:
        self.failures = 0
        self.next_attempt: float | None = None
        """While waiting: when it is tried again."""

    def ended(self, seconds: float, *, connected: bool) -> None:
        """An attempt, with whatever came of it, has ended after so many seconds."""
        self.failures = 0 if connected and seconds > SHORT_LIFE else self.failures + 1

    async def wait(self, woken: asyncio.Event, *, at_once: bool) -> None:
        """Wait, with full jitter unless it is to be tried at once, or until somebody wants the upstream."""
        delay = 0.0 if at_once else random.uniform(0, min(LAST, FIRST * 2 ** min(self.failures - 1, 16)))
        self.next_attempt = time.monotonic() + delay
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await woken.wait()
        self.next_attempt = None
