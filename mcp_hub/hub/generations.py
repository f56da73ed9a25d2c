"""Generations: a loaded configuration at work, and the change from one to the next while calls run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.catalog import Route, names
from mcp_hub.catalog.exposed_ids import TaskSealer, UriMap
from mcp_hub.codes import with_code
from mcp_hub.config.ancestry import Ancestry
from mcp_hub.config.builtin_servers import refuse_over_network
from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.errors import ConfigError
from mcp_hub.hub.catalogs import Catalogs
from mcp_hub.hub.internal_servers import InternalServers
from mcp_hub.observability.call_metrics import CallMetrics
from mcp_hub.observability.stalls import in_thread
from mcp_hub.observability.tracing import SpanTracing
from mcp_hub.policy import Json
from mcp_hub.policy.access import tags_of
from mcp_hub.policy.approvals import Approvals
from mcp_hub.policy.call_record import RecordLabels, RecordTap
from mcp_hub.policy.chain import Rules, rule_names
from mcp_hub.policy.data_flow import UsedLabels
from mcp_hub.policy.long_results import LongResults
from mcp_hub.policy.pins import PinFileWatcher
from mcp_hub.policy.rule_names import ListedServer, RuleNames, UnmatchedName, unmatched_names
from mcp_hub.policy.screen import ScreenReview
from mcp_hub.policy.selection import Selection
from mcp_hub.policy.sharing import Sharing
from mcp_hub.protocol.kinds import MAX_NAME, TOOLS, Kind, name_of
from mcp_hub.security.callers import Caller
from mcp_hub.security.private_files import PendingWrites
from mcp_hub.security.redaction import LEARNED, MAX_HELD
from mcp_hub.text import printable
from mcp_hub.transport.background import BACKGROUND, TaskSet
from mcp_hub.transport.children import Children
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.attribution import ClientRegistry
from mcp_hub.upstream.catalog_cache import CatalogCache
from mcp_hub.upstream.lifecycle import CONNECTED_STATES, ReferenceCount, StartLimiter
from mcp_hub.upstream.link_dialer import Functions, LinkDialer
from mcp_hub.upstream.subscription_registry import SubscriptionRegistry


class SharedServices(msgspec.Struct, frozen=True):
    """The parts of a hub that outlive its generations; the composition root makes them."""

    info: dict[str, Any]
    """`serverInfo` of the hub."""
    environ: Mapping[str, str] | None
    children: Children
    catalogs: Catalogs
    uris: UriMap
    clients: ClientRegistry
    metrics: CallMetrics
    kept: CatalogCache | None
    """Where catalogs are cached between runs; None: nowhere."""
    record: Callable[[Json], None] | None
    """Takes the record of each call; None: no records are written."""
    long_results: LongResults
    task_ids: TaskSealer
    """Seals the ids of tasks; made at the first use."""
    ancestry: Ancestry
    starts: StartLimiter
    labels: RecordLabels
    tap: RecordTap
    """Passes the records on while somebody watches."""
    used: UsedLabels
    """Data-flow labels that each session has used so far."""
    approvals: Approvals
    """How long each policy took, while somebody watches."""
    token_writes: PendingWrites
    sharing: Sharing
    """Reaches the other replicas of the hub."""
    tracer_provider: Any = None
    """A provider of OpenTelemetry, to be used in place of the configured exporter."""
    functions: Functions | None = None
    """Functions of the program that the hub runs in."""
    note: str = ""
    """The hub's own part of its instructions."""


log = logging.getLogger("mcp_hub")

MAX_RETIRING: Final = 32
"""The most upstreams of former generations that wait for their calls to end; beyond it, the oldest stop at once."""
PARKED_SECONDS: Final = 300.0
"""Seconds by which a call may outlive its deadline: the deadline is suspended while its caller is asked."""


MAX_COMPARED_NAMES: Final = 5_000
"""The most listed names that an unknown name is compared with, in a few ms; the reason it is hidden is only logged."""


