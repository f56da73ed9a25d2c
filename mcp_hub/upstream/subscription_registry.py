"""Subscriptions to the resources of one upstream: one for all watchers of a resource, renewed on a new session."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any
from weakref import WeakValueDictionary

from mcp_hub.config.models import Server
from mcp_hub.errors import HubError
from mcp_hub.transport import LinkError
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.session import UpstreamSession

Json = dict[str, Any]
OnUpdate = Callable[[Json], None]
"""Takes the params of `notifications/resources/updated`."""


class ResourceWatchers:
    """The watchers of each URI, each with the callback that notifies it."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Hashable, OnUpdate]] = {}

    @property
    def uris(self) -> list[str]:
        """The watched URIs, as the upstream names them."""
        return list(self._watchers)

    @property
    def watchers(self) -> set[Hashable]:
        """All callers that watch at least one resource."""
        return {who for watchers in self._watchers.values() for who in watchers}

    def add(self, uri: str, who: Hashable, on_update: OnUpdate) -> bool:
        """Adds a watcher; returns whether it is the first one of this URI."""
        watchers = self._watchers.setdefault(uri, {})
        watchers[who] = on_update
        return len(watchers) == 1

    def remove(self, uri: str, who: Hashable) -> bool:
        """Removes a watcher; returns whether it was the last one. False if `who` did not watch this URI."""
        watchers = self._watchers.get(uri, {})
        if watchers.pop(who, None) is None or watchers:
            return False
        del self._watchers[uri]
        return True

    def forget(self, who: Hashable) -> list[str]:
        """Removes `who` everywhere; returns the URIs that nobody watches any more."""
        return [uri for uri in self.uris if self.remove(uri, who)]

    def join(self, others: ResourceWatchers) -> None:
        """Adds the watchers of others."""
        for uri, watchers in others._watchers.items():
            self._watchers.setdefault(uri, {}).update(watchers)

    def updated(self, params: Json) -> None:
        """Notifies the watchers of the resource and of every resource that it is a part of."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        for watched, watchers in list(self._watchers.items()):
            if uri == watched or uri.startswith(watched.rstrip("/") + "/"):
                for on_update in list(watchers.values()):
                    on_update(params)


class SubscriptionRegistry:
    """Subscribes to a resource while at least one client watches it.

    `session_for(caller)` lends the session of a caller; `shared()` returns the session of all callers, None while it
    is not open.
    """

    def __init__(
        self,
        server: Server,
        messages: ErrorMessages,
        session_for: Callable[[Hashable | None], AbstractAsyncContextManager[UpstreamSession]],
        shared: Callable[[], UpstreamSession | None],
    ) -> None:
        self._server = server
        self._messages = messages
        self._session_for = session_for
        self._shared = shared
        self._watchers: defaultdict[Hashable | None, ResourceWatchers] = defaultdict(ResourceWatchers)
        """By caller if callers have their own sessions, else all under None."""
        self._restoring: set[asyncio.Task[None]] = set()
        self._asking: WeakValueDictionary[tuple[Hashable | None, str], asyncio.Lock] = WeakValueDictionary()
        """Held while a resource is being subscribed to, so that further watchers wait for the server's answer."""

    def _key(self, caller: Hashable | None) -> Hashable | None:
        return caller if self._server.session == "client" else None

    async def watch(self, uri: str, caller: Hashable | None, who: Hashable, on_update: OnUpdate) -> None:
        """Calls `on_update` whenever the resource changes, until `who` is removed.

        Raises:
            UpstreamAnswered: the server refused the subscription; nothing is watched then.
            CallError: the server could not be asked; nothing is watched then.
        """
        async with self._asking.setdefault((self._key(caller), uri), asyncio.Lock()):
            await self._watch(uri, caller, who, on_update)

    async def _watch(self, uri: str, caller: Hashable | None, who: Hashable, on_update: OnUpdate) -> None:
        key = self._key(caller)
        if self._watchers[key].add(uri, who, on_update):
            try:
                async with self._session_for(caller) as session:
                    session.attribution.joined(caller)
                    await session.watch(self._watchers[key].uris, new=uri)
            except BaseException as error:
                self._watchers[key].remove(uri, who)  # it may be inherited by now
                self._drop_if_empty(key)
                if isinstance(error, LinkError):
                    raise self._messages.call_error(error) from None
                raise

    async def unwatch(self, uri: str, caller: Hashable | None, who: Hashable) -> None:
        """Stops notifying `who`. A server that fails to unsubscribe is ignored."""
        key = self._key(caller)
        if key in self._watchers and self._watchers[key].remove(uri, who):
            await self._unsubscribe(key, uri)

    async def forget(self, who: Hashable) -> None:
        """Removes a watcher that is gone from every resource."""
        for key, watchers in list(self._watchers.items()):
            for uri in watchers.forget(who):
                await self._unsubscribe(key, uri)

    async def _unsubscribe(self, key: Hashable | None, uri: str) -> None:
        async with self._asking.setdefault((key, uri), asyncio.Lock()):
            await self._end(key, uri)

    async def _end(self, key: Hashable | None, uri: str) -> None:
        left = self._watchers[key].uris if key in self._watchers else []
        self._drop_if_empty(key)
        if uri in left:
            return  # another watcher was added meanwhile
        session = self._shared() if key is None else None  # a caller's own session ends with it
        if session is not None and not session.lost.is_set():
            with contextlib.suppress(LinkError, HubError, TimeoutError):
                await session.watch(left, old=uri)

    def _drop_if_empty(self, key: Hashable | None) -> None:
        if key in self._watchers and not self._watchers[key].uris:
            del self._watchers[key]

    def inherit(self, former: SubscriptionRegistry, session: UpstreamSession | None) -> None:
        """Takes over the watchers of the upstream that was replaced. `session` is the shared one, if it is open."""
        for key, watchers in former._watchers.items():
            watchers.join(self._watchers[key])  # clients may watch resources of this one already
            self._watchers[key] = watchers
        if session is not None:
            self.restore(session, None)

    def updated(self, key: Hashable | None, params: Json) -> None:
        """Passes on `notifications/resources/updated`. `key` is the caller whose session it came on, None: shared."""
        if key in self._watchers:
            self._watchers[key].updated(params)

    def restore(self, session: UpstreamSession, key: Hashable | None) -> None:
        """Subscribes on a new session to the resources that were watched on the former one."""
        if key in self._watchers:
            for who in self._watchers[key].watchers:
                session.attribution.joined(who)
            task = asyncio.get_running_loop().create_task(self._subscribe_again(session, self._watchers[key].uris))
            self._restoring.add(task)
            task.add_done_callback(self._restoring.discard)

    async def _subscribe_again(self, session: UpstreamSession, uris: list[str]) -> None:
        with contextlib.suppress(LinkError, HubError):
            await session.watch(uris)
