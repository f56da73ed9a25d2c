"""`mcp_hub.Hub`: the hub as a library, for sync code and for any event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self, TypeVar, overload

from mcp_hub.config.discovery import default_config
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import ToolGroupSettings
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.errors import ConfigError
from mcp_hub.hub.groups import Groups
from mcp_hub.library.engine_host import (
    CallLabel,
    CallOutcome,
    CallToolResult,
    EngineHost,
    ServerTools,
    Source,
    ToolCard,
)
from mcp_hub.library.portal import Closable, Portal
from mcp_hub.library.server_entries import (
    FUNCTIONS,
    functions_of,
    make_server,
    secrets_among,
    with_functions,
    with_server,
    without_server,
)
from mcp_hub.observability.call_metrics import IMetricsCollector
from mcp_hub.policy.access import BLACKLIST, Blacklist
from mcp_hub.security.lru import Lru
from mcp_hub.security.redaction import Redactor, preset_texts
from mcp_hub.servers.local import mark_of
from mcp_hub.servers.local import tool as mark
from mcp_hub.servers.local.in_process import DirectCall
from mcp_hub.servers.local.local_tool import LocalTool

T = TypeVar("T")

MAX_TOLD: Final = 1000
"""Names that several tools have, of which the log is told once."""


class HubGroups:
    """The default state of groups, for callers that have not chosen their own. Starts the hub if it is not running.

    Every method checks all of its arguments before it changes anything, and raises ValueError.
    """

    def __init__(self, portal: Portal, running: EngineHost) -> None:
        self._portal = portal
        self._running = running

    def __iter__(self) -> Iterator[ToolGroupSettings]:
        """Yields all groups but `basic`, each with whether it is active."""
        return iter(self._run(lambda groups: list(groups)))

    def __len__(self) -> int:
        return self._run(len)

    def __contains__(self, name: object) -> bool:
        return self._run(lambda groups: name in groups)

    def __getitem__(self, name: str) -> ToolGroupSettings:
        """Returns a group. Raises KeyError if there is none of this name."""
        return self._run(lambda groups: groups[name])

    def active(self) -> tuple[str, ...]:
        """Returns the names of the active groups."""
        return self._run(lambda groups: groups.active())

    def notes(self, names: Collection[str] | None = None) -> str:
        """Returns the notes of the named groups, by default of the active ones, as one text."""
        return self._run(lambda groups: groups.notes(names))

    def create(
        self,
        name: str,
        description: str = "",
        *,
        notes: str | None = None,
        active: bool = False,
        tools: Iterable[str] = (),
        servers: Iterable[str] = (),
    ) -> None:
        """Creates a group of `tools` (`server/tool`, exposed or original names) and `servers`; both may be patterns.

        Raises ValueError.
        """
        options: dict[str, Any] = {"notes": notes, "active": active, "tools": tools, "servers": servers}
        self._run(lambda groups: groups.create(name, description, **options))

    def add(self, name: str, *, tools: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
        """Adds tools to a group. Raises ValueError."""
        self._run(lambda groups: groups.add(name, tools=tools, servers=servers))

    def update(self, names: str | Iterable[str], active: bool) -> None:
        """Activates or deactivates groups; `basic` stays active. Raises ValueError."""
        self._run(lambda groups: groups.update(names, active))

    def reset(self, states: Mapping[str, bool]) -> None:
        """Activates the groups that are true in `states`, and deactivates all others. Raises ValueError."""
        self._run(lambda groups: groups.reset(states))

    def remove(self, names: str | Iterable[str]) -> None:
        """Removes groups, and hides the tools that are in no other group. Raises ValueError."""
        self._run(lambda groups: groups.remove(names))

    def state_dict(self) -> dict[str, Any]:
        """Returns `{"active_groups": [...]}`."""
        return self._run(lambda groups: groups.state_dict())

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Restores what `state_dict` returned; groups it does not name become inactive. `strict` refuses other keys.

        Raises ValueError.
        """
        self._run(lambda groups: groups.load_state_dict(state, strict))

    def _run(self, work: Callable[[Groups], T]) -> T:
        return self._portal.run(partial(self._in_the_loop, work))

    async def _in_the_loop(self, work: Callable[[Groups], T]) -> T:
        return work((await self._running.hub()).groups)


Json = dict[str, Any]
Arguments = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

Cards = list[ToolCard]
Listed = list[ServerTools]


class HasHub(Protocol):
    """What `Hub.attach` takes: a facade or a client class."""

    @property
    def hub(self) -> Hub:
        """The hub with the object's servers and functions."""
        ...

    @hub.setter
    def hub(self, hub: Hub) -> None: ...


