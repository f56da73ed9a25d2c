"""`ToolExecutor`: calls tools and always returns a ToolMessage."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from mcp_hub.errors import CallError, DeadlineExceeded, InternalError, InvalidParameters, UnknownName, error_facts
from mcp_hub.library import Hub, formats
from mcp_hub.library.engine_host import CallOutcome
from mcp_hub.library.manager import ToolManager
from mcp_hub.library.tool_system import ToolNotFound, find_tool
from mcp_hub.library.tool_system.tool_types import BaseTool, ToolMessage
from mcp_hub.protocol.kinds import JSON_KEY
from mcp_hub.servers.local.tool_results import ToolResponse, ToolResult

Json = dict[str, Any]
Tool = BaseTool | str
ToolCall = tuple[Tool, Mapping[str, Any]] | Mapping[str, Any]
"""(tool, parameters), or a mapping with `name` or `tool`, and `parameters` or `arguments`."""


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
class ILogger(Protocol):
    """Gets a line for each call of ToolExecutor; a `logging.Logger` is one."""

    def info(self, msg: str, *args: Any) -> None:
        """Logs `msg % args`."""
        ...


class ToolExecutor:
    """Calls the tools of a ToolManager or a hub. `logger` gets a line for each call, with secrets redacted."""

    def __init__(self, tools: ToolManager | Hub | None = None, *, logger: ILogger | None = None) -> None:
        self._tools = ToolManager() if tools is None else tools
        self._logger: ILogger = logger or logging.getLogger("mcp_hub.executor")

    @property
    def _hub(self) -> Hub:
        return self._tools if isinstance(self._tools, Hub) else self._tools.hub

    def execute(self, tool: Tool, parameters: Mapping[str, Any] | None = None) -> ToolMessage:
        """Calls a tool. Errors of the tool or its server are in the message's `error` and not raised."""
        timed = self._hub.run(lambda: self._execute(tool, parameters or {}, in_hub=True))
        return self._log(parameters or {}, timed)

    async def async_execute(self, tool: Tool, parameters: Mapping[str, Any] | None = None) -> ToolMessage:
        """Does what `execute` does, for coroutines."""
        return self._log(parameters or {}, await self._execute(tool, parameters or {}))

    def execute_many(self, calls: Sequence[ToolCall], parallel: bool = True) -> list[ToolMessage]:
        """Returns the messages in the order of the calls. A call that fails does not affect the others."""
        pairs = [_read(call) for call in calls]
        results = self._hub.run(lambda: self._execute_all(pairs, parallel, in_hub=True))
        return [self._log(parameters, timed) for (_, parameters), timed in zip(pairs, results, strict=True)]

    async def async_execute_many(self, calls: Sequence[ToolCall], parallel: bool = True) -> list[ToolMessage]:
        """Does what `execute_many` does, for coroutines."""
        pairs = [_read(call) for call in calls]
        results = await self._execute_all(pairs, parallel, in_hub=False)
        return [self._log(parameters, timed) for (_, parameters), timed in zip(pairs, results, strict=True)]

    async def _execute_all(
        self, calls: list[tuple[Tool, Mapping[str, Any]]], parallel: bool, *, in_hub: bool
    ) -> list[tuple[ToolMessage, float]]:
        if parallel:
            return list(await asyncio.gather(*(self._execute(*call, in_hub=in_hub) for call in calls)))
        return [await self._execute(*call, in_hub=in_hub) for call in calls]

    async def _execute(
        self, tool: Tool, parameters: Mapping[str, Any], *, in_hub: bool = False
    ) -> tuple[ToolMessage, float]:
        """Returns the message and the seconds that the call took."""
        started_at = time.monotonic()
        name = tool.name if isinstance(tool, BaseTool) else tool
        if not isinstance(parameters, Mapping):
            text = f"the parameters must be a mapping of names to values, not {type(parameters).__name__}"
            return _failed(name, InvalidParameters.code, text), time.monotonic() - started_at
        if isinstance(tool, BaseTool) and tool.server:
            server, original = tool.server, tool.tool_name
        else:
            try:
                card = await find_tool(name, self._hub)
            except ToolNotFound as error:
                return _failed(name, error.code, str(error)), time.monotonic() - started_at
            server, original = card.server, card.name
        outcome = await self._hub.act(server, original, parameters, in_hub=in_hub)
        return _message(name, outcome), time.monotonic() - started_at

    def _log(self, parameters: Mapping[str, Any], timed: tuple[ToolMessage, float]) -> ToolMessage:
        message, seconds = timed
        redaction = self._hub.redaction
        failed = message.error is not None
        self._logger.info(
            "tool %s: arguments %s, %s %s, %.3f s",
            message.tool_name,
            redaction.value(dict(parameters) if isinstance(parameters, Mapping) else None),
            "error" if failed else "result",
            redaction.text(message.error or "") if failed else redaction.value(_plain(message.output)),
            seconds,
        )
        return message


