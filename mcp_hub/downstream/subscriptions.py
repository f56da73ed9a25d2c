"""Subscriptions of clients to changed lists and changed resources, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mcp_hub.catalog import Route
from mcp_hub.catalog.exposed_ids import TASK_GET, TASK_ID
from mcp_hub.downstream import Exchange, Send
from mcp_hub.errors import INVALID_PARAMS, CallError, ProtocolError
from mcp_hub.hub import Engine
from mcp_hub.hub.catalogs import CallerFilter
from mcp_hub.policy import Call
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import SUBSCRIBE, UNSUBSCRIBE, UPDATED, Era
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.kinds import RESOURCES, Kind
from mcp_hub.protocol.questions import TASK_CHANGED, WATCHED_TASK
from mcp_hub.security.callers import Caller, CallerSlot
from mcp_hub.transport.background import TaskSet

LISTEN_FILTERS: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
WATCHED: Final = "resourceSubscriptions"
WATCHED_TASKS: Final = "taskIds"
MAX_WATCHED: Final = 1000
"""Resources, and tasks, that one session or one `subscriptions/listen` watches at the same time."""
MAX_URI: Final = 8192
"""Characters of the URI of a watched resource, which is kept."""
ACKNOWLEDGED_WITHIN: Final = 3.0
"""Seconds that a `subscriptions/listen` waits for servers before it is acknowledged with what they have answered."""
SUBSCRIBING: Final = 8
"""Resources of one server that one `subscriptions/listen` subscribes to at the same time."""

Resolver = Callable[[Kind, str, Era, Caller], Awaitable[Route]]
"""Returns the route of an exposed name for a caller. Raises UnknownName."""
RecordingResolver = Callable[[Resolver, Kind, str, Exchange], Awaitable[Route]]
"""Calls a resolver for an exchange, and records a name that is unknown."""


class Subscriptions:
    """`resources/subscribe` of the handshake era and `subscriptions/listen` of the modern one."""

    def __init__(self, hub: Engine, resolve: RecordingResolver) -> None:
        self._hub = hub
        self._resolve = resolve
        self._is_closing = False
        self._listeners: set[_Subscription] = set()
        self._forgetting = TaskSet()
        self._watched = CallerSlot(set[str], end=self._forget)
        """The URIs that each session watches."""

    def close(self) -> None:
        """Ends every `subscriptions/listen` gracefully."""
        self._is_closing = True
        for subscription in self._listeners:
            subscription.ended.set()

    def end_listening(self, caller: Caller) -> None:
        """Ends every `subscriptions/listen` of one caller gracefully."""
        for subscription in self._listeners:
            if subscription.exchange.caller is caller:
                subscription.ended.set()

    def changed(self, method: str, caller_filter: CallerFilter) -> None:
        """Notifies the listeners whose view of a list has changed: for whose caller `caller_filter(caller)` is true."""
        for subscription in tuple(self._listeners):
            if method in subscription.methods and caller_filter(subscription.exchange.caller):
                subscription.put(method, {})

    async def listen(self, exchange: Exchange) -> dict[str, Any]:
        """Serves one `subscriptions/listen` until it is cancelled or the hub ends."""
        filters = exchange.params.get("notifications")
        if not isinstance(filters, dict):
            raise ProtocolError(INVALID_PARAMS, "params.notifications must be an object of filters.")
        honoured: dict[str, Any] = {name: True for name in LISTEN_FILTERS if filters.get(name) is True}
        subscription = _Subscription(exchange, frozenset(LISTEN_FILTERS[name] for name in honoured))
        self._listeners.add(subscription)
        turns: dict[str, asyncio.Semaphore] = {}
        pending: set[asyncio.Task[bool]] = set()
        try:
            async with asyncio.TaskGroup() as group:
                if isinstance(filters.get(WATCHED), list):
                    uris = dict.fromkeys(uri for uri in filters[WATCHED][:MAX_WATCHED] if isinstance(uri, str))
                    tasks = {uri: group.create_task(self._watch_for(subscription, uri, turns)) for uri in uris}
                    if tasks:
                        _, pending = await asyncio.wait(tasks.values(), timeout=ACKNOWLEDGED_WITHIN)
                    honoured[WATCHED] = [uri for uri, task in tasks.items() if task not in pending and task.result()]
                if isinstance(filters.get(WATCHED_TASKS), list):
                    ids = dict.fromkeys(id for id in filters[WATCHED_TASKS][:MAX_WATCHED] if isinstance(id, str))
                    honoured[WATCHED_TASKS] = [id for id in ids if await self._follow_task(subscription, id, group)]
                subscription.acknowledge(honoured)
                if not self._is_closing:
                    await subscription.ended.wait()
                for task in (*pending, *subscription.following):
                    task.cancel()
        finally:
            self._listeners.discard(subscription)
            if WATCHED in filters or WATCHED_TASKS in filters:
                self._forget(subscription, subscription.watched)
        return {"resultType": "complete", "_meta": {eras.SUBSCRIPTION_KEY: exchange.id}}

    async def subscribe(self, exchange: Exchange) -> dict[str, Any]:
        """Answers `resources/subscribe` or `resources/unsubscribe`."""
        uri = exchange.params.get("uri")
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "params.uri must be a text.")
        route = await self._resolve(self._hub.route, RESOURCES, uri, exchange)
        return await self._watch(exchange, exchange.method, uri, route, None, exchange.connection.notify)

    async def _watch(
        self, exchange: Exchange, method: str, uri: str, route: Route, listener: _Subscription | None, put: Send
    ) -> dict[str, Any]:
        """Watches a resource, or ends that, for a `subscriptions/listen`; None: for the session."""
        caller = exchange.caller

        def on_update(params: dict[str, Any]) -> None:
            changed = Route(route.upstream, RESOURCES, str(params.get("uri")))
            if not self._hub.reaches(route, caller) or not self._hub.reaches(changed, caller):
                return  # the rules hide a part of the resource, or hide it since a reload
            exposed_uri = (
                uri if changed.name == route.name else self._hub.uris.exposed(caller, changed.upstream, changed.name)
            )
            put({"jsonrpc": "2.0", "method": UPDATED, "params": {**params, "uri": exposed_uri}})

        call = Call(method, uri, route, {"uri": route.name}, exchange.era, exchange.envelope, caller)
        call.subscriber, call.on_update = listener or caller, on_update
        watched = self._watched.of(caller) if listener is None else listener.watched
        if method == UNSUBSCRIBE:
            watched.discard(uri)
        elif uri not in watched:
            if len(watched) >= MAX_WATCHED or len(uri) > MAX_URI:
                text = f"At most {MAX_WATCHED:,} resources can be watched at the same time, with URIs of {MAX_URI:,}"
                raise ProtocolError(INVALID_PARAMS, f"{text} characters. Unsubscribe from others first.")
            watched.add(uri)
            try:
                return await self._hub.act(call)
            except BaseException:
                watched.discard(uri)
                raise
        return await self._hub.act(call)

    async def _watch_for(self, subscription: _Subscription, uri: str, turns: dict[str, asyncio.Semaphore]) -> bool:
        """Subscribes to one resource of a `subscriptions/listen`; returns whether it is watched now.

        A server that is slow holds back only its own resources: `turns` has those of each server.
        """

        def put(message: Message) -> None:
            subscription.put(message["method"], message["params"])

        exchange = subscription.exchange
        try:
            route = await self._resolve(self._hub.route, RESOURCES, uri, exchange)
            async with turns.setdefault(route.upstream, asyncio.Semaphore(SUBSCRIBING)):
                await self._watch(exchange, SUBSCRIBE, uri, route, subscription, put)
        except (ProtocolError, CallError):
            return False
        return True

    async def _follow_task(self, subscription: _Subscription, sealed: str, group: asyncio.TaskGroup) -> bool:
        """Watches a task of a `subscriptions/listen`; returns whether it is one of this client's."""
        exchange, changed = subscription.exchange, asyncio.Event()
        try:
            route, task_id = self._hub.task(sealed, exchange.caller)
            watched = {"uri": WATCHED_TASK + task_id}
            call = Call(SUBSCRIBE, sealed, route, watched, exchange.era, exchange.envelope, exchange.caller)
            call.subscriber, call.on_update = subscription, lambda _: changed.set()
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN):
                await self._hub.act(call)
        except (ProtocolError, CallError, TimeoutError):
            return False
        subscription.following.append(group.create_task(self._tell_states(subscription, sealed, changed)))
        return True

    async def _tell_states(self, subscription: _Subscription, sealed: str, changed: asyncio.Event) -> None:
        """Tells a client the state of a task when that has changed, as `tasks/get` returns it by the rules."""
        exchange = subscription.exchange
        while True:
            await changed.wait()
            changed.clear()
            with contextlib.suppress(ProtocolError, CallError):
                route, task_id = self._hub.task(sealed, exchange.caller)
                params = {TASK_ID: task_id}
                call = Call(TASK_GET, sealed, route, params, exchange.era, exchange.envelope, exchange.caller)
                state = await self._hub.act(call)
                subscription.put(TASK_CHANGED, {key: value for key, value in state.items() if key != "resultType"})

    def drop(self, caller: Caller) -> None:
        """Ends all subscriptions of a session, in the background."""
        self._watched.drop(caller)

    def _forget(self, subscriber: Caller | _Subscription, watched: set[str]) -> None:
        self._forgetting.start(self._hub.forget_watcher(subscriber))


