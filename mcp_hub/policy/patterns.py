"""Patterns over original names, and the rules of one tool that patterns select."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Final

from mcp_hub.catalog import Route
from mcp_hub.config.entry_rules import ToolRules
from mcp_hub.config.models import Server
from mcp_hub.security.lru import Lru

MAX_REMEMBERED: Final = 10_000
"""Names whose rules are cached; an upstream may list new names without end."""
WILDCARDS: Final = re.compile(r"[*?\[]")


class Patterns:
    """Names given exactly or with the wildcards `*`, `?` and `[...]`, case-sensitively."""

    def __init__(self, patterns: Iterable[str]) -> None:
        all_patterns = tuple(patterns)
        self._exact = frozenset(all_patterns)
        globs = [translate(pattern) for pattern in all_patterns if WILDCARDS.search(pattern)]
        self._glob = re.compile("|".join(globs)) if globs else None

    def __bool__(self) -> bool:
        return bool(self._exact)

    def match(self, name: str) -> bool:
        """Returns whether one of the patterns covers the name."""
        return name in self._exact or (self._glob is not None and self._glob.match(name) is not None)


class ToolRulesTable(Lru[Route, ToolRules]):
    """The ToolRules of each tool, merged from all matching patterns; for each key the last pattern in the file wins."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        super().__init__(MAX_REMEMBERED)
        self._rules = {
            id: [(pattern, Patterns((pattern,)), rules) for pattern, rules in server.tools.items()]
            for id, server in servers.items()
            if server.tools
        }

    def key_of(self, route: Route, field: str) -> str | None:
        """Returns the key below the entry that sets a rule of a tool, such as `tools.read_*.timeout`; None if none."""
        keys = [pattern for pattern, rules in self._matching(route) if getattr(rules, field) is not None]
        return f"tools.{keys[-1]}.{field}" if keys else None

    def __missing__(self, route: Route) -> ToolRules:
        self[route] = rules = self._merged(route) if route.kind.name == "tools" else NO_RULES
        return rules

    def _merged(self, route: Route) -> ToolRules:
        merged = NO_RULES
        for _, rules in self._matching(route):
            fields = {field: getattr(rules, field) for field in rules.model_fields_set}
            fields["preset"] = {**merged.preset, **rules.preset}
            merged = merged.model_copy(update=fields)
        return merged

    def _matching(self, route: Route) -> list[tuple[str, ToolRules]]:
        """Returns the patterns that match a tool, with their rules, in the order of the file."""
        rules_of_server = self._rules.get(route.upstream, ())
        return [(pattern, rules) for pattern, patterns, rules in rules_of_server if patterns.match(route.name)]


NO_RULES: Final = ToolRules()
