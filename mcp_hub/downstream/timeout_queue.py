"""Timeouts of many objects, all of the same length, with one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TimeoutQueue:
    """Timeouts of equal length with one timer of the event loop: they expire in the order in which they begin.

    `seconds()` returns the length.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._since: dict[object, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Cached: `get_running_loop` costs a system call."""

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, what: object, late: Callable[[], None]) -> None:
        """Calls `late()` once, unless `end(what)` is called in time."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        at = loop.time() + self._seconds()
        self._since[what] = (at, late)
        if self._timer is None:
            self._timer = loop.call_at(at, self._look)

    def end(self, what: object) -> None:
        """Removes the timeout of `what`, expired or not."""
        self._since.pop(what, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._since:
            what, (at, late) = next(iter(self._since.items()))
            if at > loop.time() + 0.001:  # event loops count in milliseconds
                self._timer = loop.call_at(at, self._look)
                return
            del self._since[what]
            late()
