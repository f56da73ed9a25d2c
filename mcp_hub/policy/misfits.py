"""What is wrong with arguments, in words a model can act on."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final

from mcp_hub.policy.schemas import Compiled
from mcp_hub.text import printable

Json = dict[str, Any]
Path = tuple[str | int, ...]

SHOWN: Final = 5
"""Problems that are told."""
_LOOKED_AT: Final = 50
_SHOWN_VALUES: Final = 20
_SHOWN_LENGTH: Final = 40

_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_IGNORED_WHEN_LENIENT: Final = frozenset({"additionalProperties", "unevaluatedProperties", "pattern", "format"})
_UNDECIDED: Final = frozenset({"backtrackLimitExceeded", "regexEngineFailure"})


def misfits(compiled: Compiled, arguments: Any, hidden: Collection[str]) -> list[str]:
    """The problems, at most `SHOWN` of them; no value of an argument in `hidden` is quoted.

    Empty if nothing is certainly wrong.
    """
    places = {
        tuple(error.instance_path): None
        for error in islice(compiled.accepts.iter_errors(arguments), _LOOKED_AT)
        if _keyword(error) not in _UNDECIDED
    }
    texts: dict[str, None] = {}
    told: set[Path] = set()
    for error in islice(compiled.exact.iter_errors(arguments), _LOOKED_AT):
        at = tuple(error.instance_path)
        lenient = compiled.mode == "lenient" and _keyword(error) in _IGNORED_WHEN_LENIENT
        if at in places and not lenient:
            told.add(at)
            for text in _texts(error, compiled, arguments, at, at[:1] != () and at[0] in hidden):
                texts[text] = None
    for at in places:
        if at not in told:
            texts[f"{_named(at)} is not valid"] = None
    found = list(texts)
    more = [f"and {len(found) - SHOWN} more problems"] if len(found) > SHOWN else []
    return found[:SHOWN] + more + (_expected(compiled.schema, hidden) if found else [])


def _keyword(error: Any) -> str:
    return str(error.kind.name)


def _texts(error: Any, compiled: Compiled, arguments: Any, at: Path, quiet: bool) -> Iterator[str]:
    keyword, kind = _keyword(error), error.kind
    name, value = _named(at), _value(arguments, at)
    shown = "" if quiet else _shown(value)
    if keyword == "required":
        missing = str(kind.property)
        yield f"{_named((*at, missing))} is missing{_meant(missing, value, compiled.schema, at)}"
    elif keyword == "type":
        yield f"{name} must be {_types(kind.types)}, not {_type_of(value)}{shown}"
    elif keyword in ("anyOf", "oneOf", "oneOfNotValid", "oneOfMultipleValid"):
        types = _branch_types(error)
        yield f"{name} must be {types}, not {_type_of(value)}{shown}" if types else f"{name} fits none of its forms"
    elif keyword == "enum":
        yield f"{name} must be one of {_values(kind.options)}{shown and ', not' + shown}"
    elif keyword == "const":
        yield f"{name} must be {_values([kind.expected_value])}"
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        strange = ", ".join(printable(repr(str(one)), 80) for one in list(kind.unexpected)[:SHOWN])
        yield f"{name if at else 'the tool'} does not take {strange}"
    elif keyword in _LIMITS:
        yield f"{name} must {_LIMITS[keyword]} {kind.limit}{shown and ', not' + shown}"
    elif keyword == "pattern":
        yield f"{name} must match {printable(str(kind.pattern), 100)!r}"
    elif keyword not in _UNDECIDED:
        yield f"{name} is not valid ({keyword})"


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
    """A short value, to find it by; a long one may be anything."""
    if isinstance(value, dict | list):
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return f" {printable(text)}" if len(text) <= _SHOWN_LENGTH else ""


def _types(types: Any) -> str:
    return " or ".join(_WORDS.get(str(one), str(one)) for one in types)


def _branch_types(error: Any) -> str:
    """The types of all branches, if that is why none of them fits."""
    found: dict[str, None] = {}
    for branch in getattr(error.kind, "context", []):
        for inner in branch:
            if _keyword(inner) == "type" and list(inner.instance_path) == list(error.instance_path):
                found.update(dict.fromkeys(str(one) for one in inner.kind.types))
    return _types(found)


def _values(options: Any) -> str:
    listed = [json.dumps(one, ensure_ascii=False) for one in list(options)[:_SHOWN_VALUES]]
    return printable(", ".join(listed), 600) + (", ..." if len(options) > _SHOWN_VALUES else "")


def _meant(missing: str, given: Any, schema: Json, at: Path) -> str:
    """The misspelt name that was given in the place of a missing one."""
    properties = schema.get("properties") if not at else None
    known = properties if isinstance(properties, dict) else {}
    strange = [name for name in given if name not in known] if isinstance(given, dict) else []
    near = difflib.get_close_matches(missing.lower(), [name.lower() for name in strange], n=1, cutoff=0.6)
    return f" (is {near[0]!r} meant for it?)" if near else ""


def _expected(schema: Json, hidden: Collection[str]) -> list[str]:
    """One text that names all arguments with their types."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    needed = set(required) if isinstance(required, list) else set()
    listed = [
        f"{name}: {_type_named(inner)}{' (required)' if name in needed else ''}"
        for name, inner in properties.items()
        if name not in hidden
    ]
    if not listed:
        return ["it takes no arguments"]
    return ["it takes " + printable(", ".join(listed[:_SHOWN_VALUES]), 800)]


def _type_named(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else " or ".join(map(str, kind)) if isinstance(kind, list) else "any"
