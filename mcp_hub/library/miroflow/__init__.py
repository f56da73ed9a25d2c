"""MiroFlow's part of ToolManager: tools by server, their task log, and `with_timeout`."""

from __future__ import annotations

import asyncio
import difflib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, ParamSpec, Protocol, TypeVar

from mcp_hub.config.models import Config, Server
from mcp_hub.errors import (
    INVALID_PARAMS,
    CallError,
    ConfigError,
    DeadlineExceeded,
    PermissionDenied,
    ServerUnavailable,
    StateLost,
    UnknownName,
    UpstreamAnswered,
    error_facts,
)
from mcp_hub.library import Hub, formats
from mcp_hub.library.engine_host import CallOutcome, ServerTools
from mcp_hub.library.server_entries import (
    PLAYWRIGHT,
    DetachableServer,
    entry_of,
    make_server,
    with_call_settings,
    with_server,
    with_servers,
    with_settings,
)
from mcp_hub.policy.access import BLACKLIST
from mcp_hub.policy.breaker import CircuitOpen
from mcp_hub.policy.fallback import META_KEY as FALLBACK_KEY
from mcp_hub.policy.guard import GuardBlocked
from mcp_hub.security.url_rules import HUGGINGFACE_MESSAGE, UrlRules
from mcp_hub.text import printable

Json = dict[str, Any]


class PlaywrightSession:
    """A session with a browser server.

    It connects with the first call, lasts until `close`, and reconnects if it is lost. The first call after `close`
    begins a new one.

    `server_params` are those of a ToolManager's server. With `hub`, the session uses the server `playwright` of that
    hub.
    """

    def __init__(self, server_params: Any, *, hub: Hub | None = None) -> None:
        self.server_params = server_params
        self._owns_hub = hub is None
        self._hub = hub or self._new_hub()
        self._server = DetachableServer(self._hub, PLAYWRIGHT)

    def _new_hub(self) -> Hub:
        hub = Hub()
        entry, literal = entry_of(PLAYWRIGHT, self.server_params)
        hub.add_server_unstarted(PLAYWRIGHT, entry, literal=literal)
        return hub

    async def connect(self) -> None:
        """Connects unless connected. Raises CallError."""
        await self.open()
        (listed,) = await self._hub.listed(PLAYWRIGHT)
        if listed.error is not None:
            raise listed.error

    async def open(self) -> None:
        """Makes the session usable again after `close`, without waiting until it is connected."""
        await self._server.restore()

    async def call_tool(self, tool_name: str, arguments: Json | None = None) -> str:
        """Calls a tool and returns the texts of its result, also of an error result.

        Raises CallError, UnknownName and UpstreamAnswered.
        """
        await self.open()
        outcome = await self._hub.act(PLAYWRIGHT, tool_name, arguments or {})
        if outcome.error is not None:
            raise outcome.error
        return formats.result_text(outcome.result or {})

    async def close(self) -> None:
        """Ends the session and the server's process, once its running calls have ended. Idempotent."""
        if self._owns_hub:
            former_hub, self._hub = self._hub, self._new_hub()
            await former_hub.aclose()
        else:
            await self._server.detach()


P = ParamSpec("P")
R = TypeVar("R")


