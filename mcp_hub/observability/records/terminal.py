"""stderr, which may be a pipe that nobody reads, a terminal that was stopped, or not there at all."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
from pathlib import Path
from typing import Final, TextIO

PIECE: Final = getattr(select, "PIPE_BUF", 4096)
"""Bytes a pipe takes without blocking once it has said that it is writable."""
LARGE_PIECE: Final = 65536
"""Bytes written at once to what does not block: each call costs the loop's thread a moment."""


class Stderr:
    """Written to past its buffer: a thread that hangs in there would hang the end of the interpreter too."""

    def __init__(self) -> None:
        self._stream: TextIO | None = sys.stderr
        self._fd: int | None = None
        # Closed, or a stream of somebody who runs the hub in a process of his own: then it has no number.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._fd = sys.stderr.fileno()
        self.is_terminal = self._stream is not None and not self._stream.closed and self._stream.isatty()
        unblocked = _unblocked(self._fd) if self._fd is not None else None
        self._blocks = unblocked is None
        self._own = unblocked if unblocked != self._fd else None
        self._fd = self._fd if unblocked is None else unblocked
        self._full = False
        """Whether it did not take all of the last piece."""

    def writable(self, seconds: float) -> bool:
        """Whether a piece can be written without waiting, now or within so many seconds."""
        if self._fd is None or sys.platform == "win32" or not (self._blocks or self._full):
            return True
        try:
            return bool(select.select([], [self._fd], [], seconds)[1])
        except (OSError, ValueError):
            return True

    def write(self, data: bytes) -> int:
        """Write a piece of it; how many bytes that was. Raises OSError when there is nobody to read it ever again."""
        if self._fd is not None:
            piece = data[: PIECE if self._blocks else LARGE_PIECE]
            try:
                written = os.write(self._fd, piece)
            except BlockingIOError:
                written = 0
            self._full = written < len(piece)
            return written
        if self._stream is None or self._stream.closed:
            raise io.UnsupportedOperation("there is no stderr")
        self._stream.write(data.decode("utf-8", "backslashreplace"))
        self._stream.flush()
        return len(data)

    def close(self) -> None:
        """Nothing more will be written."""
        if self._own is not None:
            os.close(self._own)
            self._own = self._fd = None


def _unblocked(fd: int) -> int | None:
    """A number of the same file whose writes never wait; None if there is none.

    A pipe is opened anew, for its mode belongs to everybody who has it.
    """
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and os.path.samestat(os.fstat(fd), Path(os.devnull).stat())):
            return fd
        if stat.S_ISFIFO(mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, ValueError):
        return None
    return None
