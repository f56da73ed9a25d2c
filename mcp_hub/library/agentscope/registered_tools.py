"""The tools that a toolkit has registered, and the configuration with which its hub serves them."""

from __future__ import annotations

import glob
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from mcp_hub.config.entry_rules import Filter, ToolRules
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import BASIC
from mcp_hub.config.root_rules import ToolGroupSettings as GroupSettings
from mcp_hub.errors import InvalidParameters, ToolFailed
from mcp_hub.library import Hub
from mcp_hub.library.agentscope.mcp_clients import ConfiguredServer, McpObject, MCPToolFunction, ServerClient
from mcp_hub.library.agentscope.tool_groups import ToolGroup
from mcp_hub.library.engine_host import ServerTools
from mcp_hub.library.server_entries import functions_of
from mcp_hub.schema.compact_schema import drop_titles
from mcp_hub.schema.schema_edits import written_path
from mcp_hub.servers.local import Mark
from mcp_hub.servers.local.local_tool import (
    LocalTool,
    ResultWithheld,
    handwritten_schema,
    name_of,
    postprocess_result,
    without_properties,
)
from mcp_hub.servers.local.signature import InvalidArguments, ModelExtension

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp_hub.library.agentscope.tool_calls import ToolStream

log = logging.getLogger("mcp_hub.library")

Strategy = Literal["raise", "override", "skip", "rename"]

MAX_NAMESAKES: Final = 100


Json = dict[str, Any]
Process = Callable[[Coroutine[Any, Any, Json]], Awaitable[Json]]
"""Runs a coroutine in the loop of the program's functions and returns its result."""
Source = Literal["function", "mcp_server", "function_group"]


@dataclass
class RegisteredToolFunction:
    """One tool under the name by which models know it."""

    name: str
    group: str
    source: Source
    original_func: Callable[..., Any]
    json_schema: Json
    """The schema that models see, without the fields of an extended model."""
    preset_kwargs: Json = field(repr=False)
    original_name: str | None = None
    """The function's own name, if the tool has another one."""
    extended_model: type[BaseModel] | None = None
    mcp_name: str | None = None
    postprocess_func: Callable[..., Any] | None = None
    async_execution: bool = False
    """Whether calls run in the background, and models get the id of a task at once."""
    begin: Callable[[Json], ToolStream] | None = field(default=None, repr=False)
    """Starts a call with the block of the call, `{"type": "tool_use", ...}`."""
    local: LocalTool | None = field(default=None, repr=False)
    """The tool as the hub has it, if it is a function."""
    by_hand: bool = False
    """Whether its schema was written by hand."""

    @property
    def remote(self) -> MCPToolFunction | None:
        """Returns the tool of a server of the hub that was registered; None if it is a function."""
        function = self.original_func
        return function if isinstance(function, MCPToolFunction) and function.client is not None else None

    @property
    def client(self) -> ServerClient | None:
        """Returns the hub's client of the tool's server; None for a function."""
        return None if self.remote is None else self.remote.client

    @property
    def extended_json_schema(self) -> Json:
        """Returns the schema with the fields of the extended model.

        Raises ValueError if the tool has one of them itself.
        """
        if self.extended_model is None:
            return self.json_schema
        function = self.json_schema["function"]
        merged = ModelExtension(self.extended_model).merged(function["parameters"], self.name)
        return {**self.json_schema, "function": {**function, "parameters": merged}}

    def call(self, *, arguments: Json, stream_print: bool | None = None) -> ToolStream:
        """Calls the tool, also in an inactive group, and returns the stream of its chunks.

        Raises RuntimeError if the tool was removed.
        """
        if self.begin is None:
            raise RuntimeError(f"'{self.name}' is no longer registered in a toolkit")
        return self.begin({"type": "tool_use", "id": "", "name": self.name, "input": arguments})


def register_function(function: Callable[..., Any], mark: Mark) -> RegisteredToolFunction:
    """Returns the registration of a function or a partial. Raises TypeError if no schema can be made of it."""
    local = LocalTool(function, mark)
    stated = handwritten_schema(mark.json_schema)
    parameters = dict(local.definition["inputSchema"])
    if stated is None:
        parameters.pop("additionalProperties", None)
    definition: Json = {"name": local.name, "parameters": parameters}
    description = mark.description or (local.documented if stated is None else stated.get("description"))
    if description:
        definition["description"] = description
    return RegisteredToolFunction(
        local.name,
        BASIC,
        "function",
        local.function,
        {"type": "function", "function": definition},
        dict(local.preset),
        original_name=name_of(local.function) if mark.name else None,
        postprocess_func=mark.postprocess,
        local=local,
    )


