"""Exposure decides which of its tools a client is listed: all of them, or a few and a search for the others.

It affects only lists: the rules decide what a caller may reach. Most clients let a model call only what they were
listed, so the few always include the hub's own tools that find and call the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary, ref

import msgspec

from mcp_hub.catalog import CALL, OWN, READ, RUN, SEARCH, Catalog, Route
from mcp_hub.config.models import LIST_WAIT, Config
from mcp_hub.config.settings import Exposed
from mcp_hub.observability.stalls import in_slices, in_thread
from mcp_hub.policy.patterns import Patterns
from mcp_hub.policy.selection import Selection, matches_tool
from mcp_hub.protocol.apps import app_of, may_call
from mcp_hub.protocol.era import MAX_CLIENT_NAME, Envelope
from mcp_hub.protocol.frames import finished
from mcp_hub.protocol.kinds import TOOLS, Kind
from mcp_hub.protocol.questions import UI_EXTENSION, extension_settings
from mcp_hub.security import Principal
from mcp_hub.security.callers import SOLE, Caller, CallerSlot
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.clients import Client
    from mcp_hub.hub.catalogs import Catalogs

Json = dict[str, Any]

OWN_NAMES: Final = frozenset({SEARCH, READ, CALL, RUN})
"""Names of the hub's own tools that can be called by every client, listed or not."""
REST: Final = f"; {SEARCH} finds the rest"
LEAST_LIMIT: Final = 40
"""The smallest `tool_limit` in the table of known clients."""
SESSION_LIFE: Final = 3600.0
"""Seconds for which the few tools of a client without a session do not change after its last list, as no prompt cache
lives longer. Those of a client with a session do not change as long as the session lasts."""
MAX_REPORTED: Final = 32
"""Clients in the status, those that listed last."""
MAX_CLIENTS: Final = 16
"""The most clients of one caller whose tools are remembered: in the modern era a principal may have several."""


class Decision(msgspec.Struct, frozen=True):
    """Whether a client is listed all of its tools, and the reason, such as `it takes at most 40`."""

    all: bool
    why: str


class _ClientKey(NamedTuple):
    """What tells apart the clients of one caller: the name that a client gives itself, and whether it shows apps."""

    name: str
    shows_apps: bool


class _LastListing(msgspec.Struct):
    """The list that a client was given last."""

    catalog: ref[Catalog]
    """The catalog that it was made of."""
    listing: ref[Catalog]
    requested_at: float
    few: tuple[str, ...] | None = None
    """The first tools of its list; None if it was listed all. They stay, in this order, as long as they exist."""


