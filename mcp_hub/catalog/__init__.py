"""The catalog: the merged, immutable lists of all upstreams, and the index from exposed names to routes."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Final

from mcp_hub import codes
from mcp_hub.catalog import names
from mcp_hub.catalog.entries import (
    CALL,
    OWN,
    READ,
    RUN,
    SEARCH,
    CatalogEntry,
    CatalogFinding,
    CatalogSource,
    Item,
    Json,
    OnConflict,
    Route,
)
from mcp_hub.catalog.merge import Merge
from mcp_hub.catalog.names import UriPattern
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.protocol.apps import UI_SCHEME, app_of, may_call
from mcp_hub.protocol.era import SERVER_INFO_KEY
from mcp_hub.protocol.frames import Raw, encode, finished
from mcp_hub.protocol.kinds import KINDS, RESOURCES, SKILLS, TEMPLATES, TOOLS, Kind

__all__ = [
    "CALL", "OWN", "READ", "RUN", "SEARCH",
    "Catalog", "CatalogEntry", "CatalogFinding", "CatalogSource", "Item", "OnConflict", "Route",
]  # fmt: skip

PAGE_SIZE: Final = 1000
MAX_OWNERS: Final = 100_000
"""The most names whose owner one generation remembers, in case an upstream keeps inventing new ones."""
MAX_MATCHED_URI: Final = 2048
"""Characters of a URI that is matched against templates; a longer one matches none."""
MAX_PLACES: Final = 40_000
"""The most steps of matching one URI against the templates of all upstreams; about 3 ms. Each upstream has an equal
share; templates beyond it match nothing."""
LEAST_PLACES: Final = 4_000
"""The smallest share of one upstream in these steps, however many upstreams there are."""
PAGE_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of one page; a larger item has a page to itself."""

SHOWN_LEFT_OUT: Final = 20
"""Items of one upstream that the status names; `check` names them all."""


