"""Subscriptions to the resources of one upstream: one for all watchers of a resource, renewed on a new session."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from mcp_hub.catalog.names import normal_uri
from mcp_hub.config.models import Server
from mcp_hub.errors import HubError
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.transport import LinkError
from mcp_hub.transport.background import TaskSet
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.session import UpstreamSession

Json = dict[str, Any]
OnUpdate = Callable[[Json], None]
"""Takes the params of `notifications/resources/updated`."""
_Own = Callable[[Caller], Caller | None]
"""Returns the caller whose own session has a caller's watchers; None: the shared session has them."""


class _Watcher(NamedTuple):
    caller: Caller
    on_update: OnUpdate


class ResourceWatchers:
    """The watchers of each URI, each with the callback that notifies it."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[object, _Watcher]] = {}

    @property
    def uris(self) -> list[str]:
        """The watched URIs, as the upstream names them."""
        return list(self._watchers)

    @property
    def callers(self) -> set[Caller]:
        """All callers that watch at least one resource."""
        return {watcher.caller for watchers in self._watchers.values() for watcher in watchers.values()}

    def add(self, uri: str, watcher_id: object, caller: Caller, on_update: OnUpdate) -> bool:
        """Adds a watcher; returns whether it is the first one of this URI."""
        watchers = self._watchers.setdefault(uri, {})
        watchers[watcher_id] = _Watcher(caller, on_update)
        return len(watchers) == 1

    def remove(self, uri: str, watcher_id: object) -> bool:
        """Removes a watcher; returns whether it was the last one. False if `watcher_id` did not watch this URI."""
        watchers = self._watchers.get(uri, {})
        if watchers.pop(watcher_id, None) is None or watchers:
            return False
        del self._watchers[uri]
        return True

    def forget(self, watcher_id: object) -> list[str]:
        """Removes a watcher everywhere; returns the URIs that nobody watches any more."""
        return [uri for uri in self.uris if self.remove(uri, watcher_id)]

    def hand_over(self, by_owner: Mapping[Caller | None, ResourceWatchers], own: _Own) -> None:
        """Moves all watchers to those of `by_owner[own(caller)]`, which keep what they have already."""
        for uri, watchers in self._watchers.items():
            for watcher_id, watcher in watchers.items():
                by_owner[own(watcher.caller)]._watchers.setdefault(uri, {}).setdefault(watcher_id, watcher)
        self._watchers = {}

    def updated(self, params: Json) -> None:
        """Notifies the watchers of the resource and of every resource that it is a part of, each once."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        changed = normal_uri(uri)
        told: dict[object, _Watcher] = {}
        wholes = [watched for watched in self._watchers if _is_part(changed, normal_uri(watched))]
        for watched in (*sorted(wholes, key=len), uri):  # the nearest is the last
            told.update(self._watchers.get(watched, {}))
        for watcher in told.values():
            watcher.on_update(params)


def _is_part(uri: str, whole: str) -> bool:
    return uri == whole or uri.startswith(whole.rstrip("/") + "/")


