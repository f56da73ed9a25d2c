"""The built-in upstream `files`: reading and writing below the roots of the configuration, and nowhere else.

Every name is opened by itself, below the one before it, and no symbolic link below a root is followed: what somebody
exchanges in between can be another file of the root, never one outside of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from mcp_hub.security.file_access import Parts, parts_of
from mcp_hub.servers.builtin.regular_files import (
    NotRegular,
    WrongRange,
    bytes_of,
    kind_of,
    lines_of,
    looked_at,
    read,
    replace,
    resolved,
    text_of,
)
from mcp_hub.servers.builtin.settings import Settings
from mcp_hub.servers.local.registry import tool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult
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
class RootedPath:
    """Where a path leads: names below the directory of a root. No names: that directory itself."""

    root: FileRoot
    names: Parts

    def __str__(self) -> str:
        return printable(self.root.at + "/".join(self.names))


@dataclass(frozen=True)
class FileRoot:
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
        self._roots = sorted((FileRoot(*root) for root in roots), key=lambda root: -len(root.parts))

    @property
    def listed(self) -> list[FileRoot]:
        """Those that may be seen, by name."""
        return sorted((root for root in self._roots if "list" in _ALLOWS[root.mode]), key=lambda root: root.at)

    def place(self, path: str, act: Act) -> RootedPath:
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
        return RootedPath(root, parts[len(root.parts) :])

    def _known(self) -> str:
        names = ", ".join(root.at for root in self.listed)
        return f"Paths begin with {names}." if names else "There is no root that is listed."

    @contextlib.contextmanager
    def opened(self, place: RootedPath, names: Parts, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the directory `names` of the place's root; with `make`, missing ones are made.

        Raises ToolRefused for what is no directory of the root.
        """
        fd = self._open_root(place.root)
        try:
            for depth, name in enumerate(names):
                shown = RootedPath(place.root, names[: depth + 1])
                below = _below(fd, name, shown, make=make)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def parent(self, place: RootedPath, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory in which it is, and its name there. Raises ToolRefused."""
        if not place.names:
            raise ToolRefused("invalid_parameters", f"{place} is a root, not a file.")
        with self.opened(place, place.names[:-1], make=make) as fd:
            yield fd, place.names[-1]

    def _open_root(self, root: FileRoot) -> int:
        try:
            return os.open(root.directory, _DIRECTORY)
        except OSError as error:
            raise ToolRefused("tool_error", f"{root.at} cannot be opened: {error.strerror}.") from None


def _below(fd: int, name: str, shown: RootedPath, *, make: bool) -> int:
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


def _make(fd: int, name: str, shown: RootedPath) -> None:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        pass  # somebody else was as quick
    except OSError as error:
        raise refused(error, shown) from None


def _no_directory(fd: int, name: str, shown: RootedPath) -> tuple[str, str]:
    """(code, text)"""
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except OSError:
        return "tool_error", f"{shown} is no directory."
    if stat.S_ISLNK(mode):
        return linked(shown)
    return "tool_error", f"{shown} is no directory but {'a file' if stat.S_ISREG(mode) else kind_of(mode)}."


def linked(shown: RootedPath) -> tuple[str, str]:
    """(code, text) of a symbolic link."""
    return "permission_denied", f"{shown} is a symbolic link; none is followed, wherever it leads."


def refused(error: OSError, shown: RootedPath) -> ToolRefused:
    """Returns the refusal for an error of the operating system."""
    code = "permission_denied" if isinstance(error, PermissionError) else "tool_error"
    return ToolRefused(code, f"{shown}: {error.strerror or error}.")


MAX_ENTRIES: Final = 10_000
"""Of one directory that are listed; the others are counted."""
LOCK_WAIT: Final = 30.0
"""Seconds a change waits for the one before; longer only on a file system that hangs."""


class Files:
    """What the tools do. All of it blocks; changes are made one after the other."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._changing = threading.Lock()

    def read(self, path: str, ranges: list[int] | None) -> str:
        """The text of a file, or of some of its lines. Raises ToolRefused."""
        place = self._roots.place(path, "read")
        text, _ = self._text(place)
        if ranges is None:
            return text
        lines = lines_of(text)
        try:
            start, end = resolved(ranges, len(lines), str(place))
        except WrongRange as wrong:
            raise ToolRefused("invalid_parameters", str(wrong)) from None
        return "".join(lines[start - 1 : end])

    def write(self, path: str, content: str) -> str:
        """Create a file or write it anew. Raises ToolRefused."""
        place = self._roots.place(path, "write")
        data = bytes_of(content)
        with self._alone(), self._roots.parent(place, make=True) as (directory, name), _system_errors(place):
            former = looked_at(name, directory)
            replace(name, data, former, directory)
        return f"{'Created' if former is None else 'Overwrote'} {place} ({len(data):,} bytes)."

    def edit(self, path: str, old_text: str, new_text: str, *, replace_all: bool) -> str:
        """Put one text in the place of another. Raises ToolRefused if that is not there, or not once."""
        place = self._roots.place(path, "write")
        if not old_text:
            raise ToolRefused("invalid_parameters", "'old_text' is empty: write what is to be replaced.")
        bytes_of(new_text)
        with self._alone():
            text, former = self._text(place)
            count = text.count(old_text)
            if count == 0 or (count > 1 and not replace_all):
                found = "is not in it" if count == 0 else f"is in it {count:,} times: add lines around, or replace_all"
                raise ToolRefused("invalid_parameters", f"{place} was not changed: 'old_text' {found}.")
            with self._roots.parent(place) as (directory, name), _system_errors(place):
                replace(name, text.replace(old_text, new_text).encode(), former, directory)
        return f"Replaced {count:,} occurrence{'' if count == 1 else 's'} in {place}."

    def delete(self, path: str) -> str:
        """Remove one file, or a symbolic link itself. Raises ToolRefused."""
        place = self._roots.place(path, "delete")
        with self._alone(), self._roots.parent(place) as (directory, name), _system_errors(place):
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
                looked_at(name, directory)
            os.unlink(name, dir_fd=directory)
        return f"Deleted {place}."

    def listing(self, path: str) -> ToolResult:
        """What is in a directory; `/` has the roots. Raises ToolRefused."""
        if path.strip("/") == "" and path:
            roots = [{"name": root.at, "type": "directory", "mode": root.mode} for root in self._roots.listed]
            lines = [f"[DIR] {root['name']} ({root['mode']})" for root in roots]
            return _listing("/", roots, lines, 0)
        place = self._roots.place(path, "list")
        entries: list[dict[str, Any]] = []
        left_out = 0
        with self._roots.opened(place, place.names) as directory, _system_errors(place), os.scandir(directory) as found:
            for entry in found:
                if len(entries) == MAX_ENTRIES or not _is_text(entry.name):
                    left_out += 1
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    entries.append(_described(entry.name, entry.stat(follow_symlinks=False)))
        entries.sort(key=lambda one: str(one["name"]))
        return _listing(str(place), entries, [_line(one) for one in entries], left_out)

    def _text(self, place: RootedPath) -> tuple[str, os.stat_result]:
        with self._roots.parent(place) as (directory, name), _system_errors(place):
            data, status = read(name, directory)
        if status.st_nlink > 1:
            text = f"{place} has other names (hard links), which may be outside of the root: make a copy of it first."
            raise ToolRefused("permission_denied", text)
        return text_of(data, str(place)), status

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._changing.acquire(timeout=LOCK_WAIT):
            raise ToolRefused("tool_error", "Another change has not ended yet; nothing was done. Try again.")
        try:
            yield
        finally:
            self._changing.release()


@contextlib.contextmanager
def _system_errors(place: RootedPath) -> Iterator[None]:
    """Errors of the system inside of the block, in words for the caller: ToolRefused."""
    try:
        yield
    except NotRegular as error:
        if error.is_link:
            raise ToolRefused(*linked(place)) from None
        raise ToolRefused("tool_error", f"{place} is no file but {error}.") from None
    except FileNotFoundError:
        raise ToolRefused("tool_error", f"There is no file {place}.") from None
    except OSError as error:
        if error.errno == errno.ELOOP:  # it was none when it was looked at
            raise ToolRefused(*linked(place)) from None
        raise refused(error, place) from None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _described(name: str, status: os.stat_result) -> dict[str, Any]:
    if stat.S_ISDIR(status.st_mode):
        return {"name": name, "type": "directory"}
    if stat.S_ISREG(status.st_mode):
        return {"name": name, "type": "file", "size": status.st_size}
    return {"name": name, "type": "link" if stat.S_ISLNK(status.st_mode) else "special"}


def _line(entry: dict[str, Any]) -> str:
    kind = {"directory": "DIR", "file": "FILE", "link": "LINK"}.get(entry["type"], "SPECIAL")
    size = f" ({entry['size']:,} bytes)" if "size" in entry else ""
    return f"[{kind}] {printable(entry['name'])}{size}"


def _listing(path: str, entries: list[dict[str, Any]], lines: list[str], left_out: int) -> ToolResult:
    if left_out:
        lines.append(f"[{left_out:,} more are left out: too many, or their names are no text]")
    text = "\n".join(lines) or "(empty)"
    structured = {"path": path, "entries": entries, "left_out": left_out}
    return ToolResult([{"type": "text", "text": text}], structured=structured)


_PATH: Final = "Absolute path below one of the roots, such as /workspace/notes.txt"


def tools(settings: Settings) -> list[Callable[..., Any]]:
    """The functions this upstream offers. Raises OSError on Windows."""
    files = Files(Roots(settings.roots))

    @tool(title="Read a text file", annotations={"readOnlyHint": True, "openWorldHint": False})
    def read_text_file(
        path: Annotated[str, _PATH],
        ranges: Annotated[
            list[int] | None, "The first and the last line, both inclusive, such as [1, 100]; [-100, -1] are the last"
        ] = None,
    ) -> str:
        """Read a text file (UTF-8), or some of its lines, exactly as it is."""
        return files.read(path, ranges)

    @tool(title="Write a file", annotations={"destructiveHint": True, "idempotentHint": True, "openWorldHint": False})
    def write_file(path: Annotated[str, _PATH], content: Annotated[str, "All of the new content"]) -> str:
        """Create a text file or overwrite all of it. Directories on the way are made."""
        return files.write(path, content)

    @tool(title="Edit a file", annotations={"destructiveHint": True, "openWorldHint": False})
    def edit_file(
        path: Annotated[str, _PATH],
        old_text: Annotated[str, "The exact text to be replaced; it must be in the file once"],
        new_text: Annotated[str, "What takes its place"],
        replace_all: Annotated[bool, "Replace every occurrence, however many there are"] = False,
    ) -> str:
        """Replace a text in a file by another. The file is changed as a whole or not at all."""
        return files.edit(path, old_text, new_text, replace_all=replace_all)

    @tool(title="Delete a file", annotations={"destructiveHint": True, "openWorldHint": False})
    def delete_file(path: Annotated[str, _PATH]) -> str:
        """Delete one file. Directories cannot be deleted."""
        return files.delete(path)

    @tool(title="List a directory", annotations={"readOnlyHint": True, "openWorldHint": False})
    def list_directory(path: Annotated[str, "Absolute path of a directory; / lists the roots"] = "/") -> ToolResult:
        """List what is in a directory, by name, with the sizes of files."""
        return files.listing(path)

    return [read_text_file, write_file, edit_file, delete_file, list_directory]
