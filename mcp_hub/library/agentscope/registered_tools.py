"""The tools that a toolkit has registered, and the configuration by which its hub serves them."""

from __future__ import annotations

import glob
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from mcp_hub.config.entry_rules import Filter, ToolRules
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import ToolGroupSettings as GroupSettings
from mcp_hub.errors import InvalidParameters, ToolFailed
from mcp_hub.library.agentscope.mcp_clients import MCPClientBase, MCPToolFunction
from mcp_hub.library.agentscope.tool_groups import BASIC, ToolGroup
from mcp_hub.library.hub import Hub
from mcp_hub.schema.schema_edits import drop_titles, written_path
from mcp_hub.security.redaction import preset_texts
from mcp_hub.servers.local.local_tool import (
    LocalTool,
    Withheld,
    by_hand,
    postprocessed_result,
    without_properties,
)
from mcp_hub.servers.local.registry import Mark
from mcp_hub.servers.local.signature import Extension, WrongArguments

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp_hub.library.agentscope.tool_stream import ToolStream

log = logging.getLogger("mcp_hub.library")

Strategy = Literal["raise", "override", "skip", "rename"]

MAX_NAMESAKES: Final = 100


def name_for(name: str, taken: Container[str], strategy: Strategy) -> str | None:
    """The name a tool is kept under, None if it is not kept.

    `override` takes the place of the other, `skip` leaves it its place, `rename` finds `name_2`, `name_3`, ...,
    always the same from the same tools. Raises ValueError with `raise`, and for a strategy that is none;
    RuntimeError when a hundred names are taken.
    """
    if strategy not in get_args(Strategy):
        names = "', '".join(get_args(Strategy))
        raise ValueError(f"Invalid namesake_strategy: {strategy!r}. Supported strategies are '{names}'.")
    if name not in taken or strategy == "override":
        return name
    if strategy == "raise":
        raise ValueError(f"A function with name '{name}' is already registered in the toolkit.")
    if strategy == "skip":
        return None
    for number in range(2, MAX_NAMESAKES + 2):
        renamed = f"{name}_{number}"
        if renamed not in taken:
            return renamed
    raise RuntimeError(f"{MAX_NAMESAKES} functions are registered under names that begin with '{name}'.")


Json = dict[str, Any]
Process = Callable[[Coroutine[Any, Any, Json]], Awaitable[Json]]
"""What the work gives in the loop of the program's functions."""
Source = Literal["function", "mcp_server", "function_group"]


@dataclass
class RegisteredToolFunction:
    """One tool under the name models know it by."""

    name: str
    group: str
    source: Source
    original_func: Callable[..., Any]
    json_schema: Json
    """As models are told of it, without what an extended model adds."""
    preset_kwargs: Json = field(repr=False)
    original_name: str | None = None
    """Before it was renamed."""
    extended_model: type[BaseModel] | None = None
    mcp_name: str | None = None
    postprocess_func: Callable[..., Any] | None = None
    begin: Callable[[Json], ToolStream] | None = field(default=None, repr=False)
    """Takes the block of a call."""
    local: LocalTool | None = field(default=None, repr=False)
    """How the hub has it, if it is a function."""
    by_hand: bool = False
    """Whether its schema was written by hand."""

    @property
    def remote(self) -> MCPToolFunction | None:
        """The tool of an MCP server it stands for."""
        return self.original_func if isinstance(self.original_func, MCPToolFunction) else None

    @property
    def extended_json_schema(self) -> Json:
        """With the fields of the extended model. Raises ValueError where the tool has one of its own of that name."""
        if self.extended_model is None:
            return self.json_schema
        function = self.json_schema["function"]
        merged = Extension(self.extended_model).merged(function["parameters"], self.name)
        return {**self.json_schema, "function": {**function, "parameters": merged}}

    def call(self, *, arguments: Json, stream_print: bool | None = None) -> ToolStream:
        """The chunks of one call. Raises RuntimeError for a tool that was removed."""
        if self.begin is None:
            raise RuntimeError(f"'{self.name}' is not registered in a toolkit any more")
        return self.begin({"type": "tool_use", "id": "", "name": self.name, "input": arguments})