class Exposure:
    """Decides what each client is listed under one configuration. Belongs to the hub's loop.

    Args:
        config: The configuration.
        selection: The part of it that is served.
        forced: The mode that the command line demands for everybody.
        whole_of: Returns the catalog of a caller as if all groups were active.
        former: The exposure before it; what clients were given stays if the settings are the same.
    """

    def __init__(
        self,
        config: Config,
        selection: Selection,
        forced: Exposed | None,
        whole_of: Callable[[Caller], Catalog],
        former: Exposure | None = None,
    ) -> None:
        settings = config.expose
        self._budget = settings.budget
        self._forced, self._whole_of = forced, whole_of
        self._mode: Exposed = selection.expose or settings.mode
        self._profiles = {entry.name: entry.expose for entry in config.profiles if entry.expose is not None}
        named = config.listen.principals
        self._principals = {name: entry.expose for name, entry in named.items() if entry.expose is not None}
        self._always = Patterns(settings.always)
        self._servers = {server.id: server for server in config.servers}
        self.settings = (settings, self._mode, forced, self._profiles, self._principals)
        modes = {forced} if forced else {self._mode, *self._profiles.values(), *self._principals.values()}
        self.concerns_nobody = modes == {"all"}
        self.large_bytes, self.large_count = (-1, -1) if modes & {"search", "code"} else (self._budget, LEAST_LIMIT)
        """A list of at most so many bytes and tools is listed in full: a token, as in `budget`, has at least a byte."""
        self._last_listings = CallerSlot[Lru[_ClientKey, _LastListing]](partial(Lru, MAX_CLIENTS))
        self._over_budget: WeakKeyDictionary[Catalog, bool] = WeakKeyDictionary()
        self._always_names: WeakKeyDictionary[Catalog, tuple[list[str], list[str]]] = WeakKeyDictionary()
        self._reported: Lru[tuple[str, str], Json] = Lru(MAX_REPORTED)
        if former is not None and former.settings == self.settings:
            self._last_listings, self._reported = former._last_listings, former._reported
            self.large_bytes, self.large_count = former.large_bytes, former.large_count

    def concerns(self, catalog: Catalog) -> bool:
        """Returns whether some client may be listed less than all of a catalog."""
        return catalog.tool_bytes > self.large_bytes or catalog.tool_count > self.large_count

    def last_listing(self, catalog: Catalog, caller: Caller, envelope: Envelope) -> Catalog | None:
        """Returns what `listed` returned to this client for this catalog; None if it has not been asked yet."""
        by_client = self._last_listings.get(caller)
        last_listing = by_client.get(_key_of(envelope)) if by_client is not None else None
        if last_listing is None or last_listing.catalog() is not catalog:
            return None
        last_listing.requested_at = time.monotonic()
        return last_listing.listing()

    async def listed(self, catalog: Catalog, caller: Caller, envelope: Envelope) -> Catalog:
        """Returns the catalog with the list of tools for one client."""
        key, now = _key_of(envelope), time.monotonic()
        by_client = self._last_listings.of(caller)
        last_listing = by_client.get(key)
        if last_listing is not None and caller.is_principal and now - last_listing.requested_at > SESSION_LIFE:
            last_listing = None
        few = last_listing.few if last_listing is not None else None
        decision = await in_slices(self._decide(catalog, caller, client_of(envelope), few=few is not None))
        if decision.all:
            listing, few = catalog.unshared(), None
        else:
            always, of_apps = await in_slices(self._always_in(catalog))
            kept = [tool_name for tool_name in few or () if catalog.item_of(TOOLS, tool_name) is not None]
            few = tuple(dict.fromkeys((*kept, *always, *(of_apps if key.shows_apps else ()))))
            # In a thread, as it reads all tools for the text of `hub_search`, and `expose_always` may have many.
            listing = await in_thread(_few, catalog, few, self._whole_of(caller), self.mode(caller) == "code")
            self.large_bytes = self.large_count = -1  # from now on each list is compared with what was given before
        by_client[key] = _LastListing(ref(catalog), ref(listing), now, few)
        self._report(caller, key.name, catalog, listing, decision)
        return listing

    # --- the decision ------------------------------------------------------------------------------------------

    def mode(self, caller: Caller) -> Exposed:
        """Returns the mode that holds for a caller."""
        principal = caller.principal
        profile_mode = self._profiles.get(principal.profile) if principal.profile is not None else None
        return self._forced or self._principals.get(principal) or profile_mode or self._mode

    def _decide(
        self, catalog: Catalog, caller: Caller, client: Client | None, *, few: bool
    ) -> Generator[None, None, Decision]:
        mode = self.mode(caller)
        if mode != "auto":
            return Decision(mode == "all", f"'expose' is '{mode}'{'' if mode == 'all' else REST}")
        if client is None:
            return Decision(True, "it is not known to need less")
        if client.defers:
            return Decision(True, "the client shows its model few of them itself")
        if client.tool_limit is not None and catalog.tool_count > client.tool_limit:
            return Decision(False, f"it takes at most {client.tool_limit}{REST}")
        if catalog not in self._over_budget:
            self._over_budget[catalog] = yield from _exceeds_budget(catalog, self._budget)
        if self._over_budget[catalog]:
            return Decision(False, f"all are more than {self._budget:,} tokens{REST}")
        if few:
            return Decision(False, f"it was listed few before, and its list does not change for a while{REST}")
        return Decision(True, f"all are at most {self._budget:,} tokens")

    def _always_in(self, catalog: Catalog) -> Generator[None, None, tuple[list[str], list[str]]]:
        """Returns the names that the patterns of `always` cover, and those of tools that open apps or are for them."""
        if catalog not in self._always_names:
            matching: list[str] = []
            of_apps: list[str] = []
            for entry in catalog.entries(TOOLS):
                yield
                server = self._servers.get(entry.route.upstream) if self._always else None
                if server is not None and matches_tool(self._always, server, entry.route.name):
                    matching.append(entry.exposed)
                if app_of(entry.wire) is not None or not may_call("model", entry.wire):
                    of_apps.append(entry.exposed)
            self._always_names[catalog] = matching, of_apps
        return self._always_names[catalog]

    # --- the status ---------------------------------------------------------------------------------------------

    def _report(self, caller: Caller, name: str, catalog: Catalog, listing: Catalog, decision: Decision) -> None:
        principal = caller.principal
        key = (principal.label or principal[:MAX_CLIENT_NAME], name)
        self._reported[key] = {
            "client": printable(name),
            "principal": printable(key[0]),
            "listed": listing.server_tools,
            "of": catalog.server_tools,
            "why": decision.why,
        }

    def facts(self) -> list[Json]:
        """Returns what clients were listed last, and why."""
        return list(self._reported.values())

    def few(self, catalog: Catalog, mode: Exposed, caller: Caller = SOLE) -> Catalog:
        """Returns the catalog for a client that is listed a few tools in a mode."""
        always, _ = finished(self._always_in(catalog))
        return _few(catalog, tuple(always), self._whole_of(caller), mode == "code")

    def listing_for(self, catalog: Catalog, client: Client | None, caller: Caller) -> tuple[Catalog, str]:
        """Returns what a client would be listed, and why; None: one that is not known."""
        decision = finished(self._decide(catalog, caller, client, few=False))
        return catalog if decision.all else self.few(catalog, self.mode(caller), caller), decision.why


