"""Agently's part of ToolManager: functions and tools of servers by name and by tags. Errors are returned as texts."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from mcp_hub.errors import CallError, DeadlineExceeded, ServerUnavailable, StateLost, UnknownName
from mcp_hub.library import formats
from mcp_hub.library.agently import kwargs_format
from mcp_hub.library.engine_host import CallOutcome, ToolCard
from mcp_hub.library.hub import Hub
from mcp_hub.library.server_entries import entries_of
from mcp_hub.policy.breaker import CircuitOpen
from mcp_hub.servers.local.local_tool import LocalTool
from mcp_hub.servers.local.registry import Mark, inherited_options

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
Tags = str | Iterable[str] | None
Shift = Literal["sync", "async"] | None

_GONE = (ServerUnavailable, CircuitOpen, StateLost, DeadlineExceeded)
"""Errors for which Agently's client raises, so that Agently returns None."""


class ToolsByName:
    """Tools by name. Registering a name again replaces the tool."""

    hub: Hub

    def __init__(self) -> None:
        self._funcs: dict[str, Callable[..., Any]] = {}
        self._info: dict[str, Json] = {}
        self._tags: dict[str, set[str]] = {}
        self._places: dict[str, tuple[str, str]] = {}
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
        schema = kwargs_format.to_schema(kwargs or {}, func)
        self._put(name, desc, dict(kwargs or {}), func, returns, tags, schema)
        return self

    def tool_func(self, func: F) -> F:
        """Registers a function by its own name, docstring and signature. A decorator that returns it unchanged."""
        desc = inspect.getdoc(func) or func.__name__
        kwargs = kwargs_format.from_function(func)
        self._put(func.__name__, desc, kwargs, func, kwargs_format.returns_of(func), None, None)
        return func

    def _put(
        self, name: str, desc: str | None, kwargs: Json, func: Any, returns: Any, tags: Tags, schema: Json | None
    ) -> None:
        labels, kept = _listed(tags), inherited_options(func)
        kwargs = {one: said for one, said in kwargs.items() if one not in kept.get("preset", {})}
        mark = Mark(name=name, description=desc or None, tags=tuple(labels), json_schema=schema, **kept)
        try:
            tool = LocalTool(func, mark)
        except TypeError:
            if schema is not None:
                raise
            # Unlike elsewhere, arguments may have types without a JSON schema: the function checks those itself.
            written = kwargs_format.to_schema(kwargs, func)
            tool = LocalTool(
                func, Mark(name=name, description=desc or None, tags=tuple(labels), json_schema=written, **kept)
            )
        self.hub.put_function(tool)
        self._places.pop(name, None)
        self._note(name, desc, kwargs, func, returns, labels)

    def _note(self, name: str, desc: str | None, kwargs: Json, func: Any, returns: Any, tags: list[str]) -> None:
        for names in self._tags.values():
            names.discard(name)
        self._tags = {tag: names for tag, names in self._tags.items() if names}
        self._funcs[name] = func
        self._info[name] = {"name": name, "desc": desc if desc is not None else "", "kwargs": kwargs}
        if returns is not None:
            self._info[name]["returns"] = returns
        for tag in tags:
            self._tags.setdefault(tag, set()).add(name)

    def tag(self, tool_names: str | Iterable[str], tags: Tags) -> ToolsByName:
        """Adds tags to tools. Raises ValueError for a name that is not registered, and changes nothing then."""
        names, labels = _listed(tool_names), _listed(tags)
        for name in names:
            if name not in self._info:
                raise ValueError(f"Cannot find tool named '{name}'")
        for tag in labels:
            self._tags.setdefault(tag, set()).update(names)
        for name in names:
            if name not in self._places:
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
        for name, (entry, literal) in entries.items():
            server = self._free(name)
            await self.hub.add_server(server, entry, literal=literal)
            (listed,) = await self.hub.listed(server)
            if listed.error is not None:
                await self.hub.remove_server(server)
                raise listed.error
            for card in listed.tools:
                # fastmcp's client names the tools of several servers in the same way.
                self._import(card, f"{name}_{card.name}" if len(entries) > 1 else card.name, _listed(tags))
        return self

    def _free(self, name: str) -> str:
        taken = {server.id for server in self.hub.config.servers}
        stem, number = name or "mcp", 1
        wanted = name or "mcp1"
        while wanted in taken:
            number += 1
            wanted = f"{stem}{number}" if not name else f"{stem}_{number}"
        return wanted

    def _import(self, card: ToolCard, name: str, tags: list[str]) -> None:
        async def call(**kwargs: Any) -> Any:
            return _of_server(await self.hub.act(card.server, card.name, kwargs))

        call.__name__ = call.__qualname__ = name
        call.__doc__ = card.description
        kwargs = kwargs_format.from_schema(card.schema) or {}
        returns = kwargs_format.from_schema(_object_schema(card.definition.get("outputSchema")))
        if name in self._funcs and name not in self._places:
            self.hub.forget_function(name)
        self._note(name, card.description, kwargs, call, returns, [*_tags_of(card.definition), *tags])
        self._places[name] = (card.server, card.name)

    # --- lists -------------------------------------------------------------------------------------------------

    def get_tool_info(self, tags: Tags = None) -> dict[str, Json]:
        """Returns name -> info of all tools, or of those with any of the tags."""
        if tags is None:
            return {name: dict(info) for name, info in self._info.items()}
        chosen: set[str] = set().union(*(self._tags.get(tag, set()) for tag in _listed(tags)))
        return {name: dict(info) for name, info in self._info.items() if name in chosen}

    def get_tool_list(self, tags: Tags = None) -> list[Json]:
        """Returns the info of all tools, or of those with any of the tags, without duplicates."""
        return list(self.get_tool_info(tags).values())

    def get_tool_func(self, name: str, shift: Shift = None) -> Callable[..., Any] | None:
        """Returns the function that was registered, or one that calls the server's tool; None for an unknown name.

        With `shift`, the function is wrapped to be sync or async where needed. The sync one also works inside a running
        loop. Raises ValueError for another `shift`.
        """
        func = self._funcs.get(name)
        if func is None or shift is None:
            return func
        if shift not in ("sync", "async"):
            raise ValueError(f"shift is 'sync', 'async' or None, not {shift!r}")
        is_async = inspect.iscoroutinefunction(func)
        if shift == "sync":
            return _sync(func) if is_async else func
        return func if is_async else _async(func)

    # --- calls -------------------------------------------------------------------------------------------------

    def call_tool(self, name: str, kwargs: Mapping[str, Any] | None = None) -> Any:
        """Calls a tool and returns its result. An unknown tool or a failure is returned as a text.

        A server's tool returns its structured content, else its first block (JSON parsed), `{"error": text}` for an
        error, or None if the server is unavailable.
        """
        place = self._place(name) or _found(name, self.hub.list_sync())
        if place is None:
            return _not_found(name)
        return self._answer(name, self.hub.act_sync(*place, kwargs or {}))

    async def async_call_tool(self, name: str, kwargs: Mapping[str, Any] | None = None) -> Any:
        """Does what `call_tool` does, for coroutines."""
        place = self._place(name) or _found(name, await self.hub.list())
        if place is None:
            return _not_found(name)
        return self._answer(name, await self.hub.act(*place, kwargs or {}))

    def _place(self, name: str) -> tuple[str, str] | None:
        if name in self._places:
            return self._places[name]
        functions = self.hub.functions
        return (functions, name) if name in self._funcs and functions is not None else None

    def _answer(self, name: str, outcome: CallOutcome) -> Any:
        if name in self._places or name not in self._funcs:
            return _of_server(outcome)
        if outcome.direct:
            return outcome.value
        if isinstance(outcome.error, UnknownName):
            return _not_found(name)
        if outcome.error is not None:
            return f"Error: {formats.error_message(outcome.error)}"
        result = outcome.result or {}
        if not result.get("isError"):
            return _of_server(outcome)  # a policy has changed what the function returned
        said = formats.error_text(result)
        return said if said.startswith("Error:") else f"Error: {said}"


