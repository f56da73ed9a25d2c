"""One upstream: one supervised task that connects, lists, notices the end, and connects again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable
from functools import partial
from typing import Any, Final, NamedTuple

from mcp_hub.config.ancestry import Behind
from mcp_hub.config.models import Server
from mcp_hub.errors import HubError, InternalError, LeftOut, UpstreamAnswered
from mcp_hub.protocol.asking import Asker, Json
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.extensions import told
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.transport.link import LinkError, SessionLost, Unauthorized
from mcp_hub.transport.peer import Progress
from mcp_hub.upstream.agreement import VERSION_HEADER, Agreement, NoAgreement, agreed_before
from mcp_hub.upstream.attempt import Attempt
from mcp_hub.upstream.backing_off import BackingOff
from mcp_hub.upstream.causes import Hear
from mcp_hub.upstream.client_sessions import ClientSessions
from mcp_hub.upstream.clients import Clients
from mcp_hub.upstream.continuity import Continuity
from mcp_hub.upstream.dial import Dialer
from mcp_hub.upstream.health import Health
from mcp_hub.upstream.in_use import InUse
from mcp_hub.upstream.kept import Kept, KeptCatalogs
from mcp_hub.upstream.listing import Listing
from mcp_hub.upstream.opening import Opener
from mcp_hub.upstream.own_lists import OwnLists
from mcp_hub.upstream.presence import Presence
from mcp_hub.upstream.session import Session
from mcp_hub.upstream.starts import Starts
from mcp_hub.upstream.states import TRANSITIONS, Event, State
from mcp_hub.upstream.watching import Watching
from mcp_hub.upstream.words import Words

log = logging.getLogger("mcp_hub.upstream")

FAILURES_TO_FAIL_FAST: Final = 3
"""After so many failures in a row a call no longer triggers, and waits for, another attempt."""

TRY_AGAIN: Final = 1.0
"""Seconds since the last attempt after which such a call triggers another one all the same."""
PARTING: Final = 1.0
"""Seconds requests have to be refused one by one when their session is gone."""

_EXPECTED: Final = (HubError, LinkError, NoAgreement, TimeoutError)
"""What connecting may end in without a fault of the hub's."""


class Answered(NamedTuple):
    """A result object, and the era of the session it came on."""

    result: Json
    era: Era


