"""Handshake sessions over HTTP: who they belong to, how many, how long."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from mcp_hub.downstream.backlog import Share
from mcp_hub.downstream.callers import Caller
from mcp_hub.downstream.event_log import Streams, Total

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.quotas import Quotas
    from mcp_hub.security.principals import Principal

MAX_SESSIONS: Final = 10_000
IDLE_TIMEOUT: Final = 1800.0
"""Seconds without a request, a running call or an open stream until a session is forgotten."""
SWEEP_EVERY: Final = 60.0


class Session:
    """One client after `initialize`, known by an id that only it has been told."""

    def __init__(self, principal: Principal, now: float, total: Total, share: Share) -> None:
        self.id = secrets.token_urlsafe(24)
        """192 random bits, visible ASCII."""
        self.share = share
        """What waits for it."""
        self.streams = Streams(total, share)
        """Of its requests, and the standing one with what is said outside of any."""
        self.caller = Caller(principal, self.streams.standing.put_once)
        self.ended = False
        self.busy = 0
        """Exchanges in progress, the standing stream included."""
        self.used = now

    def end(self) -> None:
        """Let the standing stream end, and what was kept for clients that come back."""
        self.ended = True
        self.streams.close()
        self.streams.standing.news.set()


class Sessions:
    """All sessions of one listener. `clock` gives seconds."""

    def __init__(self, dispatcher: Dispatcher, quotas: Quotas, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatcher = dispatcher
        self._quotas = quotas
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._total = Total()

    def __len__(self) -> int:
        return len(self._sessions)

    def new(self, principal: Principal) -> Session | None:
        """A session that nobody can find before `admit`, and to be closed; None when there are too many of all.

        Raises Overloaded when there are too many of the principal's.
        """
        if len(self._sessions) >= MAX_SESSIONS:
            self.forget_idle()
        if len(self._sessions) >= MAX_SESSIONS:
            return None
        self._quotas.open_session(principal)
        return Session(principal, self._clock(), self._total, self._dispatcher.backlog.share())

    def admit(self, session: Session) -> None:
        """`initialize` went well: the session is there from now on."""
        self._sessions[session.id] = session
        self._dispatcher.join(session.caller)
        self._schedule()

    def find(self, session_id: str, principal: str) -> Session | None:
        """The session with this id if it belongs to `principal`; a stranger's does not exist."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.caller.principal == principal else None

    def begin(self, session: Session) -> None:
        """An exchange of the session starts."""
        session.busy += 1

    def finish(self, session: Session) -> None:
        """An exchange of the session has ended."""
        session.busy -= 1
        session.used = self._clock()

    def close(self, session: Session) -> None:
        """End a session, admitted or not: its calls are cancelled, its stream ends. Idempotent."""
        if self._sessions.pop(session.id, None) is not None:
            self._dispatcher.leave(session.caller)
        if not session.ended:
            self._quotas.close_session(session.caller.principal)
        session.end()

    def close_of(self, gone: Collection[tuple[str, str | None]]) -> None:
        """End the sessions of principals, each with its profile."""
        for session in list(self._sessions.values()):
            if (session.caller.principal, session.caller.principal.profile) in gone:
                self.close(session)

    def close_all(self) -> None:
        """End every session; the listener goes."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for session in list(self._sessions.values()):
            self.close(session)

    def forget_idle(self) -> None:
        """Close what nobody has used for `IDLE_TIMEOUT`."""
        oldest = self._clock() - IDLE_TIMEOUT
        for session in list(self._sessions.values()):
            if not session.busy and session.used < oldest:
                self.close(session)

    def _schedule(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_EVERY, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        self.forget_idle()
        if self._sessions:
            self._schedule()
