"""Implements the methods that clients call, with one table for both eras and all transports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final

from mcp_hub.catalog import OWN, Route, exposed_ids
from mcp_hub.downstream import Exchange, Respondent
from mcp_hub.downstream.parked_calls import ParkedCalls, UnreachableRespondent
from mcp_hub.downstream.subscriptions import Resolver, Subscriptions
from mcp_hub.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    ProtocolError,
    UnknownName,
)
from mcp_hub.hub import Engine
from mcp_hub.hub.exposure import client_of
from mcp_hub.hub.own_tools import CODE_RUN
from mcp_hub.observability.stalls import in_slices
from mcp_hub.policy import Call
from mcp_hub.policy.quotas import Allowance, Backlog, Quotas
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import LOG_LEVELS, LOG_MESSAGE, SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE, Era, level_passes
from mcp_hub.protocol.frames import Raw
from mcp_hub.protocol.kinds import KINDS, PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS, Kind
from mcp_hub.protocol.questions import TASKS_EXTENSION, extension_settings, requestable_capabilities
from mcp_hub.protocol.skill_entries import READ_DIRECTORY
from mcp_hub.security.callers import Caller

Handler = Callable[[Exchange], Awaitable[Any]]
"""Returns the result of one request; raises CallError or ProtocolError."""

CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
_REFERENCES: Final = {"ref/prompt": (PROMPTS, "name"), "ref/resource": (RESOURCES, "uri")}


class Methods:
    """The handlers of one hub; `handlers` has them by method."""

    def __init__(self, hub: Engine, backlog: Backlog, quotas: Quotas) -> None:
        self._hub, self._catalogs = hub, hub.catalogs
        self._backlog, self._quotas = backlog, quotas
        self.parked_calls = ParkedCalls(hub.act, hub.one_by_one, backlog)
        self.subscriptions = Subscriptions(hub, self._resolve)
        self.handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "ping": self.ping,
            eras.DISCOVER: self._discover,
            eras.LISTEN: self.subscriptions.listen,
            "completion/complete": self._complete,
            SET_LEVEL: self._set_level,
            SUBSCRIBE: self.subscriptions.subscribe,
            UNSUBSCRIBE: self.subscriptions.subscribe,
        }
        for method in exposed_ids.TASK_METHODS:
            self.handlers[method] = self._task
        for kind in KINDS:
            self.handlers[kind.list_method] = partial(self._list, kind)
        for kind in (TOOLS, RESOURCES, PROMPTS, SKILLS):
            self.handlers[kind.act_method] = partial(self._act, kind)
        self.handlers[READ_DIRECTORY] = partial(_modern_only, self._read_directory)
        self.handlers[SKILLS.list_method] = partial(_modern_only, self._list_skills)
        self.handlers[SKILLS.act_method] = partial(_modern_only, self.handlers[SKILLS.act_method])

    def close(self) -> None:
        """Ends every subscription gracefully and gives up every parked call."""
        self.subscriptions.close()
        self.parked_calls.close()

    async def _initialize(self, exchange: Exchange) -> dict[str, Any]:
        params, connection = exchange.params, exchange.connection
        version = connection.declare(
            params.get("protocolVersion"), params.get("capabilities"), params.get("clientInfo")
        )
        self._hub.clients.introduce(exchange.caller, Respondent(connection), "handshake")
        await self._catalogs.wait_for_instructions(connection.envelope, "handshake")
        await self._hub.wait_for_cached(exchange.caller)
        return {
            "protocolVersion": version,
            "capabilities": self._capabilities(exchange),
            "serverInfo": self._hub.info,
            **self._instructions(exchange),
            **({"_meta": self._hub.nesting.meta(exchange.caller)} if connection.envelope.from_hub else {}),
        }

    def _capabilities(self, exchange: Exchange) -> dict[str, Any]:
        extensions = self._hub.extensions(exchange.era, exchange.caller)
        return {**CAPABILITIES, "extensions": extensions} if extensions else CAPABILITIES

    def _instructions(self, exchange: Exchange) -> dict[str, str]:
        """Returns the instructions as a member of a result, as far as they are known now."""
        text = self._hub.instructions(exchange.caller)
        return {} if text is None else {"instructions": text}

    async def ping(self, exchange: Exchange) -> dict[str, Any]:
        """Answers `ping`."""
        return {}

    async def _discover(self, exchange: Exchange) -> dict[str, Any]:
        await self._catalogs.wait_for_instructions(exchange.envelope, "modern")
        await self._hub.wait_for_cached(exchange.caller)
        place_meta = self._hub.nesting.meta(exchange.caller) if exchange.envelope.from_hub else {}
        return {
            "resultType": "complete",
            "supportedVersions": [*eras.MODERN_REVISIONS, *reversed(eras.HANDSHAKE_REVISIONS)],
            "capabilities": self._capabilities(exchange),
            **self._instructions(exchange),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {eras.SERVER_INFO_KEY: self._hub.info, **place_meta},
        }

    async def _set_level(self, exchange: Exchange) -> dict[str, Any]:
        level = exchange.params.get("level")
        if level not in LOG_LEVELS:
            raise ProtocolError(INVALID_PARAMS, f"params.level must be one of {', '.join(LOG_LEVELS)}.")
        exchange.connection.want_log_from(level)
        await self._hub.log_from(level)
        return {}

    async def _list(self, kind: Kind, exchange: Exchange) -> Raw:
        cursor = exchange.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise ProtocolError(INVALID_PARAMS, "cursor must be a text.")
        catalog = await self._catalogs.settled_for(exchange.caller, exchange.envelope)
        exposure = self._catalogs.exposure
        # This is `exposure.concerns` inlined, as every list request passes here.
        is_large = exposure is not None and (
            catalog.tool_bytes > exposure.large_bytes or catalog.tool_count > exposure.large_count
        )
        if kind is TOOLS and exposure is not None and is_large:
            view = (catalog, exchange.caller, exchange.envelope)
            catalog = exposure.last_listing(*view) or await exposure.listed(*view)
        if kind is TOOLS:
            catalog = await self._catalogs.client_schemas.listed(catalog, client_of(exchange.envelope))
        place_meta = self._hub.nesting.meta(exchange.caller) if exchange.envelope.from_hub else None
        return catalog.page(kind, modern=exchange.era == "modern", cursor=cursor, meta=place_meta)

    async def _list_skills(self, exchange: Exchange) -> Raw:
        page = await self._list(SKILLS, exchange)
        self._hub.generation.refresh(SKILLS)
        return page

    async def _read_directory(self, exchange: Exchange) -> dict[str, Any]:
        """Returns what a server has in a directory of a skill, without what the rules hide."""
        result = await self._act(RESOURCES, exchange)
        listed = result.get("resources")
        visible = await in_slices(self._visible(listed if isinstance(listed, list) else [], exchange))
        return {**result, "resources": visible}

    def _visible(self, listed: list[Any], exchange: Exchange) -> Generator[None, None, list[Any]]:
        """Returns the resources of a result that their caller may reach, in steps."""
        visible: list[Any] = []
        catalog = self._catalogs.of(exchange.caller)
        for entry in listed:
            yield
            uri = entry.get("uri") if isinstance(entry, dict) else None
            if isinstance(uri, str):
                route = catalog.resolve(RESOURCES, uri) or self._hub.uris.route_of(exchange.caller, uri)
                if route is not None and self._hub.reaches(route, exchange.caller):
                    visible.append(entry)
        return visible

    async def _act(self, kind: Kind, exchange: Exchange) -> dict[str, Any]:
        name = exchange.params.get(kind.name_key)
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, f"params.{kind.name_key} must be a text.")
        arguments = exchange.params.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "params.arguments must be an object.")
        route, within = await self._resolve(self._hub.route, kind, name, exchange), None
        if route.upstream == OWN and kind is TOOLS:
            route, within = await self._unwrap(route, arguments, exchange)
            name = exchange.params[kind.name_key]
        caller, state = exchange.caller, exchange.params.get("requestState")
        params = eras.end_to_end(exchange.params)
        params[kind.name_key] = route.name
        handshake = exchange.era == "handshake"
        respondent = Respondent(exchange.connection, exchange.send) if handshake else None
        call = Call(
            method=exchange.method,
            exposed=name,
            route=route,
            params=params,
            era=exchange.era,
            envelope=exchange.envelope,
            caller=caller,
            on_progress=_progress_relay(exchange),
            on_message=respondent.hear if respondent is not None else _log_relay(exchange),
            asker=respondent,
        )
        if route == CODE_RUN:
            call.allowance = Allowance(self._quotas, exchange.connection.principal, self._backlog.of(caller))
        if within is not None:
            call.notes.append(f"called by its name through {within}")
            call.within = within
        if exchange.era == "modern" and isinstance(state, str) and self.parked_calls.owns(state):
            return await self.parked_calls.resume(state, call, exchange.params.get("inputResponses"))
        if (
            exchange.era == "modern"
            and requestable_capabilities(exchange.envelope.capabilities)
            and self._hub.may_ask(call)
        ):
            self._hub.clients.introduce(caller, UnreachableRespondent(exchange.envelope.capabilities), "modern")
            return await self.parked_calls.begin(call, call.on_progress)
        return await self._hub.act(call)

    async def _unwrap(self, route: Route, arguments: dict[str, Any], exchange: Exchange) -> tuple[Route, str | None]:
        """Replaces `hub_call` and `hub_read` by the call in their arguments, so that every rule sees a direct call.

        Returns the route to call, and the name of the tool that it was in.
        """
        from mcp_hub.hub.groups.meta_tools import inner_call

        inner = inner_call(route, arguments)
        if inner is None:
            return route, None
        name, inner_arguments = inner
        exchange.params = {**exchange.params, TOOLS.name_key: name, "arguments": inner_arguments}
        return await self._resolve(self._hub.route_for_model, TOOLS, name, exchange), route.name

    async def _resolve(self, resolver: Resolver, kind: Kind, name: str, exchange: Exchange) -> Route:
        try:
            return await resolver(kind, name, exchange.era, exchange.caller)
        except UnknownName:
            self._hub.record_unknown(kind, name, exchange.era, exchange.caller, exchange.envelope)
            if (spans := self._hub.rules.spans) is not None:
                await spans.missed(kind.act_method, name, exchange.params.get("_meta"))
            raise

    async def _route_of_reference(self, kind: Kind, name: str, era: Era, caller: Caller) -> Route:
        """Returns the route of a completion's reference, which may also name a resource template."""
        if kind is RESOURCES:
            template = (await self._catalogs.settled_for(caller)).resolve(TEMPLATES, name)
            if template is not None:
                return template
        return await self._hub.route(kind, name, era, caller)

    async def _complete(self, exchange: Exchange) -> dict[str, Any]:
        reference = exchange.params.get("ref")
        reference_type = reference.get("type") if isinstance(reference, dict) else None
        if not isinstance(reference, dict) or not isinstance(reference_type, str) or reference_type not in _REFERENCES:
            raise ProtocolError(INVALID_PARAMS, "params.ref must be a 'ref/prompt' or a 'ref/resource'.")
        kind, key = _REFERENCES[reference_type]
        name = reference.get(key)
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, f"params.ref.{key} must be a text.")
        route = await self._resolve(self._route_of_reference, kind, name, exchange)
        params = {**eras.end_to_end(exchange.params), "ref": {**reference, key: route.name}}
        call = Call(
            "completion/complete",
            name,
            route,
            params,
            exchange.era,
            exchange.envelope,
            exchange.caller,
            on_progress=_progress_relay(exchange),
            on_message=_log_relay(exchange),
        )
        return await self._hub.act(call)

    async def _task(self, exchange: Exchange) -> dict[str, Any]:
        caller = exchange.caller
        if exchange.era == "handshake" or TASKS_EXTENSION not in self._hub.extensions("modern", caller):
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        if extension_settings(exchange.envelope.capabilities, TASKS_EXTENSION) is None:
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
            text = f"Missing required client capability: {TASKS_EXTENSION}"
            raise ProtocolError(MISSING_CLIENT_CAPABILITY, text, data)
        sealed = exchange.params.get(exposed_ids.TASK_ID)
        if not isinstance(sealed, str):
            raise ProtocolError(INVALID_PARAMS, f"params.{exposed_ids.TASK_ID} must be a text.")
        route, task_id = self._hub.task(sealed, caller)
        params = {**eras.end_to_end(exchange.params), exposed_ids.TASK_ID: task_id}
        try:
            return await self._hub.act(
                Call(exchange.method, sealed, route, params, exchange.era, exchange.envelope, caller)
            )
        except UnknownName:
            raise exposed_ids.unknown_task(sealed) from None


