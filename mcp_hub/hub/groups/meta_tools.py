"""Carries out calls of the meta tools, which activate groups or search tools, and reads the call in a `hub_call`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.catalog import CALL, OWN, READ, SEARCH, Catalog, Route
from mcp_hub.errors import InvalidParameters
from mcp_hub.hub.groups.active_groups import DETAILS, MAX_FOUND, MAX_QUERY, RESET
from mcp_hub.observability.stalls import in_slices, in_thread
from mcp_hub.policy import Call
from mcp_hub.protocol.frames import encode, weighs_more
from mcp_hub.protocol.kinds import TOOLS, only_reads
from mcp_hub.search.signatures import FoundTool
from mcp_hub.search.signatures import answer as found_tools
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.hub.groups import Groups

Json = dict[str, Any]
Find = Callable[[Catalog, str], Awaitable[list[str]]]
"""Returns the names of the tools of a catalog that fit a query, the best first."""

_CALLERS: Final = (CALL, READ)

MAX_SHOWN: Final = 256 * 1024
"""Bytes of definitions in one answer; the tools that do not fit are named only."""
MAX_NAMED: Final = 100
"""Tools that are named in place of a definition."""
BEST: Final = 3
"""Tools whose signature or stub is in a brief answer."""
MAX_TOKENS: Final = 1200
"""Estimated tokens of an answer of lines and signatures."""
_DEFINITION_KEYS: Final = ("name", "title", "description", "inputSchema", "annotations")


def inner_call(route: Route, arguments: Json) -> tuple[str, Json] | None:
    """Returns (tool, its arguments) of the call inside a `hub_call` or `hub_read`, or None for any other route.

    Raises InvalidParameters if the arguments are invalid.
    """
    if route.upstream != OWN or route.name not in _CALLERS:
        return None
    caller, tool, inner = route.name, arguments.get("tool"), arguments.get("arguments")
    inner = {} if inner is None else inner
    if not isinstance(tool, str):
        raise InvalidParameters(f"{caller} needs 'tool', the name of a tool, a text.")
    if unknown := sorted(set(arguments) - {"tool", "arguments"}):
        name = printable(unknown[0], 200)
        raise InvalidParameters(f"{caller} has no argument {name!r}; put the arguments of the tool into 'arguments'.")
    if not isinstance(inner, dict):
        raise InvalidParameters(f"{caller}: 'arguments' must be an object with the arguments of the tool.")
    if tool in _CALLERS:
        raise InvalidParameters(f"{caller} does not call {tool}; give it the name of the tool that is meant.")
    return tool, inner


async def call_meta_tool(groups: Groups, call: Call, find: Find, *, code: bool = False) -> Json:
    """Returns the result of one call of a meta tool. Raises InvalidParameters.

    With `code` the caller writes programs, and a search shows it stubs.
    """
    arguments = call.params.get("arguments") or {}
    if call.route.name == RESET:
        return await _reset(groups, call, arguments)
    if call.route.name == SEARCH:
        return await _search(groups, call, arguments, find, code)
    raise InvalidParameters(f"{call.route.name} is for clients that were not listed a tool; call that by its own name.")


async def _reset(groups: Groups, call: Call, arguments: Json) -> Json:
    activated = activated_in(arguments, [group.name for group in groups.shown_to(call.caller)])
    groups.reset_for(call.caller, dict.fromkeys(activated, True))
    content = [{"type": "text", "text": reset_text(activated, groups.notes_for(call.caller))}]
    if activated:
        catalog = groups.catalog_of(call.caller)
        members = groups.now.members
        group_tools = (entry.exposed for entry in catalog.tools_of_models() if members.groups(entry.route))
        definitions = await in_thread(_definitions, catalog, list(group_tools))
        content.append({"type": "text", "text": encode(definitions).decode()})
    await groups.spread()
    return {"content": content}


def activated_in(states: Json, names: Collection[str]) -> list[str]:
    """Returns the groups that are true in the arguments of `RESET`. Raises InvalidParameters."""
    for name, value in states.items():
        if name not in names:
            known = ", ".join(map(repr, names))
            text = f"Invalid arguments: there is no tool group {printable(name, 200)!r}; there are: {known}."
            raise InvalidParameters(f"{text} Nothing was changed.")
        if not isinstance(value, bool):
            text = f"Invalid arguments: the argument {name} should be a bool value, but got {type(value)}."
            raise InvalidParameters(text)
    return [name for name, value in states.items() if value]


def reset_text(activated: Collection[str], notes: str) -> str:
    """Returns what `RESET` answers: the text of AgentScope's toolkit, which models and programs know."""
    quoted = ", ".join(f"'{name}'" for name in activated)
    text = f"Now tool groups {quoted} are activated." if activated else ""
    if notes:
        text += f" You MUST follow these notes to use these tools:\n<notes>{notes}</notes>"
    return text or "All tool groups are now deactivated currently."


