"""The second session with a shared server that has both eras, so that each caller is served in its own era."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import msgspec

from mcp_hub.config.models import Server
from mcp_hub.errors import UpstreamAnswered
from mcp_hub.protocol.era import Era
from mcp_hub.transport import LinkError
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.negotiation import PROBE_WAIT, NoAgreement
from mcp_hub.upstream.session import UpstreamSession
from mcp_hub.upstream.session_opener import CONNECT_ERRORS, OnNotification, SessionOpener
from mcp_hub.upstream.session_pool import SessionPool

log = logging.getLogger("mcp_hub.upstream")

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
