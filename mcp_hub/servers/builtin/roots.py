"""Directories under virtual paths, and no way out of them: every name is opened by itself, below the one before it.

No symbolic link below a root is followed, wherever it leads, and no path is ever put together for the system to walk:
what somebody exchanges in between can be another file of the root, never one outside of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mcp_hub.security.virtual_paths import Parts, parts_of
from mcp_hub.servers.builtin.regular_files import kind_of
from mcp_hub.servers.local.results import ToolRefused
from mcp_hub.text import printable

Act = Literal["list", "read", "write", "delete"]

_ALLOWS: Final[dict[str, frozenset[Act]]] = {
    "ro": frozenset({"list", "read"}),
    "rw": frozenset({"list", "read", "write", "delete"}),
    "hidden": frozenset({"read", "write"}),
}
_WHY: Final = {
    "ro": "is for reading only",
    "hidden": "is not listed, and nothing in it can be deleted",
}
_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True)
class Place:
    """Where a path leads: names below the directory of a root. No names: that directory itself."""

    root: Root
    names: Parts

    def __str__(self) -> str:
        return printable(self.root.at + "/".join(self.names))


@dataclass(frozen=True)
class Root:
    """One directory and what may be done in it."""

    at: str
    directory: str
    mode: str

    @property
    def parts(self) -> Parts:
        """The names of its virtual path."""
        return parts_of(self.at)


class Roots:
    """All of them. Raises OSError on a system that cannot open files below a directory."""

    def __init__(self, roots: Sequence[tuple[str, str, str]]) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise OSError("it needs a system that can open a file below an open directory, which Windows cannot")
        self._roots = sorted((Root(*root) for root in roots), key=lambda root: -len(root.parts))

    @property
    def listed(self) -> list[Root]:
        """Those that may be seen, by name."""
        return sorted((root for root in self._roots if "list" in _ALLOWS[root.mode]), key=lambda root: root.at)

    def place(self, path: str, act: Act) -> Place:
        """Where `path` leads, if `act` may be done there. Raises ToolRefused."""
        try:
            parts = parts_of(path)
        except ValueError as error:
            text = f"{printable(path, 200)!r} is no path here: {error}. {self._known()}"
            raise ToolRefused("invalid_parameters", text) from None
        if ".." in parts:
            raise ToolRefused("permission_denied", f"{printable(path, 200)} holds '..': write the path itself.")
        root = next((root for root in self._roots if parts[: len(root.parts)] == root.parts), None)
        if root is None:
            raise ToolRefused("permission_denied", f"{printable(path, 200)} is below no root. {self._known()}")
        if act not in _ALLOWS[root.mode]:
            raise ToolRefused("permission_denied", f"{root.at} {_WHY[root.mode]}. Nothing was done.")
        return Place(root, parts[len(root.parts) :])

    def _known(self) -> str:
        names = ", ".join(root.at for root in self.listed)
        return f"Paths begin with {names}." if names else "There is no root that is listed."

    @contextlib.contextmanager
    def opened(self, place: Place, names: Parts, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the directory `names` of the place's root; with `make`, missing ones are made.

        Raises ToolRefused for what is no directory of the root.
        """
        fd = self._open_root(place.root)
        try:
            for depth, name in enumerate(names):
                shown = Place(place.root, names[: depth + 1])
                below = _below(fd, name, shown, make=make)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def parent(self, place: Place, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory in which it is, and its name there. Raises ToolRefused."""
        if not place.names:
            raise ToolRefused("invalid_parameters", f"{place} is a root, not a file.")
        with self.opened(place, place.names[:-1], make=make) as fd:
            yield fd, place.names[-1]

    def _open_root(self, root: Root) -> int:
        try:
            return os.open(root.directory, _DIRECTORY)
        except OSError as error:
            raise ToolRefused("tool_error", f"{root.at} cannot be opened: {error.strerror}.") from None


def _below(fd: int, name: str, shown: Place, *, make: bool) -> int:
    for _ in range(2):
        try:
            return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise ToolRefused("tool_error", f"There is no directory {shown}.") from None
            _make(fd, name, shown)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise refused(error, shown) from None
            raise ToolRefused(*_no_directory(fd, name, shown)) from None
    raise ToolRefused("tool_error", f"{shown} is removed again and again. Try again.")


def _make(fd: int, name: str, shown: Place) -> None:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        pass  # somebody else was as quick
    except OSError as error:
        raise refused(error, shown) from None


def _no_directory(fd: int, name: str, shown: Place) -> tuple[str, str]:
    """(code, text)"""
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except OSError:
        return "tool_error", f"{shown} is no directory."
    if stat.S_ISLNK(mode):
        return linked(shown)
    return "tool_error", f"{shown} is no directory but {'a file' if stat.S_ISREG(mode) else kind_of(mode)}."


def linked(shown: Place) -> tuple[str, str]:
    """(code, text) of a symbolic link."""
    return "permission_denied", f"{shown} is a symbolic link; none is followed, wherever it leads."


def refused(error: OSError, shown: Place) -> ToolRefused:
    """What is said of an error of the system."""
    code = "permission_denied" if isinstance(error, PermissionError) else "tool_error"
    return ToolRefused(code, f"{shown}: {error.strerror or error}.")
