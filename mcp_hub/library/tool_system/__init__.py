"""Tools by name, by tool set and by profile, and the interfaces by which a program can configure them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol, runtime_checkable

from mcp_hub.catalog.names import did_you_mean, expose
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import OutputStrategy, ProfileSettings
from mcp_hub.errors import CallError, HubError, ServerUnavailable
from mcp_hub.library import Hub, formats
from mcp_hub.library.engine_host import ServerTools, ToolCard
from mcp_hub.library.formats import ToolCall
from mcp_hub.library.tool_system.tool_types import BaseTool, tool_of
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.patterns import WILDCARDS, Patterns
from mcp_hub.policy.selection import choices_text, matches_tool, prefixes_of

Strategy = Literal["function_calling", "structured_output"]


@runtime_checkable
class ILLMClient(Protocol):
    """The client of a model, as far as ToolFormatter needs it. The method may be async."""

    def supports_function_calling(self) -> bool | Awaitable[bool]:
        """Returns whether the model supports function calling."""
        ...


@runtime_checkable
class IToolFormatter(Protocol):
    """Writes calls of tools in the way that a model supports."""

    def format(self, tool: Any, parameters: Mapping[str, Any]) -> Json:
        """Returns a call of the tool as the model writes it."""
        ...

    def detect_strategy(self, llm_client: ILLMClient) -> str:
        """Returns `function_calling` or `structured_output`, whichever the model supports and the user allows."""
        ...


Json = dict[str, Any]


class StrategyUnavailable(HubError):
    """The model has no function calling, and the configuration allows nothing else."""


def _settled(value: Any) -> Any:
    """Returns a value, or the result of an awaitable, which is run in a thread: the caller's may run an event loop."""
    if not inspect.isawaitable(value):
        return value

    async def settle() -> Any:
        return await value

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, settle()).result()


class ToolFormatter:
    """Formats tools and calls by `strategy`, which `detect_strategy` sets.

    `output_strategy` is that part of a configuration, or a mapping with its keys.
    """

    def __init__(self, output_strategy: OutputStrategy | Mapping[str, bool] | None = None) -> None:
        if not isinstance(output_strategy, OutputStrategy):
            output_strategy = OutputStrategy.model_validate(dict(output_strategy or {}))
        self._allowed = output_strategy
        self.strategy: Strategy = "function_calling" if output_strategy.function_calling else "structured_output"

    def detect_strategy(self, llm_client: ILLMClient) -> Strategy:
        """Sets and returns the strategy by `llm_client.supports_function_calling()`.

        Where that is async it runs in a thread of its own; coroutines use `async_detect_strategy`. Raises
        StrategyUnavailable if the model does not support it and the configuration allows no fallback.
        """
        try:
            supports = self._allowed.function_calling and _settled(llm_client.supports_function_calling())
        except Exception as error:  # the client may raise anything
            supports = error
        return self._choose(supports)

    async def async_detect_strategy(self, llm_client: ILLMClient) -> Strategy:
        """Does what `detect_strategy` does; a coroutine of the client runs on the running loop.

        Raises StrategyUnavailable.
        """
        try:
            supports: Any = self._allowed.function_calling and llm_client.supports_function_calling()
            supports = await supports if inspect.isawaitable(supports) else supports
        except Exception as error:
            supports = error
        return self._choose(supports)

    def _choose(self, supports: Any) -> Strategy:
        allowed = self._allowed
        if supports is not True and not allowed.fallback_to_structured_output:
            raise StrategyUnavailable(
                "The model does not support function calling, and output_strategy.fallback_to_structured_output is off."
                if allowed.function_calling
                else "output_strategy switches function_calling and fallback_to_structured_output off; switch one on."
            ) from (supports if isinstance(supports, Exception) else None)
        self.strategy = "function_calling" if supports is True else "structured_output"
        return self.strategy

    def format(self, tool: Any, parameters: Mapping[str, Any]) -> Json:
        """Returns a call as the model would write it: OpenAI's `function_call`, or the object of the prompt.

        Raises FormatError.
        """
        style: formats.Style = "openai" if self.strategy == "function_calling" else "structured"
        return formats.call(tool if isinstance(tool, str) else formats.describe_tool(tool).name, parameters, style)

    def format_for_llm(self, tools: Iterable[Any]) -> list[Json] | str:
        """Returns the tools for a model: a list for its `tools` parameter, or a prompt. Raises FormatError."""
        return formats.openai_tools(tools) if self.strategy == "function_calling" else formats.prompt(tools)

    def prompt(self, tools: Iterable[Any]) -> str:
        """Returns a prompt with the tools and how to call them. Raises FormatError."""
        return formats.prompt(tools)

    def parse(self, text_or_message: Any, tools: Iterable[Any] | None = None) -> list[ToolCall]:
        """Returns the calls in what a model wrote, in either strategy. With `tools`, only calls of these count.

        Raises FormatError if a call of the model's interface cannot be read.
        """
        names = None if tools is None else [formats.describe_tool(tool).name for tool in tools]
        return formats.calls_in(text_or_message, names)


