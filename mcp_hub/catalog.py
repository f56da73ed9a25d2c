"""The merged, immutable lists of all upstreams, and the one index from exposed names to routes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, Final, Literal

from mcp_hub import names
from mcp_hub.era import SERVER_INFO_KEY
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, defect, for_handshake, plain
from mcp_hub.names import UriPattern
from mcp_hub.wire.frames import FrameError, Raw, decode, encode

PAGE_SIZE: Final = 1000
MAX_OWNERS: Final = 100_000
"""Names remembered of one generation, should an upstream make up new ones for ever."""
MAX_URI: Final = 2048
"""Characters of a URI that is matched against templates; a longer one matches none."""
MAX_TEMPLATES: Final = 256
"""Templates of one upstream that a URI is matched against, the first in its own order."""
MAX_DEPTH: Final = 100
"""Levels in one item; the Python SDK cannot read a message of more than 200, and loses all of it."""

OnConflict = Literal["keep_first", "raise", "override", "rename", "prefix"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """Where an exposed name leads: the upstream, and the name (or URI) it knows itself."""

    upstream: str
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Item:
    """One listed thing on its way into the catalog.

    `local` is its name before the namespace is put in front, which a policy may change (of a template it counts for
    nothing: its URIs have to lead back); `wire` is the item as the upstream listed it and is never mutated.
    """

    route: Route
    local: str
    wire: Any


@dataclass(frozen=True, slots=True)
class Source:
    """What one upstream contributes. `ttl_ms` and `cache_scope` are those of its own modern lists."""

    upstream: str
    namespace: str
    items: tuple[Item, ...]
    ttl_ms: int = 0
    cache_scope: str = "private"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a person should know about one item: it is left out, renamed, or easily confused."""

    upstream: str
    kind: str
    name: str
    problem: str
    severity: str = "warning"
    """`error` where the configuration says that it must not be (`on_conflict: raise`)."""


@dataclass(frozen=True, slots=True)
class _Entry:
    exposed: str
    route: Route
    wire: Json
    data: bytes
    """`wire`, serialised."""