class Hub(Closable):
    """The hub that `mcp-hub serve` runs, in a program: `async with Hub.from_config("servers.yaml") as hub: ...`.

    It starts with the first call, in a separate thread, and ends with `close`, with the block, or with the program.
    Every call goes through the policies of the configuration. `config` is a file, the content of one, or None.
    `collectors` get the metrics of every call, in the hub's thread; `tracer_provider` is an OpenTelemetry provider for
    spans of calls. Raises ConfigError.
    """

    def __init__(
        self,
        config: Source = None,
        *,
        collectors: Sequence[IMetricsCollector] = (),
        tracer_provider: Any = None,
    ) -> None:
        self._running = EngineHost(config, collectors, tracer_provider)
        self._redaction: tuple[Config, Redactor] | None = None
        self.told_names: Lru[str, None] = Lru(MAX_TOLD)
        """Names of several tools, of which the log has been told."""
        self._portal = Portal(self._running.close, self._running.begin_anew)
        # A hub that is garbage-collected without `close` still stops its servers.
        weakref.finalize(self, self._portal.end).atexit = False

    @classmethod
    def from_config(cls, path: str | Path | None = None, **options: Any) -> Hub:
        """Makes a hub from a configuration file, by default the one that `mcp-hub` would use. Raises ConfigError."""
        return cls(default_config() if path is None else path, **options)

    def __repr__(self) -> str:
        return f"Hub({', '.join(server.id for server in self.config.servers)})"

    @property
    def config(self) -> Config:
        """Returns the configuration in force."""
        return self._running.config

    @property
    def redaction(self) -> Redactor:
        """Returns the redactor for the secrets of the configuration in force."""
        config = self.config
        if self._redaction is None or self._redaction[0] is not config:
            self._redaction = (config, Redactor(secrets_of(config)))
        return self._redaction[1]

    @cached_property
    def groups(self) -> HubGroups:
        """Returns the groups of tools, which can be changed while the hub runs."""
        return HubGroups(self._portal, self._running)

    @property
    def closed(self) -> bool:
        """Returns whether the hub is closed. A closed hub cannot start again."""
        return self._portal.closed

    # --- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._portal.wait(self._running.hub)
        return self

    def __enter__(self) -> Self:
        self._portal.run(self._running.hub)
        return self

    def close(self) -> None:
        """Stops every server, all at the same time and within a bounded time. Idempotent; never raises."""
        self._portal.close()

    def begin_end(self) -> None:
        """Starts `close` without waiting for it."""
        self._portal.end()

    async def aclose(self) -> None:
        """Does what `close` does, for coroutines."""
        await self._portal.aclose()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs `await work()` in the hub's own loop and returns its result, for code without a loop."""
        return self._portal.run(work)

    # --- tools -------------------------------------------------------------------------------------------------

    async def list(self, server: str | None = None) -> Cards:
        """Returns the callable tools of all available servers, or of one, in the order of the configuration."""
        return _cards(await self.listed(server))

    def list_sync(self, server: str | None = None) -> Cards:
        """Does what `list` does, for code without a loop."""
        return _cards(self.listed_sync(server))

    async def listed(self, server: str | None = None, *, connect: bool = True) -> Listed:
        """Returns the tools by server, and the errors of servers that are unavailable.

        Without `connect`, it does not wait for servers that are not connected.
        """
        return await self._portal.wait(lambda: self._running.listed(server, connect=connect))

    def listed_sync(self, server: str | None = None) -> Listed:
        """Does what `listed` does, for code without a loop."""
        return self._portal.run(lambda: self._running.listed(server))

    async def call(
        self,
        server: str,
        tool: str | Arguments | None = None,
        arguments: Arguments | None = None,
        *,
        on_progress: Callable[[Json], None] | None = None,
    ) -> CallToolResult:
        """Calls a tool: `call("time__now", {"zone": "UTC"})`, or `call("time", "now", {"zone": "UTC"})`.

        A call that the hub refuses or cannot carry out also returns a result, with `isError` and a code in
        `_meta["mcp-hub/error"]`. Cancelling this cancels the server's work.

        Args:
            server: The tool's exposed name, or its server.
            tool: The tool's name at that server; not given with an exposed name.
            on_progress: Is called in the hub's thread.

        Raises:
            UnknownName: The tool does not exist or may not be used. The message suggests similar names.
            UpstreamAnswered: The server answered with a JSON-RPC error.
        """
        direct = DirectCall(asyncio.get_running_loop())
        call = partial(self._running.call, server, tool, arguments, direct=direct, on_progress=on_progress)
        return await self._portal.wait(call)

    def call_sync(
        self, server: str, tool: str | Arguments | None = None, arguments: Arguments | None = None
    ) -> CallToolResult:
        """Does what `call` does, for code without a loop."""
        return self._portal.run(partial(self._running.call, server, tool, arguments, direct=DirectCall()))

    async def act(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Json], None] | None = None,
        on_chunk: Callable[[Any, bool], None] | None = None,
        in_hub: bool = False,
        keep_generator: bool = False,
        preset: Mapping[str, Any] | None = None,
        label: CallLabel | None = None,
    ) -> CallOutcome:
        """Calls a tool for a facade: the outcome has the error as an exception, and the value that a function returned.

        With `keep_generator`, the value of a generator function is its generator, not its last chunk.
        `on_chunk(chunk, more)` is called in the running loop with each chunk of a function and whether others may
        follow. `in_hub` must be true for a caller inside `run`, whose loop must not run functions. `preset` are
        arguments of the facade, which are kept out of all records and logs.
        """
        direct = DirectCall(
            None if in_hub else asyncio.get_running_loop(), on_chunk=on_chunk, keep_generator=keep_generator
        )
        act = partial(self._running.act, server, tool, arguments or {}, direct=direct, preset=preset, label=label)
        return await self._portal.wait(partial(act, on_progress=on_progress))

    async def answered(self, label: CallLabel, arguments: Mapping[str, Any], result: Json) -> Json:
        """Records and traces a call that a facade itself has answered, and returns the result without secrets."""
        return await self._portal.wait(partial(self._running.answered, label, arguments, result))

    def act_sync(
        self, server: str, tool: str, arguments: Mapping[str, Any] | None = None, *, keep_generator: bool = False
    ) -> CallOutcome:
        """Does what `act` does, for code without a loop."""
        direct = DirectCall(keep_generator=keep_generator)
        return self._portal.run(partial(self._running.act, server, tool, arguments or {}, direct=direct))

    async def inactive_group(self, exposed: str) -> str | None:
        """Returns the name of the inactive group that keeps a tool off the list, or None if no group does."""
        return await self._portal.wait(lambda: self._running.inactive_group(exposed))

    async def why_hidden(self, server: str, tool: str) -> str | None:
        """Returns the name of the rule that hides a tool, or None. It is for the user of the hub, not for a model."""
        return await self._portal.wait(lambda: self._running.why_hidden(server, tool))

    # --- servers and functions ---------------------------------------------------------------------------------

    async def add_server(self, name: str, entry: Mapping[str, Any] | Server, *, literal: bool = False) -> None:
        """Adds a server from a configuration entry: `await hub.add_server("time", {"command": "mcp-server-time"})`.

        A running hub has tried to connect to it when this returns. `literal` means that variables are not expanded.
        Raises ConfigError if the entry is invalid or the name is taken, and changes nothing then.
        """
        await self._portal.wait(partial(self._running.change, partial(with_server, make_server(name, entry, literal))))

    def add_server_sync(self, name: str, entry: Mapping[str, Any] | Server, *, literal: bool = False) -> None:
        """Does what `add_server` does, for code without a loop."""
        self._portal.run(partial(self._running.change, partial(with_server, make_server(name, entry, literal))))

    def add_server_unstarted(self, name: str, entry: Mapping[str, Any] | Server, *, literal: bool = False) -> None:
        """Does what `add_server` does, for a hub that has not been used yet; nothing is started. Raises ConfigError."""
        self.edit_unstarted(partial(with_server, make_server(name, entry, literal)))

    def edit_unstarted(self, edit: Callable[[Config], Config]) -> None:
        """Does what `edit` does, for a hub that has not been used yet. Raises ConfigError."""
        self._running.config = edit(self.config)

    async def remove_server(self, name: str) -> None:
        """Removes a server and its tools; it ends after its last call.

        Raises ConfigError if there is none of this name.
        """
        await self._portal.wait(partial(self._running.change, partial(without_server, name)))

    def remove_server_sync(self, name: str) -> None:
        """Does what `remove_server` does, for code without a loop."""
        self._portal.run(partial(self._running.change, partial(without_server, name)))

    async def edit(self, edit: Callable[[Config], Config]) -> None:
        """Applies `edit` to the configuration in force. Raises ConfigError, and changes nothing then."""
        await self._portal.wait(partial(self._running.change, edit))

    async def renew(self, config: Source) -> None:
        """Replaces the configuration without failing running calls. Raises ConfigError.

        Functions stay, and so do the rules that facades have set: deadlines, blacklists, groups.
        """
        await self._portal.wait(partial(self._running.replace, config))

    def keep_edit(self, key: object, edit: Callable[[Config], Config]) -> None:
        """Makes `renew` apply `edit` to each new configuration, in place of the former edit of this key."""
        self._running.lasting_edits[key] = edit

    def change_sync(self, edit: Callable[[Config], Config]) -> None:
        """Does what `edit` does, for code without a loop."""
        self._portal.run(partial(self._running.change, edit))

    @property
    def functions(self) -> str | None:
        """Returns the id of the server of this program's functions, or None if there are none."""
        server = functions_of(self.config)
        return None if server is None else server.id

    @property
    def function_names(self) -> frozenset[str]:
        """Returns the names of this program's functions."""
        return frozenset(tool.name for tool in self._running.functions)

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Adds a function as a tool and returns it unchanged: `@hub.tool`, or `@hub.tool(name=..., tags=...)`.

        It takes the options of `mcp_hub.tool`. Raises TypeError if the function cannot be a tool.
        """

        def offer(target: F) -> F:
            marked: F = target if not options and mark_of(target) is not None else mark(**options)(target)
            self.put_function(LocalTool(marked, mark_of(marked)))
            return marked

        return offer if function is None else offer(function)

    def put_function(self, tool: LocalTool) -> str:
        """Adds a function as a tool, or replaces the one of the same name. Returns the id of the server that has it."""
        self._running.functions.put(tool)

        async def put() -> str:
            texts = [text for function in self._running.functions for text in preset_texts(function.preset)]
            await self._running.change(partial(with_functions, secrets_among(texts)))
            id = self.functions or FUNCTIONS
            await self._running.functions_changed(id)
            return id

        return self._portal.run(put)

    async def process(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in the loop of the program's functions, where it may block, and returns its result."""
        return await self._running.functions.run(work)

    def remove_function(self, name: str) -> None:
        """Removes a function; does nothing if there is none of this name."""
        self._running.functions.remove(name)
        if (id := self.functions) is not None:
            self._portal.run(lambda: self._running.functions_changed(id))

    def forget_function(self, name: str) -> None:
        """Does what `remove_function` does without waiting, for code in the hub's own loop."""
        self._running.functions.remove(name)

    def tag_function(self, name: str, tags: Sequence[str]) -> None:
        """Replaces the tags of a function; does nothing if there is none of this name."""
        tool = self._running.functions.get(name)
        if tool is not None:
            self.put_function(LocalTool(tool.original, replace(tool.mark, name=name, tags=tuple(tags))))

    def attach(self, *facades: HasHub) -> None:
        """Moves the servers and functions of facades and clients to this hub, and closes the hubs they had.

        Raises ConfigError if the name of a server is taken, or for a client at the hub of a toolkit, which goes on.
        """
        for facade in facades:
            other_hub = facade.hub
            if other_hub is self:
                continue
            if not getattr(facade, "owns_hub", True):
                text = "the client is at the hub of another toolkit, whose rules apply to it"
                raise ConfigError(f"{text}; give both toolkits one hub: Toolkit(hub=...)")
            functions = list(other_hub._running.functions)
            blacklist = BLACKLIST.of(other_hub.config)

            def edit(
                config: Config, other_config: Config = other_hub.config, blacklist: Blacklist = blacklist
            ) -> Config:
                for server in other_config.servers:
                    config = config if server.functions is not None else with_server(server, config)
                return BLACKLIST.changed(config, (*BLACKLIST.of(config), *blacklist))

            self._portal.run(partial(self._running.change, edit))
            for tool in functions:
                self.put_function(tool)
            facade.hub = self
            other_hub.close()

    # --- serving -----------------------------------------------------------------------------------------------

    def serve(
        self, transport: Literal["stdio", "http", "sse"] = "stdio", *, host: str | None = None, port: int | None = None
    ) -> None:
        """Serves MCP until the client leaves (stdio) or the program is interrupted, then closes the hub.

        Over stdio, everything that the program prints goes to stderr from now on. Raises HubError and ConfigError.
        """
        from mcp_hub.library.serving import serve  # imported here, as listening on a network takes heavy imports

        try:
            serve(self._portal, self._running, transport, host, port)
        finally:
            self.close()


def _cards(listed: Listed) -> Cards:
    return [card for server_tools in listed for card in server_tools.tools]