def _read(call: ToolCall) -> tuple[Tool, Mapping[str, Any]]:
    if isinstance(call, Mapping):
        tool, parameters = call.get("name", call.get("tool")), call.get("parameters", call.get("arguments"))
    else:
        tool, parameters = call
    if not isinstance(tool, BaseTool | str):
        raise TypeError(f"a call is (tool, parameters) or has 'name' and 'parameters', not {call!r}")
    return tool, parameters or {}


def _message(name: str, outcome: CallOutcome) -> ToolMessage:
    error, result = outcome.error, outcome.result or {}
    if isinstance(error, UnknownName):
        return _failed(name, "tool_not_found", formats.error_message(error))
    if isinstance(error, CallError):
        return _failed(name, error.code, formats.error_message(error))
    if error is not None:
        code = DeadlineExceeded.code if isinstance(error, TimeoutError) else "tool_error"
        return _failed(name, code, formats.error_message(error) or InternalError.code)
    if result.get("isError"):
        hub_code = error_facts(result).get("code")
        return _failed(name, hub_code if isinstance(hub_code, str) else "tool_error", formats.error_text(result))
    value = value_of(result, outcome.value if outcome.direct else None)
    is_wrapped = isinstance(value, dict) and value.keys() == {"result"} and is_wrapper(outcome.definition or {})
    return ToolMessage(name, value["result"] if is_wrapped else value)


def value_of(result: Json, own: Any = None) -> Any:
    """Returns the value that a tool returned, in JSON types, so that it does not depend on where the function runs.

    `own` is the object that a function of this program returned; it is the value if it has no JSON form.
    """
    structured, meta = result.get("structuredContent"), result.get("_meta") or {}
    if structured is not None:
        wrapped = meta.get("fastmcp")
        if isinstance(wrapped, Mapping) and wrapped.get("wrap_result") is True and structured.keys() == {"result"}:
            return structured["result"]
        return structured
    if not result.get("content"):
        return None
    text = formats.result_text(result)
    if meta.get(JSON_KEY) is True:
        with contextlib.suppress(ValueError):  # the text is no JSON if a rule has shortened it
            return json.loads(text)
    return text if own is None or isinstance(own, str | ToolResult | ToolResponse) else own


def is_wrapper(definition: Json) -> bool:
    """Returns whether a tool's output schema is the official SDK's for a value that is no object: `{"result": VALUE}`.

    The SDK names it `addOutput`, and the input schema `addArguments`, by the function `add`.
    """
    output, arguments = definition.get("outputSchema"), definition.get("inputSchema")
    if not isinstance(output, dict) or not isinstance(arguments, dict):
        return False
    properties, title = output.get("properties"), arguments.get("title")
    is_named = isinstance(title, str) and output.get("title") == title.removesuffix("Arguments") + "Output"
    return is_named and isinstance(properties, dict) and properties.keys() == {"result"}


def _failed(name: str, code: str, text: str) -> ToolMessage:
    return ToolMessage(name, None, f"{code}: {text}", code)


def _plain(value: Any) -> Any:
    return value if isinstance(value, dict | list | str | int | float | bool) or value is None else repr(value)
