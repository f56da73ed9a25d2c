"""Tools and calls in the formats that models understand, and calls found in what models write. Pure, without I/O.

There are two strategies: *function_calling*, in the format of a vendor's interface (`openai`, `anthropic`), and
*structured_output*, a prompt that asks for a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from mcp_hub.errors import CallError
from mcp_hub.library.engine_host import CallOutcome
from mcp_hub.schema.portable_schema import portable_schema

Json = dict[str, Any]
Format = Literal["openai", "anthropic", "prompt", "json"]
Style = Literal["openai", "anthropic", "structured"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

TEMPLATE: Final = """请按以下格式调用工具：
{
  "name": "工具名",
  "parameters": {
    "参数1": "值1",
    "参数2": "值2"
  }
}"""
TOOLS_HEAD: Final = "可用工具："

MAX_TEXT: Final = 256 * 1024
"""Characters of a text that are searched for calls."""
MAX_FALSE_STARTS: Final = 5000
"""Braces without valid JSON after which the search of a text ends, as each may take a scan of the rest of the text."""
_DEEP: Final = 500
"""How many false starts a value that is nested too deeply counts for."""
MAX_CALLS: Final = 1000

_START: Final = re.compile(r"[{\[]")
_SCHEMAS: Final = ("inputSchema", "input_schema", "json_schema", "schema", "args_schema")
_SCHEMA_KEYS: Final = frozenset({"properties", "$ref", "$schema", "$defs", "anyOf", "oneOf", "allOf", "required"})
"""Keys that tell a JSON schema from a mapping of parameters."""
_CONTAINERS: Final = ("tool_calls", "function_call", "output", "content", "choices", "message", "kwargs")
"""Keys of a vendor's message or answer that may contain calls. The first one that does counts."""


class FormatError(ValueError):
    """The given object is not a tool, or a call that a model wrote cannot be read."""


@dataclass(frozen=True)
class ToolCall:
    """One call that a model asks for. `id` is the vendor's id, which the answer has to name."""

    name: str
    arguments: Json = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class ToolDescription:
    """A tool as models need it."""

    name: str
    description: str
    schema: Json


# --- tools -----------------------------------------------------------------------------------------------------


def describe_tool(tool: Any) -> ToolDescription:
    """Reads a tool from an item of `tools/list`, a vendor's definition, or an object with such attributes.

    Raises FormatError if it has no name or its parameters are invalid.
    """
    read: Callable[[str], Any] = tool.get if isinstance(tool, Mapping) else lambda name: getattr(tool, name, None)
    if isinstance(inner := read("function"), Mapping):
        return describe_tool(inner)
    name, description = read("name"), read("description")
    if not isinstance(name, str) or not name:
        raise FormatError("A tool needs a name; give an item of tools/list, or an object with a name.")
    schema = next((value for key in _SCHEMAS if isinstance(value := read(key), Mapping)), None)
    if schema is None:
        schema = _schema(name, read("parameters"))
    return ToolDescription(name, description if isinstance(description, str) else "", dict(schema))


def _schema(name: str, parameters: Any) -> Mapping[str, Any]:
    if parameters is None:
        return {"type": "object", "properties": {}}
    if isinstance(parameters, Mapping) and (
        parameters.get("type") == "object" or not _SCHEMA_KEYS.isdisjoint(parameters)
    ):
        return parameters
    if isinstance(parameters, Mapping):
        # Name -> schema, or type, of each parameter.
        parameters = [
            {"name": key, **(value if isinstance(value, Mapping) else {"type": value})}
            for key, value in parameters.items()
        ]
    if not isinstance(parameters, Sequence) or not all(
        isinstance(parameter, Mapping) and "name" in parameter for parameter in parameters
    ):
        raise FormatError(f"The parameters of {name!r} are neither a JSON schema nor a list of parameters with names.")
    properties: Json = {}
    required = []
    for parameter in parameters:
        schema = {key: value for key, value in parameter.items() if key not in ("name", "required")}
        properties[parameter["name"]] = schema
        if parameter.get("required") is True:
            required.append(parameter["name"])
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def openai_tools(tools: Iterable[Any]) -> list[Json]:
    """Returns the tools for `tools=` of OpenAI's interface and compatible ones, with schemas that these take.

    Raises FormatError.
    """
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": portable_schema(tool.schema, "openai"),
            },
        }
        for tool in map(describe_tool, tools)
    ]


def anthropic_tools(tools: Iterable[Any]) -> list[Json]:
    """Returns the tools for `tools=` of Anthropic's interface, with schemas that it takes. Raises FormatError."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": portable_schema(tool.schema, "anthropic"),
        }
        for tool in map(describe_tool, tools)
    ]


def prompt(tools: Iterable[Any]) -> str:
    """Returns the tools with their schemas, and how to call one, for a model without function calling.

    Raises FormatError.
    """
    # The key is `schema` and not `parameters`, so that a model which repeats such a line does not make a call.
    lines = [
        json.dumps({"name": tool.name, "description": tool.description, "schema": tool.schema}, ensure_ascii=False)
        for tool in map(describe_tool, tools)
    ]
    return "\n".join([TOOLS_HEAD, *lines, "", TEMPLATE])


# --- calls -----------------------------------------------------------------------------------------------------


def call(name: str, arguments: Mapping[str, Any], style: Style, id: str | None = None) -> Json:
    """Returns one call as a model writes it in this style.

    Raises FormatError if the arguments cannot be written as JSON.
    """
    try:
        text = json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"The arguments of {name!r} cannot be written as JSON: {error}") from None
    if style == "openai":
        return {"name": name, "arguments": text}
    if style == "anthropic":
        return {"type": "tool_use", "id": id or f"call_{name}", "name": name, "input": dict(arguments)}
    return {"name": name, "parameters": dict(arguments)}


def calls_in(said: Any, known: Iterable[str] | None = None) -> list[ToolCall]:
    """Returns the calls in what a model wrote, in order: a text, or a message or answer of a vendor's interface.

    If `known` is given, only calls of these names count. Raises FormatError if a vendor's call has arguments that are
    not a JSON object. A text without calls gives an empty list.
    """
    names = None if known is None else frozenset(known)
    calls = _in_text(said) if isinstance(said, str) else _in_value(_plain(said), 0)
    return [tool_call for tool_call in calls if names is None or tool_call.name in names][:MAX_CALLS]


def _plain(value: Any) -> Any:
    """Returns an object of a vendor's package as a dict."""
    if isinstance(value, Mapping | list | tuple | str) or value is None:
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    return vars(value) if hasattr(value, "__dict__") else value


