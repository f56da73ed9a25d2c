"""What a toolkit knows of its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mcp_hub.errors import InvalidParameters, ToolFailed
from mcp_hub.library.agentscope.clients import MCPClientBase, MCPToolFunction
from mcp_hub.library.agentscope.tool_groups import BASIC
from mcp_hub.security.redaction import preset_texts
from mcp_hub.servers.local.extension import Extension
from mcp_hub.servers.local.functions import (
    LocalTool,
    Withheld,
    WrongArguments,
    by_hand,
    postprocessed_result,
    without_properties,
)
from mcp_hub.servers.local.registry import Mark

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp_hub.library.agentscope.streams import ToolStream

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


def of_function(function: Callable[..., Any], mark: Mark) -> RegisteredToolFunction:
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


def of_remote(function: MCPToolFunction, mark: Mark) -> RegisteredToolFunction:
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


def hold_presets(owner: object, tools: Iterable[RegisteredToolFunction]) -> None:
    """Have the hubs of MCP clients keep the presets of their tools out of what they write, while `owner` lives."""
    held: dict[MCPClientBase, list[str]] = {}
    for tool in tools:
        if tool.remote is not None:
            held.setdefault(tool.remote.client, []).extend(preset_texts(tool.preset_kwargs))
    for client, texts in held.items():
        client.hold(owner, texts)


def registered_again(
    tools: Iterable[RegisteredToolFunction],
) -> list[tuple[RegisteredToolFunction, RegisteredToolFunction]]:
    """(a tool, the one before it that is the same tool of the same server), of each that has been registered twice."""
    first: dict[tuple[str, str], RegisteredToolFunction] = {}
    again = []
    for tool in tools:
        if tool.remote is not None:
            known = first.setdefault((tool.remote.client.name, tool.remote.name), tool)
            again += [] if known is tool else [(tool, known)]
    return again


class Served:
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
