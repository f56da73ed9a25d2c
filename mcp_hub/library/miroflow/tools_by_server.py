"""MiroFlow's half of ToolManager: tools by their servers, its task log, `PlaywrightSession` and `with_timeout`."""

from __future__ import annotations

import asyncio
import difflib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, ParamSpec, Protocol, TypeVar

from mcp_hub.config import config_of
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import (
    INVALID_PARAMS,
    CircuitOpen,
    ConfigError,
    DeadlineExceeded,
    GuardBlocked,
    PermissionDenied,
    ServerUnavailable,
    StateLost,
    UnknownName,
    UpstreamAnswered,
)
from mcp_hub.library import formats
from mcp_hub.library.engine_host import CallOutcome, ServerTools
from mcp_hub.library.hub import Hub
from mcp_hub.library.server_entries import PLAYWRIGHT, entry_of
from mcp_hub.policy.fallback import META_KEY as FALLBACK_KEY
from mcp_hub.text import printable

Json = dict[str, Any]


class PlaywrightSession:
    """Connects with the first call and lasts until `close`; a session that is lost is begun anew.

    `server_params` are those of a ToolManager's server. With `hub` it is that hub's server `playwright`.
    """

    def __init__(self, server_params: Any, *, hub: Hub | None = None) -> None:
        self.server_params = server_params
        self._name = PLAYWRIGHT
        self._own = hub is None
        self._hub = hub or Hub()
        if hub is None:
            entry, literal = entry_of(PLAYWRIGHT, server_params)
            self._hub.add_server_unstarted(PLAYWRIGHT, entry, literal=literal)

    async def connect(self) -> None:
        """Connect if it is not connected. Raises CallError."""
        (listed,) = await self._hub.listed(self._name)
        if listed.error is not None:
            raise listed.error

    async def call_tool(self, tool_name: str, arguments: Json | None = None) -> str:
        """The texts of the result, an error's too. Raises CallError, UnknownName, UpstreamAnswered."""
        outcome = await self._hub.act(self._name, tool_name, arguments or {})
        if outcome.error is not None:
            raise outcome.error
        return formats.result_text(outcome.result or {})

    async def close(self) -> None:
        """End the session and the browser; of a manager's server the manager does. Idempotent."""
        if self._own:
            await self._hub.aclose()


P = ParamSpec("P")
R = TypeVar("R")


def with_timeout(timeout_s: float = 300.0) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """A decorator: the coroutine is cancelled after so many seconds, and its caller gets asyncio.TimeoutError."""

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            return await asyncio.wait_for(function(*args, **kwargs), timeout=timeout_s)

        return limited

    return decorate


log = logging.getLogger("mcp_hub.library")

_PREFIX: Final = "ToolManager | "


class TaskLog(Protocol):
    """Takes steps by position, whatever it calls its parameters."""

    def log_step(self, level: str, step_name: str, message: str, metadata: Any = None, /) -> Any:
        """One step."""
        ...


class StepLog:
    """Silent without a task log. One that raises never fails a call."""

    def __init__(self) -> None:
        self.sink: TaskLog | None = None

    def info(self, step: str, message: str, metadata: Any = None) -> None:
        """Something went as it should."""
        self._tell("info", step, message, metadata)

    def debug(self, step: str, message: str) -> None:
        """A detail."""
        self._tell("debug", step, message, None)

    def error(self, step: str, message: str) -> None:
        """Something failed."""
        self._tell("error", step, message, None)

    def _tell(self, level: str, step: str, message: str, metadata: Any) -> None:
        if self.sink is None:
            return
        try:
            self.sink.log_step(level, _PREFIX + step, message, metadata)
        except Exception as error:
            log.warning("the task log did not take %r: %r", step, error)


OnTimeout = Literal["raise", "return"]

BLACKLIST: Final = "blacklist"
"""What Access says of a tool that the blacklist hides."""
_CONNECTION: Final = (ServerUnavailable, CircuitOpen, StateLost, PermissionDenied)
"""The server was not reached, or is gone."""