class Catalog:
    """One merged view of all lists. It is immutable; equal inputs give equal fingerprints in any order of arrival."""

    def __init__(self, findings: tuple[CatalogFinding, ...], unlisted: Mapping[str, Route], server_info: Json) -> None:
        self.findings = findings
        self._entries: dict[Kind, tuple[CatalogEntry, ...]] = {}
        """The listed items. Those of unavailable upstreams are not listed, but still resolve, so that a call of one
        fails with the reason."""
        self._unlisted = unlisted
        """Unlisted resources that are the UI of listed tools or files of listed skills, by exposed URI."""
        self._index: dict[Kind, dict[str, CatalogEntry]] = {kind: {} for kind in KINDS}
        self._app_tools: dict[str, list[CatalogEntry]] = {}
        """The tools that apps may call, of servers that have apps, by the servers' own names."""
        self.app_routes: frozenset[Route] = frozenset()
        """The tools and resources that open an app, if several servers have a name in `_app_tools`; else none."""
        self._normal_forms: dict[str, CatalogEntry] = {}
        """Resources by the normal form of their exposed URI, where that is another one."""
        self._exposed: dict[Route, str] = {}
        self._owners: dict[tuple[Kind, str], Route] = {}
        """The route that each name of this generation was last given to."""
        self.upstreams: frozenset[str] = frozenset()
        """The ids of the upstreams that have an item here."""
        self.about: Callable[[str], str] = _no_description
        """Returns the description that an upstream gives of itself; "" if it has none or it must not be passed on."""
        self._patterns: list[tuple[UriPattern, CatalogEntry]] = []
        """Templates, those with the most literal characters first: `{+any}` gets only what no other one matches."""
        self._templated = 0
        """The number of upstreams that have templates."""
        self._left_out: dict[str, list[str]] | None = None
        """By upstream; None until it is asked for."""
        self._fingerprints: dict[Kind, str] = {}
        self._server_info = server_info
        self._ttl_ms = 0
        self._cache_scope = "private"
        self._pages: dict[tuple[str, bool, int], Raw] = {}
        self._starts: dict[Kind, tuple[int, ...]] = {}
        """The offsets at which the later pages of each list begin."""
        self.tool_count = self.tool_bytes = 0
        """How many tools are listed, and the bytes of their definitions."""
        self.tools_by_server: Counter[str] = Counter()
        """How many tools of each server are listed; the hub's own are under OWN."""
        self.inactive: frozenset[str] = frozenset()
        """The names of tools that only a view hides, as none of their groups is active."""
        self.listings: dict[Any, Catalog | None] = {}
        """A cache of what some clients are listed in place of this catalog, by what they need; None: the same."""

    def left_out(self, upstream: str) -> list[str]:
        """Returns which items of an upstream have a problem in themselves, and which; the first SHOWN_LEFT_OUT ones."""
        if self._left_out is None:
            self._left_out = {}
            for finding in self.findings:
                lines = self._left_out.setdefault(finding.upstream, [])
                if finding.problem.code == codes.ITEM_LEFT_OUT and len(lines) < SHOWN_LEFT_OUT:
                    lines.append(f"the {finding.kind} {finding.name}: {finding.problem}")
        return self._left_out.get(upstream, [])

    @classmethod
    def build(cls, sources: Sequence[CatalogSource], on_conflict: OnConflict = "keep_first", **options: Any) -> Catalog:
        """Builds a catalog in one go; the arguments are those of `building`."""
        return finished(cls.building(sources, on_conflict, **options))

    @classmethod
    def building(
        cls,
        sources: Sequence[CatalogSource],
        on_conflict: OnConflict = "keep_first",
        *,
        previous: Catalog | None = None,
        like: Catalog | None = None,
        server_info: Json | None = None,
        away: frozenset[str] = frozenset(),
        reserved: frozenset[str] = frozenset(),
    ) -> Generator[None, None, Catalog]:
        """Merges the sources and returns the catalog; yields between small steps.

        Args:
            sources: in configuration order, which decides whose item comes first where names are equal.
            previous: the catalog before this one in the same generation. Names that it, or one before it, has given
                out do not move to another upstream, unless `on_conflict` is `override`.
            like: a catalog whose unchanged entries are reused; the result is the same without it.
            away: upstreams whose items are not listed.
            reserved: names of the hub's own tools.
        """
        owners = previous._owners if previous is not None else {}
        reusable = (like._index, like._exposed) if like is not None else (None, None)
        entries, findings, unlisted = yield from Merge(on_conflict, owners, reserved, *reusable).run(sources)
        listing_sources = [source for source in sources if source.items]
        ttl = min((source.ttl_ms for source in listing_sources), default=0)
        is_public = bool(listing_sources) and all(source.cache_scope == "public" for source in listing_sources)
        catalog = cls(findings, unlisted, server_info or {})
        catalog._ttl_ms, catalog._cache_scope = ttl, "public" if is_public else "private"
        yield from catalog._fill(entries, away)
        yield from catalog._remember(owners)
        return catalog

    def _fill(self, entries: Mapping[Kind, tuple[CatalogEntry, ...]], away: frozenset[str]) -> Generator[None]:
        patterns: list[tuple[UriPattern, CatalogEntry]] = []
        upstreams: set[str] = set()
        for kind in KINDS:
            listed: list[CatalogEntry] = []
            for entry in entries[kind]:
                yield
                self._index[kind][entry.exposed] = entry
                self._exposed[entry.route] = entry.exposed
                upstreams.add(entry.route.upstream)
                if entry.route.upstream not in away:
                    listed.append(entry)
                if kind is RESOURCES and (normal := names.normal_uri(entry.exposed)) != entry.exposed:
                    self._normal_forms.setdefault(normal, entry)
                pattern = names.template_pattern(entry.route.name) if kind is TEMPLATES else None
                if pattern is not None:
                    patterns.append((pattern, entry))
            self._entries[kind] = tuple(listed)
            yield from self._survey(kind)
        yield from self._find_app_tools()
        self.upstreams = frozenset(upstreams)
        self._patterns = sorted(patterns, key=lambda pair: -pair[0].literal)
        self._templated = len({entry.route.upstream for _, entry in patterns})

    def _find_app_tools(self) -> Generator[None]:
        opening: set[Route] = set()
        for entry in self._index[TOOLS].values():
            yield
            if (uri := app_of(entry.wire)) is not None:
                app = self._index[RESOURCES].get(uri)
                opening |= {entry.route, app.route if app is not None else self._unlisted.get(uri, entry.route)}
        for kind in (RESOURCES, TEMPLATES):
            for entry in self._index[kind].values():
                yield
                route = entry.route
                if route.name.startswith(UI_SCHEME):
                    opening.add(route)
        servers = {route.upstream for route in opening}
        for entry in self._index[TOOLS].values() if servers else ():
            yield
            if entry.route.upstream in servers and may_call("app", entry.wire):
                self._app_tools.setdefault(entry.route.name, []).append(entry)
        if any(len(entries) > 1 for entries in self._app_tools.values()):
            self.app_routes = frozenset(opening)

    def _remember(self, previous: Mapping[tuple[Kind, str], Route]) -> Generator[None]:
        """Remembers the owners of names, also of those that are gone; forgets the oldest of these beyond MAX_OWNERS."""
        current = {}
        for kind in KINDS:
            for entry in self._index[kind].values():
                yield
                current[kind, entry.exposed] = entry.route
        unused = []
        for pair in previous.items():
            yield
            if pair[0] not in current:
                unused.append(pair)
        capacity = max(0, MAX_OWNERS - len(current))
        for key, route in unused[len(unused) - min(capacity, len(unused)) :]:
            yield
            self._owners[key] = route
        self._owners |= current

    def viewing(
        self, listed: Callable[[Route], bool], removed: Callable[[Route], bool], own: Sequence[CatalogEntry]
    ) -> Generator[None, None, Catalog]:
        """Returns a catalog that lists the hub's `own` tools, then only those that are `listed`; yields between steps.

        A tool that is not listed still resolves by its name, one that is `removed` does not. Names never depend on what
        is listed.
        """
        view = self._copied()
        listed_entries: list[CatalogEntry] = []
        for entry in self._entries[TOOLS]:
            yield
            if listed(entry.route) and not removed(entry.route):
                listed_entries.append(entry)
        view._entries = {**self._entries, TOOLS: (*own, *listed_entries)}
        resolvable: dict[str, CatalogEntry] = {}
        inactive: set[str] = set()
        for name, entry in self._index[TOOLS].items():
            yield
            if not removed(entry.route):
                resolvable[name] = entry
                if not listed(entry.route):
                    inactive.add(name)
        view.inactive = frozenset(inactive)
        view._index = {**self._index, TOOLS: {**resolvable, **{entry.exposed: entry for entry in own}}}
        yield from view._survey(TOOLS)
        return view

    def listing(self, tools: Sequence[CatalogEntry]) -> Catalog:
        """Returns a catalog that lists only these tools, in this order. All names resolve as before."""
        view = self._copied()
        view._entries = {**self._entries, TOOLS: tuple(tools)}
        finished(view._survey(TOOLS))
        return view

    def unshared(self) -> Catalog:
        """Returns a catalog that lists the same and is not public, for lists that depend on the client."""
        if not self.is_public:
            return self
        if (listing := self.listings.get("all")) is None:
            listing = self.listings["all"] = self._copied()
        return listing

    def _copied(self) -> Catalog:
        """Returns a copy for other lists of tools, which is not public."""
        view = copy(self)
        view._pages, view._cache_scope, view.listings = {}, "private", {}
        view.__dict__.pop("fingerprint", None)
        view._fingerprints, view._starts = dict(self._fingerprints), dict(self._starts)
        return view

    @property
    def server_tools(self) -> int:
        """How many tools of servers are listed, without the hub's own: the number that people are told everywhere."""
        return self.tool_count - self.tools_by_server[OWN]

    @property
    def is_public(self) -> bool:
        """Whether a cache may share its lists between clients."""
        return self._cache_scope == "public"

    def entries(self, kind: Kind) -> tuple[CatalogEntry, ...]:
        """Returns the listed items of one kind, in their order."""
        return self._entries[kind]

    def item_of(self, kind: Kind, exposed: str) -> CatalogEntry | None:
        """Returns the item of a name, which may be unlisted; None if there is none."""
        return self._index[kind].get(exposed)

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries.values())

    def __repr__(self) -> str:
        return "Catalog(" + ", ".join(f"{len(self._entries[kind])} {kind.name}" for kind in KINDS) + ")"

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Returns the listed names of one kind, in their order."""
        return tuple(entry.exposed for entry in self._entries[kind])

    def entry(self, kind: Kind, exposed: str) -> Json | None:
        """Returns one item as it is listed; it must not be mutated."""
        entry = self._index[kind].get(exposed)
        return entry.wire if entry is not None else None

    def exposed(self, route: Route) -> str | None:
        """Returns the name under which a route is exposed; None if it is not."""
        return self._exposed.get(route)

    def routes(self, kind: Kind) -> Iterator[Route]:
        """Iterates over the routes of all names of one kind, unlisted ones included."""
        return (entry.route for entry in self._index[kind].values())

    def resolve(self, kind: Kind, exposed: str) -> Route | None:
        """Returns the route of an exposed name, None if there is none.

        A URI may also match a listed template, and a skill may be one that its server does not list.
        """
        entry = self._index[kind].get(exposed)
        if entry is not None:
            return entry.route
        if kind is SKILLS:
            file = self.resolve(RESOURCES, exposed)
            return Route(file.upstream, SKILLS, file.name) if file is not None else None
        if kind is not RESOURCES:
            return None
        return self._unlisted.get(exposed) or self._by_normal_form(exposed) or self._by_template(exposed)

    def app_tools(self, name: str) -> list[Route]:
        """Returns the routes of the tools that an app may mean by `name`: of each server that has apps and such a tool.

        An app does not know the names under which tools are exposed.
        """
        tools = self._index[TOOLS]
        return [entry.route for entry in self._app_tools.get(name, ()) if entry.exposed in tools]

    def tools_of_models(self, *, listed: bool = True) -> Iterator[CatalogEntry]:
        """Iterates over the listed tools, or all, but those that only apps may call."""
        entries = self._entries[TOOLS] if listed else self._index[TOOLS].values()
        return (entry for entry in entries if may_call("model", entry.wire))

    def _by_normal_form(self, uri: str) -> Route | None:
        """Returns the route of a URI that is listed in another form, with the URI as it came."""
        if len(uri) > MAX_MATCHED_URI:
            return None
        normal = names.normal_uri(uri)
        entry = self._index[RESOURCES].get(normal) or self._normal_forms.get(normal)
        original = names.original_uri(uri)
        return Route(entry.route.upstream, RESOURCES, original[1] if original else uri) if entry is not None else None

    def _by_template(self, uri: str) -> Route | None:
        if len(uri) > MAX_MATCHED_URI:
            return None
        upstream, original = names.original_uri(uri) or (None, uri)
        full = names.readable(original)
        without_tail = names.without_tail(full)
        steps_by_upstream: dict[str, int] = {}
        share = max(LEAST_PLACES, MAX_PLACES // max(1, self._templated))
        match: tuple[UriPattern, CatalogEntry] | None = None
        for pattern, entry in self._patterns:
            if match is not None and pattern.literal < match[0].literal:
                break
            # The hub's prefix says whose URI it is; without a prefix, only templates that are listed unprefixed count.
            belongs = entry.exposed == entry.route.name if upstream is None else entry.route.upstream == upstream
            if not belongs or not (cost := pattern.cost(full)):
                continue
            spent = steps_by_upstream[entry.route.upstream] = steps_by_upstream.get(entry.route.upstream, 0) + cost
            if spent > share:
                continue
            if pattern.fullmatch(full) is not None:
                match = (pattern, entry)
                break
            # Many servers take a query or a fragment that their template does not have.
            if match is None and without_tail != full and pattern.fullmatch(without_tail) is not None:
                match = (pattern, entry)
        return Route(match[1].route.upstream, RESOURCES, original) if match is not None else None

    def exposed_uri(self, upstream: str, uri: str) -> str:
        """Returns the URI under which clients reach a resource of `upstream`: its own, unless that leads elsewhere.

        The returned URI never leads to another upstream.
        """
        exposed = self._exposed.get(Route(upstream, RESOURCES, uri))
        if exposed is not None:
            return exposed
        owner = self.resolve(RESOURCES, uri)
        is_foreign = uri.startswith(names.URI_PREFIX) if owner is None else owner.upstream != upstream
        prefixed = names.expose_uri(upstream, uri)
        return prefixed if is_foreign or (owner is None and self._by_template(prefixed) is not None) else uri

    def parts(self) -> list[Any]:
        """Returns the entries and pages it consists of."""
        return [*(entry for entries in self._entries.values() for entry in entries), *self._pages.values()]

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that change exactly when a list changes."""
        digest = hashlib.sha256()
        for kind in KINDS:
            digest.update(self._fingerprints[kind].encode())
        return digest.hexdigest()[:32]

    def _survey(self, kind: Kind) -> Generator[None]:
        """Computes the fingerprint of a list and the offsets of its pages."""
        digest = hashlib.sha256(kind.name.encode())
        starts: list[int] = []
        size, room, total = 0, 0, 0
        servers: Counter[str] = Counter()
        for number, entry in enumerate(self._entries[kind]):
            yield
            servers[entry.route.upstream] += 1
            digest.update(encode([entry.exposed, entry.route.upstream, entry.route.name]) + entry.data + b"\n")
            if number == room or size + len(entry.data) > PAGE_BYTES:
                starts.append(number)
                size, room = 0, number + PAGE_SIZE
            size += len(entry.data)
            total += len(entry.data)
        if kind is TOOLS:
            self.tool_count, self.tool_bytes, self.tools_by_server = len(self._entries[TOOLS]), total, servers
        self._fingerprints[kind], self._starts[kind] = digest.hexdigest(), tuple(starts)

    def changed(self, other: Catalog) -> frozenset[Kind]:
        """Returns the kinds whose lists differ between two catalogs."""
        return frozenset(kind for kind in KINDS if self._fingerprints[kind] != other._fingerprints[kind])

    def page(self, kind: Kind, *, modern: bool, cursor: str | None = None, meta: Json | None = None) -> Raw:
        """Returns one page, at most `PAGE_SIZE` items and `PAGE_BYTES`, as a serialised result of the list method.

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
        entries, starts = self._entries[kind], self._starts[kind]
        next_start = next((start for start in starts if start > offset), None)
        page_entries = entries[offset:next_start]
        result: Json = {kind.result_key: [Raw(entry.data if modern else entry.for_handshake) for entry in page_entries]}
        if next_start is not None:
            result["nextCursor"] = self._cursor(kind, next_start)
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
        # Only cursors that the hub gave out are valid: any other offset would add a page to the cache.
        if not number or number not in self._starts[kind] or cursor != self._cursor(kind, number):
            raise ProtocolError(INVALID_PARAMS, "Invalid cursor: the list may have changed; start again without one.")
        return number


def _no_description(_: str) -> str:
    return ""
