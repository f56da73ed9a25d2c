"""A lock on a directory, for commands that read a file in it and replace it by a changed one."""

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


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keeps other processes of the hub out of the block, so that none overwrites what another one has just written.

    Windows and file systems without locks have no such protection. Raises OSError, TimeoutError after `LOCK_WAIT`.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        end = time.monotonic() + LOCK_WAIT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
