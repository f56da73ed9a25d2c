"""Whether what an upstream lists is shown: while it is there, and for a while after it went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Presence:
    """`changed()` is called when an upstream that is away stops being listed, and when it is back."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._timer: asyncio.TimerHandle | None = None
        self.listed = True

    def away(self, seconds: float | None) -> None:
        """It is not there: in so many seconds, unless it comes back, it is no longer listed. None: it stays listed."""
        if seconds is not None and self._timer is None and self.listed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._unlist)

    def _unlist(self) -> None:
        self._timer = None
        self.listed = False
        self._changed()

    def back(self) -> None:
        """It is there, or there is a reason to show it that has nothing to do with its health."""
        self.close()
        if not self.listed:
            self.listed = True
            self._changed()

    def close(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
