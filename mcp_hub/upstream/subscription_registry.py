"""Subscriptions to the resources of one upstream: one for all watchers of a resource, renewed on a new session."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from mcp_hub.catalog.names import normal_uri
from mcp_hub.config.models import Server
from mcp_hub.errors import HubError
from mcp_hub.transport import LinkError
from mcp_hub.transport.background import TaskSet
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.session import UpstreamSession

Json = dict[str, Any]
OnUpdate = Callable[[Json], None]
"""Takes the params of `notifications/resources/updated`."""
_Key = Callable[[Hashable | None], Hashable | None]
"""Returns the key under which a caller's watchers are kept."""


class _Watcher(NamedTuple):
    caller: Hashable | None
    """The key of the caller's own session; None for the hub's only client."""
    on_update: OnUpdate


class ResourceWatchers:
    """The watchers of each URI, each with the callback that notifies it."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Hashable, _Watcher]] = {}

    @property
    def uris(self) -> list[str]:
        """The watched URIs, as the upstream names them."""
        return list(self._watchers)

    @property
    def callers(self) -> set[Hashable | None]:
        """All callers that watch at least one resource."""
        return {watcher.caller for watchers in self._watchers.values() for watcher in watchers.values()}

    def add(self, uri: str, watcher_id: Hashable, caller: Hashable | None, on_update: OnUpdate) -> bool:
        """Adds a watcher; returns whether it is the first one of this URI."""
        watchers = self._watchers.setdefault(uri, {})
        watchers[watcher_id] = _Watcher(caller, on_update)
        return len(watchers) == 1

    def remove(self, uri: str, watcher_id: Hashable) -> bool:
        """Removes a watcher; returns whether it was the last one. False if `watcher_id` did not watch this URI."""
        watchers = self._watchers.get(uri, {})
        if watchers.pop(watcher_id, None) is None or watchers:
            return False
        del self._watchers[uri]
        return True

    def forget(self, watcher_id: Hashable) -> list[str]:
        """Removes a watcher everywhere; returns the URIs that nobody watches any more."""
        return [uri for uri in self.uris if self.remove(uri, watcher_id)]

    def hand_over(self, by_key: Mapping[Hashable | None, ResourceWatchers], key: _Key) -> None:
        """Moves all watchers to those of `by_key[key(caller)]`, which keep what they have already."""
        for uri, watchers in self._watchers.items():
            for watcher_id, watcher in watchers.items():
                by_key[key(watcher.caller)]._watchers.setdefault(uri, {}).setdefault(watcher_id, watcher)
        self._watchers = {}

    def updated(self, params: Json) -> None:
        """Notifies the watchers of the resource and of every resource that it is a part of, each once."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        changed = normal_uri(uri)
        told: dict[Hashable, _Watcher] = {}
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
    the session of all callers.
    """

    def __init__(
        self,
        server: Server,
        messages: ErrorMessages,
        session_for: Callable[[Hashable | None], AbstractAsyncContextManager[UpstreamSession]],
        existing: Callable[[Hashable | None], UpstreamSession | None],
    ) -> None:
        self._server = server
        self._messages = messages
        self._session_for = session_for
        self._existing = existing
        self._watchers: defaultdict[Hashable | None, ResourceWatchers] = defaultdict(ResourceWatchers)
        """By caller if callers have their own sessions, else all under None."""
        self._successor: SubscriptionRegistry | None = None
        """The registry of the upstream that has replaced this one: calls that still run here go on there."""
        self._restoring = TaskSet()
        self._locks: WeakValueDictionary[tuple[Hashable | None, str], asyncio.Lock] = WeakValueDictionary()
        """Held while a resource is being subscribed to, so that further watchers wait for the server's answer."""

    @property
    def _current(self) -> SubscriptionRegistry:
        registry = self
        while registry._successor is not None:
            registry = registry._successor
        return registry

    def _key(self, caller: Hashable | None) -> Hashable | None:
        return caller if self._server.session == "client" else None

    @property
    def in_use(self) -> bool:
        """Whether anybody watches a resource."""
        return bool(self._watchers)

    def has(self, key: Hashable | None) -> bool:
        """Returns whether the caller of this session, None: any caller, watches a resource."""
        return key in self._watchers

    async def watch(self, uri: str, caller: Hashable | None, watcher_id: Hashable, on_update: OnUpdate) -> None:
        """Calls `on_update` whenever the resource changes, until `watcher_id` is removed.

        Raises:
            UpstreamAnswered: the server refused the subscription; nothing is watched then.
            CallError: the server could not be asked; nothing is watched then.
        """
        current = self._current
        async with current._locks.setdefault((current._key(caller), uri), asyncio.Lock()):
            await current._watch(uri, caller, watcher_id, on_update)

    async def _watch(self, uri: str, caller: Hashable | None, watcher_id: Hashable, on_update: OnUpdate) -> None:
        key = self._key(caller)
        if self._watchers[key].add(uri, watcher_id, caller, on_update):
            try:
                async with self._session_for(caller) as session:
                    with session.attribution.call(caller, None):
                        await session.watch(self._watchers[key].uris, new=uri)
            except BaseException as error:
                self._current._remove(uri, caller, watcher_id)
                if isinstance(error, LinkError):
                    raise self._messages.call_error(error) from None
                raise

    def _remove(self, uri: str, caller: Hashable | None, watcher_id: Hashable) -> bool:
        key = self._key(caller)
        if key not in self._watchers:
            return False
        last = self._watchers[key].remove(uri, watcher_id)
        self._drop_if_empty(key)
        return last

    async def unwatch(self, uri: str, caller: Hashable | None, watcher_id: Hashable) -> None:
        """Stops notifying a watcher. The server is told in the background, as nothing depends on its answer."""
        current = self._current
        if current._remove(uri, caller, watcher_id):
            current._restoring.start(current._unsubscribe(current._key(caller), uri))

    async def forget(self, watcher_id: Hashable) -> None:
        """Removes a watcher that is gone from every resource."""
        for key, uri in [(key, uri) for key, watchers in self._watchers.items() for uri in watchers.forget(watcher_id)]:
            await self._unsubscribe(key, uri)

    async def _unsubscribe(self, key: Hashable | None, uri: str) -> None:
        async with self._locks.setdefault((key, uri), asyncio.Lock()):
            await self._end(key, uri)

    async def _end(self, key: Hashable | None, uri: str) -> None:
        watched_uris = self._watchers[key].uris if key in self._watchers else []
        self._drop_if_empty(key)
        if uri in watched_uris:
            return  # another watcher was added meanwhile
        session = self._existing(key)
        if session is not None and not session.lost.is_set():
            with contextlib.suppress(LinkError, HubError, TimeoutError):
                await session.watch(watched_uris, old=uri)

    def _drop_if_empty(self, key: Hashable | None) -> None:
        if key in self._watchers and not self._watchers[key].uris:
            del self._watchers[key]

    def inherit(self, former: SubscriptionRegistry) -> None:
        """Takes over the watchers of the upstream that was replaced, and subscribes for them.

        Callers that had a session each may share one by now, or the other way round.
        """
        for watchers in former._watchers.values():
            watchers.hand_over(self._watchers, self._key)
        former._watchers.clear()
        former._successor = self
        for key in self._watchers:
            session = self._existing(key)
            if session is not None and not session.lost.is_set():
                self.restore(session, key)
            else:
                self._restoring.start(self._open(key))

    async def _open(self, key: Hashable | None) -> None:
        """Opens a session, on which `restore` subscribes: its caller may only listen, and never call again."""
        with contextlib.suppress(LinkError, HubError):
            async with self._session_for(key):
                pass

    def updated(self, key: Hashable | None, params: Json) -> None:
        """Passes on `notifications/resources/updated`. `key` is the caller whose session it came on, None: shared."""
        current, key = self._current, self._key(key)
        if key in current._watchers:
            current._watchers[key].updated(params)

    def restore(self, session: UpstreamSession, key: Hashable | None) -> None:
        """Subscribes on a new session to the resources that were watched on the former one.

        A resource that is being subscribed to for the first time is left to `watch`, which may have opened the session.
        """
        if key in self._watchers:
            for caller in self._watchers[key].callers:
                session.attribution.add_caller(caller)
            uris = [uri for uri in self._watchers[key].uris if not self._is_new(key, uri)]
            if uris:
                self._restoring.start(self._subscribe_again(session, uris))

    def _is_new(self, key: Hashable | None, uri: str) -> bool:
        lock = self._locks.get((key, uri))
        return lock is not None and lock.locked()

    async def _subscribe_again(self, session: UpstreamSession, uris: list[str]) -> None:
        with contextlib.suppress(LinkError, HubError):
            await session.watch(uris)
