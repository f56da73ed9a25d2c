"""The sessions beside the first shared one: of one caller each, with its lists, or in the other era."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

import msgspec

from mcp_hub.config.models import Server
from mcp_hub.errors import Overloaded, UpstreamAnswered
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import KINDS, TOOLS, Kind
from mcp_hub.protocol.questions import Json, forwarded_capabilities
from mcp_hub.security.callers import Caller, CallerSlot
from mcp_hub.transport import LinkError
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.list_store import ListRefresher, RawLists
from mcp_hub.upstream.negotiation import PROBE_WAIT, NoAgreement
from mcp_hub.upstream.session import Agreement, UpstreamSession
from mcp_hub.upstream.session_opener import CONNECT_ERRORS, OnNotification, SessionOpener
from mcp_hub.upstream.session_pool import SessionPool
from mcp_hub.upstream.subscription_registry import SubscriptionRegistry

log = logging.getLogger("mcp_hub.upstream")

_RETRY_AFTER: Final = 60.0
"""Seconds until a session may have become idle."""
MAX_CALLERS: Final = 1000
"""Callers whose last session, or the lists of whose own session, are kept; the oldest are forgotten."""

_Key = tuple[Caller, bytes]
"""A caller, and the client capabilities that were declared to the server, as JSON."""


class ClientSessionPool:
    """The sessions of one upstream that are not shared: one for each call, or a bounded pool with one for each caller.

    A session of the pool is kept `server.idle` seconds after its last request, and longer while its caller subscribes
    to resources. A caller that declares different capabilities with different requests has a session for each set, as
    they are declared to a handshake server once.
    `negotiated()` returns what was negotiated last, and raises CallError while no session may be opened.
    """

    def __init__(
        self,
        server: Server,
        opener: SessionOpener,
        negotiated: Callable[[], Agreement | None],
        messages: ErrorMessages,
        subscriptions: SubscriptionRegistry,
        lists: CallerLists,
    ) -> None:
        self._server = server
        self._opener = opener
        self._negotiated = negotiated
        self._messages = messages
        self._subscriptions = subscriptions
        self._lists = lists
        self._pool: SessionPool[_Key] = SessionPool(
            server.idle, lambda: messages.unavailable(None), lambda key: subscriptions.has(key[0])
        )
        self._callers = CallerSlot[bool](end=self._end)
        """Those that have had a session of the pool."""
        self._single: SessionPool[object] = SessionPool(server.idle, lambda: messages.unavailable(None))
        """The sessions of single calls, so that they end with the others."""

    def __len__(self) -> int:
        return len(self._pool)

    def of(
        self, caller: Caller, capabilities: Json | None = None
    ) -> contextlib.AbstractAsyncContextManager[UpstreamSession]:
        """Lends the caller's session for the block, and opens one if there is none.

        Args:
            capabilities: the client capabilities to declare to the server; None: any session of the caller will do.

        Raises:
            CallError: the pool is full and no session is idle, or the session could not be opened.
        """
        if self._server.session == "call":
            return self._single.lend(object(), partial(self._open, caller, capabilities), once=True)
        key = self._key(caller, capabilities)
        if not self._pool.has(key):
            self._make_room()
            self._callers[caller] = True
        return self._pool.lend(key, partial(self._open, caller, capabilities), once=caller.is_ended)

    def _key(self, caller: Caller, capabilities: Json | None) -> _Key:
        if capabilities is None:
            return next((key for key in self._pool.keys if key[0] is caller), (caller, b""))
        return caller, encode(capabilities) if capabilities else b""

    def existing(self, caller: Caller) -> UpstreamSession | None:
        """Returns the caller's session if it is open."""
        return self._pool.existing(self._key(caller, None))

    def _make_room(self) -> None:
        limit, id = self._server.max_sessions, self._server.id
        if len(self._pool) >= limit:
            text = f"{id!r} has sessions of {limit} other callers open (setting: servers.{id}.max_sessions)."
            raise Overloaded(text, server=id, retry_after=_RETRY_AFTER)

    async def _open(self, caller: Caller, capabilities: Json | None) -> UpstreamSession:
        agreement = self._negotiated()
        try:
            session = await self._opener.open_own(
                agreement, caller, capabilities, partial(self._lists.notified, caller)
            )
        except CONNECT_ERRORS as error:
            raise self._messages.not_connected(error, self._messages.explain(error)) from None
        self._subscriptions.restore(session, caller)
        if self._server.session == "client":
            self._lists.follow(caller, session)
            await session.ready_for_questions()
        elif session.era == "handshake":
            session.watch_for_changes()
        return session

    def drop(self, caller: Caller) -> None:
        """Ends the sessions of a caller, in the background."""
        self._callers.drop(caller)

    def _end(self, caller: Caller, _: bool) -> None:
        for key in [key for key in self._pool.keys if key[0] is caller]:
            self._pool.end(key)

    async def close(self) -> None:
        """Ends all sessions at the same time. Never raises."""
        await asyncio.gather(self._pool.close(), self._single.close())


