"""AgentScope's tools for programs and text files of this machine, as functions to import and register.

Programs run in the built-in servers `code` and `shell`, child processes of a hub that starts with the first of them.
Text files are read and written here. No toolkit has any of these tools unless its program registers them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from mcp_hub.errors import ERROR_KEY
from mcp_hub.library import Hub
from mcp_hub.servers.builtin.programs import DEFAULT_SECONDS, MAX_SECONDS
from mcp_hub.servers.builtin.text_files import RawTextTools, insert, view, write
from mcp_hub.servers.local.tool_results import ToolResponse, response_of

log = logging.getLogger("mcp_hub.library")

_CALL: Final = MAX_SECONDS + 60
"""Seconds after which a call ends. A program ends earlier, at its own limit."""


@cache
def _programs() -> Hub:
    servers = {name: {"builtin": name, "deadlines": {"call": _CALL}} for name in ("code", "shell")}
    # The toolkit that made the call records it.
    return Hub({"servers": servers, "call_log": {"enabled": False}})


async def _run(server: str, tool: str, arguments: dict[str, Any]) -> ToolResponse:
    response = response_of(await _programs().call(server, tool, arguments))
    response.metadata = None
    return response


async def execute_python_code(code: str, timeout: float = DEFAULT_SECONDS, **kwargs: Any) -> ToolResponse:
    """Execute the given python code in a temp file and capture the return
    code, standard output and error. Note you must `print` the output to get
    the result, and the tmp file will be removed right after the execution.

    Args:
        code (`str`):
            The Python code to be executed.
        timeout (`float`, defaults to `300`):
            The maximum time (in seconds) allowed for the code to run.
    """
    return await _run("code", "execute_python_code", {"code": code, "timeout": timeout})


async def execute_shell_command(command: str, timeout: int = DEFAULT_SECONDS, **kwargs: Any) -> ToolResponse:
    """Execute given command and return the return code, standard output and
    error within <returncode></returncode>, <stdout></stdout> and
    <stderr></stderr> tags.

    Args:
        command (`str`):
            The shell command to execute.
        timeout (`float`, defaults to `300`):
            The maximum time (in seconds) allowed for the command to run.
    """
    return await _run("shell", "execute_shell_command", {"command": command, "timeout": timeout})


_raw: Final = RawTextTools(warn=log.warning)


async def view_text_file(file_path: str, ranges: list[int] | None = None) -> ToolResponse:
    """View the file content in the specified range with line numbers. If `ranges` is not provided, the entire file will be returned.

    Args:
        file_path (`str`):
            The target file path.
        ranges:
            The range of lines to be viewed (e.g. lines 1 to 100: [1, 100]), inclusive. If not provided, the entire file will be returned. To view the last 100 lines, use [-100, -1].
    """  # noqa: E501 - as models know it
    return await _file("view_text_file", file_path, lambda path: view(path, ranges))


async def write_text_file(file_path: str, content: str, ranges: list[int] | None = None) -> ToolResponse:
    """Create/Replace/Overwrite content in a text file. When `ranges` is provided, the content will be replaced in the specified range. Otherwise, the entire file (if exists) will be overwritten.

    Args:
        file_path (`str`):
            The target file path.
        content (`str`):
            The content to be written.
        ranges (`list[int] | None`, defaults to `None`):
            The range of lines to be replaced. If `None`, the entire file will
            be overwritten.
    """  # noqa: E501 - as models know it
    return await _file("write_text_file", file_path, lambda path: write(path, content, ranges), writes=True)


async def insert_text_file(file_path: str, content: str, line_number: int) -> ToolResponse:
    """Insert the content at the specified line number in a text file.

    Args:
        file_path (`str`):
            The target file path.
        content (`str`):
            The content to be inserted.
        line_number (`int`):
            The line number at which the content should be inserted, starting
            from 1. One more than the file has lines appends it.
    """
    return await _file("insert_text_file", file_path, lambda path: insert(path, content, line_number), writes=True)


async def _file(name: str, path: str, act: Callable[[str], str], *, writes: bool = False) -> ToolResponse:
    result = await asyncio.to_thread(_raw.run, name, path, act, writes=writes)
    response = response_of(result.to_wire())
    response.metadata = {key: value for key, value in (response.metadata or {}).items() if key != ERROR_KEY}
    return response
