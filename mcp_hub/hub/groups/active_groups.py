"""Decides which groups of tools are active for a caller, and which meta tools it sees with them.

Lists and calls use the same object, so that they always agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcp_hub.catalog import CALL, OWN, READ, RUN, SEARCH, Catalog, CatalogEntry, Route
from mcp_hub.catalog.entries import made_entry
from mcp_hub.catalog.token_estimate import estimate_tokens
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import ToolGroupSettings
from mcp_hub.policy.confirm import CODE_MODE
from mcp_hub.policy.patterns import MAX_REMEMBERED, Patterns
from mcp_hub.policy.selection import matches_tool
from mcp_hub.protocol.frames import finished
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.search import words_of
from mcp_hub.search.signatures import summary
from mcp_hub.security.callers import Caller
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable

Json = dict[str, Any]

RESET: Final = "reset_equipped_tools"

MAX_FOUND: Final = 50
"""The most tools in one answer of `hub_search`."""
MAX_QUERY: Final = 1000
"""The most characters of a query."""
DETAILS: Final = {"brief": 20, "signature": 10, "full": 10}
"""The value of `detail` in `hub_search` -> how many tools it shows, unless the call has a `limit`."""

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
    "Finds tools by what they do, in a few words, or by name; those of groups that are not active included."
)
_CALLED: Final = {
    READ: " Call what is not in your list by hub_read if it is marked [reads], else by hub_call.",
    RUN: " Call what it finds in programs of hub_run, for which it shows Python stubs.",
}
"""How found tools are called."""
_CALL_TEXT: Final = "Calls any tool that hub_search finds, and returns what it returns."
_READ_TEXT: Final = "Calls a tool that hub_search marks [reads], which changes nothing, and returns what it returns."


_RUN_TEXT: Final = (
    "Runs a Python program that calls tools, and returns what it prints and the value of its last expression. Only "
    "that reaches you, so filter and combine results in it. Tools are async functions of their names: `files = await "
    "fs__list(path='/')`; for other names `await call_tool('name', {...})`; several at once by `asyncio.gather`. JSON "
    "results are values. A call that fails raises RuntimeError('code: text'). asyncio, datetime, json, math and re are "
    "imported; there are no files, no network and no other packages. hub_search with detail: signature has stubs of "
    "the tools."
)


_HARMLESS: Final = {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


def own_tools(config: Config) -> frozenset[str]:
    """Returns the names of the hub's own tools that every caller is listed, without the one that switches groups."""
    names = {SEARCH, READ, CALL} if config.meta_tools else set()
    return frozenset(names | ({SEARCH, RUN} if CODE_MODE.of(config).enabled else set()))


def definitions(
    groups: Sequence[ToolGroupSettings], tools: Collection[str] = (), catalog: Catalog | None = None
) -> list[Json]:
    """Returns the definitions of the hub's own `tools`, and of the one that switches `groups` if there are any.

    The description of `hub_search` summarises `catalog`, which is all that the caller may see.
    """
    entries: list[Json] = []
    if groups:
        switches = {
            group.name: {"type": "boolean", "default": False, "description": group.description} for group in groups
        }
        entries.append(_tool(RESET, _RESET_TEXT, switches, (), {"readOnlyHint": False, **_HARMLESS}))
    if SEARCH in tools:
        query = {
            "query": {"type": "string", "maxLength": MAX_QUERY, "description": "what the tool does, or its name"},
            "server": {"type": "string", "description": "only tools of this server"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND},
            "detail": {
                "enum": list(DETAILS),
                "description": "brief: one line a tool, signatures of the best; signature; full: whole definitions",
            },
        }
        text = _SEARCH_TEXT + "".join(hint for name, hint in _CALLED.items() if name in tools)
        text = text if catalog is None else f"{text} {contents_of(catalog)}".rstrip()
        entries.append(_tool(SEARCH, text, query, ("query",), {"readOnlyHint": True, **_HARMLESS}))
    if RUN in tools:
        code = {"code": {"type": "string", "description": "the program"}}
        entries.append(_tool(RUN, _RUN_TEXT, code, ("code",)))
    target = {"tool": {"type": "string"}, "arguments": {"type": "object", "description": "those of the tool"}}
    if READ in tools:
        entries.append(_tool(READ, _READ_TEXT, target, ("tool",), {"readOnlyHint": True}))
    if CALL in tools:
        entries.append(_tool(CALL, _CALL_TEXT, target, ("tool",), {"readOnlyHint": False, "destructiveHint": True}))
    return entries


