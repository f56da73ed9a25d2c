"""The clients on the live page: those with a session, and those that only their calls tell of."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageRequest, not_found, window
from mcp_hub.downstream.page.feed import Feed, iso, shown, shown_object
from mcp_hub.hub.exposure import listed_to
from mcp_hub.observability.stalls import in_slices, in_thread
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.downstream import Connection
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page.feed import Entry
    from mcp_hub.downstream.page.sessions import Viewer

EVERY: Final = 0.5
"""The least seconds between two collections of the clients, however many pages ask."""
MAX_TEXT: Final = 200
"""Characters of one text of a row."""
FILTERED: Final = ("name", "version", "principal", "transport", "era")
"""The members of a row that the filter of the page is searched in."""


class ClientList(msgspec.Struct, frozen=True):
    """The clients that one viewer sees, in the order in which they came. A new `version` has other rows."""

    rows: Sequence[Json] = ()
    version: int = 0


class SeenClient(msgspec.Struct):
    """A client as far as its recorded calls tell."""

    label: str
    name: str | None
    principal: str
    era: str | None
    since: str | None
    calls: int = 0


class ClientRows:
    """Collects the clients at intervals, for all viewers at once. Serves `GET /clients` and `GET /clients/ID`."""

    def __init__(self, dispatcher: Dispatcher, feed: Feed, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatcher = dispatcher
        self._labels = dispatcher.hub.labels
        self._feed = feed
        self._clock = clock
        self._collected_at = clock() - EVERY
        self._collecting = asyncio.Lock()
        self._lists: dict[str | None, ClientList] = {}
        """By principal; None for admins, who see all."""
        self._version = 0
        self._rows: WeakKeyDictionary[Connection, tuple[Any, Json]] = WeakKeyDictionary()
        """The envelope that the row of each client was made from, and the row."""
        self._connections: WeakValueDictionary[str, Connection] = WeakValueDictionary()
        """Id of a row -> the client that it shows."""

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns the two endpoints."""
        return {("GET", "/clients"): self.clients, ("GET", "/clients/"): self.client}

    async def clients(self, page_request: PageRequest) -> Json:
        """Returns the rows that a page shows."""
        seen = await self.of(page_request.session.viewer)
        return await in_thread(window, seen.rows, page_request.query, FILTERED)

    async def client(self, page_request: PageRequest) -> Json:
        """Returns one row, with what the client declared, and what it was listed. Raises PageError."""
        viewer, id = page_request.session.viewer, page_request.rest
        rows = (await self.of(viewer)).rows
        row = next((row for row in rows if row["id"] == id), None)
        if row is None:
            raise not_found("such client")
        connection = self._connections.get(id)
        declared = connection.envelope.capabilities if connection is not None else {}
        info = connection.envelope.client_info if connection is not None else None
        name = printable(str((info or {}).get("name") or row["name"] or ""), MAX_TEXT)
        for facts in listed_to(self._dispatcher.hub.catalogs):
            if facts["client"] is None or (facts["client"] == name and facts["principal"] == row["principal"]):
                row = {**row, "listed": f"{facts['listed']} of {facts['of']} tools: {facts['why']}"}
        return {**row, "declared": shown(declared, MAX_TEXT)}

    async def of(self, viewer: Viewer) -> ClientList:
        """Returns the clients that a viewer may see, as they were at most `EVERY` seconds ago."""
        async with self._collecting:
            if self._clock() - self._collected_at >= EVERY:
                await in_slices(self._collect(list(self._dispatcher.connections), tuple(self._feed.newest_first())))
                self._collected_at = self._clock()
        return self._lists.get(None if viewer.admin else str(viewer.principal), ClientList())

    def _collect(self, connections: list[Connection], entries: Sequence[Entry]) -> Generator[None]:
        seen: dict[tuple[str, Any, str], SeenClient] = {}
        for entry in entries:
            yield
            if entry.record.get("event") == "call":
                _count(seen, entry)
        calls = Counter[str]()
        for client in seen.values():
            calls[client.label] += client.calls
        rows: dict[str | None, list[Json]] = {None: []}
        connections.sort(key=attrgetter("joined"))
        for connection in connections:
            yield
            self._add(rows, str(connection.principal), self._row(connection, calls))
        for client in seen.values():
            yield
            # A client whose session has ended is not shown any more.
            if not client.label.startswith("session-") and self._connections.get(client.label) is None:
                self._add(rows, client.principal, _client_row(client))
        self._version += 1
        earlier, self._lists = self._lists, {}
        for owner, own_rows in rows.items():
            before = earlier.get(owner)
            unchanged = before is not None and before.rows == own_rows
            self._lists[owner] = before if before and unchanged else ClientList(own_rows, self._version)

    @staticmethod
    def _add(rows: dict[str | None, list[Json]], principal: str, row: Json) -> None:
        rows[None].append(row)
        rows.setdefault(principal, []).append(row)

    def _row(self, connection: Connection, calls: Counter[str]) -> Json:
        envelope, id = connection.envelope, connection.caller.label
        cached = self._rows.get(connection)
        if cached is None or cached[0] is not envelope or cached[1]["calls"] != calls[id]:
            info = envelope.client_info or {}
            row = {
                "id": id,
                "name": info.get("title") or info.get("name"),
                "version": info.get("version"),
                "principal": str(connection.principal),
                "transport": connection.transport,
                "era": "handshake" if connection.protocol_version is not None else "modern",
                "revision": connection.protocol_version,
                "since": iso(connection.joined),
                "calls": calls[id],
            }
            cached = self._rows[connection] = envelope, shown_object(row, MAX_TEXT)
            self._connections[id] = connection
        return cached[1]


def _count(seen: dict[tuple[str, Any, str], SeenClient], entry: Entry) -> None:
    """Counts a call for its client. Calls come newest first, so that the oldest one sets `since` last."""
    record = entry.record
    label, name, principal = str(record.get("caller")), record.get("client"), str(entry.principal)
    client = seen.get((label, name, principal))
    if client is None:
        client = seen[label, name, principal] = SeenClient(label, name, principal, record.get("era"), None)
    client.since = record.get("time")
    client.calls += 1


def _client_row(client: SeenClient) -> Json:
    label, name = client.label, client.name or ""
    row = {
        "id": f"client-{sha256(f'{label} {client.principal} {name}'.encode('utf-8', 'replace')).hexdigest()[:16]}",
        "name": client.name,
        "version": None,
        "principal": client.principal,
        "transport": "stdio" if label == "only" else "http",
        "era": client.era,
        "revision": None,
        "since": client.since,
        "calls": client.calls,
    }
    return shown_object(row, MAX_TEXT)
