"""Agently's part of ToolManager: functions and tools of servers by name and by tags. Errors are returned as texts."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from mcp_hub.config.models import Server
from mcp_hub.errors import HubError, UnknownName
from mcp_hub.library import Hub, formats
from mcp_hub.library.agently import agently_format
from mcp_hub.library.engine_host import CallOutcome, ServerTools, ToolCard
from mcp_hub.library.server_entries import (
    entries_of,
    is_same_server,
    make_server,
    with_call_settings,
    with_servers,
    with_settings,
)
from mcp_hub.servers.local import Mark, inherited_options
from mcp_hub.servers.local.call_stream import begin_alone
from mcp_hub.servers.local.local_tool import LocalTool

Shift = Literal["sync", "async"]


def shifted(func: Callable[..., Any], shift: Shift) -> Callable[..., Any]:
    """Returns the function, wrapped to be sync or async if it is not.

    The sync one also works inside a running loop. Raises ValueError for another `shift`.
    """
    if shift not in ("sync", "async"):
        raise ValueError(f"shift is 'sync', 'async' or None, not {shift!r}")
    is_async = inspect.iscoroutinefunction(func)
    if shift == "sync":
        return _sync(func) if is_async else func
    return func if is_async else _async(func)


def _sync(func: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(func(*args, **kwargs))
        future = begin_alone(func(*args, **kwargs), "mcp-hub sync")
        try:
            return future.result()
        except BaseException:
            future.cancel()  # for example after KeyboardInterrupt
            raise

    return call


def _async(func: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(func)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(func, *args, **kwargs)

    return call


Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
Tags = str | Iterable[str] | None

UNNAMED: Final = "mcp"
"""Beginning of the ids of servers that `use_mcp` gets without a name."""


class ToolsByName:
    """Tools by name. Registering a name again replaces the tool."""

    hub: Hub

    def __init__(self, timeout: float | None = None, check_arguments: bool = True) -> None:
        self._timeout = timeout
        self._checks = check_arguments
        self._functions_key = object()
        self._imported: dict[str, Server] = {}
        """The servers of `use_mcp`, by id."""
        self._id_lock = threading.Lock()
        self._chosen_ids: set[str] = set()
        """Ids of servers that are being added, which no other import may take. `_id_lock` must be held."""
        self._proxies: dict[tuple[str, str], Callable[..., Any]] = {}
        self._funcs: dict[str, Callable[..., Any]] = {}
        self._info: dict[str, Json] = {}
        self._tags: dict[str, set[str]] = {}
        self._addresses: dict[str, tuple[str, str]] = {}
        """Name -> (server, name of the tool there), for tools of servers."""

    @property
    def tool_funcs(self) -> Mapping[str, Callable[..., Any]]:
        """Returns name -> function."""
        return MappingProxyType(self._funcs)

    @property
    def tool_info(self) -> Mapping[str, Json]:
        """Returns name -> `{"name", "desc", "kwargs", "returns"?}`."""
        return MappingProxyType(self._info)

    @property
    def tag_mappings(self) -> Mapping[str, set[str]]:
        """Returns tag -> names of the tools with this tag."""
        return MappingProxyType(self._tags)

    # --- functions ---------------------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        desc: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        func: Callable[..., Any] | None = None,
        returns: Any = None,
        tags: Tags = None,
    ) -> ToolsByName:
        """Registers a function as a tool.

        `kwargs` is `{argument: (type, text)}`. Raises TypeError if `func` is not callable.
        """
        if not callable(func):
            raise TypeError("register needs a function: register(name, desc, kwargs, func)")
        schema = agently_format.to_schema(kwargs or {}, func)
        self._put(name, desc, dict(kwargs or {}), func, returns, tags, schema)
        return self

    def tool_func(self, func: F) -> F:
        """Registers a function by its own name, docstring and signature. A decorator that returns it unchanged."""
        desc = inspect.getdoc(func) or func.__name__
        kwargs = agently_format.from_function(func)
        self._put(func.__name__, desc, kwargs, func, agently_format.returns_of(func), None, None)
        return func

    def _put(
        self, name: str, desc: str | None, kwargs: Json, func: Any, returns: Any, tags: Tags, schema: Json | None
    ) -> None:
        tag_list, options = _text_list(tags), inherited_options(func)
        kwargs = {
            argument: description
            for argument, description in kwargs.items()
            if argument not in options.get("preset", {})
        }
        mark = Mark(
            name=name, description=desc or None, tags=tuple(tag_list), json_schema=schema, convert=False, **options
        )
        try:
            tool = LocalTool(func, mark)
        except TypeError:
            if schema is not None:
                raise
            # Unlike elsewhere, arguments may have types without a JSON schema: the function checks those itself.
            written = agently_format.to_schema(kwargs, func)
            tool = LocalTool(
                func, Mark(name=name, description=desc or None, tags=tuple(tag_list), json_schema=written, **options)
            )
        first = self.hub.functions is None
        self.hub.put_function(tool)
        if first and (self._timeout is not None or not self._checks):
            edit = partial(with_call_settings, self._timeout, self._checks, functions_only=True)
            self.hub.keep_edit(self._functions_key, edit)  # first: another thread may renew the hub
            self.hub.change_sync(edit)
        self._addresses.pop(name, None)
        self._record(name, desc, kwargs, func, returns, tag_list)

    def _record(self, name: str, desc: str | None, kwargs: Json, func: Any, returns: Any, tags: list[str]) -> None:
        self._untag(name)
        self._funcs[name] = func
        self._info[name] = {"name": name, "desc": desc if desc is not None else "", "kwargs": kwargs}
        if returns is not None:
            self._info[name]["returns"] = returns
        for tag in tags:
            self._tags.setdefault(tag, set()).add(name)

    def _untag(self, name: str) -> None:
        remaining = {tag: names - {name} for tag, names in self._tags.items()}
        self._tags = {tag: names for tag, names in remaining.items() if names}

    def tag(self, tool_names: str | Iterable[str], tags: Tags) -> ToolsByName:
        """Adds tags to tools. Raises ValueError for a name that is not registered, and changes nothing then."""
        names, labels = _text_list(tool_names), _text_list(tags)
        for name in names:
            if name not in self._info:
                raise ValueError(f"Cannot find tool named '{name}'")
        for tag in labels:
            self._tags.setdefault(tag, set()).update(names)
        for name in names:
            if name not in self._addresses:
                self.hub.tag_function(name, sorted(tag for tag, tagged in self._tags.items() if name in tagged))
        return self

    # --- servers -----------------------------------------------------------------------------------------------

    def use_mcp(self, transport: Any, *, headers: Mapping[str, str] | None = None, tags: Tags = None) -> ToolsByName:
        """Adds servers and registers their tools under their own names.

        `transport` is whatever `server_entries.entries_of` accepts. Raises TypeError, ValueError or ConfigError if it
        is invalid, and CallError if a server cannot be reached.
        """
        self.hub.run(lambda: self.async_use_mcp(transport, headers=headers, tags=tags))
        return self

    async def async_use_mcp(
        self, transport: Any, *, headers: Mapping[str, str] | None = None, tags: Tags = None
    ) -> ToolsByName:
        """Does what `use_mcp` does, for coroutines."""
        entries = entries_of(transport, headers)
        with self._id_lock:
            servers = {server.id: server for server in [self._server(name, *entry) for name, entry in entries.items()]}
            chosen = servers.keys() - self._chosen_ids
            self._chosen_ids |= chosen
        try:
            listed = await self._start_servers(servers)
        finally:
            with self._id_lock:
                self._chosen_ids -= chosen
        former_names = {name for name, (id, _) in self._addresses.items() if id in servers}
        used = {id for id, _ in self._addresses.values()}
        for server_tools in listed:
            for card in server_tools.tools:
                # fastmcp's client names the tools of several servers in the same way.
                name = f"{card.server}_{card.name}" if len(entries) > 1 else card.name
                self._import(card, name, _text_list(tags))
        available = {(card.server, card.name) for server_tools in listed for card in server_tools.tools}
        for name in former_names:
            if self._addresses[name] not in available:
                self._forget(name)
        if unused := used - {id for id, _ in self._addresses.values()}:
            await self.hub.edit(partial(with_servers, unused, ()))
            self._imported = {id: server for id, server in self._imported.items() if id not in unused}
        return self

    def _server(self, name: str, entry: Json, literal: bool) -> Server:
        """Returns the server of an entry, under the id of the import that it replaces or under a new one."""
        if name:
            id = name if name in self._imported else self._free_id(name)
        else:
            unnamed = make_server(UNNAMED, entry, literal)
            same = (id for id, imported in self._imported.items() if is_same_server(unnamed, imported))
            id = next(same, None) or self._free_id("")
        return with_settings(self._timeout, self._checks, make_server(id, entry, literal))

    async def _start_servers(self, servers: Mapping[str, Server]) -> list[ServerTools]:
        """Adds servers, or replaces those of these ids, and returns their tools.

        Raises CallError if one of them is not available, and changes nothing then.
        """
        former_servers = {id: self._imported[id] for id in servers if id in self._imported}
        await self.hub.edit(partial(with_servers, servers, servers.values()))
        try:
            listed = [
                server_tools for batch in await asyncio.gather(*map(self.hub.listed, servers)) for server_tools in batch
            ]
            for server_tools in listed:
                if server_tools.error is not None:
                    raise server_tools.error
        except BaseException:
            await self.hub.edit(partial(with_servers, servers, former_servers.values()))
            raise
        self._imported |= servers
        return listed

    def _forget(self, name: str) -> None:
        self._untag(name)
        del self._funcs[name], self._info[name], self._addresses[name]

    def _free_id(self, name: str) -> str:
        taken_ids = {server.id for server in self.hub.config.servers} | self._chosen_ids
        stem, number = name or UNNAMED, 1
        id = name or f"{UNNAMED}1"
        while id in taken_ids:
            number += 1
            id = f"{stem}{number}" if not name else f"{stem}_{number}"
        return id

    def _import(self, card: ToolCard, name: str, tags: list[str]) -> None:
        if name in self._funcs and name not in self._addresses:
            self.hub.forget_function(name)
        info = agently_format.info_of(card, name)
        call = self._proxy(card, name)
        self._record(
            name,
            info["desc"],
            info["kwargs"],
            call,
            info.get("returns"),
            [*agently_format.listed_tags(card.definition), *tags],
        )
        self._addresses[name] = (card.server, card.name)

    def _proxy(self, card: ToolCard, name: str) -> Callable[..., Any]:
        """Returns a function that calls a server's tool."""
        cached = self._proxies.get((card.server, card.name))
        if cached is not None and cached.__name__ == name:
            return cached

        async def call(**kwargs: Any) -> Any:
            return agently_format.value_of(await self.hub.act(card.server, card.name, kwargs), name)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = card.description
        self._proxies[card.server, card.name] = call
        return call

    def _configured(self) -> list[ToolCard]:
        """Returns the tools of the configuration, and functions that another part of the program has added.

        It tries to connect to their servers.
        """
        server_ids = [
            server.id
            for server in self.hub.config.servers
            if server.enabled and server.functions is None and server.id not in self._imported
        ]
        if not server_ids and self._funcs.keys() >= self.hub.function_names:
            return []
        return [
            card
            for card in self.hub.list_sync()
            if card.server in server_ids or (card.server == self.hub.functions and card.name not in self._funcs)
        ]

    # --- lists -------------------------------------------------------------------------------------------------

    def get_tool_info(self, tags: Tags = None) -> dict[str, Json]:
        """Returns name -> info of all tools, or of those with any of the tags.

        Tools of the configuration have the names that clients see; their servers are connected first.
        """
        chosen: set[str] = set().union(*(self._tags.get(tag, set()) for tag in _text_list(tags)))
        infos = {name: dict(info) for name, info in self._info.items() if tags is None or name in chosen}
        for card in self._configured():
            if card.exposed not in self._info and (tags is None or not card.tags.isdisjoint(_text_list(tags))):
                infos[card.exposed] = agently_format.info_of(card, card.exposed)
        return infos

    def get_tool_list(self, tags: Tags = None) -> list[Json]:
        """Returns the info of all tools, or of those with any of the tags, without duplicates."""
        return list(self.get_tool_info(tags).values())

    def get_tool_func(self, name: str, shift: Shift | None = None) -> Callable[..., Any] | None:
        """Returns the function that was registered, or one that calls the server's tool; None for an unknown name.

        With `shift`, the function is wrapped to be sync or async where needed. The sync one also works inside a running
        loop. Raises ValueError for another `shift`.
        """
        func = self._funcs.get(name)
        if func is None:
            card = next((candidate for candidate in self._configured() if candidate.exposed == name), None)
            func = None if card is None else self._proxy(card, name)
        return func if func is None or shift is None else shifted(func, shift)

    # --- calls -------------------------------------------------------------------------------------------------

    def call_tool(self, name: str, kwargs: Mapping[str, Any] | None = None) -> Any:
        """Calls a tool and returns its result. An unknown tool or a failure is returned as a text.

        A server's tool returns its structured content, else its first block (JSON parsed), None if there is none, or
        `{"error": text}` for an error. A generator function returns its generator.
        """
        address = self._address_of(name) or _address_in(name, self.hub.list_sync())
        if address is None:
            return _not_found(name)
        return self._answer(name, self.hub.act_sync(*address, kwargs or {}, keep_generator=True))

    async def async_call_tool(self, name: str, kwargs: Mapping[str, Any] | None = None) -> Any:
        """Does what `call_tool` does, for coroutines."""
        address = self._address_of(name) or _address_in(name, await self.hub.list())
        if address is None:
            return _not_found(name)
        return self._answer(name, await self.hub.act(*address, kwargs or {}, keep_generator=True))

    def _address_of(self, name: str) -> tuple[str, str] | None:
        if name in self._addresses:
            return self._addresses[name]
        functions = self.hub.functions
        return (functions, name) if name in self._funcs and functions is not None else None

    def _answer(self, name: str, outcome: CallOutcome) -> Any:
        if name in self._addresses or name not in self._funcs:
            try:
                return agently_format.value_of(outcome, name)
            except (HubError, TimeoutError):
                return f"Error: {formats.outcome_message(outcome, name)}"
        if outcome.direct:
            return outcome.value
        if isinstance(outcome.error, UnknownName):
            return _not_found(name)
        if outcome.error is not None:
            return f"Error: {formats.outcome_message(outcome, name)}"
        result = outcome.result or {}
        if not result.get("isError"):
            return agently_format.value_of(outcome, name)  # a policy has changed what the function returned
        text = formats.error_text(result)
        raised = outcome.raised
        if raised is not None and not any(raised.args) and text == f"Error: {type(raised).__name__}":
            return "Error: "
        return text if text.startswith("Error:") else f"Error: {text}"


def _not_found(name: str) -> str:
    return f"Can not find tool named '{name}'"


def _text_list(values: str | Iterable[str] | None) -> list[str]:
    """Returns a list of texts; a single text becomes a list of one."""
    return [] if values is None else [values] if isinstance(values, str) else [str(value) for value in values]


def _address_in(name: str, cards: list[ToolCard]) -> tuple[str, str] | None:
    """Returns (server, tool) of the tool exposed under a name, or else of the only tool with this original name."""
    for card in cards:
        if name in (card.exposed, f"{card.server}/{card.name}"):
            return card.server, card.name
    same = [card for card in cards if card.name == name]
    return (same[0].server, same[0].name) if len(same) == 1 else None