def told_capabilities(agreement: Agreement | None, caller: Caller, envelope: Envelope | None) -> Json | None:
    """Returns the client capabilities to declare to a handshake server for a modern caller; None in all other cases."""
    if envelope is None or not caller.is_principal or agreement is None or agreement.era == "modern":
        return None
    return forwarded_capabilities(envelope.capabilities, "handshake")


class SessionContinuity:
    """Remembers the session of each caller's last tool call, for servers whose sessions have a state (browsers)."""

    def __init__(self, server: Server, messages: ErrorMessages) -> None:
        self.needed = server.browser
        """Whether the server's sessions have a state; if not, `check` must not be called."""
        self._messages = messages
        self._last = CallerSlot[UpstreamSession](bound=MAX_CALLERS)

    def check(self, caller: Caller, session: UpstreamSession, method: str) -> None:
        """Notes the session of a tool call; ignores other methods.

        Raises:
            StateLost: the caller's earlier session has ended, and its pages and cookies with it. Raised once.
        """
        if method != TOOLS.act_method:
            return
        previous = self._last.get(caller)
        self._last[caller] = session
        if previous is not None and previous is not session:
            raise self._messages.state_lost(previous.loss, previous.last_words)

    def inherit(self, former: SessionContinuity) -> None:
        """Takes over the remembered sessions of the upstream that was replaced."""
        for caller, session in former._last.items() if self.needed else ():
            self._last[caller] = session

    def drop(self, caller: Caller) -> None:
        """Forgets the session of a caller that already got an error about its loss, or whose session was ended."""
        self._last.drop(caller)


class CallerLists:
    """The lists of each caller's own session, as a server may list other items, or the same differently, to each.

    `changed()` is called when one of the lists has changed.
    """

    def __init__(self, server: Server, changed: Callable[[], None]) -> None:
        self._server = server
        self._changed = changed
        self.all = CallerSlot[RawLists](end=self._ended)
        """The lists of each caller's own session, as far as they were fetched. Only this class changes it."""
        self._sessions = CallerSlot[UpstreamSession]()
        self._refreshers = CallerSlot[ListRefresher](end=lambda caller, refresher: refresher.cancel())

    def follow(self, caller: Caller, session: UpstreamSession) -> None:
        """Keeps the lists of a caller's new session up to date.

        They are fetched only if client capabilities were declared to the server, or when it announces a change. Until
        then, the caller sees the shared lists.
        """
        self._sessions.pop(caller, None)
        self._sessions[caller] = session  # the newest is the last
        if len(self._sessions) > MAX_CALLERS:  # principals never leave
            ended = next((key for key, former in self._sessions.items() if former.lost.is_set()), None)
            if ended is not None:
                self.drop(ended)
        refresher = self._refreshers.get(caller)
        if refresher is None:
            fetch = partial(self._fetch, caller)
            refresher = ListRefresher(self._server.id, partial(self._sessions.get, caller), fetch)
            self._refreshers[caller] = refresher
        if session.agreement.declared or caller in self.all:
            refresher.soon(set(KINDS), 0.0)
        session.watch_for_changes(partial(refresher.soon, set(KINDS)))

    def notified(self, caller: Caller, method: str, params: Json) -> None:
        """Handles a notification on a caller's session."""
        refresher = self._refreshers.get(caller)
        if refresher is not None:
            refresher.notified(method)

    def drop(self, caller: Caller) -> None:
        """Drops the lists of a caller."""
        for slot in (self._sessions, self._refreshers, self.all):
            slot.drop(caller)

    def _ended(self, caller: Caller, lists: RawLists) -> None:
        self._changed()

    def items(self, kind: Kind) -> list[Any]:
        """Returns all items of a kind that are in any caller's list."""
        return [item for lists in self.all.values() for item in lists.items.get(kind, ())]

    async def _fetch(self, caller: Caller, session: UpstreamSession, kinds: set[Kind]) -> set[Kind]:
        lists = self.all.get(caller) or RawLists(self._server)
        unasked = session.agreement.unasked  # the shared session asks for these
        ordered = [kind for kind in KINDS if kind in kinds and kind not in unasked]
        if await lists.fetch(session.list_page, session.agreement.offers, ordered, session.unusable):
            self.all[caller] = lists
            self._changed()
        return set(lists.failed)

    async def close(self) -> None:
        """Stops fetching."""
        for refresher in self._refreshers.values():
            await refresher.close()


