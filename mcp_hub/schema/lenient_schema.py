"""Makes a schema lenient: it then also accepts values that a server could convert to valid ones.

Many servers accept `"3"` for 3, `"true"` for true, one item for a list of it, and null for an optional value, and
models write such values. Values that no server could convert stay invalid: a list for a text, a value that is not in an
enum, a missing argument.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

Json = dict[str, Any]
Schema = Json | bool

MAX_DEPTH: Final = 100
"""Nested schemas; a deeper one accepts anything."""

_DROPPED: Final = frozenset({
    "$schema", "$comment", "pattern", "format", "unevaluatedProperties", "unevaluatedItems", "additionalItems",
    "patternProperties", "propertyNames", "not", "if", "then", "else", "dependentSchemas", "dependencies",
    "contentEncoding", "contentMediaType", "contentSchema", "uniqueItems", "contains", "minContains", "maxContains",
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip
"""Keywords that do not constrain a value, or whose constraint a conversion could break; patterns differ by dialect."""
_MAPS: Final = frozenset({"properties", "$defs", "definitions"})
_LISTS: Final = frozenset({"allOf", "anyOf", "prefixItems"})
_NO_CONST: Final = "json-schema.org/draft-04/"

_BOOLEANS: Final = ("true", "false", "yes", "no", "on", "off", "t", "f", "y", "n", "1", "0")
_INTEGER: Final = r"^\s*[+-]?([0-9][0-9_]*(\.0*)?([eE][+-]?[0-9]+)?|0[xXoObB][0-9a-fA-F]+)\s*$"
_NUMBER: Final = (
    r"^\s*[+-]?([0-9][0-9_]*\.?[0-9_]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?"
    r"|0[xXoObB][0-9a-fA-F]+|[iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])\s*$"
)
_SINGLE_ITEM: Final[Json] = {"type": "array", "minItems": 1, "maxItems": 1}
"""A list with one member, which JavaScript converts to the number in it."""
_NULLS: Final = (None, "null")
_CONVERTIBLE: Final[dict[str, list[Json]]] = {
    "integer": [
        {"type": "boolean"}, {"type": "number", "multipleOf": 1}, {"type": "string", "pattern": _INTEGER}, _SINGLE_ITEM,
    ],
    "number": [{"type": "boolean"}, {"type": "string", "pattern": _NUMBER}, _SINGLE_ITEM],
    "boolean": [{"enum": [0, 1, *(case(text) for text in _BOOLEANS for case in (str.lower, str.title, str.upper))]}],
    "string": [{"type": ["number", "boolean"]}],
    "array": [{"type": ["string", "number", "boolean"]}],
    "object": [{"type": "string", "pattern": r"^\s*\{"}],
    "null": [{"enum": list(_NULLS)}],
}  # fmt: skip
"""The other values that a server may convert to a type. A list or an object may be a JSON text, which some servers
parse; a list may also be its only item, or a text that the server splits."""
OWN_EXPRESSIONS: Final = frozenset(
    form["pattern"] for forms in _CONVERTIBLE.values() for form in forms if "pattern" in form
)
"""The regular expressions that this module adds; all of them are quick."""
_NESTED: Final[list[Schema]] = [
    {"type": ["array", "object"]}, {"type": "string", "pattern": r"^\s*\["}, *_CONVERTIBLE["object"],
]  # fmt: skip


def make_lenient(schema: Any) -> Schema:
    """Returns a schema that accepts what `schema` accepts, and values that could be converted. Mutates nothing."""
    return _Copy(schema, lenient=True).schema


def make_exact(schema: Any) -> Schema:
    """Returns a schema with the keywords that `make_lenient` keeps, but without leniency, to explain errors."""
    return _Copy(schema, lenient=False).schema


def resolve_pointer(root: Any, reference: str) -> Any:
    """Returns the part of `root` at a pointer such as `#/a/b`. Raises LookupError or TypeError if there is none."""
    part = root
    for step in _steps(reference):
        part = part[int(step) if isinstance(part, list) and step.isdecimal() else step]
    return part


def pointed_to(root: Any, reference: Any) -> Any:
    """Returns the part of a schema that a reference such as `#/$defs/a` names; None if there is none."""
    if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
        return None
    try:
        return resolve_pointer(root, reference)
    except (LookupError, TypeError):
        return None


def _steps(reference: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in unquote(reference[1:]).split("/")[1:]]


class _Copy:
    """Copies one schema. Targets of references whose path differs in the copy are moved to `$defs`."""

    def __init__(self, root: Any, *, lenient: bool) -> None:
        self._root = root
        self._lenient = lenient
        self._moved: dict[str, str] = {}
        self._pending: list[tuple[str, Any]] = []
        dialect = root.get("$schema") if isinstance(root, dict) else None
        self._has_const = not (isinstance(dialect, str) and _NO_CONST in dialect)
        self.schema = self._copy(root, 0)
        if isinstance(self.schema, dict):
            self._finish(self.schema, dialect)

    def _finish(self, copy: Json, dialect: Any) -> None:
        moved: Json = {}
        while self._pending:
            name, target = self._pending.pop()
            moved[name] = self._copy(target, 0)
        if moved:
            copy["$defs"] = {**copy.get("$defs", {}), **moved}
        if dialect is not None:
            copy["$schema"] = dialect

    def _copy(self, schema: Any, depth: int) -> Schema:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return schema if isinstance(schema, bool) else True
        copy: Json = {}
        all_of: list[Schema] = []
        for key, value in schema.items():
            if key in _DROPPED or (key == "const" and not self._has_const):
                continue
            if key == "properties" and isinstance(value, dict):
                copy[key] = self._properties(value, schema.get("required"), depth)
            elif key in _MAPS and isinstance(value, dict):
                copy[key] = {name: self._copy(inner, depth + 1) for name, inner in value.items()}
            elif key in _LISTS and isinstance(value, list):
                copy[key] = [self._copy(inner, depth + 1) for inner in value]
            elif (constraints := self._constraints(key, value, depth)) is not None:
                all_of.extend(constraints)
            elif key == "items" or (key == "additionalProperties" and not schema.get("patternProperties")):
                self._add_inner(copy, key, value, depth)
            elif key == "required" and self._lenient:
                copy[key] = _without_defaults(value, schema.get("properties"))
            elif key == "$ref":
                copy[key] = self._reference(value)
            elif key != "additionalProperties":
                copy[key] = value
        if all_of:
            existing = copy.get("allOf")
            copy["allOf"] = [*(existing if isinstance(existing, list) else []), *all_of]
        return copy

    def _properties(self, properties: Json, required: Any, depth: int) -> Json:
        """Accepts null for an optional property, because models send it under strict function calling."""
        needed = required if isinstance(required, list) else []
        copies = {name: self._copy(inner, depth + 1) for name, inner in properties.items()}
        if not self._lenient:
            return copies
        return {
            name: copy if name in needed or isinstance(copy, bool) else {"anyOf": [copy, {"enum": list(_NULLS)}]}
            for name, copy in copies.items()
        }

    def _constraints(self, key: str, value: Any, depth: int) -> list[Schema] | None:
        """Returns the schemas for `allOf` that replace a keyword about the value itself; None for other keywords."""
        if key == "oneOf" and isinstance(value, list):
            # A value may now fit two branches, where it fitted only one before.
            return [{"anyOf": [self._copy(inner, depth + 1) for inner in value]}]
        if key == "type":
            return self._types(value)
        if key == "enum" and isinstance(value, list):
            return [self._one_of(value)]
        return [self._one_of([value])] if key == "const" else None

    def _add_inner(self, copy: Json, key: str, value: Any, depth: int) -> None:
        """Copies the schema of members, unless it is `false`: a server may ignore members that it forbids."""
        if isinstance(value, list):
            copy[key] = [self._copy(inner, depth + 1) for inner in value]
        elif value is not False:
            copy[key] = self._copy(value, depth + 1)

    def _types(self, value: Any) -> list[Schema]:
        names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        known_types = [name for name in names if isinstance(name, str) and name in _CONVERTIBLE]
        if not known_types or len(known_types) != len(names):
            return []
        if not self._lenient:
            return [{"type": known_types}]
        return [{"anyOf": [{"type": known_types}, *(form for name in known_types for form in _CONVERTIBLE[name])]}]

    def _one_of(self, values: list[Any]) -> Schema:
        if not self._lenient:
            return {"enum": values}
        spellings = {"enum": [spelling for value in values for spelling in _spellings(value)]}
        nested = any(isinstance(value, list | dict) for value in values)
        return {"anyOf": [spellings, *_NESTED]} if nested else spellings

    def _reference(self, reference: Any) -> Any:
        """Returns the reference to the copy of the target."""
        if not isinstance(reference, str) or not reference.startswith("#/") or _has_stable_path(reference):
            return reference
        if reference not in self._moved:
            try:
                target = resolve_pointer(self._root, reference)
            except (LookupError, TypeError):
                return reference
            self._moved[reference] = f"moved from {reference[1:]}".replace("/", " ").replace("~", " ").replace("%", " ")
            self._pending.append((self._moved[reference], target))
        return f"#/$defs/{self._moved[reference].replace(' ', '%20')}"


def _without_defaults(required: Any, properties: Any) -> Any:
    """Returns the required names without those that have a default: some generators list optional ones as required."""
    if not isinstance(required, list) or not isinstance(properties, dict):
        return required
    preset = {name for name, inner in properties.items() if isinstance(inner, dict) and "default" in inner}
    return [name for name in required if not isinstance(name, str) or name not in preset]


def _has_stable_path(reference: str) -> bool:
    steps = iter(_steps(reference))
    for step in steps:
        if step == "properties":
            return next(steps, None) is not None and next(steps, None) is None  # its copy may be in an `anyOf`
        if step in _MAPS or step in _LISTS:
            if next(steps, None) is None:
                return False
        elif step != "items":
            return False
    return True


_BLANKS: Final = (("", ""), (" ", ""), ("", " "), (" ", " "))


def _spellings(value: Any) -> list[Any]:
    """Returns a value of an enum, and the values that a server may convert to it."""
    if isinstance(value, bool):
        text = str(value).lower()
        return [value, text, text.title(), text.upper(), str(int(value)), int(value)]
    if isinstance(value, int):
        as_boolean = [bool(value)] if value in (0, 1) else []
        return [
            value,
            *as_boolean,
            f"{value}.0",
            f"+{value}",
            *(f"{before}{value}{after}" for before, after in _BLANKS),
        ]
    if isinstance(value, float):
        return [value, str(value), *([str(int(value))] if value.is_integer() else [])]
    if isinstance(value, str):
        return [value, *_parsed_values(value)]
    return [value]


def _parsed_values(text: str) -> list[Any]:
    if text in ("true", "false"):
        return [text == "true"]
    try:
        return [int(text)] if len(text) < 20 else []
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return []
    return [number] if number == number and abs(number) != float("inf") else []
