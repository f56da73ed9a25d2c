"""Runs the engine in the loop of a portal: starts it with the first request, and reconfigures it while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NotRequired, TypedDict, cast

from mcp_hub.catalog import OWN, Route
from mcp_hub.catalog.names import did_you_mean, expose
from mcp_hub.config import LoadedConfig
from mcp_hub.config.discovery import FoundConfig
from mcp_hub.config.file_watcher import FileWatcher
from mcp_hub.config.models import Config, Server
from mcp_hub.config.own_files import writers_of
from mcp_hub.errors import INVALID_PARAMS, CallError, ConfigError, HubError, InvalidParameters, UnknownName, to_wire
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_source
from mcp_hub.library.portal import keep
from mcp_hub.library.server_entries import functions_of, with_functions_of, with_programs_servers
from mcp_hub.observability.call_metrics import IMetricsCollector
from mcp_hub.observability.records import RecordWriter
from mcp_hub.observability.stalls import in_thread
from mcp_hub.observability.tracing import is_imported
from mcp_hub.policy import Call, unknown_name
from mcp_hub.policy.access import tags_of
from mcp_hub.policy.trace import CALL_LOG
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.security.file_access import RAW_TEXT_VARIABLE
from mcp_hub.servers.local.in_process import (
    DIRECT,
    DirectCall,
    FunctionLink,
    FunctionServer,
    NotJson,
    written_arguments,
)
from mcp_hub.transport.background import TaskSet
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.catalog_cache import CatalogCache
from mcp_hub.version import VERSION

Json = dict[str, Any]

Source = Config | Mapping[str, Any] | str | Path | FoundConfig | None
"""A configuration, the content of one, or its file, named or found; None is an empty one."""

_NO_FILES: Final = LoadedConfig(Config(), ())

log: Final = logging.getLogger("mcp_hub.library")

calls: Final = logging.getLogger("mcp_hub.calls")
"""The logger that gets a record of every call, at INFO."""

_ENVELOPE: Final = Envelope(client_info={"name": "mcp-hub library", "version": VERSION})


@dataclass(frozen=True)
class ToolCard:
    """A tool as the hub lists it. `name` is its name at its server, `exposed` the name that clients use."""

    server: str
    name: str
    exposed: str
    definition: Json
    """The tool's entry in `tools/list`. It must not be changed."""
    tags: frozenset[str] = frozenset()
    """Tags of its server and its own, of the configuration and of what the server lists."""

    @property
    def description(self) -> str:
        """Returns the description that models read."""
        return str(self.definition.get("description") or "")

    @property
    def schema(self) -> Json:
        """Returns the schema of the arguments."""
        schema = self.definition.get("inputSchema")
        return schema if isinstance(schema, dict) else {"type": "object", "properties": {}}


@dataclass(frozen=True)
class ServerTools:
    """The tools of one server, or the error for which it is unavailable."""

    server: str
    tools: tuple[ToolCard, ...]
    error: CallError | None = None
    blacklisted: tuple[str, ...] = ()
    """Names of its tools that the blacklist hides."""
    absent: tuple[ToolCard, ...] = ()
    """The tools that an unavailable server listed before."""


class CallLabel(NamedTuple):
    """The identity of a call in records, spans and errors: its tool and its id, as the caller knows them."""

    name: str
    id: str | None = None
    in_any_group: bool = False
    """Whether the call is made also if the tool's group is inactive."""


class CallToolResult(TypedDict):
    """MCP's result of a tool call. A server may add further keys."""

    content: list[Json]
    """Content blocks, such as `{"type": "text", "text": "..."}`."""
    structuredContent: NotRequired[Any]
    """What fits the tool's `outputSchema`."""
    isError: NotRequired[bool]
    """Whether the tool failed, or the hub refused the call or could not make it."""
    _meta: NotRequired[Json]
    """Contains the code of an error of the hub under `mcp-hub/error`."""


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of one call: either `error` or `result`."""

    call: Call | None
    """The call with the notes of the policies; None if it failed before it reached them."""
    result: Json | None
    error: Exception | None
    value: Any = None
    """What a function of this program returned, unchanged."""
    direct: bool = False
    """Whether `value` may be used in place of `result`."""
    raised: BaseException | None = None
    """What a function of this program raised."""
    definition: Json | None = None
    """The tool's entry in `tools/list`; None if it is not listed."""


