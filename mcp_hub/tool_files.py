"""The Python files a directory of local tools is made of, as they are now."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAX_FILES: Final = 1000

Stamp = tuple[str, int, int]
"""Path, time of the last change in nanoseconds, size in bytes."""


def tool_files(directory: Path | None) -> tuple[Stamp, ...]:
    """One stamp for every Python file that is read from `directory`; () where there is none."""
    if directory is None:
        return ()
    found = []
    for folder in (directory, directory / "builtin"):
        for path in sorted(folder.glob("*.py"))[:MAX_FILES]:
            try:
                stat = path.stat()
            except OSError:
                continue
            found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(found)