def register_function(function: Callable[..., Any], mark: Mark) -> RegisteredToolFunction:
    """A function, or a partial of one. Raises TypeError where no schema can be made of it."""
    local = LocalTool(function, mark)
    stated = by_hand(mark.json_schema)
    parameters = dict(local.definition["inputSchema"])
    if stated is None:
        del parameters["additionalProperties"]
    about: Json = {"name": local.name, "parameters": parameters}
    description = mark.description or (local.documented if stated is None else stated.get("description"))
    if description:
        about["description"] = description
    return RegisteredToolFunction(
        local.name,
        BASIC,
        "function",
        local.function,
        {"type": "function", "function": about},
        dict(local.preset),
        postprocess_func=mark.postprocess,
        local=local,
    )


def register_remote(function: MCPToolFunction, mark: Mark) -> RegisteredToolFunction:
    """A tool of an MCP server; what that says of its arguments is left as it is. Raises TypeError for a bad schema."""
    about = {**function.json_schema["function"], **(by_hand(mark.json_schema) or {})}
    if mark.description:
        about["description"] = mark.description
    if mark.name:
        about["name"] = mark.name
    if mark.preset:
        about["parameters"] = without_properties(about["parameters"], mark.preset)
    return RegisteredToolFunction(
        about["name"],
        BASIC,
        "mcp_server",
        function,
        {"type": "function", "function": about},
        dict(mark.preset),
        mcp_name=function.mcp_name,
        postprocess_func=mark.postprocess,
        by_hand=mark.json_schema is not None,
    )


def registered_tool(target: Callable[..., Any], mark: Mark) -> RegisteredToolFunction:
    """Returns the registration of a function or of an MCP client's tool.

    Raises TypeError for a json_schema that is not one, and for a function that no schema can be made of.
    """
    return register_remote(target, mark) if isinstance(target, MCPToolFunction) else register_function(target, mark)


def take_name(tool: RegisteredToolFunction, taken: Container[str], strategy: Strategy) -> str | None:
    """Gives a tool the name it is kept under and returns it; None if it is not kept. Logs what differs.

    Raises ValueError and RuntimeError as `name_for`.
    """
    name = name_for(tool.name, taken, strategy)
    known = "A function with name '%s' is already registered in the toolkit."
    if name is None:
        log.warning(f"{known} Skipping registration.", tool.name)
    elif name != tool.name:
        tool.original_name, tool.name = tool.name, name
        tool.json_schema = {**tool.json_schema, "function": {**tool.json_schema["function"], "name": name}}
        log.warning(f"{known} Renaming the new function to '%s'.", tool.original_name, name)
    elif name in taken:
        log.warning(f"{known} Overriding with the new function.", name)
    return name


def hold_presets(owner: object, tools: Iterable[RegisteredToolFunction]) -> None:
    """Have the hubs of MCP clients keep the presets of their tools out of what they write, while `owner` lives."""
    held: dict[MCPClientBase, list[str]] = {}
    for tool in tools:
        if tool.remote is not None:
            held.setdefault(tool.remote.client, []).extend(preset_texts(tool.preset_kwargs))
    for client, texts in held.items():
        client.hold(owner, texts)


def repeated_registrations(
    tools: Iterable[RegisteredToolFunction],
) -> list[tuple[RegisteredToolFunction, RegisteredToolFunction]]:
    """(a tool, the one before it that is the same tool of the same server), of each that has been registered twice."""
    first: dict[tuple[str, str], RegisteredToolFunction] = {}
    again = []
    for tool in tools:
        if tool.remote is not None:
            remote = tool.remote
            known = first.setdefault((remote.client.name, remote.name), tool)
            again += [] if known is tool else [(tool, known)]
    return again


