"""The kinds of items a server lists, as one table, and the checks of a listed item."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Generator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub.protocol import skill_entries
from mcp_hub.protocol.frames import finished

TELL_PRESETS: Final = "--tell-presets"
"""The option that makes a process of local tools tell the hub the presets of its functions."""
PRESETS: Final = "notifications/mcp-hub/presets"
"""The notification that tells the presets; its params are `{"values": [...]}`, a list of texts."""
LEFT_OUT_KEY: Final = "mcp-hub/left-out"
"""Member of a list's `_meta`: notes about what the server could not offer, such as a file that does not import."""
DUPLICATES_KEY: Final = "mcp-hub/duplicates"
"""Member of a list's `_meta`: `{"name", "kept", "dropped"}` for each name found twice, with the places of both."""

JSON_KEY: Final = "mcp-hub/json"
"""Member of a result's `_meta`: its text is the JSON of a local tool's return value, which was not a string."""

MAX_NAME: Final = 1024
"""Characters of a name or URI; a longer one is hostile."""
MAX_ITEM: Final = 1024 * 1024
"""Weight of one listed item (`frames.weighs_more`)."""
MAX_LIST: Final = 256 * 1024 * 1024
"""Weight of the items of one list, those included that are left out later."""


class Kind(msgspec.Struct, frozen=True, eq=False):
    """The methods, keys and notifications of one kind."""

    name: str
    list_method: str
    act_method: str
    result_key: str
    """The member of a `list_method` result that holds the list."""
    name_key: str
    """The member that holds the name, in an item and in the params of `act_method`."""
    capability: str
    changed: str
    """The notification that the list has changed."""
    unknown: str
    """The word for one item in an error."""
    by_uri: bool = False
    """Whether its items are identified by URIs, so that rules about URIs apply to them."""
    extension: str | None = None
    """The extension that the kind belongs to; such a kind exists in the modern era only."""


TOOLS: Final = Kind(
    "tools", "tools/list", "tools/call", "tools", "name", "tools", "notifications/tools/list_changed", "tool"
)
RESOURCES: Final = Kind(
    "resources",
    "resources/list",
    "resources/read",
    "resources",
    "uri",
    "resources",
    "notifications/resources/list_changed",
    "resource",
    by_uri=True,
)
TEMPLATES: Final = Kind(
    "templates",
    "resources/templates/list",
    "resources/read",
    "resourceTemplates",
    "uriTemplate",
    "resources",
    "notifications/resources/list_changed",
    "resource",
    by_uri=True,
)
PROMPTS: Final = Kind(
    "prompts",
    "prompts/list",
    "prompts/get",
    "prompts",
    "name",
    "prompts",
    "notifications/prompts/list_changed",
    "prompt",
)
SKILLS: Final = Kind(
    "skills",
    "skills/list",
    "skills/get",
    "skills",
    "uri",
    "resources",
    "notifications/resources/list_changed",
    "skill",
    by_uri=True,
    extension=skill_entries.SKILLS_EXTENSION,
)
"""Skills are directories of resources, so the notification of resources covers them too."""
KINDS: Final = (TOOLS, RESOURCES, TEMPLATES, PROMPTS, SKILLS)


class _Number(NamedTuple):
    description: str
    lowest: float = -math.inf
    highest: float = math.inf
    is_whole: bool = False


class _Object(NamedTuple):
    """An object with these fields, of which `needs` are required; other fields are allowed."""

    fields: Mapping[str, Shape]
    needs: tuple[str, ...] = ()


class _ListOf(NamedTuple):
    shape: Shape


class _MapOf(NamedTuple):
    """An object whose values all have one shape."""

    shape: Shape


class _Matching(NamedTuple):
    pattern: re.Pattern[str]
    description: str


Shape = type | tuple[type, ...] | frozenset[str] | _Number | _Object | _ListOf | _MapOf | _Matching

