"""Access: what a caller may reach, by blacklist, filters, selection, pins and screening."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

from mcp_hub.catalog import MAX_MATCHED_URI, Item, Route, names
from mcp_hub.config.config_files import read_document
from mcp_hub.config.entry_rules import Filter
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.findings import nearest
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import KeyReading, RootKey
from mcp_hub.errors import ConfigError
from mcp_hub.observability.stalls import in_slices
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts, unknown_name
from mcp_hub.policy.patterns import MAX_REMEMBERED, Patterns
from mcp_hub.policy.pins import PINS, PINS_OF_SERVER, PinReview
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.policy.screen import SCREEN, SCREEN_OF_SERVER, ScreenReview
from mcp_hub.policy.selection import EVERYTHING, Selection, select
from mcp_hub.policy.uri_rules import UriRules, completed_route, completed_values, with_values
from mcp_hub.protocol.kinds import KINDS, PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS
from mcp_hub.protocol.skill_entries import files_of
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable

_FILTER_OF_KIND: Final = {TOOLS: "tools", RESOURCES: "resources", TEMPLATES: "resources", PROMPTS: "prompts"}
_TAG_NAMESPACES: Final = ("fastmcp", "_fastmcp", "mcp-hub")
"""Keys in an item's `_meta` under which libraries have a mapping with `tags`."""
TAGS_KEY: Final = "mcp-hub/tags"
"""Key in the `_meta` of an item of the hub's own servers: its tags."""


Blacklist = tuple[tuple[str, str], ...]
"""Pairs (pattern for upstream ids, pattern for original names or URIs of any kind of item)."""


def _read_blacklist(field: FieldValue, reading: KeyReading) -> Blacklist | None:
    value, ids, findings = field.value, reading.ids, reading.findings
    if isinstance(value, dict):
        # {server: [tool, ...]}
        for server in (server for server, tools in value.items() if tools == []):
            findings.warning((*field.at, server), "names no tool and refuses nothing; write '*' to refuse all tools")
        items = value.items()
        value = [[server, tool] for server, tools in items for tool in (tools if isinstance(tools, list) else [tools])]
    if not isinstance(value, list):
        findings.error(field.at, "must be a list of [server, tool] or 'server/tool'")
        return None
    pairs: list[tuple[str, str]] = []
    for index, item in enumerate(value):
        at = (*field.at, index)
        pair = _pair(item, ids)
        if pair is None:
            findings.error(at, "must be [server, tool] or 'server/tool'")
            continue
        if not any(fnmatchcase(id, pair[0]) for id in ids):
            close_id = nearest(pair[0], ids)
            hint = f"; did you mean '{printable(close_id)}'?" if close_id else ""
            findings.warning(at, f"refuses nothing, as this file has no server '{printable(pair[0], 80)}'{hint}")
        pairs.append(pair)
    return tuple(pairs)


def _pair(item: Any, ids: Collection[str]) -> tuple[str, str] | None:
    if isinstance(item, dict):
        item = [item.get("server"), item.get("tool", item.get("name", "*"))]
    if isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) and part for part in item):
        return item[0], item[1]
    if not isinstance(item, str) or not item:
        return None
    # An id may contain a slash, as names of a registry do.
    server_id = max((id for id in ids if item.startswith(f"{id}/")), key=len, default=None)
    if server_id is None and item.partition("/")[0].endswith(":"):
        return "*", item  # a URI of any server
    server, slash, name = (server_id, "/", item[len(server_id) + 1 :]) if server_id is not None else item.partition("/")
    return (server, name or "*") if slash else ("*", item)


BLACKLIST: Final[RootKey[Blacklist]] = RootKey(
    "blacklist", _read_blacklist, (), spellings=("tool_blacklist",), restricts=True
)
"""Tools, prompts and resources that nobody may use: patterns `[server, tool]`, `server/tool` or `server/URI`."""


def located(rule: str, config: Config) -> str:
    """Returns a rule, for the blacklist with its places in the files: `blacklist (servers.yaml:7)`.

    It reads the files, so a hub that serves clients calls it in a thread.
    """
    places: list[str] = []
    for path in config.files if rule == BLACKLIST.name else ():
        with suppress(ConfigError):  # the file as it is now may be broken
            document = read_document(path)
            lines = (document.line_of((key,)) for key in (BLACKLIST.name, *BLACKLIST.spellings))
            places += [f"{path.name}:{line}" for line in lines if line is not None]
    return f"{rule} ({', '.join(places)})" if places else rule