class Generation:
    """One loaded configuration at work: its upstreams and rules. `number` counts from 1.

    Once in use only `exchange` changes it.
    """

    def __init__(
        self,
        number: int,
        config: Config,
        selection: Selection,
        upstreams: dict[str, Upstream],
        internal_servers: InternalServers,
        dialer: LinkDialer,
    ) -> None:
        self.number = number
        self.config = config
        self.selection = selection
        self.upstreams: Mapping[str, Upstream] = upstreams
        self._upstreams = upstreams
        self.has_own_sessions = any(upstream.server.session == "client" for upstream in upstreams.values())
        """Whether servers keep a session for each client."""
        self.has_own_lists = any(
            upstream.server.session == "client" and upstream.server.origin == "mcp" for upstream in upstreams.values()
        )
        """Whether such servers may list something else to each client; the hub's own never do."""
        self.internal_servers = internal_servers
        self.dialer = dialer
        self.pin_watch: PinFileWatcher | None = None
        """None where nothing is pinned."""
        self.rules: Rules
        """Set right after the generation is made, as the rules ask it for listed tools."""
        self.tracing: SpanTracing | None = None
        """Generations with the same settings share it; None: calls are not traced."""
        self.calls = ReferenceCount()

    def exchange(self, upstream: Upstream) -> Upstream:
        """Replaces the upstream of the same id, and returns the former one."""
        former_upstream = self._upstreams[upstream.server.id]
        self._upstreams[upstream.server.id] = upstream
        return former_upstream

    def listed_tool(self, route: Route, caller: Caller) -> Json | None:
        """Returns a tool as its server lists it to a caller; None for anything else, the hub's own tools included."""
        upstream = self.upstreams.get(route.upstream)
        if route.kind is not TOOLS or upstream is None:
            return None
        # Few upstreams have own sessions: the others are spared a frame, as every call passes here.
        lists = upstream.lists_of(caller, TOOLS) if upstream.caller_lists.all else upstream.lists
        return lists.tools.get(route.name)

    def offers(self, route: Route) -> bool:
        """Returns whether a server may be asked for an item of a kind that not all servers have."""
        upstream = self.upstreams.get(route.upstream)
        return upstream is not None and (upstream.agreement is None or upstream.agreement.offers(route.kind))

    def refresh(self, kind: Kind) -> None:
        """Fetches a list again in the background, for kinds whose changes servers do not notify."""
        for upstream in self.upstreams.values():
            if upstream.agreement is not None and upstream.agreement.offers(kind):
                upstream.list_store.refresh(kind)

    @property
    def listed(self) -> dict[str, Upstream]:
        """The upstreams that are connected and have been listed, by id."""
        return {id: u for id, u in self.upstreams.items() if u.error is None and u.state in CONNECTED_STATES}

    async def unmatched_names(self) -> tuple[UnmatchedName, ...]:
        """Returns the names in rules that match nothing of the servers that have been listed until now."""
        if not (rules := rule_names(self.config)):
            return ()
        lists: dict[str, dict[Kind, list[Any]]] = {
            id: {kind: [*wires, *upstream.caller_lists.items(kind)] for kind, wires in upstream.lists.items.items()}
            for id, upstream in self.listed.items()
        }
        return await in_thread(self._unmatched, rules, lists)

    def _unmatched(
        self, rules: Sequence[RuleNames], lists: dict[str, dict[Kind, list[Any]]]
    ) -> tuple[UnmatchedName, ...]:
        listed = {}
        # Not `upstream.server`: before a generation is in force, that is the entry of the former one.
        servers = {
            server.id: server.model_copy(update={"enabled": self.upstreams[server.id].server.enabled})
            for server in self.config.servers
        }
        for id, wires_by_kind in lists.items():
            server = servers[id]
            items = {
                kind: {name: wire for wire in wires if (name := name_of(kind, wire))}
                for kind, wires in wires_by_kind.items()
            }
            tags = (tags_of(server, Route(id, TOOLS, name), wire) for name, wire in items.get(TOOLS, {}).items())
            incomplete = frozenset(self.upstreams[id].lists.shortfalls)
            listed[id] = ListedServer(server, items, incomplete, frozenset().union(*tags))
        return unmatched_names(rules, list(servers.values()), listed)

    def why(self, kind: Kind, exposed: str, profile: str | None = None) -> str | None:
        """Returns the rule that hides a name, for the log and the user; None if no server lists the name."""
        access, compared_count = self.rules.access, 0
        if len(exposed) > 2 * MAX_NAME:
            return None
        for upstream in self.upstreams.values():
            server = upstream.server
            prefix = names.expose(server.namespace, "")
            for wire in (*upstream.lists.items.get(kind, ()), *upstream.caller_lists.items(kind)):
                name = name_of(kind, wire)
                compared_count += 1
                if compared_count > MAX_COMPARED_NAMES:
                    return None
                if not name:
                    continue
                has_prefix = len(exposed) == names.MAX_LENGTH or exposed.startswith(prefix)
                listed = (name, f"{server.id}/{name}", names.expose(server.namespace, name) if has_prefix else name)
                if exposed in listed and (reason := access.why(Route(server.id, kind, name), profile)) is not None:
                    return reason
        return None


