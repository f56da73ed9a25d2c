"""The built-in upstream `files`: reads and writes below the configured roots, and nowhere else.

Each name of a path is opened relative to the directory before it, and no symbolic link below a root is followed. So
whoever exchanges a directory or link during a call can redirect it to another file of the root at most, never outside.
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
from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.regular_files import (
    MAX_BYTES,
    NotRegularFile,
    bytes_of,
    exclusive,
    kind_of,
    read,
    replace,
    resolve_range,
    split_lines,
    stat_regular,
    text_of,
    too_large,
)
from mcp_hub.servers.local import tool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult
from mcp_hub.text import printable

Act = Literal["list", "read", "write", "delete"]

_ALLOWS: Final[dict[str, frozenset[Act]]] = {
    "ro": frozenset({"list", "read"}),
    "rw": frozenset({"list", "read", "write", "delete"}),
    "hidden": frozenset({"read", "write"}),
}
_MODE_REASONS: Final = {
    "ro": "is for reading only",
    "hidden": "is not listed, and nothing in it can be deleted",
}
_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True)
class RootedPath:
    """A path as a root and the names below the directory of that root. No names mean that directory itself."""

    root: VirtualRoot
    names: Parts

    def __str__(self) -> str:
        return printable(self.root.at + "/".join(self.names))


@dataclass(frozen=True)
class VirtualRoot:
    """A directory at the virtual path `at`, and its mode: `ro`, `rw` or `hidden`."""

    at: str
    directory: str
    mode: str

    @property
    def parts(self) -> Parts:
        """Returns the virtual path as a list of names, the root first."""
        return parts_of(self.at)


class Roots:
    """The configured roots, each as (virtual path, directory, mode).

    Raises OSError on a system that cannot open files relative to a directory.
    """

    def __init__(self, roots: Sequence[tuple[str, str, str]]) -> None:
        if os.open not in os.supports_dir_fd or not _NO_LINK:
            raise OSError("it needs a system that can open a file below an open directory, which Windows cannot")
        self._roots = sorted((VirtualRoot(*root) for root in roots), key=lambda root: -len(root.parts))

    @property
    def listed(self) -> list[VirtualRoot]:
        """Returns the roots that callers may list, sorted by virtual path."""
        return sorted((root for root in self._roots if "list" in _ALLOWS[root.mode]), key=lambda root: root.at)

    def resolve(self, path: str, act: Act) -> RootedPath:
        """Resolves the virtual `path` to its root. Raises ToolRefused if `act` is not allowed there."""
        try:
            parts = parts_of(path)
        except ValueError as error:
            text = f"{printable(path, 200)!r} is not a valid path: {error}. {self._root_hint()}"
            raise ToolRefused("invalid_parameters", text) from None
        if ".." in parts:
            raise ToolRefused("permission_denied", f"{printable(path, 200)} contains '..': write the path without it.")
        root = next((root for root in self._roots if parts[: len(root.parts)] == root.parts), None)
        if root is None:
            raise ToolRefused("permission_denied", f"{printable(path, 200)} is not below any root. {self._root_hint()}")
        if act not in _ALLOWS[root.mode]:
            raise ToolRefused("permission_denied", f"{root.at} {_MODE_REASONS[root.mode]}. Nothing was done.")
        return RootedPath(root, parts[len(root.parts) :])

    def _root_hint(self) -> str:
        names = ", ".join(root.at for root in self.listed)
        return f"Paths begin with {names}." if names else "No root can be listed."

    @contextlib.contextmanager
    def opened(self, target: RootedPath, names: Parts, *, make: bool = False) -> Iterator[int]:
        """Opens the directory `names` below the root of `target` and yields its descriptor.

        With `make`, missing directories are created. Raises ToolRefused if a name is not a directory of the root.
        """
        fd = self._open_root(target.root)
        try:
            for depth, name in enumerate(names):
                path = RootedPath(target.root, names[: depth + 1])
                inner = _open_directory(fd, name, path, make=make)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def parent(self, target: RootedPath, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Opens the directory that contains `target`, and yields its descriptor and the name in it.

        Raises ToolRefused.
        """
        if not target.names:
            raise ToolRefused("invalid_parameters", f"{target} is a root, not a file.")
        with self.opened(target, target.names[:-1], make=make) as fd:
            yield fd, target.names[-1]

    def _open_root(self, root: VirtualRoot) -> int:
        try:
            return os.open(root.directory, _DIRECTORY)
        except OSError as error:
            raise ToolRefused("tool_error", f"{root.at} cannot be opened: {error.strerror}.") from None