class ServedTool:
    """What a toolkit has registered for a tool of an MCP server, where its hub serves it: an `InProgram`."""

    def __init__(self, tool: RegisteredToolFunction, process: Process) -> None:
        self._name = tool.name
        self._extension = None if tool.extended_model is None else Extension(tool.extended_model)
        self._postprocess = tool.postprocess_func
        self._process = process

    def check(self, arguments: Json) -> None:
        """Raises InvalidParameters for what the extended model does not take."""
        if self._extension is not None:
            try:
                self._extension.checked(self._name, arguments)
            except WrongArguments as error:
                raise InvalidParameters(str(error), executed=False) from None

    async def process(self, call: Json, result: Json) -> Json:
        """The result as the post-processor leaves it, in the loop of the program's functions. Raises ToolFailed."""
        if self._postprocess is None:
            return result
        block = {"type": "tool_use", "id": "", "name": self._name, "input": call["arguments"]}
        try:
            return await self._process(postprocessed_result(self._postprocess, block, result))
        except Withheld as withheld:
            raise ToolFailed(withheld.message) from None


_ADDED: Final = frozenset({"properties", "required", "$defs"})
"""What of a model's schema is added to a tool's."""

Tools = Sequence[RegisteredToolFunction]


def with_tools(
    config: Config,
    tools: Tools,
    groups: Sequence[ToolGroup],
    before: Collection[str],
    hub: Hub,
    clients: Collection[str],
) -> Config:
    """The configuration with the toolkit's groups in the place of those it had `before`.

    `hub` has its functions, `clients` are those of its MCP clients that are there too.
    """
    settings = tuple(_settings(group, tools, hub.functions) for group in groups)
    others = tuple(group for group in config.groups if group.name not in before)
    servers = tuple(_ruled(server, tools, hub) if server.id in clients else server for server in config.servers)
    return config.model_copy(update={"groups": (*others, *settings), "servers": servers})


def with_own_names(config: Config, clients: Collection[str]) -> Config:
    """The configuration with the tools of these servers under the names the toolkit has for them."""
    servers = [s.model_copy(update={"namespace": ""}) if s.id in clients else s for s in config.servers]
    return config.model_copy(update={"servers": tuple(servers)})


def _settings(group: ToolGroup, tools: Tools, functions: str | None) -> GroupSettings:
    members = [tool for tool in tools if tool.group == group.name]
    places = [(functions, tool.name) if tool.remote is None else (tool.mcp_name, tool.remote.name) for tool in members]
    return GroupSettings(
        name=group.name,
        description=group.description,
        notes=group.notes,
        active=group.active,
        tools=tuple(f"{server}/{glob.escape(name)}" for server, name in places if server is not None),
    )


def _ruled(server: Server, tools: Tools, hub: Hub) -> Server:
    """What is not registered is not there; what is looks as it was registered, with its presets.

    A server has each tool once: of several registrations of one, clients are served the first.
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
    said: dict[str, Any] = {}
    if tool.name != remote.name:
        said["name"] = tool.name
    if tool.json_schema["function"].get("description", "") != (remote.description or ""):
        said["description"] = tool.json_schema["function"].get("description", "")
    if tool.preset_kwargs:
        said["preset"] = {written_path(name): value for name, value in tool.preset_kwargs.items()}
    if tool.extended_model is not None:
        schema = tool.extended_model.model_json_schema(by_alias=True)
        said["extend_schema"] = {key: one for key, one in drop_titles(schema).items() if key in _ADDED}
    if tool.by_hand:
        said["input_schema"] = tool.extended_json_schema["function"]["parameters"]
    if tool.postprocess_func is not None or tool.extended_model is not None:
        said["in_program"] = ServedTool(tool, hub.process)
    return ToolRules(**said)