log = logging.getLogger("mcp_hub.library")


@runtime_checkable
class IToolManager(Protocol):
    """Tools by name and by tool set."""

    def load_tools(self) -> list[BaseTool]:
        """Returns all tools."""
        ...

    def get_tool(self, name: str) -> BaseTool:
        """Returns a tool. Raises ValueError if there is none of this name."""
        ...

    def get_tool_set(self, name: str) -> list[BaseTool]:
        """Returns the tools of a tool set. Raises ValueError if there is none of this name."""
        ...


@runtime_checkable
class IConfigLoader(Protocol):
    """Loads the configuration of tools and tool sets for `ToolManager.from_config`, in place of the hub."""

    def load(self, path: str) -> Config | Mapping[str, Any]:
        """Returns the configuration in a file, or the content of one."""
        ...


@runtime_checkable
class IConfigSystem(Protocol):
    """Resolves which tools an agent's configuration names, for `get_profile` and `get_tool_set`."""

    def merged_tools(self, tool_sets: Sequence[str], tools: Sequence[str]) -> list[str]:
        """Returns the names of all tools in order, each once. Raises ValueError for an unknown tool set."""
        ...


class ToolSetMerger:
    """The IConfigSystem that ToolManager uses by default: the tool sets of a configuration by name."""

    def __init__(self, config: Config) -> None:
        self._sets = {tool_set.name: tool_set.tools for tool_set in config.tool_sets}

    def merged_tools(self, tool_sets: Sequence[str], tools: Sequence[str]) -> list[str]:
        """Returns the members of the tool sets in their order, then the tools, each once.

        Raises ValueError for an unknown tool set.
        """
        for name in tool_sets:
            if name not in self._sets:
                raise ValueError(f"there is no tool set {name!r}; {choices_text('tool_sets', self._sets)}")
        return list(dict.fromkeys([*(member for name in tool_sets for member in self._sets[name]), *tools]))


class ToolList(list[BaseTool]):
    """The tools of a tool set or profile in the order in which they are named.

    `missing` has the reason for each name without a tool. `formatter` has the `output_strategy` of the profile, or of
    the configuration.
    """

    def __init__(
        self,
        tools: Iterable[BaseTool] = (),
        missing: Mapping[str, str] | None = None,
        output_strategy: OutputStrategy | None = None,
    ) -> None:
        super().__init__(tools)
        self.missing = dict(missing or {})
        self.formatter = ToolFormatter(output_strategy)


class ToolNotFound(ValueError):
    """There is no such tool, or the server that may have it is unavailable; `code` says which."""

    def __init__(self, message: str, code: str = "tool_not_found") -> None:
        super().__init__(message)
        self.code = code