def _open_directory(fd: int, name: str, path: RootedPath, *, make: bool) -> int:
    for _ in range(2):
        try:
            return os.open(name, _DIRECTORY | _NO_LINK, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise ToolRefused("tool_error", f"There is no directory {path}.") from None
            _make_directory(fd, name, path)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise os_refusal(error, path) from None
            raise ToolRefused(*_directory_refusal(fd, name, path)) from None
    raise ToolRefused("tool_error", f"{path} was removed while it was being opened. Try again.")


def _make_directory(fd: int, name: str, path: RootedPath) -> None:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        pass  # another process made it first
    except OSError as error:
        raise os_refusal(error, path) from None


def _directory_refusal(fd: int, name: str, path: RootedPath) -> tuple[str, str]:
    """Returns (code, text) of the refusal."""
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except OSError:
        return "tool_error", f"{path} is not a directory."
    if stat.S_ISLNK(mode):
        return link_refusal(path)
    return "tool_error", f"{path} is not a directory but {'a file' if stat.S_ISREG(mode) else kind_of(mode)}."


def link_refusal(path: RootedPath) -> tuple[str, str]:
    """Returns (code, text) of the refusal of a symbolic link."""
    return "permission_denied", f"{path} is a symbolic link; symbolic links are not followed."


def os_refusal(error: OSError, path: RootedPath) -> ToolRefused:
    """Returns the refusal for an error of the operating system."""
    code = "permission_denied" if isinstance(error, PermissionError) else "tool_error"
    return ToolRefused(code, f"{path}: {error.strerror or error}.")


MAX_ENTRIES: Final = 10_000
"""Most entries of a directory that are listed; the others are only counted."""


class Files:
    """Carries out the tools. Every method blocks, and changes are made one after the other."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._lock = threading.Lock()

    def read(self, path: str, ranges: list[int] | None) -> str:
        """Returns the text of a file, or of the lines in `ranges` (first and last, inclusive). Raises ToolRefused."""
        target = self._roots.resolve(path, "read")
        text, _ = self._read_text(target)
        if ranges is None:
            return text
        lines = split_lines(text)
        start, end = resolve_range(ranges, len(lines), str(target))
        return "".join(lines[start - 1 : end])

    def write(self, path: str, content: str) -> str:
        """Creates a file or replaces its content, and returns a sentence that says so. Raises ToolRefused."""
        target = self._roots.resolve(path, "write")
        data = bytes_of(content)
        with exclusive(self._lock), self._roots.parent(target, make=True) as (directory, name), _system_errors(target):
            former = stat_regular(name, directory)
            replace(name, data, former, directory)
        return f"{'Created' if former is None else 'Overwrote'} {target} ({len(data):,} bytes)."

    def edit(self, path: str, old_text: str, new_text: str, *, replace_all: bool) -> str:
        """Replaces `old_text` by `new_text` and returns a sentence that says so.

        Raises ToolRefused if `old_text` does not occur, or occurs more than once without `replace_all`.
        """
        target = self._roots.resolve(path, "write")
        if not old_text:
            raise ToolRefused("invalid_parameters", "'old_text' is empty: give the text to be replaced.")
        bytes_of(new_text)
        with exclusive(self._lock):
            text, former = self._read_text(target)
            count = text.count(old_text)
            if count == 0 or (count > 1 and not replace_all):
                problem = "does not occur in it"
                if count:
                    problem = f"occurs {count:,} times: include the lines around it, or set replace_all"
                raise ToolRefused("invalid_parameters", f"{target} was not changed: 'old_text' {problem}.")
            if len(text) + count * (len(new_text) - len(old_text)) > MAX_BYTES:  # before it takes any memory
                raise too_large()
            with self._roots.parent(target) as (directory, name), _system_errors(target):
                replace(name, text.replace(old_text, new_text).encode(), former, directory)
        return f"Replaced {count:,} occurrence{'' if count == 1 else 's'} in {target}."

    def delete(self, path: str) -> str:
        """Deletes one file, or a symbolic link itself, and returns a sentence that says so. Raises ToolRefused."""
        target = self._roots.resolve(path, "delete")
        with exclusive(self._lock), self._roots.parent(target) as (directory, name), _system_errors(target):
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
                stat_regular(name, directory)
            os.unlink(name, dir_fd=directory)
        return f"Deleted {target}."

    def listing(self, path: str) -> ToolResult:
        """Lists a directory; `/` lists the roots. Raises ToolRefused."""
        if path.strip("/") == "" and path:
            roots = [{"name": root.at, "type": "directory", "mode": root.mode} for root in self._roots.listed]
            lines = [f"[DIR] {root['name']} ({root['mode']})" for root in roots]
            return _listing("/", roots, lines, 0)
        target = self._roots.resolve(path, "list")
        entries: list[dict[str, Any]] = []
        left_out = 0
        with (
            self._roots.opened(target, target.names) as directory,
            _system_errors(target),
            os.scandir(directory) as children,
        ):
            for child in children:
                if len(entries) == MAX_ENTRIES or not _is_encodable(child.name):
                    left_out += 1
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    entries.append(_entry_of(child.name, child.stat(follow_symlinks=False)))
        entries.sort(key=lambda entry: str(entry["name"]))
        return _listing(str(target), entries, [_entry_line(entry) for entry in entries], left_out)

    def _read_text(self, target: RootedPath) -> tuple[str, os.stat_result]:
        with self._roots.parent(target) as (directory, name), _system_errors(target):
            data, status = read(name, directory)
        if status.st_nlink > 1:
            text = f"{target} has other names (hard links), which may be outside the root: make a copy of it first."
            raise ToolRefused("permission_denied", text)
        return text_of(data, str(target)), status


@contextlib.contextmanager
def _system_errors(path: RootedPath) -> Iterator[None]:
    """Turns errors of the operating system within the block into ToolRefused."""
    try:
        yield
    except NotRegularFile as error:
        if error.is_link:
            raise ToolRefused(*link_refusal(path)) from None
        raise ToolRefused("tool_error", f"{path} is not a file but {error}.") from None
    except FileNotFoundError:
        raise ToolRefused("tool_error", f"There is no file {path}.") from None
    except OSError as error:
        if error.errno == errno.ELOOP:  # it became a link after it was checked
            raise ToolRefused(*link_refusal(path)) from None
        raise os_refusal(error, path) from None


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entry_of(name: str, status: os.stat_result) -> dict[str, Any]:
    if stat.S_ISDIR(status.st_mode):
        return {"name": name, "type": "directory"}
    if stat.S_ISREG(status.st_mode):
        return {"name": name, "type": "file", "size": status.st_size}
    return {"name": name, "type": "link" if stat.S_ISLNK(status.st_mode) else "special"}


def _entry_line(entry: dict[str, Any]) -> str:
    kind = {"directory": "DIR", "file": "FILE", "link": "LINK"}.get(entry["type"], "SPECIAL")
    size = f" ({entry['size']:,} bytes)" if "size" in entry else ""
    return f"[{kind}] {printable(entry['name'])}{size}"


def _listing(path: str, entries: list[dict[str, Any]], lines: list[str], left_out: int) -> ToolResult:
    if left_out:
        lines.append(f"[{left_out:,} more are left out: there are too many, or their names are not text]")
    text = "\n".join(lines) or "(empty)"
    structured = {"path": path, "entries": entries, "left_out": left_out}
    return ToolResult([{"type": "text", "text": text}], structured=structured)


_PATH: Final = "Absolute path below one of the roots, such as /workspace/notes.txt"


def tools(settings: Settings) -> list[Callable[..., Any]]:
    """Returns the functions of this upstream. Raises OSError on Windows."""
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