class SubscriptionRegistry:
    """Subscribes to a resource while at least one client watches it.

    `session_for(caller)` lends the session of a caller; `existing(caller)` returns it if it is open. None stands for
    the shared session, which the sole client has too.
    """

    def __init__(
        self,
        server: Server,
        messages: ErrorMessages,
        session_for: Callable[[Caller | None], AbstractAsyncContextManager[UpstreamSession]],
        existing: Callable[[Caller | None], UpstreamSession | None],
    ) -> None:
        self._server = server
        self._messages = messages
        self._session_for = session_for
        self._existing = existing
        self._watchers: defaultdict[Caller | None, ResourceWatchers] = defaultdict(ResourceWatchers)
        """By caller if callers have their own sessions, else all under None."""
        self._successor: SubscriptionRegistry | None = None
        """The registry of the upstream that has replaced this one: calls that still run here go on there."""
        self._restoring = TaskSet()
        self._locks: WeakValueDictionary[tuple[Caller | None, str], asyncio.Lock] = WeakValueDictionary()
        """Held while a resource is being subscribed to, so that further watchers wait for the server's answer."""

    @property
    def _current(self) -> SubscriptionRegistry:
        registry = self
        while registry._successor is not None:
            registry = registry._successor
        return registry

    def _own(self, caller: Caller | None) -> Caller | None:
        return caller if self._server.session == "client" and caller is not SOLE else None

    @property
    def in_use(self) -> bool:
        """Whether anybody watches a resource."""
        return bool(self._watchers)

    def has(self, owner: Caller | None) -> bool:
        """Returns whether the caller of this session, None: any caller, watches a resource."""
        return owner in self._watchers

    async def watch(self, uri: str, caller: Caller, watcher_id: object, on_update: OnUpdate) -> None:
        """Calls `on_update` whenever the resource changes, until `watcher_id` is removed.

        Raises:
            UpstreamAnswered: the server refused the subscription; nothing is watched then.
            CallError: the server could not be asked; nothing is watched then.
        """
        current = self._current
        async with current._locks.setdefault((current._own(caller), uri), asyncio.Lock()):
            await current._watch(uri, caller, watcher_id, on_update)

    async def _watch(self, uri: str, caller: Caller, watcher_id: object, on_update: OnUpdate) -> None:
        owner = self._own(caller)
        if self._watchers[owner].add(uri, watcher_id, caller, on_update):
            try:
                async with self._session_for(owner) as session:
                    with session.attribution.call(caller, None):
                        await session.watch(self._watchers[owner].uris, new=uri)
            except BaseException as error:
                self._current._remove(uri, caller, watcher_id)
                if isinstance(error, LinkError):
                    raise self._messages.call_error(error) from None
                raise

    def _remove(self, uri: str, caller: Caller, watcher_id: object) -> bool:
        owner = self._own(caller)
        if owner not in self._watchers:
            return False
        last = self._watchers[owner].remove(uri, watcher_id)
        self._drop_if_empty(owner)
        return last

    async def unwatch(self, uri: str, caller: Caller, watcher_id: object) -> None:
        """Stops notifying a watcher. The server is told in the background, as nothing depends on its answer."""
        current = self._current
        if current._remove(uri, caller, watcher_id):
            current._restoring.start(current._unsubscribe(current._own(caller), uri))

    async def forget(self, watcher_id: object) -> None:
        """Removes a watcher that is gone from every resource."""
        left = [(owner, uri) for owner, watchers in self._watchers.items() for uri in watchers.forget(watcher_id)]
        for owner, uri in left:
            await self._unsubscribe(owner, uri)

    async def _unsubscribe(self, owner: Caller | None, uri: str) -> None:
        async with self._locks.setdefault((owner, uri), asyncio.Lock()):
            await self._end(owner, uri)

    async def _end(self, owner: Caller | None, uri: str) -> None:
        watched_uris = self._watchers[owner].uris if owner in self._watchers else []
        self._drop_if_empty(owner)
        if uri in watched_uris:
            return  # another watcher was added meanwhile
        session = self._existing(owner)
        if session is not None and not session.lost.is_set():
            with contextlib.suppress(LinkError, HubError, TimeoutError):
                await session.watch(watched_uris, old=uri)

    def _drop_if_empty(self, owner: Caller | None) -> None:
        if owner in self._watchers and not self._watchers[owner].uris:
            del self._watchers[owner]

    def inherit(self, former: SubscriptionRegistry) -> None:
        """Takes over the watchers of the upstream that was replaced, and subscribes for them.

        Callers that had a session each may share one by now, or the other way round.
        """
        for watchers in former._watchers.values():
            watchers.hand_over(self._watchers, self._own)
        former._watchers.clear()
        former._successor = self
        for owner in self._watchers:
            session = self._existing(owner)
            if session is not None and not session.lost.is_set():
                self.restore(session, owner)
            else:
                self._restoring.start(self._open(owner))

    async def _open(self, owner: Caller | None) -> None:
        """Opens a session, on which `restore` subscribes: its caller may only listen, and never call again."""
        with contextlib.suppress(LinkError, HubError):
            async with self._session_for(owner):
                pass

    def updated(self, caller: Caller | None, params: Json) -> None:
        """Passes on `notifications/resources/updated` of a session of `caller`, None: of the shared one."""
        current, owner = self._current, self._own(caller)
        if owner in current._watchers:
            current._watchers[owner].updated(params)

    def restore(self, session: UpstreamSession, owner: Caller | None) -> None:
        """Subscribes on a new session to the resources that were watched on the former one.

        A resource that is being subscribed to for the first time is left to `watch`, which may have opened the session.
        """
        if owner in self._watchers:
            for caller in self._watchers[owner].callers:
                session.attribution.add_caller(caller)
            uris = [uri for uri in self._watchers[owner].uris if not self._is_new(owner, uri)]
            if uris:
                self._restoring.start(self._subscribe_again(session, uris))

    def _is_new(self, owner: Caller | None, uri: str) -> bool:
        lock = self._locks.get((owner, uri))
        return lock is not None and lock.locked()

    async def _subscribe_again(self, session: UpstreamSession, uris: list[str]) -> None:
        with contextlib.suppress(LinkError, HubError):
            await session.watch(uris)
