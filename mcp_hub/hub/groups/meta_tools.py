"""The meta tools as they are listed: one activates groups, two search and call tools that the client's list lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mcp_hub.catalog.catalog import OWN, Route
from mcp_hub.config.root_rules import ToolGroupSettings
from mcp_hub.errors import InvalidParameters
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.text import printable

Json = dict[str, Any]

RESET: Final = "reset_equipped_tools"
SEARCH: Final = "hub_search"
CALL: Final = "hub_call"
CALL_ROUTE: Final = Route(OWN, TOOLS, CALL)

FOUND: Final = 10
"""Tools that `hub_search` returns by default."""
MAX_FOUND: Final = 50
MAX_QUERY: Final = 1000
"""Characters."""

_RESET_TEXT: Final = (
    "Activates and deactivates groups of tools, as your current task needs them.\n"
    "**Important: each call sets the absolute final state of ALL tool groups, not incremental changes.** Any group "
    "that is not explicitly set to true is deactivated, whatever it was before.\n\n"
    "**Best practice**: activate only what you need for the current task, and deactivate groups as soon as they are no "
    "longer needed.\n\n"
    "It returns how the tools of the activated groups are to be used, which you **MUST pay attention to and follow**, "
    "and the definitions of these tools. You can also call it to read these notes again."
)
_SEARCH_TEXT: Final = (
    "Finds tools by words in their names and descriptions, those of groups that are not active included. It returns "
    "their definitions; a tool that is not in your own list can be called with hub_call."
)
_CALL_TEXT: Final = (
    "Calls one tool by its name, also one that is not in your own list, and returns what that tool returns. hub_search "
    "and reset_equipped_tools say which tools there are."
)


def definitions(groups: Sequence[ToolGroupSettings], meta_tools: bool) -> list[Json]:
    """Returns the definitions of the meta tools for a caller that may know about these groups."""
    found: list[Json] = []
    if groups:
        switches = {
            group.name: {"type": "boolean", "default": False, "description": group.description} for group in groups
        }
        found.append(_tool(RESET, _RESET_TEXT, switches, idempotent=True))
    if meta_tools:
        query = {
            "query": {"type": "string", "maxLength": MAX_QUERY, "description": "words; empty for all tools"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": FOUND},
        }
        found.append(_tool(SEARCH, _SEARCH_TEXT, query, ("query",), reads=True, idempotent=True))
        target = {
            "tool": {"type": "string", "description": "the name of the tool"},
            "arguments": {"type": "object", "description": "its arguments"},
        }
        found.append(_tool(CALL, _CALL_TEXT, target, ("tool",)))
    return found


def _tool(
    name: str,
    text: str,
    properties: Json,
    required: Sequence[str] = (),
    *,
    reads: bool = False,
    idempotent: bool = False,
) -> Json:
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    wire: Json = {"name": name, "description": text, "inputSchema": schema}
    if idempotent:
        own = {"readOnlyHint": reads, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
        wire["annotations"] = own
    return wire


def inner_call(route: Route, arguments: Json) -> tuple[str, Json] | None:
    """Returns (tool, its arguments) of the call inside a `hub_call`, or None for any other route.

    Raises InvalidParameters if the arguments of `hub_call` are invalid.
    """
    if route != CALL_ROUTE:
        return None
    tool, inner = arguments.get("tool"), arguments.get("arguments", {})
    strange = sorted(set(arguments) - {"tool", "arguments"})
    if strange:
        name = printable(strange[0], 200)
        raise InvalidParameters(f"{CALL} has no argument {name!r}; what is for the tool belongs into 'arguments'.")
    if not isinstance(tool, str):
        raise InvalidParameters(f"{CALL} needs 'tool', the name of a tool, a text.")
    if not isinstance(inner, dict):
        raise InvalidParameters(f"{CALL}: 'arguments' must be an object with the arguments of the tool.")
    if tool == CALL:
        raise InvalidParameters(f"{CALL} does not call itself; give it the name of the tool that is meant.")
    return tool, inner
