"""Tools of every kind as one type, by name and by tool set; the outcome of a call; and the protocols around them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from mcp_hub.catalog import Route
from mcp_hub.config.models import Config
from mcp_hub.errors import ConfigError
from mcp_hub.library.engine_host import ToolCard
from mcp_hub.library.hub import Hub
from mcp_hub.policy.selection import select
from mcp_hub.protocol.kinds import TOOLS

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
    """A tool of any kind: its name, its description and its arguments."""

    model_config = ConfigDict(frozen=True)
    source: ClassVar[Source]

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    json_schema: Json = Field(default_factory=dict)
    """The schema of all arguments together."""
    server: str = ""
    tool_name: str = ""
    """Its name at its server."""

    def to_langchain(self, executor: Any) -> Any:
        """Returns a LangChain tool that makes calls with `executor`, a ToolExecutor.

        Raises ImportError if langchain-core is not installed.
        """
        try:
            from langchain_core.tools import StructuredTool  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise ImportError("LangChain is not installed: pip install langchain-core") from None

        async def call(**arguments: Any) -> Any:
            message = await executor.async_execute(self, arguments)
            if message.error is not None:
                raise RuntimeError(message.error)
            return message.output

        return StructuredTool.from_function(
            coroutine=call, name=self.name, description=self.description or self.name, args_schema=self.json_schema
        )


class NativeTool(BaseTool):
    """A tool that calls a REST API."""

    source: ClassVar[Source] = "native"


class MCPTool(BaseTool):
    """A tool of an MCP server."""

    source: ClassVar[Source] = "mcp"


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


def tool_of(card: ToolCard, source: Source) -> BaseTool:
    """Converts a listed tool to the type for its source."""
    kind = {"native": NativeTool, "mcp": MCPTool, "builtin": BuiltinTool}[source]
    schema = card.schema
    properties = schema.get("properties")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    parameters = [
        Parameter(name=name, type=_type(one), description=_description(one), required=name in names)
        for name, one in (properties.items() if isinstance(properties, dict) else ())
    ]
    return kind(
        name=card.exposed,
        description=card.description,
        parameters=tuple(parameters),
        json_schema=schema,
        server=card.server,
        tool_name=card.name,
    )


def _type(schema: Any) -> str:
    said = schema.get("type") if isinstance(schema, dict) else None
    return " | ".join(map(str, said)) if isinstance(said, list) else str(said or "any")


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


@runtime_checkable
class IToolManager(Protocol):
    """Tools by name and by tool set."""

    def load_tools(self) -> list[BaseTool]:
        """Returns all tools."""
        ...

    def get_tool(self, name: str) -> BaseTool:
        """Returns a tool. Raises ValueError if there is none of this name."""
        ...

    def get_tool_set(self, name: str) -> list[BaseTool]:
        """Returns the tools of a tool set. Raises ValueError if there is none of this name."""
        ...


@runtime_checkable
class IToolExecutor(Protocol):
    """Calls tools."""

    def execute(self, tool: BaseTool, parameters: Json) -> ToolMessage:
        """Calls a tool. Never raises for errors of the tool or its server."""
        ...

    async def async_execute(self, tool: BaseTool, parameters: Json) -> ToolMessage:
        """Does what `execute` does, for coroutines."""
        ...


@runtime_checkable
class IConfigLoader(Protocol):
    """Loads a configuration; `mcp_hub.load_config` does so as a function."""

    def load(self, path: str) -> Config:
        """Returns the configuration in a file. Raises ConfigError."""
        ...


@runtime_checkable
class IConfigSystem(Protocol):
    """Resolves which tools an agent's configuration names. The hub's own way are profiles and tool sets."""

    def merged_tools(self, tool_sets: Sequence[str], tools: Sequence[str]) -> list[str]:
        """Returns the names of all tools without duplicates."""
        ...


@runtime_checkable
class ILLMClient(Protocol):
    """The client of a model, as far as ToolFormatter needs it."""

    def supports_function_calling(self) -> bool:
        """Returns whether the model supports function calling."""
        ...


@runtime_checkable
class ILogger(Protocol):
    """Gets a line for each call of ToolExecutor; a `logging.Logger` is one."""

    def info(self, msg: str, *args: Any) -> None:
        """Logs `msg % args`."""
        ...


class ToolsBySet:
    """Tools by name and by tool set. The tool sets are those of the configuration."""

    hub: Hub

    def load_tools(self) -> list[BaseTool]:
        """Returns all tools in the order of the configuration."""
        return [self._tool(card) for card in self.hub.list_sync()]

    async def async_load_tools(self) -> list[BaseTool]:
        """Does what `load_tools` does, for coroutines."""
        return [self._tool(card) for card in await self.hub.list()]

    def get_tool(self, name: str) -> BaseTool:
        """Returns a tool by its exposed name, by `server/tool`, or by its original name if only one server has it.

        Raises ValueError if there is none, or several.
        """
        return self._tool(card_named(name, self.hub.list_sync()))

    async def async_get_tool(self, name: str) -> BaseTool:
        """Does what `get_tool` does, for coroutines."""
        return self._tool(card_named(name, await self.hub.list()))

    def get_tool_set(self, name: str) -> list[BaseTool]:
        """Returns the available tools of a tool set of the configuration. Raises ValueError for an unknown set."""
        return self._set(name, self.hub.list_sync())

    async def async_get_tool_set(self, name: str) -> list[BaseTool]:
        """Does what `get_tool_set` does, for coroutines."""
        return self._set(name, await self.hub.list())

    def _set(self, name: str, cards: list[ToolCard]) -> list[BaseTool]:
        config = self.hub.config
        try:
            selection = select(config, tool_sets=[name])
        except ConfigError as error:
            raise ValueError(str(error)) from None
        servers = {server.id: server for server in config.servers}
        routes = (Route(card.server, TOOLS, card.name) for card in cards)
        chosen = zip(cards, routes, strict=True)
        return [self._tool(card) for card, route in chosen if selection.has(servers[card.server], route, ())]

    def _tool(self, card: ToolCard) -> BaseTool:
        return tool_of(card, source_of(self.hub.config, card))


def card_named(name: str, cards: list[ToolCard]) -> ToolCard:
    """Returns the tool of a name. Raises ValueError with suggestions if there is none, or several."""
    for card in cards:
        if name in (card.exposed, f"{card.server}/{card.name}"):
            return card
    same = [card for card in cards if card.name == name]
    if len(same) == 1:
        return same[0]
    if same:
        raise ValueError(f"several servers have a tool '{name}': {', '.join(card.exposed for card in same)}")
    known = [card.exposed for card in cards]
    near = [card.exposed for card in cards if card.name == name]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(f"there is no tool '{name}'{hint}")


def source_of(config: Config, card: ToolCard) -> Source:
    """Returns what kind of tool it is, which depends on its server."""
    server = next((server for server in config.servers if server.id == card.server), None)
    if server is None or (server.builtin is None and server.tools_dir is None and server.functions is None):
        return "mcp"
    return "native" if str(server.builtin) == "native" else "builtin"
