"""Many lists made one: who gets which name, decided only after everything that is listed has been seen."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Literal, NamedTuple

import msgspec

from mcp_hub.catalog import names, resource_uris
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.protocol.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, defect, for_handshake, plain

MAX_DEPTH: Final = 100
"""Levels in one item; the Python SDK cannot read a message of more than 200, and loses all of it."""

OWN: Final = "(mcp-hub)"
"""The upstream of a route that leads to the hub itself; a server may well be called `mcp-hub`."""

OnConflict = Literal["keep_first", "raise", "override", "rename", "prefix"]
Json = dict[str, Any]


class Route(msgspec.Struct, frozen=True):
    """Where an exposed name leads: the upstream, and the name (or URI) it knows itself."""

    upstream: str
    kind: Kind
    name: str


class Item(msgspec.Struct, frozen=True):
    """One listed thing on its way into the catalog.

    `local` is its name before the namespace is put in front, which a policy may change (of a template it counts for
    nothing: its URIs have to lead back); `wire` is the item as the upstream listed it and is never mutated.
    """

    route: Route
    local: str
    wire: Any


class Source(msgspec.Struct, frozen=True):
    """What one upstream contributes. `ttl_ms` and `cache_scope` are those of its own modern lists."""

    upstream: str
    namespace: str
    items: tuple[Item, ...]
    ttl_ms: int = 0
    cache_scope: str = "private"


class Finding(msgspec.Struct, frozen=True):
    """Something a person should know about one item: it is left out, renamed, or easily confused."""

    upstream: str
    kind: str
    name: str
    problem: str
    severity: str = "warning"
    """`error` where the configuration says that it must not be (`on_conflict: raise`)."""
    kept: Route | None = None
    """What has the name, where the item is left out because of it."""


class Entry(msgspec.Struct, frozen=True):
    """One item under the name clients know it by. `wire` is not to be mutated."""

    exposed: str
    route: Route
    wire: Json
    data: bytes
    """`wire`, serialised."""
    handshake: bytes | None = None
    """The same for clients of the handshake era, where it is not the same."""
    item: Item | None = None
    """What it was made of, if nothing but its name was changed."""

    @property
    def for_handshake(self) -> bytes:
        """It as clients of the handshake era accept it, serialised."""
        return self.data if self.handshake is None else self.handshake


class _Claim(msgspec.Struct):
    """One sound item and the name it would have if it were alone."""

    order: int
    source: Source
    item: Item
    wire: Json
    data: bytes | None
    """`wire`, serialised; None where the former entry is known to be sound."""
    wanted: str
    former: Entry | None
    mended: bool
    """Whether its text was changed, which is found, and told of, at every build."""

    @property
    def route(self) -> Route:
        return self.item.route

    @property
    def unchanged(self) -> bool:
        """Whether the name is the pair itself, with nothing replaced or cut."""
        prefix = f"{self.source.namespace}{names.SEPARATOR}" if self.source.namespace else ""
        return self.wanted == prefix + self.item.local


class Merged(NamedTuple):
    """What a build has come to."""

    entries: dict[Kind, tuple[Entry, ...]]
    findings: tuple[Finding, ...]
    unlisted: dict[str, Route]
    """Resources that show tools and are in no list, by the URI clients know them by."""


class Merge:
    """One build: all items are seen before any name is given, so the order in which they came decides nothing."""

    def __init__(
        self,
        on_conflict: OnConflict,
        owners: Mapping[tuple[Kind, str], Route],
        reserved: frozenset[str] = frozenset(),
        former: Mapping[Kind, Mapping[str, Entry]] | None = None,
        names_of: Mapping[Route, str] | None = None,
    ) -> None:
        self._on_conflict = on_conflict
        self._former, self._names_of = former or {}, names_of or {}
        """The entries of the catalog before by kind and name, and its names by route: what has not changed is used
        again."""
        self._reserved = reserved
        """Names of tools of the hub's own."""
        self._owners = owners
        self._findings: list[Finding] = []

    def run(self, sources: Sequence[Source]) -> Generator[None, None, Merged]:
        """All items under their names, in steps."""
        claims: dict[Kind, dict[Route, _Claim]] = {kind: {} for kind in KINDS}
        for source in sources:
            for item in source.items:
                yield
                if item.route in claims[item.route.kind]:
                    self._find(item, "it is listed twice by the same server; the first one is kept", kept=item.route)
                elif (claim := self._claim(source, item)) is not None:
                    claim.order = len(claims[item.route.kind])
                    claims[item.route.kind][item.route] = claim
        entries: dict[Kind, tuple[Entry, ...]] = {}
        for kind in KINDS:
            entries[kind] = yield from self._settle(kind, list(claims[kind].values()))
        shown = _Shown()
        for entry in entries[RESOURCES]:
            yield
            shown.take(entry)
        tools: list[Entry] = []
        for entry in entries[TOOLS]:
            yield
            tools.append(shown.tool(entry))
        entries[TOOLS] = tuple(tools)
        return Merged(entries, tuple(self._findings), shown.unlisted)

    def _claim(self, source: Source, item: Item) -> _Claim | None:
        kind, wire = item.route.kind, item.wire
        former = self._former_of(item)
        data: bytes | None = None
        mended = False
        problem = defect(kind, wire) if former is None else None
        if former is None and problem is None:
            known = plain(kind, wire)
            try:
                wire, data = _readable(known)
            except FrameError as error:
                problem = f"it cannot be passed on: {error}"
            else:
                mended = wire is not known
                if mended:
                    self._find(item, "parts of its text are no characters; they are shown as U+FFFD")
        if problem is not None:
            self._find(item, f"it is left out: {problem}")
            return None
        if kind is RESOURCES:
            wanted = item.local
        elif kind is TEMPLATES:
            wanted = item.route.name
        else:
            wanted = names.expose(source.namespace, item.local)
        return _Claim(0, source, item, wire, data, wanted, former, mended)

    def _former_of(self, item: Item) -> Entry | None:
        name = self._names_of.get(item.route)
        former = self._former[item.route.kind].get(name) if name is not None else None
        return former if former is not None and former.item is item else None

    def _settle(self, kind: Kind, claims: list[_Claim]) -> Generator[None, None, tuple[Entry, ...]]:
        groups: dict[str, list[_Claim]] = {}
        for claim in claims:
            yield
            groups.setdefault(claim.wanted, []).append(claim)
        given: dict[str, _Claim] = {}
        second: list[tuple[_Claim, str, str]] = []
        for name, group in groups.items():
            yield
            winner = self._winner(kind, name, group)
            if winner is not None:
                given[name] = winner
            for claim in group:
                if claim is not winner:
                    second.extend((claim, *loss) for loss in self._loses(kind, name, claim, winner))
        if kind in (TOOLS, PROMPTS):
            yield from self._warn_of_lookalikes(list(given.values()))
        for claim, reason, severity in sorted(second, key=lambda loss: loss[0].order):
            yield
            other = self._second_name(kind, claim, given)
            given[other] = claim
            self._find(claim.item, f"{reason}; it is exposed as {other!r}", severity)
        entries: list[Entry] = []
        for exposed, claim in sorted(given.items(), key=lambda pair: pair[1].order):
            yield
            entries.append(_entry(exposed, claim))
        return tuple(entries)

    def _winner(self, kind: Kind, name: str, group: list[_Claim]) -> _Claim | None:
        """Who of those that want a name gets it; None if it belongs to an upstream that is not among them."""
        uris = kind in (RESOURCES, TEMPLATES)
        if uris and name.startswith(names.URI_PREFIX):
            return None  # only the hub gives these out, or one upstream could stand in for another
        if kind is TOOLS and name in self._reserved:
            return None
        override = self._on_conflict == "override" and not uris
        owner = self._owners.get((kind, name))
        upstream = (group[-1] if override else group[0]).route.upstream
        if owner is not None and not override:
            upstream = owner.upstream
        candidates = [claim for claim in group if claim.route.upstream == upstream]
        # Names of one upstream may become equal only by what the hub did to them.
        held = [claim for claim in candidates if claim.route == owner]
        unchanged = [claim for claim in candidates if claim.unchanged]
        return next(iter(held + unchanged + candidates), None)

    def _loses(self, kind: Kind, name: str, claim: _Claim, winner: _Claim | None) -> list[tuple[str, str]]:
        """Why a claim gets a second name, and how bad that is; empty where the configuration says it is left out."""
        uris = kind in (RESOURCES, TEMPLATES)
        severity = "error" if self._on_conflict == "raise" and not uris else "warning"
        if kind is TOOLS and name in self._reserved:
            return [(f"{name!r} is a tool of the hub's own", "warning")]
        owner = winner.route if winner is not None else self._owners.get((kind, name))
        if owner is None:
            return [("URIs that begin so are the hub's own", "warning")]
        if owner.upstream == claim.route.upstream:
            return [(f"{owner.name[:200]!r} of the same server is exposed as {name!r}", "warning")]
        if winner is None or (winner.order > claim.order and self._on_conflict != "override"):
            return [(f"{owner.upstream!r} is served under this name already", severity)]
        same = f"{owner.upstream!r} has the same name"
        if uris or self._on_conflict in ("rename", "prefix"):
            return [(same, severity)]
        if self._on_conflict == "override":
            self._find(
                claim.item, f"{same} {name!r} and takes its place (on_conflict: override); it is left out", kept=owner
            )
        else:
            self._find(claim.item, f"{same} {name!r} and comes first; it is left out", severity, kept=owner)
        return []

    def _second_name(self, kind: Kind, claim: _Claim, given: Mapping[str, _Claim]) -> str:
        upstream = claim.route.upstream
        if kind in (RESOURCES, TEMPLATES):
            return names.expose_uri(upstream, claim.route.name)
        own = claim.item.local
        wishes = [names.expose(upstream, own)] if self._on_conflict == "prefix" else []
        for attempt in count():
            for name in (*wishes, names.renamed(upstream, own, attempt)):
                if name not in given and self._owners.get((kind, name), claim.route) == claim.route:
                    return name
        raise AssertionError  # count() does not end

    def _warn_of_lookalikes(self, claims: list[_Claim]) -> Generator[None]:
        seen: dict[str, _Claim] = {}
        for claim in sorted(claims, key=lambda one: one.order):
            yield
            other = seen.setdefault(names.lookalike(claim.source.namespace, claim.item.local), claim)
            if other.route.upstream != claim.route.upstream:
                problem = f"its name looks like {other.wanted!r} of {other.route.upstream!r}: only case or '_' differ"
                self._find(claim.item, problem)

    def _find(self, item: Item, problem: str, severity: str = "warning", kept: Route | None = None) -> None:
        route = item.route
        self._findings.append(Finding(route.upstream, route.kind.unknown, route.name[:200], problem, severity, kept))


