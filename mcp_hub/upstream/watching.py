"""Subscriptions to resources on the sessions of one upstream: made once, taken back once, made again after a loss."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager

from mcp_hub.config.models import Server
from mcp_hub.errors import HubError
from mcp_hub.transport.link import LinkError
from mcp_hub.upstream.session import Session
from mcp_hub.upstream.watches import Heard, Json, Watches
from mcp_hub.upstream.words import Words


class Watching:
    """`session_for(caller)` lends the session of a caller, `shared()` is the one of all, None while it is not there."""

    def __init__(
        self,
        server: Server,
        words: Words,
        session_for: Callable[[Hashable | None], AbstractAsyncContextManager[Session]],
        shared: Callable[[], Session | None],
    ) -> None:
        self._server = server
        self._words = words
        self._session_for = session_for
        self._shared = shared
        self._watches: defaultdict[Hashable | None, Watches] = defaultdict(Watches)
        """By caller where sessions are callers' own, else all under None."""
        self._restoring: set[asyncio.Task[None]] = set()

    def _key(self, caller: Hashable | None) -> Hashable | None:
        return caller if self._server.session == "client" else None

    async def watch(self, uri: str, caller: Hashable | None, who: Hashable, heard: Heard) -> None:
        """Tell `who` when a resource changes. Raises what a request raises; then nothing is watched."""
        watches = self._watches[self._key(caller)]
        if watches.add(uri, who, heard):
            try:
                async with self._session_for(caller) as session:
                    session.causes.joined(caller)
                    await session.watch(watches.uris, new=uri)
            except LinkError as error:
                watches.remove(uri, who)
                raise self._words.call_error(error) from None
            except BaseException:
                watches.remove(uri, who)
                raise

    async def unwatch(self, uri: str, caller: Hashable | None, who: Hashable) -> None:
        """No longer tell `who`. What goes wrong with the server in this changes nothing."""
        key = self._key(caller)
        if self._watches[key].remove(uri, who):
            await self._unwatched(key, uri)

    async def forget(self, who: Hashable) -> None:
        """`who` is gone and watches nothing any more."""
        for key, watches in list(self._watches.items()):
            for uri in watches.forget(who):
                await self._unwatched(key, uri)

    async def _unwatched(self, key: Hashable | None, uri: str) -> None:
        left = self._watches[key].uris
        if not left:
            del self._watches[key]
        session = self._shared() if key is None else None  # a caller's own session ends with it
        if session is not None and not session.lost.is_set():
            with contextlib.suppress(LinkError, HubError):
                await session.watch(left, old=uri)

    def inherit(self, former: Watching, session: Session | None) -> None:
        """Take over who watches what from the upstream that was here before. `session` is the shared one."""
        self._watches.update(former._watches)
        if session is not None:
            self.restore(session, None)

    def updated(self, key: Hashable | None, params: Json) -> None:
        """A resource has changed, on the session of `key`."""
        if key in self._watches:
            self._watches[key].updated(params)

    def restore(self, session: Session, key: Hashable | None) -> None:
        """A new session knows nothing of what was watched on the one before."""
        if key in self._watches:
            for who in self._watches[key].watchers:
                session.causes.joined(who)
            task = asyncio.get_running_loop().create_task(self._watch_again(session, self._watches[key].uris))
            self._restoring.add(task)
            task.add_done_callback(self._restoring.discard)

    async def _watch_again(self, session: Session, uris: list[str]) -> None:
        with contextlib.suppress(LinkError, HubError):
            await session.watch(uris)
