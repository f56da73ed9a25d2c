"""The catalogs that callers see: of everybody, of each profile, and of callers to whom servers list their own items."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from functools import partial
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.catalog import Catalog, CatalogSource, OnConflict, Route
from mcp_hub.catalog.entries import log_findings
from mcp_hub.config.models import LIST_WAIT
from mcp_hub.hub.client_schemas import ClientSchemas
from mcp_hub.hub.exposure import OWN_NAMES, Exposure, first_list_wait
from mcp_hub.hub.shaped_items import Shape, ShapedItems, as_they_are, shape_items
from mcp_hub.observability.stalls import drop, in_slices, run_for
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import TOOLS, Kind
from mcp_hub.security.callers import Caller
from mcp_hub.upstream import Upstream

if TYPE_CHECKING:
    from mcp_hub.hub.groups.active_groups import ActiveGroups

log = logging.getLogger("mcp_hub")

REBUILD_AFTER: Final = 0.05
"""Seconds for which changes of several upstreams are collected before the catalog is rebuilt."""
REBUILD_UNSEEN: Final = 0.5
"""The same before the first request for a list; such a request builds the catalog at once."""
BUILT_WITHIN: Final = 10.0
"""Seconds a build in slices may take; that of 50,000 tools takes a fifth of it."""
GIVES_UP: Final = 4.0
"""Seconds after which a client may give up and end the hub, so that a server counts as late unless it comes in time."""
DISCOVERED_WITHIN: Final = 2.0
"""The same for `server/discover`: a hub that gets no answer within 3 s sends `initialize` after it."""
PIECE_SECONDS: Final = 0.01
"""Seconds a build may take in one piece. The rest is done in slices, while callers see the previous catalog."""

CallerFilter = Callable[[Caller], bool]
"""Returns whether a change concerns a caller."""
Watcher = Callable[[frozenset[Kind], CallerFilter], None]
"""Called with the kinds of lists that have changed, and the callers for whom they have."""
Visible = Callable[[Route, str | None], bool]
"""Returns whether callers of a profile may reach a route."""


class Catalogs:
    """Builds and caches the catalogs from what `show` was given last, and reports changes to watchers."""

    def __init__(self, info: dict[str, Any], began: float) -> None:
        self._upstreams: Mapping[str, Upstream] = {}
        self._shape: Shape = as_they_are
        self._is_visible: Visible = lambda route, profile: True
        self._on_conflict: OnConflict = "keep_first"
        self._info = info
        self._on_built: Callable[[], None] = lambda: None
        self._view: ActiveGroups | None = None
        """None: every caller sees its full catalog."""
        self._notified_view: ActiveGroups | None = None
        """The view at the time callers were last notified."""
        self._reserved: frozenset[str] = frozenset()
        self.exposure: Exposure | None = None
        """Decides which of its tools a client is listed; None: every client is listed all."""
        self.client_schemas = ClientSchemas("auto")
        self.describe: Callable[[str], str] = lambda upstream: ""
        """Returns an upstream's description of itself, for catalogs that are built from now on."""
        self._is_new_generation = False
        """Whether the next build is the first of its generation: a name may lead elsewhere then."""
        self._catalog = Catalog.build((), server_info=info)
        self._items_by_upstream: dict[str, ShapedItems] = {}
        """By upstream: its items as the rules in force leave them."""
        self._reviewed = False
        """Whether the rules may decide differently about lists that have not changed."""
        self._build_task: asyncio.Task[None] | None = None
        """The rest of a build, done in slices."""
        self.unread: frozenset[str] = frozenset()
        """Upstreams whose current lists have not been through the rules yet: their calls have to wait."""
        self._requested: set[str] = set()
        """Requested profiles that have no catalog yet."""
        self._profile_catalogs: dict[str, Catalog] = {}
        """Catalogs of the requested profiles."""
        self._caller_catalogs: dict[Caller, Catalog] = {}
        """Catalogs of callers whose own sessions have listed items."""
        self._dirty = False
        self._rebuild_timer: asyncio.TimerHandle | None = None
        self._watchers: list[Watcher] = []
        self.is_in_use = False
        """Whether a client has seen a list, or a call was routed by one."""
        self._settled: Mapping[str, Upstream] | None = None
        """The upstreams in force, once each has connected or failed."""
        self._began = began
        self._list_wait: float | None = None
        self._list_deadline: float | None = None
        """With `list_wait` in the configuration: until when the first list waits."""
        self._late_timers: list[asyncio.TimerHandle] = []
        self._hurry_event = asyncio.Event()

    def show(
        self,
        upstreams: Mapping[str, Upstream],
        shape: Shape,
        is_visible: Visible,
        on_conflict: OnConflict,
        list_wait: float | None,
        on_built: Callable[[], None],
        view: ActiveGroups | None = None,
        reserved: frozenset[str] = frozenset(),
        profiles: Container[str] = (),
    ) -> None:
        """Takes over a generation: its upstreams and `profiles`, its policies as `shape`, `is_visible` for profiles.

        Catalogs of profiles that it does not have are dropped, and made again only if somebody asks for them.
        `view`: as in `replace_view`. `on_built()` is called after each build.
        `list_wait`: seconds that the first list waits; None: by client.
        """
        self._list_wait = list_wait
        self._upstreams, self._shape, self._is_visible = upstreams, shape, is_visible
        self._on_conflict, self._on_built = on_conflict, on_built
        self._view, self._reserved = view, reserved
        self._requested = {name for name in self._requested if name in profiles}
        self._profile_catalogs = {name: kept for name, kept in self._profile_catalogs.items() if name in profiles}
        self._dirty = self._is_new_generation = self._reviewed = True
        if self._build_task is not None:
            self._build_task.cancel()  # it uses the policies of the former generation
            self._build_task = None
        if self.is_in_use:
            self._build()

    def replace_view(self, view: ActiveGroups, reserved: frozenset[str]) -> None:
        """Replaces the view and notifies callers that see a change. `reserved`: the names of the hub's tools in it."""
        self._view = view
        if reserved != self._reserved:
            self._reserved, self._dirty = reserved, True
        if self.is_in_use and self._dirty:
            self._build()
        elif not self._dirty:
            former_view, self._notified_view = self._notified_view, view
            self.notify(_TOOLS, lambda caller: self._has_new_tools(former_view, self.full_catalog(caller), caller))

    def changed_for(self, caller: Caller, former_catalog: Catalog) -> None:
        """Notifies one caller if its catalog differs from `former_catalog`."""
        self.notify(self.of(caller).changed(former_catalog), partial(eq, caller))

    def watch(self, watcher: Watcher) -> None:
        """Registers `watcher`, to be called when lists have changed that a client may have seen."""
        self._watchers.append(watcher)

    def changed(self, *, reviewed: bool = False) -> None:
        """Schedules a rebuild, as an upstream's lists have changed, or with `reviewed`, what the rules do with them."""
        self._dirty = True
        self._reviewed = self._reviewed or reviewed
        if self._rebuild_timer is None:
            delay = REBUILD_AFTER if self.is_in_use else REBUILD_UNSEEN
            self._rebuild_timer = asyncio.get_running_loop().call_later(delay, self._build)

    def close(self) -> None:
        """Cancels pending builds."""
        if self._rebuild_timer is not None:
            self._rebuild_timer.cancel()
        if self._build_task is not None:
            self._build_task.cancel()
        for timer in self._late_timers:
            timer.cancel()

    @property
    def everybodys(self) -> Catalog:
        """Returns the catalog for callers without a profile; while it is rebuilt in slices, the previous one."""
        if self._dirty and self._build_task is None:
            self._build()
        return self._catalog

    async def wait_until_built(self, seconds: float = BUILT_WITHIN) -> None:
        """Waits until the current lists are built into the catalogs, at most `seconds`."""
        if self._dirty and self._build_task is None:
            self._build()
        deadline = time.monotonic() + seconds
        for _ in range(2):  # the build that runs may have begun before the last change
            if self._build_task is not None:
                await asyncio.wait({self._build_task}, timeout=max(0.0, deadline - time.monotonic()))

    async def settled_for(self, caller: Caller, envelope: Envelope | None = None) -> Catalog:
        """Returns a caller's catalog once all upstreams have connected or failed, or its time for that is over.

        Args:
            envelope: that of the client's request, by whose name the time is chosen.
        """
        if self._upstreams is not self._settled:
            await self._wait_for_all(self._upstreams, envelope)
        catalog = await self.built_for(caller, LIST_WAIT if self._list_wait is None else self._list_wait)
        self.is_in_use = True
        return catalog

    async def wait_for_instructions(self, envelope: Envelope, era: Era) -> None:
        """Waits for what upstreams say of themselves as long as for a first list, unless the client may give up."""
        if self._upstreams is not self._settled:
            latest = DISCOVERED_WITHIN if era == "modern" else GIVES_UP
            await self._wait_for_all(self._upstreams, envelope, latest)

    async def built_for(self, caller: Caller, seconds: float = BUILT_WITHIN) -> Catalog:
        """Returns a caller's catalog of the current lists, or after `seconds` of building the one there is."""
        catalog = self.of(caller)
        if self.is_behind(caller):
            await self.wait_until_built(seconds)
            catalog = self.of(caller)
        return catalog

    async def _wait_for_all(
        self, upstreams: Mapping[str, Upstream], envelope: Envelope | None, latest: float = math.inf
    ) -> None:
        """Waits until a client needs its first list; `latest` is in seconds from the start of the hub."""
        pending = [upstream for upstream in upstreams.values() if not upstream.settled.is_set()]
        if self._list_wait is not None:
            deadline = self._list_deadline = self._list_deadline or time.monotonic() + self._list_wait
        else:
            deadline = self._began + (first_list_wait(envelope) if pending else 0.0)
            if not self._late_timers:
                waited, loop = time.monotonic() - self._began, asyncio.get_running_loop()
                for seconds in {GIVES_UP, max(GIVES_UP, deadline - self._began)}:
                    delay = max(0.0, seconds - waited)
                    self._late_timers.append(loop.call_later(delay, loop.run_in_executor, None, _note_late, upstreams))
            pending = [upstream for upstream in pending if not upstream.list_store.was_late]
        seconds = min(deadline, self._began + latest) - time.monotonic()
        await self.wait_for([upstream.settled for upstream in pending], seconds)
        if all(upstream.settled.is_set() for upstream in upstreams.values()):
            self._settled = upstreams

    async def wait_for(self, outcomes: Iterable[asyncio.Event], seconds: float) -> bool:
        """Waits until all of these are set, at most `seconds`, or until `hurry` is called; returns whether it did."""
        pending = [event for event in outcomes if not event.is_set()]
        if not pending or seconds <= 0 or self._hurry_event.is_set():
            return False

        async def all_set() -> None:
            for event in pending:
                await event.wait()

        tasks = {asyncio.ensure_future(wait) for wait in (all_set(), self._hurry_event.wait())}
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return True

    def hurry(self) -> None:
        """Ends all waiting for upstreams that still connect: requests are answered with the items that are known."""
        self._hurry_event.set()

    def is_behind(self, caller: Caller) -> bool:
        """Returns whether a caller's catalog is out of date or empty because a build is not finished."""
        return self._build_task is not None or (bool(self._requested) and caller.profile in self._requested)

    def of(self, caller: Caller) -> Catalog:
        """Returns the catalog that one caller sees."""
        if caller.profile is None and not (self._dirty or self._caller_catalogs or self._view):
            return self._catalog
        full_catalog = self.full_catalog(caller)
        return full_catalog if self._view is None else self._view.view(full_catalog, caller)

    def full_catalog(self, caller: Caller) -> Catalog:
        """Returns the catalog that one caller would see if all groups were active."""
        catalog = self.everybodys  # also brings the other catalogs up to date
        own_catalog = self._caller_catalogs.get(caller) if self._caller_catalogs else None
        return own_catalog or self._base(caller.profile, catalog)

    def _base(self, profile: str | None, everybodys: Catalog) -> Catalog:
        """Returns the catalog that all callers of a profile share."""
        if profile is None:
            return everybodys
        if profile not in self._profile_catalogs and self._build_task is None:
            _, catalog = run_for(self._merge(profile, (), None, None), PIECE_SECONDS)
            if catalog is not None:
                self._profile_catalogs[profile] = catalog
        if profile not in self._profile_catalogs:
            self._requested.add(profile)
            if self._build_task is None:
                self._build()
        return self._profile_catalogs.get(profile, _NOTHING)

    def _build(self) -> None:
        if self._rebuild_timer is not None:
            self._rebuild_timer.cancel()
            self._rebuild_timer = None
        if self._build_task is not None:
            self._dirty = True
            return
        steps = self._build_steps()
        done, _ = run_for(steps, PIECE_SECONDS)
        if not done:
            self._build_task = asyncio.get_running_loop().create_task(self._finish_build(steps))

    async def _finish_build(self, steps: Generator[None]) -> None:
        try:
            await in_slices(steps)
        except Exception:
            log.exception("the catalog could not be built")
        self._build_task = None
        if self._dirty or self._requested:
            self._build()

    def _build_steps(self) -> Generator[None]:
        """Builds all catalogs from the current lists, one step at a time."""
        self._dirty = False
        replaced = yield from self._shape_lists()
        yield from self._merge_all(replaced)
        if replaced:
            drop(replaced)

    def _shape_lists(self) -> Generator[None, None, list[Any]]:
        """Applies the rules to lists that are new or have to be reviewed. Returns the parts of what it replaces."""
        listed = {
            id: upstream
            for id, upstream in self._upstreams.items()
            if upstream.lists.items or upstream.lists.stand_ins or upstream.caller_lists.all
        }
        reviewed, self._reviewed = self._reviewed, False
        shaped = {} if reviewed else {id: items for id, items in self._items_by_upstream.items() if id in listed}
        self.unread = frozenset(id for id in listed if id not in shaped or not shaped[id].is_of(listed[id]))
        shape = self._shape
        for id, upstream in listed.items():
            if id in self.unread:
                shaped[id] = yield from shape_items(upstream, shape)
            elif shaped[id].upstream is not upstream:
                shaped[id] = msgspec.structs.replace(shaped[id], upstream=upstream)
        replaced = [
            part
            for id, items in self._items_by_upstream.items()
            if items is not shaped.get(id)
            for part in items.parts()
        ]
        self._items_by_upstream = {id: shaped[id] for id in listed}
        return replaced

    def _merge_all(self, replaced: list[Any]) -> Generator[None]:
        """Merges the lists into all catalogs, and notifies callers. Adds the parts of the former one to `replaced`."""
        previous, former_by_caller, former_profiles = self._catalog, self._caller_catalogs, self._profile_catalogs
        # A name that no client has seen may still change: the order of the configuration decides, not that of arrival.
        keeps_names, self._is_new_generation = self.is_in_use and not self._is_new_generation, False
        catalog = yield from self._merge(None, (), previous if keeps_names else None, previous)
        callers = {caller for upstream in self._upstreams.values() for caller in upstream.caller_lists.all}
        requested = self._requested.union(caller.profile for caller in callers if caller.profile is not None)
        requested -= set(former_profiles)
        profile_catalogs: dict[str, Catalog] = {}
        for name in (*former_profiles, *requested):
            former = former_profiles.get(name)
            profile_catalogs[name] = yield from self._merge(name, (), former if keeps_names else None, former)
        caller_catalogs: dict[Caller, Catalog] = {}
        for caller in callers:
            caller_profile = caller.profile
            shared_catalog = catalog if caller_profile is None else profile_catalogs.get(caller_profile)
            caller_catalogs[caller] = yield from self._merge(caller_profile, (caller,), shared_catalog, shared_catalog)
        if self._view is not None:
            yield from self._view.preparing(catalog, previous, None)
            for name, profile_catalog in profile_catalogs.items():
                yield from self._view.preparing(profile_catalog, former_profiles.get(name), name)
            for caller, caller_catalog in caller_catalogs.items():
                yield from self._view.preparing(caller_catalog, former_by_caller.get(caller), caller.profile)
        yield from log_findings(catalog.findings, set(previous.findings))
        self._catalog, self._profile_catalogs, self._caller_catalogs = catalog, profile_catalogs, caller_catalogs
        replaced += previous.parts()
        self.unread = frozenset()
        self._requested -= set(profile_catalogs)
        former_profiles = {**{profile: _NOTHING for profile in requested}, **former_profiles}
        self._on_built()
        self._tell_changes(previous, former_profiles, former_by_caller)

    def _tell_changes(
        self, previous: Catalog, former_profiles: Mapping[str, Catalog], former_by_caller: Mapping[Caller, Catalog]
    ) -> None:
        """Notifies callers of what the catalogs in force have changed."""
        changed: dict[str | None, frozenset[Kind]] = {None: self._catalog.changed(previous)}
        changed |= {name: catalog.changed(former_profiles[name]) for name, catalog in self._profile_catalogs.items()}
        former_view, self._notified_view = self._notified_view, self._view
        if self._view is not None:

            def has_new_tools(caller: Caller) -> bool:
                profile = caller.profile
                former = former_by_caller.get(caller) or (previous if profile is None else former_profiles.get(profile))
                return self._has_new_tools(former_view, former, caller)

            self.notify(_TOOLS, has_new_tools)
            changed = {profile: kinds - _TOOLS for profile, kinds in changed.items()}
        for profile, kinds in changed.items():
            self.notify(kinds, partial(_has_profile, profile))
        for caller in self._caller_catalogs.keys() | former_by_caller.keys():
            profile = caller.profile
            former_catalog = former_by_caller.get(caller, self._base(profile, self._catalog))
            kinds = self.full_catalog(caller).changed(former_catalog) - changed.get(profile, frozenset())
            self.notify(kinds if self._view is None else kinds - _TOOLS, partial(eq, caller))

    def _has_new_tools(self, former_view: ActiveGroups | None, former: Catalog | None, caller: Caller) -> bool:
        """Returns whether a caller sees other tools than in the catalog `former` through `former_view`.

        If `former` is None, the caller had no catalog, and the result is False.
        """
        if former is None:
            return False
        former_listing = former if former_view is None else former_view.view(former, caller)
        return TOOLS in self.of(caller).changed(former_listing)

    def _merge(
        self, profile: str | None, caller: tuple[Caller, ...], previous: Catalog | None, like: Catalog | None
    ) -> Generator[None, None, Catalog]:
        """Merges the sources of a profile, and what the own sessions of `caller` list instead, in steps."""

        def is_visible(route: Route) -> bool:
            return profile is None or self._is_visible(route, profile)

        unlisted = frozenset(
            id
            for id, upstream in self._upstreams.items()
            if not (upstream.visibility.listed or (upstream.lists.stand_ins and not upstream.lists.items))
        )
        sources: list[CatalogSource] = []
        for items in self._items_by_upstream.values():
            own = items.own.get(caller[0]) if caller else None
            sources.append((yield from items.source(is_visible, own or {})))
        merged = yield from Catalog.building(
            sources,
            self._on_conflict,
            previous=previous,
            like=like,
            server_info=self._info,
            away=unlisted,
            reserved=self._reserved if self.exposure is None else self._reserved | OWN_NAMES,
        )
        merged.about = self.describe
        return merged

    def notify(self, kinds: frozenset[Kind], caller_filter: CallerFilter) -> None:
        """Notifies these callers that the lists of these kinds have changed."""
        if kinds and self.is_in_use:
            for watcher in self._watchers:
                watcher(kinds, caller_filter)


_TOOLS: Final = frozenset({TOOLS})
_NOTHING: Final = Catalog.build(())
"""The catalog of a profile until it has been built."""


def _note_late(upstreams: Mapping[str, Upstream]) -> None:
    """Notes on disk which upstreams were too late for the first list, so that the next start does not wait for them."""
    for upstream in upstreams.values():
        is_settled = upstream.settled.is_set()
        if not is_settled or upstream.error is None:  # the next start need not wait for a failure
            upstream.list_store.note_late(late=not is_settled)


def process_age() -> float:
    """Returns the seconds since this process began; 0.0 where the system does not tell."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError, IndexError):
            ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
            return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return 0.0


def _has_profile(profile: str | None, caller: Caller) -> bool:
    return caller.profile == profile
