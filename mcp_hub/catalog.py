"""The merged, immutable lists of all upstreams, and the one index from exposed names to routes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from mcp_hub import names
from mcp_hub.era import SERVER_INFO_KEY
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, defect
from mcp_hub.wire.frames import Raw, encode

PAGE_SIZE: Final = 1000
MAX_OWNERS: Final = 100_000
MAX_URI: Final = 8192
"""Characters of a URI that is matched against templates; a longer one matches none."""

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

    `local` is its name before the namespace is put in front, which a policy may change; `wire` is the item as the
    upstream listed it and is never mutated.
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
        self.owners: dict[tuple[Kind, str], str] = {
            (kind, entry.exposed): entry.route.upstream for kind in KINDS for entry in entries[kind]
        }
        """The upstream every name was ever given to in this generation."""
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

        `previous` is the catalog before this one: a name it gave to an upstream that still has it stays there.
        """
        merge = _Merge(on_conflict, previous)
        for source in sources:
            merge.add(source)
        contributing = [source for source in sources if source.items]
        ttl = min((source.ttl_ms for source in contributing), default=0)
        public = bool(contributing) and all(source.cache_scope == "public" for source in contributing)
        entries, findings = merge.finish()
        catalog = cls(entries, findings, server_info or {}, ttl, "public" if public else "private")
        if previous is not None:
            catalog.owners = _newest({**previous.owners, **catalog.owners})
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
        for pattern, entry in self._patterns:
            if pattern.fullmatch(uri):
                prefixed = names.original_uri(uri) if entry.exposed != entry.route.name else None
                return Route(entry.route.upstream, RESOURCES, prefixed[1] if prefixed else uri)
        return None

    @cached_property
    def _patterns(self) -> list[tuple[Any, _Entry]]:
        found = ((names.template_pattern(entry.exposed), entry) for entry in self._entries[TEMPLATES])
        return [(pattern, entry) for pattern, entry in found if pattern is not None]

    def exposed_uri(self, upstream: str, uri: str) -> str:
        """The URI under which clients know a resource of `upstream`; itself unless it had to be told apart."""
        return self._exposed.get(Route(upstream, RESOURCES, uri), uri)

    @cached_property
    def fingerprint(self) -> str:
        """Changes exactly when a list changes; 32 hexadecimal digits."""
        digest = hashlib.sha256()
        for kind in KINDS:
            digest.update(self._fingerprints[kind].encode())
        return digest.hexdigest()[:32]

    @cached_property
    def _fingerprints(self) -> dict[Kind, str]:
        return {
            kind: hashlib.sha256(
                encode([[e.exposed, e.route.upstream, e.route.name, e.wire] for e in self._entries[kind]])
            ).hexdigest()
            for kind in KINDS
        }

    def changed(self, other: Catalog) -> frozenset[Kind]:
        """The kinds whose lists differ between the two."""
        return frozenset(kind for kind in KINDS if self._fingerprints[kind] != other._fingerprints[kind])

    def page(self, kind: Kind, *, modern: bool, cursor: str | None = None) -> Raw:
        """The serialised result object of the kind's list method, at most `PAGE_SIZE` items.

        Raises ProtocolError for a cursor that is not of this catalog.
        """
        offset = self._offset(cursor) if cursor is not None else 0
        key = (kind.name, modern, offset)
        if key not in self._pages:
            self._pages[key] = Raw(encode(self._result(kind, modern, offset)))
        return self._pages[key]

    def _result(self, kind: Kind, modern: bool, offset: int) -> Json:
        entries = self._entries[kind]
        shown = entries[offset : offset + PAGE_SIZE]
        result: Json = {kind.result_key: [entry.wire if modern else _for_handshake(entry.wire) for entry in shown]}
        if offset + PAGE_SIZE < len(entries):
            result["nextCursor"] = self._cursor(offset + PAGE_SIZE)
        if modern:
            result.update(resultType="complete", ttlMs=self._ttl_ms, cacheScope=self._cache_scope)
            if self._server_info:
                result["_meta"] = {SERVER_INFO_KEY: self._server_info}
        return result

    def _cursor(self, offset: int) -> str:
        return base64.urlsafe_b64encode(f"{self.fingerprint[:16]}:{offset}".encode()).decode()

    def _offset(self, cursor: str) -> int:
        try:
            fingerprint, _, offset = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(":")
            number = int(offset)
        except (binascii.Error, ValueError):
            fingerprint, number = "", 0
        if fingerprint != self.fingerprint[:16] or number <= 0 or number % PAGE_SIZE:
            raise ProtocolError(INVALID_PARAMS, "Invalid cursor: the list may have changed; start again without one.")
        return number


