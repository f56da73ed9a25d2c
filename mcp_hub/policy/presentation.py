"""How things look to clients: names, titles, descriptions and input schemas of tools; what the hub's own tools are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.models import Server
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import RulesOfTools
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.schema.extended_schemas import extended
from mcp_hub.schema.titles import without_titles
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.policy")

MAX_CHANGED: Final = 1000
"""Input schemas that are kept as they were changed."""

SOURCE_KEY: Final = "mcp-hub/source"
"""In a tool's `_meta`: `native` or `builtin`."""


class Presentation:
    """Puts `name`, `title` and `description` of the configuration in the place of the server's own.

    Input schemas lose their titles (`strip_titles`) and gain properties (`extend_schema`). Tools of the hub's own
    processes say so in their `_meta`; that of other servers is theirs.
    """

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._rules = RulesOfTools(servers)
        self._origins = {id: server.origin for id, server in servers.items() if server.origin != "mcp"}
        self._changed: dict[Route, tuple[Json, Json]] = {}

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """The same items under other names, with other words."""
        return [self._shown(item) for item in items]

    def _shown(self, item: Item) -> Item:
        rules = self._rules(item.route)
        if item.route.kind is not TOOLS or not isinstance(item.wire, dict):
            return item
        words: Json = {key: text for key in ("title", "description") if (text := getattr(rules, key)) is not None}
        if (origin := self._origins.get(item.route.upstream)) is not None:
            meta = item.wire.get("_meta")
            words["_meta"] = {**(meta if isinstance(meta, dict) else {}), SOURCE_KEY: origin}
        listed = item.wire.get("inputSchema")
        schema = self.schema(item.route, listed) if isinstance(listed, dict) else listed
        if rules.input_schema is not None:
            schema = rules.input_schema
        if rules.name is None and not words and schema is listed:
            return item
        wire = {**item.wire, **words} if schema is listed else {**item.wire, **words, "inputSchema": schema}
        return msgspec.structs.replace(item, local=rules.name or item.local, wire=wire)

    def schema(self, route: Route, listed: Json) -> Json:
        """The input schema of a tool as clients may use it, of the one its server lists; the same object each time."""
        rules = self._rules(route)
        if rules.extend_schema is None and not rules.strip_titles:
            return listed
        known = self._changed.get(route)
        if known is not None and known[0] is listed:
            return known[1]
        changed: Json = without_titles(listed) if rules.strip_titles else listed
        if rules.extend_schema is not None:
            try:
                changed = extended(changed, rules.extend_schema, route.name)
            except ValueError as error:
                where = f"servers.{route.upstream}.tools: extend_schema"
                log.warning("%s of %s is left out: %s", where, printable(route.name, 200), printable(str(error), 300))
        if len(self._changed) >= MAX_CHANGED:
            self._changed.clear()
        self._changed[route] = (listed, changed)
        return changed

    def concerns(self, route: Route) -> bool:
        """No call: names are mapped back by the catalog."""
        return False

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Nothing: names are mapped back by the catalog."""
        return await call_next(call)