def _in_value(value: Any, depth: int) -> list[ToolCall]:
    value = _plain(value)
    if depth > 8:
        return []
    if isinstance(value, list | tuple):
        return [tool_call for item in value for tool_call in _in_value(item, depth + 1)]
    if not isinstance(value, Mapping):
        return []
    if (tool_call := _call(value)) is not None:
        return [tool_call]
    if value.get("type") in ("text", "output_text") and isinstance(value.get("text"), str):
        return _in_text(value["text"])
    for key in _CONTAINERS:
        inner = value.get(key)
        calls = _in_text(inner) if isinstance(inner, str) and key == "content" else _in_member(inner, depth)
        if calls:
            return calls
    return []


def _in_member(value: Any, depth: int) -> list[ToolCall]:
    """Returns the calls in a member of a message. If the message has both calls and text, its text is not searched."""
    value = _plain(value)
    if not isinstance(value, list | tuple):
        return _in_value(value, depth + 1)
    parts = [_plain(part) for part in value]
    blocks = [part for part in parts if not (isinstance(part, Mapping) and part.get("type") == "text")]
    return _in_value(blocks, depth + 1) or _in_value(parts, depth + 1)


def _call(value: Mapping[str, Any]) -> ToolCall | None:
    kind = value.get("type")
    id = next((value[key] for key in ("call_id", "id") if isinstance(value.get(key), str)), None)
    inner = _plain(value.get("function"))
    if isinstance(inner, Mapping) and kind in (None, "function") and "arguments" in inner:
        return _tool_call(inner, inner.get("arguments"), id)
    if kind in ("tool_use", "tool_call"):
        return _tool_call(value, value.get("input", value.get("args")), id)
    if kind == "function_call":
        return _tool_call(value, value.get("arguments"), id)
    if isinstance(value.get("name"), str) and kind is None:
        for key in ("parameters", "arguments", "args"):
            if key in value:
                return _tool_call(value, value[key], id)
    return None


def _tool_call(value: Mapping[str, Any], arguments: Any, id: str | None) -> ToolCall | None:
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return None
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise FormatError(f"The arguments of the call of {name!r} are not valid JSON.") from None
    if arguments in (None, ""):
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise FormatError(f"The arguments of the call of {name!r} are not a JSON object.")
    return ToolCall(name, dict(arguments), id)


def _in_text(text: str) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for value in _values(text[:MAX_TEXT]):
        try:
            calls += _in_value(value, 0)
        except FormatError:
            continue  # in prose, JSON of this shape need not be a call
    return calls


def _values(text: str) -> Iterator[Any]:
    """Yields the JSON objects and lists in a text, whatever surrounds them."""
    decoder = json.JSONDecoder(strict=False)
    position, false_starts = 0, 0
    while false_starts < MAX_FALSE_STARTS and (start := _START.search(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, start.start())
        except ValueError:
            false_starts += 1
            position = start.start() + 1
        except RecursionError:
            false_starts += _DEEP
            position = start.start() + 1
        else:
            yield value


# --- results and errors ----------------------------------------------------------------------------------------


def error_message(error: BaseException) -> str:
    """Returns the message of an error, with what the hub has added to it."""
    return error.message if isinstance(error, CallError) else str(error)


def outcome_message(outcome: CallOutcome, name: str) -> str:
    """Returns the message of the error of a call; texts of the hub call the tool by the name that the program uses."""
    assert outcome.error is not None
    message = error_message(outcome.error)
    if outcome.call is None or not isinstance(outcome.error, CallError):
        return message
    return message.replace(repr(outcome.call.exposed), repr(name))


def result_text(result: Json) -> str:
    """Returns all texts of a result joined by newlines, with markers such as `[image image/png]` for other blocks."""
    return "\n".join(_block_text(block) for block in _blocks(result))


def error_text(result: Json) -> str:
    """Returns the texts of an error result, joined by newlines."""
    return "\n".join(str(block["text"]) for block in _blocks(result) if isinstance(block.get("text"), str))


def _blocks(result: Json) -> Iterator[Json]:
    content = result.get("content")
    if isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _block_text(block: Json) -> str:
    kind, resource = block.get("type"), block.get("resource")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource" and isinstance(resource, dict):
        if isinstance(resource.get("text"), str):
            return str(resource["text"])
        return _marker(kind, resource.get("mimeType"), resource.get("uri"))
    return _marker(str(kind), block.get("mimeType"), block.get("uri"))


def _marker(kind: str, *facts: Any) -> str:
    return "[" + " ".join([kind, *(fact for fact in facts if isinstance(fact, str))]) + "]"
