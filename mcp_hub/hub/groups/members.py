"""Which tools are in which groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mcp_hub.catalog.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.config.root_rules import BASIC
from mcp_hub.config.rules import ToolGroup
from mcp_hub.policy.patterns import MAX_REMEMBERED, Patterns
from mcp_hub.policy.selection import is_named

__all__ = ["BASIC", "Members"]


class Members:
    """Tools by the groups they are in. What only `removed` groups have is gone."""

    def __init__(
        self, groups: Iterable[ToolGroup], removed: Iterable[ToolGroup], servers: Mapping[str, Server]
    ) -> None:
        self._groups = [(one.name, Patterns(one.tools), Patterns(one.servers)) for one in groups]
        self._removed = [(one.name, Patterns(one.tools), Patterns(one.servers)) for one in removed]
        self._servers = servers
        self._known: dict[tuple[str, str], tuple[tuple[str, ...], bool]] = {}

    def groups(self, route: Route) -> tuple[str, ...]:
        """The groups of a tool, in their order; () if it is in `basic`, or gone."""
        return self._of(route)[0]

    def gone(self, route: Route) -> bool:
        """Whether a tool was taken away together with its groups."""
        return bool(self._removed) and self._of(route)[1]

    def _of(self, route: Route) -> tuple[tuple[str, ...], bool]:
        key = (route.upstream, route.name)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            server = self._servers.get(route.upstream)
            names = tuple(name for name, *where in self._groups if server is not None and _has(where, server, route))
            gone = not names and server is not None and any(_has(where, server, route) for _, *where in self._removed)
            found = self._known[key] = (names, gone)
        return found


def _has(where: list[Patterns], server: Server, route: Route) -> bool:
    tools, servers = where
    return servers.match(server.id) or (bool(tools) and is_named(tools, server, route.name))
