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
_LOOKED_AT: Final = 50
_SHOWN_VALUES: Final = 20
_SHOWN_LENGTH: Final = 40
_MEMBERS: Final = 10
"""Members checked of each list if checking all of them would take too long."""

_SOMEWHERE: Final = "something in them is not valid, and they are too large to say where"

_PRESET: Final = "an argument that the hub sets itself does not fit the tool; the owner of the hub must correct it"

_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_OF_ALL_MEMBERS: Final = frozenset({"minItems", "contains", "minContains"})
_OF_KIND: Final = frozenset({"type", "const", "enum"})


def explain_errors(compiled: CompiledSchema, arguments: Any, hidden: Collection[Hidden]) -> list[str]:
    """Returns texts about at most `SHOWN` problems; [] if nothing is certainly wrong.

    An argument at one of the `hidden` paths is neither named nor quoted.
    """
    value, ignored = arguments, frozenset[str]()
    if not compiled.explainable(arguments):
        value, ignored = _with_short_lists(arguments), _OF_ALL_MEMBERS
        if not compiled.explainable(value) or compiled.accepts(value):
            return [] if compiled.may_give_up else [_SOMEWHERE, *_expected(compiled.schema, hidden)]
    refused = [error for error in compiled.errors(value) if not _undecided(error) and _keyword(error) not in ignored]
    places = {tuple(error.instance_path) for error in _with_branches(refused)}
    texts: dict[str, None] = {}
    told: set[Path] = set()
    for error in compiled.exact_errors(value) if refused else []:
        at = tuple(error.instance_path)
        if at in places and not _undecided(error) and _keyword(error) not in ignored and len(told) < _LOOKED_AT:
            told.add(at)
            texts.update(dict.fromkeys(_texts(error, compiled, value, places, hidden)))
    for at in list(dict.fromkeys(tuple(error.instance_path) for error in refused))[:_LOOKED_AT]:
        if not any(at == one[: len(at)] for one in told):
            texts[_PRESET if _is_hidden(at, hidden) else f"{_named(at)} is not valid"] = None
    if not texts:
        return []
    found = list(texts)
    more = ["and more"] if len(found) > SHOWN else []
    return found[:SHOWN] + more + _expected(compiled.schema, hidden)


def _with_short_lists(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_short_lists(one) for one in value[:_MEMBERS]]
    return {name: _with_short_lists(one) for name, one in value.items()} if isinstance(value, dict) else value


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


def _undecided(error: Any) -> bool:
    """Returns whether a regular expression reached its limit, so that the value may be valid."""
    if type(error.kind).__name__ in ("BacktrackLimitExceeded", "RegexEngineFailure"):
        return True
    if _keyword(error) == "propertyNames" and hasattr(error.kind, "error"):
        return _undecided(error.kind.error)
    return any(_undecided(inner) for branch in _branches(error) for inner in branch)


def _texts(
    error: Any, compiled: CompiledSchema, arguments: Any, places: Collection[Path], hidden: Collection[Hidden]
) -> Iterator[str]:
    keyword, kind, at = _keyword(error), error.kind, tuple(error.instance_path)
    if _is_hidden(at, hidden):
        yield _PRESET
        return
    name, value = _named(at), _value(arguments, at)
    shown = _shown(value)
    if keyword == "required" and _is_hidden((*at, str(kind.property)), hidden):
        yield _PRESET
    elif keyword == "required":
        missing = str(kind.property)
        given = [one for one in islice(value, _LOOKED_AT) if not _is_hidden((*at, one), hidden)]
        yield f"{_named((*at, missing))} is missing{_meant(missing, given, _around(error, compiled.expected))}"
    elif keyword == "type":
        yield f"{name} must be {_types(kind.types)}, not {_type_of(value)}{shown}"
    elif nearest := [one for one in _nearest(error) if tuple(one.instance_path) in places]:
        for inner in nearest:
            yield from _texts(inner, compiled, arguments, places, hidden)
    elif _branches(error):
        types = _branch_types(error)
        yield f"{name} must be {types}, not {_type_of(value)}{shown}" if types else f"{name} fits none of its forms"
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        strange = [str(one) for one in kind.unexpected if not _is_hidden((*at, str(one)), hidden)]
        listed = ", ".join(printable(repr(one), 80) for one in strange[:SHOWN])
        yield f"{name if at else 'the tool'} does not take {listed}" if strange else _PRESET
    else:
        yield f"{name} {_demand(keyword, kind, shown)}"