def register_remote(function: MCPToolFunction, mark: Mark) -> RegisteredToolFunction:
    """Returns the registration of an MCP server's tool, with its own schema.

    Raises TypeError for an invalid json_schema.
    """
    definition = {**function.json_schema["function"], **(handwritten_schema(mark.json_schema) or {})}
    if mark.description:
        definition["description"] = mark.description
    if mark.name:
        definition["name"] = mark.name
    if mark.preset:
        definition["parameters"] = without_properties(definition["parameters"], mark.preset)
    return RegisteredToolFunction(
        definition["name"],
        BASIC,
        "mcp_server",
        function,
        {"type": "function", "function": definition},
        dict(mark.preset),
        original_name=function.name if mark.name else None,
        mcp_name=function.mcp_name,
        postprocess_func=mark.postprocess,
        by_hand=mark.json_schema is not None,
    )


def configured_tools(hub: Hub, listed: Iterable[ServerTools]) -> dict[str, RegisteredToolFunction]:
    """Returns the tools of a hub's servers under the names by which the hub exposes them."""
    tools = {}
    for server in listed:
        client = ConfiguredServer(server.server, hub)
        for card in server.tools:
            tool = McpObject({**card.definition, "name": card.name})
            function = MCPToolFunction(client.name, tool, wrap_tool_result=True, client_gen=client.get_client)
            tools[card.exposed] = register_remote(function, Mark(name=card.exposed))
    return tools


def registered_tool(target: Callable[..., Any], mark: Mark) -> RegisteredToolFunction:
    """Returns the registration of a function or of an MCP client's tool.

    Raises TypeError if the json_schema is invalid, or no schema can be made of the function.
    """
    if isinstance(target, MCPToolFunction) and target.client is not None:
        return register_remote(target, mark)
    schema, server = getattr(target, "json_schema", None), getattr(target, "mcp_name", None)
    if not isinstance(schema, dict) or not isinstance(server, str):
        return register_function(target, mark)
    # A tool of a session that is not the hub's is an async function with a `json_schema`.
    tool = register_function(target, replace(mark, json_schema=mark.json_schema or schema))
    tool.source, tool.mcp_name = "mcp_server", server
    return tool


def take_name(tool: RegisteredToolFunction, registered_names: Container[str], strategy: Strategy) -> str | None:
    """Sets and returns the name under which a tool is registered; returns None if it is not to be registered.

    If the name is taken, `override` replaces the other tool, `skip` keeps it, `rename` appends `_2`, `_3`, ..., and
    `raise` raises ValueError. Raises ValueError for an unknown strategy too, and RuntimeError if `MAX_NAMESAKES` such
    names are taken.
    """
    if strategy not in get_args(Strategy):
        names = "', '".join(get_args(Strategy))
        raise ValueError(f"Invalid namesake_strategy: {strategy!r}. Supported strategies are '{names}'.")
    name = tool.name
    if name not in registered_names:
        return name
    text = f"A function with name '{name}' is already registered in the toolkit."
    if strategy == "raise":
        raise ValueError(text)
    if strategy == "skip":
        log.warning("%s Skipping registration.", text)
        return None
    if strategy == "override":
        log.warning("%s Overriding with the new function.", text)
        return name
    candidates = (f"{name}_{number}" for number in range(2, MAX_NAMESAKES + 2))
    renamed = next((candidate for candidate in candidates if candidate not in registered_names), None)
    if renamed is None:
        raise RuntimeError(f"{MAX_NAMESAKES} functions are registered under names that begin with '{name}'.")
    tool.original_name, tool.name = tool.original_name or name, renamed
    tool.json_schema = {**tool.json_schema, "function": {**tool.json_schema["function"], "name": renamed}}
    log.warning("%s Renaming the new function to '%s'.", text, renamed)
    return renamed


def repeated_registrations(
    tools: Iterable[RegisteredToolFunction],
) -> list[tuple[RegisteredToolFunction, RegisteredToolFunction]]:
    """Returns (tool, earlier one) for each tool of a server that was registered more than once."""
    first: dict[tuple[str, str], RegisteredToolFunction] = {}
    repeated = []
    for tool in tools:
        if tool.remote is not None:
            remote = tool.remote
            first_tool = first.setdefault((remote.mcp_name, remote.name), tool)
            repeated += [] if first_tool is tool else [(tool, first_tool)]
    return repeated