def with_timeout(timeout_s: float = 300.0) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Returns a decorator that cancels a coroutine after `timeout_s` seconds and raises asyncio.TimeoutError."""

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            return await asyncio.wait_for(function(*args, **kwargs), timeout=timeout_s)

        return limited

    return decorate


log = logging.getLogger("mcp_hub.library")

_PREFIX: Final = "ToolManager | "


class TaskLog(Protocol):
    """A log of steps. The arguments are passed by position, so their names do not matter."""

    def log_step(self, level: str, step_name: str, message: str, metadata: Any = None, /) -> Any:
        """Logs one step."""
        ...


OnTimeout = Literal["raise", "return"]

_HUGGINGFACE: Final = UrlRules()
_CONNECTION: Final = (ServerUnavailable, CircuitOpen, StateLost, PermissionDenied)
"""Errors of calls that did not reach the server, or lost it."""


class ToolsByServer:
    """Tools by server. `server_configs` has `{"name", "params"}` for each; `entry_of` says what `params` may be."""

    hub: Hub

    def __init__(
        self,
        server_configs: Sequence[Mapping[str, Any]],
        tool_blacklist: Iterable[Any] | None,
        timeout: float | None,
        on_timeout: OnTimeout,
        check_arguments: bool,
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
        self.task_log: TaskLog | None = None
        """The log that gets the steps."""
        self._on_timeout = on_timeout
        self._unusable: dict[str, Exception] = {}
        self._applied_blacklist: frozenset[tuple[str, str]] = frozenset(self.tool_blacklist)
        """The blacklist that the hub has."""
        self._blacklist_key, self._settings_key = object(), object()
        self.hub.edit_unstarted(functools.partial(_with_blacklist, frozenset(), self._applied_blacklist))
        self._keep_blacklist(self._applied_blacklist)
        self._timeout, self._checks = timeout, check_arguments
        self._applied_servers = dict(self.server_dict)
        """The servers that the hub has."""
        self._taken = set(self.server_dict)
        """Names of `server_configs` that were put into `server_dict`, from which the program may delete them."""
        self._own = {server.id for server in self.hub.config.servers}
        """Names of servers of the hub that those of `server_dict` may replace."""
        for name, params in self.server_dict.items():
            if name not in self._own and (server := self._usable(name, params)) is not None:
                self.hub.edit_unstarted(functools.partial(with_server, server))
        if timeout is not None or not check_arguments:
            edit = functools.partial(with_call_settings, timeout, check_arguments)
            self.hub.edit_unstarted(edit)
            self.hub.keep_edit(self._settings_key, edit)

    def _usable(self, name: str, params: Any) -> Server | None:
        """Returns the server to add; None if its params are not usable."""
        try:
            entry, literal = (params, True) if isinstance(params, Server) else entry_of(name, params)
            server = make_server(name, entry, literal)
            if name not in self._own and any(existing.id == name for existing in self.hub.config.servers):
                raise ConfigError(f"there is a server {name!r} already; choose another name")
        except (TypeError, ConfigError) as error:
            self._unusable[name] = error
            return None
        self._own.add(name)
        return with_settings(self._timeout, self._checks, server)

    # --- the task log ------------------------------------------------------------------------------------------

    def set_task_log(self, task_log: TaskLog | None) -> None:
        """Sends steps to this log from now on, beginning with one that the manager is initialized."""
        self.task_log = task_log
        self._log("info", "Initialization", f"ToolManager initialized, loaded servers: {list(self.server_dict)}")

    def _log(self, level: str, step_name: str, message: str, metadata: Any = None) -> None:
        """Logs one step, if there is a task log, whose exceptions never fail a call. Subclasses may extend it."""
        if self.task_log is None:
            return
        try:
            self.task_log.log_step(level, _PREFIX + step_name, message, metadata)
        except Exception as error:
            log.warning("the task log failed for step %r: %r", step_name, error)

    # --- lists -------------------------------------------------------------------------------------------------

    def get_server_params(self, server_name: str) -> Any:
        """Returns the `params` of a server, or None if there is none of this name."""
        return self.server_dict.get(server_name)

    async def get_all_tool_definitions(self) -> list[Json]:
        """Returns `[{"name": SERVER, "tools": [{"name", "description", "schema"}, ...]}, ...]` in order.

        The tools of an unavailable server are one entry `{"error": "Unable to fetch tools: ..."}`.
        """
        await self._apply_changes()
        if self.browser_session is not None:
            await self.browser_session.open()
        for name in self.server_dict:
            self._log("info", "Get Tool Definitions", f"Getting tool definitions for server '{name}'...")
        listed = {server_tools.server: server_tools for server_tools in await self.hub.listed()}
        names = dict.fromkeys([*self.server_dict, *listed])
        return [{"name": name, "tools": self._definitions(name, listed.get(name))} for name in names]

    def _definitions(self, name: str, listed: ServerTools | None) -> list[Json]:
        error: Exception | None = self._unusable.get(name) or (listed.error if listed is not None else None)
        if error is not None or listed is None:
            self._log_unknown_kind(name, error)
            reason = str(error) if error is not None else "it is switched off in the configuration"
            self._log(
                "error", "Connection Error", f"Error: Unable to connect or get tools from server '{name}': {reason}"
            )
            return [{"error": f"Unable to fetch tools: {reason}"}]
        for tool in listed.blacklisted:
            self._log("info", "Tool Blacklisted", f"Tool '{tool}' in server '{name}' is blacklisted, skipping.")
        tools = [{"name": card.name, "description": card.description, "schema": card.schema} for card in listed.tools]
        self._log(
            "info",
            "Tool Definitions Success",
            f"Successfully obtained {len(tools)} tool definitions from server '{name}'.",
        )
        return tools

    def _log_unknown_kind(self, name: str, error: Exception | None) -> None:
        if isinstance(error, TypeError):
            kind = type(self.server_dict[name])
            self._log("error", "Unknown Parameter Type", f"Error: Unknown parameter type for server '{name}': {kind}")

    async def _apply_changes(self) -> None:
        """Updates the hub if the program has changed `server_dict`, `server_configs` or `tool_blacklist`.

        Several calls at once all do this, so that none goes on before the hub has the changes.
        """
        for config in self.server_configs:
            if config["name"] not in self._taken:
                self._taken.add(config["name"])
                self.server_dict.setdefault(config["name"], config["params"])
        servers, blacklist = dict(self.server_dict), frozenset(_pair(item) for item in self.tool_blacklist)
        former, former_blacklist = self._applied_servers, self._applied_blacklist
        if servers == former and blacklist == former_blacklist:
            return
        changed = {name for name in {*former, *servers} if former.get(name) != servers.get(name)}
        for name in changed:
            self._unusable.pop(name, None)
        usable = [server for name in servers if name in changed and (server := self._usable(name, servers[name]))]
        self._keep_blacklist(blacklist)

        def edit(config: Config) -> Config:
            edited = _with_blacklist(former_blacklist, blacklist, with_servers(changed, usable, config))
            return config if edited == config else edited  # another call has done it meanwhile

        await self.hub.edit(edit)
        self._applied_servers, self._applied_blacklist = servers, blacklist

    def _keep_blacklist(self, blacklist: frozenset[tuple[str, str]]) -> None:
        """Makes the hub apply the blacklist to later configurations too."""
        self.hub.keep_edit(self._blacklist_key, functools.partial(_with_blacklist, frozenset(), blacklist))

    # --- the guard ---------------------------------------------------------------------------------------------

    def _is_huggingface_dataset_or_space_url(self, url: Any) -> bool:
        """Returns whether a URL is one of datasets or spaces of Hugging Face, as the guard reads it."""
        return isinstance(url, str) and _HUGGINGFACE.refuses(url) is not None

    def _should_block_hf_scraping(self, tool_name: str, arguments: Any) -> bool:
        """Returns whether a call would scrape such a page. A subclass may override both, to block more."""
        url = arguments.get("url") if isinstance(arguments, Mapping) else None
        return tool_name in ("scrape", "scrape_website") and self._is_huggingface_dataset_or_space_url(url)

    @property
    def _extends_the_guard(self) -> bool:
        names = ("_is_huggingface_dataset_or_space_url", "_should_block_hf_scraping")
        return any(getattr(type(self), name) is not getattr(ToolsByServer, name) for name in names)

    # --- calls -------------------------------------------------------------------------------------------------

    async def execute_tool_call(self, server_name: str, tool_name: str, arguments: Json | None = None) -> Json:
        """Calls a tool and returns `{"server_name", "tool_name", "result"}`, or with `error` instead of `result`.

        Raises asyncio.TimeoutError at the call's deadline, unless `on_timeout` is "return", and nothing else.
        """
        answer: Json = {"server_name": server_name, "tool_name": tool_name}
        await self._apply_changes()
        server_name = str(server_name)  # a model may have written anything
        if (unusable := self._unusable.get(server_name)) is not None:
            self._log_unknown_kind(server_name, unusable)
            self._log_failure(server_name, tool_name, str(unusable))
            return answer | {"error": f"Tool call failed: {unusable}"}
        if server_name not in self.server_dict and server_name not in [server.id for server in self.hub.config.servers]:
            return answer | {"error": await self._not_found(server_name, tool_name)}
        if not isinstance(tool_name, str):
            self._log("error", "Tool Call Failed", "Error: The name of a tool must be a string")
            return answer | {"error": "Tool call failed: the name of a tool must be a string"}
        await self._use_browser(server_name)
        if await self.hub.why_hidden(server_name, tool_name) == BLACKLIST.name:
            self._log("error", "Tool Blacklisted", f"Tool '{tool_name}' on server '{server_name}' is blacklisted.")
            return answer | {"error": f"Tool '{tool_name}' on server '{server_name}' is blacklisted."}
        if self._extends_the_guard and self._should_block_hf_scraping(tool_name, arguments or {}):
            self._log("warning", "Tool Call Blocked", f"Tool '{tool_name}' (server: '{server_name}') was not called")
            return answer | {"result": HUGGINGFACE_MESSAGE}
        redacted = self.hub.redaction.value(arguments or {})
        message = f"Connecting to server '{server_name}' to call tool '{tool_name}'"
        self._log("info", "Tool Call Start", message, {"arguments": redacted})
        outcome = await self.hub.act(server_name, tool_name, arguments or {})
        self._log_fallback(outcome)
        outcome_fields = self._outcome_fields(server_name, tool_name, outcome)
        if isinstance(outcome.error, UnknownName) and (hint := await self._hint(server_name, tool_name)):
            outcome_fields["error"] += f".{hint}"
        return answer | outcome_fields

    async def _not_found(self, server: str, tool: str) -> str:
        ids = [candidate.id for candidate in self.hub.config.servers if candidate.enabled]
        close_matches = difflib.get_close_matches(server, ids, n=1)
        hint = f" Did you mean '{close_matches[0]}'?" if close_matches else await self._hint(server, tool)
        self._log(
            "error",
            "Server Not Found",
            f"Error: Attempting to call server '{printable(server)}' not found."
            + (hint or f" There are: {', '.join(ids)}"),
        )
        return f"Server '{server}' not found."  # exactly this text, as in MiroFlow

    async def _hint(self, server: str, tool: str) -> str:
        """Returns a hint which usable tool, or which server of the tool, may have been meant; "" for none."""
        listed = {
            server_tools.server: [card.name for card in server_tools.tools]
            for server_tools in await self.hub.listed(connect=False)
        }
        close_matches = difflib.get_close_matches(str(tool), listed.get(server, []), n=1)
        if close_matches:
            return f" Did you mean '{close_matches[0]}'?"
        owners = [f"'{id}'" for id, names in listed.items() if tool in names]
        return f" It is a tool of {' and of '.join(owners[:3])}." if owners else ""

    async def _use_browser(self, server: str) -> None:
        if server != PLAYWRIGHT:
            return
        if self.browser_session is None:
            self.browser_session = PlaywrightSession(self.server_dict.get(server), hub=self.hub)
        await self.browser_session.open()

    def _log_fallback(self, outcome: CallOutcome) -> None:
        notes = outcome.call.notes if outcome.call is not None else []
        fallback_notes = [note for note in notes if note.startswith("fallback: ")]
        if not fallback_notes:
            return
        self._log("info", "Fallback Attempt", "The server failed to scrape; fetching the page with MarkItDown")
        if outcome.call is not None and outcome.call.fallback is not None:
            self._log("info", "Fallback Success", "MarkItDown fetched the page")
        else:
            self._log("error", "Fallback Failed", fallback_notes[-1])

    def _log_failure(self, server: str, tool: str, text: str) -> None:
        self._log("error", "Tool Call Failed", f"Error: Failed to call tool '{tool}' (server: '{server}'): {text}")

    def _outcome_fields(self, server: str, tool: str, outcome: CallOutcome) -> Json:
        """Returns `{"result": ...}` or `{"error": ...}`."""
        error, result = outcome.error, outcome.result or {}
        failed = bool(result.get("isError"))
        if isinstance(error, GuardBlocked) or (failed and error_facts(result).get("code") == GuardBlocked.code):
            text = formats.outcome_message(outcome, tool) if error is not None else formats.error_text(result)
            self._log("warning", "Tool Call Blocked", f"Tool '{tool}' (server: '{server}') was not called: {text}")
            return {"result": text}
        if isinstance(error, DeadlineExceeded | TimeoutError):
            text = formats.outcome_message(outcome, tool) or "the call took longer than its deadline"
            self._log_failure(server, tool, text)
            if self._on_timeout == "raise":
                raise TimeoutError(text) from error
            return {"error": f"Tool execution failed: {text}"}
        if isinstance(error, _CONNECTION):
            text = formats.outcome_message(outcome, tool)
            self._log_failure(server, tool, text)
            return {"error": f"Tool call failed: {text}"}
        if error is not None:
            self._log(
                "error", "Tool Execution Error", f"Tool execution error: {formats.outcome_message(outcome, tool)}"
            )
            return {"error": _execution_error(tool, outcome)}
        if failed:
            text = formats.error_text(result) or "the tool answered with an error that says nothing"
            self._log("error", "Tool Execution Error", f"Tool execution error: {text}")
            return {"error": text}
        self._log("info", "Tool Call Success", f"Tool '{tool}' (server: '{server}') called successfully.")
        return {"result": formats.result_text(_page_alone(result))}


def _with_blacklist(
    former_blacklist: frozenset[tuple[str, str]], blacklist: frozenset[tuple[str, str]], config: Config
) -> Config:
    remaining_pairs = [pair for pair in BLACKLIST.of(config) if pair not in former_blacklist | blacklist]
    return BLACKLIST.changed(config, (*remaining_pairs, *sorted(blacklist)))


def _pair(item: Any) -> tuple[str, str]:
    """Reads `("server", "tool")`, `["server", "tool"]` or `"server/tool"` as (server, tool). Raises ValueError."""
    pair = item.split("/", 1) if isinstance(item, str) else list(item)
    if len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
        raise ValueError(f"an item of tool_blacklist is (server, tool) or 'server/tool', not {item!r}")
    return pair[0], pair[1]


def _execution_error(tool: str, outcome: CallOutcome) -> str:
    """Returns the error text. It begins as those of the original's servers, which orchestrators look for.

    They ask the model again after `Unknown tool: ...`, and after `Error executing tool NAME: ...` for wrong arguments.
    """
    error = outcome.error
    unknown = isinstance(error, UpstreamAnswered) and error.code == INVALID_PARAMS
    if isinstance(error, UnknownName) or unknown:
        return str(error)
    prefix = f"Error executing tool {tool}" if isinstance(error, CallError) else "Tool execution failed"
    return f"{prefix}: {formats.outcome_message(outcome, tool)}"


def _page_alone(result: Json) -> Json:
    """Returns a result; a page that the hub fetched as a fallback loses its last block, which is a note for models."""
    meta = result.get("_meta")
    marked = isinstance(meta, dict) and FALLBACK_KEY in meta
    return {**result, "content": result["content"][:-1]} if marked else result
