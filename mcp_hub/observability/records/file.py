"""A file that lines are appended to, by any number of processes, and that is rotated by its size."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_SIZE: Final = 10 * 1024 * 1024
KEPT: Final = 3
"""Older files, `calls.jsonl.1` being the youngest."""

_FLAGS: Final = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_NONBLOCK", 0)  # of a pipe without a reader an error, not a wait
    | getattr(os, "O_BINARY", 0)
)


class RecordFile:
    """For its user's eyes only: made with mode 0600, in a directory that is made with 0700 if there is none."""

    def __init__(self, path: Path, *, max_size: int = MAX_SIZE, kept: int = KEPT) -> None:
        self.path = path
        self._max_size = max_size
        self._kept = kept
        self._fd: int | None = None
        self._torn = False
        """Whether half a line was written last, because the disk was full say."""

    def write(self, lines: bytes) -> None:
        """Append whole lines. Raises OSError; what was not written then is lost."""
        fd = self._open()
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_size and status.st_size + len(lines) > self._max_size:
            fd = self._rotate(fd)
        data = memoryview(b"\n" + lines if self._torn else lines)
        while data:
            written = os.write(fd, data)
            self._torn = data[written - 1] != 0x0A
            data = data[written:]

    def close(self) -> None:
        """Idempotent."""
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
        """Whether the file is still where it was: another hub, or a person, may have moved it away."""
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self, fd: int) -> int:
        with _locked(fd) as alone:
            if alone and self._is_current(fd):
                if sys.platform == "win32":
                    self.close()  # or it could not be renamed
                for number in range(self._kept - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        self._older(number).replace(self._older(number + 1))
                self.path.replace(self._older(1))
        return self._open()

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _make_private(fd: int) -> None:
    status = os.fstat(fd)
    if not hasattr(os, "geteuid") or not stat.S_ISREG(status.st_mode):
        return
    if status.st_uid != os.geteuid():
        if os.geteuid() != 0:
            raise PermissionError("it belongs to another user")
    elif status.st_mode & 0o077:
        os.fchmod(fd, 0o600)


@contextlib.contextmanager
def _locked(fd: int) -> Iterator[bool]:
    """Whether nobody else is rotating this file, as long as the block runs."""
    try:
        import fcntl
    except ImportError:  # Windows, where a file that another hub has open cannot be renamed anyway
        yield True
        return
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