def own_entries(groups: Sequence[ToolGroupSettings], tools: Collection[str], catalog: Catalog) -> list[CatalogEntry]:
    """Returns the entries of the tools that `definitions` defines."""
    wires = definitions(groups, tools, catalog)
    return [made_entry(wire["name"], Route(OWN, TOOLS, wire["name"]), wire) for wire in wires]


def _tool(
    name: str,
    text: str,
    properties: Json,
    required: Sequence[str] = (),
    annotations: Json | None = None,
) -> Json:
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    wire: Json = {"name": name, "description": text, "inputSchema": schema}
    if annotations:
        wire["annotations"] = annotations
    return wire


MAX_CONTENTS: Final = 250
"""The most tokens of the summary in the description of `hub_search`; the whole description has at most 400."""
MAX_PURPOSE: Final = 60
"""The most characters about one server in that summary."""


def contents_of(catalog: Catalog) -> str:
    """Returns a summary of a catalog's tools: its servers, how many tools each has, and their purposes.

    Servers with the most tools come first. If there is not enough room, purposes are left out before servers are.
    """
    names: dict[str, list[str]] = {}
    for entry in catalog.tools_of_models(listed=False):  # unavailable servers too, so that the text changes rarely
        names.setdefault(entry.route.upstream, []).append(entry.route.name)
    if not names:
        return ""
    servers = sorted(names, key=lambda server: (-len(names[server]), server))
    count = sum(map(len, names.values()))
    head = f"It searches {count} tool{'s' * (count != 1)} of {len(servers)} server{'s' * (len(servers) != 1)}: "
    parts = [f"{printable(server, 64)} ({len(names[server])})" for server in servers]
    sizes = [estimate_tokens(part) + 1 for part in parts]
    remaining = MAX_CONTENTS - estimate_tokens(head) - 6  # for the number of the omitted ones
    fitting_count = 0
    while fitting_count < len(parts) and sizes[fitting_count] <= remaining:
        remaining -= sizes[fitting_count]
        fitting_count += 1
    for number, server in enumerate(servers[:fitting_count]):
        purpose = summary(catalog.about(server), MAX_PURPOSE).rstrip(".").replace(";", ",") or _topics(names[server])
        size = estimate_tokens(f": {purpose}")
        if purpose and size <= remaining:
            parts[number] += f": {purpose}"
            remaining -= size
    omitted_count = len(parts) - fitting_count
    return head + "; ".join([*parts[:fitting_count], *([f"and {omitted_count} more"] if omitted_count else [])]) + "."


def _topics(names: Sequence[str]) -> str:
    """Returns the words that the most names of a server's tools have in common, without the verb in front."""
    counts = Counter(word for name in names[:MAX_FOUND] for word in dict.fromkeys(words_of(name)[1:]) if len(word) > 2)
    return ", ".join(word for word, _ in counts.most_common(4))


class GroupMembers:
    """Finds the groups of a tool. A tool that is only in `removed` groups is gone."""

    def __init__(
        self, groups: Iterable[ToolGroupSettings], removed: Iterable[ToolGroupSettings], servers: Mapping[str, Server]
    ) -> None:
        self._groups = [(group.name, Patterns(group.tools), Patterns(group.servers)) for group in groups]
        self._removed = [(group.name, Patterns(group.tools), Patterns(group.servers)) for group in removed]
        self._servers = servers
        self._cached: Lru[tuple[str, str], tuple[tuple[str, ...], bool]] = Lru(MAX_REMEMBERED)

    def groups(self, route: Route) -> tuple[str, ...]:
        """Returns the groups of a tool, in their order; () if it is in `basic`, or gone."""
        return self._groups_of(route)[0]

    def was_removed(self, route: Route) -> bool:
        """Returns whether a tool was removed together with its groups."""
        return bool(self._removed) and self._groups_of(route)[1]

    def _groups_of(self, route: Route) -> tuple[tuple[str, ...], bool]:
        key = (route.upstream, route.name)
        result = self._cached.get(key)
        if result is None:
            server = self._servers.get(route.upstream)
            names = tuple(name for name, *rules in self._groups if server is not None and _has(rules, server, route))
            is_removed = (
                not names and server is not None and any(_has(rules, server, route) for _, *rules in self._removed)
            )
            result = self._cached[key] = (names, is_removed)
        return result


