"""Edits of input schemas, and of the arguments they describe: sets or removes an argument, adds properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mcp_hub.schema.argument_readings import may_hold_json
from mcp_hub.schema.lenient_schema import pointed_to
from mcp_hub.text import normalized

Json = dict[str, Any]

EACH: Final = "[]"
"""The step of a path that stands for every member of a list."""
MAX_DEPTH: Final = 32
"""Nested references that are followed on the way to a property."""
MAX_VISITS: Final = 1000
"""Schemas that are looked at to remove one property: references can make a short schema endless."""

Path = tuple[str, ...]

_STEP: Final = re.compile(r"\\(.)|(\[\])|(\.)|([^\\.\[]+|\[)")
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")


def parse_path(text: str) -> Path:
    """Parses a path such as `options.limit` or `items[].token` into steps. A backslash escapes the next character."""
    steps: list[str] = []
    name = ""
    for escaped, each, dot, plain in _STEP.findall(text):
        if each or dot:
            steps += [name] if name else []
            steps += [EACH] if each else []
            name = ""
        else:
            name += escaped or plain
    return tuple(steps + ([name] if name or not steps else []))


def written_path(name: str) -> str:
    """Writes an argument's name as a path: `parse_path(written_path(name)) == (name,)`."""
    return re.sub(r"([\\.\[\]])", r"\\\1", name)


def set_argument(arguments: Any, path: Path, value: Any, declared: frozenset[str] = frozenset()) -> tuple[Any, bool]:
    """Returns (a copy of `arguments` with `value` at `path`, whether this dropped a value of the caller).

    Other spellings of the name (case, compatibility forms, `_`, `-`) are removed too, because some servers ignore case
    and use the last of two. Names in `declared` are separate arguments and stay.

    Raises:
        ValueError: the path leads into a text that a server may parse, or an object is in the place of a list.
    """
    if not path:
        return value, arguments is not None
    step, rest = path[0], path[1:]
    if _is_json_text(arguments):
        raise ValueError("must be a list or an object, not JSON in a text")
    if step == EACH:
        if isinstance(arguments, dict):
            raise ValueError("must be a list, not an object")
        if not isinstance(arguments, list):
            return arguments, False
        changed = [
            set_argument(item, rest, value) if isinstance(item, dict | list) or _is_json_text(item) else (item, False)
            for item in arguments
        ]
        return [item for item, _ in changed], any(dropped for _, dropped in changed)
    members = arguments if isinstance(arguments, dict) else {}
    folded = _folded(step)
    remaining = {
        name: member for name, member in members.items() if name == step or name in declared or _folded(name) != folded
    }
    dropped = len(remaining) != len(members) or (arguments is not None and not isinstance(arguments, dict))
    if rest[:1] == (EACH,) and step not in remaining:
        return remaining, dropped
    inner, inner_dropped = set_argument(remaining.get(step), rest, value)
    remaining.pop(step, None)
    return {**remaining, step: inner}, dropped or inner_dropped


def drop_argument(arguments: Any, path: Path, declared: frozenset[str] = frozenset()) -> Any:
    """Returns `arguments` without the values that `set_argument` would replace at `path`, or refuse."""
    step, rest = path[0], path[1:]
    if step == EACH:
        if isinstance(arguments, dict) and rest:
            return drop_argument(arguments, rest)
        if not isinstance(arguments, list) or not rest:
            return arguments
        return [drop_argument(item, rest) for item in arguments if not _is_json_text(item)]
    if not isinstance(arguments, dict):
        return arguments
    folded = _folded(step)
    dropped = {name for name in arguments if name == step or (name not in declared and _folded(name) == folded)}
    if not dropped:
        return arguments
    remaining = {name: value for name, value in arguments.items() if name not in dropped}
    is_kept = rest and step in dropped and not _is_json_text(arguments[step])
    return {**remaining, step: drop_argument(arguments[step], rest)} if is_kept else remaining


def _is_json_text(value: Any) -> bool:
    return isinstance(value, str) and may_hold_json(value)


_MAX_FOLDED: Final = 1024
"""Characters of a name outside ASCII that is folded; a longer one is compared as it is written."""


def _folded(name: str) -> str:
    if len(name) > _MAX_FOLDED and not name.isascii():
        return name
    return normalized(name).casefold().replace("_", "").replace("-", "")


class _Visits:
    """The schemas that may still be looked at."""

    def __init__(self) -> None:
        self._remaining = MAX_VISITS

    def count(self) -> bool:
        """Counts one more schema; returns False if it is one too many."""
        self._remaining -= 1
        return self._remaining >= 0


