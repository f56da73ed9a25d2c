"""What model providers take as the schema of a tool's arguments, by their documents; written without the hub's code.

Each function returns what its provider would refuse. The documents were read on 2026-11-29.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs

Json = dict[str, Any]

DRAFT_2020: Final = "https://json-schema.org/draft/2020-12/schema"


def refused_by_anthropic(schema: Json) -> list[str]:
    """What the Messages API refuses in `input_schema`.

    "A JSON Schema object defining the expected parameters" (platform.claude.com/docs/en/agents-and-tools/tool-use):
    of draft 2020-12, with `type: object`; by its errors without `oneOf`, `allOf`, `anyOf` at the top level
    (claude-code#40075), and with property keys of `^[a-zA-Z0-9_.-]{1,64}$` (claude-code, appstore-connect-mcp#1).
    """
    found = ["type: not object"] if schema.get("type") != "object" else []
    found += [f"{key}: at the top level" for key in ("oneOf", "allOf", "anyOf") if key in schema]
    try:
        jsonschema_rs.meta.validate({**schema, "$schema": DRAFT_2020})
    except (ValueError, jsonschema_rs.ValidationError) as error:
        return [*found, f"not of draft 2020-12: {error}"]
    keys = [key for key in schema.get("properties", {}) if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key)]
    found += [f"properties: {key!r}" for key in keys]
    references = (inner["$ref"] for _, inner in _walk(schema) if "$ref" in inner)
    return found + [f"$ref: {reference}" for reference in references if not _leads_somewhere(schema, reference)]


OPENAI_KEYWORDS: Final = frozenset({
    "type", "title", "description", "default", "enum", "const", "anyOf", "items", "properties", "required",
    "additionalProperties", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems",
})  # fmt: skip
OPENAI_FORMATS: Final = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
})  # fmt: skip


def refused_by_openai(schema: Json) -> list[str]:
    """What the Responses API refuses in `parameters` of a function that is not strict.

    Keywords, formats and 10 levels: "Supported schemas" (developers.openai.com/api/docs/guides/structured-outputs). Not
    strict: `required` need not have every property, `additionalProperties` need not be false. By its errors: at the top
    an object without combinations, `enum`, `not`; `items` in every array; a schema is an object; enum values fit their
    type; no lookaround, no `\\p` (oh-my-pi#2784, langfuse#14785); and no `minLength` and the like (xum#1220).
    """
    found = ["type: not object"] if schema.get("type") != "object" else []
    found += [f"{key}: at the top level" for key in ("oneOf", "anyOf", "allOf", "enum", "not") if key in schema]
    for path, inner in _walk(schema):
        found += [f"{path}: {key}" for key in inner.keys() - OPENAI_KEYWORDS]
        found += [f"{path}: {key} is no schema" for key, value in _members(inner) if not isinstance(value, dict)]
        types = inner.get("type", [])
        names = types if isinstance(types, list) else [types]
        if "array" in names and not isinstance(inner.get("items"), dict):
            found.append(f"{path}: array without items")
        if names and any(not _fits(value, names) for value in inner.get("enum", ())):
            found.append(f"{path}: an enum value is not of the type")
        if inner.get("format", "date-time") not in OPENAI_FORMATS:
            found.append(f"{path}: format")
        if re.search(r"\(\?<?[=!]|\\[pP]\{", str(inner.get("pattern", ""))):
            found.append(f"{path}: pattern")
        if inner and path.count("/properties/") + path.count("/items") > 10:
            found.append(f"{path}: nested too deep")
    return found


GEMINI_KEYWORDS: Final = frozenset({
    "type", "format", "title", "description", "enum", "items", "minItems", "maxItems", "minimum", "maximum", "anyOf",
    "properties", "additionalProperties", "required", "default",
})  # fmt: skip
GEMINI_FORMATS: Final = {"string": {"date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}


def refused_by_gemini(schema: Json) -> list[str]:
    """What the Gemini API refuses in `parametersJsonSchema`, which Gemini CLI sends, and in `parameters` of others.

    Keywords: those that both "_responseJsonSchema" and "Schema" list (ai.google.dev/api/generate-content,
    ai.google.dev/api/caching#Schema). By its errors: one type or `anyOf`, which stands without a type
    (opencode#48073); `properties` and `required` for objects only (opencode#11889), `items` for arrays only and in each
    (opencode#5832); every required property is declared (kilocode#11950, gemini-cli#23382); `enum` only of texts that
    are not empty (opencode#4512). A schema that accepts anything has neither type nor `anyOf`.
    """
    found = ["type: not object"] if schema.get("type") != "object" else []
    for path, inner in _walk(schema):
        found += [f"{path}: {key}" for key in inner.keys() - GEMINI_KEYWORDS]
        found += [f"{path}: {key} is no schema" for key, value in _members(inner) if not isinstance(value, dict)]
        name = inner.get("type")
        if name is not None and (not isinstance(name, str) or "anyOf" in inner):
            found.append(f"{path}: type")
        if name is None and "anyOf" not in inner and inner.keys() - {"title", "description", "default"}:
            found.append(f"{path}: no type")
        for keys, owners in (
            (("properties", "required", "additionalProperties"), ("object",)),
            (("items", "minItems", "maxItems"), ("array",)),
            (("minimum", "maximum"), ("number", "integer")),
            (("enum",), ("string",)),
        ):
            found += [f"{path}: {key} of {name}" for key in keys if key in inner and name not in owners]
        if name == "array" and "items" not in inner:
            found.append(f"{path}: array without items")
        found += [f"{path}: enum" for value in inner.get("enum", ()) if not isinstance(value, str) or not value]
        declared = inner.get("properties", {})
        found += [
            f"{path}: {key} is required, not declared" for key in inner.get("required", ()) if key not in declared
        ]
        if "format" in inner and inner["format"] not in GEMINI_FORMATS.get(str(name), ()):
            found.append(f"{path}: format")
    return found


REFUSED_BY: Final = {"anthropic": refused_by_anthropic, "openai": refused_by_openai, "gemini": refused_by_gemini}


def _walk(schema: Any, path: str = "") -> Iterator[tuple[str, Json]]:
    """All schemas that are objects, each with where it is."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in _members(schema):
        yield from _walk(value, f"{path}/{key}")


def _members(schema: Json) -> Iterator[tuple[str, Any]]:
    """The schemas directly in a schema, by all keywords that may hold one."""
    for key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
        members = schema.get(key)
        yield from ((f"{key}/{name}", inner) for name, inner in members.items()) if isinstance(members, dict) else ()
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        yield from ((f"{key}/{place}", inner) for place, inner in enumerate(schema.get(key, ())))
    for key in ("items", "contains", "not", "if", "then", "else", "propertyNames"):
        if key in schema:
            yield key, schema[key]
    if not isinstance(schema.get("additionalProperties", True), bool):
        yield "additionalProperties", schema["additionalProperties"]


def _fits(value: Any, names: list[str]) -> bool:
    return any(jsonschema_rs.is_valid({"type": name}, value) for name in names)


def _leads_somewhere(schema: Json, reference: Any) -> bool:
    part: Any = schema
    for step in str(reference).removeprefix("#").split("/")[1:]:
        part = part.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else None
    return str(reference).startswith("#") and isinstance(part, dict | bool)
