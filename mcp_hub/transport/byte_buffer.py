"""A buffer that gathers a long message piece by piece, without copying much of it at once."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Final

from mcp_hub.protocol.frames import large_heap

LARGE: Final = 256 * 1024
"""Bytes above which pieces are no longer kept in a list: joining them at the end would take too long."""
HUGE: Final = 8 * 1024 * 1024
"""Bytes above which the memory is mapped at once for the whole message. Growing memory is copied when the allocator
moves it, at 32 MiB for 20 ms; mapped pages take up no memory until they are written."""


class ByteBuffer:
    """Gathers at most `max_size` bytes: in a list, then in a bytearray, then in mapped memory, by its size."""

    __slots__ = ("_long", "_map", "_max_size", "_parts", "size")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._parts: list[bytes] = []
        self._long: bytearray | None = None
        self._map: Any = None
        self.size = 0
        """Bytes that were added and not taken."""

    def add(self, piece: bytes | memoryview) -> None:
        """Adds a piece behind the others. `size` must not become more than `max_size`."""
        end = self.size + len(piece)
        if self._map is None and self._long is not None and end > HUGE:
            self._map = self._map_memory(self._long)
        if self._map is not None:
            self._map[self.size : end] = piece
        elif self._long is not None:
            self._long += piece
        else:
            self._parts.append(bytes(piece))
            if end > LARGE:
                large_heap()
                self._long, self._parts = bytearray(b"".join(self._parts)), []
        self.size = end

    def _map_memory(self, content: bytearray) -> Any:
        """Returns mapped memory of `max_size` bytes that begins with `content`; None if there is not enough memory."""
        if self._max_size <= HUGE:
            return None
        import mmap

        try:
            if sys.platform == "win32":
                mapped = mmap.mmap(-1, self._max_size)
            else:
                mapped = mmap.mmap(-1, self._max_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError):
            self._max_size = 0  # the system does not have that much memory: do not try again
            return None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a kernel without huge pages
                mapped.madvise(mmap.MADV_HUGEPAGE)
        mapped[: len(content)] = content
        self._long = None
        return mapped

    def take(self) -> bytes | memoryview:
        """Returns the bytes; the buffer is empty then."""
        parts, long, mapped, size = self._parts, self._long, self._map, self.size
        self._parts, self._long, self._map, self.size = [], None, None, 0
        if mapped is not None:
            return memoryview(mapped)[:size]
        if long is not None:
            return memoryview(long)
        return parts[0] if len(parts) == 1 else b"".join(parts)
