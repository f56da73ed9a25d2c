"""A function as a tool: its definition, its arguments, and a call of it as a stream of chunks.

The child process of `tools_dir`, the built-in servers and the library all use it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docstring_parser
from pydantic import BaseModel

from mcp_hub.errors import ERROR_KEY, error_facts
from mcp_hub.schema.compact_schema import drop_titles
from mcp_hub.servers.local import Mark, call_stream
from mcp_hub.servers.local.signature import (
    FunctionArguments,
    InvalidArguments,
    ModelExtension,
    hints_of,
    output_schema,
    parameters_of,
)
from mcp_hub.servers.local.tool_results import (
    ToolRefused,
    ToolResponse,
    ToolResult,
    as_response,
    failure_of,
    given_response,
    response_of,
    result_of,
)

log = logging.getLogger(__name__)

Json = dict[str, Any]

tool_call: ContextVar[Mapping[str, Any] | None] = ContextVar("tool_call", default=None)
"""The `tool_use` block of the current call, if it was made with one. Post-processors get it unchanged."""


@dataclass(frozen=True)
class BoundCall:
    """The arguments of one call: as the caller sent them, and as the function gets them."""

    id: str
    arguments: Mapping[str, Any]
    positional: list[Any]
    keywords: dict[str, Any]
    refused: Json | None = None
    """The error result if the arguments do not fit. The function is not called then."""


class LocalTool:
    """One function as a tool.

    Raises TypeError if no schema can be made of it, or the schema given for it is invalid.
    """

    def __init__(self, function: Callable[..., Any], mark: Mark | None = None) -> None:
        self.mark = mark = mark or Mark()
        self.original = function
        self.function, bound = _unwrap_partial(function)
        self.preset: Mapping[str, Any] = {**bound, **mark.preset}
        """Arguments that callers neither see nor set."""
        handwritten = handwritten_schema(mark.json_schema)
        self.name: str = mark.name or (handwritten or {}).get("name") or name_of(self.function)
        self.is_async = call_stream.is_async(self.function)
        self.is_stream = call_stream.is_stream(self.function)
        docstring = docstring_parser.parse(inspect.getdoc(self.function) or "")
        self._arguments: FunctionArguments | None = None
        if handwritten is None:
            self._arguments = FunctionArguments(
                self.function,
                {parameter.arg_name: parameter.description or "" for parameter in docstring.params},
                self.preset.keys(),
                var_positional=mark.include_var_positional,
                var_keyword=mark.include_var_keyword,
            )
            schema = self._arguments.schema
        else:
            schema = without_properties(drop_titles(handwritten["parameters"]), self.preset)
        self._allowed_names: frozenset[str] | None = None
        """The argument names of a handwritten schema that allows no others; else None."""
        if self.preset and schema.get("additionalProperties") is False:
            # `bind` drops what callers send for a preset and refuses other unknown names; nothing before it may refuse.
            schema = {key: value for key, value in schema.items() if key != "additionalProperties"}
            self._allowed_names = frozenset(schema["properties"]) if self._arguments is None else None
        long_description = docstring.long_description if mark.include_long_description else None
        texts = [text for text in (docstring.short_description, long_description) if text]
        self.documented = mark.before_long_description.join(texts)
        """The description in the function's docstring."""
        self.definition = self._define(schema, handwritten or {})
        """The tool's entry in `tools/list`, without the fields of an extended model."""
        self._extension: ModelExtension | None = None
        if mark.extended_model is not None:
            self.extend(mark.extended_model)

    def _define(self, schema: Json, handwritten: Json) -> Json:
        mark = self.mark
        description = mark.description or handwritten.get("description") or self.documented or self.name
        definition: Json = {"name": self.name, "description": description, "inputSchema": schema}
        if mark.title:
            definition["title"] = mark.title
        # A generator may yield nothing, and a post-processed result has no structured content.
        if mark.json_schema is None and mark.postprocess is None and not self.is_stream:
            output = output_schema(hints_of(self.function, ()).get("return"))
            if output is not None:
                definition["outputSchema"] = output
        if mark.annotations:
            definition["annotations"] = dict(mark.annotations)
        if mark.tags:
            definition["_meta"] = {"mcp-hub/tags": list(mark.tags)}
        return definition

    @property
    def listed(self) -> Json:
        """Returns the definition with the fields of the extended model. Raises ValueError if these do not fit."""
        if self._extension is None:
            return self.definition
        return {**self.definition, "inputSchema": self._extension.merged(self.definition["inputSchema"], self.name)}

    @property
    def extended_model(self) -> type[BaseModel] | None:
        """Returns the model that `extend` was called with last, or None."""
        return None if self._extension is None else self._extension.model

    def extend(self, model: type[BaseModel] | None) -> None:
        """Adds the fields of a model to the arguments; None removes them.

        Raises TypeError if it is not a model, and ValueError if the tool has an argument of the same name.
        """
        extension = None if model is None else ModelExtension(model)
        if extension is not None:
            extension.merged(self.definition["inputSchema"], self.name)
        self._extension = extension

    def renamed(self, name: str) -> None:
        """Renames the tool."""
        self.name = name
        self.definition = {**self.definition, "name": name}

    def bind(self, arguments: Mapping[str, Any], *, id: str = "", check: bool = True) -> BoundCall:
        """Binds arguments to the function, presets first. Raises InvalidArguments.

        Without `check`, the function gets the arguments as they are.
        """
        caller_arguments = {name: value for name, value in arguments.items() if name not in self.preset}
        if len(caller_arguments) != len(arguments):
            log.warning(
                "%s: %d arguments were dropped because they are preset",
                self.name,
                len(arguments) - len(caller_arguments),
            )
        added: Json = {}
        if self._extension is not None:
            added = self._extension.checked(self.name, caller_arguments) if check else {}
            caller_arguments = {name: value for name, value in caller_arguments.items() if name not in added}
            if self._arguments is not None and not self._arguments.takes_keywords:
                added = {}  # they are only checked, as the function does not accept them
        if self._allowed_names is not None and (unknown := sorted(caller_arguments.keys() - self._allowed_names)):
            reasons = "; ".join(f"{name}: is not an argument of this tool" for name in unknown)
            raise InvalidArguments(f"The arguments of {self.name!r} do not fit, nothing was called. {reasons}")
        if self._arguments is None:
            return BoundCall(id, arguments, [], {**caller_arguments, **added, **self.preset})
        checked = self._arguments.checked(self.name, caller_arguments) if check else caller_arguments
        values = checked if self.mark.convert else caller_arguments
        positional, keywords = self._arguments.bound({**values, **added, **self.preset})
        return BoundCall(id, arguments, positional, keywords)

    def start(self, call: BoundCall) -> Any:
        """Calls the function."""
        return self.function(*call.positional, **call.keywords)

    async def chunks(self, call: BoundCall, *, keep_generator: bool = False) -> AsyncGenerator[tuple[Any, bool]]:
        """Yields (chunk, whether others may follow), post-processed, on the running loop.

        Raises what the function raises.

        Args:
            keep_generator: whether a generator is the only chunk and is not run, unless chunks are post-processed.
        """
        kept = keep_generator and self.mark.postprocess is None

        def start() -> Any:
            return call_stream.kept(self.start(call)) if kept else self.start(call)

        async with aclosing(call_stream.chunks(start, asynchronous=self.is_async)) as stream:
            async for chunk, has_more in stream:
                is_kept = isinstance(chunk, call_stream.KeptGenerator)
                yield chunk.generator if is_kept else await self.finished(call, chunk), has_more

    async def finished(self, call: BoundCall, chunk: Any) -> Any:
        """Returns what the post-processor makes of a chunk. Raises ResultWithheld if it fails."""
        process = self.mark.postprocess
        if process is None:
            return chunk
        if isinstance(chunk, ToolResult) and chunk.is_error:
            result = await postprocess_result(process, self._tool_use_block(call), chunk.to_wire())
            return ToolResult(result["content"], result.get("structuredContent"), result.get("_meta"), is_error=True)
        changed = await apply_postprocessor(process, self._tool_use_block(call), as_response(chunk))
        return chunk if changed is None else changed

    async def failed(self, call: BoundCall, error: BaseException | Json) -> Json:
        """Returns the error result of a call that raised or was refused, with its text post-processed."""
        result = failure_of(self.name, error) if isinstance(error, BaseException) else error
        if self.mark.postprocess is None or isinstance(error, ResultWithheld):
            return result
        try:
            return await postprocess_result(self.mark.postprocess, self._tool_use_block(call), result)
        except ResultWithheld as withheld:
            return failure_of(self.name, withheld)

    def _tool_use_block(self, call: BoundCall) -> Mapping[str, Any]:
        block = tool_call.get()
        if block is not None and block.get("name") == self.name:
            return block
        return {"type": "tool_use", "id": call.id, "name": self.name, "input": dict(call.arguments)}