class Catalog:
    """Immutable. Built by `Catalog.build`; equal inputs give equal fingerprints whatever the order of arrival."""

    def __init__(
        self,
        entries: Mapping[Kind, tuple[_Entry, ...]],
        findings: tuple[Finding, ...],
        server_info: Json,
        ttl_ms: int,
        cache_scope: str,
    ) -> None:
        self.findings = findings
        self._entries = entries
        self._index = {kind: {entry.exposed: entry for entry in entries[kind]} for kind in KINDS}
        self._exposed = {entry.route: entry.exposed for kind in KINDS for entry in entries[kind]}
        self._owners = {(kind, entry.exposed): entry.route for kind in KINDS for entry in entries[kind]}
        """What every name of this generation was last given to."""
        self._server_info = server_info
        self._ttl_ms = ttl_ms
        self._cache_scope = cache_scope
        self._pages: dict[tuple[str, bool, int], Raw] = {}

    @classmethod
    def build(
        cls,
        sources: Sequence[Source],
        on_conflict: OnConflict = "keep_first",
        *,
        previous: Catalog | None = None,
        server_info: Json | None = None,
    ) -> Catalog:
        """Merge the sources, which stand in configuration order: that decides who is first where names are equal.

        `previous` is the catalog before this one in the same generation: no name of it, or of those before it, moves
        to another upstream, unless `override` says so.
        """
        remembered = previous._owners if previous is not None else {}
        entries, findings = _Merge(on_conflict, remembered).run(sources)
        contributing = [source for source in sources if source.items]
        ttl = min((source.ttl_ms for source in contributing), default=0)
        public = bool(contributing) and all(source.cache_scope == "public" for source in contributing)
        catalog = cls(entries, findings, server_info or {}, ttl, "public" if public else "private")
        room = max(0, MAX_OWNERS - len(catalog._owners))
        older = [pair for pair in remembered.items() if pair[0] not in catalog._owners]
        catalog._owners = {**dict(older[len(older) - min(room, len(older)) :]), **catalog._owners}
        return catalog

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries.values())

    def __repr__(self) -> str:
        return "Catalog(" + ", ".join(f"{len(self._entries[kind])} {kind.name}" for kind in KINDS) + ")"

    def names(self, kind: Kind) -> tuple[str, ...]:
        """The exposed names of one kind, in the order they are listed."""
        return tuple(entry.exposed for entry in self._entries[kind])

    def entry(self, kind: Kind, exposed: str) -> Json | None:
        """One item as it is listed; not to be mutated."""
        found = self._index[kind].get(exposed)
        return found.wire if found is not None else None

    def resolve(self, kind: Kind, exposed: str) -> Route | None:
        """Where an exposed name leads; a resource's URI may also match a listed template. None: there is no such."""
        entry = self._index[kind].get(exposed)
        if entry is not None:
            return entry.route
        return self._by_template(exposed) if kind is RESOURCES else None

    def _by_template(self, uri: str) -> Route | None:
        if len(uri) > MAX_URI:
            return None
        upstream, original = names.original_uri(uri) or (None, uri)
        for pattern, entry in self._patterns:
            # What the hub has put in front says whose URI it is; without it, only templates listed as they are count.
            meant = entry.exposed == entry.route.name if upstream is None else entry.route.upstream == upstream
            if meant and pattern.fullmatch(original) is not None:
                return Route(entry.route.upstream, RESOURCES, original)
        return None

    @cached_property
    def _patterns(self) -> list[tuple[UriPattern, _Entry]]:
        """Of several templates that match, the one that says most comes first: `{+any}` takes nothing from others."""
        found: list[tuple[UriPattern, _Entry]] = []
        counted: dict[str, int] = {}
        for entry in self._entries[TEMPLATES]:
            pattern = names.template_pattern(entry.route.name)
            number = counted[entry.route.upstream] = counted.get(entry.route.upstream, 0) + 1
            if pattern is not None and number <= MAX_TEMPLATES:
                found.append((pattern, entry))
        return sorted(found, key=lambda one: -one[0].literal)

    def exposed_uri(self, upstream: str, uri: str) -> str:
        """The URI under which clients know a resource of `upstream`, listed or not: itself unless it leads elsewhere.

        A client that asks for what comes out never asks another upstream.
        """
        known = self._exposed.get(Route(upstream, RESOURCES, uri))
        if known is not None:
            return known
        other = self.resolve(RESOURCES, uri)
        foreign = uri.startswith(names.URI_PREFIX) if other is None else other.upstream != upstream
        prefixed = names.expose_uri(upstream, uri)
        return prefixed if foreign or (other is None and self._by_template(prefixed) is not None) else uri

    @cached_property
    def fingerprint(self) -> str:
        """Changes exactly when a list changes; 32 hexadecimal digits."""
        digest = hashlib.sha256()
        for kind in KINDS:
            digest.update(self._fingerprints[kind].encode())
        return digest.hexdigest()[:32]

    @cached_property
    def _fingerprints(self) -> dict[Kind, str]:
        found = {}
        for kind in KINDS:
            digest = hashlib.sha256(kind.name.encode())
            for entry in self._entries[kind]:
                digest.update(encode([entry.exposed, entry.route.upstream, entry.route.name]) + entry.data + b"\n")
            found[kind] = digest.hexdigest()
        return found

    def changed(self, other: Catalog) -> frozenset[Kind]:
        """The kinds whose lists differ between the two."""
        return frozenset(kind for kind in KINDS if self._fingerprints[kind] != other._fingerprints[kind])

    def page(self, kind: Kind, *, modern: bool, cursor: str | None = None) -> Raw:
        """The serialised result object of the kind's list method, at most `PAGE_SIZE` items.

        Raises ProtocolError for a cursor that is not of this catalog.
        """
        offset = self._offset(kind, cursor) if cursor is not None else 0
        key = (kind.name, modern, offset)
        if key not in self._pages:
            self._pages[key] = Raw(encode(self._result(kind, modern, offset)))
        return self._pages[key]

    def _result(self, kind: Kind, modern: bool, offset: int) -> Json:
        entries = self._entries[kind]
        shown = entries[offset : offset + PAGE_SIZE]
        result: Json = {kind.result_key: [Raw(entry.data if modern else _for_handshake(entry)) for entry in shown]}
        if offset + PAGE_SIZE < len(entries):
            result["nextCursor"] = self._cursor(kind, offset + PAGE_SIZE)
        if modern:
            result.update(resultType="complete", ttlMs=self._ttl_ms, cacheScope=self._cache_scope)
            if self._server_info:
                result["_meta"] = {SERVER_INFO_KEY: self._server_info}
        return result

    def _cursor(self, kind: Kind, offset: int) -> str:
        return base64.urlsafe_b64encode(f"{self._fingerprints[kind][:16]}:{offset}".encode()).decode()

    def _offset(self, kind: Kind, cursor: str) -> int:
        try:
            _, _, offset = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(":")
            number = int(offset)
        except (binascii.Error, ValueError):
            number = 0
        # Only what the hub itself gave out: anything else would be one more page to remember.
        known = 0 < number < len(self._entries[kind]) and number % PAGE_SIZE == 0
        if not known or cursor != self._cursor(kind, number):
            raise ProtocolError(INVALID_PARAMS, "Invalid cursor: the list may have changed; start again without one.")
        return number


