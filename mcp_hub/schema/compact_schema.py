"""Compact schemas: removes parts that cost tokens, but neither change which values are valid nor help a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from mcp_hub.protocol.frames import encode, weighs_more

Json = dict[str, Any]
Change = Callable[[Json], Json]
"""Takes a schema whose inner schemas have been changed already, and returns its replacement."""

MAX_WEIGHT: Final = 64 * 1024
"""Weight of a schema that is made compact; a larger one stays as it is."""
MAX_DEPTH: Final = 64
"""Levels of schemas inside of each other; a deeper schema stays as it is."""
_MAX_ROUNDS: Final = 8
"""The most rounds of merging equal definitions: one for each level on which they refer to each other."""

_SUBSCHEMAS: Final = frozenset({
    "items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties",
    "propertyNames", "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "prefixItems", "contentSchema",
})  # fmt: skip
"""Keywords that hold a schema, or a list of schemas."""
_DEFINITIONS: Final = ("$defs", "definitions")
_SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", *_DEFINITIONS})
"""Keywords that hold schemas by names that their author chooses."""
_REMARKS: Final = frozenset({"title", "$comment", "examples"})
"""Keywords that describe an argument, in addition to its name and description."""
_EMPTY: Final[dict[str, tuple[Any, ...]]] = {
    "default": (None,), "description": ("",), "required": ([],), "additionalProperties": (True, {}),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), (False,)),
    **dict.fromkeys(("minLength", "minItems", "minProperties"), (0,)),
}  # fmt: skip
"""Values that have the same meaning as a missing keyword."""
_ANNOTATIONS: Final = frozenset({"description", "default", "title", "$comment", "examples", "deprecated"})

_DIALECT: Final = re.compile(r"https?://json-schema\.org/draft(/2020-12|/2019-09|-07)/schema#?")
_DIALECT_KEYWORDS: Final = frozenset({
    "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef", "$recursiveRef", "$vocabulary",
    "prefixItems", "additionalItems", "unevaluatedItems", "unevaluatedProperties", "minContains", "maxContains",
    "dependencies", "dependentRequired", "dependentSchemas",
})  # fmt: skip
"""Keywords that some dialects lack or interpret differently."""
_IDENTIFIER_KEYWORDS: Final = _DIALECT_KEYWORDS & {
    "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef", "$recursiveRef"
}  # fmt: skip
"""Keywords that name a part of a schema, refer to such a name, or make the part a separate document."""
_REFERENCE: Final = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.-]+)")

DefinitionKey = tuple[str, str]
"""The keyword and the name of a definition."""


def compact_schema(schema: Json) -> Json:
    """Returns a schema that accepts the same values in fewer tokens; the same object if nothing can be removed.

    Removes titles, comments, examples, keywords with their default value, unused definitions, and `$schema` if every
    dialect reads the schema alike. Merges equal definitions, and puts a definition with a single reference in its
    place. Keeps every constraint, `additionalProperties: false` included.
    """
    if weighs_more(schema, MAX_WEIGHT) or not _is_shallow(schema):
        return schema
    try:
        changed: Json = change_schemas(schema, _without_remarks(schema))
        changed = _with_fewer_definitions(changed)
        if _is_dialect_neutral(changed):
            changed = _without(changed, lambda key, _: key == "$schema")
        return changed if encode(changed) != encode(schema) else schema
    except RecursionError:
        return schema


def drop_titles(schema: Any) -> Any:
    """Returns a copy of a schema without the keyword `title` at any depth; a property called `title` stays."""
    return change_schemas(schema, lambda inner: _without(inner, _is_title))


def _is_title(key: str, value: Any) -> bool:
    return key == "title" and isinstance(value, str)


def change_schemas(schema: Any, change: Change) -> Any:
    """Returns a copy of a schema with `change` applied to every schema inside of it and to itself, the innermost first.

    Data (`default`, `enum`, ...) and keywords that JSON Schema does not know stay as they are. A schema that is nested
    more than `MAX_DEPTH` deep is returned unchanged.
    """
    return _changed(schema, change) if _is_shallow(schema) else schema


def _is_shallow(schema: Any) -> bool:
    level = [schema]
    for _ in range(MAX_DEPTH):
        level = [inner for node in level for inner in _subschemas(node)]
        if not level:
            return True
    return False


def _subschemas(schema: Any) -> Iterator[Any]:
    """Yields the schemas directly inside of a schema."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            yield from value.values()
        elif key in _SUBSCHEMAS:
            yield from value if isinstance(value, list) else (value,)


def _changed(schema: Any, change: Change) -> Any:
    if not isinstance(schema, dict):
        return schema
    copy: Json = {}
    for key, value in schema.items():
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            copy[key] = {name: _changed(inner, change) for name, inner in value.items()}
        elif key in _SUBSCHEMAS and isinstance(value, list):
            copy[key] = [_changed(inner, change) for inner in value]
        else:
            copy[key] = _changed(value, change) if key in _SUBSCHEMAS else value
    return change(copy)


