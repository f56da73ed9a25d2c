"""Lines on their way to one destination: bounded, and what did not fit is counted."""

from __future__ import annotations

from collections import deque


class Queue:
    """Not locked: whoever uses it from several threads holds a lock meanwhile."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._lines) or self._dropped > 0

    def put(self, line: bytes) -> None:
        """Append a line; if there is no room, or was none and it is not half empty yet, only count it."""
        if self._dropped or self._size + len(line) > self._max_size:
            self._dropped += 1
        else:
            self._lines.append(line)
            self._size += len(line)

    def take(self, size: int) -> tuple[bytes, int, int]:
        """Lines of about `size` bytes (one at least), how many they are, and how many were dropped before now."""
        taken: list[bytes] = []
        length = 0
        while self._lines and (not taken or length + len(self._lines[0]) <= size):
            taken.append(self._lines.popleft())
            length += len(taken[-1])
        self._size -= length
        dropped = 0
        if self._size <= self._max_size // 2:
            dropped, self._dropped = self._dropped, 0
        return b"".join(taken), len(taken), dropped

    def clear(self) -> None:
        """Forget everything."""
        self._lines.clear()
        self._size = self._dropped = 0