class RetiringResources:
    """Stops upstreams and services of former generations, each as soon as the calls that use it have ended."""

    def __init__(self) -> None:
        self._waiting_tasks: dict[asyncio.Task[None], Callable[[], Any]] = {}
        """Tasks that wait for calls to end, the oldest first, and what each stops then."""
        self._stopping_tasks = TaskSet()

    def upstream(self, upstream: Upstream) -> None:
        """Stops an upstream when its calls have ended, at the latest by their own deadlines."""
        self._retire(upstream.calls, upstream.server.deadlines.call + PARKED_SECONDS, upstream.stop)

    def generation(self, generation: Generation, successor: Generation) -> None:
        """Ends what a generation does not share with its successor, when its calls have ended."""

        async def stop() -> None:
            await generation.internal_servers.close()
            if generation.tracing is not None and generation.tracing is not successor.tracing:
                await generation.tracing.close()

        longest_deadline = max((u.server.deadlines.call for u in generation.upstreams.values()), default=0.0)
        self._retire(generation.calls, longest_deadline + PARKED_SECONDS, stop)

    def _retire(self, calls: ReferenceCount, seconds: float, stop: Callable[[], Any]) -> None:
        while len(self._waiting_tasks) >= MAX_RETIRING:
            oldest = next(iter(self._waiting_tasks))
            self._stopping_tasks.start(self._waiting_tasks.pop(oldest)())
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(_stop_when_unused(calls, seconds, stop))
        self._waiting_tasks[task] = stop
        task.add_done_callback(lambda done: self._waiting_tasks.pop(done, None))

    async def stopped(self, upstream: Upstream) -> None:
        """Stops an upstream now; its calls fail."""
        await asyncio.wait({self._stopping_tasks.start(upstream.stop())})

    async def close(self) -> None:
        """Stops everything now. Never raises."""
        stops = list(self._waiting_tasks.values())
        for task in list(self._waiting_tasks):
            task.cancel()
        await asyncio.gather(*(stop() for stop in stops), *self._stopping_tasks, return_exceptions=True)


async def _stop_when_unused(calls: ReferenceCount, seconds: float, stop: Callable[[], Any]) -> None:
    if not await calls.wait_until_unused(seconds):
        log.warning("calls of a former configuration did not end within %g s; their servers are stopped", seconds)
    await stop()


RENEW_WAIT: Final = 10.0
"""Seconds that a new generation waits for the upstreams it starts, before it is in force."""


Build = Callable[[int, Config, Selection, "Generation | None"], Generation]
"""`build(number, config, selection, former)` makes a generation that takes over what `former` can leave it."""


