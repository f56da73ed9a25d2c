"""Reads and replaces whole regular files, and finds their lines by number.

Reading is bounded, and devices or pipes never block it; a file is never half written. If `directory`, a descriptor, is
given, `name` is a single name in it and no link is followed. Lines count from 1, ranges are inclusive, -1 is the last.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from mcp_hub.servers.local.tool_results import ToolRefused

LOCK_WAIT: Final = 30.0
"""Seconds a change waits for the change before it. It takes longer only on a file system that hangs."""
AROUND: Final = 5
"""Lines shown before and after a change."""


def split_lines(text: str) -> list[str]:
    """Splits a text into lines with their line ends, whichever these are."""
    return io.StringIO(text, newline="").readlines()


def resolve_range(ranges: Sequence[int], count: int, path: str) -> tuple[int, int]:
    """Returns the first and last line number of a range in a text of `count` lines. Both exist.

    `path` is the one that the error message shows. Raises ToolRefused.
    """
    if len(ranges) != 2 or any(isinstance(number, bool) or not isinstance(number, int) for number in ranges):
        text = f"InvalidArgumentError: Invalid range format. Expected a list of two integers, but got {list(ranges)}."
        raise ToolRefused("invalid_parameters", text)
    if 0 in ranges:
        text = f"InvalidArgumentError: Lines are counted from 1 (or -1 from the end), but got {list(ranges)}."
        raise ToolRefused("invalid_parameters", text)
    first, last = ranges
    if first > last and (first > 0) == (last > 0):
        raise _reversed_range(ranges)
    start, end = (number if number > 0 else count + 1 + number for number in ranges)
    if start > count or end < 1:
        text = f"The range '{list(ranges)}' is out of bounds for the file '{path}', which has only {count} lines."
        raise ToolRefused("invalid_parameters", f"InvalidArgumentError: {text}")
    start = max(start, 1)  # "the last 100 lines" of a shorter file are all of them
    if start > end:
        raise _reversed_range(ranges)
    return start, min(end, count)


def _reversed_range(ranges: Sequence[int]) -> ToolRefused:
    text = f"The start line is greater than the end line in the given range {list(ranges)}."
    return ToolRefused("invalid_parameters", f"InvalidArgumentError: {text}")


def number_lines(lines: Sequence[str], start: int, end: int) -> str:
    """Returns `N: line` for each line from `start` to `end`, with plain line ends."""
    return "".join(f"{start + index}: {_plain_line(line)}" for index, line in enumerate(lines[start - 1 : end]))


def _plain_line(line: str) -> str:
    text = line.rstrip("\r\n")
    return text if text == line else f"{text}\n"


def line_end(lines: Sequence[str]) -> str:
    """Returns the line end of the first line, which is used for the whole text."""
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def replace_lines(lines: Sequence[str], start: int, end: int, content: str) -> list[str]:
    """Returns the lines with `content` in the place of lines `start` to `end`. What follows begins on its own line."""
    if content and not content.endswith("\n") and (end < len(lines) or lines[end - 1].endswith(("\n", "\r"))):
        content += line_end(lines)
    return split_lines("".join([*lines[: start - 1], content, *lines[end:]]))


def insert_lines(lines: Sequence[str], number: int, content: str) -> list[str]:
    """Returns the lines with `content` inserted before line `number`; one more than the last line appends.

    Raises ToolRefused.
    """
    if not 1 <= number <= len(lines) + 1:
        text = f"The given line_number ({number}) is not in the valid range [1, {len(lines) + 1}]."
        raise ToolRefused("invalid_parameters", f"InvalidArgumentsError: {text}")
    before, after = list(lines[: number - 1]), lines[number - 1 :]
    lacks_line_end = bool(before) and not before[-1].endswith(("\n", "\r"))
    if lacks_line_end:  # only the last line can lack its end: the new last line lacks it as well
        before[-1] += line_end(lines)
    elif not content.endswith("\n"):
        content += line_end(lines)
    return split_lines("".join([*before, content, *after]))


def context_range(before: int, after: int, start: int, end: int) -> tuple[int, int]:
    """Returns the first and last line to show of a change of lines `start` to `end`.

    `before` and `after` are the numbers of lines of the text before and after the change.
    """
    return max(1, start - AROUND), min(end + after - before + AROUND, after)


MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of a file that is read or written; a larger answer could not be sent."""
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_KIND: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularFile(OSError):
    """The path exists but is not a regular file. `str()` says what it is."""

    def __init__(self, mode: int) -> None:
        super().__init__(kind_of(mode))
        self.is_link = stat.S_ISLNK(mode)


