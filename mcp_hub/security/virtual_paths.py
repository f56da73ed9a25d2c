"""Paths as callers of the file tools write them: `/workspace/notes/a.txt`, below roots of the configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

Mode = Literal["ro", "rw", "hidden"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
USUAL_MODES: Final[dict[str, Mode]] = {"/userinput/": "ro", "/workspace/": "rw", "/internal/": "hidden"}
"""Mode of the roots with these names, where none is written; of any other it is `ro`."""
MAX_PATH: Final = 4096

Parts = tuple[str, ...]


def parts_of(path: str) -> Parts:
    """The names in an absolute path, `..` among them if there is one. Raises ValueError for what is no such path."""
    if not path.startswith("/"):
        raise ValueError("a path begins with '/'")
    if len(path) > MAX_PATH:
        raise ValueError(f"a path has at most {MAX_PATH} characters")
    if "\0" in path:
        raise ValueError("a path has no NUL character")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character") from None
    return tuple(part for part in path.split("/") if part not in ("", "."))


def root_name(path: str) -> str:
    """A root as it is shown, with a slash at both ends. Raises ValueError for one that cannot be."""
    parts = parts_of(path)
    if not parts or ".." in parts:
        raise ValueError("a root has a name of its own, such as /workspace/")
    return f"/{'/'.join(parts)}/"


def overlapping(directories: Iterable[str]) -> tuple[str, str] | None:
    """Two directories, given by their real paths, of which one is the other or inside of it."""
    seen: list[tuple[str, Parts]] = []
    for directory in directories:
        parts = tuple(part for part in directory.split("/") if part)
        for other, known in seen:
            shorter = min(len(parts), len(known))
            if parts[:shorter] == known[:shorter]:
                return other, directory
        seen.append((directory, parts))
    return None