class _NameFilter:
    """A compiled filter over names."""

    def __init__(self, filter: Filter) -> None:
        self._allow = Patterns(filter.allow) if filter.allow is not None else None
        self._deny = Patterns(filter.deny)
        self.allow_tags = frozenset(filter.allow_tags) if filter.allow_tags is not None else None
        self.deny_tags = frozenset(filter.deny_tags)

    def denies(self, route: Route) -> bool:
        return self._deny.match(route.name)

    def allows(self, route: Route) -> bool:
        return self._allow is None or self._allow.match(route.name)

    def refuses_tags(self, tags: frozenset[str]) -> bool:
        return bool(tags & self.deny_tags) or (self.allow_tags is not None and not tags & self.allow_tags)


class _UriFilter(_NameFilter):
    """A compiled filter over URIs and URI templates."""

    def __init__(self, filter: Filter) -> None:
        super().__init__(filter)
        self._allow_rules = UriRules(filter.allow) if filter.allow is not None else None
        self.deny_rules = UriRules(filter.deny)

    def denies(self, route: Route) -> bool:
        return self.deny_rules.covers(route.name)

    def allows(self, route: Route) -> bool:
        rules = self._allow_rules
        if rules is None:
            return True
        return rules.admits_some(route.name) if route.kind is TEMPLATES else rules.admits(route.name)


class Review(Protocol):
    """Judges items by their content, as the servers list it, and not only by their names."""

    def review(self, upstream: str, items: Sequence[Item]) -> Generator[None]:
        """Reviews all items that an upstream lists, before other policies change them, in steps."""
        ...

    def why(self, route: Route) -> str | None:
        """Returns why a route must not be reached, None if it may."""
        ...

    notes: Mapping[Route, str]
    """Notes for the user about routes that may be reached."""


