"""The destinations of records: a file that several processes append to and rotate, and stderr."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

MAX_FILE_SIZE: Final = 10 * 1024 * 1024
KEPT_FILES: Final = 3
"""Older files that are kept; `calls.jsonl.1` is the youngest."""

_FLAGS: Final = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a reader fails instead of waiting
    | getattr(os, "O_BINARY", 0)
)


class RecordFile:
    """A private file, rotated by size: made with mode 0600, in a directory that is made with 0700 if missing."""

    def __init__(self, path: Path, *, max_size: int = MAX_FILE_SIZE, kept: int = KEPT_FILES) -> None:
        self.path = path
        self._max_size = max_size
        self._max_older = kept
        self._fd: int | None = None
        self._torn = False
        """Whether the last write ended within a line, as on a full disk."""

    def write(self, lines: bytes) -> None:
        """Appends whole lines. Raises OSError; lines that were not written are lost then."""
        fd = self._open()
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_size and status.st_size + len(lines) > self._max_size:
            fd = self._rotate(fd)
        data = memoryview(b"\n" + lines if self._torn else lines)
        while data:
            written = os.write(fd, data)
            self._torn = data[written - 1] != 0x0A
            data = data[written:]
        if sys.platform == "win32":
            self.close()  # an open file cannot be renamed there, by this hub or another

    def close(self) -> None:
        """Closes the file. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is not None and not self._is_current(self._fd):
            self.close()
        if self._fd is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path, _FLAGS, 0o600)
            try:
                _make_private(fd)
            except OSError:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd

    def _is_current(self, fd: int) -> bool:
        """Returns whether the open file still has its path: another hub, or a person, may have moved it."""
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self, fd: int) -> int:
        """Returns the descriptor to write to. It is the same one as long as a file cannot be renamed."""
        with _locked(fd) as is_alone:
            if is_alone and self._is_current(fd):
                if sys.platform == "win32":
                    self.close()
                with contextlib.suppress(OSError):  # somebody has the file open, on Windows: the next write tries again
                    self._move_older()
        return self._open()

    def _move_older(self) -> None:
        """Renames all files to the next number; the current one first, so that no older file is lost if that fails."""
        if not self._older_path(0).exists():  # left by a rotation that failed on the way
            self.path.rename(self._older_path(0))
        for number in range(self._max_older - 1, -1, -1):
            with contextlib.suppress(FileNotFoundError):
                self._older_path(number).replace(self._older_path(number + 1))

    def _older_path(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _make_private(fd: int) -> None:
    status = os.fstat(fd)
    if sys.platform == "win32" or not stat.S_ISREG(status.st_mode):
        return
    if status.st_uid != os.geteuid():
        if os.geteuid() != 0:
            raise PermissionError("it belongs to another user")
    elif status.st_mode & 0o077:
        os.fchmod(fd, 0o600)


@contextlib.contextmanager
def _locked(fd: int) -> Iterator[bool]:
    """Tries to lock the file for the block; yields whether nobody else is rotating it."""
    if sys.platform == "win32":  # a file that another hub has open cannot be renamed there anyway
        yield True
        return
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)


PIECE: Final = getattr(select, "PIPE_BUF", 4096)
"""Bytes that a writable pipe takes without blocking."""
LARGE_PIECE: Final = 65536
"""Bytes written at once to a descriptor that never blocks."""


class StderrSink:
    """stderr, which may be a pipe that nobody reads, a stopped terminal, or missing.

    It bypasses the stream's buffer: a thread that hangs in its lock would keep the interpreter from ending.
    """

    def __init__(self) -> None:
        self._stream: TextIO | None = sys.stderr
        self._fd: int | None = None
        # A closed stream, or one that the program around the hub has put there, has no descriptor.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._fd = sys.stderr.fileno()
        self.is_terminal = self._stream is not None and not self._stream.closed and self._stream.isatty()
        nonblocking_fd = _nonblocking_fd(self._fd) if self._fd is not None else None
        self._blocks = nonblocking_fd is None
        self._own_fd = nonblocking_fd if nonblocking_fd != self._fd else None
        self._fd = self._fd if nonblocking_fd is None else nonblocking_fd
        self._full = False
        """Whether the last write was cut short."""

    def writable(self, seconds: float) -> bool:
        """Waits at most so many seconds until a piece can be written without blocking; returns whether it can."""
        if self._fd is None or sys.platform == "win32" or not (self._blocks or self._full):
            return True
        try:
            return bool(select.select([], [self._fd], [], seconds)[1])
        except (OSError, ValueError):
            return True

    def write(self, data: bytes) -> int:
        """Writes a piece of the data; returns its size. Raises OSError when nobody will ever read it."""
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
        """Closes what was opened here."""
        if self._own_fd is not None:
            os.close(self._own_fd)
            self._own_fd = self._fd = None


def _nonblocking_fd(fd: int) -> int | None:
    """Returns a descriptor of the same file whose writes never block; None if there is none.

    A pipe is opened anew, which only Linux can, as the mode of a descriptor is shared with other processes.
    """
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and os.path.samestat(os.fstat(fd), Path(os.devnull).stat())):
            return fd
        if sys.platform == "linux" and stat.S_ISFIFO(mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, ValueError):
        return None
    return None
