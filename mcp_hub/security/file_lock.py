"""Locks between processes: of one open file, and of a directory whose files are read and then replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOCK_WAIT: Final = 10.0
"""Seconds to wait for another process that replaces a file of the directory, which takes milliseconds."""
_POLL: Final = 0.01


def lock(fd: int) -> None:
    """Locks an open file until it is closed. Raises OSError if another process holds the lock."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Keeps other processes of the hub out of the block, so that none overwrites what another one has just written.

    Windows and file systems without locks have no such protection. Raises OSError, TimeoutError after `LOCK_WAIT`.
    """
    if sys.platform == "win32":  # a directory cannot be opened there
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        end = time.monotonic() + LOCK_WAIT
        while True:
            try:
                lock(descriptor)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise TimeoutError(errno.ETIMEDOUT, f"another command is writing in {directory}") from None
                time.sleep(_POLL)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)
