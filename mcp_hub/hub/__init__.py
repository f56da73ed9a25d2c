"""The engine of a hub: routes names to upstreams and carries calls out, under the configuration in force."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from mcp_hub.catalog import OWN, Catalog, Route, names
from mcp_hub.catalog.exposed_ids import unknown_task
from mcp_hub.config.models import Config
from mcp_hub.errors import INVALID_PARAMS, Overloaded, UnknownName
from mcp_hub.hub.catalogs import BUILT_WITHIN
from mcp_hub.hub.client_schemas import adapt_schemas
from mcp_hub.hub.composition import EngineOptions, compose
from mcp_hub.hub.exposure import OWN_NAMES, client_of, expose, own_route
from mcp_hub.hub.generations import Generation
from mcp_hub.hub.name_check import NameCheck
from mcp_hub.hub.own_tools import CODE_RUN, OwnTools
from mcp_hub.hub.self_description import ServerPurposes, instructions_of_skills, merge_instructions
from mcp_hub.policy import Call, Json, NewlyListedTool, unknown_name
from mcp_hub.policy.chain import Rules
from mcp_hub.policy.confirm import CODE_MODE
from mcp_hub.policy.fallback import stand_ins
from mcp_hub.policy.selection import EVERYTHING, Selection
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.apps import may_call
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import RESOURCES, TOOLS, Kind
from mcp_hub.protocol.questions import forwarded_extensions
from mcp_hub.security.callers import SOLE, Caller, Callers, CallerSlot
from mcp_hub.transport.background import TaskSet
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.lifecycle import CONNECTED_STATES
from mcp_hub.upstream.link_dialer import LinkDialer
from mcp_hub.upstream.session import Agreement

if TYPE_CHECKING:
    from mcp_hub.hub.groups import Groups

REFRESH_AFTER: Final = 5.0
"""Seconds after the start until upstreams that are served from a cached catalog are started to refresh it."""
LEVEL_WAIT: Final = 1.0
"""Seconds that a change of the log level waits for servers, so that it mostly holds when it is answered."""


class Engine:
    """Runs the upstreams of a configuration within `async with Engine(config) as hub:`. Belongs to one event loop.

    Args:
        selection: The part of the configuration that is served.
        groups: Groups of tools that are active from the start.
        options: What the hub uses besides the configuration.

    Raises:
        ConfigError: The pins cannot be read, or a group is unknown.
    """

    def __init__(
        self,
        config: Config,
        *,
        selection: Selection = EVERYTHING,
        groups: Iterable[str] = (),
        **options: Unpack[EngineOptions],
    ) -> None:
        parts = compose(config, selection, **options)
        self._services = services = parts.services
        self.info, self.children, self.metrics = services.info, services.children, services.metrics
        self.catalogs, self.uris, self.clients = services.catalogs, services.uris, services.clients
        self.tap, self.labels = services.tap, services.labels
        self.nesting, self.switch, self.approvals = parts.place, parts.switch, services.approvals
        self.sharing, self.used_labels = services.sharing, services.used
        self._generations, self._screening = parts.generations, parts.screening
        self.name_check = NameCheck(parts.generations)
        ancestry = services.ancestry
        self.waits = options.get("one_client", False) and (ancestry.too_deep or ancestry.repeated)
        """Whether servers are started only once the client is known, as it may be a hub that must be refused."""
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._setting_levels = TaskSet()
        self.task_ids, self.long_results = services.task_ids, services.long_results
        self._groups: Groups | None = None
        self._own_tools = OwnTools(services, self.catalogs, lambda: self._generations.current)
        self.callers = Callers()
        self._opened_apps = CallerSlot(set[str])
        """The servers whose apps each caller has opened, if it matters (`Catalog.app_routes`)."""
        self._initial_groups, self._exposed = tuple(groups), options.get("expose")
        self._apply_generation()

    # --- generations -------------------------------------------------------------------------------------------

    def over_network(self) -> None:
        """Applies the restrictions of a network listener. Raises ConfigError if a server must not be served over it."""
        self._generations.over_network()

    @property
    def generation(self) -> Generation:
        """The generation in force."""
        return self._generations.current

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.generation.config

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The upstreams of the configuration in force, by id, in its order."""
        return self.generation.upstreams

    @property
    def rules(self) -> Rules:
        """The rules of the configuration in force."""
        return self.generation.rules

    @property
    def dialer(self) -> LinkDialer:
        """Makes links to the upstreams of the configuration in force."""
        return self.generation.dialer

    async def renew(self, config: Config, selection: Selection = EVERYTHING, *, strict: bool = False) -> Generation:
        """Changes to another configuration; running calls go on. Raises ConfigError (`Generations.renew`)."""
        return await self._generations.renew(config, selection, self._apply_generation, strict=strict)

    @property
    def groups(self) -> Groups:
        """Groups of tools, of the configuration and created at run time. Made at the first use."""
        if self._groups is None:
            from mcp_hub.hub.groups import Groups

            # Made lazily, so that a hub without groups does not import them.
            self._groups = Groups(
                self.catalogs,
                self.config,
                everything=self.generation.selection is EVERYTHING,
                ruled=lambda rule: self.rules.chain.insert(rule, after=self.rules.access),
                switched_on=self._initial_groups,
                sharing=self.sharing,
            )
        return self._groups

    def _apply_generation(self) -> None:
        now = self.generation
        if self._groups is not None:
            self._groups.renew(now.config, everything=now.selection is EVERYTHING)
        has_groups = now.config.groups or self._initial_groups or (self._groups is not None and self._groups.in_use)
        has_tools = now.config.meta_tools or CODE_MODE.of(now.config).enabled
        view = self.groups.now if has_groups or has_tools else None
        expose(self.catalogs, now.config, now.selection, self._exposed)
        adapt_schemas(self.catalogs, now.config)
        self.catalogs.describe = ServerPurposes(now.upstreams, now.rules.instructions)
        for upstream in now.upstreams.values():
            upstream.lists.stand_ins = stand_ins(now.config, upstream.server)
        self.catalogs.show(
            now.upstreams,
            now.rules.shape,
            lambda route, profile: now.rules.why(route, profile) is None,
            now.config.on_conflict,
            now.config.list_wait,
            self._on_built,
            view,
            view.own_names if view is not None else frozenset(),
            frozenset(profile.name for profile in now.config.profiles),
        )

    async def __aenter__(self) -> Engine:
        if not self.waits:
            self._start_servers()
        return self

    def _start_servers(self) -> None:
        self.nesting.ancestry.check_depth()
        self._generations.start()
        self._refresh_timer = asyncio.get_running_loop().call_later(REFRESH_AFTER, self._wake_all)

    def admit(self, client_info: Any) -> None:
        """Starts the servers of a hub that `waits`, once its client is known.

        Raises ProtocolError if the client is refused.
        """
        self.nesting.admit(client_info)
        if self.waits:
            self.waits = False
            self._start_servers()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops all upstreams at the same time, and ends what is left of their processes. Idempotent."""
        self.catalogs.close()
        self._screening.close()
        self.name_check.close()
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
        await self._own_tools.close()
        await self._generations.close()
        if self._groups is not None:
            await self._groups.close()
        if (cache := self._services.kept) is not None:
            await cache.close()
        await self.children.close()

    def _wake_all(self) -> None:
        for upstream in self.upstreams.values():
            upstream.wake()

    def _on_built(self) -> None:
        self.name_check.soon()
        self._screening.soon()
        self.nesting.built()

    # --- the catalog -------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The current catalog for callers without a profile."""
        return self.catalogs.everybodys

    def entry(self, kind: Kind, exposed: str, caller: Caller) -> Json | None:
        """Returns one item as it is listed to a caller now, None if it is not. Must not be mutated."""
        return self.catalogs.of(caller).entry(kind, exposed)

    async def listed_schema(self, tool: str, caller: Caller, envelope: Envelope) -> Any:
        """Returns the input schema with which a tool is listed to a client; None if it is not listed."""
        catalog = await self.catalogs.client_schemas.listed(self.catalogs.of(caller), client_of(envelope))
        return next((entry.wire["inputSchema"] for entry in catalog.entries(TOOLS) if entry.exposed == tool), None)

    async def settled_catalog(self, caller: Caller = SOLE) -> Catalog:
        """Returns a caller's catalog once every upstream has connected or failed (`Catalogs.settled_for`)."""
        return await self.catalogs.settled_for(caller)

    async def missing(self) -> list[Upstream]:
        """Returns the required upstreams that failed, once each was tried; bounded by their connect deadlines."""
        required = [upstream for upstream in self.upstreams.values() if upstream.server.required]
        for upstream in required:
            upstream.start_now()
            await upstream.attempted.wait()
        return [upstream for upstream in required if upstream.error is not None]

    def hurry(self) -> None:
        """Ends all waiting for upstreams that still connect (`Catalogs.hurry`)."""
        self.catalogs.hurry()

    def extensions(self, era: Era, caller: Caller = SOLE) -> Json:
        """Returns the extensions advertised to a client of an era: those of the servers it can see."""
        agreements = self._agreements(caller).values()
        return forwarded_extensions([(agreement.era, agreement.capabilities) for agreement in agreements], era)

    def _agreements(self, caller: Caller) -> dict[str, Agreement]:
        """Returns what was agreed with each server that a caller sees and the hub has reached."""
        ids = self.catalogs.of(caller).upstreams
        agreements = ((id, upstream.agreement) for id, upstream in self.upstreams.items() if id in ids)
        return {id: agreement for id, agreement in agreements if agreement is not None}

    def task(self, sealed: str, caller: Caller) -> tuple[Route, str]:
        """Returns the tool's route and the server's id of a task. Raises ProtocolError for another caller's task."""
        route, task_id = self.task_ids().open(caller, sealed)
        self.catalogs.of(caller)  # brings the catalog up to date, so that the rules have seen the tool
        if route.upstream not in self.upstreams:
            raise unknown_task(sealed)
        return route, task_id

    async def wait_for_cached(self, caller: Caller = SOLE) -> None:
        """Waits until a caller's catalog has what earlier runs cached. It takes time only if that is large."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BUILT_WITHIN):
                for upstream in self.upstreams.values():
                    await upstream.cache_checked.wait()
        await self.catalogs.built_for(caller)

    def instructions(self, caller: Caller = SOLE) -> str | None:
        """Returns the instructions for a client, merged from those of the servers that it sees."""
        agreements = self._agreements(caller).items()
        groups = self._groups.notes_for(caller) if self._groups is not None else ""
        notes = "\n\n".join(filter(None, [self._services.note, groups]))
        server_texts = [(id, self.rules.instructions(id, agreement.instructions)) for id, agreement in agreements]

        def exposed(server: str, uri: str) -> str | None:
            is_visible = self.reaches(Route(server, RESOURCES, uri), caller)
            return self.catalogs.of(caller).exposed_uri(server, uri) if is_visible else None

        return merge_instructions([*server_texts, *instructions_of_skills(self.config.servers, exposed)], notes)

    # --- names and calls ---------------------------------------------------------------------------------------

    async def route(self, kind: Kind, exposed: str, era: Era, caller: Caller = SOLE) -> Route:
        """Returns the route of a name. Raises UnknownName, the same for absent, hidden and refused names."""
        if kind is RESOURCES and self.long_results.owns(exposed):
            return Route(OWN, RESOURCES, exposed)
        catalog = self.catalogs.of(caller)
        route = catalog.resolve(kind, exposed)
        if route in catalog.app_routes:
            self._opened_apps.of(caller).add(route.upstream)
        if route is not None and route.upstream in self.catalogs.unread and route.upstream in self.upstreams:
            await self.catalogs.wait_until_built(self.upstreams[route.upstream].server.deadlines.list)
            route = None if route.upstream in self.catalogs.unread else self.catalogs.of(caller).resolve(kind, exposed)
        if route is None and kind.by_uri:
            route = self.uris.route_of(caller, exposed)
            route = Route(route.upstream, kind, route.name) if route and route.upstream in self.upstreams else None
        if route is None and exposed not in OWN_NAMES:
            await self._wait_for_owners(kind, exposed, caller)
            route = self.catalogs.of(caller).resolve(kind, exposed)
        if route is None:
            catalog = await self.settled_catalog(caller)
            route = catalog.resolve(kind, exposed) or own_route(self.catalogs.exposure, catalog, kind, exposed, caller)
            if route is None and kind is TOOLS and exposed not in OWN_NAMES:
                route = self._route_of_app(catalog, exposed, caller)
        self.catalogs.is_in_use = True
        if route is None or (kind.extension is not None and not self.generation.offers(route)):
            raise unknown_name(kind, exposed, era)
        return route

    def _route_of_app(self, catalog: Catalog, name: str, caller: Caller) -> Route | None:
        """Returns the route of a tool that an app calls by the name its server gave it.

        If several servers have such a tool, it is that of the only one whose app this session has opened. A principal
        may be several programs, so nothing follows from what it has opened.

        Raises UnknownName if several tools may be meant.
        """
        routes = catalog.app_tools(name)
        if len(routes) > 1 and caller.key is None:
            opened = self._opened_apps.get(caller, ())
            routes = [route for route in routes if route.upstream in opened] or routes
        if len(routes) > 1:
            text = f"Ambiguous tool: {name}. Apps of several servers have a tool of this name."
            raise UnknownName(INVALID_PARAMS, text, {"ambiguous": name})
        return routes[0] if routes else None

    async def route_for_model(self, kind: Kind, exposed: str, era: Era, caller: Caller = SOLE) -> Route:
        """Returns what `route` does, for calls that a model makes through the hub's own tools.

        Raises UnknownName also for tools that only apps may call, and for names that only apps use.
        """
        try:
            route = await self.route(kind, exposed, era, caller)
        except UnknownName:  # also an ambiguous name, which is one of apps
            raise unknown_name(kind, exposed, era) from None
        tool = self.entry(kind, exposed, caller)
        if route.upstream != OWN and (tool is None or not may_call("model", tool)):
            raise unknown_name(kind, exposed, era)
        return route

    def record_unknown(self, kind: Kind, exposed: str, era: Era, caller: Caller, envelope: Envelope) -> None:
        """Records a call under an unknown name, with the rule that hides the name if there is one."""
        reason = self.generation.why(kind, exposed, caller.profile) or "unknown"
        self.rules.trace.unknown(kind.act_method, exposed, era, caller, reason, envelope)

    def record_refusal(
        self, method: str, exposed: str, era: Era, caller: Caller, error: Overloaded, envelope: Envelope
    ) -> None:
        """Records a request above its principal's quota."""
        self.rules.trace.record_over_quota(method, exposed, era, caller, error, envelope)

    def record_stranger(self, facts: Json) -> None:
        """Records a request that a listener refused before authentication."""
        self.rules.trace.record_refusal(facts)

    async def _wait_for_owners(self, kind: Kind, exposed: str, caller: Caller) -> None:
        """Waits for the upstreams whose namespace the name begins with, longer than a list does.

        One that has not been asked in this run may have more than its cached catalog. So it is started, lazy or not,
        unless the rules hide such a name from the caller anyway.
        """
        outcomes: list[asyncio.Event] = []
        uri = names.original_uri(exposed)
        for id, upstream in self.upstreams.items():
            prefix = names.expose(upstream.server.namespace, "")
            if kind.by_uri:
                name = uri[1] if uri is not None and uri[0] == id else None
            else:
                name = exposed.removeprefix(prefix) if exposed.startswith(prefix) else None
            if name is None or upstream.attempted.is_set():
                continue
            if self.rules.why(Route(id, kind, name), caller.profile) is None:
                upstream.start_now()
                outcomes.append(upstream.attempted)
            else:
                outcomes.append(upstream.settled)
        longest = max((upstream.server.deadlines.connect for upstream in self.upstreams.values()), default=0.0)
        if await self.catalogs.wait_for(outcomes, longest):
            await self.catalogs.wait_until_built()

    def reaches(self, route: Route, caller: Caller) -> bool:
        """Returns whether a caller may see a resource now."""
        return route.upstream in self.upstreams and self.rules.reaches(route, caller.profile)

    async def forward_notification(self, caller: Caller, method: str) -> None:
        """Passes a client's notification on to the servers whose only client it is."""
        await asyncio.gather(*(upstream.forward_notification(caller, method) for upstream in self.upstreams.values()))

    async def log_from(self, level: str) -> None:
        """Sets the log level of all connected servers. Those that take longer than LEVEL_WAIT get it too."""
        tasks = {self._setting_levels.start(upstream.log_from(level)) for upstream in self.upstreams.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=LEVEL_WAIT)

    def may_ask(self, call: Call) -> bool:
        """Returns whether a call may be parked while its caller answers a question of the server, or of the hub."""
        upstream = self.upstreams.get(call.route.upstream)
        if upstream is not None and (upstream.agreement is None or upstream.agreement.era == "handshake"):
            return True
        return call.route == CODE_RUN or self.rules.confirm.asks_about(call)

    def one_by_one(self, call: Call) -> bool:
        """Returns whether a call waits for the one before it, as one anonymous caller may be several clients."""
        server = self.upstreams[call.route.upstream].server if call.route.upstream in self.upstreams else None
        return server is not None and server.session == "client" and call.caller.is_several

    async def act(self, call: Call, *, listed: bool = True) -> Json:
        """Returns the result of one call in its caller's era. Raises ProtocolError and CallError.

        `listed` is False if no catalog has the tool yet, as its server never was connected: the call connects it.
        """
        if call.route.upstream == OWN:
            find_tool = partial(self.route_for_model, TOOLS, era=call.era, caller=call.caller)
            answer = partial(self._own_tools.call, groups=lambda: self.groups, find=find_tool, act=self._act_within)
            return eras.result_for(call.era, "handshake", call.method, await self.rules.observe(call, answer))
        generation = self._generations.current
        upstream = generation.upstreams.get(call.route.upstream)
        if upstream is None:
            raise unknown_name(call.kind, call.exposed, call.era)  # the server was removed after the call was routed
        rules, counters = generation.rules, (generation.calls, upstream.calls)
        for counter in counters:  # what the call needs of this generation stays until it has ended
            counter.count += 1
        try:
            result = await (rules.chain.run(call) if listed else self._call_unlisted(call, rules, upstream))
        finally:
            for counter in counters:
                counter.count -= 1
                if counter.waiters and not counter.count:
                    counter.notify()
        if call.era == "modern" and "resultType" not in result:
            result = {**result, "resultType": "complete"}  # the hub itself answered
        return result

    async def _act_within(self, call: Call) -> Json:
        """Executes a call that a program makes. It counts against the quotas of its caller like a direct call."""
        if call.allowance is None:
            return await self.act(call)
        try:
            leave = await call.allowance.enter(call.method)
        except Overloaded as error:
            self.record_refusal(call.method, call.exposed, call.era, call.caller, error, call.envelope)
            raise
        try:
            return await self.act(call)
        finally:
            leave()

    async def _call_unlisted(self, call: Call, rules: Rules, upstream: Upstream) -> Json:
        """Calls a tool that no catalog has. Raises UnknownName if its server does not offer it either."""

        async def connect(call: Call) -> Json:
            await upstream.connected()
            await self.catalogs.wait_until_built()
            exposed = self.catalog.exposed(call.route)
            if exposed is None:
                call.refused_by = rules.why(call.route)
                raise UnknownName(INVALID_PARAMS, f"Unknown tool: {call.route.name}")
            call.exposed = exposed
            raise NewlyListedTool

        return await rules.connect_first(call, connect, is_connected=upstream.state in CONNECTED_STATES)

    async def forget_watcher(self, subscriber: object) -> None:
        """Ends the subscriptions of a subscriber that is gone."""
        await asyncio.gather(*(each.forget(subscriber) for each in self._generations.subscriptions))
