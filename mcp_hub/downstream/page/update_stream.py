"""The state of a hub on the live page, and the stream of its changes: bounded, coalesced, and it can be resumed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageError, PageRequest, page_event
from mcp_hub.downstream.page.feed import MAX_ROWS_BYTES, iso, shown
from mcp_hub.downstream.page.static_files import CONFINED
from mcp_hub.policy.call_record import approximate_size
from mcp_hub.security.lru import Lru
from mcp_hub.transport.background import BACKGROUND, set_within
from mcp_hub.transport.http1.exchange import EVENTS
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.downstream.page import LivePage
    from mcp_hub.downstream.page.client_rows import ClientRows
    from mcp_hub.downstream.page.config_view import ConfigView
    from mcp_hub.downstream.page.confirmations import ConfirmationsPart
    from mcp_hub.downstream.page.feed import Feed
    from mcp_hub.downstream.page.server_rows import ServerRows
    from mcp_hub.downstream.page.sessions import PageSession
    from mcp_hub.hub import Engine
    from mcp_hub.hub.hub_status import Status

PAUSE: Final = 0.25
"""Seconds between two writes to one stream."""
LOOK: Final = 1.0
"""Seconds between two checks for changes while no call ends."""
CLIENTS_EVERY: Final = 2.0
"""Seconds between two checks of the clients. Only their number is sent: the page asks for those that it shows."""
HEARTBEAT: Final = 15.0
"""Seconds after which a silent stream gets a comment, and the session of any stream is verified again."""
MAX_STREAMS: Final = 4
"""Event streams of one session."""
MAX_EVENT_CALLS: Final = 500
"""Calls in one event."""
MAX_VIEWERS: Final = 64
"""Viewers whose rows are shared by their streams."""


class StatePart:
    """Serves `GET /state`, what every view needs, and `GET /events`, how it changes.

    The page asks for tools, calls, clients and details by themselves.
    """

    def __init__(
        self,
        page: LivePage,
        hub: Engine,
        status: Status,
        feed: Feed,
        servers: ServerRows,
        clients: ClientRows,
        view: ConfigView,
        confirmations: ConfirmationsPart,
    ) -> None:
        self._page = page
        self._hub = hub
        self._status = status
        self.feed = feed
        self.server_rows = servers
        self.client_rows = clients
        self.view = view
        self.confirmations = confirmations
        self._rows: Lru[str | None, tuple[float, list[Json], Json]] = Lru(MAX_VIEWERS)
        """Principal, or None for admins -> when the rows of servers were made for a stream, the rows and the totals."""

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns the two endpoints."""
        return {("GET", "/state"): self.state, ("GET", "/events"): self.events}

    async def state(self, page_request: PageRequest) -> Json:
        """Returns the state as the viewer of a session may see it."""
        viewer, hub = page_request.session.viewer, self._hub
        self.feed.watch()
        rows = await self.server_rows.rows(viewer)
        config = hub.config
        return {
            "version": VERSION,
            "pid": os.getpid() if viewer.admin else None,
            "began": iso(self._status.began_at),
            "generation": hub.generation.number,
            "config": shown(str(config.path)) if config.path is not None and viewer.admin else None,
            "serving": [shown(address) for address in self._status.serving] if viewer.admin else [],
            "background": BACKGROUND.facts() if viewer.admin else None,
            "who": viewer.facts,
            "servers": rows,
            "clients": len((await self.client_rows.of(viewer)).rows),
            **await self.view.show(viewer),
            "confirmations": self.confirmations.rows(viewer),
            "watched_since": self.feed.since,
            "last_event_id": self.feed.event_id(self.feed.newest),
            "totals": await self.server_rows.totals(viewer),
        }

    async def events(self, page_request: PageRequest) -> None:
        """Streams events until the client goes, the session ends or the hub ends. Raises PageError, ClientGone."""
        session, reply = page_request.session, page_request.reply
        if not page_request.request.accepts(EVENTS):
            raise PageError(406, "accept", "This is an event stream.", "Send Accept: text/event-stream.")
        if session.streams >= MAX_STREAMS:
            text = f"This page has {MAX_STREAMS} event streams open already."
            raise PageError(429, "streams", text, "Close a tab of the page.")
        news = self.feed.follow()
        session.streams += 1
        on_end = session.on_end
        on_end.append(news.set)
        page_request.request.watch(news.set)
        stream = _Stream(self, session, self._begin_at(page_request), news)
        try:
            await stream.begin()
            with self.confirmations.watched(session, stream.has_confirmations):
                await reply.start(CONFINED)
                await reply.write(b": connected\n\n")
                await self._follow(page_request, stream, news)
            if not page_request.request.disconnected:
                reason = "the hub is stopping" if self._page.closing else "the session has ended"
                await reply.write(page_event("bye", {"reason": reason}))
                await reply.end()
        finally:
            page_request.request.unwatch()
            session.streams -= 1
            self._page.sessions.touch(session)
            if news.set in on_end:
                on_end.remove(news.set)
            self.feed.unfollow(news)

    async def _follow(self, page_request: PageRequest, stream: _Stream, news: asyncio.Event) -> None:
        """Writes events until the client goes or the session ends."""
        session, reply = page_request.session, page_request.reply
        verified_at = time.monotonic()
        while not session.ended and not page_request.request.disconnected:
            if time.monotonic() - verified_at > HEARTBEAT:
                if not await page_request.still_valid():
                    self._page.sessions.end(session)
                    break
                verified_at = time.monotonic()
            data = await stream.changes()
            if data:
                await reply.write(data)
                stream.written = time.monotonic()
            elif time.monotonic() - stream.written > HEARTBEAT:
                await reply.write(b": alive\n\n")
                stream.written = time.monotonic()
            await asyncio.sleep(PAUSE)
            await set_within(news, LOOK - PAUSE)
            news.clear()

    def _begin_at(self, page_request: PageRequest) -> int:
        """Returns the number of the last call that the client has."""
        event_ids = page_request.request.values(b"last-event-id")
        number = self.feed.number_of(event_ids[0]) if len(event_ids) == 1 else None
        return self.feed.newest if number is None else number

    async def servers(self, session: PageSession) -> tuple[list[Json], Json]:
        """Returns the rows of the servers and the totals, the same for all streams that one viewer has open."""
        viewer = session.viewer
        owner, now = None if viewer.admin else viewer.principal, time.monotonic()
        cached = self._rows.get(owner)
        if cached is None or now - cached[0] >= PAUSE:
            cached = self._rows[owner] = now, await self.server_rows.rows(viewer), await self.server_rows.totals(viewer)
        return cached[1:]

    def calls(self, session: PageSession, number: int) -> tuple[int, int, list[Json]]:
        """Returns the number of the newest call in a bounded list, how many before it are lost, and the list."""
        dropped, entries = self.feed.after(number)
        newest, size, rows = number + dropped, 0, []
        for entry in entries[:MAX_EVENT_CALLS]:
            if size > MAX_ROWS_BYTES:
                break
            newest, row = entry.number, entry.row(session.viewer)
            if row is not None:
                rows.append(row)
                size += approximate_size(row)
        return newest, dropped, rows

    def catalog(self, session: PageSession) -> tuple[Any, int]:
        """Returns the catalog that the viewer sees, and the number of the generation."""
        return self.server_rows.catalog_of(session.viewer), self._hub.generation.number


