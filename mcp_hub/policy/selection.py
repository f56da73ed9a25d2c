"""The selection: which items of a configuration are served, by tool sets, a profile and tags."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from mcp_hub import codes
from mcp_hub.catalog import Route, names
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import Exposed
from mcp_hub.errors import ConfigError
from mcp_hub.policy.patterns import MAX_REMEMBERED, Patterns
from mcp_hub.policy.uri_rules import UriRules
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES
from mcp_hub.security.lru import Lru

Prefixes = tuple[tuple[str, str], ...]
"""Pairs (how names of one server's tools begin: `id/` or `namespace__`, id of the server)."""


class Selection(msgspec.Struct, frozen=True, dict=True):
    """Tools that are members of `members` or have one of `member_tags`, and that also have one of `tags`.

    A member is `server/tool` (a pattern), an exposed name, or an original name. None means no restriction.
    """

    name: str = "everything"
    members: tuple[str, ...] | None = None
    member_tags: frozenset[str] = frozenset()
    tags: frozenset[str] | None = None
    expose: Exposed | None = None
    """Which tools the profile lists to its clients; None: the setting of the configuration applies."""
    prefixes: Prefixes = ()

    def has(self, server: Server, route: Route, tags: Collection[str]) -> bool:
        """Returns whether an item of a server is selected."""
        if self.tags is not None and self.tags.isdisjoint(tags):
            return False
        if self.members is None or not self.member_tags.isdisjoint(tags):
            return True
        if route.kind is TEMPLATES:
            return self._uris(server.id).admits_some(route.name)
        if route.kind is RESOURCES:
            return self._uris(server.id).admits(route.name)
        return matches_tool(self._patterns, server, route.name, self.prefixes)

    @cached_property
    def _patterns(self) -> Patterns:
        return Patterns(self.members or ())

    def _uris(self, server: str) -> UriRules:
        """Returns the members as rules about the URIs of one server; of `server/URI`, the URI counts as well."""
        rules = self._uris_of.get(server)
        if rules is None:
            patterns = list(self.members or ())
            for member in self.members or ():
                head, slash, tail = member.partition("/")
                if slash and Patterns((head,)).match(server):
                    patterns.append(tail)
            rules = self._uris_of[server] = UriRules(patterns)
        return rules

    @cached_property
    def _uris_of(self) -> dict[str, UriRules]:
        return {}


EVERYTHING: Final = Selection()


def prefixes_of(servers: Iterable[Server]) -> Prefixes:
    """Returns how names of each server's tools begin."""
    heads = ((head, server.id) for server in servers for head in (f"{server.id}/", names.expose(server.namespace, "")))
    return tuple((head, id) for head, id in heads if head)


def matches_tool(patterns: Patterns, server: Server, name: str, prefixes: Prefixes = ()) -> bool:
    """Returns whether a member of a tool set matches this tool.

    With `prefixes`, no server can take a name that begins as those of another server do. A rule that refuses has none.
    """
    return any(
        patterns.match(spelling) and not _is_of_another(spelling, server, prefixes)
        for spelling in spellings_of(server, name)
    )


def spellings_of(server: Server, name: str) -> tuple[str, ...]:
    """Returns the names by which a member of a tool set may name a tool."""
    local = next((rules.name for pattern, rules in server.tools.items() if pattern == name and rules.name), name)
    exposed = names.expose(server.namespace, local), names.expose(server.namespace, name)
    return (f"{server.id}/{name}", *exposed, name, local)


def _is_of_another(spelling: str, server: Server, prefixes: Prefixes) -> bool:
    """Returns whether the longest prefix of a name is only that of other servers."""
    heads = [(len(head), id == server.id) for head, id in prefixes if spelling.startswith(head)]
    return bool(heads) and not max(heads)[1]


class ToolNames:
    """A set of tools, written like the members of a tool set."""

    def __init__(self, members: Iterable[str], servers: Mapping[str, Server]) -> None:
        self._patterns = Patterns(members)
        self._servers = servers
        self._cache: Lru[Route, bool] = Lru(MAX_REMEMBERED)

    def __contains__(self, route: Route) -> bool:
        is_member = self._cache.get(route)
        if is_member is None:
            is_member = self._cache[route] = bool(self._patterns) and self._matches(route)
        return is_member

    def _matches(self, route: Route) -> bool:
        server = self._servers.get(route.upstream)
        return self._patterns.match(route.name) or (
            server is not None and matches_tool(self._patterns, server, route.name)
        )


def select(
    config: Config, profile: str | None = None, tool_sets: Sequence[str] = (), tags: Sequence[str] = ()
) -> Selection:
    """Returns the union of a profile and tool sets, reduced to the tools that have one of `tags`.

    Raises ConfigError for a name that the configuration does not have.
    """
    if profile is None and not tool_sets and not tags:
        return EVERYTHING
    sets = {tool_set.name: tool_set for tool_set in config.tool_sets}
    members: list[str] = []
    member_tags: list[str] = []
    set_names = list(tool_sets)
    profiles = {entry.name: entry for entry in config.profiles}
    if profile is not None:
        if profile not in profiles:
            text = f"there is no profile {profile!r}; {choices_text('profiles', profiles)}"
            raise ConfigError(text, codes.NAME_UNKNOWN)
        set_names += profiles[profile].tool_sets
        members += profiles[profile].tools
        member_tags += profiles[profile].tags
    for name in set_names:
        if name not in sets:
            raise ConfigError(f"there is no tool set {name!r}; {choices_text('tool_sets', sets)}", codes.NAME_UNKNOWN)
        members += sets[name].tools
    parts = [f"profile {profile!r}" if profile is not None else "", *(f"tool set {name!r}" for name in tool_sets)]
    parts += [f"tag {tag!r}" for tag in tags]
    is_limited = profile is not None or bool(tool_sets)
    return Selection(
        name=" + ".join(filter(None, parts)),
        members=tuple(dict.fromkeys(members)) if is_limited else None,
        member_tags=frozenset(member_tags),
        tags=frozenset(tags) if tags else None,
        expose=profiles[profile].expose if profile is not None else None,
        prefixes=prefixes_of(config.servers),
    )


def choices_text(key: str, choices: Iterable[str]) -> str:
    """Returns which names the configuration has, for the error about one that it does not have."""
    listed = ", ".join(choices)
    return f"the configuration has these under '{key}': {listed}" if listed else f"the configuration has no '{key}'"
