"""How things look to clients: other names, titles and descriptions of tools, and what the hub's own tools are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.catalog import Item, Route
from mcp_hub.config.models import Server
from mcp_hub.kinds import TOOLS
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import RulesOfTools

SOURCE_KEY: Final = "mcp-hub/source"
"""In a tool's `_meta`: `native` or `builtin`."""


class Presentation:
    """Puts `name`, `title` and `description` of the configuration in the place of the server's own.

    Tools of the hub's own processes say so in their `_meta`; that of other servers is theirs.
    """

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._rules = RulesOfTools(servers)
        self._origins = {id: server.origin for id, server in servers.items() if server.origin != "mcp"}

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
        if rules.name is None and not words:
            return item
        return msgspec.structs.replace(item, local=rules.name or item.local, wire={**item.wire, **words})

    def concerns(self, route: Route) -> bool:
        """No call: names are mapped back by the catalog."""
        return False

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Nothing: names are mapped back by the catalog."""
        return await call_next(call)
