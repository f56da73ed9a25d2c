"""Private temporary directories that live as long as this process. Those of killed processes are removed later."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final

from mcp_hub.security import private_files
from mcp_hub.security.private_files import remove_tree

_LOCK: Final = "in-use"
_TRIES: Final = 10
_RETRY_WAIT: Final = 0.1
_MIN_AGE: Final = 60.0
"""Seconds after its creation in which a directory may not be locked yet."""


class Scratch:
    """A new directory `mcp-hub-NAME-...` that only this user can enter, locked while it is in use."""

    def __init__(self, name: str) -> None:
        prefix = f"mcp-hub-{name}-"
        _sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = lock(self.path / _LOCK)

    def remove(self) -> None:
        """Removes the directory, trying for up to a second. What is left then is removed by a later process."""
        if self._lock is not None:
            self._lock.close()
        for _ in range(_TRIES):
            remove_tree(self.path)
            if not self.path.exists():
                return
            time.sleep(_RETRY_WAIT)  # a browser that is ending still writes files


def lock(file: Path) -> IO[bytes] | None:
    """Locks a file and returns it opened, or None if another process holds the lock.

    Closing the file releases the lock, and so does the end of the process.
    """
    stream = file.open("ab")
    try:
        stream.seek(0)  # Windows locks a byte at this place
        private_files.lock(stream.fileno())
    except OSError:
        stream.close()
        return None
    return stream


def _sweep(prefix: str) -> None:
    if sys.platform == "win32":
        return  # the system itself cleans up temporary directories
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid != os.getuid() or path.is_symlink() or time.time() - status.st_mtime < _MIN_AGE:
                continue
            lock_file = lock(path / _LOCK)
            if lock_file is not None:
                remove_tree(path)
                lock_file.close()