def _newest(owners: dict[tuple[Kind, str], str]) -> dict[tuple[Kind, str], str]:
    """Bounded, should an upstream make up new names for ever."""
    return owners if len(owners) <= MAX_OWNERS else dict(list(owners.items())[-MAX_OWNERS:])


def _for_handshake(wire: Json) -> Json:
    """Handshake revisions allow output schemas of objects only; another one would cost the client its whole list."""
    schema = wire.get("outputSchema")
    if schema is None or (isinstance(schema, dict) and schema.get("type") == "object"):
        return wire
    return {key: value for key, value in wire.items() if key != "outputSchema"}


class _Merge:
    """One build: takes sources in order, decides about equal names."""

    def __init__(self, on_conflict: OnConflict, previous: Catalog | None) -> None:
        self._on_conflict = on_conflict
        self._taken: dict[Kind, dict[str, _Entry]] = {kind: {} for kind in KINDS}
        self._findings: list[Finding] = []
        self._owners: dict[tuple[Kind, str], str] = {} if previous is None else previous.owners
        self._known: dict[Kind, set[Route]] = {kind: set() for kind in KINDS}

    def add(self, source: Source) -> None:
        for item in source.items:
            kind = item.route.kind
            problem = defect(kind, item.wire)
            if problem is not None:
                self._find(item, f"it is left out: {problem}")
            elif item.route in self._known[kind]:
                self._find(item, "it is listed twice by the same server; the first one is kept")
            else:
                self._known[kind].add(item.route)
                self._place(source, item)

    def _place(self, source: Source, item: Item) -> None:
        kind = item.route.kind
        exposed = item.local if kind in (RESOURCES, TEMPLATES) else names.expose(source.namespace, item.local)
        taken = self._taken[kind]
        if exposed in taken:
            self._conflict(source, item, exposed)
            return
        owner = self._owners.get((kind, exposed), item.route.upstream)
        if owner != item.route.upstream and self._on_conflict != "override":
            # Within a generation a name never moves to another upstream: who was served under it keeps it, also
            # while it is away.
            exposed = self._other_name(source, item)
            self._find(item, f"{owner!r} is served under this name already; it is exposed as {exposed!r}")
        taken[exposed] = _entry(exposed, item)

    def _conflict(self, source: Source, item: Item, exposed: str) -> None:
        kind, owner = item.route.kind, self._taken[item.route.kind][exposed].route.upstream
        if kind in (RESOURCES, TEMPLATES) or self._on_conflict in ("rename", "prefix"):
            other = self._other_name(source, item)
            self._taken[kind][other] = _entry(other, item)
            self._find(item, f"{owner!r} has the same name; it is exposed as {other!r}")
        elif self._on_conflict == "override":
            self._taken[kind][exposed] = _entry(exposed, item)
            self._find(item, f"it takes the place of the one of {owner!r} (on_conflict: override)")
        else:
            severity = "error" if self._on_conflict == "raise" else "warning"
            self._find(item, f"{owner!r} has the same name {exposed!r} and comes first; it is left out", severity)

    def _other_name(self, source: Source, item: Item) -> str:
        kind, taken = item.route.kind, self._taken[item.route.kind]
        if kind in (RESOURCES, TEMPLATES):
            return names.expose_uri(source.upstream, item.route.name)
        if self._on_conflict == "prefix":
            prefixed = names.expose(source.upstream, item.local)
            if prefixed not in taken:
                return prefixed
        attempt = 0
        while (other := names.renamed(source.upstream, item.local, attempt)) in taken:
            attempt += 1
        return other

    def _find(self, item: Item, problem: str, severity: str = "warning") -> None:
        route = item.route
        self._findings.append(Finding(route.upstream, route.kind.unknown, route.name[:200], problem, severity))

    def finish(self) -> tuple[dict[Kind, tuple[_Entry, ...]], tuple[Finding, ...]]:
        entries = {kind: tuple(self._taken[kind].values()) for kind in KINDS}
        for kind in (TOOLS, PROMPTS):
            self._confusable(entries[kind])
        return entries, tuple(self._findings)

    def _confusable(self, entries: tuple[_Entry, ...]) -> None:
        seen: dict[str, _Entry] = {}
        for entry in entries:
            folded = unicodedata.normalize("NFKC", entry.exposed).casefold()
            other = seen.setdefault(folded, entry)
            if other is not entry and other.route.upstream != entry.route.upstream:
                route = entry.route
                problem = f"its name differs from {other.exposed!r} of {other.route.upstream!r} only in case"
                self._findings.append(Finding(route.upstream, route.kind.unknown, route.name[:200], problem))


def _entry(exposed: str, item: Item) -> _Entry:
    key = item.route.kind.name_key
    wire = item.wire if item.wire[key] == exposed else {**item.wire, key: exposed}
    return _Entry(exposed, item.route, wire)
