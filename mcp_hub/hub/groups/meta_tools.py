"""Calls of the meta tools: they activate groups, search tools, or stand for the call of another tool."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.catalog import OWN, Catalog, Route
from mcp_hub.errors import InvalidParameters
from mcp_hub.hub.groups.active_groups import CALL, FOUND, MAX_FOUND, MAX_QUERY, RESET, SEARCH
from mcp_hub.observability.stalls import in_slices
from mcp_hub.policy import Call
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.hub.groups import Groups

Json = dict[str, Any]

CALL_ROUTE: Final = Route(OWN, TOOLS, CALL)

MAX_SHOWN: Final = 256 * 1024
"""Bytes of definitions in one answer; the tools that do not fit are named only."""
MAX_NAMED: Final = 100
"""Tools that are named in place of a definition."""
MAX_READ: Final = 4096
"""Characters of a description that are searched."""
_SHOWN: Final = ("name", "title", "description", "inputSchema", "annotations")
_WORD: Final = re.compile(r"\w+")


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


async def call_meta_tool(groups: Groups, call: Call) -> Json:
    """Returns the result of one call of a meta tool. Raises InvalidParameters."""
    arguments = call.params.get("arguments") or {}
    if call.route.name == RESET:
        return _reset(groups, call, arguments)
    if call.route.name == SEARCH:
        return await _search(groups, call, arguments)
    raise InvalidParameters(f"{CALL} stands for the call of another tool; call that tool itself.")


def _reset(groups: Groups, call: Call, arguments: Json) -> Json:
    shown = {group.name: group for group in groups.shown_to(call.caller)}
    for name, value in arguments.items():
        if name not in shown:
            there_are = ", ".join(repr(one) for one in shown)
            raise InvalidParameters(
                f"Invalid arguments: there is no tool group {printable(name, 200)!r}; there are: {there_are}. "
                "Nothing was changed."
            )
        if not isinstance(value, bool):
            raise InvalidParameters(
                f"Invalid arguments: the argument {name} should be a bool value, but got {type(value)}."
            )
    wanted = [name for name, value in arguments.items() if value]
    groups.reset_for(call.caller, dict.fromkeys(wanted, True))
    notes = groups.notes_for(call.caller)
    # The text of AgentScope's toolkit, which models and programs know.
    quoted = ", ".join(f"'{name}'" for name in wanted)
    text = f"Now tool groups {quoted} are activated." if wanted else ""
    if notes:
        text += f" You MUST follow these notes to use these tools:\n<notes>{notes}</notes>"
    content = [{"type": "text", "text": text or "All tool groups are now deactivated currently."}]
    if wanted:
        catalog = groups.catalog_of(call.caller)
        members = groups.now.members
        on = (name for name in catalog.names(TOOLS) if (to := catalog.resolve(TOOLS, name)) and members.groups(to))
        content.append({"type": "text", "text": encode(_definitions(catalog, on)).decode()})
    return {"content": content}


async def _search(groups: Groups, call: Call, arguments: Json) -> Json:
    query, limit = arguments.get("query"), arguments.get("limit", FOUND)
    strange = sorted(set(arguments) - {"query", "limit"})
    if strange:
        raise InvalidParameters(f"{SEARCH} has no argument {printable(strange[0], 200)!r}.")
    if not isinstance(query, str) or len(query) > MAX_QUERY:
        raise InvalidParameters(f"{SEARCH} needs 'query', a text of at most {MAX_QUERY} characters.")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_FOUND:
        raise InvalidParameters(f"{SEARCH}: 'limit' must be a whole number from 1 to {MAX_FOUND}.")
    whole, now = groups.whole_of(call.caller), groups.now
    names = await in_slices(_ranked(whole, query, lambda name: not now.members.gone(_route(whole, name))))
    found = _definitions(whole, names[:limit])
    for tool in found["tools"]:
        route = _route(whole, tool["name"])
        of = now.members.groups(route)
        if of:
            tool.update(groups=list(of), active=now.inactive(route, call.caller) is None)
    found["found"] = len(names)
    return {"content": [{"type": "text", "text": encode(found).decode()}]}


def _route(catalog: Catalog, name: str) -> Any:
    return catalog.resolve(TOOLS, name)


def _ranked(catalog: Catalog, query: str, there: Any) -> Generator[None, None, list[str]]:
    """Returns names of tools, the best match first: words in the name count more than in the description."""
    words = set(_WORD.findall(query.casefold().replace("_", " ")))
    ranked = []
    for order, name in enumerate(catalog.names(TOOLS)):
        yield
        if not there(name):
            continue
        entry = catalog.entry(TOOLS, name) or {}
        text = f"{entry.get('title') or ''} {str(entry.get('description') or '')[:MAX_READ]}".casefold()
        points = sum(3 * (word in name.casefold()) + (word in text) for word in words)
        if points or not words:
            ranked.append((-points, order, name))
    return [name for _, _, name in sorted(ranked)]


def _definitions(catalog: Catalog, names: Iterable[str]) -> Json:
    """Returns {"tools": definitions that fit, "left_out": names of the others}."""
    room = MAX_SHOWN
    tools: list[Json] = []
    left_out: list[str] = []
    for name in names:
        entry = catalog.entry(TOOLS, name) or {}
        shown: Json = {key: entry[key] for key in _SHOWN if key in entry}
        size = len(encode(shown))
        if size > room:
            left_out.append(name)
            continue
        room -= size
        tools.append(shown)
    if not left_out:
        return {"tools": tools}
    more = len(left_out) - MAX_NAMED
    return {"tools": tools, "left_out": left_out[:MAX_NAMED], **({"more_left_out": more} if more > 0 else {})}