_ICONS: Final = _ListOf(
    _Object({"src": str, "mimeType": str, "sizes": _ListOf(str), "theme": frozenset({"light", "dark"})}, needs=("src",))
)
_SHARED: Final[dict[str, Shape]] = {"title": str, "description": str, "icons": _ICONS, "_meta": dict}
_SCHEMA: Final = _Object(
    {
        "type": frozenset({"object"}),
        "properties": _MapOf((dict, bool)),
        "required": _ListOf(str),
        "$schema": str,
    },
    needs=("type",),
)
_HINTS: Final = dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), bool)
_TOOL: Final[dict[str, Shape]] = {
    "name": str,
    "inputSchema": _SCHEMA,
    "outputSchema": _Object({"$schema": str}),
    "annotations": _Object({"title": str, **_HINTS}),
    "execution": _Object({"taskSupport": frozenset({"required", "optional", "forbidden"})}),
}
_TIME: Final = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
    r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_AUDIENCE: Final = _Object(
    {
        "audience": _ListOf(frozenset({"user", "assistant"})),
        "priority": _Number("between 0 and 1", 0, 1),
        "lastModified": _Matching(_TIME, "a date, a time and its offset"),
    }
)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\ud800-\udfff]*", re.DOTALL)
_RESOURCE: Final[dict[str, Shape]] = {
    "uri": _Matching(_URI, "a URI with a scheme"),
    "name": str,
    "mimeType": str,
    "size": _Number("a whole number", is_whole=True),
    "annotations": _AUDIENCE,
}
_ANY_URI: Final = re.compile(r"[^\ud800-\udfff]+", re.DOTALL)
_TEMPLATE: Final[dict[str, Shape]] = {
    "uriTemplate": _Matching(_ANY_URI, "a URI template"),
    "name": str,
    "mimeType": str,
    "annotations": _AUDIENCE,
}
_ARGUMENT: Final = _Object({"name": str, "title": str, "description": str, "required": bool}, needs=("name",))
_PROMPT: Final[dict[str, Shape]] = {"name": str, "arguments": _ListOf(_ARGUMENT)}

_SHAPES: Final = {
    "tools": _Object({**_TOOL, **_SHARED}, needs=("name", "inputSchema")),
    "resources": _Object({**_RESOURCE, **_SHARED}, needs=("uri", "name")),
    "templates": _Object({**_TEMPLATE, **_SHARED}, needs=("uriTemplate", "name")),
    "prompts": _Object({**_PROMPT, **_SHARED}, needs=("name",)),
    "skills": _Object({"uri": _Matching(_URI, "a URI with a scheme"), "_meta": dict}, needs=("uri",)),
}
"""What strict clients (the TypeScript and Python SDKs) check before they accept a list."""

_SHAPE_NAMES: Final[dict[Any, str]] = {
    str: "a text",
    dict: "an object",
    bool: "true or false",
    (dict, bool): "a schema",
}


_STEP: Final = 500
"""Members of a list that are checked in one step."""


def defect(kind: Kind, item: Any) -> str | None:
    """Returns the reason why a client would drop the whole list because of this item; None if it is valid.

    Only the types of the specification count; unknown fields are fine. `null` counts as absent (`drop_nulls`).
    """
    return finished(defect_in_steps(kind, item))


def defect_in_steps(kind: Kind, item: Any) -> Generator[None, None, str | None]:
    """Returns what `defect` returns; yields between the members of long lists."""
    if not isinstance(item, dict):
        return "it is not an object"
    name = item.get(kind.name_key)
    if not isinstance(name, str) or not name:
        return f"its {kind.name_key} is not a text"
    shape = _SHAPES[kind.name]
    long_lists = {key: value for key, value in item.items() if type(value) is list and len(value) > _STEP}
    shortened_item = {**item, **{key: [] for key in long_lists}} if long_lists else item
    problem = overlong_name(kind, item) or _misfit(shape, shortened_item, "")
    for key, members in long_lists.items():
        field_shape = shape.fields.get(key)
        if isinstance(field_shape, _ListOf):
            for start in range(0, len(members), _STEP):
                yield
                problem = problem or _first_misfit(field_shape.shape, members[start : start + _STEP], key, start)
    if problem is not None:
        return f"its {problem}"
    return (yield from skill_entries.defect_in_steps(item)) if kind is SKILLS else None


def overlong_name(kind: Kind, item: Any) -> str | None:
    """Returns the defect of an item whose name or URI is too long; None for any other."""
    if len(name_of(kind, item)) > MAX_NAME:
        return f"{kind.name_key} is longer than {MAX_NAME:,} characters"
    return None


