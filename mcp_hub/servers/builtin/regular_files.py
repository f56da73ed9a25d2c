"""Regular files, read and replaced whole, and their lines by number.

Reading is bounded and never blocked by what only looks like a file; a file is never half written. With `directory`, a
descriptor, `name` is one name in it and no link is followed. Lines count from 1, ranges are inclusive, -1 is the last.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
from collections.abc import Sequence
from typing import Final

from mcp_hub.servers.local.tool_results import ToolRefused

AROUND: Final = 5
"""Lines shown before and after a change."""


class WrongRange(ValueError):
    """The numbers are none of lines of this text; `str()` says why."""


def lines_of(text: str) -> list[str]:
    """Its lines with their ends, whichever these are."""
    return io.StringIO(text, newline="").readlines()


def resolved(ranges: Sequence[int], count: int, shown: str) -> tuple[int, int]:
    """First and last line, both there, of a range in a text of `count` lines. Raises WrongRange."""
    if len(ranges) != 2 or any(isinstance(number, bool) or not isinstance(number, int) for number in ranges):
        text = f"InvalidArgumentError: Invalid range format. Expected a list of two integers, but got {list(ranges)}."
        raise WrongRange(text)
    if 0 in ranges:
        raise WrongRange(
            f"InvalidArgumentError: Lines are counted from 1 (or -1 from the end), but got {list(ranges)}."
        )
    first, last = ranges
    if first > last and (first > 0) == (last > 0):
        raise _backwards(ranges)
    start, end = (number if number > 0 else count + 1 + number for number in ranges)
    if start > count or end < 1:
        text = f"The range '{list(ranges)}' is out of bounds for the file '{shown}', which has only {count} lines."
        raise WrongRange(f"InvalidArgumentError: {text}")
    start = max(start, 1)  # the last 100 lines of a shorter file are all of it
    if start > end:
        raise _backwards(ranges)
    return start, min(end, count)


def _backwards(ranges: Sequence[int]) -> WrongRange:
    text = f"The start line is greater than the end line in the given range {list(ranges)}."
    return WrongRange(f"InvalidArgumentError: {text}")


def numbered(lines: Sequence[str], start: int, end: int) -> str:
    """`N: line` for each of them, with plain line ends."""
    return "".join(f"{start + index}: {_plain_line(line)}" for index, line in enumerate(lines[start - 1 : end]))


def _plain_line(line: str) -> str:
    text = line.rstrip("\r\n")
    return text if text == line else f"{text}\n"


def line_end(lines: Sequence[str]) -> str:
    """How lines of this text end."""
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def replaced(lines: Sequence[str], start: int, end: int, content: str) -> list[str]:
    """The lines with others in the place of `start` to `end`; what follows begins a line of its own."""
    if content and not content.endswith("\n") and (end < len(lines) or lines[end - 1].endswith(("\n", "\r"))):
        content += line_end(lines)
    return lines_of("".join([*lines[: start - 1], content, *lines[end:]]))


def inserted(lines: Sequence[str], number: int, content: str) -> list[str]:
    """The lines with `content` as line `number`, 1 to one more than there are. Raises WrongRange."""
    if not 1 <= number <= len(lines) + 1:
        text = f"The given line_number ({number}) is not in the valid range [1, {len(lines) + 1}]."
        raise WrongRange(f"InvalidArgumentsError: {text}")
    before, after = list(lines[: number - 1]), lines[number - 1 :]
    unended = bool(before) and not before[-1].endswith(("\n", "\r"))
    if unended:  # only the last line can be: the new one ends as it did
        before[-1] += line_end(lines)
    elif not content.endswith("\n"):
        content += line_end(lines)
    return lines_of("".join([*before, content, *after]))


def around(before: int, after: int, start: int, end: int) -> tuple[int, int]:
    """First and last line to be shown of a change of lines `start` to `end` that made `after` lines of `before`."""
    return max(1, start - AROUND), min(end + after - before + AROUND, after)


MAX_BYTES: Final = 16 * 1024 * 1024
"""Of one file, read or written; an answer with more could not be sent."""
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_KIND: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """It is there and no regular file; `str()` says what it is."""

    def __init__(self, mode: int) -> None:
        super().__init__(kind_of(mode))
        self.is_link = stat.S_ISLNK(mode)


def kind_of(mode: int) -> str:
    """What it is, if it is no regular file."""
    return _KIND.get(stat.S_IFMT(mode), "no regular file")


def looked_at(name: str, directory: int | None = None) -> os.stat_result | None:
    """The status of a file that is there, None if there is none. Raises NotRegular, OSError."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=directory is None)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(found.st_mode)
    return found


def read(name: str, directory: int | None = None) -> tuple[bytes, os.stat_result]:
    """All bytes of a file and its status. Raises ToolRefused if they are too many; NotRegular, OSError."""
    if looked_at(name, directory) is None:  # before it is opened: opening some devices does something
        raise FileNotFoundError(name)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS  # it may have become a pipe that nobody writes to
    if directory is not None:
        flags |= os.O_NOFOLLOW
    fd = os.open(name, flags, dir_fd=directory)
    with os.fdopen(fd, "rb", buffering=0) as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular(found.st_mode)
        data = bytearray()
        while chunk := file.read(min(1024 * 1024, MAX_BYTES + 1 - len(data))):
            data += chunk
            if len(data) > MAX_BYTES:
                raise too_large()
    return bytes(data), found


def replace(name: str, data: bytes, former: os.stat_result | None, directory: int | None = None) -> None:
    """Write a file anew, in the place of the one with the status `former` (None: of none) and with its permissions.

    Raises ToolRefused if it is too large or there is another file by now; NotRegular, OSError. Then nothing is changed.
    """
    if len(data) > MAX_BYTES:
        raise too_large()
    folder, base = ("", name) if directory is not None else os.path.split(name)
    beside = os.path.join(folder, f".mcp-hub-{secrets.token_hex(8)}")  # noqa: PTH118 - a name below a descriptor
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if former is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, stat.S_IMODE(former.st_mode) & 0o777)
            os.fsync(fd)
        if not _same(looked_at(name, directory), former):
            text = f"{base} was changed by somebody else meanwhile; nothing was written. Read it again."
            raise ToolRefused("tool_error", text)
        os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=directory)
        raise


def _same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) == (
        other.st_dev,
        other.st_ino,
        other.st_size,
        other.st_mtime_ns,
    )


def too_large() -> ToolRefused:
    """Returns the refusal of a file that is too large."""
    return ToolRefused("result_too_large", f"A file of these tools has at most {MAX_BYTES:,} bytes.")


def text_of(data: bytes, shown: str) -> str:
    """The text in the bytes of a file. Raises ToolRefused if it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = f"{shown} is no text in UTF-8: byte {error.start:,} does not fit. It was not changed."
        raise ToolRefused("tool_error", text) from None


def bytes_of(text: str) -> bytes:
    """The bytes of a text. Raises ToolRefused for one that no file can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        said = "The text holds half of a surrogate pair, which no file can. Nothing was written."
        raise ToolRefused("invalid_parameters", said) from None