def schemas_in(schema: Any) -> Iterator[Json]:
    """Yields a schema and every schema inside of it that is an object."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(_subschemas(node))


def _without(schema: Json, is_unwanted: Callable[[str, Any], bool]) -> Json:
    return {key: value for key, value in schema.items() if not is_unwanted(key, value)}


def _without_remarks(root: Json) -> Change:
    # `unevaluatedProperties` ignores what `additionalProperties: true` accepts, so that must stay.
    evaluated = any("unevaluatedProperties" in inner for inner in schemas_in(root))

    def is_unwanted(key: str, value: Any) -> bool:
        if key in _REMARKS:
            return key == "examples" or isinstance(value, str)
        if key not in _EMPTY or (evaluated and key == "additionalProperties"):
            return False
        return any(type(value) is type(empty) and value == empty for empty in _EMPTY[key])

    return lambda schema: _without(schema, is_unwanted)


def _is_dialect_neutral(schema: Json) -> bool:
    """Returns whether a schema names a known dialect and means the same in all of them."""
    dialect = schema.get("$schema")
    if not isinstance(dialect, str) or not _DIALECT.fullmatch(dialect):
        return False
    return not any(
        not _DIALECT_KEYWORDS.isdisjoint(inner)
        or isinstance(inner.get("items"), list)
        or ("$ref" in inner and not inner.keys() <= {"$ref", "$schema", *_ANNOTATIONS, *_DEFINITIONS})
        for inner in schemas_in(schema)
    )


def _with_fewer_definitions(schema: Json) -> Json:
    definitions = {
        (keyword, name): definition
        for keyword in _DEFINITIONS
        if isinstance(schema.get(keyword), dict)
        for name, definition in schema[keyword].items()
    }
    if not definitions or not _has_simple_references(schema, definitions):
        return schema
    body = _without(schema, lambda key, _: key in _DEFINITIONS)
    for _ in range(_MAX_ROUNDS):
        first: dict[bytes, DefinitionKey] = {}
        merged = {key: first.setdefault(encode(definition), key) for key, definition in definitions.items()}
        if all(key == target for key, target in merged.items()):
            break
        redirect = _redirection(merged)
        body = change_schemas(body, redirect)
        definitions = {key: change_schemas(definitions[key], redirect) for key in first.values()}
    sites = _references(body, definitions)
    inliner = _Inlining(definitions, {key for key, references in sites.items() if _is_movable(references)})
    result: Json = inliner.expanded(body)
    for key, definition in definitions.items():
        if key in sites and key not in inliner.keys:
            result.setdefault(key[0], {})[key[1]] = inliner.expanded(definition)
    return result


def _has_simple_references(schema: Json, definitions: dict[DefinitionKey, Any]) -> bool:
    """Returns whether every reference leads to a whole definition of the root, or to the root itself."""
    for inner in schemas_in(schema):
        if any(isinstance(inner.get(key), str) for key in _IDENTIFIER_KEYWORDS):
            return False
        if "$ref" in inner and inner["$ref"] != "#" and _referenced_key(inner) not in definitions:
            return False
    return all(isinstance(definition, dict) for definition in definitions.values())


def _referenced_key(schema: Json) -> DefinitionKey | None:
    """Returns the definition that a schema refers to, None if there is none."""
    reference = schema.get("$ref")
    match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    return (match[1], match[2]) if match is not None else None


def _redirection(merged: dict[DefinitionKey, DefinitionKey]) -> Change:
    def redirect(schema: Json) -> Json:
        key = _referenced_key(schema)
        if key is None or merged[key] == key:
            return schema
        return {**schema, "$ref": "#/{}/{}".format(*merged[key])}

    return redirect


def _references(body: Json, definitions: dict[DefinitionKey, Any]) -> dict[DefinitionKey, list[Json]]:
    """Returns the schemas that refer to each definition, for definitions that are used."""
    references: dict[DefinitionKey, list[Json]] = {}
    stack: list[Any] = [body]
    while stack:
        for inner in schemas_in(stack.pop()):
            key = _referenced_key(inner)
            if key is None:
                continue
            if key not in references:
                stack.append(definitions[key])
            references.setdefault(key, []).append(inner)
    return references


def _is_movable(sites: list[Json]) -> bool:
    """Returns whether a definition has one reference only, and can replace it."""
    return len(sites) == 1 and sites[0].keys() <= {"$ref", "$schema", *_ANNOTATIONS}


class _Inlining:
    """Replaces the references to the definitions of `keys` by these definitions."""

    def __init__(self, definitions: dict[DefinitionKey, Any], keys: set[DefinitionKey]) -> None:
        self.keys = keys
        self._definitions = definitions

    def expanded(self, schema: Json) -> Json:
        """Returns a schema with the references to these definitions replaced by them."""
        changed: Json = _changed(schema, self._resolve)
        return changed

    def _resolve(self, schema: Json) -> Json:
        key = _referenced_key(schema)
        if key is None or key not in self.keys:
            return schema
        return {**self.expanded(self._definitions[key]), **_without(schema, lambda key, _: key == "$ref")}
