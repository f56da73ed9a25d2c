"""Text files of this machine by any path: what the tools of AgentScope answer, without their losses.

Line ends, permissions and links stay as they are; a file is replaced whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mcp_hub.servers.builtin.line_ranges import WrongRange, around, inserted, lines_of, numbered, replaced, resolved
from mcp_hub.servers.builtin.regular_files import NotRegular, bytes_of, looked_at, read, replace, text_of
from mcp_hub.servers.local.results import ToolRefused


def view(path: str, ranges: Sequence[int] | None) -> str:
    """The numbered lines of a file. Raises ToolRefused, OSError."""
    lines = _lines(path)
    if ranges is None:
        return f"The content of {path}:\n```\n{numbered(lines, 1, len(lines))}```"
    start, end = _range(ranges, len(lines), path)
    return f"The content of {path} in {list(ranges)} lines:\n```\n{numbered(lines, start, end)}```"


def write(path: str, content: str, ranges: Sequence[int] | None) -> str:
    """Create a file, write it anew, or replace some of its lines. Raises ToolRefused, OSError."""
    target = os.path.realpath(path)
    data = bytes_of(content)
    try:
        there = looked_at(target)
    except NotRegular:
        raise _no_file(path) from None
    if there is None:
        replace(target, data, None)
        if ranges is None:
            return f"Create and write {path} successfully."
        ignored = f"The ranges {list(ranges)} is ignored because the file does not exist."
        return f"Create and write {path} successfully. {ignored}"
    if ranges is None:
        replace(target, data, there)
        return f"Overwrite {path} successfully."
    before, former = read(target)
    lines = lines_of(text_of(before, path))
    start, end = _range(ranges, len(lines), path)
    after = replaced(lines, start, end, content)
    replace(target, "".join(after).encode(), former)
    shown = around(len(lines), len(after), start, end)
    return f"Write {path} successfully. The new content snippet:\n```\n{numbered(after, *shown)}```"


def insert(path: str, content: str, line_number: int) -> str:
    """Put lines before one of a file, or after its last. Raises ToolRefused, OSError."""
    if line_number <= 0:
        text = f"InvalidArgumentsError: The line number {line_number} is invalid. Lines are counted from 1."
        raise ToolRefused("invalid_parameters", text)
    target = os.path.realpath(path)
    bytes_of(content)
    try:
        before, former = read(target)
    except FileNotFoundError:
        text = f"InvalidArgumentsError: The target file {path} does not exist."
        raise ToolRefused("invalid_parameters", text) from None
    except NotRegular:
        raise _no_file(path) from None
    lines = lines_of(text_of(before, path))
    try:
        after = inserted(lines, line_number, content)
    except WrongRange as wrong:
        raise ToolRefused("invalid_parameters", str(wrong)) from None
    replace(target, "".join(after).encode(), former)
    start, end = around(len(lines), len(after), line_number, line_number)
    return (
        f"Insert content into {path} at line {line_number} successfully. "
        f"The new content between lines {start}-{end} is:\n```\n{numbered(after, start, end)}```"
    )


def _lines(path: str) -> list[str]:
    try:
        data, _ = read(path)
    except FileNotFoundError:
        raise ToolRefused("tool_error", f"Error: The file {path} does not exist.") from None
    except NotRegular:
        raise _no_file(path) from None
    return lines_of(text_of(data, path))


def _range(ranges: Sequence[int], count: int, path: str) -> tuple[int, int]:
    try:
        return resolved(ranges, count, path)
    except WrongRange as wrong:
        raise ToolRefused("invalid_parameters", str(wrong)) from None


def _no_file(path: str) -> ToolRefused:
    return ToolRefused("tool_error", f"Error: The path {path} is not a file.")
