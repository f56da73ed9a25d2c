"""What the parts of the other tool systems expect of each other, as types: any object of the shape will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from mcp_hub.config.models import Config
from mcp_hub.library.tool_system.tool_types import BaseTool, ToolMessage

Json = dict[str, Any]


@runtime_checkable
class ToolManagerProtocol(Protocol):
    """What an orchestrator needs: the tools of every server, and one call."""

    async def get_all_tool_definitions(self) -> list[Json]:
        """`[{"name": SERVER, "tools": [{"name", "description", "schema"}, ...]}, ...]`."""
        ...

    async def execute_tool_call(self, server_name: str, tool_name: str, arguments: Json) -> Json:
        """`{"server_name", "tool_name", "result"}`, or `error` in the place of `result`."""
        ...


@runtime_checkable
class IToolManager(Protocol):
    """Tools by name and by tool set."""

    def load_tools(self) -> list[BaseTool]:
        """All tools there are."""
        ...

    def get_tool(self, name: str) -> BaseTool:
        """Raises ValueError if there is none of this name."""
        ...

    def get_tool_set(self, name: str) -> list[BaseTool]:
        """Raises ValueError if there is none of this name."""
        ...


@runtime_checkable
class IToolExecutor(Protocol):
    """Calls tools."""

    def execute(self, tool: BaseTool, parameters: Json) -> ToolMessage:
        """Never raises for what a tool or a server does."""
        ...

    async def async_execute(self, tool: BaseTool, parameters: Json) -> ToolMessage:
        """`execute` for a coroutine."""
        ...


@runtime_checkable
class IConfigLoader(Protocol):
    """Where a configuration comes from; `mcp_hub.load_config` is one as a function."""

    def load(self, path: str) -> Config:
        """Raises ConfigError."""
        ...


@runtime_checkable
class IConfigSystem(Protocol):
    """Which tools an agent's configuration means; profiles and tool sets are the hub's own way to say it."""

    def merged_tools(self, tool_sets: Sequence[str], tools: Sequence[str]) -> list[str]:
        """The names of all, each once."""
        ...


@runtime_checkable
class ILLMClient(Protocol):
    """A model's client, as far as ToolFormatter asks it something."""

    def supports_function_calling(self) -> bool:
        """Whether the model has function calling of its own."""
        ...


@runtime_checkable
class ILogger(Protocol):
    """Takes what ToolExecutor tells of each call; a `logging.Logger` is one."""

    def info(self, msg: str, *args: Any) -> None:
        """`msg % args`."""
        ...
