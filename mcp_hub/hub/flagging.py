"""What is listed and only flagged is looked through when nobody waits: first the clients, then the report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mcp_hub.policy.screen import Screen

AFTER: Final = 1.0
"""Seconds after a change of the lists until it begins."""
PAUSE: Final = 0.01
"""Seconds between two steps, for calls."""


class Flagging:
    """`screen()` is the rule in force."""

    def __init__(self, screen: Callable[[], Screen]) -> None:
        self._screen = screen
        self._next: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Lists have changed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(AFTER, self._step)

    def _step(self) -> None:
        more = self._screen().step()
        self._next = asyncio.get_running_loop().call_later(PAUSE, self._step) if more else None

    def close(self) -> None:
        """Look no further."""
        if self._next is not None:
            self._next.cancel()