class ResultWithheld(ToolRefused):
    """A post-processor failed, so the result is withheld. The message quotes neither the result nor the exception."""

    def __init__(self, tool: str, process: Callable[..., Any], error: BaseException) -> None:
        *_, (frame, line) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
        location = f" at {Path(frame.f_code.co_filename).name}:{line}" if frame is not None else ""
        reason = f"its post-processing by {name_of(process)!r} failed: {type(error).__name__}{location}"
        super().__init__("tool_error", f"The result of {tool!r} is withheld: {reason}")


async def apply_postprocessor(process: Callable[..., Any], block: Mapping[str, Any], chunk: ToolResponse) -> Any:
    """Calls a post-processor, and returns a ToolResponse, or None for no change. Raises ResultWithheld if it fails."""
    try:
        changed = process(block, chunk)
        if inspect.isawaitable(changed):
            changed = await changed
        response = None if changed is None else given_response(changed)
        if changed is not None and response is None:
            raise TypeError(f"it returned {type(changed).__name__}, not a ToolResponse or None")
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # also sys.exit, which must not end more than the call
        raise ResultWithheld(str(block["name"]), process, error) from None
    return response


async def postprocess_result(process: Callable[..., Any], block: Mapping[str, Any], result: Json) -> Json:
    """Applies a post-processor to an MCP result. An error stays an error, with its code. Raises ResultWithheld.

    Parts that the post-processor was not shown, such as structured content and links, are left out.
    """
    response = response_of(result)
    changed = await apply_postprocessor(process, block, response)
    processed: Json = result_of(str(block["name"]), response if changed is None else changed)
    if result.get("isError") is True:
        processed = {**processed, "isError": True}
        if facts := error_facts(result):
            processed["_meta"] = {**processed.get("_meta", {}), ERROR_KEY: facts}
    return processed


