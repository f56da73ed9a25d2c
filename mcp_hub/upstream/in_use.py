"""How many calls need something that is to end when none does any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class InUse:
    """How many calls need something."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """One more while the block runs."""
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            if not self.count:
                self._idle.set()

    async def ended(self, seconds: float) -> bool:
        """Whether all of them have ended within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        return not self.count
