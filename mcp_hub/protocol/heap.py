"""Memory of large messages: kept for the next one instead of given back at once, and given back when none comes.

A message of a megabyte passes through half a dozen buffers of its size. glibc returns each to the kernel as soon as it
is free, and the pages of the next are mapped, cleared and counted anew: half of the time such a message takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import Any, Final

LARGE: Final = 256 * 1024
"""Bytes of a message from which on this is worth it."""
KEPT: Final = 5.0
"""Seconds after the last large message until its memory is given back."""
MOST: Final = 64 * 1024 * 1024
"""Bytes that are kept at most."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_MOST: Final = 32 * 1024 * 1024
"""The largest value glibc takes: what is larger is always mapped and unmapped by itself."""


class _Heap:
    """That of the process. Nothing is changed of it until `own`: the program may be somebody else's."""

    def __init__(self) -> None:
        self._unset = False
        """Whether it is the hub's own, and its settings are still those of glibc."""
        self._allocator: Any = None
        """The C library; None where it has no such settings, or before the first large message."""
        self._last = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that will give back."""

    def own(self) -> None:
        """The process is the hub's own."""
        self._unset = True

    def large(self) -> None:
        """A large message is here. Never raises."""
        self._last = time.monotonic()
        if self._unset:
            self._unset = False
            self._allocator = _allocator()
            if self._allocator is not None:
                self._allocator.mallopt(_M_TRIM_THRESHOLD, MOST)
                self._allocator.mallopt(_M_MMAP_THRESHOLD, _MMAP_MOST)
        if self._allocator is not None and self._loop is None:
            with contextlib.suppress(RuntimeError):  # no loop runs in this thread
                self._loop = asyncio.get_running_loop()
                self._loop.call_later(KEPT, self._give_back)

    def _give_back(self) -> None:
        loop, self._loop = self._loop, None
        waited = time.monotonic() - self._last
        if waited < KEPT and loop is not None:
            self._loop = loop
            loop.call_later(KEPT - waited, self._give_back)
            return
        self._allocator.malloc_trim(0)


def _allocator() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (ImportError, OSError):
        return None


_heap: Final = _Heap()
own: Final = _heap.own
large: Final = _heap.large