def _demand(keyword: str, kind: Any, shown: str) -> str:
    """Returns what a keyword about a single value demands; `shown` is " VALUE", or "" if the value is not shown."""
    instead = shown and f", not{shown}"
    if keyword == "enum":
        return f"must be one of {_values(kind.options)}{instead}"
    if keyword == "const":
        return f"must be {_values([kind.expected_value])}"
    if keyword in _LIMITS:
        return f"must {_LIMITS[keyword]} {printable(str(kind.limit), _SHOWN_LENGTH)}{instead}"
    if keyword == "multipleOf":
        return f"must be a multiple of {printable(str(kind.multiple_of), _SHOWN_LENGTH)}{instead}"
    if keyword == "pattern":
        return f"must match {printable(str(kind.pattern), 100)!r}"
    return f"is not valid ({keyword})"


def _is_hidden(at: Path, hidden: Collection[Hidden]) -> bool:
    """Returns whether a path is one of `hidden` or lies below one."""
    return any(
        len(at) >= len(path)
        and all(
            isinstance(step, int) if wanted == EACH else step == wanted for step, wanted in zip(at, path, strict=False)
        )
        for path in hidden
    )


def _nearest(error: Any) -> list[Any]:
    """Returns the errors of the likely branch: the only one whose type, `const` and `enum` fit the value best."""
    at = list(error.instance_path)
    ranked: list[tuple[int, list[Any]]] = []
    for branch in _branches(error):
        if not any(_keyword(one) in _OF_KIND and list(one.instance_path) == at for one in branch):
            ranked.append((sum(_keyword(one) in ("const", "enum") for one in branch), branch))
    best = min((rank for rank, _ in ranked), default=0)
    found = [branch for rank, branch in ranked if rank == best]
    return found[0] if len(found) == 1 else []


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


def _named(at: Path) -> str:
    text = ""
    for part in at:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return printable(text, 120) or "the arguments object"


def _value(arguments: Any, at: Path) -> Any:
    for part in at:
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


def _shown(value: Any) -> str:
    """Returns " VALUE" for a short value, so that a model can find it; "" for a long one."""
    if isinstance(value, dict | list):
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return f" {printable(text)}" if len(text) <= _SHOWN_LENGTH else ""


def _types(types: Any) -> str:
    return " or ".join(_WORDS.get(str(one), str(one)) for one in types)


def _branch_types(error: Any) -> str:
    """Returns the types of the branches that do not match because of their type."""
    found: dict[str, None] = {}
    for branch in getattr(error.kind, "context", []):
        for inner in branch:
            if _keyword(inner) == "type" and list(inner.instance_path) == list(error.instance_path):
                found.update(dict.fromkeys(str(one) for one in inner.kind.types))
    return _types(found)


def _values(options: Any) -> str:
    listed = [json.dumps(one, ensure_ascii=False) for one in list(options)[:_SHOWN_VALUES]]
    return printable(", ".join(listed), 600) + (", ..." if len(options) > _SHOWN_VALUES else "")


def _around(error: Any, schema: Any) -> Any:
    """Returns the subschema that an error comes from."""
    found = schema
    for step in list(error.schema_path)[:-1]:
        try:
            found = found[step]
        except (LookupError, TypeError):
            return None
    return found


def _meant(missing: str, given: Iterable[str], schema: Any) -> str:
    """Returns a hint at a given name that may be a misspelling of the missing one, else ""."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    known = properties if isinstance(properties, dict) else {}
    strange = {name.lower(): name for name in given if name not in known}
    near = difflib.get_close_matches(missing.lower(), list(strange), n=1, cutoff=0.6)
    return f" (is {printable(strange[near[0]], 80)!r} meant for it?)" if near else ""


def _expected(schema: Json, hidden: Collection[Hidden]) -> list[str]:
    """Returns one text that lists the arguments with their types; [] if the schema lists none."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    needed = set(required) if isinstance(required, list) else set()
    names = sorted((name for name in properties if (name,) not in hidden), key=lambda name: name not in needed)
    if not names:
        return ["it takes no arguments"]
    listed = [
        f"{name}: {_type_named(properties[name])}{' (required)' if name in needed else ''}"
        for name in names[:_SHOWN_VALUES]
    ]
    return ["it takes " + printable(", ".join(listed), 800) + (", ..." if len(names) > _SHOWN_VALUES else "")]


def _type_named(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else " or ".join(map(str, kind)) if isinstance(kind, list) else "any"
