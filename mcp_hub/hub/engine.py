"""The hub: upstreams, the catalog merged from their lists, and the chain every call goes through."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.catalog import tasks
from mcp_hub.catalog.catalog import OWN, Catalog, Route
from mcp_hub.catalog.known_uris import KnownUris
from mcp_hub.catalog.tasks import TaskIds
from mcp_hub.config.ancestry import NAME, VARIABLE, Ancestry
from mcp_hub.config.models import Config
from mcp_hub.errors import ConfigError
from mcp_hub.hub import instructions
from mcp_hub.hub.catalogs import BUILT_WITHIN, Catalogs
from mcp_hub.hub.flagging import Flagging
from mcp_hub.hub.generation import Generation
from mcp_hub.hub.generations import Generations, Lasting
from mcp_hub.observability.metrics import IMetricsCollector, Metrics
from mcp_hub.policy import Call, Json, unknown_name
from mcp_hub.policy.chain import Rules
from mcp_hub.policy.long_results import LongResults
from mcp_hub.policy.selection import EVERYTHING, Selection
from mcp_hub.protocol import era as eras
from mcp_hub.protocol import extensions
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES, TOOLS, Kind
from mcp_hub.security.principals import profile_of
from mcp_hub.transport.children import Children
from mcp_hub.upstream.clients import Clients
from mcp_hub.upstream.connection import Upstream
from mcp_hub.upstream.dial import Dialer, Functions
from mcp_hub.upstream.kept import KeptCatalogs, default_directory
from mcp_hub.upstream.place import Place
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.hub.groups import Groups

log = logging.getLogger("mcp_hub")

REFRESH_AFTER: Final = 5.0
"""Seconds until upstreams that are served from their kept catalog are started to refresh it."""


class Hub:
    """`async with Hub(config) as hub:` runs the upstreams; `act` carries one call out.

    One loop, one hub. `kept` is where catalogs are kept between runs, `record` gets a record of every call; None for
    nowhere, `groups` are switched on at the start. `collectors` are told of every call; `tracer_provider` is one of
    OpenTelemetry that calls are traced with instead of what the configuration says. `functions` leads to those of
    the program the hub runs in. Raises ConfigError for pins that cannot be read and unknown groups.
    """

    def __init__(
        self,
        config: Config,
        *,
        environ: Mapping[str, str] | None = None,
        kept: KeptCatalogs | None = None,
        selection: Selection = EVERYTHING,
        groups: Iterable[str] = (),
        one_client: bool = False,
        record: Callable[[Json], None] | None = None,
        collectors: Sequence[IMetricsCollector] = (),
        tracer_provider: Any = None,
        functions: Functions | None = None,
    ) -> None:
        self.info: dict[str, Any] = {"name": NAME, "title": NAME, "version": VERSION}
        self.children = Children()
        self.uris = KnownUris(lambda caller: self.catalogs.of(caller))
        self.clients = Clients(expected=one_client, uris=self.uris, sees=self._sees)
        self._kept = kept
        started_with = os.environ if environ is None else environ
        ancestry = Ancestry.of(config.path, started_with, config.max_hub_depth, self._identity_key)
        self.waits = one_client and (ancestry.too_deep or ancestry.repeated)
        """Whether no server is started before its client has said who it is: it may be a hub that must be refused."""
        self.metrics = Metrics(collectors)
        self._long_results = LongResults(time.monotonic)
        lasting = Lasting(
            self.info,
            environ,
            self.children,
            self.clients,
            self.uris,
            kept,
            record,
            self._long_results,
            lambda: self._task_ids,
            lambda reviewed=False: self.catalogs.changed(reviewed=reviewed),
            self.metrics,
            ancestry,
            tracer_provider,
            functions,
        )
        self._generations = Generations(lasting, config, selection)
        self.catalogs = Catalogs(self.info)
        self.place = Place(
            ancestry,
            lambda: self.upstreams,
            lambda caller: self.catalogs.of(caller).upstreams,
            lambda callers: self.catalogs.tell(frozenset({TOOLS}), callers.__contains__),
        )
        self._patience_ends: float | None = None
        self._refresh: asyncio.TimerHandle | None = None
        self._flagging = Flagging(lambda: self.rules.screen)
        self._hurried = asyncio.Event()
        self._groups: Groups | None = None
        self._switched_on = tuple(groups)
        self._show()

    # --- generations -------------------------------------------------------------------------------------------

    def over_network(self) -> None:
        """From now on it is served over a network. Raises ConfigError if a server must not be."""
        self._generations.over_network()

    @property
    def generation(self) -> Generation:
        """The configuration in force, at work."""
        return self._generations.now

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.generation.config

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Those of the configuration in force, by id, in its order."""
        return self.generation.upstreams

    @property
    def rules(self) -> Rules:
        """Those of the configuration in force."""
        return self.generation.rules

    @property
    def selection(self) -> Selection:
        """What of the configuration in force is served."""
        return self.generation.selection

    @property
    def dialer(self) -> Dialer:
        """Makes the connections of the configuration in force."""
        return self.generation.dialer

    async def renew(self, config: Config, selection: Selection = EVERYTHING) -> Generation:
        """Go over to another configuration (Generations.renew). Nothing that is running fails. Raises ConfigError."""
        return await self._generations.renew(config, selection, self._show)

    @property
    def groups(self) -> Groups:
        """Groups of tools: those of the configuration, and more at run time."""
        if self._groups is None:
            from mcp_hub.hub.groups import Groups

            # Whoever has none pays nothing for them.
            self._groups = Groups(
                self.catalogs,
                self.config,
                everything=self.selection is EVERYTHING,
                ruled=lambda rule: self.rules.chain.insert(rule, after=self.rules.access),
                switched_on=self._switched_on,
            )
        return self._groups

    def _show(self) -> None:
        now = self.generation
        access = now.rules.access
        if self._groups is not None:
            self._groups.renew(now.config, everything=now.selection is EVERYTHING)
        grouped = self._groups is not None or now.config.groups or now.config.meta_tools or self._switched_on
        equipped = self.groups.now if grouped else None
        self.catalogs.show(
            now.upstreams,
            now.rules.shape,
            lambda route, profile: access.why(route, profile) is None,
            now.config.on_conflict,
            self._built,
            equipped.view if equipped is not None else None,
            equipped.own_names if equipped is not None else frozenset(),
        )

    async def __aenter__(self) -> Hub:
        if not self.waits:
            self._begin()
        return self

    def _begin(self) -> None:
        if (ancestry := self.place.ancestry).too_deep:
            raise ConfigError(f"{ancestry.refusal(None)} Set max_hub_depth in it, or unset ${VARIABLE}.")
        self._generations.start()
        self._refresh = asyncio.get_running_loop().call_later(REFRESH_AFTER, self._wake_all)

    def admit(self, client_info: Any) -> None:
        """The only client of a hub that `waits` is there: start the servers. Raises ProtocolError if it is refused."""
        self.place.admit(client_info)
        if self.waits:
            self.waits = False
            self._begin()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every upstream, all at the same time, and what is left of their processes. Idempotent."""
        self.catalogs.close()
        self._flagging.close()
        if self._refresh is not None:
            self._refresh.cancel()
        await self._generations.close()
        if self._groups is not None:
            await self._groups.close()
        if self._kept is not None:
            await self._kept.close()
        await self.children.close()

    def _wake_all(self) -> None:
        for upstream in self.upstreams.values():
            upstream.wake()

    def _sees(self, caller: Hashable | None, upstream: str) -> bool:
        return profile_of(caller) is None or upstream in self.catalogs.of(caller).upstreams

    def _built(self) -> None:
        self.generation.tell_of_strangers()
        self._flagging.soon()
        self.place.built()

    # --- the catalog -------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """What is known now, for callers without a profile."""
        return self.catalogs.everybodys

    def entry(self, kind: Kind, exposed: str, caller: Hashable | None) -> Json | None:
        """One item as it is listed to a caller now; not to be mutated."""
        return self.catalogs.of(caller).entry(kind, exposed)

    async def settled_catalog(self, caller: Hashable | None = None) -> Catalog:
        """What a caller sees once every upstream's first outcome is known, or the first has waited `list_wait`."""
        if self._patience_ends is None:
            self._patience_ends = time.monotonic() + self.config.list_wait
        await self._wait_for(list(self.upstreams.values()), self._patience_ends - time.monotonic())
        catalog = self.catalogs.of(caller)
        if self.catalogs.is_behind(caller):
            await self.catalogs.settled(self.config.list_wait)
            catalog = self.catalogs.of(caller)
        self.catalogs.seen = True
        return catalog

    async def missing(self) -> list[Upstream]:
        """The required upstreams that are not there, once each has been tried; bounded by their deadlines."""
        required = [upstream for upstream in self.upstreams.values() if upstream.server.required]
        for upstream in required:
            upstream.start_now()
            await upstream.tried.wait()
        return [upstream for upstream in required if upstream.error is not None]

    async def _wait_for(self, upstreams: list[Upstream], seconds: float) -> None:
        """Wait until all of them are settled, the time is over, or there is no time to wait any more."""
        unsettled = [upstream for upstream in upstreams if not upstream.settled.is_set()]
        if not unsettled or seconds <= 0 or self._hurried.is_set():
            return

        async def all_settled() -> None:
            for upstream in unsettled:
                await upstream.settled.wait()

        tasks = {asyncio.ensure_future(wait) for wait in (all_settled(), self._hurried.wait())}
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def hurry(self) -> None:
        """Nobody has time to wait for upstreams that are still connecting: answer with what is there."""
        self._hurried.set()

    def forget(self, caller: Hashable) -> None:
        """`caller` is gone; what was kept open for it alone is closed."""
        self.clients.forget(caller)
        self.uris.forget(caller)
        self.place.forget(caller)
        self._generations.used.forget(caller)
        if self._groups is not None:
            self._groups.forget(caller)
        for upstream in self.upstreams.values():
            upstream.forget(caller)

    def _identity_key(self) -> bytes | None:
        kept = self._kept or KeptCatalogs(self.config.cache_dir or default_directory())
        return kept.secret("hub")

    def extensions(self, era: Era, caller: Hashable | None = None) -> Json:
        """What clients of an era are told of extensions: those of the servers of which they see something."""
        shown = self.catalogs.of(caller).upstreams
        agreed = [u.agreement for u in self.upstreams.values() if u.server.id in shown and u.agreement is not None]
        return extensions.advertised([(one.era, one.capabilities) for one in agreed], era)

    @cached_property
    def _task_ids(self) -> TaskIds:
        key = self._kept.secret("tasks") if self._kept is not None else None
        return TaskIds(key or secrets.token_bytes(32))

    def task(self, sealed: str, caller: Hashable | None) -> tuple[Route, str]:
        """The tool and its server's id of a task. Raises ProtocolError for what this caller was not given."""
        route, task_id = self._task_ids.open(caller, sealed)
        self.catalogs.of(caller)  # so that the rules have seen what is known of the tool by now
        if route.upstream not in self.upstreams:
            raise tasks.unknown_task(sealed)
        return route, task_id

    async def begun(self) -> None:
        """Return when what earlier runs of the hub have kept is served: at once, but for large catalogs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BUILT_WITHIN):
                for upstream in self.upstreams.values():
                    await upstream.begun.wait()
        await self.catalogs.settled()

    def instructions(self, caller: Hashable | None = None) -> str | None:
        """What a client is told at the start, of the servers of which it sees something."""
        shown = self.catalogs.of(caller).upstreams
        agreed = [(u.server.id, u.agreement) for u in self.upstreams.values() if u.server.id in shown]
        notes = self._groups.notes_for(caller) if self._groups is not None else ""
        said = [(id, self.rules.instructions(id, one.instructions)) for id, one in agreed if one is not None]
        return instructions.merged([*said, *self._skills(caller)], notes)

    def _skills(self, caller: Hashable | None) -> Iterator[tuple[str, str | None]]:
        """What is said of skills, those alone that the caller may read."""
        for server in self.config.servers:
            if server.skills:
                from mcp_hub.servers import skills

                def exposed(uri: str, id: str = server.id) -> str | None:
                    seen = self.reaches(Route(id, RESOURCES, uri), caller)
                    return self.catalogs.of(caller).exposed_uri(id, uri) if seen else None

                yield server.id, skills.told(server.skills, exposed)

    # --- names and calls ---------------------------------------------------------------------------------------

    async def route(self, kind: Kind, exposed: str, era: Era, caller: Hashable | None = None) -> Route:
        """Where a call under this name goes. Raises UnknownName, the same for absent, hidden and refused."""
        if kind is RESOURCES and self._long_results.owns(exposed):
            return Route(OWN, RESOURCES, exposed)
        route = self.catalogs.of(caller).resolve(kind, exposed)
        if route is not None and self.catalogs.is_unread(route.upstream) and route.upstream in self.upstreams:
            await self.catalogs.settled(self.upstreams[route.upstream].server.deadlines.list)
            unread = self.catalogs.is_unread(route.upstream)
            route = None if unread else self.catalogs.of(caller).resolve(kind, exposed)
        if route is None and kind is RESOURCES:
            route = self.uris.given(caller, exposed)
            route = route if route is not None and route.upstream in self.upstreams else None
        if route is None and kind is not RESOURCES:
            await self._wait_for(self._who_may_have(exposed), self._longest_connect())
            route = self.catalogs.of(caller).resolve(kind, exposed)
        if route is None:
            route = (await self.settled_catalog(caller)).resolve(kind, exposed)
        self.catalogs.seen = True
        if route is None:
            raise unknown_name(kind, exposed, era)
        return route

    async def reference(self, kind: Kind, exposed: str, era: Era, caller: Hashable | None = None) -> Route:
        """Like `route`, for a completion's reference, which may also name a resource template."""
        if kind is RESOURCES:
            template = (await self.settled_catalog(caller)).resolve(TEMPLATES, exposed)
            if template is not None:
                return template
        return await self.route(kind, exposed, era, caller)

    def why(self, kind: Kind, exposed: str, profile: str | None = None) -> str | None:
        """The rule that hides a name, for the user of the hub and the log; None if nothing here has it."""
        return self.generation.why(kind, exposed, profile)

    def missed(self, kind: Kind, exposed: str, era: Era, caller: Hashable | None, envelope: Envelope) -> None:
        """Record that somebody used a name that leads nowhere, and which rule hides it if one does."""
        reason = self.why(kind, exposed, profile_of(caller)) or "unknown"
        self.rules.trace.unknown(kind.act_method, exposed, era, caller, reason, envelope)

    def _who_may_have(self, exposed: str) -> list[Upstream]:
        """Upstreams whose namespace the name begins with, an empty one too: worth waiting for longer than a list is."""
        return [u for u in self.upstreams.values() if exposed.startswith(u.server.namespace)]

    def _longest_connect(self) -> float:
        return max((u.server.deadlines.connect for u in self.upstreams.values()), default=0.0)

    def reaches(self, route: Route, caller: Hashable | None) -> bool:
        """Whether a caller may hear of a resource now."""
        return route.upstream in self.upstreams and self.rules.reaches(route, profile_of(caller))

    async def tell(self, caller: Hashable | None, method: str) -> None:
        """Pass on a client's announcement to the servers that it is the only client of."""
        await asyncio.gather(*(upstream.tell(caller, method) for upstream in self.upstreams.values()))

    async def log_from(self, level: str) -> None:
        """Have all servers that are there log this level and above."""
        await asyncio.gather(*(upstream.log_from(level) for upstream in self.upstreams.values()))

    def may_ask(self, route: Route) -> bool:
        """Whether a call may come back with a question that its caller has to be parked for."""
        upstream = self.upstreams.get(route.upstream)
        return upstream is not None and (upstream.agreement is None or upstream.agreement.era == "handshake")

    def one_by_one(self, call: Call) -> bool:
        """Whether a call waits for the one before: many clients may be behind the anonymous caller of a session."""
        server = self.upstreams[call.route.upstream].server if call.route.upstream in self.upstreams else None
        return server is not None and server.session == "client" and call.caller == ""

    async def act(self, call: Call) -> Json:
        """The result of one call in its caller's era. Raises ProtocolError and CallError."""
        if call.route.upstream == OWN:
            return eras.result_for(call.era, "handshake", call.method, await self.rules.watched(call, self._own))
        generation = self.generation
        if call.route.upstream not in generation.upstreams:
            raise unknown_name(call.kind, call.exposed, call.era)  # it went while the call was on its way
        result = await generation.run(call)
        if call.era == "modern" and "resultType" not in result:
            result = {**result, "resultType": "complete"}  # it is the hub's own
        return result

    async def _own(self, call: Call) -> Json:
        if call.method == TOOLS.act_method and self._groups is not None:
            return await self._groups.act(call)
        reading = call.method == RESOURCES.act_method
        page = self._long_results.read(call.exposed, call.caller) if reading else None
        if page is None:
            raise unknown_name(call.kind, call.exposed, call.era)
        return page

    async def forget_watcher(self, who: Hashable) -> None:
        """A subscriber is gone; what only it wanted to hear of is nobody's news any more."""
        await asyncio.gather(*(upstream.watching.forget(who) for upstream in self.upstreams.values()))