async def _modern_only(handler: Handler, exchange: Exchange) -> Any:
    if exchange.era == "handshake":
        raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
    return await handler(exchange)


def _log_relay(exchange: Exchange) -> Callable[[dict[str, Any]], None] | None:
    """Returns a function that sends a request's log messages to its client, from the level it wants; None for none."""
    if exchange.era == "handshake":
        return Respondent(exchange.connection, exchange.send).hear
    lowest_level = exchange.envelope.log_level
    if lowest_level is None:
        return None

    def relay(params: dict[str, Any]) -> None:
        if level_passes(params.get("level"), lowest_level):
            exchange.send({"jsonrpc": "2.0", "method": LOG_MESSAGE, "params": params})

    return relay


def _progress_relay(exchange: Exchange) -> Callable[[dict[str, Any]], None] | None:
    """Returns a function that sends the progress of a request to its client; None if the client wants none."""
    meta = exchange.params.get("_meta")
    token = meta.get(eras.PROGRESS_TOKEN) if isinstance(meta, dict) else None
    if not isinstance(token, int | str) or isinstance(token, bool):
        return None
    if isinstance(token, str) and len(token) > eras.MAX_TOKEN:
        text = f"params._meta.progressToken may have {eras.MAX_TOKEN:,} characters: each notification repeats it."
        raise ProtocolError(INVALID_PARAMS, text)

    def relay(params: dict[str, Any]) -> None:
        exchange.send({"jsonrpc": "2.0", "method": eras.PROGRESS, "params": {**params, "progressToken": token}})

    return relay