# --- the session in the other era --------------------------------------------------------------------------------


OPEN_TIME_FACTOR: Final = 2.0
"""Opening the second session may take this many times as long as opening the first one, and `PROBE_WAIT` more."""


_TEMPORARY: Final = frozenset({401, 403, 408, 425, 429})
"""HTTP statuses that say nothing about the era."""


class EraSessions:
    """The session in the other era than the shared one; opened by the first caller of that era, closed when unused.

    Lists and subscriptions belong to the shared session. `notified` gets the notifications of this one about lists.
    """

    def __init__(
        self, server: Server, opener: SessionOpener, notified: OnNotification, messages: ErrorMessages
    ) -> None:
        self._id = server.id
        self._messages = messages
        self._opener = opener
        self._notified = notified
        self._pool: SessionPool[Era] = SessionPool(server.idle, lambda: messages.unavailable(None))

    def __len__(self) -> int:
        return len(self._pool)

    @contextlib.asynccontextmanager
    async def of_era(self, shared: UpstreamSession, era: Era, opened_in: float) -> AsyncIterator[UpstreamSession]:
        """Lends the session of an era for the block; it is `shared` if the server does not have that era.

        Args:
            opened_in: the seconds that opening the shared session took.
        """
        slot = self._pool.take(era, partial(self._open, shared, PROBE_WAIT + OPEN_TIME_FACTOR * opened_in))
        try:
            try:
                session = await self._pool.opened(slot)
            except CONNECT_ERRORS as error:
                self._failed(shared, era, error)
                session = shared
            yield session
        finally:
            slot.give_back()

    def _failed(self, shared: UpstreamSession, era: Era, error: Exception) -> None:
        if _is_verdict(error):
            shared.agreement = msgspec.structs.replace(shared.agreement, only=True)  # for later sessions too
        elif shared.is_local or not _is_temporary(error):
            shared.has_sole_era = True  # for this session only: no later call tries the other era again
        log.info("%s is not spoken to in the %s era: %s", self._id, era, self._messages.explain(error))

    async def _open(self, shared: UpstreamSession, limit: float) -> UpstreamSession:
        async with asyncio.timeout(limit):
            session = await self._opener.open_shared(None, self._notified, beside=shared)
        if session.era == "handshake":
            session.watch_for_changes()
            await session.ready_for_questions()
        return session

    @property
    def open(self) -> list[UpstreamSession | None]:
        """The sessions that are open; None for one that is being opened."""
        return [self._pool.existing(era) for era in self._pool.keys]

    async def close(self) -> None:
        """Ends the session. Never raises."""
        await self._pool.close()


def _is_verdict(error: BaseException) -> bool:
    """Returns whether a failed attempt shows that the server does not have the era."""
    if isinstance(error, UpstreamAnswered | NoAgreement):
        return True
    status = error.status if isinstance(error, LinkError) else None
    return status is not None and 400 <= status < 500 and status not in _TEMPORARY


def _is_temporary(error: BaseException) -> bool:
    """Returns whether an attempt by a later call may succeed."""
    return isinstance(error, LinkError) and (not error.executed or error.status in _TEMPORARY)
