"""Files as they are now: enough of each to notice that it has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAX_FILES: Final = 1000
"""Files of one directory that are looked at."""

FORMATS: Final = frozenset({".yaml", ".yml", ".json", ".jsonc", ".json5", ".toml"})
"""What files of definitions end in."""

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
    paths = [path for folder in (directory, directory / "builtin") for path in python_files(folder)]
    return tuple(found for path in paths if (found := stamp(path)) is not None)


def python_files(folder: Path) -> tuple[Path, ...]:
    """The Python files in a folder, by name; () where there is none."""
    return tuple(sorted(folder.glob("*.py"))[:MAX_FILES])


def folder_files(folder: Path) -> tuple[Path, ...]:
    """The files of definitions in a folder, by name; not those that begin with `_` or `.`. () where there is none."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in FORMATS)
    except OSError:
        return ()
    return tuple(folder / name for name in names if not name.startswith(("_", ".")))[:MAX_FILES]