def without_properties(schema: Mapping[str, Any], names: Mapping[str, Any]) -> Json:
    """Returns a copy of an input schema without these properties. An empty `required` is left out."""
    changed = dict(schema)
    changed["properties"] = {name: value for name, value in schema.get("properties", {}).items() if name not in names}
    if "required" in schema:
        changed["required"] = [name for name in schema["required"] if name not in names]
        if not changed["required"]:
            del changed["required"]
    return changed


def _unwrap_partial(function: Callable[..., Any]) -> tuple[Callable[..., Any], Json]:
    """Returns the function inside a partial, and the arguments bound by the partial, by name."""
    if not isinstance(function, functools.partial):
        return function, {}
    inner, bound = _unwrap_partial(function.func)
    free_parameters = [(name, candidate) for name, candidate in parameters_of(inner).items() if name not in bound]
    presets: Json = {}
    for index, value in enumerate(function.args):
        name, parameter = free_parameters[index] if index < len(free_parameters) else free_parameters[-1]
        if parameter.kind is parameter.VAR_POSITIONAL:
            presets[name] = list(function.args[index:])
            break
        presets[name] = value
    return inner, {**bound, **presets, **function.keywords}


def handwritten_schema(schema: Mapping[str, Any] | None) -> Json | None:
    """Reads a schema that was written by hand as `{"parameters", "name"?, "description"?}`.

    Raises TypeError if invalid.
    """
    if schema is None:
        return None
    if not isinstance(schema, Mapping):
        raise TypeError(f"the json_schema must be a mapping, not {type(schema).__name__}")
    if schema.get("type") == "object":
        return {"parameters": _parameters(schema)}
    function = schema.get("function")
    if schema.get("type") != "function" or not isinstance(function, Mapping):
        raise TypeError('the json_schema must be {"type": "function", "function": {"name": ..., "parameters": ...}}')
    for key in ("name", "description"):
        if not isinstance(function.get(key, ""), str):
            raise TypeError(f"function.{key} of the json_schema must be a text")
    parameters = function.get("parameters", {"type": "object", "properties": {}})
    return {**function, "parameters": _parameters(parameters)}


def _parameters(schema: Any) -> Json:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise TypeError('the parameters of the json_schema must be a schema of type "object"')
    if not isinstance(schema.get("properties", {}), Mapping):
        raise TypeError("the properties of the json_schema must be a mapping")
    required = schema.get("required", [])
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) for name in required):
        raise TypeError("'required' of the json_schema must be a list of names")
    return {**schema, "properties": dict(schema.get("properties", {}))}


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a callable."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__
