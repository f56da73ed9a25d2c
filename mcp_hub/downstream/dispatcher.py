"""What each method of a client does: the one table both eras and all transports are served from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from mcp_hub.catalog import tasks
from mcp_hub.catalog.catalog import OWN, Route
from mcp_hub.downstream.backlog import Backlog
from mcp_hub.downstream.callers import MAX_IN_FLIGHT, Caller, Respondent, Send
from mcp_hub.downstream.exchange import Exchange
from mcp_hub.downstream.parking import Parking, Uncarried
from mcp_hub.downstream.quotas import Quotas
from mcp_hub.downstream.subscriptions import SUBSCRIBE, UNSUBSCRIBE, Subscriptions, Way
from mcp_hub.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    CallError,
    Overloaded,
    ProtocolError,
    UnknownName,
    UpstreamAnswered,
    to_wire,
)
from mcp_hub.hub.catalogs import Whom
from mcp_hub.hub.engine import Hub
from mcp_hub.policy import Call
from mcp_hub.protocol import era as eras
from mcp_hub.protocol import extensions
from mcp_hub.protocol.asking import askable
from mcp_hub.protocol.frames import Message, Raw
from mcp_hub.protocol.kinds import KINDS, PROMPTS, RESOURCES, TOOLS, Kind
from mcp_hub.protocol.log_levels import LEVELS, MESSAGE, SET_LEVEL, passes
from mcp_hub.protocol.spellings import ambiguous
from mcp_hub.transport.link import RequestId

log = logging.getLogger("mcp_hub.downstream")

CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
_REFERENCES: Final = {"ref/prompt": (PROMPTS, "name"), "ref/resource": (RESOURCES, "uri")}


class Dispatcher:
    """Answers requests and takes notifications of every caller of one hub, within their `quotas`."""

    def __init__(self, hub: Hub, quotas: Quotas | None = None) -> None:
        self.hub = hub
        self._quotas = quotas or Quotas()
        self.backlog = Backlog(lambda: hub.config.unread)
        self.callers: set[Caller] = set()
        self._parking = Parking(hub.act, hub.one_by_one, self.backlog)
        self._telling: set[asyncio.Task[None]] = set()
        self._subscriptions = Subscriptions(hub, self._found)
        self._methods: dict[str, Callable[[Exchange], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            eras.DISCOVER: self._discover,
            eras.LISTEN: self._subscriptions.listen,
            "completion/complete": self._complete,
            SET_LEVEL: self._set_level,
            SUBSCRIBE: self._subscriptions.subscribe,
            UNSUBSCRIBE: self._subscriptions.subscribe,
        }
        for method in tasks.METHODS:
            self._methods[method] = self._task
        for kind in KINDS:
            self._methods[kind.list_method] = partial(self._list, kind)
        for kind in (TOOLS, RESOURCES, PROMPTS):
            self._methods[kind.act_method] = partial(self._act, kind)
        self._all_methods = self._methods
        if hub.waits:
            first = {name: partial(self._first, way) for name, way in self._methods.items()}
            self._methods = {**first, "ping": self._ping}
        hub.catalogs.watch(self._catalog_changed)

    def over_network(self) -> None:
        """Its callers are on a network. Raises ConfigError if the hub has servers that must not be there."""
        self.hub.over_network()

    def join(self, caller: Caller) -> None:
        """`caller` can be notified from now on."""
        self.callers.add(caller)

    def leave(self, caller: Caller) -> None:
        """`caller` is gone: its running requests are cancelled."""
        self.callers.discard(caller)
        caller.cancel_all()
        self.hub.forget(caller)
        self._subscriptions.forget(caller)

    def close(self) -> None:
        """End every subscription gracefully; requests in flight are the transports' to drain."""
        self._subscriptions.close()
        self._parking.close()

    async def answer(self, caller: Caller, message: Message, send: Send) -> Message:
        """The response to one request, sound or not. Raises nothing but CancelledError.

        `send` puts notifications that belong to this request on its stream. While it runs, the request can be
        cancelled through `caller.cancel(id)`.
        """
        request_id = message.get("id")
        if not isinstance(request_id, int | str) or isinstance(request_id, bool):
            return _failure(None, ProtocolError(INVALID_REQUEST, "A request's id must be a text or an integer."))
        task = asyncio.current_task()
        if request_id in caller.in_flight:
            return _failure(request_id, ProtocolError(INVALID_REQUEST, "This id is in use by a running request."))
        if len(caller.in_flight) >= MAX_IN_FLIGHT:
            return _failure(request_id, Overloaded(f"{MAX_IN_FLIGHT} requests are running already.", retry_after=1.0))
        if task is not None:
            caller.in_flight[request_id] = task
        try:
            return await self._answer(caller, request_id, message, send)
        finally:
            if caller.in_flight.get(request_id) is task:
                del caller.in_flight[request_id]

    async def _answer(self, caller: Caller, request_id: RequestId, message: Message, send: Send) -> Message:
        method, params = message.get("method"), message.get("params")
        modern = eras.is_modern(params) or (isinstance(method, str) and method in eras.MODERN_ONLY)
        exchange = None
        try:
            exchange = self._exchange(caller, request_id, method, params, modern, send)
            handler = self._methods.get(exchange.method)
            if handler is None or (modern and exchange.method in eras.HANDSHAKE_ONLY):
                raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
            leave = self._entered(exchange)
            try:
                result = await handler(exchange)
            finally:
                leave()
        except (ProtocolError, CallError, TimeoutError) as error:
            params = params if exchange is None else exchange.params
            return _failure(request_id, error, method, params, modern)
        except Exception as error:
            log.exception("a %s request failed inside the hub", method)
            return _failure(request_id, error, method, params, modern)
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    def broken(self, caller: Caller, request_id: RequestId | None = None) -> Message:
        """The answer to a member of a batch that is no JSON-RPC message; it counts against the rate as a request."""
        try:
            self._quotas.enter(caller.principal, "")()
        except Overloaded as error:
            return _failure(request_id, error)
        return _failure(request_id, ProtocolError(INVALID_REQUEST, "Not a JSON-RPC message."))

    def _entered(self, exchange: Exchange) -> Callable[[], None]:
        """The request counts until what is returned is called. Raises Overloaded, recorded like any refusal."""
        try:
            return self._quotas.enter(exchange.caller.principal, exchange.method)
        except Overloaded as error:
            key = exchange.caller.key(exchange.era)
            name = str(exchange.params.get("name") or exchange.params.get("uri") or "")
            self.hub.rules.trace.turned_away(exchange.method, name, exchange.era, key, error, exchange.envelope)
            raise

    def _exchange(
        self, caller: Caller, request_id: RequestId, method: Any, params: Any, modern: bool, send: Send
    ) -> Exchange:
        if not isinstance(method, str):
            raise ProtocolError(INVALID_REQUEST, "A request's method must be a text.")
        if params is not None and not isinstance(params, dict):
            raise ProtocolError(INVALID_PARAMS, "params must be an object.")
        if params is not None and not isinstance(params.get("_meta", {}), dict):
            raise ProtocolError(INVALID_PARAMS, "params._meta must be an object.")
        if params and (fault := ambiguous(params)) is not None:
            raise fault
        if modern and caller.sole:
            self._introduce_sole(params)
        envelope = eras.read_envelope(params) if modern else caller.envelope
        return Exchange(caller, request_id, method, params or {}, "modern" if modern else "handshake", envelope, send)

    def notification(self, caller: Caller, message: Message) -> None:
        """Take one notification; what is unknown or malformed is ignored, as notifications are."""
        method, params = message.get("method"), message.get("params")
        if method == "notifications/initialized":
            caller.initialized = True
        elif method == eras.ROOTS_CHANGED and caller.initialized:
            self._in_background(self.hub.tell(caller.key("handshake"), method))
        elif method == eras.CANCELLED and isinstance(params, dict):
            request_id = params.get("requestId")
            if isinstance(request_id, int | str):
                caller.cancel(request_id)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _first(self, handler: Callable[[Exchange], Awaitable[Any]], exchange: Exchange) -> Any:
        """A request of a client whose hub waits to know it. Raises ProtocolError if it must not be served."""
        params, initializes = exchange.params, exchange.method == "initialize"
        self.hub.admit(params.get("clientInfo") if initializes else exchange.envelope.client_info)
        self._methods = self._all_methods
        return await handler(exchange)

    # --- the methods -------------------------------------------------------------------------------------------

    async def _initialize(self, exchange: Exchange) -> dict[str, Any]:
        params, caller = exchange.params, exchange.caller
        capabilities, client_info = params.get("capabilities"), params.get("clientInfo")
        caller.protocol_version = eras.negotiated(params.get("protocolVersion"))
        caller.capabilities = capabilities if isinstance(capabilities, dict) else {}
        caller.client_info = client_info if isinstance(client_info, dict) else {}
        self.hub.clients.introduce(caller.key("handshake"), Respondent(caller), "handshake")
        await self.hub.begun()
        return {
            "protocolVersion": caller.protocol_version,
            "capabilities": self._capabilities(exchange),
            "serverInfo": self.hub.info,
            **self._said(exchange),
            **({"_meta": place} if (place := self.hub.place.meta(client_info, caller.key("handshake"))) else {}),
        }

    def _introduce_sole(self, params: Any) -> None:
        """The only client has come, in the modern era: what it declares it can be asked because of a call."""
        meta = params.get("_meta") if isinstance(params, dict) else None
        declared = meta.get(eras.CAPABILITIES_KEY) if isinstance(meta, dict) else None
        self.hub.clients.introduce(None, Uncarried(declared) if isinstance(declared, dict) else None, "modern")

    def _capabilities(self, exchange: Exchange) -> dict[str, Any]:
        found = self.hub.extensions(exchange.era, exchange.caller.key(exchange.era))
        return {**CAPABILITIES, "extensions": found} if found else CAPABILITIES

    def _said(self, exchange: Exchange) -> dict[str, str]:
        """The instructions, as far as they are known by now: nobody waits for a server here."""
        text = self.hub.instructions(exchange.caller.key(exchange.era))
        return {} if text is None else {"instructions": text}

    async def _ping(self, exchange: Exchange) -> dict[str, Any]:
        return {}

    async def _discover(self, exchange: Exchange) -> dict[str, Any]:
        await self.hub.begun()
        place = self.hub.place.meta(exchange.envelope.client_info, exchange.caller.key(exchange.era))
        return {
            "resultType": "complete",
            "supportedVersions": [*eras.MODERN_REVISIONS, *reversed(eras.HANDSHAKE_REVISIONS)],
            "capabilities": self._capabilities(exchange),
            **self._said(exchange),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {eras.SERVER_INFO_KEY: self.hub.info, **(place or {})},
        }

    async def _set_level(self, exchange: Exchange) -> dict[str, Any]:
        level = exchange.params.get("level")
        if level not in LEVELS:
            raise ProtocolError(INVALID_PARAMS, f"params.level must be one of {', '.join(LEVELS)}.")
        exchange.caller.log_level = level
        await self.hub.log_from(level)
        return {}

    async def _list(self, kind: Kind, exchange: Exchange) -> Raw:
        cursor = exchange.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise ProtocolError(INVALID_PARAMS, "cursor must be a text.")
        key = exchange.caller.key(exchange.era)
        catalog = await self.hub.settled_catalog(key)
        place = self.hub.place.meta(exchange.envelope.client_info, key)
        return catalog.page(kind, modern=exchange.era == "modern", cursor=cursor, meta=place)

    async def _act(self, kind: Kind, exchange: Exchange) -> dict[str, Any]:
        name = exchange.params.get(kind.name_key)
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, f"params.{kind.name_key} must be a text.")
        arguments = exchange.params.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "params.arguments must be an object.")
        route = await self._found(self.hub.route, kind, name, exchange)
        held = route.upstream == OWN and kind is TOOLS and self.hub.groups.held(route, arguments)
        if held:
            # From here on it is the call it holds, and nothing else.
            name, arguments = held
            exchange.params = {**exchange.params, kind.name_key: name, "arguments": arguments}
            route = await self._found(self.hub.route, kind, name, exchange)
        key, state = exchange.caller.key(exchange.era), exchange.params.get("requestState")
        if exchange.era == "modern" and isinstance(state, str) and self._parking.owns(state):
            answers = exchange.params.get("inputResponses")
            return await self._parking.resume(state, key, answers, _progress(exchange), _messages(exchange))
        params = eras.end_to_end(exchange.params)
        params[kind.name_key] = route.name
        handshake = exchange.era == "handshake"
        respondent = Respondent(exchange.caller, exchange.send) if handshake else None
        call = Call(
            method=exchange.method,
            exposed=name,
            route=route,
            params=params,
            era=exchange.era,
            envelope=exchange.envelope,
            caller=key,
            on_progress=_progress(exchange),
            on_message=respondent.hear if respondent is not None else _messages(exchange),
            asker=respondent,
        )
        if held:
            call.notes.append("called by its name through hub_call")
        if exchange.era == "modern" and askable(exchange.envelope.capabilities) and self.hub.may_ask(route):
            self.hub.clients.introduce(key, Uncarried(exchange.envelope.capabilities), "modern")
            return await self._parking.begin(call, call.on_progress)
        return await self.hub.act(call)

    async def _found(self, way: Way, kind: Kind, name: str, exchange: Exchange) -> Route:
        key = exchange.caller.key(exchange.era)
        try:
            return await way(kind, name, exchange.era, key)
        except UnknownName:
            self.hub.missed(kind, name, exchange.era, key, exchange.envelope)
            if (spans := self.hub.rules.spans) is not None:
                await spans.missed(kind.act_method, name, exchange.params.get("_meta"))
            raise

    async def _complete(self, exchange: Exchange) -> dict[str, Any]:
        reference = exchange.params.get("ref")
        if not isinstance(reference, dict) or reference.get("type") not in _REFERENCES:
            raise ProtocolError(INVALID_PARAMS, "params.ref must be a 'ref/prompt' or a 'ref/resource'.")
        kind, key = _REFERENCES[reference["type"]]
        name = reference.get(key)
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, f"params.ref.{key} must be a text.")
        route = await self._found(self.hub.reference, kind, name, exchange)
        params = {**eras.end_to_end(exchange.params), "ref": {**reference, key: route.name}}
        call = Call(
            "completion/complete",
            name,
            route,
            params,
            exchange.era,
            exchange.envelope,
            exchange.caller.key(exchange.era),
            on_progress=_progress(exchange),
            on_message=_messages(exchange),
        )
        return await self.hub.act(call)

    async def _task(self, exchange: Exchange) -> dict[str, Any]:
        key = exchange.caller.key(exchange.era)
        if exchange.era == "handshake" or extensions.TASKS not in self.hub.extensions("modern", key):
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        if extensions.settings(exchange.envelope.capabilities, extensions.TASKS) is None:
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {extensions.TASKS: {}}}}
            text = f"Missing required client capability: {extensions.TASKS}"
            raise ProtocolError(MISSING_CLIENT_CAPABILITY, text, needed)
        sealed = exchange.params.get(tasks.ID)
        if not isinstance(sealed, str):
            raise ProtocolError(INVALID_PARAMS, f"params.{tasks.ID} must be a text.")
        route, task_id = self.hub.task(sealed, key)
        params = {**eras.end_to_end(exchange.params), tasks.ID: task_id}
        try:
            return await self.hub.act(
                Call(exchange.method, sealed, route, params, exchange.era, exchange.envelope, key)
            )
        except UnknownName:
            raise tasks.unknown_task(sealed) from None

    # --- the catalog changed -----------------------------------------------------------------------------------

    def _catalog_changed(self, kinds: frozenset[Kind], whom: Whom) -> None:
        methods = sorted({kind.changed for kind in kinds})
        for method in methods:
            for caller in self.callers:
                if caller.initialized and whom(caller.key("handshake")):
                    with contextlib.suppress(Exception):
                        caller.notify({"jsonrpc": "2.0", "method": method})
            self._subscriptions.changed(method, whom)


