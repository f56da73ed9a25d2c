"""The built-in upstream `text_files`: AgentScope's raw text tools. They go past every root and every rule about paths.

So each result says in its `_meta` that it did, and the policy, asked at every call, can forbid them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any, Final

from mcp_hub.protocol.log_levels import WARNING
from mcp_hub.security.raw_text_policy import VARIABLE, RawTextPolicy, strictest
from mcp_hub.servers.builtin import raw_text
from mcp_hub.servers.builtin.settings import Settings
from mcp_hub.servers.local.registry import tool
from mcp_hub.servers.local.results import ToolRefused, ToolResult, failed
from mcp_hub.text import printable

BLOCKED: Final = "Blocked by policy: raw OS file access is disabled. Use FileSystem service tools instead."
REASON: Final = "bypass_filesystem"
LOCK_WAIT: Final = 30.0
"""Seconds a write waits for the one before; longer only on a file system that hangs."""

_PATH: Final = "The target file path"


class RawText:
    """Carries out what the policy lets through. `said` is what the configuration says, None for nothing."""

    def __init__(self, said: str | None = None) -> None:
        self._said = said
        self._writing = threading.Lock()

    @property
    def policy(self) -> RawTextPolicy:
        """What holds now: the strictest of what the configuration and the environment say."""
        return strictest((self._said, os.environ.get(VARIABLE)))

    def run(self, name: str, path: str, act: Callable[[str], str], *, writes: bool = False) -> ToolResult:
        """The result of `act(path)`, or why there is none; marked as dangerous in any case."""
        policy, usable = self.policy, _usable(path)
        path = os.path.expanduser(path) if usable else printable(path)  # noqa: PTH111 - Path() rewrites what it gets
        meta: dict[str, Any] = {"dangerous_io": True, "policy": policy, "tool": name, "path": path}
        meta |= {"blocked": policy == "deny", "reason": REASON}
        if policy == "deny":
            return _refused(ToolRefused("permission_denied", BLOCKED), name, meta)
        if not usable:
            text = f"Error: {path} holds a NUL character or half of a surrogate pair, which no path can."
            return _refused(ToolRefused("invalid_parameters", text), name, meta)
        if policy == "warn":
            shown = printable(path, 300)
            text = f"{name} reads or writes {shown} past all roots (policy: warn; see {VARIABLE})"
            print(f"{WARNING}{text}", file=sys.stderr, flush=True)
        try:
            text = self._alone(act, path) if writes else act(path)
        except ToolRefused as refused:
            return _refused(refused, name, meta)
        except OSError as error:
            text = f"Error: {printable(path)}: {error.strerror or error}."
            return _refused(ToolRefused("tool_error", text), name, meta)
        return ToolResult([{"type": "text", "text": text}], meta=meta)

    def _alone(self, act: Callable[[str], str], path: str) -> str:
        if not self._writing.acquire(timeout=LOCK_WAIT):
            raise ToolRefused("tool_error", "Error: another write has not ended yet; nothing was written. Try again.")
        try:
            return act(path)
        finally:
            self._writing.release()


def _usable(path: str) -> bool:
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:
        return False


def _refused(refused: ToolRefused, name: str, meta: dict[str, Any]) -> ToolResult:
    result = failed(refused.code, name, refused.message)
    return ToolResult(result["content"], meta={**result["_meta"], **meta}, is_error=True)


def tools(settings: Settings) -> list[Callable[..., Any]]:
    """The functions this upstream offers."""
    raw = RawText(settings.policy)

    @tool(title="View a text file", annotations={"readOnlyHint": True, "openWorldHint": False})
    def view_text_file(
        file_path: Annotated[str, _PATH],
        ranges: Annotated[list[int] | None, "The range of lines to be viewed, inclusive, such as [1, 100]"] = None,
    ) -> ToolResult:
        """View the file content in the specified range with line numbers.

        If `ranges` is not provided, the entire file will be returned. To view the last 100 lines, use [-100, -1].
        """
        return raw.run("view_text_file", file_path, lambda path: raw_text.view(path, ranges))

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
        return raw.run("write_text_file", file_path, lambda path: raw_text.write(path, content, ranges), writes=True)

    @tool(title="Insert into a text file", annotations={"destructiveHint": True, "openWorldHint": False})
    def insert_text_file(
        file_path: Annotated[str, _PATH],
        content: Annotated[str, "The content to be inserted"],
        line_number: Annotated[int, "The line number at which the content should be inserted, starting from 1"],
    ) -> ToolResult:
        """Insert the content at the specified line number in a text file.

        One more than the file has lines appends it.
        """
        return raw.run(
            "insert_text_file", file_path, lambda path: raw_text.insert(path, content, line_number), writes=True
        )

    return [view_text_file, write_text_file, insert_text_file]