def _has(rules: list[Patterns], server: Server, route: Route) -> bool:
    tools, servers = rules
    return servers.match(server.id) or (bool(tools) and matches_tool(tools, server, route.name))


MAX_VIEWS: Final = 64
"""Cached views of one catalog: callers with the same active groups share one; the least recently used goes."""


class ActiveGroups:
    """The groups, and whether each is active: as `chosen` by the caller, else as in `defaults`.

    `everything` says whether all that is configured is served. If not, a caller does not learn of groups whose tools it
    cannot see.
    """

    def __init__(
        self,
        groups: Mapping[str, ToolGroupSettings],
        defaults: Mapping[str, bool],
        chosen: Mapping[Caller, Mapping[str, bool]],
        members: GroupMembers,
        *,
        everything: bool,
        own_tools: Collection[str] = (),
    ) -> None:
        self.groups = groups
        self.members = members
        self._defaults = defaults
        self._chosen = chosen
        self._everything = everything
        self._own_tools = own_tools
        self._views: WeakKeyDictionary[Catalog, Lru[tuple[frozenset[str], bool], Catalog]] = WeakKeyDictionary()
        self._visible: WeakKeyDictionary[Catalog, tuple[ToolGroupSettings, ...]] = WeakKeyDictionary()

    @property
    def own_names(self) -> frozenset[str]:
        """The names of the meta tools that some caller has."""
        return frozenset(tool["name"] for tool in definitions(tuple(self.groups.values()), self._own_tools))

    def active(self, caller: Caller) -> frozenset[str]:
        """Returns the groups that are active for a caller."""
        chosen = self._chosen.get(caller, {})
        return frozenset(name for name in self.groups if chosen.get(name, self._defaults[name]))

    def inactive(self, route: Route, caller: Caller) -> str | None:
        """Returns a group that must be activated before a tool can be used, or None if the tool can be used."""
        names = self.members.groups(route)
        if not names or not self.active(caller).isdisjoint(names):
            return None
        return names[0]

    def visible_groups(self, full_catalog: Catalog, caller: Caller) -> tuple[ToolGroupSettings, ...]:
        """Returns the groups that a caller may know about. `full_catalog` is its catalog with all groups active."""
        return finished(self._visible_groups(full_catalog, self._restricts(caller)))

    def _visible_groups(
        self, catalog: Catalog, restricted: bool
    ) -> Generator[None, None, tuple[ToolGroupSettings, ...]]:
        if not restricted:
            return tuple(self.groups.values())
        groups = self._visible.get(catalog)
        if groups is None:
            names: set[str] = set()
            for route in catalog.routes(TOOLS):
                yield
                names.update(self.members.groups(route))
            groups = self._visible[catalog] = tuple(group for name, group in self.groups.items() if name in names)
        return groups

    def view(self, full_catalog: Catalog, caller: Caller) -> Catalog:
        """Returns the catalog that a caller sees: the meta tools, then its tools of `full_catalog` in active groups."""
        views = self._views.get(full_catalog)
        key = (self.active(caller), self._restricts(caller))
        view = views.use(key) if views is not None else None
        return view if view is not None else finished(self._build_view(full_catalog, *key))

    def preparing(self, full_catalog: Catalog, former_catalog: Catalog | None, profile: str | None) -> Generator[None]:
        """Makes the views of `full_catalog` that callers had of the former catalog, or the default one.

        Without it, the first caller of each view would block the event loop while all tools are looked at.
        """
        view_keys = list(self._views.get(former_catalog, ())) if former_catalog is not None else []
        default = frozenset(name for name in self.groups if self._defaults[name])
        for active, restricted in view_keys or [(default, not self._everything or profile is not None)]:
            yield from self._build_view(full_catalog, active, restricted)

    def _build_view(self, catalog: Catalog, active: frozenset[str], restricted: bool) -> Generator[None, None, Catalog]:
        def listed(route: Route) -> bool:
            names = self.members.groups(route)
            return not names or not active.isdisjoint(names)

        groups = yield from self._visible_groups(catalog, restricted)
        own = own_entries(groups, self._own_tools, catalog)
        view = yield from catalog.viewing(listed, self.members.was_removed, own)
        self._views.setdefault(catalog, Lru(MAX_VIEWS))[active, restricted] = view
        return view

    def _restricts(self, caller: Caller) -> bool:
        return not self._everything or caller.profile is not None