def _entry(exposed: str, claim: _Claim) -> Entry:
    former, kind = claim.former, claim.route.kind
    if former is not None and former.exposed == exposed:
        return former
    wire = claim.wire if former is None else former.wire
    data = claim.data
    if wire[kind.name_key] != exposed or data is None:
        wire = {**wire, kind.name_key: exposed}
        data = encode(wire)
    return _made(exposed, claim.item, wire, data, same=not claim.mended)


def _made(exposed: str, item: Item, wire: Json, data: bytes, *, same: bool) -> Entry:
    handshake = for_handshake(wire) if item.route.kind is TOOLS else wire
    other = encode(handshake) if handshake is not wire else None
    return Entry(exposed, item.route, wire, data, other, item if same else None)


class _Shown:
    """The resources that show tools: listed or not, the tool names the URI by which its client gets there."""

    def __init__(self) -> None:
        self._exposed: dict[Route, str] = {}
        self._taken: dict[str, Route] = {}
        self.unlisted: dict[str, Route] = {}

    def take(self, resource: Entry) -> None:
        """A resource that is listed."""
        self._exposed[resource.route] = resource.exposed
        self._taken[resource.exposed] = resource.route

    def tool(self, entry: Entry) -> Entry:
        """The tool with the URI by which its client gets there."""
        wire = resource_uris.in_meta(entry.wire, partial(self._uri, entry.route.upstream))
        if wire is entry.wire or entry.item is None:
            return entry
        return _made(entry.exposed, entry.item, wire, encode(wire), same=False)

    def _uri(self, upstream: str, uri: str) -> str:
        route = Route(upstream, RESOURCES, uri)
        if route in self._exposed:
            return self._exposed[route]
        foreign = self._taken.get(uri, self.unlisted.get(uri, route)) != route or uri.startswith(names.URI_PREFIX)
        exposed = names.expose_uri(upstream, uri) if foreign else uri
        self.unlisted[exposed] = route
        return exposed


_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def _readable(wire: Json) -> tuple[Json, bytes]:
    """An item that every client can read, and its JSON; the item itself where it is one. Raises FrameError."""
    data = encode(wire)
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _is_deep(wire):
        raise FrameError(f"nested deeper than {MAX_DEPTH} levels")
    if _LONE_SURROGATE.search(data) is None:
        return wire, data
    # Half a character, as left by cutting a text in the middle: strict parsers lose the whole message to it.
    text = json.dumps(wire, ensure_ascii=False).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    mended: Json = decode(text.encode())
    return (wire, data) if mended == wire else (mended, encode(mended))


def _is_deep(item: Json) -> bool:
    level: list[Any] = [item]
    for _ in range(MAX_DEPTH):
        members = (inner for one in level for inner in (one.values() if isinstance(one, dict) else one))
        level = [inner for inner in members if isinstance(inner, dict | list)]
    return bool(level)
