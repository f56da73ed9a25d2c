"""Portable schemas: rewrites an input schema into the part of JSON Schema that model providers take.

A provider refuses every request of a client if one of its tools has a schema with a keyword or a form that the provider
does not take. A rewritten schema accepts every object that the original accepts, and perhaps more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.protocol.frames import encode, weighs_more
from mcp_hub.schema.compact_schema import schemas_in
from mcp_hub.schema.lenient_schema import pointed_to

if TYPE_CHECKING:
    from mcp_hub.clients import Provider

Json = dict[str, Any]
Facts = dict[str, Any]
"""What one schema and those that apply to the same value with it (`$ref`, `allOf`) say, by keyword. The schemas of
members are as written. `type` is a list of names, `anyOf` has the alternatives of `oneOf` too, and `remarks` has what
can only be said in the description."""
References = frozenset[str]
"""The references that lead to a schema: one that occurs again is recursive, and is not followed."""

MAX_WORK: Final = 3_000
"""Work for one rewritten schema: a unit for each schema that is read, and for each `_PER_UNIT` bytes of its texts and
values, or properties that are merged. What lies beyond is cut to its type, and after as many schemas again it is left
out."""
_PER_UNIT: Final = 100
MAX_LEVELS: Final = 9
"""Levels of a rewritten schema below which only types follow: OpenAI takes ten."""
MAX_ALTERNATIVES: Final = 200
"""Schemas in one `anyOf` or `oneOf`; a longer one accepts anything."""
MAX_DEPTH: Final = 32
"""Schemas in a row that apply to the same value."""
MAX_WEIGHT: Final = 256 * 1024
"""Weight of a schema that Anthropic's clients get unchanged; a larger one is rewritten, which bounds it."""
MAX_REMARK: Final = 300
"""Characters of a value that is repeated in a description; the rest is cut off."""