class ToolsBySet:
    """Tools by name, by tool set and by profile. Tool sets and profiles are those of the configuration."""

    hub: Hub
    config_system: IConfigSystem | None = None
    """Resolves tool sets and profiles; None: as the configuration says."""

    @property
    def formatter(self) -> IToolFormatter:
        """Returns a new formatter with the `output_strategy` of the configuration."""
        return ToolFormatter(self.hub.config.output_strategy)

    def load_tools(self) -> list[BaseTool]:
        """Returns all tools in the order of the configuration. Logs once which tools have equal names."""
        return self._loaded(self.hub.list_sync())

    async def async_load_tools(self) -> list[BaseTool]:
        """Does what `load_tools` does, for coroutines."""
        return self._loaded(await self.hub.list())

    def _loaded(self, cards: list[ToolCard]) -> list[BaseTool]:
        by_name: dict[str, list[ToolCard]] = {}
        for card in cards:
            by_name.setdefault(card.name, []).append(card)
        for name, same in by_name.items():
            _first(name, same, self.hub)
        return self._tools(cards)

    def get_tool(self, name: str) -> BaseTool:
        """Returns a tool by its exposed name, by `server/tool`, or by its original name.

        Of several tools with an original name, this is the first in the configuration; a warning names the others.
        Raises ToolNotFound, a ValueError, if there is none, or if its server is unavailable.
        """
        return self.hub.run(lambda: self.async_get_tool(name))

    async def async_get_tool(self, name: str) -> BaseTool:
        """Does what `get_tool` does, for coroutines."""
        matches = self._tools([await find_tool(name, self.hub)])
        if not matches:
            raise ToolNotFound(f"the server of '{name}' was removed")
        return matches[0]

    def get_tool_set(self, name: str) -> ToolList:
        """Returns the available tools of a tool set in its order, and what is missing.

        Raises ValueError for an unknown set.
        """
        return self._selected_tools(ProfileSettings(name="", tool_sets=(name,)), self.hub.listed_sync())

    async def async_get_tool_set(self, name: str) -> ToolList:
        """Does what `get_tool_set` does, for coroutines."""
        return self._selected_tools(ProfileSettings(name="", tool_sets=(name,)), await self.hub.listed())

    def get_profile(self, profile: str | Mapping[str, Any]) -> ToolList:
        """Returns the tools of a profile: those of its tool sets, then its single tools, each once.

        `profile` is the name of one of the configuration, or a mapping with `tool_sets`, `tools`, `tags` and
        `output_strategy`. Raises ValueError for an unknown profile or tool set.
        """
        return self._selected_tools(self._profile(profile), self.hub.listed_sync())

    async def async_get_profile(self, profile: str | Mapping[str, Any]) -> ToolList:
        """Does what `get_profile` does, for coroutines."""
        return self._selected_tools(self._profile(profile), await self.hub.listed())

    def _profile(self, profile: str | Mapping[str, Any]) -> ProfileSettings:
        if not isinstance(profile, str):
            own = {key: profile[key] for key in ("tool_sets", "tools", "tags", "output_strategy") if profile.get(key)}
            return ProfileSettings.model_validate({"name": "", **own})
        profiles = {entry.name: entry for entry in self.hub.config.profiles}
        if profile not in profiles:
            raise ValueError(f"there is no profile {profile!r}; {choices_text('profiles', profiles)}")
        return profiles[profile]

    def _selected_tools(self, profile: ProfileSettings, listed: list[ServerTools]) -> ToolList:
        config = self.hub.config
        system = self.config_system or ToolSetMerger(config)
        servers = {server.id: server for server in config.servers}
        unavailable = {entry.server for entry in listed if entry.error is not None}
        cards = [card for card in _cards(listed) if card.server in servers]
        prefixes = prefixes_of(config.servers)
        chosen: dict[tuple[str, str], ToolCard] = {}
        missing: dict[str, str] = {}
        for member in system.merged_tools(profile.tool_sets, profile.tools):
            pattern = Patterns((member,))
            matches = [card for card in cards if matches_tool(pattern, servers[card.server], card.name, prefixes)]
            if matches and not WILDCARDS.search(member):
                matches = [_first(member, matches, self.hub)]
            found = {(card.server, card.name): card for card in matches if card.server not in unavailable}
            chosen |= found
            if not found:
                owners = {card.server for card in matches} or _owners(member, config.servers)
                errors = _unavailable_servers(owners, listed)
                missing[member] = _error_text(errors) or f"no server lists it{_not_asked(listed)}"
        if tags := frozenset(profile.tags):
            tagged = [card for card in cards if card.server not in unavailable and tags & card.tags]
            chosen |= {(card.server, card.name): card for card in tagged}
        for member, reason in missing.items():
            log.warning("the tool %r of a tool set or profile is missing: %s", member, reason)
        return ToolList(self._tools(chosen.values()), missing, profile.output_strategy or config.output_strategy)

    def _tools(self, cards: Iterable[ToolCard]) -> list[BaseTool]:
        """Converts tools, except those of servers that were removed meanwhile."""
        servers = {server.id: server for server in self.hub.config.servers}
        return [tool_of(card, servers[card.server]) for card in cards if card.server in servers]