def _for_handshake(entry: _Entry) -> bytes:
    wire = for_handshake(entry.wire)
    return entry.data if wire is entry.wire else encode(wire)


@dataclass(slots=True)
class _Claim:
    """One sound item and the name it would have if it were alone."""

    order: int
    source: Source
    item: Item
    wire: Json
    data: bytes
    wanted: str

    @property
    def route(self) -> Route:
        return self.item.route

    @property
    def unchanged(self) -> bool:
        """Whether the name is the pair itself, with nothing replaced or cut."""
        prefix = f"{self.source.namespace}{names.SEPARATOR}" if self.source.namespace else ""
        return self.wanted == prefix + self.item.local


class _Merge:
    """One build: all items are seen before any name is given, so the order in which they came decides nothing."""

    def __init__(self, on_conflict: OnConflict, owners: Mapping[tuple[Kind, str], Route]) -> None:
        self._on_conflict = on_conflict
        self._owners = owners
        self._findings: list[Finding] = []

    def run(self, sources: Sequence[Source]) -> tuple[dict[Kind, tuple[_Entry, ...]], tuple[Finding, ...]]:
        claims: dict[Kind, dict[Route, _Claim]] = {kind: {} for kind in KINDS}
        for source in sources:
            for item in source.items:
                if item.route in claims[item.route.kind]:
                    self._find(item, "it is listed twice by the same server; the first one is kept")
                elif (claim := self._claim(source, item)) is not None:
                    claim.order = len(claims[item.route.kind])
                    claims[item.route.kind][item.route] = claim
        entries = {kind: self._settle(kind, list(claims[kind].values())) for kind in KINDS}
        return entries, tuple(self._findings)

    def _claim(self, source: Source, item: Item) -> _Claim | None:
        kind, wire = item.route.kind, item.wire
        problem = defect(kind, wire)
        if problem is None:
            known = plain(kind, wire)
            try:
                wire, data = _readable(known)
            except FrameError as error:
                problem = f"it cannot be passed on: {error}"
            else:
                if wire is not known:
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
        return _Claim(0, source, item, wire, data, wanted)

    def _settle(self, kind: Kind, claims: list[_Claim]) -> tuple[_Entry, ...]:
        groups: dict[str, list[_Claim]] = {}
        for claim in claims:
            groups.setdefault(claim.wanted, []).append(claim)
        given: dict[str, _Claim] = {}
        second: list[tuple[_Claim, str, str]] = []
        for name, group in groups.items():
            winner = self._winner(kind, name, group)
            if winner is not None:
                given[name] = winner
            for claim in group:
                if claim is not winner:
                    second.extend((claim, *loss) for loss in self._loses(kind, name, claim, winner))
        if kind in (TOOLS, PROMPTS):
            self._warn_of_lookalikes(list(given.values()))
        for claim, reason, severity in sorted(second, key=lambda loss: loss[0].order):
            other = self._second_name(kind, claim, given)
            given[other] = claim
            self._find(claim.item, f"{reason}; it is exposed as {other!r}", severity)
        ordered = sorted(given.items(), key=lambda pair: pair[1].order)
        return tuple(_entry(exposed, claim) for exposed, claim in ordered)

    def _winner(self, kind: Kind, name: str, group: list[_Claim]) -> _Claim | None:
        """Who of those that want a name gets it; None if it belongs to an upstream that is not among them."""
        uris = kind in (RESOURCES, TEMPLATES)
        if uris and name.startswith(names.URI_PREFIX):
            return None  # only the hub gives these out, or one upstream could stand in for another
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
            self._find(claim.item, f"{same} {name!r} and takes its place (on_conflict: override); it is left out")
        else:
            self._find(claim.item, f"{same} {name!r} and comes first; it is left out", severity)
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

    def _warn_of_lookalikes(self, claims: list[_Claim]) -> None:
        seen: dict[str, _Claim] = {}
        for claim in sorted(claims, key=lambda one: one.order):
            other = seen.setdefault(names.lookalike(claim.source.namespace, claim.item.local), claim)
            if other.route.upstream != claim.route.upstream:
                problem = f"its name looks like {other.wanted!r} of {other.route.upstream!r}: only case or '_' differ"
                self._find(claim.item, problem)

    def _find(self, item: Item, problem: str, severity: str = "warning") -> None:
        route = item.route
        self._findings.append(Finding(route.upstream, route.kind.unknown, route.name[:200], problem, severity))


def _entry(exposed: str, claim: _Claim) -> _Entry:
    key = claim.route.kind.name_key
    if claim.wire[key] == exposed:
        return _Entry(exposed, claim.route, claim.wire, claim.data)
    wire = {**claim.wire, key: exposed}
    return _Entry(exposed, claim.route, wire, encode(wire))


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
