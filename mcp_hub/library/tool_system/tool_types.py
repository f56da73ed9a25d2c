"""Tools of every kind as one type, and the outcome of a call. Files of tools import this, so it imports little."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from mcp_hub.config.models import Server
    from mcp_hub.library.engine_host import ToolCard
    from mcp_hub.library.tool_system.executor import IToolExecutor

Json = dict[str, Any]
Source = Literal["native", "mcp", "builtin"]


class Parameter(BaseModel):
    """One argument of a tool."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str = "any"
    description: str = ""
    required: bool = False


class BaseTool(BaseModel):
    """A tool of any kind: its name, its description and its arguments.

    A class of a file in `tools_dir` that derives from it, with a method `_run` or an async `_arun`, is a tool: its
    arguments are those of the method, or the fields of `args_schema`.
    """

    model_config = ConfigDict(frozen=True)
    source: ClassVar[Source] = "builtin"

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    json_schema: Json = Field(default_factory=dict)
    """The schema of all arguments together."""
    args_schema: type[BaseModel] | None = None
    """A model of all arguments together, for a class that is a tool."""
    server: str = ""
    tool_name: str = ""
    """Its name at its server."""

    def to_langchain(self, executor: IToolExecutor) -> Any:
        """Returns a LangChain tool, for `invoke` and `ainvoke`, that makes calls with `executor`.

        A call that fails raises LangChain's ToolException. Raises ImportError if langchain-core is not installed.
        """
        try:
            from langchain_core.tools import (  # type: ignore[import-not-found,unused-ignore]
                StructuredTool,
                ToolException,
            )
        except ImportError:
            raise ImportError("LangChain is not installed: pip install langchain-core") from None

        def output(message: ToolMessage) -> Any:
            if message.error is not None:
                raise ToolException(message.error)
            return message.output

        def call(**arguments: Any) -> Any:
            return output(executor.execute(self, arguments))

        async def call_async(**arguments: Any) -> Any:
            return output(await executor.async_execute(self, arguments))

        return StructuredTool.from_function(
            func=call,
            coroutine=call_async,
            name=self.name,
            description=self.description or self.name,
            args_schema=self.json_schema or {"type": "object", "properties": {}},
        )


class NativeTool(BaseTool):
    """A tool that calls a REST API."""

    source: ClassVar[Source] = "native"

    api_url: str = ""
    auth_method: str = "none"


class MCPTool(BaseTool):
    """A tool of an MCP server."""

    source: ClassVar[Source] = "mcp"

    mcp_server_url: str | None = None
    """The server's URL without its query; None for a server that the hub starts."""


class BuiltinTool(BaseTool):
    """A tool that calls a Python function."""

    source: ClassVar[Source] = "builtin"


@dataclass(frozen=True)
class ToolMessage:
    """The outcome of a call: `output`, or else `error`, which begins with the code: `timeout: ...`."""

    tool_name: str
    output: Any = None
    error: str | None = None
    code: str | None = None


def tool_of(card: ToolCard, server: Server) -> BaseTool:
    """Converts a tool that a server lists to the type for its source."""
    schema = card.schema
    properties = schema.get("properties")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    parameters = [
        Parameter(
            name=name, type=_type(property_schema), description=_description(property_schema), required=name in names
        )
        for name, property_schema in (properties.items() if isinstance(properties, dict) else ())
    ]
    values: Json = {
        "name": card.exposed,
        "description": card.description,
        "parameters": tuple(parameters),
        "json_schema": schema,
        "server": card.server,
        "tool_name": card.name,
    }
    if server.origin == "native":
        return NativeTool(**values, **_endpoint(server, card.name))
    if server.origin == "mcp":
        return MCPTool(**values, mcp_server_url=server.url.partition("?")[0] if server.url else None)
    return BuiltinTool(**values)


def _endpoint(server: Server, name: str) -> Json:
    """Returns the address of a REST endpoint, and how the hub signs in there."""
    endpoints = json.loads(server.native.get_secret_value()) if server.native is not None else []
    tool: Json = next((endpoint for endpoint in endpoints if endpoint["name"] == name), {})
    return {"api_url": tool.get("url", ""), "auth_method": tool.get("auth_method", "none")}


def _type(schema: Any) -> str:
    types = schema.get("type") if isinstance(schema, dict) else None
    return " | ".join(map(str, types)) if isinstance(types, list) else str(types or "any")


def _description(schema: Any) -> str:
    return str(schema.get("description") or "") if isinstance(schema, dict) else ""


@runtime_checkable
class ToolManagerProtocol(Protocol):
    """What an orchestrator needs: the tools of every server, and a call."""

    async def get_all_tool_definitions(self) -> list[Json]:
        """Returns `[{"name": SERVER, "tools": [{"name", "description", "schema"}, ...]}, ...]`."""
        ...

    async def execute_tool_call(self, server_name: str, tool_name: str, arguments: Json) -> Json:
        """Returns `{"server_name", "tool_name", "result"}`, or with `error` instead of `result`."""
        ...
