"""stderr, which may be a pipe that nobody reads, a terminal that was stopped, or not there at all."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from typing import Final, TextIO

PIECE: Final = getattr(select, "PIPE_BUF", 4096)
"""Bytes a pipe takes without blocking once it has said that it is writable."""


class Stderr:
    """Written to past its buffer: a thread that hangs in there would hang the end of the interpreter too."""

    def __init__(self) -> None:
        self._stream: TextIO | None = sys.stderr
        self._fd: int | None = None
        # Closed, or a stream of somebody who runs the hub in a process of his own: then it has no number.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._fd = sys.stderr.fileno()
        self.is_terminal = self._stream is not None and not self._stream.closed and self._stream.isatty()

    def writable(self, seconds: float) -> bool:
        """Whether a piece can be written without waiting, now or within so many seconds."""
        if self._fd is None or sys.platform == "win32":
            return True
        try:
            return bool(select.select([], [self._fd], [], seconds)[1])
        except (OSError, ValueError):
            return True

    def write(self, data: bytes) -> int:
        """Write a piece of it; how many bytes that was. Raises OSError when there is nobody to read it ever again."""
        if self._fd is not None:
            try:
                return os.write(self._fd, data[:PIECE])
            except BlockingIOError:
                return 0
        if self._stream is None or self._stream.closed:
            raise io.UnsupportedOperation("there is no stderr")
        self._stream.write(data.decode("utf-8", "backslashreplace"))
        self._stream.flush()
        return len(data)
