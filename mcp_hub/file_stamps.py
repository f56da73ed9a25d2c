"""Files as they are now: enough of each to notice that it has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAX_FILES: Final = 1000
"""Python files of one directory that are looked at."""

Stamp = tuple[str, int, int, int]
"""Path, time of the last change in nanoseconds, size in bytes, inode."""


def stamp(path: Path) -> Stamp | None:
    """What a file is now, behind all links; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (str(path), found.st_mtime_ns, found.st_size, found.st_ino)


def tool_files(directory: Path | None) -> tuple[Stamp, ...]:
    """A stamp of every Python file that is read from a directory of local tools; () where there is none."""
    if directory is None:
        return ()
    paths = [path for folder in (directory, directory / "builtin") for path in sorted(folder.glob("*.py"))[:MAX_FILES]]
    return tuple(found for path in paths if (found := stamp(path)) is not None)
