"""The composition root: builds the parts of a hub from the bottom up, and each generation from its configuration."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from mcp_hub.catalog.exposed_ids import TaskSealer, UriMap
from mcp_hub.config import ConfigReader
from mcp_hub.config.ancestry import Ancestry
from mcp_hub.config.config_files import stamp_of, syntax_error_in, tool_files
from mcp_hub.config.models import LIST_WAIT, Config, Server
from mcp_hub.config.settings import Exposed
from mcp_hub.errors import ConfigError
from mcp_hub.hub.catalogs import Catalogs, process_age
from mcp_hub.hub.generations import Generation, Generations, SharedServices
from mcp_hub.hub.internal_servers import InternalServers, built_in_settings
from mcp_hub.hub.relay import Relay
from mcp_hub.hub.self_description import NestedHubs
from mcp_hub.hub.server_switch import ServerSwitch
from mcp_hub.oauth import TokenRegistry
from mcp_hub.oauth.token_store import TokenStoreError
from mcp_hub.observability.call_metrics import CallMetrics, IMetricsCollector
from mcp_hub.policy import Call, Json, PolicyParts
from mcp_hub.policy.approvals import Approvals
from mcp_hub.policy.call_record import RecordLabels, RecordTap
from mcp_hub.policy.chain import KEYS, make_rules
from mcp_hub.policy.data_flow import UsedLabels
from mcp_hub.policy.long_results import LongResults
from mcp_hub.policy.pins import PinFileWatcher, PinsByServer, pin_mode, pins_file, read_pins
from mcp_hub.policy.screen import BackgroundScreening
from mcp_hub.policy.selection import Selection
from mcp_hub.policy.sharing import Sharing
from mcp_hub.protocol.era import HUB_NAME
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import Caller
from mcp_hub.security.file_access import RAW_TEXT_VARIABLE
from mcp_hub.security.private_files import PendingWrites
from mcp_hub.transport.children import Children
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.attribution import ClientRegistry
from mcp_hub.upstream.catalog_cache import CatalogCache
from mcp_hub.upstream.lifecycle import StartLimiter
from mcp_hub.upstream.link_dialer import Functions, LinkDialer
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.observability.tracing import SpanTracing


log = logging.getLogger("mcp_hub")

_READER: Final = ConfigReader(KEYS)

# Every file and every dict is read by these, with the keys of all policies.
config_of: Final = _READER.config_of
load_config: Final = _READER.load_config
load_source: Final = _READER.load
read_config: Final = _READER.read_config


class Parts(msgspec.Struct, frozen=True):
    """The parts of one hub, put together."""

    services: SharedServices
    generations: Generations
    place: NestedHubs
    screening: BackgroundScreening
    switch: ServerSwitch


class EngineOptions(TypedDict, total=False):
    """What a hub uses besides its configuration."""

    environ: Mapping[str, str] | None
    """The hub's own environment; None: that of the process."""
    kept: CatalogCache | None
    """Where catalogs are cached between runs; None: nowhere."""
    one_client: bool
    """Whether the hub has exactly one client, over stdio."""
    record: Callable[[Json], None] | None
    """Takes the record of every call; None: no records."""
    collectors: Sequence[IMetricsCollector]
    """Receive the metrics of every call."""
    tracer_provider: Any
    """A provider of OpenTelemetry, in place of the configured exporter."""
    expose: Exposed | None
    """Which of its tools every client is listed; None: as the configuration says."""
    note: str
    """The hub's own part of its instructions."""
    functions: Functions | None
    """Makes links to functions of the program that the hub runs in."""


def compose(config: Config, selection: Selection, **options: Unpack[EngineOptions]) -> Parts:
    """Builds a hub from its first configuration. Starts nothing.

    Raises ConfigError if the pins cannot be read.
    """
    environ, cache, functions = options.get("environ"), options.get("kept"), options.get("functions")
    one_client = options.get("one_client", False)
    info: dict[str, Any] = {"name": HUB_NAME, "title": HUB_NAME, "version": VERSION}
    # A client that starts the hub waits for it from then on. One that has waited for a launcher waits longer.
    age = process_age() if one_client else 0.0
    catalogs = Catalogs(info, time.monotonic() - (age if age < LIST_WAIT else 0.0))
    uris, labels = UriMap(catalogs.of), RecordLabels()

    def sees(caller: Caller, upstream: str) -> bool:
        return caller.profile is None or upstream in catalogs.of(caller).upstreams

    def identity_key() -> bytes | None:
        return (cache or CatalogCache.of(config)).secret("hub")

    services = SharedServices(
        info=info,
        environ=environ,
        children=Children(),
        catalogs=catalogs,
        uris=uris,
        clients=ClientRegistry(expected=one_client, uris=uris, sees=sees),
        metrics=CallMetrics(options.get("collectors", ())),
        kept=cache,
        record=options.get("record"),
        long_results=LongResults(time.monotonic),
        task_ids=_task_ids(cache),
        ancestry=Ancestry.of(
            config.files, os.environ if environ is None else environ, config.max_hub_depth, identity_key
        ),
        starts=StartLimiter(),
        labels=labels,
        tap=RecordTap(),
        used=UsedLabels(),
        approvals=Approvals(),
        sharing=Sharing(),
        token_writes=PendingWrites(TokenStoreError),
        tracer_provider=options.get("tracer_provider"),
        functions=functions,
        note=options.get("note", ""),
    )
    generations = Generations(services, partial(build_generation, services), config, selection)
    nested_hubs = NestedHubs(
        services.ancestry,
        lambda: generations.current.upstreams,
        lambda caller: catalogs.of(caller).upstreams,
        lambda callers: catalogs.notify(frozenset({TOOLS}), callers.__contains__),
    )
    switch = ServerSwitch(generations, partial(_new_upstream, services), catalogs.changed)
    return Parts(services, generations, nested_hubs, BackgroundScreening(generations.screen), switch)


