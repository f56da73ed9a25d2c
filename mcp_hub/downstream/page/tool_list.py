"""The tools as everybody or one principal sees them, and what each rule does to one of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.catalog import OWN, Item, Route, names
from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageError, PageRequest, not_found, window
from mcp_hub.downstream.page.feed import shown
from mcp_hub.downstream.page.safe_json import bounded
from mcp_hub.observability.stalls import in_slices, in_thread
from mcp_hub.policy.access import located
from mcp_hub.protocol.kinds import TOOLS, hints_of
from mcp_hub.security import ANONYMOUS, Principal
from mcp_hub.security.callers import Caller
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.catalog import Catalog
    from mcp_hub.downstream.page.sessions import Viewer
    from mcp_hub.hub import Engine

LINE: Final = 120
"""Characters of the first sentence of a description that are shown in the list."""
ATTEMPTS: Final = 3
"""How often the costs are computed at most, if the lists change meanwhile."""
MAX_ROWS: Final = 20_000
"""Tools that are shown."""
MAX_PRINCIPALS: Final = 500
"""Principals whose view can be chosen."""
FILTERED: Final = ("name", "title", "server", "line")
"""The members of a row that the filter of the page is searched in."""


class ToolsPart:
    """Serves `GET /tools`, `GET /tools/NAME` and `GET /costs`. Only admins see what rules hide and change."""

    def __init__(self, hub: Engine, costs: Callable[[Engine], Json]) -> None:
        self._hub = hub
        self._costs = costs

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns the endpoints."""
        return {("GET", "/tools"): self.tools, ("GET", "/tools/"): self.tool, ("GET", "/costs"): self.costs}

    async def costs(self, page_request: PageRequest) -> Json:
        """Returns the cost of the tools in each way of listing them, and of those never called. For admins only."""
        viewer = page_request.session.viewer
        if not viewer.admin:
            raise not_found("such endpoint")
        await self._hub.settled_catalog()
        for _ in range(ATTEMPTS):
            try:
                costs = await in_thread(self._costs, self._hub)
                break
            except RuntimeError:  # the lists have changed meanwhile
                continue
        else:
            raise PageError(503, "busy", "The lists of tools keep changing.", "Look again when they have settled.")
        unused = [tool for tool in costs["tools"] if tool["calls"] == 0 and tool["server"]]
        never_called = {"tools": len(unused), "tokens": sum(tool["tokens"] for tool in unused)}
        overview = {name: costs[name] for name in ("client", "ways", "groups", "servers")}
        return {**shown(overview), "never_called": never_called}

    async def tools(self, page_request: PageRequest) -> Json:
        """Returns the rows of tools that a page shows; an admin also gets those that the principal does not see.

        Besides what `window` reads, `server` names the server whose tools are wanted; `listed` leaves hidden ones out.
        """
        viewer, query = page_request.session.viewer, page_request.query
        caller = self._hub.callers.of(self.seen_as(viewer, query.get("as")))
        catalog = await self._hub.catalogs.settled_for(caller)
        rows = await in_slices(self._rows(catalog, caller, hidden=viewer.admin))
        listen = self._hub.config.listen
        principals = list(listen.principals)[:MAX_PRINCIPALS] if viewer.admin else []
        hidden = sum(row["hidden_by"] is not None for row in rows)
        wanted = [
            row
            for row in rows
            if ("listed" not in query or row["hidden_by"] is None)
            and query.get("server", row["server"]) == row["server"]
        ]
        found = await in_thread(window, wanted, query, FILTERED)
        own = sum(row["server"] == "" for row in rows)
        facts = {"as": str(caller.principal) or None, "principals": principals, "hidden": hidden, "own": own}
        return {**found, "total": len(rows), **facts}

    async def tool(self, page_request: PageRequest) -> Json:
        """Returns one tool as it is listed, for an admin also as its server lists it and what each rule did to it.

        Definitions are not escaped, so texts may have hidden characters; only texts that are too long are cut.
        """
        viewer = page_request.session.viewer
        caller = self._hub.callers.of(self.seen_as(viewer, page_request.query.get("as")))
        catalog = await self._hub.catalogs.settled_for(caller)
        definition, route = catalog.entry(TOOLS, page_request.rest), catalog.resolve(TOOLS, page_request.rest)
        if route is None and viewer.admin:
            route = await in_slices(self._hidden_route(page_request.rest, catalog, caller))
        if route is None:
            raise not_found("such tool")
        item = self._item(route, caller)
        details: Json = {"definition": definition, "original": None, "rules": [], "hidden_by": None}
        if viewer.admin and item is not None:
            details |= {"original": item.wire, "rules": self._rules(item, caller)}
            if definition is None:
                details["hidden_by"] = await in_thread(located, self._hidden_by(route, caller), self._hub.config)
        return {**await in_thread(bounded, details), "name": page_request.rest, "server": route.upstream}

    def seen_as(self, viewer: Viewer, name: str | None) -> Principal:
        """Returns whose view a viewer asks for: an admin may ask for that of any principal with a token.

        Raises PageError, the same one for a principal that does not exist and for one that the viewer may not see.
        """
        if not name:
            return ANONYMOUS if viewer.admin else viewer.principal
        if name == viewer.principal:
            return viewer.principal
        listen = self._hub.config.listen
        settings = listen.principals.get(name) if viewer.admin else None
        if settings is None:
            raise not_found("such principal")
        return Principal(name, settings.profile, label=name)

    # --- rows --------------------------------------------------------------------------------------------------

    def _rows(self, catalog: Catalog, caller: Caller, *, hidden: bool) -> Generator[None, None, list[Json]]:
        rows: list[Json] = []
        for entry in catalog.entries(TOOLS)[:MAX_ROWS]:
            yield
            rows.append(_row(entry.exposed, entry.route, entry.wire, entry.tokens, None))
        if hidden:
            for name, item in self._unlisted(catalog, caller):
                yield
                if item is not None and len(rows) < MAX_ROWS:
                    rows.append(_row(name, item.route, item.wire, 0, self._hidden_by(item.route, caller)))
        return rows

    def _unlisted(self, catalog: Catalog, caller: Caller) -> Generator[tuple[str, Item | None]]:
        """Yields the name and the item of each tool that a catalog does not list, and None for each that it does."""
        listed_routes = {entry.route for entry in catalog.entries(TOOLS)}
        for upstream in list(self._hub.upstreams.values()):
            server = upstream.server
            for name, wire in list(upstream.lists_of(caller, TOOLS).tools.items()):
                route = Route(server.id, TOOLS, name)
                if route in listed_routes:
                    yield "", None
                else:
                    yield catalog.exposed(route) or names.expose(server.namespace, name), Item(route, name, wire)

    def _hidden_route(self, exposed: str, catalog: Catalog, caller: Caller) -> Generator[None, None, Route | None]:
        for name, item in self._unlisted(catalog, caller):
            yield
            if item is not None and name == exposed:
                return item.route
        return None

    def _hidden_by(self, route: Route, caller: Caller) -> str:
        hub = self._hub
        rule = hub.rules.why(route, caller.profile)
        if rule is None and (group := self._inactive_group(route, caller)) is not None:
            rule = f"groups.{group}: inactive"
        if rule is None and not hub.upstreams[route.upstream].visibility.listed:
            rule = "its server is not there"
        return printable(rule or "another tool has its name, or its definition is not valid", 300)

    def _inactive_group(self, route: Route, caller: Caller) -> str | None:
        if not self._hub.config.groups:
            return None
        groups = self._hub.groups
        return groups.now.inactive(route, caller)

    # --- one tool ----------------------------------------------------------------------------------------------

    def _item(self, route: Route, caller: Caller) -> Item | None:
        wire = self._hub.generation.listed_tool(route, caller)
        return Item(route, route.name, wire) if wire is not None else None

    def _rules(self, item: Item, caller: Caller) -> list[Json]:
        steps = self._hub.rules.listing(item, caller.profile)
        group = self._inactive_group(item.route, caller)
        for step in steps:
            if step["policy"] == "group" and group is not None:
                step["did"] = f"hides it: the group {group} is inactive"
        return steps


def _row(name: str, route: Route, wire: Any, tokens: int, hidden_by: str | None) -> Json:
    definition = wire if isinstance(wire, dict) else {}
    annotations = hints_of(definition)
    title = definition.get("title") or annotations.get("title")
    return {
        "name": name,
        "server": "" if route.upstream == OWN else route.upstream,
        "title": printable(title, LINE) if isinstance(title, str) else None,
        "line": _first_sentence(definition.get("description")),
        "tokens": tokens,
        "read_only": _flag(annotations.get("readOnlyHint")),
        "destructive": _flag(annotations.get("destructiveHint")),
        "hidden_by": hidden_by,
    }


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _first_sentence(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    line = text[: 4 * LINE].strip().partition("\n")[0]
    sentence, dot, _ = line.partition(". ")
    return printable(sentence + dot.strip(), LINE)
