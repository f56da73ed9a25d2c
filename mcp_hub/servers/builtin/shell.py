"""The built-in upstream `shell`: commands of a caller's, by /bin/sh. No sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import Field

from mcp_hub.servers.builtin.execution import MAX_SECONDS, Executions
from mcp_hub.servers.builtin.settings import Settings
from mcp_hub.servers.local.registry import tool
from mcp_hub.servers.local.results import ToolRefused, ToolResult

DEFAULT_SECONDS: Final = 300
SHELL: Final = "/bin/sh"

_open: list[Executions] = []


def tools(settings: Settings) -> list[Callable[..., Any]]:
    """The functions this upstream offers. Raises OSError on Windows."""
    executions = Executions(os.environ)
    _open.append(executions)

    @tool(
        title="Run a shell command",
        annotations={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    )
    async def execute_shell_command(
        command: Annotated[str, "The shell command to execute"],
        timeout: Annotated[
            float, Field(ge=0, le=MAX_SECONDS), "The maximum time (in seconds) allowed for the command to run"
        ] = DEFAULT_SECONDS,
    ) -> ToolResult:
        """Execute the given command and return its return code, standard output and standard error.

        They are within <returncode></returncode>, <stdout></stdout> and <stderr></stderr> tags. Everything the
        command has started is ended with it.
        """
        try:
            usable = b"\0" not in command.encode()
        except UnicodeEncodeError:
            usable = False
        if not usable:
            text = "'command' holds a NUL character or half of a surrogate pair, which no shell can be given."
            raise ToolRefused("invalid_parameters", text)
        return (await executions.run([SHELL, "-c", command], timeout, "command")).result()

    return [execute_shell_command]


async def close() -> None:
    """End what runs."""
    for executions in _open:
        await executions.close()