class Upstream:
    """A configured server as the hub knows it: its state, its lists, and the way to ask it something.

    `changed()` is called when its lists differ from before or its first outcome is known.
    """

    def __init__(
        self,
        server: Server,
        dialer: Dialer,
        info: dict[str, Any],
        clients: Clients,
        starts: Starts,
        kept: KeptCatalogs | None,
        changed: Callable[[], None],
        made_from: tuple[Any, ...] = (),
    ) -> None:
        self.server = server
        self.state = State.IDLE if server.enabled else State.DISABLED
        self.agreement: Agreement | None = None
        self.transport: str = server.transport
        self.error: str | None = server.disabled_reason
        """Why it is not there, in words for the user; None while all is well."""
        self.connect_seconds: float | None = None
        self.calls = InUse()
        self.made_from = made_from
        """What its process was made from, for whoever has to know whether it would be another one now."""
        self.settled = asyncio.Event()
        """The first outcome is known: connected, failed, or served from the kept catalog."""
        self.begun = asyncio.Event()
        """Set when what an earlier run of the hub has kept of it is served, if there is anything."""
        self.tried = asyncio.Event()
        """It has been connected to, or failed to be, in this run of the hub."""
        self.since = time.monotonic()
        """When it came into its present state."""
        self.starts = 0
        """Attempts to connect in this run of the hub."""
        self.backing_off = BackingOff()
        self._changed = changed
        self.presence = Presence(changed)
        self.listing = Listing(server, kept, lambda: self._session, changed)
        self.lists = self.listing.lists
        self._health = Health(self._well, self.listing.refresh_all)
        self._words = Words(server)
        self._dialer = dialer
        self._session: Session | None = None
        self._latest: Session | None = None
        """The session that its lists come from, open or not."""
        self._attempt = Attempt()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.watching = Watching(server, self._words, self._session_for, lambda: self._session)
        self._continuity = Continuity(server, self._words)
        self.own_lists = OwnLists(server, changed)
        self._opener = Opener(server, dialer, info, clients, starts, self.watching.updated, self._words)
        self._own_sessions = ClientSessions(server.id, server.max_sessions, server.idle, self._open_own)
        if not server.enabled:
            self.tried.set()
            self.settled.set()

    def __repr__(self) -> str:
        return f"Upstream({self.server.id!r}, {self.state})"

    # --- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the supervised life; the kept catalog, if there is one, serves from this moment on."""
        if self.state is State.DISABLED:
            self.begun.set()
            return
        if not (much := self.listing.keeps_much):
            self._serve(self.listing.kept())
        self._task = asyncio.get_running_loop().create_task(self._live(much), name=f"upstream {self.server.id}")

    def wake(self) -> None:
        """Connect now if it is not connected; a lazy server that is served from its kept catalog sleeps on."""
        if not self.server.lazy:
            self._wake.set()

    def start_now(self) -> None:
        """Connect now if it is not connected, lazy or not."""
        if self.state is State.IDLE:
            self._wake.set()

    async def reach(self) -> None:
        """Connect now if it is not connected, as for a call. Raises CallError."""
        await self._shared()

    async def stop(self) -> None:
        """End the connection and everything behind it. Never raises."""
        self._move(Event.STOP)
        self.presence.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
        await self.listing.close()
        await self.own_lists.close()
        await self._own_sessions.close()
        self.begun.set()
        self.tried.set()
        self.settled.set()

    def renew(self, server: Server) -> None:
        """Go on under an entry whose connection is the same: its rules and names are others."""
        changed = server.health != self.server.health
        self.server = self.listing.server = server
        self._words.renew(server)
        if changed and self._session is not None:
            self._health.follow(self._session, server.health)

    @property
    def session(self) -> Session | None:
        """The one shared by all callers, while it is open."""
        return self._session

    @property
    def behind(self) -> Behind:
        """What it says of itself if it is a hub."""
        return self._latest.behind if self._latest is not None else Behind()

    @property
    def left_out(self) -> bool:
        """Whether it was connected to and turned out to be this hub, or one hub too many."""
        return self.server.enabled and self.state is State.DISABLED

    @property
    def incomplete(self) -> list[str]:
        """What is missing of its lists, and what hubs behind it have left out, in words for the user."""
        return [*self.lists.incomplete, *self.behind.notes]

    @property
    def own_sessions(self) -> int:
        """Sessions of callers' own that are open."""
        return len(self._own_sessions)

    def shown(self, text: str, limit: int) -> str:
        """A text of the server's without secrets, cut to so many characters."""
        return self._words.clean(text)[:limit]

    def succeed(self, former: Upstream) -> None:
        """Take the place of an upstream of the same id: who hears of its resources does so here, from now on."""
        self.watching.inherit(former.watching, self._session)
        self._continuity.inherit(former._continuity)

    async def tell(self, caller: Hashable | None, method: str) -> None:
        """Pass on what the only client of a session announces; a server shared by several is told nothing."""
        session = self._session if caller is None else self._own_sessions.existing(caller)
        if session is not None and session.era == "handshake":
            with contextlib.suppress(LinkError):
                await session.peer.notify(method, headers={VERSION_HEADER: session.agreement.version})

    async def log_from(self, level: str) -> None:
        """Have the server log this level and above, if it is there; a later connection is told with its first call."""
        if self._session is not None:
            await self._session.log_from(level)

    def forget(self, caller: Hashable) -> None:
        """`caller` is gone: its own session, if it has one, ends."""
        self._continuity.forget(caller)
        self._own_sessions.forget(caller)
        self.own_lists.forget(caller)

    def _serve(self, kept: Kept | None) -> None:
        """Begin with what an earlier run has kept; None: with nothing."""
        if kept is not None:
            self.agreement = agreed_before(kept)
            self._settle()
        else:
            self._wake.set()  # even a lazy server is started once: nothing is known of it yet
        self.begun.set()

    async def _live(self, keeps_much: bool) -> None:
        if keeps_much:
            self._serve(await self.listing.kept_much())
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._move(Event.WAKE)
            began = time.monotonic()
            session = await self._connect()
            if session is not None:
                await self._until_lost(session)
            if self.left_out:
                return
            self.backing_off.ended(time.monotonic() - began, connected=session is not None)
            await self.backing_off.wait(self._wake, at_once=session is not None and self.backing_off.failures <= 1)
            self._wake.set()

    async def _until_lost(self, session: Session) -> None:
        self._health.follow(session, self.server.health)
        try:
            await session.lost.wait()
        finally:
            self._health.stop()
            self._session = None
            if isinstance(session.loss, SessionLost):
                await session.peer.quiet(PARTING)  # the others are told the same, and may be sent again
            await asyncio.shield(session.close())
        if session.left_out is not None:
            self._leave_out(session.left_out)
            return
        loss = session.loss or LinkError("the connection was lost")
        self.error = self._words.explain(loss, session.last_words)
        log.warning("%s was lost: %s", self.server.id, self.error)
        self._move(Event.LOST)
        self.presence.away(self.server.health.unlist_after)

    def _well(self, well: bool) -> None:
        self._move(Event.WELL if well else Event.SICK)
        self.error = None if well else "it is connected, but did not answer the last ping"

    async def _connect(self) -> Session | None:
        self._attempt.begin()
        began = time.monotonic()
        self.starts += 1
        try:
            session = await self._opener.shared(self.agreement, self.listing.notified)
            self.agreement, self.transport, self._latest = session.agreement, session.transport, session
            session.watch_for_changes(self.listing.refresh_all)  # before they are listed, so that no change is missed
            await self.listing.begin(session)
        except LeftOut as error:
            self._leave_out(error)
            return None
        except Exception as error:
            if not isinstance(error, _EXPECTED):
                log.exception("connecting to %s failed inside the hub", self.server.id)
            said, self.error = self.error, self._words.explain(error)
            # The same failure of every later attempt is nobody's news.
            log.log(
                logging.DEBUG if said == self.error else logging.WARNING,
                "%s is not available: %s",
                self.server.id,
                self.error,
            )
            self._move(Event.FAILED)
            self._attempt.failed(self._words.not_connected(error, self.error))
            self.tried.set()
            if isinstance(error, Unauthorized):
                self.presence.back()  # whoever signs in will want to use it
            else:
                self.presence.away(self.server.health.unlist_after)
            self._settle()
            return None
        self.connect_seconds = time.monotonic() - began
        self.error = None
        self._session = session
        self._move(Event.CONNECTED)
        self._attempt.succeeded(session)
        self.listing.resume()
        self.presence.back()
        self.watching.restore(session, None)
        self.tried.set()
        self._settle()
        return session

    def _leave_out(self, error: LeftOut) -> None:
        """It must not be served. It is not connected to again, unless the configuration is loaded anew."""
        self.error = self._words.explain(error)
        log.warning("%s: %s", self.server.id, self.error)
        self.agreement = self._latest = None
        self._move(Event.LEFT_OUT)
        self.listing.drop()
        self._attempt.failed(self._words.unavailable(self.error))
        self.tried.set()
        self._settle()

    def _move(self, event: Event) -> None:
        before, self.state = self.state, TRANSITIONS.get((self.state, event), self.state)
        if self.state is not before:
            self.since = time.monotonic()

    def _settle(self) -> None:
        self.settled.set()
        self._changed()

    # --- requests ----------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        caller: Hashable | None = None,
        envelope: Envelope | None = None,
        on_progress: Progress | None = None,
        asker: Asker | None = None,
        hear: Hear | None = None,
    ) -> Answered:
        """The answer to one request, connecting first where needed.

        `caller` chooses the session where the server has one per caller; None stands for the shared one. `asker` is
        whom the server may ask because of this request, `hear` takes what it logs. What was
        certainly not executed is sent once more on a new connection; nothing else ever is. Raises UpstreamAnswered
        for the upstream's own errors and CallError for everything else.
        """

        async def ask(session: Session) -> Any:
            self._continuity.check(caller, session, method)
            headed = method == TOOLS.act_method and session.says_more
            schema = self.lists.schema(params.get("name")) if headed else None
            if envelope is not None and envelope.log_level is not None:
                await session.log_from(envelope.log_level)
            with session.causes.attended(caller, asker, hear) as cause:
                return await session.request(
                    method, params, envelope=envelope, on_progress=on_progress, schema=schema, cause=cause
                )

        for repeated in (False, True):
            try:
                if self.server.session == "shared":
                    session = await self._shared()
                    result = await ask(session)
                else:
                    async with self._session_for(caller, self._told(caller, envelope)) as session:
                        result = await ask(session)
                break
            except UpstreamAnswered as error:
                raise session.causes.elicitations.required(error, asker) from None
            except LinkError as error:
                executed = error.executed or isinstance(error, Unauthorized)
                if repeated or executed or not session.lost.is_set():
                    self._continuity.forget(caller)  # this error tells of the loss
                    raise self._words.call_error(error) from None
        if not isinstance(result, dict):
            text = f"{self.server.id!r} answered {method} with something that is no result object."
            raise InternalError(text, server=self.server.id)
        return Answered(result, session.era)

    def _told(self, caller: Hashable | None, envelope: Envelope | None) -> Json | None:
        """What a server of the handshake era may ask the modern causer of a request; None: it makes no difference."""
        known = self.agreement
        if envelope is None or not isinstance(caller, str) or known is None or known.era == "modern":
            return None
        return told(envelope.capabilities, "handshake")

    @contextlib.asynccontextmanager
    async def _session_for(self, caller: Hashable | None, told: Json | None = None) -> AsyncIterator[Session]:
        if self.server.session == "call":
            session = await self._open_own(caller, told)
            try:
                yield session
            finally:
                await asyncio.shield(session.close())
        elif self.server.session == "client" and caller is not None:
            async with self._own_sessions.of(caller, told) as session:
                yield session
        else:
            yield await self._shared()

    async def _shared(self) -> Session:
        if self._session is not None and not self._session.lost.is_set():
            return self._session
        if self.state in (State.DISABLED, State.STOPPED):
            raise self._words.unavailable(self.error)
        if self.backing_off.failures >= FAILURES_TO_FAIL_FAST and self.state is State.BACKING_OFF:
            if not self._dialer.signed_in_anew(self.server):
                if time.monotonic() - self.since > TRY_AGAIN:
                    self._wake.set()  # this call does not wait for it, the next one may be lucky
                raise self._attempt.refusal or self._words.unavailable(self.error)
            self.backing_off.failures = 0
        self._wake.set()
        return await self._attempt.outcome()

    async def _open_own(self, caller: Hashable | None, told: Json | None) -> Session:
        """A session beside the shared one. Raises ServerUnavailable, SignInMissing."""
        if self.state in (State.DISABLED, State.STOPPED):
            raise self._words.unavailable(self.error)
        try:
            session = await self._opener.own(self.agreement, caller, told, partial(self.own_lists.noticed, caller))
        except _EXPECTED as error:
            raise self._words.not_connected(error, self._words.explain(error)) from None
        self.watching.restore(session, caller)
        if self.server.session == "client":
            self.own_lists.follow(caller, session)
        elif session.era == "handshake":
            session.watch_for_changes(_nothing)  # on its standing stream the server's pings are answered
        return session


def _nothing() -> None:
    pass