async def _search(groups: Groups, call: Call, arguments: Json, find: Find, code: bool) -> Json:
    query, detail, limit, server = _search_arguments(arguments)
    full_catalog, now = groups.whole_of(call.caller), groups.now
    if server is not None and server not in (servers := {route.upstream for route in full_catalog.routes(TOOLS)}):
        known_names = ", ".join(sorted(servers)[:MAX_NAMED])
        raise InvalidParameters(f"{SEARCH}: no server {printable(server, 200)!r}; there are: {printable(known_names)}.")
    found = await find(full_catalog, query) if query.strip() else None
    names = found if found is not None else (entry.exposed for entry in full_catalog.tools_of_models())
    routes = await in_slices(_existing_routes(full_catalog, names, server, now.members.was_removed))
    matches = list(routes)

    def state(name: str) -> Json:
        names, is_active = now.members.groups(routes[name]), now.inactive(routes[name], call.caller) is None
        return {"groups": list(names), "active": is_active} if names else {}

    if detail == "full":
        answer = await in_thread(_definitions, full_catalog, matches[:limit])
        for tool in answer["tools"]:
            tool.update(state(tool["name"]))
        return {"content": [{"type": "text", "text": encode({**answer, "found": len(matches)}).decode()}]}
    tools = []
    for name in matches[:limit]:
        facts, wire = state(name), full_catalog.entry(TOOLS, name) or {}
        notes = [f"off; in group {', '.join(facts['groups'])}"] if facts and not facts["active"] else []
        notes += ["reads"] if not code and only_reads(wire) else []
        tools.append(FoundTool(wire, "; ".join(notes), code=code))
    signatures = BEST if detail == "brief" else limit
    shown = (_head(len(tools), len(matches)), tools, signatures, MAX_TOKENS)
    is_large = weighs_more([tool.wire for tool in tools])
    text = await in_thread(found_tools, *shown) if is_large else found_tools(*shown)
    return {"content": [{"type": "text", "text": text}]}


def _existing_routes(
    catalog: Catalog, names: Iterable[str], server: str | None, is_removed: Callable[[Route], bool]
) -> Generator[None, None, dict[str, Route]]:
    """Returns {name: route} of the tools that are not gone, in their order; of one server if it is given."""
    routes: dict[str, Route] = {}
    for name in names:
        yield
        route = catalog.resolve(TOOLS, name)
        if route is not None and server in (None, route.upstream) and not is_removed(route):
            routes[name] = route
    return routes


def _search_arguments(arguments: Json) -> tuple[str, str, int, str | None]:
    """Returns (query, detail, limit, server). Raises InvalidParameters."""
    query, detail, server = arguments.get("query"), arguments.get("detail", "brief"), arguments.get("server")
    if unknown := sorted(set(arguments) - {"query", "detail", "limit", "server"}):
        raise InvalidParameters(f"{SEARCH} has no argument {printable(unknown[0], 200)!r}.")
    if not isinstance(query, str) or len(query) > MAX_QUERY:
        raise InvalidParameters(f"{SEARCH} needs 'query', a text of at most {MAX_QUERY} characters.")
    if not isinstance(detail, str) or detail not in DETAILS:
        raise InvalidParameters(f"{SEARCH}: 'detail' must be one of {', '.join(DETAILS)}.")
    limit = arguments.get("limit", DETAILS[detail])
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_FOUND:
        raise InvalidParameters(f"{SEARCH}: 'limit' must be a whole number from 1 to {MAX_FOUND}.")
    if server is not None and not isinstance(server, str):
        raise InvalidParameters(f"{SEARCH}: 'server' must be the name of a server, a text.")
    return query, detail, limit, server


def _head(shown_count: int, found_count: int) -> str:
    if not found_count:
        return "No tool was found. Say in other words what it should do, or give an empty query for all tools."
    return f"{f'{shown_count} of {found_count} tools' if shown_count < found_count else 'Tools'} found, the best first:"


def _definitions(catalog: Catalog, names: Iterable[str]) -> Json:
    """Returns {"tools": definitions that fit, "left_out": names of the others}."""
    room = MAX_SHOWN
    tools: list[Json] = []
    left_out: list[str] = []
    for name in names:
        entry = catalog.entry(TOOLS, name) or {}
        definition: Json = {key: entry[key] for key in _DEFINITION_KEYS if key in entry}
        size = len(encode(definition))
        if size > room:
            left_out.append(name)
            continue
        room -= size
        tools.append(definition)
    more = {"more_left_out": len(left_out) - MAX_NAMED} if len(left_out) > MAX_NAMED else {}
    return {"tools": tools, **({"left_out": left_out[:MAX_NAMED]} if left_out else {}), **more}
