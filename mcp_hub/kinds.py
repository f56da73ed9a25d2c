"""The four kinds of things a server lists, as one table, and what makes one listed item unusable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

LEFT_OUT_KEY: Final = "mcp-hub/left-out"
"""In the `_meta` of a list: texts about what its server could not offer, such as a file that does not import."""

MAX_NAME: Final = 1024
"""Characters; a longer name or URI is hostile."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind is listed, used, keyed and announced."""

    name: str
    list_method: str
    act_method: str
    result_key: str
    """Where the list stands in a result of `list_method`."""
    name_key: str
    """Where an item, and a request of `act_method`, has its name."""
    capability: str
    changed: str
    """The notification that says the list has changed."""
    unknown: str
    """The word for one of them in an error."""


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
KINDS: Final = (TOOLS, RESOURCES, TEMPLATES, PROMPTS)

_SHARED: Final[dict[str, type | tuple[type, ...]]] = {
    "title": str,
    "description": str,
    "annotations": dict,
    "icons": list,
    "_meta": dict,
}
_OF_KIND: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "tools": {"inputSchema": dict, "outputSchema": dict, "execution": dict},
    "resources": {"name": str, "mimeType": str, "size": (int, float)},
    "templates": {"name": str, "mimeType": str},
    "prompts": {"arguments": list},
}
_WORDS: Final = {str: "a text", dict: "an object", list: "a list", (int, float): "a number"}
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def defect(kind: Kind, item: Any) -> str | None:
    """Why a client would drop the whole list because of this item; None if it is sound.

    Only what the specification's types forbid; unknown fields are fine. `null` is taken for absent.
    """
    if not isinstance(item, dict):
        return "it is not an object"
    name = item.get(kind.name_key)
    if not isinstance(name, str) or not name:
        return f"its {kind.name_key} is not a text"
    if len(name) > MAX_NAME:
        return f"its {kind.name_key} is longer than {MAX_NAME:,} characters"
    for key, expected in (_SHARED | _OF_KIND[kind.name]).items():
        value = item.get(key)
        if value is not None and (not isinstance(value, expected) or isinstance(value, bool)):
            return f"its {key} is not {_WORDS[expected]}"
    if any(not isinstance(icon, dict) for icon in item.get("icons") or ()):
        return "its icons are not objects"
    return _OWN_RULE[kind.name](item)


def _tool(item: dict[str, Any]) -> str | None:
    schema = item.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its inputSchema is not a schema of type 'object'"
    return None


def _resource(item: dict[str, Any]) -> str | None:
    if not isinstance(item.get("name"), str):
        return "its name is not a text"
    return None if _SCHEME.match(item["uri"]) else "its uri has no scheme"


def _template(item: dict[str, Any]) -> str | None:
    return None if isinstance(item.get("name"), str) else "its name is not a text"


def _prompt(item: dict[str, Any]) -> str | None:
    for argument in item.get("arguments") or ():
        if not isinstance(argument, dict) or not isinstance(argument.get("name"), str):
            return "its arguments are not objects with a name"
    return None


_OWN_RULE: Final = {"tools": _tool, "resources": _resource, "templates": _template, "prompts": _prompt}