async def find_tool(name: str, hub: Hub) -> ToolCard:
    """Returns the tool of a name: exposed, `server/tool`, or original, of the first server that has it.

    Raises ToolNotFound.
    """
    servers = hub.config.servers
    owners = _owners(name, servers)
    if owners:
        # Other servers may be slow, and are asked only if these are available and do not have the tool.
        server_ids = [server.id for server in servers if server.id in owners or not server.namespace]
        candidates = [
            server_tools for batch in await asyncio.gather(*map(hub.listed, server_ids)) for server_tools in batch
        ]
        if (card := _card_named(name, candidates)) is not None:
            return card
        if errors := _unavailable_servers(owners, candidates):
            raise _unavailable(name, errors)
    listed = await hub.listed()
    if (card := _card_named(name, listed)) is not None:
        return card
    cards = list(_cards(listed))
    if same := [card for card in cards if card.name == name]:
        return _first(name, same, hub)
    # Only a server without a namespace has names that begin with no server's.
    if errors := _unavailable_servers(owners or {server.id for server in servers if not server.namespace}, listed):
        raise _unavailable(name, errors)
    hint = await in_thread(did_you_mean, name, [card.exposed for card in cards])
    raise ToolNotFound(f"there is no tool '{name}'{hint}{_not_asked(listed)}")


def _cards(listed: Iterable[ServerTools]) -> Iterator[ToolCard]:
    """Yields all tools, also those of servers that are unavailable now."""
    return (card for server_tools in listed for card in (*server_tools.tools, *server_tools.absent))


def _card_named(name: str, listed: Iterable[ServerTools]) -> ToolCard | None:
    return next((card for card in _cards(listed) if _has_full_name(card, name)), None)


def _has_full_name(card: ToolCard, name: str) -> bool:
    return name in (card.exposed, f"{card.server}/{card.name}")


def _first(name: str, same: Sequence[ToolCard], hub: Hub) -> ToolCard:
    """Returns which of these tools a name means: by its full name, else the first. Logs once that there are others."""
    first = next((card for card in same if _has_full_name(card, name)), same[0])
    if len(same) > 1 and name not in hub.told_names:
        hub.told_names[name] = None
        text = "several servers have a tool %r: it means %s; the others are found by their full names: %s"
        log.warning(text, name, first.exposed, ", ".join(card.exposed for card in same if card is not first))
    return first


def _owners(name: str, servers: Iterable[Server]) -> frozenset[str]:
    """Returns the ids of the servers whose id or namespace a name begins with."""
    return frozenset(
        server.id
        for server in servers
        if name.startswith(f"{server.id}/") or (server.namespace and name.startswith(expose(server.namespace, "")))
    )


def _unavailable_servers(owners: Collection[str], listed: Iterable[ServerTools]) -> list[tuple[str, CallError]]:
    """Returns those of `owners` that are unavailable, with their errors."""
    return [(entry.server, entry.error) for entry in listed if entry.error is not None and entry.server in owners]


def _not_asked(listed: Iterable[ServerTools]) -> str:
    """Returns a note about servers that may have a tool that no other server has."""
    ids = ", ".join(repr(entry.server) for entry in listed if entry.error is not None)
    return f" (unavailable, so their tools are not known: {ids})" if ids else ""


def _unavailable(name: str, errors: Sequence[tuple[str, CallError]]) -> ToolNotFound:
    codes = {error.code for _, error in errors}
    code = codes.pop() if len(codes) == 1 else ServerUnavailable.code
    return ToolNotFound(f"the tool '{name}' is not available: {_error_text(errors)}", code)


def _error_text(errors: Iterable[tuple[str, CallError]]) -> str:
    return "; ".join(f"{server}: {formats.error_message(error)}" for server, error in errors)