def without_property(schema: Any, path: Path, root: Json, depth: int = 0, visits: _Visits | None = None) -> Any:
    """Returns a copy of `schema` without the property at `path`; the same object if it has none.

    References inside of the document are followed, and replaced by a changed copy of their target. Parts behind more
    than `MAX_DEPTH` references or `MAX_VISITS` other parts stay as they are.
    """
    visits = visits or _Visits()
    if not isinstance(schema, dict) or depth > MAX_DEPTH or not path or not visits.count():
        return schema
    if isinstance(schema.get("$ref"), str):
        return _without_in_target(schema, path, root, depth, visits)
    changes: Json = {}
    step, rest = path[0], path[1:]
    if step == EACH:
        changes |= _subschema_changes(schema, ("items", "contains"), rest, root, depth, visits)
    elif rest:
        properties = schema.get("properties")
        if isinstance(properties, dict) and step in properties:
            inner = without_property(properties[step], rest, root, depth + 1, visits)
            if inner is not properties[step]:
                changes["properties"] = {**properties, step: inner}
    else:
        changes |= _property_removal(schema, step)
    for key in _BRANCHES:
        branches = schema.get(key)
        if isinstance(branches, list):
            edited = [without_property(branch, path, root, depth + 1, visits) for branch in branches]
            if any(new is not old for new, old in zip(edited, branches, strict=True)):
                changes[key] = edited
    changes |= _subschema_changes(schema, ("if", "then", "else", "not"), path, root, depth, visits)
    if not changes:
        return schema
    return {key: value for key, value in {**schema, **changes}.items() if value is not _REMOVED}


def _without_in_target(schema: Json, path: Path, root: Json, depth: int, visits: _Visits) -> Any:
    """Does the same as `without_property` for a schema that is a reference."""
    target = pointed_to(root, schema["$ref"])
    if not isinstance(target, dict) or target is root:
        return schema
    changed = without_property(target, path, root, depth + 1, visits)
    if changed is target:
        return schema
    siblings = {key: value for key, value in schema.items() if key != "$ref"}
    return without_property({**changed, **siblings}, path, root, depth + 1, visits)


_REMOVED: Final = object()


def _subschema_changes(schema: Json, keys: Iterable[str], path: Path, root: Json, depth: int, visits: _Visits) -> Json:
    changes: Json = {}
    for key in keys:
        inner = schema.get(key)
        if isinstance(inner, dict):
            changed = without_property(inner, path, root, depth + 1, visits)
            if changed is not inner:
                changes[key] = changed
    return changes


def _property_removal(schema: Json, name: str) -> Json:
    """Returns the members of a schema that change when one of its properties is removed."""
    changes: Json = {}
    for key in ("properties", "dependentRequired", "dependentSchemas"):
        properties = schema.get(key)
        if isinstance(properties, dict) and name in properties:
            changes[key] = {member: value for member, value in properties.items() if member != name}
    needed = changes.get("dependentRequired", schema.get("dependentRequired"))
    if isinstance(needed, dict) and any(isinstance(names, list) and name in names for names in needed.values()):
        changes["dependentRequired"] = {
            member: [item for item in names if item != name] if isinstance(names, list) else names
            for member, names in needed.items()
        }
    required = schema.get("required")
    if isinstance(required, list) and name in required:
        changes["required"] = [item for item in required if item != name] or _REMOVED
    for key in ("default", "examples"):
        sample = schema.get(key)
        if isinstance(sample, dict) and name in sample:
            changes[key] = {member: value for member, value in sample.items() if member != name}
        elif isinstance(sample, list) and any(isinstance(example, dict) and name in example for example in sample):
            changes[key] = [
                {member: inner for member, inner in example.items() if member != name}
                if isinstance(example, dict)
                else example
                for example in sample
            ]
    return changes


def property_names(schema: Json, path: Path) -> frozenset[str] | None:
    """Returns the names of the properties behind `path` in a schema; None if it has none or allows any other name."""
    visits = _Visits()
    level = list(_variants(schema, schema, visits))
    for step in path:
        inner = [part.get("items") if step == EACH else _object(part.get("properties")).get(step) for part in level]
        level = [variant for part in inner for variant in _variants(part, schema, visits)]
    if any(part.get("additionalProperties", False) is not False or "patternProperties" in part for part in level):
        return None
    return frozenset(name for part in level for name in _object(part.get("properties"))) or None


def _variants(schema: Any, root: Json, visits: _Visits, depth: int = 0) -> Iterator[Json]:
    """Yields a schema, the target of its reference and its branches."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH or not visits.count():
        return
    yield schema
    branches = [branch for key in _BRANCHES for branch in _list(schema.get(key))]
    for branch in (pointed_to(root, schema.get("$ref")), schema.get("then"), schema.get("else"), *branches):
        yield from _variants(branch, root, visits, depth + 1)


def extend_schema(schema: Mapping[str, Any], addition: Mapping[str, Any], tool: str) -> Json:
    """Returns a copy of a tool's input schema with the properties, required names and definitions of `addition`.

    Raises:
        ValueError: both have a property of the same name, or different definitions of the same name.
    """
    merged = dict(schema)
    properties = _object(schema.get("properties"))
    for name, subschema in _object(addition.get("properties")).items():
        if name in properties:
            raise ValueError(
                f"The field `{name}` already exists in the original function schema of `{tool}`. "
                "Try to use a different name."
            )
        properties[name] = subschema
    merged["properties"] = properties
    required = [*_list(schema.get("required")), *_list(addition.get("required"))]
    if required:
        merged["required"] = required
    definitions = _object(schema.get("$defs"))
    for name, definition in _object(addition.get("$defs")).items():
        if definitions.get(name, definition) != definition:
            raise ValueError(
                f"The $defs key `{name}` conflicts with existing definition in function schema of `{tool}`."
            )
        definitions[name] = definition
    if definitions:
        merged["$defs"] = definitions
    return merged


def _object(value: Any) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
