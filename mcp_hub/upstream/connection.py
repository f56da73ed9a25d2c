"""One upstream: one supervised task that connects, lists, notices the end, and connects again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from mcp_hub import errors
from mcp_hub.config.models import Server
from mcp_hub.era import Era
from mcp_hub.errors import CallError, HubError, InternalError, ServerUnavailable, UpstreamAnswered
from mcp_hub.kept import Kept, KeptCatalogs
from mcp_hub.kinds import KINDS, TOOLS, Kind
from mcp_hub.text import printable, redacted
from mcp_hub.upstream.agreement import Agreement, NoAgreement
from mcp_hub.upstream.dial import Dialer
from mcp_hub.upstream.lists import drain
from mcp_hub.upstream.session import Session, open_session
from mcp_hub.upstream.states import TRANSITIONS, Event, State
from mcp_hub.wire.link import FrameTooLarge, LinkError, SessionLost, Unauthorized
from mcp_hub.wire.peer import Progress

log = logging.getLogger("mcp_hub.upstream")

BACKOFF_FIRST: Final = 0.5
BACKOFF_LAST: Final = 30.0
SHORT_LIFE: Final = 10.0
"""Seconds; a connection that lived shorter counts as one more failure for the back-off, not as a recovery."""
FAILURES_TO_FAIL_FAST: Final = 3
"""After so many failed starts in a row a call no longer triggers, and waits for, another one."""
START_SLOT: Final = 3.0
"""Seconds a starting upstream keeps its place among those that start at once; a hanging one must not hold others up."""
SETTLE: Final = 0.1
"""Seconds changes are collected before the lists are asked for again."""
SHOWN_LAST_WORDS: Final = 5


class Upstream:
    """A configured server as the hub knows it: its state, its lists, and the way to ask it something.

    `changed(upstream)` is called when its lists differ from before or its first outcome is known.
    """

    def __init__(
        self,
        server: Server,
        dialer: Dialer,
        info: dict[str, Any],
        starts: asyncio.Semaphore,
        kept: KeptCatalogs | None,
        changed: Callable[[Upstream], None],
    ) -> None:
        self.server = server
        self.state = State.IDLE if server.enabled else State.DISABLED
        self.lists: dict[Kind, list[Any]] = {}
        self.shortfalls: dict[Kind, str] = {}
        self.agreement: Agreement | None = None
        self.transport: str = server.transport
        self.error: str | None = server.disabled_reason
        """Why it is not there, in words for the user; None while all is well."""
        self.connect_seconds: float | None = None
        self.settled = asyncio.Event()
        """The first outcome is known: connected, failed, or served from the kept catalog."""
        self.failures = 0
        self._dialer = dialer
        self._info = info
        self._starts = starts
        self._store = kept
        self._changed = changed
        self._session: Session | None = None
        self._attempt: asyncio.Future[Session] | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dirty: set[Kind] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._schemas: dict[str, dict[str, Any]] = {}
        self._secrets = [v.get_secret_value() for v in (*server.env.values(), *server.headers.values())]
        if not server.enabled:
            self.settled.set()

    def __repr__(self) -> str:
        return f"Upstream({self.server.id!r}, {self.state})"

    # --- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the supervised life; the kept catalog, if there is one, serves from this moment on."""
        if self.state is State.DISABLED:
            return
        kept = self._store.load(self.server) if self._store is not None else None
        if kept is not None:
            self._adopt_kept(kept)
        if kept is None:
            self._wake.set()  # even a lazy server is started once: nothing is known of it yet
        self._task = asyncio.get_running_loop().create_task(self._live(), name=f"upstream {self.server.id}")

    def _adopt_kept(self, kept: Kept) -> None:
        self._set_lists({kind: kept.lists.get(kind.name, []) for kind in KINDS})
        era: Era = "modern" if kept.era == "modern" else "handshake"
        self.agreement = Agreement(era, kept.protocol_version, kept.capabilities, kept.instructions, kept.server_info)
        self._settle()

    def wake(self) -> None:
        """Connect now if it is not connected; a lazy server stays asleep until it is called."""
        if not self.server.lazy:
            self._wake.set()

    async def stop(self) -> None:
        """End the connection and everything behind it. Never raises."""
        self._move(Event.STOP)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._settle()

    async def _live(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._move(Event.WAKE)
            session = await self._connect()
            began = time.monotonic()
            if session is not None:
                try:
                    await session.lost.wait()
                finally:
                    self._session = None
                    await asyncio.shield(session.close())
                self.error = self._explain(session.loss or LinkError("the connection was lost"), session.last_words)
                log.warning("%s was lost: %s", self.server.id, self.error)
                self._move(Event.LOST)
            lived = time.monotonic() - began
            self.failures = 0 if lived > SHORT_LIFE else self.failures + 1
            await self._back_off(0.0 if session is not None and self.failures <= 1 else None)

    async def _back_off(self, delay: float | None) -> None:
        """Wait with full jitter, or until a call wants the upstream."""
        if delay is None:
            delay = random.uniform(0, min(BACKOFF_LAST, BACKOFF_FIRST * 2 ** (self.failures - 1)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._wake.wait()
        self._wake.set()

    async def _connect(self) -> Session | None:
        attempt = self._attempt = self._pending_attempt()
        began = time.monotonic()
        try:
            session = await self._open()
            await self._list_everything(session)
        except Exception as error:
            if not isinstance(error, HubError | LinkError | NoAgreement | TimeoutError):
                log.exception("connecting to %s failed inside the hub", self.server.id)
            self.error = self._explain(error, getattr(error, "last_words", ()))
            log.warning("%s is not available: %s", self.server.id, self.error)
            self._move(Event.FAILED)
            attempt.set_exception(self._unavailable())
            attempt.exception()  # seen, even if no call waits for it
            self._attempt = None
            self._settle()
            return None
        self.connect_seconds = time.monotonic() - began
        self.error = None
        self._session = session
        self._move(Event.CONNECTED)
        attempt.set_result(session)
        self._attempt = None
        session.watch_for_changes(self._everything_may_have_changed)
        self._settle()
        return session

    async def _open(self) -> Session:
        remembered = self.agreement.era if self.agreement is not None else "auto"
        limit = self.server.deadlines.connect
        slot = await self._take_start_slot()
        try:
            async with asyncio.timeout(limit):
                session = await open_session(self.server, self._dialer, self._info, self._notified, remembered)
        except TimeoutError:
            name = f"servers.{self.server.id}.deadlines.connect"
            raise LinkError(f"it did not answer the handshake within {limit:g} s (setting: {name})") from None
        finally:
            slot()
        self.agreement, self.transport = session.agreement, session.transport
        return session

    async def _take_start_slot(self) -> Callable[[], None]:
        await self._starts.acquire()
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                timer.cancel()
                self._starts.release()

        timer = asyncio.get_running_loop().call_later(START_SLOT, release)
        return release

    def _move(self, event: Event) -> None:
        following = TRANSITIONS.get((self.state, event))
        if following is not None:
            self.state = following

    def _settle(self) -> None:
        self.settled.set()
        self._changed(self)

    # --- lists -------------------------------------------------------------------------------------------------

    async def _list_everything(self, session: Session) -> None:
        try:
            await self._list(session, KINDS)
        except BaseException:
            await asyncio.shield(session.close())
            raise

    async def _list(self, session: Session, kinds: Sequence[Kind]) -> None:
        asked = [kind for kind in kinds if kind.capability in session.agreement.capabilities]
        found = dict(zip(asked, await asyncio.gather(*(self._drain(session, kind) for kind in asked)), strict=True))
        lists = {kind: found.get(kind, []) for kind in kinds}
        if any(self.lists.get(kind) != items for kind, items in lists.items()):
            self._set_lists(lists)
            self._changed(self)
        self._keep(session.agreement)

    async def _drain(self, session: Session, kind: Kind) -> list[Any]:
        limit = self.server.deadlines.list
        self.shortfalls.pop(kind, None)
        try:
            drained = await drain(session.request, kind, limit)
        except UpstreamAnswered as error:
            if error.code != errors.METHOD_NOT_FOUND:
                self.shortfalls[kind] = f"{kind.list_method} was answered with an error: {printable(error.message)}"
            return []
        except TimeoutError:
            name = f"servers.{self.server.id}.deadlines.list"
            raise LinkError(f"it did not answer {kind.list_method} within {limit:g} s (setting: {name})") from None
        if drained.shortfall is not None:
            self.shortfalls[kind] = drained.shortfall
            log.warning("%s: %s", self.server.id, drained.shortfall)
        return drained.items

    def _set_lists(self, lists: dict[Kind, list[Any]]) -> None:
        self.lists.update(lists)
        if TOOLS in lists:
            self._schemas = {
                tool["name"]: tool["inputSchema"]
                for tool in lists[TOOLS]
                if isinstance(tool, dict) and isinstance(tool.get("name"), str) and "inputSchema" in tool
            }

    def _keep(self, agreement: Agreement) -> None:
        if self._store is None or self.shortfalls:
            return
        lists = {kind.name: self.lists.get(kind, []) for kind in KINDS}
        self._store.save(
            self.server,
            Kept(
                agreement.era,
                agreement.version,
                agreement.capabilities,
                agreement.instructions,
                agreement.server_info,
                lists,
            ),
        )

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        kinds = {kind for kind in KINDS if kind.changed == method}
        if kinds:
            self._refresh(kinds)

    def _everything_may_have_changed(self) -> None:
        self._refresh(set(KINDS))

    def _refresh(self, kinds: set[Kind]) -> None:
        self._dirty |= kinds
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_dirty())

    async def _refresh_dirty(self) -> None:
        while self._dirty:
            await asyncio.sleep(SETTLE)
            session = self._session
            if session is None:
                return  # the next connection lists everything
            kinds, self._dirty = self._dirty, set()
            try:
                await self._list(session, [kind for kind in KINDS if kind in kinds])
            except (LinkError, HubError) as error:
                log.warning("%s: its lists could not be refreshed: %s", self.server.id, error)
            except Exception:
                log.exception("refreshing the lists of %s failed inside the hub", self.server.id)

    # --- requests ----------------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: dict[str, Any], *, envelope: Any = None, on_progress: Progress | None = None
    ) -> dict[str, Any]:
        """The result object of one request, connecting first where needed.

        What was certainly not executed is sent once more on a new connection; nothing else ever is. Raises
        UpstreamAnswered for the upstream's own errors and CallError for everything else.
        """
        schema = self._schemas.get(params.get("name", "")) if method == TOOLS.act_method else None
        session = await self._ready()
        try:
            try:
                result = await session.request(
                    method, params, envelope=envelope, on_progress=on_progress, schema=schema
                )
            except LinkError as error:
                if error.executed or isinstance(error, Unauthorized):
                    raise
                if isinstance(error, SessionLost):
                    session.lost.set()
                if not session.lost.is_set():
                    raise
                session = await self._next(session)
                result = await session.request(
                    method, params, envelope=envelope, on_progress=on_progress, schema=schema
                )
        except LinkError as error:
            raise self._call_error(error, session.last_words) from None
        if not isinstance(result, dict):
            text = f"{self.server.id!r} answered {method} with something that is no result object."
            raise InternalError(text, server=self.server.id)
        return result

    async def _ready(self) -> Session:
        session = self._session
        if session is not None and not session.lost.is_set():
            return session
        if self.state is State.DISABLED or self.state is State.STOPPED:
            raise self._unavailable()
        if self.failures >= FAILURES_TO_FAIL_FAST and self.state is State.BACKING_OFF:
            raise self._unavailable()
        attempt = self._attempt = self._pending_attempt()
        self._wake.set()
        return await asyncio.shield(attempt)

    async def _next(self, session: Session) -> Session:
        if self._session is session:
            self._session = None
        return await self._ready()

    def _pending_attempt(self) -> asyncio.Future[Session]:
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()
        return self._attempt

    # --- words -------------------------------------------------------------------------------------------------

    def _unavailable(self) -> ServerUnavailable:
        reason = self.error or "it is not running"
        text = f"The server {self.server.id!r} is not available: {reason}"
        return ServerUnavailable(text, server=self.server.id, retry_after=None)

    def _call_error(self, error: LinkError, last_words: Sequence[str]) -> CallError:
        text = f"The server {self.server.id!r} failed: {self._explain(error, last_words)}"
        if isinstance(error, FrameTooLarge):
            return errors.ResultTooLarge(text, server=self.server.id)
        if isinstance(error, Unauthorized):
            return errors.PermissionDenied(text, server=self.server.id)
        return ServerUnavailable(text, server=self.server.id, retry_after=error.retry_after)

    def _explain(self, error: BaseException, last_words: Sequence[str]) -> str:
        """One line for the user: what happened, and the server's last stderr lines, without its secrets."""
        text = str(error) or type(error).__name__
        if isinstance(error, UpstreamAnswered):
            text = f"it refused the handshake: {printable(error.message)} ({error.code})"
        if last_words:
            text += "; its last words: " + " | ".join(last_words[-SHOWN_LAST_WORDS:])
        return redacted(text, self._secrets)