class Access(Policy):
    """Hides items from lists and refuses calls of them, by one decision on the upstream's id and the original name.

    A refused name gets the same error as one that does not exist; only `why` tells the rule. `selection` applies to
    all callers; a caller with a profile reaches what both allow.
    """

    name = "access"
    keys = (BLACKLIST, PINS, PINS_OF_SERVER, SCREEN, SCREEN_OF_SERVER)

    def __init__(self, config: Config, selection: Selection = EVERYTHING, reviews: Sequence[Review] = ()) -> None:
        self._reviews = tuple(reviews)
        self._blacklist = [(Patterns((server,)), Patterns((name,)), name) for server, name in BLACKLIST.of(config)]
        self._servers: dict[str, Server] = {server.id: server for server in config.servers}
        self._filters = {
            (server.id, kind): (_UriFilter if kind.by_uri else _NameFilter)(server.filters[name])
            for server in config.servers
            for kind, name in _FILTER_OF_KIND.items()
            if name in server.filters
        }
        self._selections: dict[str | None, Selection] = {None: selection}
        """By the profile of the caller."""
        self._blacklist_rules: dict[str, UriRules] = {}
        """The blacklist's rules about URIs, by upstream."""
        self._resources: dict[str, set[str]] = {}
        """The normal forms of the URIs that each upstream lists."""
        self._templates: dict[str, list[tuple[Route, names.UriPattern]]] = {}
        self._selections |= {profile.name: select(config, profile.name) for profile in config.profiles}
        self._tags: dict[str, dict[Route, frozenset[str]]] = {}
        self._selected: dict[tuple[str, str | None], bool] = {}
        """By upstream and profile: whether a tool is selected, so that resources and prompts are served too."""
        self._decisions: dict[str, Lru[tuple[Route, str | None], str | None]] = {}
        """Decisions by upstream, since those of one upstream change together."""
        self._skills: dict[str, dict[tuple[str, str | None], str | None]] = {}
        """Decisions about listed skills, by upstream: a skill is refused if one of its files is."""

    @staticmethod
    def rule_names(config: Config) -> Iterator[RuleNames]:
        """Yields the names in the blacklist, in filters, and in what selects tools."""
        for server_pattern, name in BLACKLIST.of(config):
            yield RuleNames("blacklist", (name,), server_pattern, KINDS)
        for server in config.servers:
            for filtered, filter in server.filters.items():
                kinds = tuple(kind for kind, name in _FILTER_OF_KIND.items() if name == filtered)
                yield RuleNames(f"servers.{server.id}.enable_{filtered}", filter.allow or (), server.id, kinds)
                yield RuleNames(f"servers.{server.id}.disable_{filtered}", filter.deny, server.id, kinds)
                yield RuleNames(f"servers.{server.id}.include_tags", filter.allow_tags or (), server.id, form="tag")
                yield RuleNames(f"servers.{server.id}.exclude_tags", filter.deny_tags, server.id, form="tag")
        for tool_set in config.tool_sets:
            yield RuleNames(f"tool_sets.{tool_set.name}", tool_set.tools, form="member")
        for profile in config.profiles:
            yield RuleNames(f"profiles.{profile.name}", profile.tools, form="member")
            yield RuleNames(f"profiles.{profile.name}.tags", profile.tags, form="tag")
        for group in config.groups:
            yield RuleNames(f"groups.{group.name}", group.tools, form="member")
        yield RuleNames("expose_always", config.expose.always, form="member")

    @classmethod
    def of(cls, parts: PolicyParts) -> Access:
        """Makes the policy of a configuration."""
        return cls(parts.config, parts.selection, (parts.find(PinReview), parts.find(ScreenReview)))

    def review(self, items: Sequence[Item]) -> Generator[None]:
        """Reviews all items that an upstream lists, in steps. `shape` is called later, on parts of them."""
        if not items:
            return
        upstream = items[0].route.upstream
        for review in self._reviews:
            yield from review.review(upstream, items)
        server = self._servers[upstream]
        tags: dict[Route, frozenset[str]] = {}
        resources: set[str] = set()
        templates: list[tuple[Route, names.UriPattern]] = []
        for item in items:
            yield
            item_tags = tags_of(server, item.route, item.wire)
            if item.definition:  # a tag counts if all definitions of the item have it
                item_tags &= tags.get(item.route, frozenset(server.tags))
            if item_tags or item.definition:
                tags[item.route] = item_tags
            if item.route.kind is RESOURCES:
                resources.add(names.normal_uri(item.route.name))
            elif item.route.kind is TEMPLATES and (pattern := names.template_pattern(item.route.name)) is not None:
                templates.append((item.route, pattern))
        profiles: set[str | None] = set()
        for profile, selection in self._selections.items():
            for item in items:
                yield
                own_tags = tags.get(item.route, frozenset(server.tags))
                if item.route.kind is TOOLS and selection.has(server, item.route, own_tags):
                    profiles.add(profile)
                    break
        self._tags[upstream], self._resources[upstream], self._templates[upstream] = tags, resources, templates
        self._selected |= {(upstream, profile): profile in profiles for profile in self._selections}
        self._decisions.pop(upstream, None)
        skills: dict[tuple[str, str | None], str | None] = {}
        for item in (item for item in items if item.route.kind is SKILLS):
            for profile in self._selections:
                rule = yield from self._rule_hiding_file(upstream, files_of(item.wire), profile)
                skills[item.route.name, profile] = rule or skills.get((item.route.name, profile))
        self._skills[upstream] = skills

    def _rule_hiding_file(
        self, upstream: str, files: Sequence[str], profile: str | None
    ) -> Generator[None, None, str | None]:
        """Returns the rule that hides one of these resources of a server, in steps; None if all may be read."""
        for uri in files:
            yield
            if (rule := self._hiding_rule(Route(upstream, RESOURCES, uri), profile)) is not None:
                return rule
        return None

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Returns the items that may be reached."""
        return [item for item in items if self.why(item.route) is None]

    def __call__(self, call: Call, call_next: Next) -> Awaitable[Json]:
        """Runs the call. Raises UnknownName for a hidden item."""
        profile = call.caller.profile
        rule = self.why(call.route, profile)
        if rule is None and call.route.kind is TEMPLATES:
            completed = completed_route(call)
            rule = self._denial(completed) or self._refusal_by_review(completed)
        if rule is not None:
            call.refused_by = rule
            raise unknown_name(call.kind, call.exposed, call.era)
        for review in self._reviews:
            if call.route in review.notes:
                call.notes.append(f"access: {review.notes[call.route]}")
        if call.route.kind is SKILLS:
            return self._get_skill(call, call_next, profile)
        return self._complete(call, call_next) if call.route.kind is TEMPLATES else call_next(call)

    async def _complete(self, call: Call, call_next: Next) -> Json:
        result = await call_next(call)
        return with_values(result, await in_slices(self._visible_values(call, result)))

    async def _get_skill(self, call: Call, call_next: Next, profile: str | None) -> Json:
        """Returns a skill's entry as its server has it now. Raises UnknownName if one of its files is refused."""
        result = await call_next(call)
        files = files_of(result.get("skill"))
        if call.exposed != call.route.name:
            files = [original[1] if (original := names.original_uri(uri)) is not None else uri for uri in files]
        rule = await in_slices(self._rule_hiding_file(call.route.upstream, files, profile))
        if rule is not None:
            call.refused_by = rule
            raise unknown_name(call.kind, call.exposed, call.era)
        return result

    def _visible_values(self, call: Call, result: Json) -> Generator[None, None, list[str]]:
        """Returns the completions of a template's variable that make no refused URI, in steps."""
        profile = call.caller.profile
        visible: list[str] = []
        for value, route in completed_values(call, result):
            yield
            if self.why(route, profile) is None:
                visible.append(value)
        return visible

    def why(self, route: Route, profile: str | None = None) -> str | None:
        """Returns the rule that hides a route from callers of a profile, None if they may reach it."""
        key = (route, profile)
        decisions = self._decisions.get(route.upstream)
        if decisions is None:
            decisions = self._decisions[route.upstream] = Lru(MAX_REMEMBERED)
        if key in decisions:
            return decisions[key]
        rule = self._hiding_rule(route, profile)
        if len(route.name) <= MAX_MATCHED_URI:
            decisions[key] = rule
        return rule

    def _hiding_rule(self, route: Route, profile: str | None) -> str | None:
        if route.kind is SKILLS:
            listed = self._skills.get(route.upstream, {})
            file = Route(route.upstream, RESOURCES, route.name)
            return listed[route.name, profile] if (route.name, profile) in listed else self._hiding_rule(file, profile)
        if profile is None:
            return self._decide(route) or self._refusal_by_review(route)
        return self.why(route) or self._refusal_by_selection(route, profile)

    def _refusal_by_review(self, route: Route) -> str | None:
        return next((rule for review in self._reviews if (rule := review.why(route)) is not None), None)

    def _decide(self, route: Route) -> str | None:
        if route.upstream not in self._servers:  # a list was made before a reload removed the server
            return f"servers.{route.upstream}: removed"
        if (rule := self._denial(route)) is not None:
            return rule
        filter = self._filters.get((route.upstream, route.kind))
        if filter is not None and not filter.allows(route):
            return f"servers.{route.upstream}: filter of {_FILTER_OF_KIND[route.kind]}"
        if filter is not None and filter.refuses_tags(self._tags_of(route)):
            return f"servers.{route.upstream}: filter of tags"
        return self._refusal_by_selection(route, None)

    def _denial(self, route: Route) -> str | None:
        """Returns the rule that refuses a name or URI, whatever else allows it."""
        if self._is_blacklisted(route):
            return "blacklist"
        filter = self._filters.get((route.upstream, route.kind))
        if filter is not None and (
            filter.denies(route) or (isinstance(filter, _UriFilter) and self._only_made_by(filter.deny_rules, route))
        ):
            return f"servers.{route.upstream}: filter of {_FILTER_OF_KIND[route.kind]}"
        return None

    def _is_blacklisted(self, route: Route) -> bool:
        upstream = route.upstream
        if not route.kind.by_uri:
            return any(
                servers.match(upstream) and patterns.match(route.name) for servers, patterns, _ in self._blacklist
            )
        rules = self._blacklist_rules.get(upstream)
        if rules is None:
            uri_patterns = (name for servers, _, name in self._blacklist if servers.match(upstream))
            rules = self._blacklist_rules[upstream] = UriRules(uri_patterns)
        return rules.covers(route.name) or self._only_made_by(rules, route)

    def _only_made_by(self, refused: UriRules, route: Route) -> bool:
        """Returns whether a URI is not listed and matches refused templates only."""
        if route.kind is not RESOURCES or not refused:
            return False
        if names.normal_uri(route.name) in self._resources.get(route.upstream, ()):
            return False
        uri = names.readable(route.name)
        makers = [maker for maker, template in self._templates.get(route.upstream, ()) if template.takes(uri)]
        is_made = refused.makes(route.name) or any(refused.covers(maker.name) for maker in makers)
        return is_made and all(self.why(maker) is not None for maker in makers)

    def _refusal_by_selection(self, route: Route, profile: str | None) -> str | None:
        selection = self._selections.get(profile)
        if selection is None:
            return f"there is no profile {profile!r}"
        if selection is EVERYTHING or selection.has(self._servers[route.upstream], route, self._tags_of(route)):
            return None
        is_companion = route.kind is not TOOLS and self._selected.get((route.upstream, profile), False)
        return None if is_companion else f"not in {selection.name}"

    def _tags_of(self, route: Route) -> frozenset[str]:
        tags = self._tags.get(route.upstream, {}).get(route)
        return tags if tags is not None else frozenset(self._servers[route.upstream].tags)


def tags_of(server: Server, route: Route, wire: Any) -> frozenset[str]:
    """Returns the tags of an item: of its server, of its tool's configuration, and those the server lists."""
    tags = set(server.tags)
    if route.kind is TOOLS:
        for pattern, rules in server.tools.items():
            if rules.tags and Patterns((pattern,)).match(route.name):
                tags.update(rules.tags)
    meta = wire.get("_meta") if isinstance(wire, dict) else None
    if isinstance(meta, Mapping):
        nested = [namespace.get("tags") for key in _TAG_NAMESPACES if isinstance(namespace := meta.get(key), dict)]
        for values in (meta.get(TAGS_KEY), *nested):
            if isinstance(values, list):
                tags.update(tag for tag in values if isinstance(tag, str))
    return frozenset(tags)
