"""Memory of large messages: kept for the next one instead of given back at once, and given back when none comes.

A message of a megabyte passes through half a dozen buffers of its size. glibc returns each to the kernel as soon as it
is free, and the pages of the next are mapped, cleared and counted anew: half of the time such a message takes.
"""

from __future__ import annotations

import asyncio
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
    """That of the process; `allocator` is the C library, None where it has no such settings."""

    def __init__(self) -> None:
        self._allocator: Any = None
        self._asked = False
        self._last = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that will give back."""

    def large(self) -> None:
        """A large message is here. Never raises."""
        self._last = time.monotonic()
        if not self._asked:
            self._asked = True
            self._allocator = _allocator()
            self._keep(MOST, _MMAP_MOST)
        if self._allocator is not None and (self._loop is None or self._loop.is_closed()):
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                return
            self._loop.call_later(KEPT, self._give_back)

    def _keep(self, most: int, mapped_from: int) -> None:
        if self._allocator is not None:
            self._allocator.mallopt(_M_TRIM_THRESHOLD, most)
            self._allocator.mallopt(_M_MMAP_THRESHOLD, mapped_from)

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


large: Final = _Heap().large
