"""Merges the lists of all upstreams and decides which item gets which name, after all items have been seen."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Generator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub import codes
from mcp_hub.catalog import names, resource_uris
from mcp_hub.catalog.entries import (
    CatalogEntry,
    CatalogFinding,
    CatalogSource,
    Item,
    Json,
    OnConflict,
    Route,
    made_entry,
)
from mcp_hub.codes import CodedText
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.protocol.kinds import (
    KINDS,
    PROMPTS,
    RESOURCES,
    SKILLS,
    TEMPLATES,
    TOOLS,
    Kind,
    defect_in_steps,
    drop_nulls,
    mend,
)
from mcp_hub.protocol.skill_entries import directories_of, files_of, with_uris


class LinkedResources:
    """The UI resources of tools and the files of skills: the catalog refers to both by their exposed URIs."""

    def __init__(self) -> None:
        self._exposed: dict[Route, str] = {}
        self._routes: dict[str, Route] = {}
        self.unlisted: dict[str, Route] = {}

    def take(self, resource: CatalogEntry) -> None:
        """Registers a listed resource."""
        self._exposed[resource.route] = resource.exposed
        self._routes[resource.exposed] = resource.route

    def tool(self, entry: CatalogEntry) -> CatalogEntry:
        """Returns the tool with the exposed URI of its UI resource."""
        wire = resource_uris.in_meta(entry.wire, partial(self._uri, entry.route.upstream))
        return entry if wire is entry.wire else made_entry(entry.exposed, entry.route, wire)

    def skill(self, entry: CatalogEntry) -> Generator[None, None, CatalogEntry]:
        """Returns the skill with the exposed URIs of its files.

        Either all of them are the server's own URIs or all are prefixed, so that the files stay in one directory.
        """
        upstream, files = entry.route.upstream, files_of(entry.wire)[1:]
        files = [entry.route.name, *(uri for uri in files if uri != entry.route.name)]
        unprefixed = entry.exposed == entry.route.name
        for uri in files:
            yield
            unprefixed = unprefixed and self._exposed_uri(Route(upstream, RESOURCES, uri)) == uri
        for uri in (*files, *directories_of(files)):
            yield
            exposed = uri if unprefixed else names.expose_uri(upstream, uri)
            if exposed not in self._routes:
                self.unlisted.setdefault(exposed, Route(upstream, RESOURCES, uri))
        if unprefixed:
            return entry
        exposed = names.expose_uri(upstream, entry.route.name)
        wire = with_uris({**entry.wire, "uri": entry.route.name}, partial(names.expose_uri, upstream))
        return made_entry(exposed, entry.route, wire)

    def _exposed_uri(self, route: Route) -> str:
        """Returns the URI of a resource, prefixed if its own URI leads to another resource."""
        if route in self._exposed:
            return self._exposed[route]
        uri = route.name
        is_foreign = self._routes.get(uri, self.unlisted.get(uri, route)) != route or uri.startswith(names.URI_PREFIX)
        return names.expose_uri(route.upstream, uri) if is_foreign else uri

    def _uri(self, upstream: str, uri: str) -> str:
        route = Route(upstream, RESOURCES, uri)
        exposed = self._exposed_uri(route)
        if route not in self._exposed:
            self.unlisted[exposed] = route
        return exposed


MAX_DEPTH: Final = 100
"""Levels of nesting in one item; the Python SDK rejects a whole message of more than 200."""

_BOTH: Final = (RESOURCES, TEMPLATES)
"""The kinds of which two items with the same URI are both served, whatever `on_conflict` says."""


class _Claim(msgspec.Struct):
    """One valid item and the name it would have if there were no others."""

    order: int
    source: CatalogSource
    item: Item
    wire: Json
    data: bytes | None
    """`wire`, serialised; None if the former entry is reused."""
    preferred_name: str
    former: CatalogEntry | None
    repaired: bool
    """Whether invalid characters were replaced, which is reported at every build."""
    exposed: str | None = None
    """Its name; None until it has one."""
    losses: list[tuple[str, str]] = []
    """(reason, severity) for the second name that it gets; empty if it gets none."""

    @property
    def route(self) -> Route:
        return self.item.route

    @property
    def unchanged(self) -> bool:
        """Whether the preferred name is namespace and name as they are, with nothing replaced or cut."""
        prefix = f"{self.source.namespace}{names.SEPARATOR}" if self.source.namespace else ""
        return self.preferred_name == prefix + self.item.local


class MergedCatalog(NamedTuple):
    """The lists of all servers merged into one, and what a person should know of its items."""

    entries: dict[Kind, tuple[CatalogEntry, ...]]
    findings: tuple[CatalogFinding, ...]
    unlisted: dict[str, Route]
    """Resources that show tools or belong to skills and are in no list, by exposed URI."""


class Merge:
    """One merge. All items are seen before any name is given, so their order of arrival decides nothing."""

    def __init__(
        self,
        on_conflict: OnConflict,
        owners: Mapping[tuple[Kind, str], Route],
        reserved: frozenset[str] = frozenset(),
        former: Mapping[Kind, Mapping[str, CatalogEntry]] | None = None,
        names_of: Mapping[Route, str] | None = None,
    ) -> None:
        self._on_conflict = on_conflict
        self._former, self._names_of = former or {}, names_of or {}
        """The previous entries by kind and name, and their names by route: unchanged ones are reused."""
        self._reserved = reserved
        """Names of the hub's own tools."""
        self._owners = owners
        self._findings: list[CatalogFinding] = []
        self._files: dict[str, Route] = {}
        """The files of skills that later servers list as theirs: each URI belongs to the first server that has it."""

    def run(self, sources: Sequence[CatalogSource]) -> Generator[None, None, MergedCatalog]:
        """Merges the items; yields between small steps."""
        claims: dict[Kind, dict[Route, _Claim]] = {kind: {} for kind in KINDS}
        for source in sources:
            for item in source.items:
                yield
                if item.route in claims[item.route.kind]:
                    text = "it is listed twice by the same server; the first one is kept"
                    self._find(item, text, winner=item.route, code=codes.ITEM_LEFT_OUT)
                    continue
                claim = yield from self._claim(source, item)
                if claim is not None:
                    claim.order = len(claims[item.route.kind])
                    claims[item.route.kind][item.route] = claim
        yield from self._reserve(claims, {source.upstream: number for number, source in enumerate(sources)})
        entries: dict[Kind, tuple[CatalogEntry, ...]] = {}
        for kind in KINDS:
            entries[kind] = yield from self._settle(kind, list(claims[kind].values()))
        linked = LinkedResources()
        for entry in entries[RESOURCES]:
            yield
            linked.take(entry)
        skills: list[CatalogEntry] = []
        for entry in entries[SKILLS]:
            skills.append((yield from linked.skill(entry)))
        entries[SKILLS] = tuple(skills)
        tools: list[CatalogEntry] = []
        for entry in entries[TOOLS]:
            yield
            tools.append(linked.tool(entry))
        entries[TOOLS] = tuple(tools)
        remaining = [claim for of_kind in claims.values() for claim in of_kind.values()]
        claims.clear()
        while remaining:  # freeing 50,000 at once would block the event loop for 15 ms
            yield
            del remaining[-64:]
        return MergedCatalog(entries, tuple(self._findings), linked.unlisted)

    def _reserve(self, claims: Mapping[Kind, Mapping[Route, _Claim]], order_of: Mapping[str, int]) -> Generator[None]:
        if not claims[SKILLS]:
            return
        listed: dict[str, int] = {}
        for claim in claims[RESOURCES].values():
            yield
            listed.setdefault(claim.preferred_name, order_of[claim.route.upstream])
        for claim in claims[SKILLS].values():
            upstream = claim.route.upstream
            for uri in files_of(claim.wire):
                yield
                if order_of[upstream] < listed.get(uri, -1):
                    self._files.setdefault(uri, Route(upstream, RESOURCES, uri))

    def _owner(self, kind: Kind, name: str) -> Route | None:
        """Returns the route that has had a name before, or has it without being listed."""
        return self._owners.get((kind, name)) or (self._files.get(name) if kind is RESOURCES else None)

    def _claim(self, source: CatalogSource, item: Item) -> Generator[None, None, _Claim | None]:
        kind, wire = item.route.kind, item.wire
        former = self._former_of(item)
        data: bytes | None = None
        repaired = False
        problem = (yield from defect_in_steps(kind, wire)) if former is None else None
        if problem is not None:
            mended = yield from mend(kind, wire)
            if mended is not wire and (yield from defect_in_steps(kind, mended)) is None:
                wire, problem = mended, None
        if former is None and problem is None:
            without_nulls = drop_nulls(kind, wire)
            yield
            try:
                wire, data = _readable(without_nulls)
            except FrameError as error:
                problem = f"it cannot be passed on: {error}"
            else:
                repaired = wire is not without_nulls
                if repaired:
                    text = "its text has invalid characters, which are shown as U+FFFD"
                    self._find(item, text, code=codes.ITEM_LEFT_OUT)
        if problem is not None:
            self._find(item, f"it is left out: {problem}", code=codes.ITEM_LEFT_OUT)
            return None
        if kind is TEMPLATES:
            preferred_name = item.route.name
        elif kind.by_uri:
            preferred_name = item.local
        else:
            preferred_name = names.expose(source.namespace, item.local)
        return _Claim(0, source, item, wire, data, preferred_name, former, repaired)

    def _former_of(self, item: Item) -> CatalogEntry | None:
        name = self._names_of.get(item.route)
        former = self._former[item.route.kind].get(name) if name is not None else None
        return former if former is not None and former.item is item else None

    def _settle(self, kind: Kind, claims: list[_Claim]) -> Generator[None, None, tuple[CatalogEntry, ...]]:
        groups: dict[str, list[_Claim]] = {}
        for claim in claims:
            yield
            groups.setdefault(claim.preferred_name, []).append(claim)
        used: set[str] = set()
        for name, group in groups.items():
            yield
            winner = self._winner(kind, name, group)
            if winner is not None:
                winner.exposed = name
                used.add(name)
            for claim in group:
                if claim is not winner:
                    claim.losses = self._loses(kind, name, claim, winner)
        if kind in (TOOLS, PROMPTS):
            yield from self._warn_of_lookalikes(claims)
        for claim in claims:
            yield
            for reason, severity in claim.losses:
                claim.exposed = second_name = self._second_name(kind, claim, used)
                used.add(second_name)
                self._find(claim.item, f"{reason}; it is exposed as {second_name!r}", severity)
        entries: list[CatalogEntry] = []
        for claim in claims:
            yield
            if claim.exposed is not None:
                entries.append(_entry(claim.exposed, claim))
        return tuple(entries)

    def _winner(self, kind: Kind, name: str, group: list[_Claim]) -> _Claim | None:
        """Returns the claim that gets a name; None if it is the hub's or of an upstream that has none of the claims."""
        if kind.by_uri and name.startswith(names.URI_PREFIX):
            return None  # only the hub gives out such URIs, so that no upstream can pose as another
        if kind is TOOLS and name in self._reserved:
            return None
        override = self._on_conflict == "override" and kind not in _BOTH
        owner = self._owner(kind, name)
        upstream = (group[-1] if override else group[0]).route.upstream
        if owner is not None and not override:
            upstream = owner.upstream
        candidates = [claim for claim in group if claim.route.upstream == upstream]
        # Names of one upstream become equal only where the hub has replaced or cut characters.
        current_owner = [claim for claim in candidates if claim.route == owner]
        unchanged = [claim for claim in candidates if claim.unchanged]
        return next(iter(current_owner + unchanged + candidates), None)

    def _loses(self, kind: Kind, name: str, claim: _Claim, winner: _Claim | None) -> list[tuple[str, str]]:
        """Returns (reason, severity) for the second name that a claim gets; [] if the configuration leaves it out."""
        serves_both = kind in _BOTH
        severity = "error" if self._on_conflict == "raise" and not serves_both else "warning"
        if kind is TOOLS and name in self._reserved:
            return [(f"{name!r} is a tool of the hub's own", "warning")]
        owner = winner.route if winner is not None else self._owner(kind, name)
        if owner is None:
            return [("URIs that begin so are the hub's own", "warning")]
        if owner.upstream == claim.route.upstream:
            return [(f"{owner.name[:200]!r} of the same server is exposed as {name!r}", "warning")]
        if winner is None or (winner.order > claim.order and self._on_conflict != "override"):
            return [(f"{owner.upstream!r} is served under this name already", severity)]
        same = f"{owner.upstream!r} has the same name"
        if serves_both or self._on_conflict in ("rename", "prefix"):
            return [(same, severity)]
        if self._on_conflict == "override":
            self._find(
                claim.item, f"{same} {name!r} and takes its place (on_conflict: override); it is left out", winner=owner
            )
        else:
            self._find(claim.item, f"{same} {name!r} and comes first; it is left out", severity, winner=owner)
        return []

    def _second_name(self, kind: Kind, claim: _Claim, used: Collection[str]) -> str:
        upstream = claim.route.upstream
        if kind.by_uri:
            return names.expose_uri(upstream, claim.route.name)
        own = claim.item.local
        candidates = [names.expose(upstream, own)] if self._on_conflict == "prefix" else []
        for attempt in count():
            for name in (*candidates, names.renamed(upstream, own, attempt)):
                if name not in used and self._owners.get((kind, name), claim.route) == claim.route:
                    return name
        raise AssertionError  # count() does not end

    def _warn_of_lookalikes(self, claims: list[_Claim]) -> Generator[None]:
        first_claims: dict[str, _Claim] = {}
        for claim in claims:
            yield
            if claim.exposed is None:
                continue
            first = first_claims.setdefault(names.lookalike(claim.source.namespace, claim.item.local), claim)
            if first.route.upstream != claim.route.upstream:
                problem = f"its name looks like {first.preferred_name!r} of {first.route.upstream!r}"
                self._find(claim.item, problem, code=codes.NAME_CONFUSABLE)

    def _find(
        self,
        item: Item,
        problem: str,
        severity: str = "warning",
        winner: Route | None = None,
        code: str = codes.NAME_TAKEN,
    ) -> None:
        route, text = item.route, CodedText(problem, code)
        self._findings.append(
            CatalogFinding(route.upstream, route.kind.unknown, route.name[:200] or "(no name)", text, severity, winner)
        )