class _Stream:
    """What one event stream has sent so far, to find what has changed since."""

    def __init__(self, part: StatePart, session: PageSession, number: int, news: asyncio.Event) -> None:
        self._part = part
        self._news = news
        self._session = session
        self._number = number
        self._rows: dict[str, Json] = {}
        self._totals: Json = {}
        self._clients = 0
        self._confirmations = part.confirmations.rows(session.viewer)
        self._asks = True
        """Whether calls that wait for a person may be others than those sent before."""
        self._catalog: tuple[Any, int] | None = None
        self._load = part.view.newest_load
        self._restarts = BACKGROUND.restarts
        self._checked_at = self._clients_at = -CLIENTS_EVERY
        self.written = time.monotonic()

    async def begin(self) -> None:
        """Notes the current state. A `GET /state` afterwards is newer, so that no change is lost between the two."""
        await self._states(time.monotonic())

    def has_confirmations(self) -> None:
        """Notes that the calls that wait for a person have changed."""
        self._asks = True
        self._news.set()

    async def changes(self) -> bytes:
        """Returns the events since the last call, as bytes of the stream."""
        part, session, data = self._part, self._session, []
        before = self._number
        self._number, dropped, calls = part.calls(session, before)
        if dropped and session.viewer.admin:
            data.append(page_event("dropped", {"count": dropped}))
        if calls:
            data.append(page_event("calls", calls, part.feed.event_id(self._number)))
        now = time.monotonic()
        is_due = now - self._checked_at >= LOOK
        if self._asks or is_due:
            self._asks = False
            if (confirmations := part.confirmations.rows(session.viewer)) != self._confirmations:
                self._confirmations = confirmations
                data.append(page_event("confirmations", confirmations))
        if calls or is_due:
            self._checked_at = now
            data += await self._states(now)
        return b"".join(data)

    async def _states(self, now: float) -> list[bytes]:
        part, session, data = self._part, self._session, []
        server_rows, totals = await part.servers(session)
        rows = {row["server"]: row for row in server_rows}
        removed = self._rows.keys() - rows.keys()
        is_first = self._catalog is None
        if is_first:
            self._rows = rows
        elif changed := self._changed(rows):
            data.append(page_event("servers", changed))
        if totals != self._totals and not is_first:
            data.append(page_event("totals", totals))
        self._totals = totals
        if now - self._clients_at >= CLIENTS_EVERY:
            clients = await part.client_rows.of(session.viewer)
            if clients.version != self._clients and not is_first:
                data.append(page_event("clients", {"count": len(clients.rows)}))
            self._clients, self._clients_at = clients.version, now
        catalog, earlier = part.catalog(session), self._catalog
        if earlier is not None and (earlier[0] is not catalog[0] or earlier[1] != catalog[1]):
            data.append(page_event("catalog", {"generation": catalog[1]}))
        load, earlier_load = part.view.newest_load, self._load
        if earlier is not None and (earlier[1] != catalog[1] or removed or load is not earlier_load):
            data.append(page_event("configuration", {"generation": catalog[1]}))
        if session.viewer.admin and BACKGROUND.restarts != self._restarts:
            self._restarts = BACKGROUND.restarts
            data.append(page_event("background", BACKGROUND.facts()))
        self._catalog, self._load = catalog, load
        return data

    def _changed(self, rows: dict[str, Json]) -> list[Json]:
        """Returns the rows that differ from those sent before, as many as one event may have, and notes them."""
        changed, size = [], 0
        for id in self._rows.keys() - rows.keys():
            del self._rows[id]
        for id, row in rows.items():
            if self._rows.get(id) != row and size <= MAX_ROWS_BYTES:
                self._rows[id] = row
                changed.append(row)
                size += approximate_size(row)
        return changed
