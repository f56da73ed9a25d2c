"""The built-in upstream `files`: reading and writing below the roots of the configuration, and nowhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

from mcp_hub.servers.builtin.line_ranges import WrongRange, lines_of, resolved
from mcp_hub.servers.builtin.regular_files import NotRegular, bytes_of, looked_at, read, replace, text_of
from mcp_hub.servers.builtin.roots import Place, Roots, linked, refused
from mcp_hub.servers.builtin.settings import Settings
from mcp_hub.servers.local.registry import tool
from mcp_hub.servers.local.results import ToolRefused, ToolResult
from mcp_hub.text import printable

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
        with self._alone(), self._roots.parent(place, make=True) as (directory, name), _said(place):
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
            with self._roots.parent(place) as (directory, name), _said(place):
                replace(name, text.replace(old_text, new_text).encode(), former, directory)
        return f"Replaced {count:,} occurrence{'' if count == 1 else 's'} in {place}."

    def delete(self, path: str) -> str:
        """Remove one file, or a symbolic link itself. Raises ToolRefused."""
        place = self._roots.place(path, "delete")
        with self._alone(), self._roots.parent(place) as (directory, name), _said(place):
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
        with self._roots.opened(place, place.names) as directory, _said(place), os.scandir(directory) as found:
            for entry in found:
                if len(entries) == MAX_ENTRIES or not _is_text(entry.name):
                    left_out += 1
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    entries.append(_described(entry.name, entry.stat(follow_symlinks=False)))
        entries.sort(key=lambda one: str(one["name"]))
        return _listing(str(place), entries, [_line(one) for one in entries], left_out)

    def _text(self, place: Place) -> tuple[str, os.stat_result]:
        with self._roots.parent(place) as (directory, name), _said(place):
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
def _said(place: Place) -> Iterator[None]:
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
