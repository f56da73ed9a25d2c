"""The generation in force, and the way from one to the next while calls run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.catalog.known_uris import KnownUris
from mcp_hub.catalog.tasks import TaskIds
from mcp_hub.config.ancestry import Ancestry
from mcp_hub.config.exposure import refuse_over_network
from mcp_hub.config.file_stamps import tool_files
from mcp_hub.config.models import Config, Server
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.errors import ConfigError
from mcp_hub.hub.generation import Generation, Retiring
from mcp_hub.hub.own_servers import OwnServers, built_in_settings
from mcp_hub.hub.pin_file import Pins, PinWatch, read_pins
from mcp_hub.hub.relay import Relay
from mcp_hub.oauth.store import StoreFailed
from mcp_hub.oauth.tokens import SignIns
from mcp_hub.observability.metrics import Metrics
from mcp_hub.policy import Json
from mcp_hub.policy.chain import make_rules
from mcp_hub.policy.flow import Used
from mcp_hub.policy.long_results import LongResults
from mcp_hub.policy.selection import Selection
from mcp_hub.policy.trace import Labels
from mcp_hub.security.private_files import PendingWrites
from mcp_hub.security.redaction import LEARNED, MAX_HELD
from mcp_hub.transport.children import Children
from mcp_hub.upstream.clients import Clients
from mcp_hub.upstream.connection import Upstream
from mcp_hub.upstream.dial import Dialer, Functions
from mcp_hub.upstream.kept import KeptCatalogs
from mcp_hub.upstream.starts import Starts

if TYPE_CHECKING:
    from mcp_hub.observability.tracing import Tracing

RENEW_WAIT: Final = 10.0
"""Seconds a new generation waits for the upstreams it has to start before it takes over."""


class Lasting(msgspec.Struct, frozen=True):
    """What of a hub outlives its generations. `lists_changed()` is called when those of an upstream have changed, with
    `reviewed` when a rule may find something else in them."""

    info: dict[str, Any]
    environ: Mapping[str, str] | None
    children: Children
    clients: Clients
    uris: KnownUris
    kept: KeptCatalogs | None
    record: Callable[[Json], None] | None
    long_results: LongResults
    task_ids: Callable[[], TaskIds]
    lists_changed: Callable[..., None]
    metrics: Metrics
    ancestry: Ancestry
    tracer_provider: Any = None
    """What calls are traced with instead of what the configuration says."""
    functions: Functions | None = None


class Generations:
    """`now` is the one in force. Raises ConfigError for pins that cannot be read."""

    def __init__(self, lasting: Lasting, config: Config, selection: Selection) -> None:
        self._lasting = lasting
        self._over_network = False
        self._started = False
        self._starts = Starts()
        self._labels = Labels()
        self.used = Used()
        """What sessions have used of what servers are labelled with."""
        self._retiring = Retiring()
        self._token_writes = PendingWrites(StoreFailed)
        self._renewing = asyncio.Lock()
        self._watching_pins: asyncio.Task[None] | None = None
        self._retired: dict[str, None] = {}
        """Secrets of former configurations, the oldest first."""
        self._tracing: Tracing | None = None
        """That of the generation in force."""
        self.now = self._make(1, config, selection, {})

    def over_network(self) -> None:
        """From now on it is served over a network. Raises ConfigError if a server must not be."""
        refuse_over_network(self.now.config)
        self._over_network = True

    def start(self) -> None:
        """Begin the lives of its upstreams."""
        self._started = True
        for upstream in self.now.upstreams.values():
            upstream.start()
        self._watch_pins()
        self._start_tracing()

    async def renew(self, config: Config, selection: Selection, taken_over: Callable[[], None]) -> Generation:
        """Go over to another configuration; `taken_over()` is called as soon as it is in force.

        What is new is started first, and waited for at most `RENEW_WAIT` seconds. Upstreams whose entry still means
        the same process keep it with all their sessions; what nobody needs any more ends with its last call.
        Raises ConfigError for pins that cannot be read, and over a network for servers that must not be there; then
        nothing has changed.
        """
        async with self._renewing:
            former = self.now
            coming = await asyncio.to_thread(self._make, former.number + 1, config, selection, former.upstreams)
            fresh = [u for id, u in coming.upstreams.items() if former.upstreams.get(id) is not u and self._started]
            try:
                for upstream in fresh:
                    upstream.start()
                    upstream.wake()
                await _tried([upstream for upstream in fresh if not upstream.server.lazy], RENEW_WAIT)
            except BaseException:  # the hub ends meanwhile: nobody else knows of them
                for upstream in fresh:
                    self._retiring.upstream(upstream)
                raise
            self.now = coming
            self._retire_secrets(former.config, config)
            for server in config.servers:
                upstream, before = coming.upstreams[server.id], former.upstreams.get(server.id)
                if upstream is before:
                    upstream.renew(server)
                elif before is not None:
                    upstream.succeed(before)
            taken_over()
            self._watch_pins()
            self._start_tracing()
            for id, upstream in former.upstreams.items():
                if coming.upstreams.get(id) is not upstream:
                    self._retiring.upstream(upstream)
            self._retiring.generation(former, coming)
            return coming

    def _retire_secrets(self, former: Config, config: Config) -> None:
        """Servers that were given a secret may say it after it has left the configuration."""
        now = frozenset(secrets_of(config))
        self._retired = {secret: None for secret in (*self._retired, *secrets_of(former)) if secret not in now}
        while len(self._retired) > MAX_HELD:
            del self._retired[next(iter(self._retired))]
        LEARNED.hold(self, self._retired)

    async def close(self) -> None:
        """Stop every upstream, also those of former generations, all at the same time. Never raises."""
        if self._watching_pins is not None:
            self._watching_pins.cancel()
        stopping = (upstream.stop() for upstream in self.now.upstreams.values())
        await asyncio.gather(*stopping, self.now.own.close(), self._retiring.close(), return_exceptions=True)
        await self._token_writes.close()
        if self._tracing is not None:
            await self._tracing.close()  # the last, for the spans of the calls that have ended with the upstreams

    def _watch_pins(self) -> None:
        if self._watching_pins is not None:
            self._watching_pins.cancel()
        watch = self.now.pin_watch
        self._watching_pins = asyncio.create_task(watch.run(), name="pins") if watch is not None else None

    def _make(self, number: int, config: Config, selection: Selection, former: Mapping[str, Upstream]) -> Generation:
        """A generation that takes over those of the former upstreams whose entry still means the same process."""
        if self._over_network:
            refuse_over_network(config)
        lasting = self._lasting
        dialer = Dialer(
            lasting.children,
            lasting.environ,
            partial(built_in_settings, config),
            SignIns(config, self._token_writes).of,
            lasting.functions,
            msgspec.structs.replace(lasting.ancestry, limit=config.max_hub_depth),
        )

        def connect(server: Server, made_from: tuple[Any, ...]) -> Upstream:
            return Upstream(
                server,
                dialer,
                lasting.info,
                lasting.clients,
                self._starts,
                lasting.kept,
                lasting.lists_changed,
                made_from,
            )

        def connect_unseen(server: Server) -> Upstream:
            nobody = Clients(expected=False)
            return Upstream(server, dialer, lasting.info, nobody, self._starts, None, lambda: None)

        upstreams: dict[str, Upstream] = {}
        for server in config.servers:
            made_from = _made_from(server, config)
            known = former.get(server.id)
            same = known is not None and known.made_from == made_from and not known.left_out
            upstreams[server.id] = known if known is not None and same else connect(server, made_from)
        own = OwnServers(config, upstreams, connect_unseen)
        generation = Generation(number, config, selection, upstreams, own, dialer)
        pinned: Pins = {}
        if any(config.pins_of(server) != "off" for server in config.servers):
            if config.pins_file is None:
                raise ConfigError("pins need a file: set pins.file")
            generation.pin_watch = PinWatch(config.pins_file, partial(self._pinned, generation))
            pinned = read_pins(config.pins_file)
        generation.tracing = self._tracing_of(config)
        relay = Relay(upstreams, lasting.uris, lasting.task_ids, lambda call, result: rules.shaped(call, result))
        rules = generation.rules = make_rules(
            config,
            selection,
            relay,
            record=lasting.record,
            labels=self._labels,
            used=self.used,
            listed=generation.listed_tool,
            scrape=own.scrape,
            run_function=own.run_function,
            long_results=lasting.long_results,
            pinned=pinned,
            measure=lasting.metrics.record,
            tracer=generation.tracing.tracer if generation.tracing is not None else None,
            in_program=lasting.functions is not None,
        )
        return generation

    def _tracing_of(self, config: Config) -> Tracing | None:
        """That of the generation in force, if it is set up in the same way."""
        if not config.tracing.enabled and self._lasting.tracer_provider is None:
            return None
        from mcp_hub.observability.tracing import Tracing

        same = self._tracing is not None and self._tracing.settings == config.tracing
        return self._tracing if same else Tracing(config.tracing, self._lasting.tracer_provider)

    def _start_tracing(self) -> None:
        self._tracing = self.now.tracing
        if self._tracing is not None:
            self._tracing.start()

    def _pinned(self, generation: Generation, pins: Pins) -> None:
        generation.rules.pins.take(pins)
        self._lasting.lists_changed(reviewed=True)


def _made_from(server: Server, config: Config) -> tuple[Any, ...]:
    """What the process of an upstream was made from: with the same it would be the same."""
    settings = built_in_settings(config, server) if server.builtin is not None else None
    return server.connection, settings, tool_files(server.tools_dir)


async def _tried(upstreams: Sequence[Upstream], seconds: float) -> None:
    """Wait until each has been connected to or has failed to be, at most so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for upstream in upstreams:
                await upstream.tried.wait()