class Generations:
    """Holds the generation in force as `now`, and replaces it. Raises ConfigError if the pins cannot be read."""

    def __init__(self, services: SharedServices, build: Build, config: Config, selection: Selection) -> None:
        self._services = services
        self._build = build
        self._over_network = False
        self._started = False
        self._retiring = RetiringResources()
        self._renewal_lock = asyncio.Lock()
        self._pin_task: asyncio.Task[None] | None = None
        self._retired: dict[str, None] = {}
        """Secrets of former configurations, the oldest first."""
        self._removed_subscriptions: dict[str, SubscriptionRegistry] = {}
        """Subscriptions to servers that are no longer configured, by id; renewed when the server comes back."""
        self._tracing: SpanTracing | None = None
        """The tracing of the generation in force."""
        self.current = build(1, config, selection, None)

    def screen(self) -> ScreenReview:
        """Returns the screen of the generation in force."""
        rules = self.current.rules
        return rules.screen

    def over_network(self) -> None:
        """Applies the restrictions of a network listener.

        Raises ConfigError if a server must not be served over the network.
        """
        refuse_over_network(self.current.config)
        self._over_network = True

    def start(self) -> None:
        """Starts the upstreams of the generation in force."""
        self._started = True
        for upstream in self.current.upstreams.values():
            upstream.start()
        self._watch_pins()
        self._start_tracing()

    @property
    def subscriptions(self) -> list[SubscriptionRegistry]:
        """The subscriptions to the servers in force, and to removed ones that may come back."""
        return [*(u.subscriptions for u in self.current.upstreams.values()), *self._removed_subscriptions.values()]

    async def renew(
        self, config: Config, selection: Selection, on_applied: Callable[[], None], *, strict: bool = False
    ) -> Generation:
        """Changes to another configuration; `on_applied()` is called as soon as it is in force.

        New upstreams are started first, and waited for at most `RENEW_WAIT` seconds. Upstreams whose entry still
        describes the same process keep it with all their sessions; the others stop when their last call has ended.

        Raises ConfigError if the pins cannot be read, a server must not be served over the network, or, with `strict`,
        a name in a rule matches nothing of the servers that are listed by then; nothing has changed then.
        """
        async with self._renewal_lock:
            former = self.current
            if self._over_network:
                refuse_over_network(config)
            successor = await asyncio.to_thread(self._build, former.number + 1, config, selection, former)
            new_upstreams = [
                u for id, u in successor.upstreams.items() if former.upstreams.get(id) is not u and self._started
            ]
            try:
                await _begin(new_upstreams, every=strict)
                if strict and (unmatched := await successor.unmatched_names()):
                    lines = (f"{printable(name.key, 300)}: {with_code(name.text)}" for name in unmatched)
                    raise ConfigError("\n".join(lines), codes.MEMBER_UNKNOWN)
            except BaseException:  # refused, or the hub is closing: nothing else refers to them
                for upstream in new_upstreams:
                    self._retiring.upstream(upstream)
                raise
            self.current = successor
            self._retire_secrets(former.config, config)
            for server in config.servers:
                upstream, former_upstream = successor.upstreams[server.id], former.upstreams.get(server.id)
                if upstream is former_upstream:
                    upstream.renew(server)
                elif former_upstream is not None:
                    upstream.succeed(former_upstream)
                elif (removed := self._removed_subscriptions.pop(server.id, None)) is not None:
                    upstream.subscriptions.inherit(removed)
            for id in former.upstreams.keys() - successor.upstreams.keys():
                self._removed_subscriptions[id] = former.upstreams[id].subscriptions
            self._removed_subscriptions = {id: left for id, left in self._removed_subscriptions.items() if left.in_use}
            on_applied()
            self._watch_pins()
            self._start_tracing()
            for id, upstream in former.upstreams.items():
                if successor.upstreams.get(id) is not upstream:
                    self._retiring.upstream(upstream)
            self._retiring.generation(former, successor)
            return successor

    async def exchange(self, build: Callable[[Generation], Upstream]) -> Upstream:
        """Replaces one upstream of the generation in force by `build(generation)`, of the same id.

        The former one is stopped first, so that a server never runs twice; calls that come meanwhile wait.

        Raises ConfigError if the server must not be served over the network, and what `build` raises; nothing has
        changed then.
        """
        async with self._renewal_lock:
            upstream = build(self.current)
            if self._over_network:
                refuse_over_network(self.current.config.model_copy(update={"servers": (upstream.server,)}))
            former_upstream = self.current.exchange(upstream)
            await self._retiring.stopped(former_upstream)
            upstream.succeed(former_upstream)
            upstream.starts = former_upstream.starts
            if self._started:  # else the hub is closing
                upstream.start()
                upstream.wake()
            return upstream

    def _retire_secrets(self, former_config: Config, config: Config) -> None:
        """Keeps redacting secrets that have left the configuration, as servers that know them may still send them."""
        now = frozenset(secrets_of(config))
        self._retired = {secret: None for secret in (*self._retired, *secrets_of(former_config)) if secret not in now}
        while len(self._retired) > MAX_HELD:
            del self._retired[next(iter(self._retired))]
        LEARNED.hold(self, self._retired)

    async def close(self) -> None:
        """Stops every upstream, those of former generations included, at the same time. Never raises."""
        self._started = False
        if self._pin_task is not None:
            self._pin_task.cancel()
        stopping = (upstream.stop() for upstream in self.current.upstreams.values())
        await asyncio.gather(
            *stopping, self.current.internal_servers.close(), self._retiring.close(), return_exceptions=True
        )
        rules = self.current.rules
        await rules.trace.close()
        await self._services.token_writes.close()
        if self._tracing is not None:
            await self._tracing.close()  # the last, for the spans of the calls that have ended with the upstreams

    def _watch_pins(self) -> None:
        if self._pin_task is not None:
            self._pin_task.cancel()
        watch = self.current.pin_watch
        self._pin_task = BACKGROUND.keep("pins", watch.run) if watch is not None else None

    def _start_tracing(self) -> None:
        self._tracing = self.current.tracing
        if self._tracing is not None:
            self._tracing.start()


async def _begin(upstreams: Sequence[Upstream], *, every: bool) -> None:
    """Starts upstreams, and waits at most `RENEW_WAIT` until each has connected or failed; lazy ones if `every`."""
    for upstream in upstreams:
        upstream.start()
        upstream.wake()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RENEW_WAIT):
            if every:
                await asyncio.gather(*(upstream.tried() for upstream in upstreams))
            for upstream in upstreams:
                if not upstream.server.lazy:
                    await upstream.attempted.wait()