class ServedTool:
    """The extended model and the post-processor of a server's tool while the hub serves it: an `InProgram`."""

    def __init__(self, tool: RegisteredToolFunction, process: Process) -> None:
        self._name = tool.name
        self._extension = None if tool.extended_model is None else ModelExtension(tool.extended_model)
        self._postprocess = tool.postprocess_func
        self._process = process

    def check(self, arguments: Json) -> None:
        """Raises InvalidParameters if the extended model does not accept the arguments."""
        if self._extension is not None:
            try:
                self._extension.checked(self._name, arguments)
            except InvalidArguments as error:
                raise InvalidParameters(str(error), executed=False) from None

    async def process(self, call: Json, result: Json) -> Json:
        """Post-processes a result in the loop of the program's functions.

        Raises ToolFailed if the post-processor fails.
        """
        if self._postprocess is None:
            return result
        block = {"type": "tool_use", "id": "", "name": self._name, "input": call["arguments"]}
        try:
            return await self._process(postprocess_result(self._postprocess, block, result))
        except ResultWithheld as withheld:
            raise ToolFailed(withheld.message) from None


_ADDED: Final = frozenset({"properties", "required", "$defs"})
"""Keys of a model's schema that are added to a tool's schema."""

Tools = Sequence[RegisteredToolFunction]


def with_tools(
    config: Config,
    tools: Tools,
    groups: Sequence[ToolGroup],
    former_groups: Collection[str],
    hub: Hub,
    clients: Mapping[str, ServerClient],
) -> Config:
    """Returns the configuration with the toolkit's groups in place of the groups named in `former_groups`.

    `hub` serves the toolkit's functions; `clients` are its MCP clients on that hub, by the ids of their servers.
    """
    functions = functions_of(config)
    ids = {server.id for server in config.servers}
    settings = tuple(_settings(group, tools, None if functions is None else functions.id, ids) for group in groups)
    other_groups = tuple(group for group in config.groups if group.name not in former_groups)
    servers = tuple(
        _with_rules(server, clients[server.id].registered, hub) if server.id in clients else server
        for server in config.servers
    )
    return config.model_copy(update={"groups": (*other_groups, *settings), "servers": servers})


def _settings(group: ToolGroup, tools: Tools, functions: str | None, servers: Collection[str]) -> GroupSettings:
    """Returns a group with those of its tools that `servers` have: a client may have a hub of its own."""
    members = [tool for tool in tools if tool.group == group.name]
    addresses = [
        (functions, tool.name) if tool.remote is None else (tool.mcp_name, tool.remote.name) for tool in members
    ]
    return GroupSettings(
        name=group.name,
        description=group.description,
        notes=group.notes,
        active=group.active,
        tools=tuple(f"{server}/{glob.escape(name)}" for server, name in addresses if server in servers),
    )


def _with_rules(server: Server, tools: Tools, hub: Hub) -> Server:
    """Returns a server that has only its registered tools, each as it was registered, with its presets.

    A server has each tool once: of several registrations of one tool, clients see the first.
    """
    rules, names = dict(server.tools), list[str]()
    for tool in tools:
        if tool.remote is None or tool.mcp_name != server.id or glob.escape(tool.remote.name) in names:
            continue
        name = glob.escape(tool.remote.name)
        names.append(name)
        rules[name] = _rules_of(tool, tool.remote, hub)
    filters = {**server.filters, "tools": Filter(allow=tuple(names))}
    return server.model_copy(update={"filters": filters, "tools": rules})


def _rules_of(tool: RegisteredToolFunction, remote: MCPToolFunction, hub: Hub) -> ToolRules:
    rules: dict[str, Any] = {}
    if tool.name != remote.name:
        rules["name"] = tool.name
    if tool.json_schema["function"].get("description", "") != (remote.description or ""):
        rules["description"] = tool.json_schema["function"].get("description", "")
    if tool.preset_kwargs:
        rules["preset"] = {written_path(name): value for name, value in tool.preset_kwargs.items()}
    if tool.extended_model is not None:
        schema = tool.extended_model.model_json_schema(by_alias=True)
        rules["extend_schema"] = {key: value for key, value in drop_titles(schema).items() if key in _ADDED}
    if tool.by_hand:
        rules["input_schema"] = tool.extended_json_schema["function"]["parameters"]
    if tool.postprocess_func is not None or tool.extended_model is not None:
        rules["in_program"] = ServedTool(tool, hub.process)
    return ToolRules(**rules)
