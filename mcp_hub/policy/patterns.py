"""Patterns over original names, and the rules of one tool found by them; those over URIs are UriRules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Final

from mcp_hub.catalog.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.config.rules import ToolRules

MAX_REMEMBERED: Final = 10_000
"""Names whose rules are remembered; an upstream may make up new ones for ever."""
_GLOB: Final = re.compile(r"[*?\[]")


class Patterns:
    """Names given exactly or with `*`, `?` and `[...]`; case counts."""

    def __init__(self, patterns: Iterable[str]) -> None:
        given = tuple(patterns)
        self._exact = frozenset(given)
        globs = [translate(pattern) for pattern in given if _GLOB.search(pattern)]
        self._glob = re.compile("|".join(globs)) if globs else None

    def __bool__(self) -> bool:
        return bool(self._exact)

    def match(self, name: str) -> bool:
        """Whether one of the patterns covers the name."""
        return name in self._exact or (self._glob is not None and self._glob.match(name) is not None)


class RulesOfTools:
    """The ToolRules of each tool: of all patterns that match, in the order of the file, the last word wins."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._rules = {
            id: [(Patterns((pattern,)), rules) for pattern, rules in server.tools.items()]
            for id, server in servers.items()
            if server.tools
        }
        self._known: dict[tuple[str, str], ToolRules] = {}

    def __call__(self, route: Route) -> ToolRules:
        """The rules of the tool a route leads to; of anything but a tool there are none."""
        if route.upstream not in self._rules or route.kind.name != "tools":
            return NO_RULES
        key = (route.upstream, route.name)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._merged(*key)
        return found

    def _merged(self, upstream: str, name: str) -> ToolRules:
        merged = NO_RULES
        for patterns, rules in self._rules[upstream]:
            if patterns.match(name):
                said = {field: getattr(rules, field) for field in rules.model_fields_set}
                said["preset"] = {**merged.preset, **rules.preset}
                merged = merged.model_copy(update=said)
        return merged


NO_RULES: Final = ToolRules()
