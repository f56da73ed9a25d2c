"""Edits of input schemas, and of the arguments they describe: sets or removes an argument, adds properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

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


def parse_path(written: str) -> Path:
    """Parses a path such as `options.limit` or `items[].token` into steps. A backslash escapes the next character."""
    steps: list[str] = []
    name = ""
    for escaped, each, dot, plain in _STEP.findall(written):
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
    """
    if not path:
        return value, arguments is not None
    step, rest = path[0], path[1:]
    if step == EACH:
        if not isinstance(arguments, list):
            return arguments, False
        changed = [
            set_argument(one, rest, value) if isinstance(one, dict | list) else (one, False) for one in arguments
        ]
        return [one for one, _ in changed], any(dropped for _, dropped in changed)
    given = arguments if isinstance(arguments, dict) else {}
    folded = _folded(step)
    kept = {name: one for name, one in given.items() if name == step or name in declared or _folded(name) != folded}
    dropped = len(kept) != len(given) or (arguments is not None and not isinstance(arguments, dict))
    if rest[:1] == (EACH,) and step not in kept:
        return kept, dropped
    inner, lost = set_argument(kept.get(step), rest, value)
    kept.pop(step, None)
    return {**kept, step: inner}, dropped or lost


def drop_argument(arguments: Any, path: Path, declared: frozenset[str] = frozenset()) -> Any:
    """Returns `arguments` without the values that `set_argument` would replace at `path`."""
    step, rest = path[0], path[1:]
    if step == EACH:
        if not isinstance(arguments, list) or not rest:
            return arguments
        return [drop_argument(one, rest) for one in arguments]
    if not isinstance(arguments, dict):
        return arguments
    folded = _folded(step)
    gone = {name for name in arguments if name == step or (name not in declared and _folded(name) == folded)}
    if not gone:
        return arguments
    kept = {name: one for name, one in arguments.items() if name not in gone}
    return {**kept, step: drop_argument(arguments[step], rest)} if rest and step in gone else kept


_MAX_FOLDED: Final = 1024
"""Characters of a name outside ASCII that is folded; a longer one is compared as it is written."""


def _folded(name: str) -> str:
    if len(name) > _MAX_FOLDED and not name.isascii():
        return name
    return normalized(name).casefold().replace("_", "").replace("-", "")


class _Visits:
    """The schemas that may still be looked at."""

    def __init__(self) -> None:
        self._left = MAX_VISITS

    def count(self) -> bool:
        """Counts one more schema; returns False if it is one too many."""
        self._left -= 1
        return self._left >= 0


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
        changes |= _changed(schema, ("items", "contains"), rest, root, depth, visits)
    elif rest:
        properties = schema.get("properties")
        if isinstance(properties, dict) and step in properties:
            inner = without_property(properties[step], rest, root, depth + 1, visits)
            if inner is not properties[step]:
                changes["properties"] = {**properties, step: inner}
    else:
        changes |= _forgotten(schema, step)
    for key in _BRANCHES:
        branches = schema.get(key)
        if isinstance(branches, list):
            kept = [without_property(branch, path, root, depth + 1, visits) for branch in branches]
            if any(one is not other for one, other in zip(kept, branches, strict=True)):
                changes[key] = kept
    changes |= _changed(schema, ("if", "then", "else", "not"), path, root, depth, visits)
    if not changes:
        return schema
    return {key: one for key, one in {**schema, **changes}.items() if one is not _GONE}


def _without_in_target(schema: Json, path: Path, root: Json, depth: int, visits: _Visits) -> Any:
    """Does the same as `without_property` for a schema that is a reference."""
    target = _resolved(schema["$ref"], root)
    if target is None or target is root:
        return schema
    changed = without_property(target, path, root, depth + 1, visits)
    if changed is target:
        return schema
    beside = {key: one for key, one in schema.items() if key != "$ref"}
    return without_property({**changed, **beside}, path, root, depth + 1, visits)


_GONE: Final = object()


def _changed(schema: Json, keys: Iterable[str], path: Path, root: Json, depth: int, visits: _Visits) -> Json:
    found: Json = {}
    for key in keys:
        inner = schema.get(key)
        if isinstance(inner, dict):
            changed = without_property(inner, path, root, depth + 1, visits)
            if changed is not inner:
                found[key] = changed
    return found


def _forgotten(schema: Json, name: str) -> Json:
    """Returns the members of a schema that change when one of its properties is removed."""
    changes: Json = {}
    for key in ("properties", "dependentRequired", "dependentSchemas"):
        known = schema.get(key)
        if isinstance(known, dict) and name in known:
            changes[key] = {other: one for other, one in known.items() if other != name}
    needed = changes.get("dependentRequired", schema.get("dependentRequired"))
    if isinstance(needed, dict) and any(isinstance(names, list) and name in names for names in needed.values()):
        changes["dependentRequired"] = {
            other: [one for one in names if one != name] if isinstance(names, list) else names
            for other, names in needed.items()
        }
    required = schema.get("required")
    if isinstance(required, list) and name in required:
        changes["required"] = [other for other in required if other != name] or _GONE
    for key in ("default", "examples"):
        shown = schema.get(key)
        if isinstance(shown, dict) and name in shown:
            changes[key] = {other: one for other, one in shown.items() if other != name}
        elif isinstance(shown, list) and any(isinstance(one, dict) and name in one for one in shown):
            changes[key] = [
                {other: inner for other, inner in one.items() if other != name} if isinstance(one, dict) else one
                for one in shown
            ]
    return changes


def _resolved(reference: str, root: Json) -> Json | None:
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def extend_schema(schema: Mapping[str, Any], addition: Mapping[str, Any], tool: str) -> Json:
    """Returns a copy of a tool's input schema with the properties, required names and definitions of `addition`.

    Raises:
        ValueError: both have a property of the same name, or different definitions of the same name.
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
