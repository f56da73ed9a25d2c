"""Agently's formats of arguments, tools and results: `{"name": (type, "text;Default: 3")}`, dumped content blocks."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from mcp_hub.catalog.names import original_uri
from mcp_hub.errors import CallError, DeadlineExceeded, ServerUnavailable, StateLost
from mcp_hub.library import formats
from mcp_hub.library.engine_host import CallOutcome, ToolCard
from mcp_hub.policy.breaker import CircuitOpen
from mcp_hub.servers.local.signature import annotated

Json = dict[str, Any]
Kwargs = dict[str, Any]

_UNAVAILABLE: Final = (ServerUnavailable, CircuitOpen, StateLost, DeadlineExceeded)
"""Errors for which Agently's client raises."""
REST: Final = "<*>"
"""The key for further arguments that have no name of their own."""
_JSON_TYPES: Final[Mapping[Any, str]] = {
    **{str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"},
    **{"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"},
    **{name: name for name in ("string", "integer", "number", "boolean", "array", "object")},
}


_OF_BLOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    "image": ("type", "data", "mimeType", "annotations", "_meta"),
    "audio": ("type", "data", "mimeType", "annotations", "_meta"),
    "resource": ("type", "resource", "annotations", "_meta"),
    "resource_link": (
        *("name", "title", "uri", "description", "mimeType", "size", "icons", "annotations", "_meta", "type"),
    ),
}
"""Keys of the SDK's models of content blocks, in their order."""
_OF_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "annotations": ("audience", "priority", "lastModified"),
    "resource": ("uri", "mimeType", "_meta"),
    "icons": ("src", "mimeType", "sizes", "theme"),
}


def dumped(block: Mapping[str, Any]) -> Json:
    """Returns a content block as the SDK dumps its model of it: with all keys, None for absent ones."""
    dump = _filled(block, _OF_BLOCKS.get(str(block.get("type")), ("annotations", "_meta")))
    for name, keys in _OF_PARTS.items():
        part = dump.get(name)
        if isinstance(part, Mapping):
            dump[name] = _filled(part, keys)
        elif isinstance(part, list):
            dump[name] = [_filled(item, keys) if isinstance(item, Mapping) else item for item in part]
    return dump


def _filled(block: Mapping[str, Any], keys: tuple[str, ...]) -> Json:
    filled = {**dict.fromkeys(keys), **block}
    uri = original_uri(filled["uri"]) if isinstance(filled.get("uri"), str) else None
    return filled if uri is None else {**filled, "uri": uri[1]}


def from_schema(schema: Mapping[str, Any] | None) -> Kwargs | None:
    """Converts the JSON schema of an object to Agently's format; returns None if it describes nothing.

    Raises TypeError for a schema of another type.
    """
    if not schema:
        return None
    if schema.get("type", "object") != "object":
        raise TypeError(f"Input schema type is not 'object' but: {schema['type']}")
    properties = schema.get("properties")
    kwargs: Kwargs = {}
    for name, property_schema in (properties or {}).items():
        kwargs[name] = _of_property(property_schema if isinstance(property_schema, Mapping) else {})
    extra_schema = schema.get("additionalProperties", False)
    if isinstance(extra_schema, Mapping):
        kwargs[REST] = _of_property(extra_schema)
    elif extra_schema is not False:
        kwargs[REST] = (Any, "")
    return kwargs or None


def _of_property(schema: Mapping[str, Any]) -> tuple[Any, str]:
    texts = [f"{key}: {value}" for key, value in schema.items() if key not in ("type", "title")]
    return schema.get("type", Any), ";".join(texts)


def from_function(function: Callable[..., Any]) -> Kwargs:
    """Reads the signature of a function. `Annotated[T, "a", "b"]` becomes the type T with these texts."""
    hints = _hints(function)
    kwargs: Kwargs = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, Any if parameter.annotation is parameter.empty else parameter.annotation)
        base, text, _ = annotated(hint, parameter.default)
        kwargs[name] = (base, text)
    return kwargs


def returns_of(function: Callable[..., Any]) -> Any:
    """Returns the annotated return type of a function, or None. A model becomes `{field: (type, description)}`."""
    hints = _hints(function)
    return plain_type(hints["return"]) if "return" in hints else None


def plain_type(hint: Any) -> Any:
    """Returns the type in a type hint. A model becomes `{field: (type, description)}`."""
    base = annotated(hint)[0]
    if not isinstance(base, type) or isinstance(base, types.GenericAlias) or not issubclass(base, BaseModel):
        return base
    return {
        name: (plain_type(field.annotation), field.description)
        if field.description
        else (plain_type(field.annotation),)
        for name, field in base.model_fields.items()
    }


def to_schema(kwargs: Mapping[str, Any], function: Callable[..., Any]) -> Json:
    """Returns a JSON schema for arguments in Agently's format. Types unknown to JSON are left out.

    Arguments for which the function has no default are required.
    """
    properties = {name: _property(written) for name, written in kwargs.items() if name != REST}
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    except (TypeError, ValueError):
        parameters = {}
    required = [
        name for name in properties if name in parameters and parameters[name].default is inspect.Parameter.empty
    ]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _property(written: Any) -> Json:
    kind, *texts = written if isinstance(written, tuple | list) else (written,)
    origin: Any = get_origin(kind)
    schema: Json = {}
    if isinstance(kind, type) and issubclass(kind, Enum):
        schema["enum"] = [member.value for member in kind]
    elif origin is Literal:
        schema["enum"] = list(get_args(kind))
    else:
        named = _JSON_TYPES.get(origin or kind) if isinstance(origin or kind, type | str) else None
        schema |= {} if named is None else {"type": named}
    described = ";".join(str(text) for text in texts if text)
    return schema | ({"description": described} if described else {})


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # an annotation cannot be resolved; the signature has it as written
        return {}


def info_of(card: ToolCard, name: str) -> Json:
    """Returns `{"name", "desc", "kwargs", "returns"?}` of a server's tool."""
    info: Json = {"name": name, "desc": card.description, "kwargs": from_schema(card.schema) or {}}
    returns = from_schema(_object_schema(card.definition.get("outputSchema")))
    return info if returns is None else {**info, "returns": returns}


def value_of(outcome: CallOutcome, name: str) -> Any:
    """Converts the outcome of a server's tool, which the program calls `name`, as fastmcp's client and Agently do.

    Raises the error, as they do, if the server could not be reached or did not answer the call with a result.
    """
    error, result = outcome.error, outcome.result or {}
    if error is not None:
        if not isinstance(error, CallError) or isinstance(error, _UNAVAILABLE):
            raise error
        return {"error": formats.outcome_message(outcome, name)}
    if result.get("isError"):
        return {"error": formats.error_text(result)}
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict):
        return None
    if first.get("type") != "text":
        return dumped(first)
    try:
        return json.loads(first.get("text", ""))
    except ValueError:
        return first.get("text", "")


def _object_schema(schema: Any) -> Json | None:
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else None


def listed_tags(definition: Json) -> list[str]:
    """Returns the tags that a server lists for a tool, under the keys of old and new versions of fastmcp."""
    meta = definition.get("_meta")
    tags: list[str] = []
    for key in ("fastmcp", "_fastmcp"):
        library_meta = meta.get(key) if isinstance(meta, dict) else None
        listed = library_meta.get("tags") if isinstance(library_meta, dict) else None
        tags += [tag for tag in listed if isinstance(tag, str)] if isinstance(listed, list) else []
    return list(dict.fromkeys(tags))
