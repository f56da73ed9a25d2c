"""The rows of the clients on the live page: those with a session, and those that only their calls tell of."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from mcp_hub.downstream.page.endpoints import Json
from mcp_hub.downstream.page.feed import Feed, iso, shown

if TYPE_CHECKING:
    from mcp_hub.downstream import Caller
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page.feed import Entry
    from mcp_hub.downstream.page.sessions import Viewer

MAX_CLIENTS: Final = 1000
ROWS_AT_ONCE: Final = 100
"""Rows that are made before other tasks run."""
CALLS_AT_ONCE: Final = 500
MAX_CACHED: Final = 64
"""Viewers whose clients are cached."""


class SeenClient(msgspec.Struct):
    """A client as far as its recorded calls tell."""

    name: str | None
    principal: str
    era: str | None
    since: str | None
    calls: int = 0


Seen = dict[str, dict[str | None, SeenClient]]
"""Label of the caller -> name of the client -> the client."""


class ClientRows:
    """Makes the rows of the clients."""

    def __init__(self, dispatcher: Dispatcher, feed: Feed) -> None:
        self._dispatcher = dispatcher
        self._labels = dispatcher.hub.labels
        self._feed = feed
        self._cached_clients: dict[str, tuple[int, Seen]] = {}
        """(Principal, or `""` for admins) -> (number of the newest record, the clients of the records)."""
        self._rows: WeakKeyDictionary[Caller, tuple[Any, Json]] = WeakKeyDictionary()
        """Caller -> the envelope that its row was made from, and the row without its calls."""

    async def rows(self, viewer: Viewer) -> list[Json]:
        """Returns the rows that a viewer may see, in the order in which the clients came."""
        by_label = dict(await self._by_calls(viewer))
        rows: list[Json] = []
        for number, caller in enumerate(sorted(self._dispatcher.callers, key=attrgetter("joined"))):
            if number % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if len(rows) < MAX_CLIENTS and (viewer.admin or caller.principal == viewer.principal):
                row = self._caller_row(caller)
                calls = sum(client.calls for client in by_label.pop(row["id"], {}).values())
                rows.append({**row, "calls": calls})
        for label, clients in by_label.items():
            for client in clients.values():
                # A client whose session has ended is not shown any more.
                if not label.startswith("session-") and len(rows) < MAX_CLIENTS:
                    rows.append(shown(_client_row(label, client), 500))
        return rows

    async def _by_calls(self, viewer: Viewer) -> Seen:
        owner = "" if viewer.admin else viewer.principal
        cached = self._cached_clients.get(owner)
        if cached is not None and cached[0] == self._feed.newest:
            return cached[1]
        newest = self._feed.newest
        by_label: Seen = {}
        for number, entry in enumerate(self._feed.newest_first()):
            if number % CALLS_AT_ONCE == CALLS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if entry.record.get("event") == "call" and (viewer.admin or entry.principal == viewer.principal):
                _count(by_label, entry)
        while len(self._cached_clients) >= MAX_CACHED:
            del self._cached_clients[next(iter(self._cached_clients))]
        self._cached_clients[owner] = newest, by_label
        return by_label

    def _caller_row(self, caller: Caller) -> Json:
        envelope = caller.envelope
        cached = self._rows.get(caller)
        if cached is None or cached[0] is not envelope:
            info = envelope.client_info or {}
            row = {
                "id": self._labels.caller(caller.handshake_key),
                "name": _text(info.get("title")) or _text(info.get("name")),
                "version": _text(info.get("version")),
                "principal": str(caller.principal),
                "transport": caller.transport,
                "era": "handshake" if caller.protocol_version is not None else "modern",
                "revision": caller.protocol_version,
                "declared": envelope.capabilities or {},
                "since": iso(caller.joined),
            }
            cached = self._rows[caller] = envelope, shown(row, 500)
        return cached[1]


def _count(by_label: Seen, entry: Entry) -> None:
    """Counts a call for its client. Calls come newest first, so that the oldest one sets `since` last."""
    record = entry.record
    name = record.get("client")
    clients = by_label.setdefault(str(record.get("caller")), {})
    client = clients.get(name)
    if client is None:
        client = clients[name] = SeenClient(name, str(entry.principal), record.get("era"), None)
    client.since = record.get("time")
    client.calls += 1


def _client_row(label: str, client: SeenClient) -> Json:
    return {
        "id": f"{label}/{client.name}" if client.name else label,
        "name": client.name,
        "version": None,
        "principal": client.principal,
        "transport": "stdio" if label == "only" else "http",
        "era": client.era,
        "revision": None,
        "declared": {},
        "since": client.since,
        "calls": client.calls,
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
