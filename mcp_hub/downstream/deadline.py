"""A deadline that is put off often and passes rarely: its timer is moved only when it fires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls `late()` when the time that was last set has passed. Setting it costs no timer unless it comes nearer."""

    __slots__ = ("_at", "_late", "_loop", "_timer")

    def __init__(self, late: Callable[[], None]) -> None:
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """From now on."""
        self._at = at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def clear(self) -> None:
        """There is none. Its timer may still fire, for nothing."""
        self._at = None

    def close(self) -> None:
        """There will be none, and nobody is kept for it."""
        self._at = None
        self._late = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._loop.time() < self._at - 0.001:  # loops count in milliseconds
            self._timer = self._loop.call_at(self._at, self._look)
            return
        self._at = None
        self._late()


def _nothing() -> None:
    pass