class _Subscription(msgspec.Struct, eq=False):
    """One `subscriptions/listen`; every notification on its stream carries its id."""

    exchange: Exchange
    methods: frozenset[str]
    watched: set[str] = msgspec.field(default_factory=set)
    """The URIs that it watches."""
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    following: list[asyncio.Task[None]] = msgspec.field(default_factory=list)
    """Tell the states of the tasks that are watched."""
    held: dict[tuple[str, Any], dict[str, Any]] | None = msgspec.field(default_factory=dict)
    """The notifications that wait for the acknowledgement, which comes first; None after it."""

    def acknowledge(self, honoured: dict[str, Any]) -> None:
        """Tells the client what is watched, then what has changed meanwhile."""
        held, self.held = self.held or {}, None
        self.put(eras.ACKNOWLEDGED, {"notifications": honoured})
        for (method, _), params in held.items():
            self.put(method, params)

    def put(self, method: str, params: dict[str, Any]) -> None:
        if self.held is not None:
            if len(self.held) < MAX_WATCHED:
                self.held[method, params.get("uri", params.get(TASK_ID))] = params
            return
        tagged = {**params, "_meta": {eras.SUBSCRIPTION_KEY: self.exchange.id}}
        self.exchange.send({"jsonrpc": "2.0", "method": method, "params": tagged})
