"""The built-in upstream `code`: Python of a caller's, in a process of its own. No sandbox."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from mcp_hub.servers.builtin.execution import MAX_SECONDS, Executions
from mcp_hub.servers.builtin.scratch import Scratch, remove_tree
from mcp_hub.servers.builtin.settings import Settings
from mcp_hub.servers.local.registry import tool
from mcp_hub.servers.local.results import ToolRefused, ToolResult

DEFAULT_SECONDS: Final = 300
_UTF8: Final = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}

_open: list[tuple[Executions, Scratch]] = []


def tools(settings: Settings) -> list[Callable[..., Any]]:
    """The functions this upstream offers. Raises OSError on Windows."""
    executions, scratch = Executions({**os.environ, **_UTF8}), Scratch("code")
    _open.append((executions, scratch))

    @tool(
        title="Run Python code",
        annotations={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    )
    async def execute_python_code(
        code: Annotated[str, "The Python code to be executed"],
        timeout: Annotated[
            float, Field(ge=0, le=MAX_SECONDS), "The maximum time (in seconds) allowed for the code to run"
        ] = DEFAULT_SECONDS,
    ) -> ToolResult:
        """Execute the given Python code in a temporary file and capture the return code, standard output and error.

        Note you must `print` the output to get the result. The file is removed right after the execution, and
        everything the code has started is ended.
        """
        place = scratch.path / secrets.token_hex(8)
        try:
            file = await asyncio.to_thread(_written, place, code)
            outcome = await executions.run([sys.executable, "-u", str(file)], timeout, "code")
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, place))
        return outcome.result()

    return [execute_python_code]


async def close() -> None:
    """End what runs, and take away what it has left."""
    for executions, scratch in _open:
        await executions.close()
        await asyncio.to_thread(scratch.remove)


def _written(place: Path, code: str) -> Path:
    file = place / "code.py"
    try:
        source = code.encode()
    except UnicodeEncodeError:
        raise ToolRefused("invalid_parameters", "'code' holds half of a surrogate pair, which no file can.") from None
    try:
        place.mkdir(mode=0o700)
        file.write_bytes(source)
    except OSError as error:
        text = f"The code cannot be written to {place.parent}: {error.strerror}. Nothing was executed."
        raise ToolRefused("tool_error", text) from None
    return file
