"""How many calls need something that is to end when none does any more."""

from __future__ import annotations

import asyncio
import contextlib


class InUse:
    """How many calls need something: each enters it, as often as there are calls at once."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self.count += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if not self.count:
            self._idle.set()

    async def ended(self, seconds: float) -> bool:
        """Whether all of them have ended within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        return not self.count