class EngineHost:
    """Hosts the engine in the portal's loop. Only `config` and `functions` may be used outside of that loop."""

    def __init__(
        self, source: Source, collectors: Sequence[IMetricsCollector] = (), tracer_provider: Any = None
    ) -> None:
        self._files = FileWatcher(_NO_FILES)
        self._follow(source, load(source))
        self._files_lock = asyncio.Lock()
        self._tasks = TaskSet()
        self.lasting_edits: dict[object, Callable[[Config], Config]] = {}
        """Edits that apply to each later configuration too, by what they belong to."""
        self.config = self._loaded.config
        self._collectors = tuple(collectors)
        self._tracer_provider = tracer_provider
        self.functions = FunctionServer()
        self._hub: Engine | None = None
        self._records: RecordWriter | None = None
        self._change_lock = asyncio.Lock()
        self._facts = _facts()

    async def hub(self) -> Engine:
        """Returns the engine, and starts it if it is not running. Raises ConfigError."""
        if self._hub is None:
            async with self._change_lock:
                if self._hub is None:
                    self._hub = await self._start()
        return self._hub

    async def _start(self) -> Engine:
        self._choose_checks(self.config)
        log = CALL_LOG.of(self.config)
        if log.enabled and log.file is not None:
            self._records = RecordWriter(log.file, stderr=False)
        cache = CatalogCache.of(self.config) if self.config.path is not None else None
        self._facts = _facts()
        hub = Engine(
            self.config,
            kept=cache,
            record=self._record if log.enabled else None,
            collectors=self._collectors,
            tracer_provider=self._tracer_provider,
            functions=self._link,
        )
        return await hub.__aenter__()

    def _link(self, server: Server) -> FunctionLink:
        return self.functions.link()

    def _choose_checks(self, config: Config) -> None:
        server = functions_of(config)
        self.functions.checks = server is None or server.validate_arguments != "off"

    def _record(self, record: Json) -> None:
        if self._records is not None:
            self._records.write(record)
        if calls.isEnabledFor(logging.INFO):
            calls.info("%s", encode(record).decode())

    async def change(self, edit: Callable[[Config], Config]) -> None:
        """Applies `edit` to the configuration. Raises ConfigError, and changes nothing then."""
        async with self._change_lock:
            config = edit(self.config)
            if config is not self.config:
                await self._renew(config)

    async def replace(self, source: Source) -> None:
        """Replaces the configuration, but for functions and lasting edits. Raises ConfigError."""
        async with self._files_lock:
            loaded = await in_thread(load, source)
            await self.change(partial(self._edited, loaded.config))
            self._follow(source, loaded)

    def _follow(self, source: Source, loaded: LoadedConfig) -> None:
        of_program = source is None or isinstance(source, Config)
        self._source = source if of_program else copy.deepcopy(source)  # the program may change its mapping
        self._loaded = loaded
        self._files.follow(_NO_FILES if of_program or not loaded.config.watch else loaded)

    def _edited(self, replacement: Config, config: Config) -> Config:
        """Returns a configuration in place of `config`, with its functions and the lasting edits."""
        replacement = with_functions_of(config, replacement)
        for lasting_edit in tuple(self.lasting_edits.values()):
            replacement = lasting_edit(replacement)
        return replacement

    async def follow_files(self, *, changed: bool = False) -> None:
        """Reads the configuration again if its files have changed. What the program has added or removed stays so.

        Files with errors change nothing. So do files that a server can write: they wait for `Hub.renew`. A caller that
        is cancelled does not end it, as no other caller would find that the files have changed.
        """
        await asyncio.shield(self._tasks.start(self._follow_files(changed=changed)))

    async def _follow_files(self, *, changed: bool) -> None:
        async with self._files_lock:
            files = self._files
            if not files.paths or not (changed or await in_thread(files.have_changed)):
                return
            shown_roots = self._hub.clients.shown_roots if self._hub is not None else None
            if writers := await in_thread(writers_of, files.paths, self.config.servers, shown_roots):
                text = "%s can write files of the configuration, so that a change waits for the program: Hub.renew"
                log.warning(text, ", ".join(writers))
                return
            try:
                loaded = await in_thread(load, self._source)
                former = self._loaded.config
                await self.change(lambda now: self._edited(with_programs_servers(former, loaded.config, now), now))
            except ConfigError as error:
                log.warning("the files of the configuration have changed, but cannot be used: %s", error)
                return
            self._loaded = loaded
            files.follow(loaded)

    async def watch_files(self) -> None:
        """Reads the configuration again whenever its files change."""
        while True:
            await self._files.wait_for_change()
            await self.follow_files(changed=True)

    async def _renew(self, config: Config) -> None:
        """Changes to a configuration. `_change_lock` must be held."""
        facts = _facts()
        if self._hub is not None:
            await self._hub.renew(config)
        self.config, self._facts = config, facts
        self._choose_checks(config)

    async def functions_changed(self, id: str) -> None:
        """Lists the functions of this program again if the engine runs."""
        upstream = self._hub.upstreams.get(id) if self._hub is not None else None
        if upstream is not None:
            with contextlib.suppress(HubError):
                await upstream.connected()
            await upstream.list_store.refresh_now({TOOLS})

    async def close(self) -> None:
        """Stops every server. Never raises."""
        if self._hub is not None:
            await self._hub.close()
        self.functions.close()
        if self._records is not None:
            self._records.close()  # bounded; not in a thread, as none can start while the program exits

    def begin_anew(self) -> None:
        """Resets the host after a fork: everything that runs belongs to the parent process."""
        keep((self._hub, self._records, self._tasks))
        self._hub, self._records, self._tasks = None, None, TaskSet()
        self._change_lock, self._files_lock = asyncio.Lock(), asyncio.Lock()
        self.functions.begin_anew()

    # --- lists and calls ---------------------------------------------------------------------------------------

    async def listed(self, server: str | None = None, *, connect: bool = True) -> list[ServerTools]:
        """Returns the tools of all servers, or of one, that models may call, in the order of the configuration.

        It tries to connect to those that are not connected, unless `connect` is false.
        """
        hub = await self.hub()
        if connect:
            await self.follow_files()
        upstreams = [u for id, u in hub.upstreams.items() if server in (None, id) and _should_run(u)]
        servers = {upstream.server.id: upstream.server for upstream in upstreams}
        errors: list[CallError | None] = [None] * len(upstreams)
        if connect:
            errors = await asyncio.gather(*(_connection_error(upstream) for upstream in upstreams))
            await hub.catalogs.wait_until_built()
        catalog = hub.catalogs.of(SOLE)
        cards: dict[str, list[ToolCard]] = {upstream.server.id: [] for upstream in upstreams}
        for entry in catalog.tools_of_models():
            route, definition = entry.route, entry.wire
            if route.upstream in cards:
                tags = tags_of(servers[route.upstream], route, definition)
                cards[route.upstream].append(ToolCard(route.upstream, route.name, entry.exposed, definition, tags))
        return [
            ServerTools(
                upstream.server.id,
                tuple(cards[upstream.server.id]) if error is None else (),
                error,
                tuple(_blacklisted(hub, upstream)),
                tuple(cards[upstream.server.id]) if error is not None else (),
            )
            for upstream, error in zip(upstreams, errors, strict=True)
        ]

    async def call(
        self,
        server: str,
        tool: str | Mapping[str, Any] | None,
        arguments: Mapping[str, Any] | None,
        *,
        direct: DirectCall,
        on_progress: Callable[[Json], None] | None = None,
    ) -> CallToolResult:
        """Makes one call for `Hub.call` and returns its result, or that of an error of the hub."""
        if not isinstance(tool, str | None):
            if arguments is not None:
                raise TypeError("The arguments of a call are given twice.")
            tool, arguments = None, tool
        arguments = {} if arguments is None else arguments
        outcome = await self.act(server, tool, arguments, direct=direct, on_progress=on_progress)
        error, result = outcome.error, outcome.result
        if isinstance(error, UnknownName):
            name = server if tool is None else f"{server}/{tool}"
            hint = await in_thread(did_you_mean, name, (await self.hub()).catalog.names(TOOLS))
            raise UnknownName(error.code, error.message + hint)
        if isinstance(error, CallError | TimeoutError):
            result = to_wire(error, TOOLS.act_method, outcome.call.exposed if outcome.call else None)["result"]
        elif error is not None:
            raise error
        return cast(CallToolResult, result)

    async def act(
        self,
        server: str,
        tool: str | None,
        arguments: Mapping[str, Any],
        *,
        on_progress: Callable[[Json], None] | None = None,
        direct: DirectCall | None = None,
        preset: Mapping[str, Any] | None = None,
        label: CallLabel | None = None,
    ) -> CallOutcome:
        """Makes one call like that of any client. Errors are in the outcome and not raised.

        Without `tool`, `server` is the exposed name of a tool. `preset` are arguments that were set where the tool was
        registered.
        """
        call: Call | None = None
        try:
            hub = await self._current()
            if tool is None:
                server, tool = await self._find(hub, server)
            upstream = hub.upstreams.get(server)
            if upstream is None:
                raise UnknownName(INVALID_PARAMS, f"Unknown server: {server}")
            if not isinstance(arguments, Mapping):
                text = f"The arguments of {tool!r} must be an object, not {type(arguments).__name__}."
                raise InvalidParameters(text, server=server, executed=False)
            if not all(isinstance(name, str) for name in arguments):
                arguments = {str(name): value for name, value in arguments.items()}  # as in every object of JSON
            route = Route(server, TOOLS, tool)
            listed = hub.catalog.exposed(route)
            definition = hub.catalog.entry(TOOLS, listed or "")
            exposed = listed or expose(upstream.server.namespace, tool)
            direct_call = direct if upstream.server.functions is not None else None
            shown_arguments = written_arguments(arguments) if direct_call is None else direct_call.to_json(arguments)
            params: Json = {"name": tool, "arguments": shown_arguments}
            call = Call(TOOLS.act_method, exposed, route, params, "handshake", _ENVELOPE, on_progress=on_progress)
            call.preset = preset
            if label is not None:
                call.exposed, call.label, call.in_any_group = label
            if direct_call is None:
                result = await hub.act(call, listed=listed is not None)
                # The call may have connected to the server, or the tool may be gone meanwhile.
                definition = definition or hub.catalog.entry(TOOLS, hub.catalog.exposed(route) or "")
                return CallOutcome(call, result, None, definition=definition)
            call.objects, call.nested, call.raised = direct_call.objects, direct_call.nested, direct_call.raised
            with self.functions.called(direct_call) as key:
                params["_meta"] = {DIRECT: key}
                result = await hub.act(call, listed=listed is not None)
            same = direct_call.result is not None and _visible_content(result) == _visible_content(direct_call.result)
            value, raised = direct_call.value if same else None, next(reversed(direct_call.raised), None)
            return CallOutcome(call, result, None, value, same, raised, definition)
        except NotJson as error:
            refusal = InvalidParameters(
                f"The arguments of {tool!r} cannot be sent: {error}", server=server, executed=False
            )
            return CallOutcome(call, None, refusal)
        except (HubError, TimeoutError) as error:
            return CallOutcome(call, None, error)

    async def _find(self, hub: Engine, exposed: str) -> tuple[str, str]:
        """Returns the server and the tool of an exposed name. Raises UnknownName."""
        try:
            route = await hub.route(TOOLS, exposed, "handshake")
        except UnknownName:
            for id, upstream in hub.upstreams.items():
                prefix = expose(upstream.server.namespace, "")
                if prefix and exposed.startswith(prefix) and upstream.error is not None:
                    return id, exposed.removeprefix(prefix)  # the call says why the server is not available
            raise
        if route.upstream == OWN:
            raise unknown_name(TOOLS, exposed, "handshake")  # a tool for models, which is in no list of a program
        return route.upstream, route.name

    async def answered(self, label: CallLabel, arguments: Mapping[str, Any], result: Json) -> Json:
        """Records and traces a call that a facade itself has answered, and returns the result without secrets."""
        hub = await self._current()
        params: Json = {"name": label.name, "arguments": dict(arguments)}
        route = Route(OWN, TOOLS, label.name)
        call = Call(TOOLS.act_method, label.name, route, params, "handshake", _ENVELOPE, label=label.id)

        async def answer(call: Call) -> Json:
            return result

        return await hub.rules.observe(call, answer)

    async def _current(self) -> Engine:
        """Returns the engine, renewed if the program's `_facts` have changed."""
        hub = await self.hub()
        if _facts() != self._facts:
            async with self._change_lock:  # others that call at the same time wait for the same
                if _facts() != self._facts:
                    await self._renew(self.config)
        return hub

    async def inactive_group(self, exposed: str) -> str | None:
        """Returns the name of the inactive group that keeps a tool off the list, or None if no group does."""
        hub = await self.hub()
        route = hub.catalogs.full_catalog(SOLE).resolve(TOOLS, exposed) if hub.config.groups else None
        if route is None:
            return None
        groups = hub.groups.now
        return groups.inactive(route, SOLE)

    async def why_hidden(self, server: str, tool: str) -> str | None:
        """Returns the name of the rule that hides a tool, or None. It is for the user of the hub."""
        hub = await self.hub()
        return hub.rules.why(Route(server, TOOLS, tool)) if server in hub.upstreams else None


