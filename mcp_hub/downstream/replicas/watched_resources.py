"""The resources that a session subscribes to, kept in the store for the next replica that owns the session.

Each owner has a turn, a number one higher than that of the owner whose subscriptions it has taken over. A former owner
also hands its subscriptions over directly, as the store may have lost them. The new owner accepts them only if their
turn is higher than the one it has taken over already, so that a replica that was paused brings back nothing outdated.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from mcp_hub.downstream.subscriptions import MAX_URI, MAX_WATCHED
from mcp_hub.protocol.era import SUBSCRIBE, UNSUBSCRIBE, UPDATED
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.store import Store, StoreUnavailable

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.handshake_session import HandshakeSession

log = logging.getLogger("mcp_hub.replicas")

AGAIN_AFTER: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Seconds to wait after each attempt to restore the subscriptions of a session."""
MAX_TURN_DIGITS: Final = 15
_TURN: Final = ""
"""The name of the turn's field; all other fields are named by URIs, none of which is empty."""


class WatchedResources:
    """The subscriptions of one session. `key` is their key in the store, where they live for `life` seconds."""

    def __init__(self, store: Store, dispatcher: Dispatcher, session: HandshakeSession, key: str, life: int) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._session = session
        self._key = key
        self._life = life
        self._uris: set[str] = set()
        self._added: set[str] = set()
        self._dropped: set[str] = set()
        """The URIs that the client has subscribed to (`_added`) and unsubscribed from since this replica owns it."""
        self._turn = 1
        """The turn of this replica; 0 once another one owns the session."""
        self._former_turn = 0
        """The turn of the owner whose subscriptions this one has taken over."""
        self._uri_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock by URI, held while a subscription is restored or ended here; the client's own requests wait for it."""
        self._writing = asyncio.Lock()
        """Held while the store is written, so that the store and this replica change in the same order."""

    async def note(self, message: Message) -> None:
        """Notes that a client subscribes to a resource or unsubscribes from it.

        Raises StoreUnavailable: then it must not be carried out.
        """
        params = message.get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        if not isinstance(uri, str) or not 0 < len(uri) <= MAX_URI:
            return
        async with self._uri_lock(uri), self._writing:
            if message["method"] != SUBSCRIBE:
                await self._store.execute("HDEL", self._key, uri)
                self._uris.discard(uri)
                self._added.discard(uri)
                if len(self._dropped) < MAX_WATCHED:
                    self._dropped.add(uri)
            elif uri in self._uris or len(self._uris) < MAX_WATCHED:
                await self._write([uri])
                self._uris.add(uri)
                self._added.add(uri)
                self._dropped.discard(uri)

    async def keep(self) -> None:
        """Writes the subscriptions to the store again, after it has lost them. Raises StoreUnavailable."""
        async with self._writing:
            if self._uris:
                await self._write(sorted(self._uris))

    async def _write(self, uris: list[str]) -> None:
        fields = [text for uri in uris for text in (uri, "1")]
        await self._store.execute("HSET", self._key, _TURN, self._turn, *fields)
        await self._store.execute("EXPIRE", self._key, self._life)

    # --- from one owner to the next ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Loads the subscriptions of the former owner, unless the store has lost them. Raises StoreUnavailable."""
        async with self._writing:
            flat = await self._store.execute("HGETALL", self._key)
            fields = {key.decode("utf-8", "replace"): value for key, value in dict(flat).items()}
            turn = fields.pop(_TURN, b"")
            self._former_turn = int(turn) if len(turn) < MAX_TURN_DIGITS and turn.isdigit() else 0
            self._turn = self._former_turn + 1
            self._added.clear()
            self._dropped.clear()
            if self._former_turn:
                self._uris = {uri for uri in list(fields)[:MAX_WATCHED] if 0 < len(uri) <= MAX_URI}
                await self._store.execute("HSET", self._key, _TURN, self._turn)

    def let_go(self) -> tuple[int, list[str]]:
        """Forgets the subscriptions, as another replica owns the session; returns what to hand over to it."""
        turn, uris, self._turn, self._uris = self._turn, self._uris, 0, set()
        return turn, sorted(uris)

    async def take(self, turn: int, uris: list[str]) -> None:
        """Takes over the subscriptions of a former owner, unless those of a later one were taken over already.

        What the client has subscribed to or unsubscribed from here since then takes precedence.
        """
        if turn <= self._former_turn:
            return
        self._former_turn, self._turn = turn, max(self._turn, turn + 1)
        former_uris, self._uris = self._uris, ({*uris} - self._dropped) | self._added
        for uri in sorted(removed := former_uris - self._uris):
            async with self._uri_lock(uri):
                if uri not in self._uris:
                    await self._execute(uri, UNSUBSCRIBE)
        await asyncio.gather(self._subscribe(self._uris - former_uris), self._rewrite(removed))

    async def _rewrite(self, removed: set[str]) -> None:
        """Writes the subscriptions that a former owner has handed over to the store."""
        turn = self._turn
        for pause in AGAIN_AFTER:
            try:
                async with self._writing:
                    if self._turn != turn:
                        return  # another replica owns the session by now
                    if obsolete := sorted(removed - self._uris):
                        await self._store.execute("HDEL", self._key, *obsolete)
                    if self._uris:
                        await self._write(sorted(self._uris))
            except StoreUnavailable:
                await asyncio.sleep(pause)
            else:
                return

    # --- again --------------------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """Restores the subscriptions of the former owner, and notifies the client of all that may have changed."""
        for method in sorted({kind.changed for kind in KINDS if kind.extension is None}):
            self._session.standing.put_once({"jsonrpc": "2.0", "method": method})
        await self._subscribe(set(self._uris))

    async def _subscribe(self, remaining: set[str]) -> None:
        for pause in AGAIN_AFTER:
            remaining = {uri for uri in sorted(remaining) if not await self._try_subscribe(uri)}
            if not remaining:
                return
            await asyncio.sleep(pause)
        log.warning("%d subscriptions of a session could not be made again after its replica was gone", len(remaining))

    async def _try_subscribe(self, uri: str) -> bool:
        """Subscribes to a resource again, and notifies the client that it may have changed; returns False to retry.

        It leaves alone what the client has unsubscribed from meanwhile, and what another replica subscribes to by now.
        """
        async with self._uri_lock(uri):
            if uri not in self._uris:
                return True
            answer = await self._execute(uri, SUBSCRIBE)
            if uri not in self._uris:
                await self._execute(uri, UNSUBSCRIBE)
            elif "result" in answer:
                self._session.standing.put({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri}})
            return "result" in answer

    def _uri_lock(self, uri: str) -> asyncio.Lock:
        return self._uri_locks.setdefault(uri, asyncio.Lock())

    async def _execute(self, uri: str, method: str) -> dict[str, Any]:
        """Carries out a subscription request in the client's name."""
        request = {"jsonrpc": "2.0", "id": f"restore {uri}", "method": method, "params": {"uri": uri}}
        answer = partial(self._dispatcher.answer, send=self._session.standing.put_once, era="handshake")
        return await answer(self._session.connection, request)
