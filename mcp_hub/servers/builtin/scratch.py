"""A private directory for as long as this process lives; those of processes that were killed are swept away."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO, Final

try:
    import fcntl
except ImportError:  # Windows: nothing is swept there, the system's own clean-up does it
    fcntl = None  # type: ignore[assignment]

_LOCK: Final = "in-use"
_TRIES: Final = 10
_BETWEEN: Final = 0.1
_YOUNG: Final = 60.0
"""Seconds in which a directory may have been made and not locked yet."""


class Scratch:
    """A new directory `mcp-hub-NAME-...` that only this user can enter, locked while it is in use."""

    def __init__(self, name: str) -> None:
        prefix = f"mcp-hub-{name}-"
        _sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = lock(self.path / _LOCK)

    def remove(self) -> None:
        """Take it away with all that is in it, waiting a second at most; what is left then is swept later."""
        if self._lock is not None:
            self._lock.close()
        for _ in range(_TRIES):
            remove_tree(self.path)
            if not self.path.exists():
                return
            time.sleep(_BETWEEN)  # a browser that is just ending still writes


def remove_tree(path: Path) -> None:
    """Remove what can be removed; a tree that is deeper than Python can follow stays."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)


def lock(file: Path) -> IO[bytes] | None:
    """The open, locked file; closing it or dying gives it free. None if another process has it."""
    opened = file.open("ab")
    if fcntl is not None:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            opened.close()
            return None
    return opened


def _sweep(prefix: str) -> None:
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid != os.getuid() or path.is_symlink() or time.time() - status.st_mtime < _YOUNG:
                continue
            held = lock(path / _LOCK)
            if held is not None:
                remove_tree(path)
                held.close()