def listing_of(catalogs: Catalogs, client: Client | None, profile: str | None = None) -> tuple[Catalog, str]:
    """Returns what a client with a profile would be listed now, and why.

    None stands for a client that is not in the table of clients, and for no profile.
    """
    caller = viewer_of(profile)
    catalog, exposure = catalogs.of(caller), catalogs.exposure
    if exposure is None:
        listing, why = catalog, "'expose' is 'all'"
    elif not exposure.concerns(catalog):
        listing, why = catalog, "they are few"
    else:
        known = client if client is not None and client.calls_itself else None
        listing, why = exposure.listing_for(catalog, known, caller)
    return listing, why if profile is None else f"{why}; its profile {profile!r} has no others"


def viewer_of(profile: str | None) -> Caller:
    """Returns a caller that only looks at lists: one with a profile, or the sole client."""
    return SOLE if profile is None else Caller(Principal("", profile))


async def rows_of(catalogs: Catalogs, clients: Mapping[Client, str | None]) -> list[Json]:
    """Returns what these clients, each with its profile, and any other would be listed.

    The keys are `clients`, `listed`, `of`, `short` and `why`. `listed` and `of` count the tools of servers: a short
    list has some of the hub's own besides. If it is the same for all, there is one row, whose `clients` is
    `every client`.
    """
    rows: dict[tuple[int, str], Json] = {}
    for client, profile in (*clients.items(), (None, None)):
        whole = await catalogs.built_for(viewer_of(profile))
        listing, why = listing_of(catalogs, client, profile)
        facts = {"listed": listing.server_tools, "of": whole.server_tools, "short": listing is not whole, "why": why}
        names = rows.setdefault((listing.server_tools, why), {"clients": [], **facts})["clients"]
        names.append(client.name if client is not None else "any other client")
    return list(rows.values()) if len(rows) > 1 else [{**row, "clients": ["every client"]} for row in rows.values()]


def listed_to(catalogs: Catalogs) -> list[Json]:
    """Returns what clients were listed last, with keys `client`, `principal`, `listed`, `of` and `why`.

    `client` is None for every client.
    """
    exposure = catalogs.exposure
    if exposure is not None and exposure.concerns(catalogs.everybodys):
        return exposure.facts()
    listing, why = listing_of(catalogs, None)
    count = listing.server_tools
    return [{"client": None, "principal": "", "listed": count, "of": count, "why": why}]


def _key_of(envelope: Envelope) -> _ClientKey:
    return _ClientKey(envelope.client_name, extension_settings(envelope.capabilities, UI_EXTENSION) is not None)


def first_list_wait(envelope: Envelope | None) -> float:
    """Returns the seconds from the start of the hub in which a client needs its first list."""
    client = client_of(envelope) if envelope is not None else None
    return client.list_wait if client is not None else LIST_WAIT


def client_of(envelope: Envelope) -> Client | None:
    """Returns the client of the table that sent a request; None if it is not known."""
    from mcp_hub.clients.table import client_calling_itself

    return client_calling_itself(envelope.client_name)


def _exceeds_budget(catalog: Catalog, budget: int) -> Generator[None, None, bool]:
    """Returns whether the tools of a list are more tokens than `budget`."""
    remaining = budget
    for entry in catalog.entries(TOOLS):
        yield
        remaining -= entry.tokens
        if remaining < 0:
            return True
    return False


def _few(catalog: Catalog, names: tuple[str, ...], full_catalog: Catalog, code: bool) -> Catalog:
    """Returns the catalog for a client that is listed the hub's own tools and those of `names` that are active.

    `full_catalog` is all that the client may see. With `code` it calls tools in programs.
    """
    from mcp_hub.hub.groups.active_groups import own_entries

    if (listing := catalog.listings.get((names, code))) is None:
        listed = {entry.exposed: entry for entry in catalog.entries(TOOLS) if entry.route.upstream == OWN}
        for entry in own_entries((), (SEARCH, RUN if code else READ, CALL), full_catalog):
            listed.setdefault(entry.exposed, entry)
        active = [name for name in names if name not in catalog.inactive]
        listed |= {name: item for name in active if (item := catalog.item_of(TOOLS, name)) is not None}
        listing = catalog.listings[names, code] = catalog.listing(tuple(listed.values()))
    return listing


def own_route(exposure: Exposure | None, catalog: Catalog, kind: Kind, exposed: str, caller: Caller) -> Route | None:
    """Returns the route of one of the hub's own tools; None unless some client may be listed less than all."""
    if exposure is None or kind is not TOOLS or exposed not in OWN_NAMES or not exposure.concerns(catalog):
        return None
    return Route(OWN, TOOLS, exposed) if exposed != RUN or exposure.mode(caller) == "code" else None


def expose(catalogs: Catalogs, config: Config, selection: Selection, forced: Exposed | None) -> None:
    """Applies the exposure of a configuration to the lists of tools. Notifies clients if its settings have changed.

    `forced` is the mode that the command line demands for every client.
    """
    former_exposure = catalogs.exposure
    exposure = Exposure(config, selection, forced, catalogs.full_catalog, former_exposure)
    catalogs.exposure = now = None if exposure.concerns_nobody else exposure
    if (now.settings if now is not None else None) != (
        former_exposure.settings if former_exposure is not None else None
    ):
        catalogs.notify(frozenset({TOOLS}), lambda caller: True)
