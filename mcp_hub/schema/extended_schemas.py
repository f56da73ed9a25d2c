"""A tool's input schema with more properties than the tool itself declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def extended(schema: Mapping[str, Any], addition: Mapping[str, Any], tool: str) -> Json:
    """A copy of `schema` with the properties, required names and definitions of `addition` as well.

    Raises ValueError where both have a property of one name, or different definitions under one name.
    """
    merged = dict(schema)
    properties = _object(schema.get("properties"))
    for name, one in _object(addition.get("properties")).items():
        if name in properties:
            raise ValueError(
                f"The field `{name}` already exists in the original function schema of `{tool}`. "
                "Try to use a different name."
            )
        properties[name] = one
    merged["properties"] = properties
    required = [*_list(schema.get("required")), *_list(addition.get("required"))]
    if required:
        merged["required"] = required
    definitions = _object(schema.get("$defs"))
    for name, one in _object(addition.get("$defs")).items():
        if definitions.get(name, one) != one:
            raise ValueError(
                f"The $defs key `{name}` conflicts with existing definition in function schema of `{tool}`."
            )
        definitions[name] = one
    if definitions:
        merged["$defs"] = definitions
    return merged


def _object(value: Any) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