class ToolsByServer:
    """`server_configs` has `{"name", "params"}` for each; see `entry_of` for what params may be."""

    hub: Hub

    def __init__(
        self,
        server_configs: Sequence[Mapping[str, Any]],
        tool_blacklist: Iterable[Any] | None,
        timeout: float | None,
        on_timeout: OnTimeout,
    ) -> None:
        if on_timeout not in ("raise", "return"):
            raise ValueError(f"on_timeout is 'raise' or 'return', not {on_timeout!r}")
        self.server_configs = server_configs
        self.server_dict: dict[str, Any] = {}
        for config in server_configs:
            if config["name"] in self.server_dict:
                raise ValueError(f"two servers have the name {config['name']!r}; names must be unique")
            self.server_dict[config["name"]] = config["params"]
        self.tool_blacklist: set[tuple[str, str]] = {_pair(item) for item in tool_blacklist or ()}
        self.browser_session: PlaywrightSession | None = None
        self._steps = StepLog()
        self._on_timeout = on_timeout
        self._unusable: dict[str, Exception] = {}
        self._applied: frozenset[tuple[str, str]] = frozenset(self.tool_blacklist)
        """What of the blacklist the hub knows."""
        self.hub.edit_unstarted(partial(_with_blacklist, frozenset(), self._applied))
        for name, params in self.server_dict.items():
            try:
                self._add(name, params, timeout)
            except (TypeError, ConfigError) as error:
                self._unusable[name] = error

    def _add(self, name: str, params: Any, timeout: float | None) -> None:
        if isinstance(params, Server):
            return  # the hub's configuration has it
        entry, literal = entry_of(name, params)
        server = config_of({"servers": {name: entry}}, literal=literal).servers[0]
        if timeout is not None:
            server = server.model_copy(update={"deadlines": server.deadlines.model_copy(update={"call": timeout})})
        self.hub.add_server_unstarted(name, server)

    # --- the task log ------------------------------------------------------------------------------------------

    @property
    def task_log(self) -> TaskLog | None:
        """Where steps are told, None for nowhere."""
        return self._steps.sink

    @task_log.setter
    def task_log(self, task_log: TaskLog | None) -> None:
        self._steps.sink = task_log

    def set_task_log(self, task_log: TaskLog | None) -> None:
        """Tell steps to this log from now on, and at once that there is a manager."""
        self._steps.sink = task_log
        self._steps.info("Initialization", f"ToolManager initialized, loaded servers: {list(self.server_dict)}")

    # --- lists -------------------------------------------------------------------------------------------------

    def get_server_params(self, server_name: str) -> Any:
        """The `params` of a server; None if there is none of this name."""
        return self.server_dict.get(server_name)

    async def get_all_tool_definitions(self) -> list[Json]:
        """`[{"name": SERVER, "tools": [{"name", "description", "schema"}, ...]}, ...]` in the order of the servers.

        A server that is not there has one entry `{"error": "Unable to fetch tools: ..."}` among its tools instead.
        """
        await self._apply_blacklist()
        for name in self.server_dict:
            self._steps.info("Get Tool Definitions", f"Getting tool definitions for server '{name}'...")
        listed = {one.server: one for one in await self.hub.listed()}
        names = dict.fromkeys([*self.server_dict, *listed])
        return [{"name": name, "tools": self._definitions(name, listed.get(name))} for name in names]

    def _definitions(self, name: str, listed: ServerTools | None) -> list[Json]:
        error: Exception | None = self._unusable.get(name) or (listed.error if listed is not None else None)
        if error is not None or listed is None:
            if isinstance(error, TypeError):
                kind = type(self.server_dict[name])
                self._steps.error(
                    "Unknown Parameter Type", f"Error: Unknown parameter type for server '{name}': {kind}"
                )
            said = str(error) if error is not None else "it is switched off in the configuration"
            self._steps.error("Connection Error", f"Error: Unable to connect or get tools from server '{name}': {said}")
            return [{"error": f"Unable to fetch tools: {said}"}]
        for tool in listed.blacklisted:
            self._steps.debug("Tool Blacklisted", f"Tool '{tool}' in server '{name}' is blacklisted, skipping.")
        tools = [{"name": card.name, "description": card.description, "schema": card.schema} for card in listed.tools]
        self._steps.info(
            "Tool Definitions Success", f"Successfully obtained {len(tools)} tool definitions from server '{name}'."
        )
        return tools

    async def _apply_blacklist(self) -> None:
        """The set is an attribute that a program may change: it counts as it is now."""
        wanted = frozenset(_pair(item) for item in self.tool_blacklist)
        if wanted == self._applied:
            return
        former, self._applied = self._applied, wanted
        await self.hub.edit(partial(_with_blacklist, former, wanted))

    # --- calls -------------------------------------------------------------------------------------------------

    async def execute_tool_call(self, server_name: str, tool_name: str, arguments: Json | None = None) -> Json:
        """`{"server_name", "tool_name", "result"}`, or `error` in the place of `result`.

        Raises asyncio.TimeoutError at the call's deadline, unless `on_timeout` is "return"; nothing else.
        """
        answer: Json = {"server_name": server_name, "tool_name": tool_name}
        await self._apply_blacklist()
        if server_name in self._unusable:
            return answer | {"error": f"Tool call failed: {self._unusable[server_name]}"}
        if server_name not in self.server_dict and server_name not in [one.id for one in self.hub.config.servers]:
            return answer | {"error": self._not_found(server_name)}
        if await self.hub.why_hidden(server_name, tool_name) == BLACKLIST:
            self._steps.error("Tool Blacklisted", f"Tool '{tool_name}' on server '{server_name}' is blacklisted.")
            return answer | {"error": f"Tool '{tool_name}' on server '{server_name}' is blacklisted."}
        self._use_browser(server_name)
        shown = self.hub.redaction.value(arguments or {})
        started = f"Connecting to server '{server_name}' to call tool '{tool_name}'"
        self._steps.info("Tool Call Start", started, {"arguments": shown})
        outcome = await self.hub.act(server_name, tool_name, arguments or {})
        self._tell_fallback(outcome)
        return answer | self._answered(server_name, tool_name, outcome)

    def _not_found(self, server: str) -> str:
        known = [one.id for one in self.hub.config.servers]
        near = difflib.get_close_matches(server, known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else f" There are: {', '.join(known)}"
        self._steps.error(
            "Server Not Found", f"Error: Attempting to call server '{printable(server)}' not found.{hint}"
        )
        return f"Server '{server}' not found."

    def _use_browser(self, server: str) -> None:
        if server == PLAYWRIGHT and self.browser_session is None:
            self.browser_session = PlaywrightSession(self.server_dict.get(server), hub=self.hub)

    def _tell_fallback(self, outcome: CallOutcome) -> None:
        notes = outcome.call.notes if outcome.call is not None else []
        tried = [note for note in notes if note.startswith("fallback: ")]
        if not tried:
            return
        self._steps.info("Fallback Attempt", "The server failed to scrape; fetching the page with MarkItDown")
        if outcome.call is not None and outcome.call.fallback is not None:
            self._steps.info("Fallback Success", "MarkItDown fetched the page")
        else:
            self._steps.error("Fallback Failed", tried[-1])

    def _answered(self, server: str, tool: str, outcome: CallOutcome) -> Json:
        """`{"result": ...}` or `{"error": ...}`."""
        error, result = outcome.error, outcome.result
        if isinstance(error, GuardBlocked) or (result is not None and _code(result) == GuardBlocked.code):
            return {"result": error.message if isinstance(error, GuardBlocked) else formats.error_text(result or {})}
        if isinstance(error, DeadlineExceeded | TimeoutError):
            said = formats.error_message(error) or "the call took longer than its deadline"
            self._steps.error("Tool Call Failed", f"Error: Failed to call tool '{tool}' (server: '{server}'): {said}")
            if self._on_timeout == "raise":
                raise TimeoutError(said) from error
            return {"error": f"Tool execution failed: {said}"}
        if isinstance(error, _CONNECTION):
            self._steps.error(
                "Tool Call Failed",
                f"Error: Failed to call tool '{tool}' (server: '{server}'): {formats.error_message(error)}",
            )
            return {"error": f"Tool call failed: {formats.error_message(error)}"}
        if error is not None:
            self._steps.error("Tool Execution Error", f"Tool execution error: {formats.error_message(error)}")
            return {"error": _execution_error(error)}
        assert result is not None
        if result.get("isError"):
            said = formats.error_text(result) or "the tool answered with an error that says nothing"
            self._steps.error("Tool Execution Error", f"Tool execution error: {said}")
            return {"error": said}
        self._steps.info("Tool Call Success", f"Tool '{tool}' (server: '{server}') called successfully.")
        return {"result": formats.result_text(_page_alone(result))}


def _with_blacklist(former: frozenset[tuple[str, str]], wanted: frozenset[tuple[str, str]], config: Config) -> Config:
    others = [pair for pair in config.blacklist if pair not in former]
    return config.model_copy(update={"blacklist": (*others, *sorted(wanted))})


def _pair(item: Any) -> tuple[str, str]:
    """(server, tool) of `("server", "tool")`, `["server", "tool"]` or `"server/tool"`. Raises ValueError."""
    pair = item.split("/", 1) if isinstance(item, str) else list(item)
    if len(pair) != 2 or not all(isinstance(one, str) and one for one in pair):
        raise ValueError(f"an item of tool_blacklist is (server, tool) or 'server/tool', not {item!r}")
    return pair[0], pair[1]


def _code(result: Json) -> str | None:
    meta = result.get("_meta")
    facts = meta.get("mcp-hub/error") if isinstance(meta, dict) else None
    return facts.get("code") if isinstance(facts, dict) and result.get("isError") else None


def _execution_error(error: Exception) -> str:
    """What orchestrators look for at the beginning of an error is left there: `Unknown tool: ...`."""
    unknown = isinstance(error, UpstreamAnswered) and error.code == INVALID_PARAMS
    if isinstance(error, UnknownName) or unknown:
        return str(error)
    return f"Tool execution failed: {formats.error_message(error)}"


def _page_alone(result: Json) -> Json:
    """A page that the hub fetched itself, without the last block, which says so to a model."""
    meta = result.get("_meta")
    marked = isinstance(meta, dict) and FALLBACK_KEY in meta
    return {**result, "content": result["content"][:-1]} if marked else result