def _messages(exchange: Exchange) -> Callable[[dict[str, Any]], None] | None:
    """Takes the log messages a request causes: what a client of the handshake set, what a modern request asks for."""
    if exchange.era == "handshake":
        return Respondent(exchange.caller, exchange.send).hear
    least = exchange.envelope.log_level
    if least is None:
        return None

    def relay(params: dict[str, Any]) -> None:
        if passes(params.get("level"), least):
            exchange.send({"jsonrpc": "2.0", "method": MESSAGE, "params": params})

    return relay


def _progress(exchange: Exchange) -> Callable[[dict[str, Any]], None] | None:
    meta = exchange.params.get("_meta")
    token = meta.get(eras.PROGRESS_TOKEN) if isinstance(meta, dict) else None
    if not isinstance(token, int | str) or isinstance(token, bool):
        return None

    def relay(params: dict[str, Any]) -> None:
        exchange.send({"jsonrpc": "2.0", "method": eras.PROGRESS, "params": {**params, "progressToken": token}})

    return relay


def _failure(
    request_id: RequestId | None, error: BaseException, method: Any = None, params: Any = None, modern: bool = False
) -> Message:
    name = params.get("name") if isinstance(params, dict) else None
    answer = to_wire(error, method if isinstance(method, str) else None, name if isinstance(name, str) else None)
    if isinstance(error, UpstreamAnswered) and isinstance(method, str):
        answer["error"] = eras.error_for("modern" if modern else "handshake", method, answer["error"])
    if modern and "result" in answer:
        answer["result"]["resultType"] = "complete"
    return {"jsonrpc": "2.0", "id": request_id, **answer}