def _entry(exposed: str, claim: _Claim) -> CatalogEntry:
    former, kind = claim.former, claim.route.kind
    if former is not None and former.exposed == exposed:
        return former
    wire = claim.wire if former is None else former.wire
    data = claim.data
    if wire[kind.name_key] != exposed or data is None:
        wire, data = {**wire, kind.name_key: exposed}, None
    return made_entry(exposed, claim.route, wire, data, None if claim.repaired else claim.item)


_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def _readable(wire: Json) -> tuple[Json, bytes]:
    """Returns an item that every client can read, and its JSON; `wire` itself if nothing has to be replaced.

    Raises FrameError if it is nested too deep or cannot be encoded.
    """
    data = encode(wire)
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _is_deep(wire):
        raise FrameError(f"nested deeper than {MAX_DEPTH} levels")
    if _LONE_SURROGATE.search(data) is None:
        return wire, data
    # A lone surrogate (a text cut inside a character) makes strict parsers reject the whole message.
    text = json.dumps(wire, ensure_ascii=False).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    repaired: Json = decode(text.encode())
    return (wire, data) if repaired == wire else (repaired, encode(repaired))


_CONTAINERS: Final = frozenset({dict, list})


def _is_deep(item: Json) -> bool:
    level: list[Any] = [item]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for container in level
            for inner in (container.values() if type(container) is dict else container)
            if type(inner) in _CONTAINERS
        ]
    return bool(level)
