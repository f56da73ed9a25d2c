"""The hub: upstreams, the catalog merged from their lists, and the chain every call goes through."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

from mcp_hub import bridge, extensions, instructions, names, resource_uris, tasks
from mcp_hub import era as eras
from mcp_hub.catalog import Catalog, Route
from mcp_hub.catalogs import Catalogs
from mcp_hub.chain import make_rules
from mcp_hub.config.models import Config
from mcp_hub.credentials.tokens import SignIns
from mcp_hub.era import Envelope, Era
from mcp_hub.errors import UpstreamAnswered
from mcp_hub.kept import KeptCatalogs
from mcp_hub.kinds import RESOURCES, TEMPLATES, TOOLS, Kind
from mcp_hub.known_uris import KnownUris
from mcp_hub.long_results import LongResults
from mcp_hub.own_servers import OwnServers, built_in_settings
from mcp_hub.policy import Call, Json, unknown_name
from mcp_hub.policy.selection import EVERYTHING, Selection, strangers
from mcp_hub.tasks import TaskIds
from mcp_hub.upstream.clients import Clients
from mcp_hub.upstream.connection import Upstream
from mcp_hub.upstream.dial import Dialer
from mcp_hub.upstream.starts import Starts
from mcp_hub.upstream.states import State
from mcp_hub.upstream.watches import SUBSCRIBE, UNSUBSCRIBE
from mcp_hub.version import VERSION
from mcp_hub.wire.children import Children

log = logging.getLogger("mcp_hub")

REFRESH_AFTER: Final = 5.0
"""Seconds until upstreams that are served from their kept catalog are started to refresh it."""

OWN: Final = "mcp-hub"
"""The upstream of a route that leads to the hub itself."""


class Hub:
    """`async with Hub(config) as hub:` runs the upstreams; `act` carries one call out.

    One loop, one hub. `kept` is where catalogs are kept between runs, `record` gets a record of every call; None for
    nowhere.
    """

    def __init__(
        self,
        config: Config,
        *,
        environ: Mapping[str, str] | None = None,
        kept: KeptCatalogs | None = None,
        selection: Selection = EVERYTHING,
        one_client: bool = False,
        record: Callable[[Json], None] | None = None,
    ) -> None:
        self.config = config
        self.info: dict[str, Any] = {"name": "mcp-hub", "title": "mcp-hub", "version": VERSION}
        self.children = Children()
        self.uris = KnownUris(lambda caller: self.catalogs.of(caller))
        self.clients = Clients(expected=one_client, uris=self.uris)
        dialer = Dialer(self.children, environ, partial(built_in_settings, config), SignIns(config).of)
        starts = Starts()
        self.upstreams: dict[str, Upstream] = {
            server.id: Upstream(server, dialer, self.info, self.clients, starts, kept, self._lists_changed)
            for server in config.servers
        }
        self.own = OwnServers(
            config,
            self.upstreams,
            lambda server: Upstream(server, dialer, self.info, Clients(expected=False), starts, None, lambda: None),
        )
        self._kept = kept
        self._long_results = LongResults(time.monotonic)
        self.rules = make_rules(
            config,
            selection,
            self._ask,
            record=record,
            listed=self._listed_tool,
            scrape=self.own.scrape,
            run_function=self.own.run_function,
            long_results=self._long_results,
        )
        self.selection = selection
        self._told_of_strangers = False
        self.catalogs = Catalogs(
            self.upstreams, self.rules.chain.shape, config.on_conflict, self.info, self._tell_of_strangers
        )
        self._patience_ends: float | None = None
        self._refresh: asyncio.TimerHandle | None = None
        self._hurried = asyncio.Event()

    async def __aenter__(self) -> Hub:
        for upstream in self.upstreams.values():
            upstream.start()
        self._refresh = asyncio.get_running_loop().call_later(REFRESH_AFTER, self._wake_all)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every upstream, all at the same time, and what is left of their processes. Idempotent."""
        self.catalogs.close()
        if self._refresh is not None:
            self._refresh.cancel()
        stopping = (upstream.stop() for upstream in self.upstreams.values())
        await asyncio.gather(*stopping, self.own.close(), return_exceptions=True)
        await self.children.close()

    def _wake_all(self) -> None:
        for upstream in self.upstreams.values():
            upstream.wake()

    def _lists_changed(self) -> None:
        self.catalogs.changed()

    # --- the catalog -------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """What is known now."""
        return self.catalogs.everybodys

    async def settled_catalog(self, caller: Hashable | None = None) -> Catalog:
        """What a caller sees once every upstream's first outcome is known, or the first has waited `list_wait`."""
        if self._patience_ends is None:
            self._patience_ends = time.monotonic() + self.config.list_wait
        await self._wait_for(list(self.upstreams.values()), self._patience_ends - time.monotonic())
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
        for upstream in self.upstreams.values():
            upstream.forget(caller)

    def extensions(self, era: Era) -> Json:
        """What clients of an era are told of extensions: those of the servers of which something is exposed."""
        shown = self.catalog.upstreams
        agreed = [u.agreement for u in self.upstreams.values() if u.server.id in shown and u.agreement is not None]
        return extensions.advertised([(one.era, one.capabilities) for one in agreed], era)

    @cached_property
    def _task_ids(self) -> TaskIds:
        key = self._kept.secret("tasks") if self._kept is not None else None
        return TaskIds(key or secrets.token_bytes(32))

    def task(self, sealed: str, caller: Hashable | None) -> tuple[Route, str]:
        """The tool and its server's id of a task. Raises ProtocolError for what this caller was not given."""
        route, task_id = self._task_ids.open(caller, sealed)
        if route.upstream not in self.upstreams:
            raise tasks.unknown_task(sealed)
        return route, task_id

    @property
    def instructions(self) -> str | None:
        """What clients are told at the start, of the servers of which something is exposed."""
        shown = self.catalog.upstreams
        agreed = ((u.server.id, u.agreement) for u in self.upstreams.values() if u.server.id in shown)
        return instructions.merged((id, one.instructions if one is not None else None) for id, one in agreed)

    # --- names and calls ---------------------------------------------------------------------------------------

    async def route(self, kind: Kind, exposed: str, era: Era, caller: Hashable | None = None) -> Route:
        """Where a call under this name goes. Raises UnknownName, the same for absent, hidden and refused."""
        if kind is RESOURCES and self._long_results.owns(exposed):
            return Route(OWN, RESOURCES, exposed)
        route = self.catalogs.of(caller).resolve(kind, exposed)
        if route is None and kind is RESOURCES:
            route = self.uris.given(caller, exposed)
        if route is None:
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

    def why(self, kind: Kind, exposed: str) -> str | None:
        """The rule that hides a name, for the user of the hub and the log; None if nothing here has it."""
        for upstream in self.upstreams.values():
            server = upstream.server
            for wire in (*upstream.lists.items.get(kind, ()), *upstream.own_lists.items(kind)):
                name = wire.get(kind.name_key) if isinstance(wire, dict) else None
                if not isinstance(name, str):
                    continue
                shown = (name, names.expose(server.namespace, name), f"{server.id}/{name}")
                if exposed in shown and (reason := self.rules.access.why(Route(server.id, kind, name))) is not None:
                    return reason
        return None

    def missed(self, kind: Kind, exposed: str, era: Era, caller: Hashable | None, envelope: Envelope) -> None:
        """Record that somebody used a name that leads nowhere, and which rule hides it if one does."""
        reason = self.why(kind, exposed) or "unknown"
        self.rules.trace.unknown(kind.act_method, exposed, era, caller, reason, envelope)

    def strangers(self, members: Iterable[str]) -> tuple[str, ...]:
        """Members of tool sets that no server lists; () while a server that may list them is missing."""
        if any(u.error is not None or u.state is not State.READY for u in self.upstreams.values() if u.server.enabled):
            return ()
        listed = [
            (upstream.server, tool["name"])
            for upstream in self.upstreams.values()
            for tool in upstream.lists.items.get(TOOLS, ())
            if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        ]
        return strangers(members, listed)

    def _tell_of_strangers(self) -> None:
        """Once, when all servers are there: what was chosen and is nowhere."""
        members = self.selection.members or ()
        if members and all(u.tried.is_set() for u in self.upstreams.values()) and not self._told_of_strangers:
            self._told_of_strangers = True
            for member in self.strangers(members):
                log.warning("%s: no server has a tool %r", self.selection.name, member)

    def _who_may_have(self, exposed: str) -> list[Upstream]:
        """Upstreams still starting whose namespace the name begins with: worth waiting for longer than a list is."""
        return [u for u in self.upstreams.values() if u.server.namespace and exposed.startswith(u.server.namespace)]

    def _longest_connect(self) -> float:
        return max((u.server.deadlines.connect for u in self.upstreams.values()), default=0.0)

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
        if call.route.upstream == OWN and call.kind is RESOURCES:
            return await self.rules.trace(call, self._read_long_result)
        result = await self.rules.chain.run(call)
        if call.era == "modern" and "resultType" not in result:
            result = {**result, "resultType": "complete"}  # it is the hub's own
        return result

    async def _read_long_result(self, call: Call) -> Json:
        reading = call.method == RESOURCES.act_method
        page = self._long_results.read(call.exposed, call.caller) if reading else None
        if page is None:
            raise unknown_name(RESOURCES, call.exposed, call.era)
        return eras.result_for(call.era, "handshake", call.method, page)

    async def _watch(self, upstream: Upstream, call: Call) -> Json:
        if call.method == UNSUBSCRIBE:
            await upstream.watching.unwatch(call.route.name, call.caller, call.subscriber)
        elif call.on_update is not None:
            await upstream.watching.watch(call.route.name, call.caller, call.subscriber, call.on_update)
        return {}

    async def forget_watcher(self, who: Hashable) -> None:
        """A subscriber is gone; what only it wanted to hear of is nobody's news any more."""
        await asyncio.gather(*(upstream.watching.forget(who) for upstream in self.upstreams.values()))

    def _listed_tool(self, route: Route) -> Json | None:
        """A tool as its server lists it."""
        if route.kind is not TOOLS:
            return None
        upstream = self.upstreams[route.upstream]
        return upstream.lists.tool(route.name) or upstream.own_lists.tool(route.name)

    async def _ask(self, call: Call) -> Json:
        upstream = self.upstreams[call.route.upstream]
        call.attempts += 1
        if call.method in (SUBSCRIBE, UNSUBSCRIBE):
            return await self._watch(upstream, call)
        # What a handshake client can be asked a modern server is told with each request, as everybody else.
        envelope = call.envelope
        if call.era == "handshake":
            offered = extensions.told(envelope.capabilities, "handshake") if call.asker is not None else {}
            envelope = Envelope(capabilities=offered, log_level=envelope.log_level)
        else:
            envelope = replace(envelope, capabilities=extensions.told(envelope.capabilities, "modern"))

        def exposed(uri: str) -> str:
            known = uri == call.route.name and call.kind is RESOURCES
            return call.exposed if known else self.uris.exposed(call.caller, call.route.upstream, uri)

        original = partial(self.uris.original, call.caller, call.route.upstream)

        async def ask(more: Json) -> Json:
            if call.asker is not None:
                await call.asker.turn()
            try:
                answered = await upstream.request(
                    call.method,
                    resource_uris.in_request({**call.params, **more}, original),
                    caller=call.caller,
                    envelope=envelope,
                    on_progress=call.on_progress,
                    asker=call.asker,
                    hear=call.on_message,
                )
            except UpstreamAnswered as error:
                raise UpstreamAnswered(resource_uris.in_error(call.method, error.error, exposed)) from None
            spoken.append(answered.era)
            return resource_uris.in_result(call.method, answered.result, exposed)

        spoken: list[Era] = []
        result = await ask({})
        if call.era == "handshake" and bridge.wants_input(result):
            result = await bridge.driven(result, call.asker, ask)
        result = eras.result_for(call.era, spoken[-1], call.method, result)
        return await self._task_of(call, result) if call.kind is TOOLS and tasks.ID in result else result

    async def _task_of(self, call: Call, result: Json) -> Json:
        """A result about a task: its id as the caller knows it, what it has come to as the rules leave it."""
        inner = result.get("result")
        if call.method == tasks.GET and isinstance(inner, dict):
            made = replace(call, method=TOOLS.act_method)
            result = {**result, "result": await self.rules.shaped(made, inner)}
        elif call.method == TOOLS.act_method and result.get("resultType") != tasks.RESULT_TYPE:
            return result
        return self._task_ids.in_result(call.caller, call.route, result)