def kind_of(mode: int) -> str:
    """Returns the kind of a file that is not a regular one, such as "a directory"."""
    return _KIND.get(stat.S_IFMT(mode), "no regular file")


def stat_regular(name: str, directory: int | None = None) -> os.stat_result | None:
    """Returns the status of a regular file, or None if the path does not exist. Raises NotRegularFile and OSError."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=directory is None)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFile(status.st_mode)
    return status


def read(name: str, directory: int | None = None) -> tuple[bytes, os.stat_result]:
    """Returns the content and the status of a file.

    Raises ToolRefused if it is larger than `MAX_BYTES`; NotRegularFile and OSError.
    """
    if stat_regular(name, directory) is None:  # checked before it is opened, as opening some devices has effects
        raise FileNotFoundError(name)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS  # it may have become a pipe without a writer
    if directory is not None:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    fd = os.open(name, flags, dir_fd=directory)
    with os.fdopen(fd, "rb", buffering=0) as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularFile(status.st_mode)
        data = bytearray()
        while chunk := file.read(min(1024 * 1024, MAX_BYTES + 1 - len(data))):
            data += chunk
            if len(data) > MAX_BYTES:
                raise too_large()
    return bytes(data), status


def replace(name: str, data: bytes, former: os.stat_result | None, directory: int | None = None) -> None:
    """Writes a file atomically, in place of the one with the status `former`, whose permissions it keeps.

    `former` is None if no file exists yet. Raises ToolRefused if `data` is too large or the file has changed since;
    NotRegularFile and OSError. After an error nothing is changed.
    """
    if len(data) > MAX_BYTES:
        raise too_large()
    folder, base = ("", name) if directory is not None else os.path.split(name)
    temporary = os.path.join(folder, f".mcp-hub-{secrets.token_hex(8)}")  # noqa: PTH118 - a name below a descriptor
    mode = 0o666 if former is None else 0o600  # others must not read a private file's content while it is written
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if former is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, stat.S_IMODE(former.st_mode) & 0o777)
            os.fsync(fd)
        if not _is_unchanged(stat_regular(name, directory), former):
            text = f"{base} has changed since it was read; nothing was written. Read it again."
            raise ToolRefused("tool_error", text)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _is_unchanged(current: os.stat_result | None, former: os.stat_result | None) -> bool:
    if current is None or former is None:
        return current is former
    return (current.st_dev, current.st_ino, current.st_size, current.st_mtime_ns) == (
        former.st_dev,
        former.st_ino,
        former.st_size,
        former.st_mtime_ns,
    )


@contextlib.contextmanager
def exclusive(lock: threading.Lock) -> Iterator[None]:
    """Holds the lock of those who write. Raises ToolRefused if another keeps it for too long."""
    if not lock.acquire(timeout=LOCK_WAIT):
        raise ToolRefused("tool_error", "Another change is still running; nothing was written. Try again.")
    try:
        yield
    finally:
        lock.release()


def too_large() -> ToolRefused:
    """Returns the refusal of a file that is too large."""
    return ToolRefused("result_too_large", f"These tools handle files of at most {MAX_BYTES:,} bytes.")


def text_of(data: bytes, path: str) -> str:
    """Decodes the content of a file. Raises ToolRefused if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = f"{path} is not text in UTF-8: byte {error.start:,} does not fit. It was not changed."
        raise ToolRefused("tool_error", text) from None


def bytes_of(text: str) -> bytes:
    """Encodes a text as UTF-8. Raises ToolRefused if it contains half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        message = "The text contains half of a surrogate pair, which is not valid text. Nothing was written."
        raise ToolRefused("invalid_parameters", message) from None
