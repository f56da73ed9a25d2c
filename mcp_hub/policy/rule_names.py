"""The names that rules have, and which of them match nothing that servers list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.findings import nearest
from mcp_hub.config.models import Server
from mcp_hub.policy.patterns import WILDCARDS, Patterns
from mcp_hub.policy.selection import prefixes_of, spellings_of
from mcp_hub.policy.uri_rules import UriRules
from mcp_hub.protocol.kinds import TEMPLATES, TOOLS, Kind
from mcp_hub.schema.schema_edits import Path, parse_path, property_names
from mcp_hub.text import printable

MAX_HINTS: Final = 20
"""Names for which a similar one is looked for, as that takes some milliseconds each."""
MAX_COMPARED: Final = 5_000
"""Listed names that such a name is compared with."""


class RuleNames(msgspec.Struct, frozen=True):
    """The names below one key of the configuration. Each should match something that a server lists."""

    key: str
    """The key, such as `servers.github.disable_tools`."""
    names: tuple[str, ...]
    servers: str = "*"
    """A pattern over the ids of the servers that the names belong to."""
    kinds: tuple[Kind, ...] = (TOOLS,)
    form: Literal["name", "member", "tag", "argument"] = "name"
    """`name`: a pattern over original names, or a rule about URIs; `member`: written like a member of a tool set;
    `argument`: the path of an argument of the tools `of_tools`."""
    of_tools: str = "*"


class ListedServer(msgspec.Struct, frozen=True, dict=True):
    """A server that has been listed."""

    server: Server
    items: Mapping[Kind, Mapping[str, Any]]
    """Kind -> original name or URI -> the item as the server lists it."""
    incomplete: frozenset[Kind] = frozenset()
    """Kinds whose list has items missing."""
    tags: frozenset[str] = frozenset()

    @cached_property
    def spellings(self) -> frozenset[str]:
        """All names by which members of tool sets may name its tools."""
        return frozenset(text for name in self.items.get(TOOLS, ()) for text in spellings_of(self.server, name))

    def arguments(self, tool: str, path: Path) -> frozenset[str] | None:
        """Returns the names of a tool's arguments, or of those behind a path; None if it may take any."""
        wire = self.items[TOOLS][tool]
        schema = wire.get("inputSchema") if isinstance(wire, dict) else None
        own = property_names(schema, path) if isinstance(schema, dict) else None
        if own is None:
            return None
        extensions = ((pattern, rules.extend_schema) for pattern, rules in self.server.tools.items())
        added = (
            extension["properties"]
            for pattern, extension in extensions
            if extension and Patterns((pattern,)).match(tool)
        )
        return own.union(*added)


class UnmatchedName(msgspec.Struct, frozen=True):
    """A name in a rule that matches nothing."""

    key: str
    name: str
    owner: str = "server"
    hint: str | None = None
    """A listed name that may be meant."""

    @property
    def text(self) -> CodedText:
        """The message for the user, without the key."""
        hint = f"; did you mean {printable(self.hint)}?" if self.hint else ""
        return CodedText(f"no {self.owner} has {printable(self.name)}{hint}", codes.MEMBER_UNKNOWN)


def unmatched_names(
    rules: Iterable[RuleNames], servers: Sequence[Server], listed: Mapping[str, ListedServer]
) -> tuple[UnmatchedName, ...]:
    """Returns the names that match nothing. It takes long with thousands of tools, so call it in a thread.

    A name is judged only if each enabled server that may have it is `listed`.
    """
    prefixes = prefixes_of(servers)
    unmatched: list[UnmatchedName] = []
    for rule in rules:
        candidates = [server for server in servers if fnmatchcase(server.id, rule.servers)]
        for name in rule.names:
            owners = candidates
            if rule.form == "member":
                heads = [(len(head), id) for head, id in prefixes if name.startswith(head)]
                owners = [server for server in owners if not heads or server.id == max(heads)[1]]
            known = [listed[server.id] for server in owners if server.id in listed]
            is_judged = known and all(server.id in listed for server in owners if server.enabled)
            if name == "*" or not is_judged or any(one.incomplete.intersection(rule.kinds) for one in known):
                continue
            names = _names_of(rule, name, known)
            if names is None or _matches(rule, name, names, known):
                continue
            owner = "tool" if rule.form == "argument" else "server"
            hint = None
            if len(unmatched) < MAX_HINTS and not WILDCARDS.search(name):
                hint = nearest(name, sorted(names)[:MAX_COMPARED])
            unmatched.append(UnmatchedName(rule.key, name, owner, hint))
    return tuple(unmatched)


def _names_of(rule: RuleNames, name: str, servers: Sequence[ListedServer]) -> set[str] | None:
    """Returns the listed names that a name may be meant for; None if any name may be right."""
    if rule.form == "member":
        return {spelling for one in servers for spelling in one.spellings}
    if rule.form == "tag":
        return {tag for one in servers for tag in one.tags}
    if rule.form == "name":
        return {listed for one in servers for kind in rule.kinds for listed in one.items.get(kind, ())}
    *parent, _ = parse_path(name)
    patterns, arguments = Patterns((rule.of_tools,)), set[str]()
    for one in servers:
        for tool in filter(patterns.match, one.items.get(TOOLS, ())):
            own = one.arguments(tool, tuple(parent))
            if own is None:
                return None
            arguments |= own
    return arguments or None


def _matches(rule: RuleNames, name: str, names: set[str], servers: Sequence[ListedServer]) -> bool:
    if rule.form == "argument":
        return parse_path(name)[-1] in names
    if name in names or (WILDCARDS.search(name) and any(map(Patterns((name,)).match, names))):
        return True
    uris = [(kind, uri) for one in servers for kind in rule.kinds if kind.by_uri for uri in one.items.get(kind, ())]
    rules = UriRules((name,))
    return any(rules.covers(uri) or (kind is TEMPLATES and rules.admits_some(uri)) for kind, uri in uris)
