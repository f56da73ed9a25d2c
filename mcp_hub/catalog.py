"""The merged, immutable lists of all upstreams, and the one index from exposed names to routes."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Final

from mcp_hub import names
from mcp_hub.era import SERVER_INFO_KEY
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.kinds import KINDS, RESOURCES, TEMPLATES, TOOLS, Kind, for_handshake
from mcp_hub.merge import OWN, Entry, Finding, Item, Json, Merge, OnConflict, Route, Source
from mcp_hub.names import UriPattern
from mcp_hub.wire.frames import Raw, encode

__all__ = ["OWN", "Catalog", "Entry", "Finding", "Item", "OnConflict", "Route", "Source"]

PAGE_SIZE: Final = 1000
MAX_OWNERS: Final = 100_000
"""Names remembered of one generation, should an upstream make up new ones for ever."""
MAX_URI: Final = 2048
"""Characters of a URI that is matched against templates; a longer one matches none."""
MAX_PLACES: Final = 200_000
"""Places in a URI that are looked at for the templates of one upstream, some 25 ms; those left over match nothing."""


class Catalog:
    """Immutable. Built by `Catalog.build`; equal inputs give equal fingerprints whatever the order of arrival."""

    def __init__(
        self,
        entries: Mapping[Kind, tuple[Entry, ...]],
        findings: tuple[Finding, ...],
        unlisted: Mapping[str, Route],
        server_info: Json,
        ttl_ms: int,
        cache_scope: str,
        away: frozenset[str] = frozenset(),
    ) -> None:
        self.findings = findings
        self._entries = {
            kind: tuple(entry for entry in entries[kind] if entry.route.upstream not in away) if away else entries[kind]
            for kind in KINDS
        }
        """What is listed. The names of upstreams that are away still lead there, and are answered with the reason."""
        self._unlisted = unlisted
        """Resources that show listed tools, by exposed URI."""
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
        away: frozenset[str] = frozenset(),
        reserved: frozenset[str] = frozenset(),
    ) -> Catalog:
        """Merge the sources, which stand in configuration order: that decides who is first where names are equal.

        `previous` is the catalog before this one in the same generation: no name of it, or of those before it, moves
        to another upstream, unless `override` says so. What is of an upstream that is `away` is not listed. Names of
        tools that are `reserved` are the hub's own.
        """
        remembered = previous._owners if previous is not None else {}
        entries, findings, unlisted = Merge(on_conflict, remembered, reserved).run(sources)
        contributing = [source for source in sources if source.items]
        ttl = min((source.ttl_ms for source in contributing), default=0)
        public = bool(contributing) and all(source.cache_scope == "public" for source in contributing)
        catalog = cls(entries, findings, unlisted, server_info or {}, ttl, "public" if public else "private", away)
        room = max(0, MAX_OWNERS - len(catalog._owners))
        older = [pair for pair in remembered.items() if pair[0] not in catalog._owners]
        catalog._owners = {**dict(older[len(older) - min(room, len(older)) :]), **catalog._owners}
        return catalog

    def view(self, listed: Callable[[Route], bool], gone: Callable[[Route], bool], own: Sequence[Entry]) -> Catalog:
        """The same names with only those tools listed that are `listed`, and the hub's `own` tools in front.

        A name that is not listed still leads to its tool, one that is `gone` leads nowhere. Names never depend on
        what is listed.
        """
        made = copy(self)
        made._pages, made._cache_scope = {}, "private"
        there = (entry for entry in self._entries[TOOLS] if listed(entry.route) and not gone(entry.route))
        made._entries = {**self._entries, TOOLS: (*own, *there)}
        known = {name: entry for name, entry in self._index[TOOLS].items() if not gone(entry.route)}
        made._index = {**self._index, TOOLS: {**known, **{entry.exposed: entry for entry in own}}}
        made.__dict__.pop("fingerprint", None)
        made.__dict__["_fingerprints"] = {**self._fingerprints, TOOLS: made._fingerprint(TOOLS)}
        return made

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

    def exposed(self, route: Route) -> str | None:
        """The name under which a route is known; None if it is not listed."""
        return self._exposed.get(route)

    def routes(self, kind: Kind) -> Iterator[Route]:
        """Where all names of one kind lead, those that are not listed included."""
        return (entry.route for entry in self._index[kind].values())

    def resolve(self, kind: Kind, exposed: str) -> Route | None:
        """Where an exposed name leads; a resource's URI may also match a listed template. None: there is no such."""
        entry = self._index[kind].get(exposed)
        if entry is not None:
            return entry.route
        if kind is not RESOURCES:
            return None
        return self._unlisted.get(exposed) or self._by_template(exposed)

    def _by_template(self, uri: str) -> Route | None:
        if len(uri) > MAX_URI:
            return None
        upstream, original = names.original_uri(uri) or (None, uri)
        whole = names.readable(original)
        short = names.without_tail(whole)
        looked_at: dict[str, int] = {}
        found: tuple[UriPattern, Entry] | None = None
        for pattern, entry in self._patterns:
            if found is not None and pattern.literal < found[0].literal:
                break
            # What the hub has put in front says whose URI it is; without it, only templates listed as they are count.
            meant = entry.exposed == entry.route.name if upstream is None else entry.route.upstream == upstream
            if not meant or not (cost := pattern.cost(whole)):
                continue
            spent = looked_at[entry.route.upstream] = looked_at.get(entry.route.upstream, 0) + cost
            if spent > MAX_PLACES:
                continue
            if pattern.fullmatch(whole) is not None:
                found = (pattern, entry)
                break
            # Many servers take a query or a fragment that their template does not have.
            if found is None and short != whole and pattern.fullmatch(short) is not None:
                found = (pattern, entry)
        return Route(found[1].route.upstream, RESOURCES, original) if found is not None else None

    @cached_property
    def _patterns(self) -> list[tuple[UriPattern, Entry]]:
        """Of several templates that match, the one that says most comes first: `{+any}` takes nothing from others."""
        found = []
        for entry in self._index[TEMPLATES].values():
            pattern = names.template_pattern(entry.route.name)
            if pattern is not None:
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
    def upstreams(self) -> frozenset[str]:
        """The upstreams of which something is exposed."""
        return frozenset(route.upstream for route in self._exposed)

    @cached_property
    def fingerprint(self) -> str:
        """Changes exactly when a list changes; 32 hexadecimal digits."""
        digest = hashlib.sha256()
        for kind in KINDS:
            digest.update(self._fingerprints[kind].encode())
        return digest.hexdigest()[:32]

    @cached_property
    def _fingerprints(self) -> dict[Kind, str]:
        return {kind: self._fingerprint(kind) for kind in KINDS}

    def _fingerprint(self, kind: Kind) -> str:
        digest = hashlib.sha256(kind.name.encode())
        for entry in self._entries[kind]:
            digest.update(encode([entry.exposed, entry.route.upstream, entry.route.name]) + entry.data + b"\n")
        return digest.hexdigest()

    def changed(self, other: Catalog) -> frozenset[Kind]:
        """The kinds whose lists differ between the two."""
        return frozenset(kind for kind in KINDS if self._fingerprints[kind] != other._fingerprints[kind])

    def page(self, kind: Kind, *, modern: bool, cursor: str | None = None, meta: Json | None = None) -> Raw:
        """The serialised result object of the kind's list method, at most `PAGE_SIZE` items.

        `meta` is put into its `_meta`, for one client; pages without it are made once for all clients.

        Raises ProtocolError for a cursor that is not of this catalog.
        """
        offset = self._offset(kind, cursor) if cursor is not None else 0
        if meta is not None:
            result = self._result(kind, modern, offset)
            return Raw(encode({**result, "_meta": {**result.get("_meta", {}), **meta}}))
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


def _for_handshake(entry: Entry) -> bytes:
    wire = for_handshake(entry.wire)
    return entry.data if wire is entry.wire else encode(wire)