def _misfit(shape: Shape, value: Any, path: str) -> str | None:
    """Returns the first part of a value that does not fit the shape, and why; None if all of it fits."""
    if isinstance(shape, _Object):
        return _misfit_of_object(shape, value, path)
    if isinstance(shape, _ListOf):
        if not isinstance(value, list):
            return f"{path} is not a list"
        if _all_plain(shape.shape, value):
            return None
        return _first_misfit(shape.shape, value, path)
    if isinstance(shape, _MapOf):
        if not isinstance(value, dict):
            return f"{path} is not an object"
        if _all_plain(shape.shape, value.values()):
            return None
        return next(
            filter(None, (_misfit(shape.shape, member, f"{path}.{key}") for key, member in value.items())), None
        )
    if isinstance(shape, _Matching):
        fits = isinstance(value, str) and shape.pattern.fullmatch(value) is not None
        return None if fits else f"{path} is not {shape.description}"
    if isinstance(shape, _Number):
        fits = isinstance(value, int | float) and not isinstance(value, bool) and shape.lowest <= value <= shape.highest
        fits = fits and _is_finite(value) and not (shape.is_whole and value % 1)
        return None if fits else f"{path} is not {shape.description}"
    if isinstance(shape, frozenset):
        fits = isinstance(value, str) and value in shape
        return None if fits else f"{path} is not " + " or ".join(repr(choice) for choice in sorted(shape))
    fits = isinstance(value, shape) and (shape is bool or shape == (dict, bool) or not isinstance(value, bool))
    return None if fits else f"{path} is not {_SHAPE_NAMES[shape]}"


def _misfit_of_object(shape: _Object, value: Any, path: str) -> str | None:
    if not isinstance(value, dict):
        return f"{path} is not an object"
    prefix = f"{path}." if path else ""
    for key, field_shape in shape.fields.items():
        member = value.get(key)
        if member is not None:
            problem = _misfit(field_shape, member, prefix + key)
            if problem is not None:
                return problem
        elif key in shape.needs:
            return f"{prefix}{key} is missing"
    return None


def _first_misfit(shape: Shape, values: list[Any], path: str, first_index: int = 0) -> str | None:
    """Returns the first misfit among the members of a list, numbered from `first_index`."""
    return next(
        filter(None, (_misfit(shape, member, f"{path}[{index}]") for index, member in enumerate(values, first_index))),
        None,
    )


_PLAIN: Final[tuple[tuple[Shape, frozenset[type]], ...]] = (
    (str, frozenset({str})),
    ((dict, bool), frozenset({dict, bool})),
)
"""Shapes that depend on the type alone, with their types, for a fast check of a million members."""


def _all_plain(shape: Shape, values: Collection[Any]) -> bool:
    """Returns True if all values certainly fit the shape; False means that each must be checked."""
    return any(shape == plain_shape and types.issuperset(map(type, values)) for plain_shape, types in _PLAIN)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def name_of(kind: Kind, item: Any) -> str:
    """Returns the name or URI by which a server knows an item, for a prompt without a name its title; "" for none."""
    keys = (kind.name_key, "title") if kind is PROMPTS else (kind.name_key,)
    texts = (item.get(key) for key in keys) if isinstance(item, dict) else ()
    return next((text for text in texts if isinstance(text, str) and text), "")


def mend(kind: Kind, item: Any) -> Generator[None, None, Any]:
    """Returns an item that has a defect without it, where its meaning stays the same; else the item. Done in steps.

    Optional fields that do not fit the specification are dropped, an input schema gets `type: object`, and a missing
    name becomes the title or URI.
    """
    if not isinstance(item, dict):
        return item
    named = item
    if kind is TOOLS:
        named = {**item, "inputSchema": _object_schema(item.get("inputSchema"))}
    elif not (isinstance(item.get("name"), str) and item["name"]):
        named = {**item, "name": name_of(PROMPTS, {"title": item.get("title")}) or name_of(kind, item)}
    fitted = yield from _fitted(_SHAPES[kind.name], named)
    return item if fitted is None else fitted


def _object_schema(schema: Any) -> Any:
    """Returns an input schema with `type: object` if it allows objects: arguments are always one."""
    if schema is None or schema is True or schema == []:  # some languages write an empty object so
        return {"type": "object"}
    if not isinstance(schema, dict):
        return schema
    types = schema.get("type")
    choices = types if isinstance(types, list) else [types]
    allows = None in choices or any(isinstance(choice, str) and choice.lower() == "object" for choice in choices)
    return {**schema, "type": "object"} if allows else schema


