"""Arguments by their paths: set and taken out of values, and taken out of the schemas that describe them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any, Final

Json = dict[str, Any]

EACH: Final = "[]"
"""The step of a path into every member of a list."""
MAX_DEPTH: Final = 32
"""References followed, one inside the other, on the way to a property."""

Path = tuple[str, ...]

_STEP: Final = re.compile(r"\\(.)|(\[\])|(\.)|([^\\.\[]+|\[)")
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")


def path_of(written: str) -> Path:
    """`options.limit` and `items[].token` as steps; a backslash makes the next character an ordinary one."""
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


def written(name: str) -> str:
    """The name of an argument as the path of it: `path_of(written(name)) == (name,)`."""
    return re.sub(r"([\\.\[\]])", r"\\\1", name)


def with_value(arguments: Any, path: Path, value: Any, declared: frozenset[str] = frozenset()) -> tuple[Any, bool]:
    """(a copy of `arguments` with `value` at `path`, whether something of the caller's was dropped for it).

    Other spellings of the name (case, compatibility forms) go as well: some servers read names without their case,
    and of two the last one counts there. Names in `declared` are arguments of their own.
    """
    if not path:
        return value, arguments is not None
    step, rest = path[0], path[1:]
    if step == EACH:
        if not isinstance(arguments, list):
            return arguments, False
        changed = [with_value(one, rest, value) if isinstance(one, dict | list) else (one, False) for one in arguments]
        return [one for one, _ in changed], any(dropped for _, dropped in changed)
    given = arguments if isinstance(arguments, dict) else {}
    folded = _folded(step)
    kept = {name: one for name, one in given.items() if name == step or name in declared or _folded(name) != folded}
    dropped = len(kept) != len(given) or (arguments is not None and not isinstance(arguments, dict))
    if rest[:1] == (EACH,) and step not in kept:
        return kept, dropped
    inner, lost = with_value(kept.get(step), rest, value)
    kept.pop(step, None)
    return {**kept, step: inner}, dropped or lost


def without_value(arguments: Any, path: Path, declared: frozenset[str] = frozenset()) -> Any:
    """A copy of `arguments` without what `with_value` would replace at `path`; themselves where there is nothing."""
    step, rest = path[0], path[1:]
    if step == EACH:
        if not isinstance(arguments, list) or not rest:
            return arguments
        return [without_value(one, rest) for one in arguments]
    if not isinstance(arguments, dict):
        return arguments
    folded = _folded(step)
    gone = {name for name in arguments if name == step or (name not in declared and _folded(name) == folded)}
    if not gone:
        return arguments
    kept = {name: one for name, one in arguments.items() if name not in gone}
    return {**kept, step: without_value(arguments[step], rest)} if rest and step in gone else kept


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().replace("_", "").replace("-", "")


def without(schema: Any, path: Path, root: Json, depth: int = 0) -> Any:
    """A copy of `schema` that does not know the property at `path`; the schema itself where it never did.

    References into the same document are followed, and what they lead to is written out in their place.
    """
    if not isinstance(schema, dict) or depth > MAX_DEPTH or not path:
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = _resolved(reference, root)
        if target is None or target is root:
            return schema
        changed = without(target, path, root, depth + 1)
        if changed is target:
            return schema
        beside = {key: one for key, one in schema.items() if key != "$ref"}
        return without({**changed, **beside}, path, root, depth + 1)
    changes: Json = {}
    step, rest = path[0], path[1:]
    if step == EACH:
        changes |= _changed(schema, ("items", "contains"), rest, root, depth)
    elif rest:
        properties = schema.get("properties")
        if isinstance(properties, dict) and step in properties:
            inner = without(properties[step], rest, root, depth + 1)
            if inner is not properties[step]:
                changes["properties"] = {**properties, step: inner}
    else:
        changes |= _forgotten(schema, step)
    for key in _BRANCHES:
        branches = schema.get(key)
        if isinstance(branches, list):
            kept = [without(branch, path, root, depth + 1) for branch in branches]
            if any(one is not other for one, other in zip(kept, branches, strict=True)):
                changes[key] = kept
    changes |= _changed(schema, ("if", "then", "else", "not"), path, root, depth)
    if not changes:
        return schema
    return {key: one for key, one in {**schema, **changes}.items() if one is not _GONE}


_GONE: Final = object()


def _changed(schema: Json, keys: Iterable[str], path: Path, root: Json, depth: int) -> Json:
    found: Json = {}
    for key in keys:
        inner = schema.get(key)
        if isinstance(inner, dict):
            changed = without(inner, path, root, depth + 1)
            if changed is not inner:
                found[key] = changed
    return found


def _forgotten(schema: Json, name: str) -> Json:
    """What changes in a schema when one of its properties is not to be known any more."""
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
