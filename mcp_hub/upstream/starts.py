"""How many upstreams start at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

AT_ONCE: Final = 4
PLACE_KEPT: Final = 3.0
"""Seconds a starting upstream keeps its place; a hanging one must not hold others up."""


class Starts:
    """At most `AT_ONCE` upstreams start at once; one that takes longer gives its place away and goes on."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place and keep it for the block, or for as long as one is kept."""
        await self._places.acquire()
        kept = True

        def give_back() -> None:
            nonlocal kept
            if kept:
                kept = False
                self._places.release()

        timer = asyncio.get_running_loop().call_later(PLACE_KEPT, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