def _fitted(shape: Shape, value: Any) -> Generator[None, None, Any]:
    """Returns a value without the optional members that do not fit the shape; None if it does not fit itself."""
    if isinstance(shape, _Object) and isinstance(value, dict):
        fitted = {}
        for key in shape.fields.keys() & value.keys():
            fitted[key] = yield from _fitted(shape.fields[key], value[key])
        if any(fitted.get(key) is None for key in shape.needs):
            return None
        return {k: fitted.get(k, v) for k, v in value.items() if k not in fitted or fitted[k] is not None}
    if isinstance(shape, _MapOf) and value == []:
        return {}
    if isinstance(shape, _ListOf | _MapOf) and isinstance(value, list if isinstance(shape, _ListOf) else dict):
        members: dict[Any, Any] = {}
        for number, (key, member) in enumerate(value.items() if isinstance(value, dict) else enumerate(value)):
            if number % _STEP == 0:
                yield
            members[key] = yield from _fitted(shape.shape, member)
        if isinstance(shape, _MapOf):
            return {key: {} if member is None else member for key, member in members.items()}
        return [member for member in members.values() if member is not None]
    return value if _misfit(shape, value, "") is None else None


def drop_nulls(kind: Kind, item: dict[str, Any]) -> dict[str, Any]:
    """Returns the item without `null` in the fields of the specification, because strict clients refuse it there.

    Unknown fields keep it. Returns the same object if there is nothing to drop, and never changes it.
    """
    cleaned: dict[str, Any] = _without_nulls(_SHAPES[kind.name], item)
    return cleaned


def _without_nulls(shape: Shape, value: Any) -> Any:
    if isinstance(shape, _Object):
        changed = {}
        for key, field_shape in shape.fields.items():
            if key in value:
                member = value[key]
                cleaned = None if member is None else _without_nulls(field_shape, member)
                if cleaned is None or cleaned is not member:
                    changed[key] = cleaned
        if not changed:
            return value
        merged = {**value, **changed}
        return {key: member for key, member in merged.items() if key not in changed or member is not None}
    if isinstance(shape, _ListOf) and not isinstance(shape.shape, type | frozenset):
        if not any(None in item.values() or _holds_containers(item) for item in value):
            return value  # the usual case, and much faster
        cleaned = [_without_nulls(shape.shape, item) for item in value]
        return value if all(new is old for new, old in zip(cleaned, value, strict=True)) else cleaned
    return value


def _holds_containers(item: dict[str, Any]) -> bool:
    return not _CONTAINERS.isdisjoint(map(type, item.values()))


_CONTAINERS: Final = frozenset({dict, list})


def to_handshake_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Returns a valid tool in the form that handshake clients accept.

    Drops an output schema that does not describe an object, and writes the schemas `true` and `false` of properties as
    objects: either would make the client drop the whole list. Returns items of other kinds unchanged.
    """
    changed: dict[str, Any] = {}
    for key in ("inputSchema", "outputSchema"):
        schema = tool.get(key)
        if schema is None:
            continue
        if _misfit(_SCHEMA, schema, "") is not None:
            changed[key] = None
            continue
        cleaned = _without_nulls(_SCHEMA, schema)
        properties = cleaned.get("properties") or {}
        if any(isinstance(property_schema, bool) for property_schema in properties.values()):
            objects = {
                name: _AS_OBJECT[property_schema] if isinstance(property_schema, bool) else property_schema
                for name, property_schema in properties.items()
            }
            cleaned = {**cleaned, "properties": objects}
        if cleaned is not schema:
            changed[key] = cleaned
    return {k: v for k, v in {**tool, **changed}.items() if k not in changed or v is not None} if changed else tool


_AS_OBJECT: Final[dict[bool, dict[str, Any]]] = {True: {}, False: {"not": {}}}


def hints_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the annotations of a listed tool."""
    hints = tool.get("annotations")
    return hints if isinstance(hints, dict) else {}


def only_reads(tool: Mapping[str, Any]) -> bool:
    """Returns whether a listed tool says that it only reads."""
    return hints_of(tool).get("readOnlyHint") is True
