"""One upstream: a supervising task that connects, fetches lists and reconnects, and the requests to the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from mcp_hub import codes
from mcp_hub.config.ancestry import HubPath
from mcp_hub.config.models import Server
from mcp_hub.errors import CallError, LeftOut, UpstreamAnswered
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import TOOLS, Kind
from mcp_hub.protocol.questions import Asker, CallQuestions, Json
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.transport import LinkError, SessionLost, SignInNeeded, Unauthorized
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.transport.peer import Progress
from mcp_hub.upstream import lifecycle
from mcp_hub.upstream.attribution import ClientRegistry, OnLog, rules_of
from mcp_hub.upstream.catalog_cache import CachedCatalog, CatalogCache
from mcp_hub.upstream.client_sessions import (
    CallerLists,
    ClientSessionPool,
    EraSessions,
    SessionContinuity,
    told_capabilities,
)
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.lifecycle import ReferenceCount, StartLimiter, UpstreamEvent, UpstreamState
from mcp_hub.upstream.link_dialer import LinkDialer
from mcp_hub.upstream.list_store import ListStore, RawLists
from mcp_hub.upstream.session import Agreement, UpstreamResult, UpstreamSession
from mcp_hub.upstream.session_opener import CONNECT_ERRORS, SessionOpener
from mcp_hub.upstream.subscription_registry import SubscriptionRegistry

log = logging.getLogger("mcp_hub.upstream")


class Upstream:
    """A configured server: its state, its lists, and the way to send it requests.

    `changed()` is called when its lists have changed and when the outcome of its first attempt is known.
    """

    def __init__(
        self,
        server: Server,
        dialer: LinkDialer,
        info: Json,
        clients: ClientRegistry,
        starts: StartLimiter,
        cache: CatalogCache | None,
        changed: Callable[[], None],
        made_from: tuple[Any, ...] = (),
    ) -> None:
        self.server = server
        self.state = UpstreamState.IDLE if server.enabled else UpstreamState.DISABLED
        self.since = time.monotonic()
        """`time.monotonic()` of its last change of state."""
        self.session: UpstreamSession | None = None
        """The session shared by all callers, while it is open."""
        self._agreement: Agreement | None = None
        self.transport: str = server.transport
        self.error: str | None = server.disabled_reason
        """The reason why it is not available, for the user; None while it is."""
        self.wants_sign_in = False
        """Whether its last attempt to connect failed because the user has to sign in."""
        self.connect_seconds: float | None = None
        self.starts = 0
        """Attempts to connect in this run of the hub."""
        self.calls = ReferenceCount()
        self.made_from = made_from
        """The inputs of its process, such as files. A reload that finds other inputs replaces the process."""
        self.settled = asyncio.Event()
        """Set when its first outcome is known: connected, failed, or served from the catalog cache."""
        self.cache_checked = asyncio.Event()
        """Set once its cached catalog is served, or turns out to be missing."""
        self.attempted = asyncio.Event()
        """Set when a connection attempt of this run has succeeded or failed."""
        self.backoff = lifecycle.Backoff()
        self.visibility = lifecycle.Visibility(changed)
        self.list_store = ListStore(server, cache, lambda: self.session, changed)
        self.lists = self.list_store.lists
        self.caller_lists = CallerLists(server, changed)
        self._changed = changed
        self._health = lifecycle.HealthMonitor(server.health, self._well, self.list_store.refresh_all)
        self.messages = ErrorMessages(server)
        self.subscriptions = SubscriptionRegistry(server, self.messages, self._session_for, self._existing)
        self._dialer, self._clients = dialer, clients
        updated = self.subscriptions.updated
        self._opener = SessionOpener(server, dialer, info, clients, starts, updated, self.messages, self._health)
        self.era_sessions = EraSessions(server, self._opener, self.list_store.notified, self.messages)
        self.questions = rules_of(server)
        self._latest: UpstreamSession | None = None
        """The session that its lists came from last, open or not."""
        self._attempt = lifecycle.ConnectAttempt()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._continuity = SessionContinuity(server, self.messages)
        self.own_sessions = ClientSessionPool(
            server, self._opener, self._negotiated, self.messages, self.subscriptions, self.caller_lists
        )
        if not server.enabled:
            self.attempted.set()
            self.settled.set()

    def start(self) -> None:
        """Starts the supervising task; the cached catalog, if there is one, is served from now on."""
        if self.state is UpstreamState.DISABLED:
            self.cache_checked.set()
            return
        if not self.list_store.is_cache_large and not self._clients.expected:
            self._begin_with(self.list_store.load({} if self.server.session == "client" else None))
        self._task = BACKGROUND.keep(f"upstream {self.server.id}", self._live)

    def wake(self) -> None:
        """Connects if it is not connected, unless it is lazy and served from the catalog cache."""
        if not self.server.lazy:
            self._wake.set()

    def start_now(self) -> None:
        """Connects if it was not started yet, lazy or not."""
        if self.state is UpstreamState.IDLE:
            self._wake.set()

    async def tried(self) -> None:
        """Connects if it was not started yet, and waits until it has failed or all of its lists are known."""
        self.start_now()
        await self.attempted.wait()
        await self.list_store.asked()

    async def stop(self) -> None:
        """Ends its sessions and its process. Never raises."""
        self._move(UpstreamEvent.STOP)
        self._attempt.failed(self.messages.unavailable(self.error))  # no attempt follows that calls could wait for
        self.visibility.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
        for part in (self.list_store, self.caller_lists, self.own_sessions, self.era_sessions):
            await part.close()
        self.cache_checked.set()
        self.attempted.set()
        self.settled.set()

    def renew(self, server: Server) -> None:
        """Replaces the configuration entry by one with the same connection; only its rules and names may differ."""
        changed = server.health != self.server.health
        self.server = self.list_store.server = server
        self.messages.renew(server)
        if changed:
            self._health.renew(server.health)

    def succeed(self, former: Upstream) -> None:
        """Takes over resource watchers and remembered sessions of the upstream that this one replaces."""
        self.subscriptions.inherit(former.subscriptions)
        self._continuity.inherit(former._continuity)

    @property
    def agreement(self) -> Agreement | None:
        """What was negotiated last, with what was found out about the server since then."""
        return self.session.agreement if self.session is not None else self._agreement

    def list_as(self, former: Upstream) -> None:
        """Lists what the upstream listed that it replaces, until it is connected."""
        self.lists.adopt(dict(former.lists.items))
        self._agreement = former.agreement

    @property
    def nested_hubs(self) -> HubPath:
        """The hubs behind it, if it is a hub."""
        return self._latest.nested_hubs if self._latest is not None else HubPath()

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last stderr lines of the server's process, without secrets; empty if there is none."""
        return tuple(map(self.messages.clean, self.session.last_words)) if self.session is not None else ()

    @property
    def left_out(self) -> bool:
        """Whether it is disabled because it is this hub itself, or would make the chain of hubs too long."""
        return self.server.enabled and self.state is UpstreamState.DISABLED

    @property
    def incomplete(self) -> list[str]:
        """The reasons why its lists are incomplete, also those of hubs behind it, one line each, for the user."""
        return [*self.lists.incomplete, *self.nested_hubs.notes]

    def lists_of(self, caller: Caller, kind: Kind) -> RawLists:
        """Returns the lists of a caller's own session if it has listed this kind, else those that callers share."""
        own = self.caller_lists.all.get(caller)
        return own if own is not None and kind in own.items else self.lists

    def _begin_with(self, cached: CachedCatalog | None) -> None:
        if cached is not None:
            self._agreement = Agreement.from_cache(cached)
            self._settle()
        else:
            self._wake.set()  # even a lazy server is started once, as its lists are unknown
        self.cache_checked.set()

    async def _live(self) -> None:
        try:
            if not self.cache_checked.is_set():
                declared = await self._clients.shared_capabilities(self.server)
                self._begin_with(await self.list_store.load_in_thread(declared))
            while not self.left_out:
                await self._wake.wait()
                self._wake.clear()
                await self._live_once()
                self._wake.set()
        except Exception:
            self._move(UpstreamEvent.LOST)
            self._begin_with(None)  # connects when it is begun again
            raise

    async def _live_once(self) -> None:
        """Connects, and waits until the connection is lost and it is time for the next one."""
        self._move(UpstreamEvent.WAKE)
        started_at = time.monotonic()
        session = await self._connect()
        if session is not None:
            await self._until_lost(session)
        if self.left_out:
            return
        if session is not None and session.has_served:
            self.backoff.failures = 0  # some servers exit after each answer
        else:
            self.backoff.count_failure(time.monotonic() - started_at, connected=session is not None)
        if session is not None and isinstance(session.loss, SessionLost):
            self.backoff.hold_renewal()
        if self.backoff.held:
            self._attempt.failed(self._refusal())  # calls do not wait that long
        at_once = session is not None and self.backoff.failures <= 1
        await self.backoff.wait(self._wake, at_once=at_once, sooner=self._signed_in_anew)

    def _signed_in_anew(self) -> bool:
        return self._dialer.signed_in_anew(self.server)

    async def _until_lost(self, session: UpstreamSession) -> None:
        self._health.follow_lists(session)
        try:
            await session.lost.wait()
        finally:
            self.session = None
            self._agreement = session.agreement
            if isinstance(session.loss, SessionLost):
                await session.peer.quiet(lifecycle.REFUSAL_WAIT)  # the other requests fail, too, and may be repeated
            await asyncio.shield(session.close())
        if session.left_out is not None:
            self._leave_out(session.left_out)
            return
        loss = session.loss or LinkError("the connection was lost")
        self.error = self.messages.explain(loss, session.last_words)
        log.warning("%s was lost: %s", self.server.id, self.error)
        self._move(UpstreamEvent.LOST)
        self.visibility.hide_after(self.server.health.unlist_after)

    def _well(self, session: UpstreamSession, well: bool) -> None:
        if session is not self.session:
            return  # a session of one caller, or of the other era, says nothing about the shared one
        self._move(UpstreamEvent.WELL if well else UpstreamEvent.SICK)
        self.error = None if well else lifecycle.PING_MISSED

    async def _connect(self) -> UpstreamSession | None:
        self._attempt.begin()
        started_at = time.monotonic()
        self.starts += 1
        try:
            session = await self._open_and_list()
        except LeftOut as error:
            self._leave_out(error)
            return None
        except Exception as error:
            self._connect_failed(error)
            return None
        self.connect_seconds = time.monotonic() - started_at
        self.error, self.wants_sign_in = None, False
        self.session = session
        self._move(UpstreamEvent.CONNECTED)
        self._attempt.succeeded(session)
        self.list_store.resume(session)
        self.visibility.show()
        self.subscriptions.restore(session, None)
        self.attempted.set()
        self._settle()
        return session

    async def _open_and_list(self, beside: UpstreamSession | None = None) -> UpstreamSession:
        """Opens the shared session and fetches its lists, in the handshake era if they hang in the modern one.

        Args:
            beside: the session whose lists hang; the new one gets the other era.
        """
        previous = self.agreement if beside is None else None
        session = await self._opener.open_shared(previous, self.list_store.notified, beside)
        if beside is not None:
            session.agreement = msgspec.structs.replace(session.agreement, only=True)
        self._agreement, self.transport, self._latest = session.agreement, session.transport, session
        session.watch_for_changes(self.list_store.refresh_all)  # before the lists, so that no change is missed
        try:
            await self.list_store.begin(session)
        except LinkError as late:
            if late.hub_code != codes.LIST_LATE or session.era == "handshake" or not session.may_have_other_era:
                raise
            log.warning("%s: %s; it is asked in the handshake era", self.server.id, self.messages.explain(late))
            with contextlib.suppress(*CONNECT_ERRORS):
                return await self._open_and_list(session)
            self._agreement = session.agreement
            raise
        return session

    def _connect_failed(self, error: Exception) -> None:
        if not isinstance(error, CONNECT_ERRORS):
            log.exception("connecting to %s failed inside the hub", self.server.id)
        before, self.error = self.error, self.messages.explain(error)
        self.wants_sign_in = isinstance(error, SignInNeeded)
        if isinstance(error, LinkError):
            self.backoff.hold(error.retry_after or 0.0)
        # A failure that repeats the last one is not worth another warning.
        level = logging.DEBUG if before == self.error else logging.WARNING
        log.log(level, "%s is not available: %s", self.server.id, self.error)
        self._move(UpstreamEvent.FAILED)
        self._attempt.failed(self.messages.not_connected(error, self.error))
        self.attempted.set()
        if isinstance(error, Unauthorized):
            self.visibility.show()  # it works as soon as the user signs in
        else:
            self.visibility.hide_after(self.server.health.unlist_after)
        self._settle()

    def _leave_out(self, error: LeftOut) -> None:
        """Disables the upstream until the configuration is reloaded: it must not be served."""
        self.error = self.messages.explain(error)
        log.warning("%s: %s", self.server.id, self.error)
        self._agreement = self._latest = None
        self._move(UpstreamEvent.LEFT_OUT)
        self.list_store.drop()
        self._attempt.failed(self.messages.unavailable(self.error))
        self.attempted.set()
        self._settle()

    def _move(self, event: UpstreamEvent) -> None:
        before, self.state = self.state, lifecycle.TRANSITIONS.get((self.state, event), self.state)
        if self.state is not before:
            self.since = time.monotonic()

    def _settle(self) -> None:
        self.settled.set()
        self._changed()

    def _negotiated(self) -> Agreement | None:
        """Returns what was negotiated last. Raises CallError while no session may be opened."""
        if self.state in (UpstreamState.DISABLED, UpstreamState.STOPPED):
            raise self.messages.unavailable(self.error)
        return self.agreement

    async def forward_notification(self, caller: Caller, method: str) -> None:
        """Passes a client's notification to the client's own session, if it has one."""
        if (session := self._existing(caller)) is not None:
            await session.announce(method)

    async def log_from(self, level: str) -> None:
        """Makes the server log this level and above on the open sessions; later calls set it on new ones."""
        sessions = (self.session, *self.era_sessions.open)
        await asyncio.gather(*(session.log_from(level) for session in sessions if session is not None))

    def drop(self, caller: Caller) -> None:
        """Ends the own sessions of a caller that stays, and drops what came of them."""
        for part in (self._continuity, self.own_sessions, self.caller_lists):
            part.drop(caller)

    async def request(
        self,
        method: str,
        params: Json,
        *,
        caller: Caller = SOLE,
        era: Era | None = None,
        envelope: Envelope | None = None,
        on_progress: Progress | None = None,
        asker: Asker | None = None,
        on_log: OnLog | None = None,
        questions: CallQuestions | None = None,
    ) -> UpstreamResult:
        """Sends one request, connecting first where needed, and returns its result.

        A request that was certainly not executed is sent once more on a new connection; any other is never repeated.

        Args:
            caller: chooses the session where the server has one per caller; the sole client has the shared one.
            era: the caller's era, used with a shared server that has both eras; None: any era.
            asker: the client that the server may ask because of this request; `questions`: the record of what it asks.
            on_log: takes the log messages that this request causes.

        Raises:
            UpstreamAnswered: the upstream answered an error.
            CallError: anything else went wrong.
        """

        async def send(session: UpstreamSession) -> Any:
            if self._continuity.needed:
                self._continuity.check(caller, session, method)
            needs_schema = session.needs_schemas and method == TOOLS.act_method
            schema = self.lists_of(caller, TOOLS).schema(params.get("name")) if needs_schema else None
            if envelope is not None and envelope.log_level is not None:
                await session.log_from(envelope.log_level)
            program = envelope.program if envelope is not None else ""
            cause = session.attribution.call(caller, asker, on_log, questions, program)
            if session.first_roots is not None:
                await session.ready_for_call(cause, method)
            with cause:
                result = await session.request(
                    method, params, envelope=envelope, on_progress=on_progress, schema=schema, cause=cause
                )
                session.has_served = True
                return result

        for repeated in (False, True):
            try:
                if self.server.session == "shared" or (caller is SOLE and self.server.session == "client"):
                    ready = self.session
                    session = ready if ready is not None and not ready.lost.is_set() else await self.connected()
                    if era is None or session.era == era or not session.may_have_other_era:
                        result = await send(session)
                    else:
                        async with self.era_sessions.of_era(session, era, self.connect_seconds or 0.0) as session:
                            result = await send(session)
                else:
                    capabilities = told_capabilities(self.agreement, caller, envelope)
                    async with self.own_sessions.of(caller, capabilities) as session:
                        result = await send(session)
                break
            except UpstreamAnswered as error:
                session.has_served = True
                raise session.attribution.error_for_caller(error, asker, questions) from None
            except LinkError as error:
                executed = error.executed or isinstance(error, Unauthorized)
                if repeated or executed or not session.lost.is_set():
                    self._continuity.drop(caller)  # the error itself reports the lost session
                    raise self.messages.call_error(error) from None
        if not isinstance(result, dict):
            raise self.messages.not_an_object(method)
        return UpstreamResult(result, session.era)

    @contextlib.asynccontextmanager
    async def _session_for(self, caller: Caller | None) -> AsyncIterator[UpstreamSession]:
        if self.server.session != "client" or caller is None:  # a session of a single call would end at once
            yield await self.connected()
            return
        async with self.own_sessions.of(caller) as session:
            yield session

    def _existing(self, caller: Caller | None) -> UpstreamSession | None:
        return self.session if caller is None or caller is SOLE else self.own_sessions.existing(caller)

    async def connected(self) -> UpstreamSession:
        """Returns the shared session, and connects first where needed. Raises CallError."""
        if self.session is not None and not self.session.lost.is_set():
            return self.session
        self._negotiated()
        if (self.backoff.fails_fast or self.backoff.held) and self.state is UpstreamState.BACKING_OFF:
            if not self._signed_in_anew():
                if time.monotonic() - self.since > lifecycle.TRY_AGAIN:
                    self._wake.set()  # for later calls: this one fails at once
                raise self._refusal()
            self.backoff.failures = 0
        self._wake.set()
        return await self._attempt.outcome()

    def _refusal(self) -> CallError:
        refusal = self._attempt.refusal or self.messages.unavailable(self.error)
        refusal.retry_after = round(self.backoff.held, 3) or None
        return refusal