def _task_ids(cache: CatalogCache | None) -> TaskSealer:
    return TaskSealer(lambda: (cache.secret("tasks") if cache is not None else None) or secrets.token_bytes(32))


def build_generation(
    services: SharedServices, number: int, config: Config, selection: Selection, former: Generation | None
) -> Generation:
    """Builds a generation. It takes over upstreams of `former` if their entry still describes the same process.

    Raises ConfigError if the pins cannot be read.
    """
    dialer = LinkDialer(
        services.children,
        services.environ,
        partial(built_in_settings, config, services.environ),
        TokenRegistry(config, services.token_writes).of,
        services.functions,
        msgspec.structs.replace(services.ancestry, limit=config.max_hub_depth),
    )
    upstreams = _upstreams(services, config, dialer, former.upstreams if former is not None else {})
    internal = InternalServers(config, upstreams, partial(_internal_upstream, services, dialer))
    generation = Generation(number, config, selection, upstreams, internal, dialer)
    generation.tracing = _tracing(services, config, former)
    pinned: PinsByServer = {}
    if any(pin_mode(config, server) != "off" for server in config.servers):
        file = pins_file(config)
        if file is None:
            raise ConfigError("pins need a file: set pins.file")
        generation.pin_watch = PinFileWatcher(file, partial(_take_pins, services, generation))
        pinned = read_pins(file)

    async def shaped(call: Call, result: Json) -> Json:
        return await generation.rules.shaped(call, result)

    parts = PolicyParts(
        config=config,
        selection=selection,
        record=services.record,
        labels=services.labels,
        used=services.used,
        approvals=services.approvals,
        listed=generation.listed_tool,
        scrape=internal.scrape,
        run_function=internal.run_function,
        long_results=services.long_results,
        pinned=pinned,
        sharing=services.sharing,
        measure=services.metrics.record,
        tap=services.tap,
        in_program=services.functions is not None,
    )
    generation.rules = make_rules(
        parts,
        Relay(upstreams, services.uris, services.task_ids, shaped, services.sharing),
        generation.tracing.tracer if generation.tracing is not None else None,
    )
    return generation


def _upstreams(
    services: SharedServices, config: Config, dialer: LinkDialer, former: Mapping[str, Upstream]
) -> dict[str, Upstream]:
    upstreams: dict[str, Upstream] = {}
    for server in config.servers:
        made_from = _made_from(server, config, services.environ)
        former_upstream = former.get(server.id)
        if former_upstream is not None and not former_upstream.left_out and _is_kept(former_upstream, made_from):
            upstreams[server.id] = former_upstream
            continue
        upstreams[server.id] = _upstream(services, dialer, server, made_from)
    return upstreams


def _upstream(services: SharedServices, dialer: LinkDialer, server: Server, made_from: tuple[Any, ...]) -> Upstream:
    return Upstream(
        server,
        dialer,
        services.info,
        services.clients,
        services.starts,
        services.kept,
        services.catalogs.changed,
        made_from,
    )


def _new_upstream(services: SharedServices, generation: Generation, server: Server) -> Upstream:
    """Returns a new upstream for a server of the generation in force."""
    made_from = _made_from(server, generation.config, services.environ)
    return _upstream(services, generation.dialer, server, made_from)


def _is_kept(former: Upstream, made_from: tuple[Any, ...]) -> bool:
    """Returns whether an upstream's process stays: its settings and files are the same, or a new file is invalid."""
    if former.made_from == made_from:
        return True
    (*former_settings, files_before, raw_before), (*settings, files, raw) = former.made_from, made_from
    if former_settings != settings or raw_before != raw:
        return False
    error = syntax_error_in(file for file in files if file not in files_before)
    if error is not None:
        log.error("%s keeps the tools that it had: %s", former.server.id, error)
    return error is not None


def _internal_upstream(services: SharedServices, dialer: LinkDialer, server: Server) -> Upstream:
    """Returns an upstream that no client sees. It is neither listed nor cached, and its server cannot ask clients."""
    return Upstream(server, dialer, services.info, ClientRegistry(expected=False), services.starts, None, lambda: None)


def _made_from(server: Server, config: Config, environ: Mapping[str, str] | None) -> tuple[Any, ...]:
    """Returns the settings that the process of an upstream depends on. If they are equal, the process can be kept."""
    settings = built_in_settings(config, environ, server) if server.builtin is not None else None
    raw = (
        (os.environ if environ is None else environ).get(RAW_TEXT_VARIABLE) if server.builtin == "text_files" else None
    )
    skills = tuple(stamp_of(skill.directory / file) for skill in server.skills for file in skill.files)
    return server.connection, settings, skills, tool_files(server.tools_dir), raw


def _tracing(services: SharedServices, config: Config, former: Generation | None) -> SpanTracing | None:
    """Returns the former generation's tracing if its settings are the same, else a new one; None if it is off."""
    provider = services.tracer_provider
    if provider is None and services.functions is not None and not config.tracing.enabled:
        from mcp_hub.observability.tracing import ambient_provider

        provider = ambient_provider()
    if not config.tracing.enabled and provider is None:
        return None
    from mcp_hub.observability.tracing import SpanTracing

    tracing = former.tracing if former is not None else None
    return (
        tracing if tracing is not None and tracing.settings == config.tracing else SpanTracing(config.tracing, provider)
    )


def _take_pins(services: SharedServices, generation: Generation, pins: PinsByServer) -> None:
    rules = generation.rules
    rules.pins.take(pins)
    services.catalogs.changed(reviewed=True)