def load(source: Source) -> LoadedConfig:
    """Reads a configuration: a file, or a mapping with the content of one; None is an empty one. Raises ConfigError."""
    if source is None or isinstance(source, Config):
        return LoadedConfig(source or Config(), ())
    return load_source(source)


def _facts() -> tuple[bool, str | None]:
    """Returns what the engine depends on besides its configuration.

    That is whether the program has imported OpenTelemetry, and the policy of the raw text tools in the environment.
    """
    return is_imported(), os.environ.get(RAW_TEXT_VARIABLE)


def _should_run(upstream: Upstream) -> bool:
    """Returns whether a server should run. One that the user has disabled is not reported as missing."""
    return upstream.server.enabled or upstream.server.disabled_reason is not None


def _blacklisted(hub: Engine, upstream: Upstream) -> Iterator[str]:
    for tool in upstream.lists.items.get(TOOLS, ()):
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str) and hub.rules.why(Route(upstream.server.id, TOOLS, name)) == "blacklist":
            yield name


async def _connection_error(upstream: Upstream) -> CallError | None:
    try:
        await upstream.connected()
    except CallError as error:
        return error
    return None


def _visible_content(result: Json) -> tuple[Any, ...]:
    return result.get("content"), result.get("structuredContent"), bool(result.get("isError"))