def _not_found(name: str) -> str:
    return f"Can not find tool named '{name}'"


def _listed(values: str | Iterable[str] | None) -> list[str]:
    """Returns a list of texts; a single text becomes a list of one."""
    return [] if values is None else [values] if isinstance(values, str) else [str(value) for value in values]


def _found(name: str, cards: list[ToolCard]) -> tuple[str, str] | None:
    """Returns (server, tool) of the tool exposed under a name, or else of the only tool with this original name."""
    for card in cards:
        if name in (card.exposed, f"{card.server}/{card.name}"):
            return card.server, card.name
    same = [card for card in cards if card.name == name]
    return (same[0].server, same[0].name) if len(same) == 1 else None


def _of_server(outcome: CallOutcome) -> Any:
    """Converts the outcome of a server's tool as fastmcp's client and Agently do."""
    error, result = outcome.error, outcome.result or {}
    if error is not None:
        refused = isinstance(error, CallError) and not isinstance(error, _GONE)
        return {"error": formats.error_message(error)} if refused else None
    if result.get("isError"):
        return {"error": formats.error_text(result)}
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict):
        return None
    if first.get("type") != "text":
        return {"annotations": None, **first}
    try:
        return json.loads(first.get("text", ""))
    except ValueError:
        return first.get("text", "")


def _object_schema(schema: Any) -> Json | None:
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else None


def _tags_of(definition: Json) -> list[str]:
    meta = definition.get("_meta")
    found: list[str] = []
    for key in ("fastmcp", "_fastmcp"):
        said = meta.get(key) if isinstance(meta, dict) else None
        listed = said.get("tags") if isinstance(said, dict) else None
        found += [tag for tag in listed if isinstance(tag, str)] if isinstance(listed, list) else []
    return list(dict.fromkeys(found))


def _sync(func: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(func(*args, **kwargs))
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(asyncio.run(func(*args, **kwargs)))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="mcp-hub sync", daemon=True).start()
        return done.result()

    return call


def _async(func: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(func)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(func, *args, **kwargs)

    return call