_NAMES: Final[dict[type, str]] = {
    dict: "object", list: "array", str: "string", float: "number", int: "integer", bool: "boolean", type(None): "null",
}  # fmt: skip
_ALL_TYPES: Final = frozenset(_NAMES.values())
_ANNOTATIONS: Final = ("title", "description", "default")
_REMARKED: Final = (
    "format", "pattern", "minLength", "maxLength", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "uniqueItems", "minProperties", "maxProperties", "examples",
)  # fmt: skip
"""Keywords that help a model and that some provider refuses. They are said in the description."""
_VALUES: Final = ("const", "enum", "required", *_ANNOTATIONS, *_REMARKED)
"""Keywords whose values are repeated wherever a schema is referred to."""
_BY_TYPE: Final = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "number": ("minimum", "maximum"),
}
_OLD_DIALECT: Final = re.compile(r"https?://json-schema\.org/draft-0[3467]/schema#?")
"""Dialects in which the siblings of `$ref` are ignored."""
_REFUSED: Final = frozenset({"patternProperties", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor"})
"""Keywords of draft 2020-12 that Anthropic has refused, or that other keywords than `$ref` refer to."""
_ARGUMENT: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""The names of arguments that Anthropic takes."""


def portable_schema(schema: Json, provider: Provider | None) -> Json:
    """Returns a schema that a provider takes, the same object if it takes the given one. None: all providers."""
    if provider == "anthropic" and _is_draft_2020(schema):
        return schema
    rewritten = _Rewriting(schema, only_plain_names=provider in ("anthropic", None)).schema()
    return schema if rewritten == schema else rewritten


class _Rewriting:
    """Rewrites one schema. The result uses what OpenAI, Gemini and Anthropic all take, in one form for each type."""

    def __init__(self, root: Json, *, only_plain_names: bool) -> None:
        self._root, self._only_plain_names, self._work_left = root, only_plain_names, MAX_WORK
        self._dialect = str(root.get("$schema"))
        self._is_old = _OLD_DIALECT.fullmatch(self._dialect) is not None

    def schema(self) -> Json:
        """Returns the rewritten schema of an object."""
        facts, references = self._read(self._root, frozenset({"#"}))
        remarks = {"enum": facts.pop("enum")} if "enum" in facts else {}
        facts = _both({"type": ["object"], "properties": {}, "remarks": remarks}, facts)
        if "anyOf" in facts:
            facts, references = self._with_alternatives_merged(facts, references)
        properties, required = facts["properties"], facts.get("required", ())
        odd = {name: properties.get(name, True) for name in (*properties, *required) if not _ARGUMENT.fullmatch(name)}
        if self._only_plain_names and odd:
            facts = _both({"remarks": {"further arguments": odd}}, facts)
            facts["properties"] = {name: inner for name, inner in properties.items() if name not in odd}
            facts["required"] = [name for name in required if name not in odd]
            facts.pop("additionalProperties", None)
        return self._written(facts, references, 0)

    # --- reading -----------------------------------------------------------------------------------------------

    def _read(self, schema: Any, references: References, depth: int = 0) -> tuple[Facts, References]:
        """Returns the facts of a schema, and the references that lead to its members; fewer facts beyond the bounds."""
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self._work_left < 0:
            return {}, references
        self._work_left -= 1 + len(encode(_only(_VALUES, schema))) // _PER_UNIT
        self._work_left -= sum(len(inner) for inner in schema.values() if isinstance(inner, dict | list)) // _PER_UNIT
        id_key = "id" if "draft-04" in self._dialect else "$id"
        if schema is not self._root and isinstance(schema.get(id_key), str):
            return {}, references  # a document in a document: its references start at another root
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            facts = self._own_facts(schema)
        else:
            facts = self._own_facts(_only(_ANNOTATIONS, schema) if self._is_old else schema)
            target = pointed_to(self._root, reference)
            if reference in references:
                referred = self._type_alone(target)
            else:
                referred, references = self._read(target, references | {reference}, depth + 1)
            facts = _both(facts, referred)
        conjuncts = schema.get("allOf")
        for inner in conjuncts if isinstance(conjuncts, list) and not (self._is_old and reference) else ():
            if self._work_left < 0:
                break
            more, references = self._read(inner, references, depth + 1)
            self._work_left -= sum(len(facts.get(key, ())) for key in ("properties", "required")) // _PER_UNIT
            facts = _both(facts, more)
        return facts, references

    def _type_alone(self, schema: Any) -> Facts:
        """Returns the type of a schema, and its description if there is room for it."""
        self._work_left -= 1
        if not isinstance(schema, dict) or "$ref" in schema:
            return {}
        return self._own_facts(_only(("type", "description") if self._work_left > 0 else ("type",), schema))

    def _own_facts(self, schema: Json) -> Facts:
        """Returns what a schema says by its own keywords."""
        annotations = _only(_ANNOTATIONS, schema)
        facts: Facts = {key: text for key, text in annotations.items() if key == "default" or isinstance(text, str)}
        names = schema.get("type")
        names = [names] if isinstance(names, str) else names
        if isinstance(names, list) and names and all(isinstance(name, str) and name in _ALL_TYPES for name in names):
            facts["type"] = names
        if isinstance(schema.get("enum"), list):
            facts["enum"] = schema["enum"]
        if "const" in schema and "draft-04" not in self._dialect:
            facts["enum"] = [schema["const"]]
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and len(schema[key]) <= MAX_ALTERNATIVES:
                facts.setdefault("anyOf", [inner for inner in schema[key] if inner is not False])
        if isinstance(schema.get("properties"), dict):
            facts["properties"] = {name: inner for name, inner in schema["properties"].items() if inner is not False}
        if isinstance(schema.get("required"), list):
            facts["required"] = list(dict.fromkeys(name for name in schema["required"] if isinstance(name, str)))
        if isinstance(schema.get("additionalProperties"), dict | bool) and "patternProperties" not in schema:
            facts["additionalProperties"] = schema["additionalProperties"]
        remarks = {key: schema[key] for key in _REMARKED if key in schema and schema[key] is not False}
        return {**facts, **self._array_facts(schema), **_bounds(schema), **({"remarks": remarks} if remarks else {})}

    def _array_facts(self, schema: Json) -> Facts:
        """Every item of a tuple may be what any of its places may be."""
        counts = _only(("minItems", "maxItems"), schema)
        facts = {key: count for key, count in counts.items() if type(count) is int and count >= 0}
        items, rest = schema.get("items"), schema.get("additionalItems", True)
        if isinstance(schema.get("prefixItems"), list) and not self._is_old and "2019-09" not in self._dialect:
            items, rest = schema["prefixItems"], schema.get("items", True)
        if isinstance(items, list):
            is_closed = rest is False or facts.get("maxItems", len(items) + 1) <= len(items)
            items = {"anyOf": [*items, *([] if is_closed else [rest])]}
        return {**facts, "items": items} if isinstance(items, dict) else facts

    # --- writing -----------------------------------------------------------------------------------------------

    def _rewritten(self, schema: Any, references: References, level: int) -> Json:
        """Returns the rewritten form of a member's schema."""
        if level > MAX_LEVELS or self._work_left < 0:
            return self._written(self._type_alone(schema), references, level)
        facts, references = self._read(schema, references)
        return self._written(facts, references, level)

    def _written(self, facts: Facts, references: References, level: int) -> Json:
        """Returns the schema of some facts: one type, an `anyOf` of them, or neither if it accepts anything."""
        if "anyOf" in facts and "properties" in facts:
            facts, references = self._with_alternatives_merged(facts, references)
        union = self._union(facts, references, level) if "anyOf" in facts else None
        if union is not None:
            return union
        values_by_type = _values_by_type(facts)
        remarks = dict(facts.get("remarks", {}))
        if not all(_is_expressible(name, values) for name, values in values_by_type.items()):
            remarks["enum"] = facts["enum"]
        bodies = [self._typed(name, values, facts, references, level) for name, values in values_by_type.items()]
        body = bodies[0] if len(bodies) == 1 else {"anyOf": bodies} if bodies else {}
        return {**_annotations({**facts, "remarks": remarks}), **body}

    def _union(self, facts: Facts, references: References, level: int) -> Json | None:
        """Returns the `anyOf` of some facts, each alternative with what else is said; None if it accepts anything."""
        common = {key: value for key, value in facts.items() if key not in ("anyOf", "remarks", *_ANNOTATIONS)}
        alternatives: list[Json] = []
        for inner in facts["anyOf"] if level < MAX_LEVELS else ():
            own, inner_references = self._read(inner, references)
            written = self._written(_both(own, common), inner_references, level + 1)
            if not written.keys() - set(_ANNOTATIONS):
                return None
            alternatives += written["anyOf"] if written.keys() == {"anyOf"} else [written]
        unique = list({encode(inner): inner for inner in alternatives}.values())
        if not unique:
            return None
        annotations = _annotations(facts)
        return {**unique[0], **annotations} if len(unique) == 1 else {**annotations, "anyOf": unique}

    def _with_alternatives_merged(self, facts: Facts, references: References) -> tuple[Facts, References]:
        """Returns the facts of an object whose alternatives are merged into its properties, and their references.

        A property of an alternative accepts anything if another alternative says nothing about it.
        """
        read = [self._read(inner, references) for inner in facts["anyOf"]]
        branches = [branch for branch, _ in read if "object" in branch.get("type", ("object",))]
        merged = {key: value for key, value in facts.items() if key != "anyOf"}
        added = dict.fromkeys(name for branch in branches for name in branch.get("properties", ()))
        if (cost := len(added) * len(branches) // _PER_UNIT) > max(self._work_left, 0):
            branches, added = [], {}
        else:
            self._work_left -= cost
        properties = {name: _in_any(branches, name) for name in added} | facts.get("properties", {})
        required = [branch.get("required", []) for branch in branches]
        if any(required):
            shared = set(required[0]).intersection(*required)
            remarks = {"required, one of": required} if any(len(names) > len(shared) for names in required) else {}
            merged = _both(merged, {"required": sorted(shared), "remarks": remarks})
        if branches and all(branch.get("additionalProperties") is False for branch in branches):
            merged.setdefault("additionalProperties", False)
        return {**merged, "properties": properties}, references.union(*(inner for _, inner in read))

    def _typed(self, name: str, values: list[Any] | None, facts: Facts, references: References, level: int) -> Json:
        schema: Json = {"type": name}
        kept = _BY_TYPE.get("number" if name == "integer" else name, ())
        schema |= {key: facts[key] for key in kept if key in facts}
        if name == "string" and values is not None and _is_expressible(name, values):
            schema["enum"] = list(dict.fromkeys(values))
        if name == "array":
            schema["items"] = self._rewritten(facts["items"], references, level + 1) if "items" in facts else {}
        return self._object(schema, references, level) if name == "object" else schema

    def _object(self, schema: Json, references: References, level: int) -> Json:
        """Rewrites the members of an object, and declares those that are required."""
        others, required = schema.get("additionalProperties", True), schema.get("required", [])
        if isinstance(others, dict):
            schema["additionalProperties"] = self._rewritten(others, references, level + 1)
        members = schema.get("properties", {})
        members = {**members, **{name: others or True for name in required if name not in members}}
        properties: Json = {}
        for name, inner in members.items():
            if self._work_left < -MAX_WORK:
                schema.pop("additionalProperties", None)
                break
            properties[name] = self._rewritten(inner, references, level + 1)
        if required:
            schema["required"] = [name for name in required if name in properties]
        return {**schema, "properties": properties} if members or "properties" in schema else schema


def _only(keys: Iterable[str], schema: Json) -> Json:
    return {key: schema[key] for key in keys if key in schema}


def _both(first: Facts, second: Facts) -> Facts:
    """Returns what both say about one value; where they differ, what the first says."""
    joined = {**second, **first}
    for key in ("properties", "remarks"):
        if key in first and key in second:
            joined[key] = {**second[key], **first[key]}
    if "required" in first and "required" in second:
        joined["required"] = list(dict.fromkeys((*first["required"], *second["required"])))
    return joined


def _in_any(branches: list[Facts], name: str) -> Any:
    """Returns the schema of a property of an object that one of the branches describes."""
    declared = [branch["properties"][name] for branch in branches if name in branch.get("properties", ())]
    silent = [branch for branch in branches if name not in branch.get("properties", ())]
    others = [branch.get("additionalProperties", True) for branch in silent]
    if True in others:
        return _only(("description",), declared[0]) if isinstance(declared[0], dict) else {}
    return {"anyOf": [*declared, *others]}


def _bounds(schema: Json) -> Facts:
    """Returns the bounds of a number. An exclusive one becomes inclusive, which accepts one more value."""
    facts: Facts = {}
    for key, exclusive, stricter in (("minimum", "exclusiveMinimum", max), ("maximum", "exclusiveMaximum", min)):
        bounds: list[Any] = [schema[name] for name in (key, exclusive) if type(schema.get(name)) in (int, float)]
        if bounds:
            facts[key] = stricter(bounds)
    return facts


def _values_by_type(facts: Facts) -> dict[str, list[Any] | None]:
    """Returns the types of some facts, each with its values if only some are valid; none if anything is."""
    names: Any = facts.get("type")
    values = facts.get("enum")
    if names is None and values is None:
        is_narrowed = any(facts.get(key) not in (None, [], {}) for keys in _BY_TYPE.values() for key in keys)
        names = _NAMES.values() if is_narrowed else None
    elif names is None:
        names = [_NAMES[type(value)] for value in values or ()]
    unique = dict.fromkeys(names or ())
    if "number" in unique:
        unique.pop("integer", None)
    by_type = {name: [value for value in values or () if _is_of_type(value, name)] for name in unique}
    return {name: some for name, some in by_type.items() if some} or dict.fromkeys(unique)


def _is_of_type(value: Any, name: str) -> bool:
    if type(value) is float and name == "integer":
        return value.is_integer()
    return name == _NAMES[type(value)] or (type(value) is int and name == "number")


def _is_expressible(name: str, values: list[Any] | None) -> bool:
    """Returns whether a rewritten schema can say which values of a type are valid."""
    return values is None or name == "null" or (name == "string" and all(values))


def _annotations(facts: Facts) -> Json:
    """Returns the annotations of a schema. The description says what the schema cannot say."""
    annotations = _only(_ANNOTATIONS, facts)
    if remarks := facts.get("remarks"):
        texts = {key: encode(value).decode(errors="replace") for key, value in remarks.items()}
        said = "; ".join(f"{key}: {text[:MAX_REMARK]}" for key, text in texts.items())
        annotations["description"] = f"{annotations.get('description', '')} ({said})".lstrip()
    return annotations


def _is_draft_2020(root: Json) -> bool:
    """Returns whether a schema is one of draft 2020-12 that describes an object without alternatives at the top."""
    has_alternatives = any(key in root for key in ("anyOf", "oneOf", "allOf"))
    if root.get("type") != "object" or has_alternatives or weighs_more(root, MAX_WEIGHT):
        return False
    import jsonschema_rs

    try:
        is_valid = jsonschema_rs.meta.is_valid({**root, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    except ValueError:  # it is nested too deep
        return False
    return (
        is_valid
        and all(map(_ARGUMENT.fullmatch, root.get("properties", ())))
        and all(_REFUSED.isdisjoint(inner) for inner in schemas_in(root))
        and all(pointed_to(root, inner.get("$ref", "#")) is not None for inner in schemas_in(root))
    )
