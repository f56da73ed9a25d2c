"""Explains invalid arguments in texts from which a model can correct its call."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from mcp_hub.schema.compiled_schemas import CompiledSchema
from mcp_hub.schema.schema_edits import EACH
from mcp_hub.schema.schema_edits import Path as Hidden
from mcp_hub.text import printable

Json = dict[str, Any]
Path = tuple[str | int, ...]

SHOWN: Final = 5
"""Problems that are reported."""
_MAX_INSPECTED: Final = 50
_MAX_VALUES: Final = 20
_MAX_LENGTH: Final = 40
_MEMBERS: Final = 10
"""Members checked of each list if checking all of them would take too long."""

_UNLOCATED: Final = "something in them is not valid, and they are too large to say where"

_PRESET: Final = "an argument that the hub sets itself does not fit the tool; the owner of the hub must correct it"

_TYPE_NAMES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LIST_KEYWORDS: Final = frozenset({"minItems", "contains", "minContains"})
_KIND_KEYWORDS: Final = frozenset({"type", "const", "enum"})


def explain_errors(compiled: CompiledSchema, arguments: Any, hidden: Collection[Hidden]) -> list[str]:
    """Returns texts about at most `SHOWN` problems; [] if nothing is certainly wrong.

    An argument at one of the `hidden` paths is neither named nor quoted.
    """
    value, ignored = arguments, frozenset[str]()
    if not compiled.explainable(arguments):
        value, ignored = _with_short_lists(arguments), _LIST_KEYWORDS
        if not compiled.explainable(value) or compiled.accepts(value):
            return [] if compiled.may_give_up else [_UNLOCATED, *_signature(compiled.schema, hidden)]
    errors = [error for error in compiled.errors(value) if not _is_undecided(error) and _keyword(error) not in ignored]
    paths = {tuple(error.instance_path) for error in _with_branches(errors)}
    texts: dict[str, None] = {}
    reported: set[Path] = set()
    for error in compiled.exact_errors(value) if errors else []:
        path = tuple(error.instance_path)
        if (
            path in paths
            and not _is_undecided(error)
            and _keyword(error) not in ignored
            and len(reported) < _MAX_INSPECTED
        ):
            reported.add(path)
            texts.update(dict.fromkeys(_explanations(error, compiled, value, paths, hidden)))
    for path in list(dict.fromkeys(tuple(error.instance_path) for error in errors))[:_MAX_INSPECTED]:
        if not any(path == reported_path[: len(path)] for reported_path in reported):
            texts[_PRESET if _is_hidden(path, hidden) else f"{_path_text(path)} is not valid"] = None
    if not texts:
        return []
    problems = list(texts)
    suffix = ["and more"] if len(problems) > SHOWN else []
    return problems[:SHOWN] + suffix + _signature(compiled.schema, hidden)


def _with_short_lists(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_short_lists(item) for item in value[:_MEMBERS]]
    return {name: _with_short_lists(member) for name, member in value.items()} if isinstance(value, dict) else value


def _keyword(error: Any) -> str:
    return str(error.kind.name)


def _branches(error: Any) -> list[list[Any]]:
    """Returns the errors of each branch of an `anyOf` or `oneOf` without a matching branch."""
    return list(getattr(error.kind, "context", []))


def _with_branches(errors: Iterable[Any]) -> Iterator[Any]:
    for error in errors:
        yield error
        for branch in _branches(error):
            yield from _with_branches(branch)


def _is_undecided(error: Any) -> bool:
    """Returns whether a regular expression reached its limit, so that the value may be valid."""
    if type(error.kind).__name__ in ("BacktrackLimitExceeded", "RegexEngineFailure"):
        return True
    if _keyword(error) == "propertyNames" and hasattr(error.kind, "error"):
        return _is_undecided(error.kind.error)
    return any(_is_undecided(inner) for branch in _branches(error) for inner in branch)


def _explanations(
    error: Any, compiled: CompiledSchema, arguments: Any, paths: Collection[Path], hidden: Collection[Hidden]
) -> Iterator[str]:
    keyword, kind, path = _keyword(error), error.kind, tuple(error.instance_path)
    if _is_hidden(path, hidden):
        yield _PRESET
        return
    name, value = _path_text(path), _value(arguments, path)
    quoted = _short_value(value)
    if keyword == "required" and _is_hidden((*path, str(kind.property)), hidden):
        yield _PRESET
    elif keyword == "required":
        missing = str(kind.property)
        present = [member for member in islice(value, _MAX_INSPECTED) if not _is_hidden((*path, member), hidden)]
        hint = _typo_hint(missing, present, _schema_at(error, compiled.expected))
        yield f"{_path_text((*path, missing))} is missing{hint}"
    elif keyword == "type":
        yield f"{name} must be {_types(kind.types)}, not {_type_of(value)}{quoted}"
    elif nearest := [candidate for candidate in _nearest_branch(error) if tuple(candidate.instance_path) in paths]:
        for inner in nearest:
            yield from _explanations(inner, compiled, arguments, paths, hidden)
    elif _branches(error):
        types = _branch_types(error)
        yield f"{name} must be {types}, not {_type_of(value)}{quoted}" if types else f"{name} fits none of its forms"
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        unexpected = [str(argument) for argument in kind.unexpected if not _is_hidden((*path, str(argument)), hidden)]
        listed = ", ".join(printable(repr(argument), 80) for argument in unexpected[:SHOWN])
        yield f"{name if path else 'the tool'} does not take {listed}" if unexpected else _PRESET
    else:
        yield f"{name} {_demand(keyword, kind, quoted)}"


def _demand(keyword: str, kind: Any, quoted: str) -> str:
    """Returns what a keyword about a single value demands; `quoted` is " VALUE", or "" if the value is not quoted."""
    contrast = quoted and f", not{quoted}"
    if keyword == "enum":
        return f"must be one of {_values(kind.options)}{contrast}"
    if keyword == "const":
        return f"must be {_values([kind.expected_value])}"
    if keyword in _LIMITS:
        return f"must {_LIMITS[keyword]} {printable(str(kind.limit), _MAX_LENGTH)}{contrast}"
    if keyword == "multipleOf":
        return f"must be a multiple of {printable(str(kind.multiple_of), _MAX_LENGTH)}{contrast}"
    if keyword == "pattern":
        return f"must match {printable(str(kind.pattern), 100)!r}"
    return f"is not valid ({keyword})"


def _is_hidden(path: Path, hidden: Collection[Hidden]) -> bool:
    """Returns whether a path is one of `hidden` or lies below one."""
    return any(
        len(path) >= len(hidden_path)
        and all(
            isinstance(step, int) if expected == EACH else step == expected
            for step, expected in zip(path, hidden_path, strict=False)
        )
        for hidden_path in hidden
    )


def _nearest_branch(error: Any) -> list[Any]:
    """Returns the errors of the likely branch: the only one whose type, `const` and `enum` fit the value best."""
    path = list(error.instance_path)
    ranked: list[tuple[int, list[Any]]] = []
    for branch in _branches(error):
        if not any(_keyword(inner) in _KIND_KEYWORDS and list(inner.instance_path) == path for inner in branch):
            ranked.append((sum(_keyword(inner) in ("const", "enum") for inner in branch), branch))
    best = min((rank for rank, _ in ranked), default=0)
    candidates = [branch for rank, branch in ranked if rank == best]
    return candidates[0] if len(candidates) == 1 else []


_LIMITS: Final = {
    "minimum": "be at least",
    "maximum": "be at most",
    "exclusiveMinimum": "be more than",
    "exclusiveMaximum": "be less than",
    "minLength": "have a length of at least",
    "maxLength": "have a length of at most",
    "minItems": "have at least so many members:",
    "maxItems": "have at most so many members:",
    "minProperties": "have at least so many members:",
    "maxProperties": "have at most so many members:",
}


def _path_text(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return printable(text, 120) or "the arguments object"


def _value(arguments: Any, path: Path) -> Any:
    for part in path:
        try:
            arguments = arguments[part]
        except (KeyError, IndexError, TypeError):
            return None
    return arguments


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}.get(
        type(value), type(value).__name__
    )


def _short_value(value: Any) -> str:
    """Returns " VALUE" for a short value, so that a model can find it; "" for a long one."""
    if isinstance(value, dict | list):
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return f" {printable(text)}" if len(text) <= _MAX_LENGTH else ""


def _types(types: Any) -> str:
    return " or ".join(_TYPE_NAMES.get(str(name), str(name)) for name in types)


def _branch_types(error: Any) -> str:
    """Returns the types of the branches that do not match because of their type."""
    types: dict[str, None] = {}
    for branch in getattr(error.kind, "context", []):
        for inner in branch:
            if _keyword(inner) == "type" and list(inner.instance_path) == list(error.instance_path):
                types.update(dict.fromkeys(str(name) for name in inner.kind.types))
    return _types(types)


def _values(options: Any) -> str:
    listed = [json.dumps(option, ensure_ascii=False) for option in list(options)[:_MAX_VALUES]]
    return printable(", ".join(listed), 600) + (", ..." if len(options) > _MAX_VALUES else "")


def _schema_at(error: Any, schema: Any) -> Any:
    """Returns the subschema that an error comes from."""
    subschema = schema
    for step in list(error.schema_path)[:-1]:
        try:
            subschema = subschema[step]
        except (LookupError, TypeError):
            return None
    return subschema


def _typo_hint(missing: str, present: Iterable[str], schema: Any) -> str:
    """Returns a hint at a present name that may be a misspelling of the missing one, else ""."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    declared = properties if isinstance(properties, dict) else {}
    undeclared = {name.lower(): name for name in present if name not in declared}
    matches = difflib.get_close_matches(missing.lower(), list(undeclared), n=1, cutoff=0.6)
    return f" (is {printable(undeclared[matches[0]], 80)!r} meant for it?)" if matches else ""


def _signature(schema: Json, hidden: Collection[Hidden]) -> list[str]:
    """Returns one text that lists the arguments with their types; [] if the schema lists none."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    needed = set(required) if isinstance(required, list) else set()
    names = sorted((name for name in properties if (name,) not in hidden), key=lambda name: name not in needed)
    if not names:
        return ["it takes no arguments"]
    listed = [
        f"{name}: {_declared_type(properties[name])}{' (required)' if name in needed else ''}"
        for name in names[:_MAX_VALUES]
    ]
    return ["it takes " + printable(", ".join(listed), 800) + (", ..." if len(names) > _MAX_VALUES else "")]


def _declared_type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else " or ".join(map(str, kind)) if isinstance(kind, list) else "any"
