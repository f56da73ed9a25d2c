"""The built-in upstream `text_files`: AgentScope's raw text tools, which bypass all roots and path rules.

Therefore the `_meta` of each result marks it as dangerous, and a policy, read at every call, can forbid the tools. Line
ends, permissions and links are preserved; a file is replaced as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from mcp_hub.protocol.era import STDERR_WARNING
from mcp_hub.security.file_access import RAW_TEXT_VARIABLE, RawTextPolicy, strictest_policy
from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.regular_files import (
    NotRegularFile,
    bytes_of,
    context_range,
    exclusive,
    insert_lines,
    number_lines,
    read,
    replace,
    replace_lines,
    resolve_range,
    split_lines,
    stat_regular,
    text_of,
)
from mcp_hub.servers.local import tool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult, error_result
from mcp_hub.text import printable


def view(path: str, ranges: Sequence[int] | None) -> str:
    """Returns the numbered lines of a file, or those in `ranges`. Raises ToolRefused and OSError."""
    lines = _lines(path)
    if ranges is None:
        return f"The content of {path}:\n```\n{number_lines(lines, 1, len(lines))}```"
    start, end = resolve_range(ranges, len(lines), path)
    return f"The content of {path} in {list(ranges)} lines:\n```\n{number_lines(lines, start, end)}```"


def write(path: str, content: str, ranges: Sequence[int] | None) -> str:
    """Creates a file, replaces its content, or replaces the lines in `ranges`. Raises ToolRefused and OSError."""
    target = os.path.realpath(path)
    data = bytes_of(content)
    try:
        status = stat_regular(target)
    except NotRegularFile:
        raise _not_a_file(path) from None
    if status is None:
        replace(target, data, None)
        if ranges is None:
            return f"Create and write {path} successfully."
        note = f"The ranges {list(ranges)} is ignored because the file does not exist."
        return f"Create and write {path} successfully. {note}"
    if ranges is None:
        replace(target, data, status)
        return f"Overwrite {path} successfully."
    before, former = read(target)
    lines = split_lines(text_of(before, path))
    start, end = resolve_range(ranges, len(lines), path)
    after = replace_lines(lines, start, end, content)
    replace(target, "".join(after).encode(), former)
    snippet = context_range(len(lines), len(after), start, end)
    return f"Write {path} successfully. The new content snippet:\n```\n{number_lines(after, *snippet)}```"


def insert(path: str, content: str, line_number: int) -> str:
    """Inserts `content` before a line of a file, or after its last line. Raises ToolRefused and OSError."""
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
    except NotRegularFile:
        raise _not_a_file(path) from None
    lines = split_lines(text_of(before, path))
    after = insert_lines(lines, line_number, content)
    replace(target, "".join(after).encode(), former)
    start, end = context_range(len(lines), len(after), line_number, line_number)
    return (
        f"Insert content into {path} at line {line_number} successfully. "
        f"The new content between lines {start}-{end} is:\n```\n{number_lines(after, start, end)}```"
    )


def _lines(path: str) -> list[str]:
    try:
        data, _ = read(path)
    except FileNotFoundError:
        raise ToolRefused("tool_error", f"Error: The file {path} does not exist.") from None
    except NotRegularFile:
        raise _not_a_file(path) from None
    return split_lines(text_of(data, path))


def _not_a_file(path: str) -> ToolRefused:
    return ToolRefused("tool_error", f"Error: The path {path} is not a file.")


BLOCKED: Final = "Blocked by policy: raw OS file access is disabled. Use FileSystem service tools instead."
REASON: Final = "bypass_filesystem"

_PATH: Final = "The target file path"


def _warn(text: str) -> None:
    print(f"{STDERR_WARNING}{text}", file=sys.stderr, flush=True)


class RawTextTools:
    """Runs tools that read and write any file as text, as far as the policy for raw text allows it.

    `configured` is the policy in the configuration, or None. `warn` is called with a text for each call under
    policy `warn`.
    """

    def __init__(self, configured: str | None = None, warn: Callable[[str], None] = _warn) -> None:
        self._configured = configured
        self._warn = warn
        self._lock = threading.Lock()

    @property
    def policy(self) -> RawTextPolicy:
        """Returns the stricter of the policies that the configuration and the environment set now."""
        return strictest_policy((self._configured, os.environ.get(RAW_TEXT_VARIABLE)))

    def run(self, name: str, path: str, act: Callable[[str], str], *, writes: bool = False) -> ToolResult:
        """Returns the result of `act(path)`, or of its refusal.

        Its `_meta` marks it as dangerous I/O in either case.
        """
        policy, is_valid = self.policy, _is_valid_path(path)
        path = os.path.expanduser(path) if is_valid else printable(path)  # noqa: PTH111 - Path() rewrites what it gets
        meta: dict[str, Any] = {"dangerous_io": True, "policy": policy, "tool": name, "path": path}
        meta |= {"blocked": policy == "deny", "reason": REASON}
        if policy == "deny":
            return _refusal_result(ToolRefused("permission_denied", BLOCKED), name, meta)
        if not is_valid:
            text = f"Error: {path} contains a NUL character or half of a surrogate pair, which no path can have."
            return _refusal_result(ToolRefused("invalid_parameters", text), name, meta)
        if policy == "warn":
            printed_path = printable(path, 300)
            text = f"{name} reads or writes {printed_path} past all roots (policy: warn; see {RAW_TEXT_VARIABLE})"
            self._warn(text)
        try:
            with exclusive(self._lock) if writes else contextlib.nullcontext():
                text = act(path)
        except ToolRefused as refusal:
            return _refusal_result(refusal, name, meta)
        except OSError as error:
            text = f"Error: {printable(path)}: {error.strerror or error}."
            return _refusal_result(ToolRefused("tool_error", text), name, meta)
        return ToolResult([{"type": "text", "text": text}], meta=meta)


def _is_valid_path(path: str) -> bool:
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:
        return False


def _refusal_result(refusal: ToolRefused, name: str, meta: dict[str, Any]) -> ToolResult:
    result = error_result(refusal.code, name, refusal.message)
    return ToolResult(result["content"], meta={**result["_meta"], **meta}, is_error=True)


def tools(settings: Settings) -> list[Callable[..., Any]]:
    """Returns the functions of this upstream."""
    raw = RawTextTools(settings.policy)

    @tool(title="View a text file", annotations={"readOnlyHint": True, "openWorldHint": False})
    def view_text_file(
        file_path: Annotated[str, _PATH],
        ranges: Annotated[list[int] | None, "The range of lines to be viewed, inclusive, such as [1, 100]"] = None,
    ) -> ToolResult:
        """View the file content in the specified range with line numbers.

        If `ranges` is not provided, the entire file will be returned. To view the last 100 lines, use [-100, -1].
        """
        return raw.run("view_text_file", file_path, lambda path: view(path, ranges))

    @tool(title="Write a text file", annotations={"destructiveHint": True, "openWorldHint": False})
    def write_text_file(
        file_path: Annotated[str, _PATH],
        content: Annotated[str, "The content to be written"],
        ranges: Annotated[list[int] | None, "The range of lines to be replaced, inclusive, such as [3, 5]"] = None,
    ) -> ToolResult:
        """Create, replace or overwrite content in a text file.

        When `ranges` is provided, the content will be replaced in the specified range. Otherwise the entire file, if
        it exists, will be overwritten.
        """
        return raw.run("write_text_file", file_path, lambda path: write(path, content, ranges), writes=True)

    @tool(title="Insert into a text file", annotations={"destructiveHint": True, "openWorldHint": False})
    def insert_text_file(
        file_path: Annotated[str, _PATH],
        content: Annotated[str, "The content to be inserted"],
        line_number: Annotated[int, "The line number at which the content should be inserted, starting from 1"],
    ) -> ToolResult:
        """Insert the content at the specified line number in a text file.

        One more than the file has lines appends it.
        """
        return raw.run("insert_text_file", file_path, lambda path: insert(path, content, line_number), writes=True)

    return [view_text_file, write_text_file, insert_text_file]
