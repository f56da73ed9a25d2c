"""The newest calls of a hub, kept in memory while the live page or `mcp-hub logs` watches, and shown page by page."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageRequest, not_found, number_in
from mcp_hub.downstream.page.safe_json import bounded
from mcp_hub.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.call_record import approximate_size
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.downstream.page.sessions import Viewer
    from mcp_hub.hub import Engine
    from mcp_hub.security import Principal

MAX_CALLS: Final = 2000
MAX_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of all kept records, approximately; beyond that, the oldest are dropped."""
MAX_DURATIONS: Final = 512
"""Durations kept for each server, of its newest calls."""
MAX_SERVERS: Final = 2000
MAX_ROWS_BYTES: Final = 512 * 1024
"""Bytes of the rows in one answer or event, approximately; the others follow."""
MAX_ROW_TEXT: Final = 300
"""Characters of one text of a row of the page."""
MAX_TEXT: Final = 4000
"""Characters of one text of a record that are shown."""
MAX_PAGE: Final = 500
"""Calls in one answer."""
MAX_RECORD: Final = 1024 * 1024
"""Characters of the texts of one record that are shown."""
LOOKED_AT_ONCE: Final = 100
"""Calls that are compared with a filter before other tasks run."""
RUN: Final = "hub_run"
"""The tool that runs programs."""
UNWATCHED_FOR: Final = 300.0
"""Seconds without a watcher after which nothing is kept any more."""


_RULE_MEMBERS: Final = frozenset({"notes", "fallback", "attempts", "peer", "questions"})
"""Members of a record that say what rules and other servers did."""
_UNKNOWN_MEMBERS: Final = frozenset(
    {"event", "time", "id", "caller", "client", "era", "method", "name", "verdict", "code"}
)
"""Members of the record of a call under a name that does not exist."""


class Entry(msgspec.Struct, frozen=True):
    """One kept record. `number` counts all records; `principal` is that of the call, None if it is nobody's."""

    number: int
    record: Json
    principal: Principal | None
    size: int

    @property
    def id(self) -> str:
        """The id of the call in its record."""
        id = self.record.get("id")
        return id if isinstance(id, str) else f"event-{self.number}"

    def seen_by(self, viewer: Viewer) -> Json | None:
        """Returns the record as a viewer may see it; None if it may not.

        An admin sees everything. Anybody else sees its own calls, and only what their responses told: a name that a
        rule hides looks like an unknown one, and what rules and other servers did is not shown.
        """
        if viewer.admin:
            return self.record
        if self.principal is None or self.principal != viewer.principal:
            return None
        visible = {name: value for name, value in self.record.items() if name not in _RULE_MEMBERS}
        if visible.get("verdict") == "refused" and visible.get("code") in (INVALID_PARAMS, RESOURCE_NOT_FOUND):
            visible = {name: value for name, value in visible.items() if name in _UNKNOWN_MEMBERS}
            visible |= {"policy": None, "reason": "unknown"}
        return visible

    def row(self, viewer: Viewer) -> Json | None:
        """Returns the call as a row of the page, as a viewer may see it; None if it may not."""
        record = self.seen_by(viewer)
        if record is None:
            return None
        route = {"name": record.get("name"), "server": record.get("upstream"), "tool": record.get("tool")}
        if record.get("event") == "refused":
            route = {"name": record.get("cause"), "server": None, "tool": None}
        return shown_object(
            {
                "id": self.id,
                "time": record.get("time"),
                "event": record.get("event"),
                "method": record.get("method"),
                **route,
                "run": run_of(record.get("within"), record.get("id")),
                "principal": str(self.principal) if self.principal is not None else None,
                "caller": record.get("caller"),
                "client": record.get("client"),
                "verdict": record.get("verdict", "refused"),
                "code": record.get("code"),
                "policy": record.get("policy"),
                "reason": record.get("reason") or record.get("error"),
                "duration_ms": record.get("duration_ms"),
            },
            MAX_ROW_TEXT,
        )


def run_of(within: Any, id: Any) -> str | None:
    """Returns the id of the program that made a call, from the id of the call; None: no program made it."""
    return id.rpartition(".")[0] or None if within == RUN and isinstance(id, str) else None


class Feed:
    """Keeps the newest records of a hub, bounded in number and bytes, and tells its followers of new ones."""

    def __init__(self, hub: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = hub
        self._clock = clock
        self._entries: deque[Entry] = deque()
        self._by_id: dict[str, Entry] = {}
        self._size = 0
        self._next = 1
        self._run = secrets.token_hex(4)
        self._durations: dict[str, deque[float]] = {}
        self._followers: set[asyncio.Event] = set()
        self._watched_at = clock()
        self._check: asyncio.TimerHandle | None = None
        self.since: str | None = None
        """When it began to keep records; None: it keeps none."""

    # --- watching ----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Keeps records from now on, until nobody has watched for `UNWATCHED_FOR` seconds."""
        self._watched_at = self._clock()
        if self.since is None:
            self.since = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            tap = self._hub.tap
            tap.sink = self.take
            self._check = asyncio.get_running_loop().call_later(UNWATCHED_FOR, self._end_unwatched)

    def _end_unwatched(self) -> None:
        remaining = UNWATCHED_FOR - (self._clock() - self._watched_at)
        if self._followers or remaining > 0:
            self._check = asyncio.get_running_loop().call_later(max(remaining, 1.0), self._end_unwatched)
        else:
            self.close()

    def close(self) -> None:
        """Stops keeping records, and drops those that are kept."""
        if self._check is not None:
            self._check.cancel()
            self._check = None
        if self.since is None:
            return
        tap = self._hub.tap
        tap.sink = self.since = None
        self._entries.clear()
        self._by_id.clear()
        self._durations.clear()
        self._size = 0

    def follow(self) -> asyncio.Event:
        """Returns an event that is set with each new record, until `unfollow`."""
        self.watch()
        news = asyncio.Event()
        self._followers.add(news)
        return news

    def unfollow(self, news: asyncio.Event) -> None:
        """Ends a `follow`."""
        self._followers.discard(news)
        self._watched_at = self._clock()

    # --- records -----------------------------------------------------------------------------------------------

    def take(self, record: Json, principal: Principal) -> None:
        """Keeps one record. `principal` is that of the caller whose call it is."""
        is_of_nobody = record.get("event") == "refused"
        entry = Entry(self._next, record, None if is_of_nobody else principal, approximate_size(record) + 200)
        self._next += 1
        self._entries.append(entry)
        self._by_id[entry.id] = entry
        self._size += entry.size
        while len(self._entries) > MAX_CALLS or (self._size > MAX_BYTES and len(self._entries) > 1):
            oldest = self._entries.popleft()
            self._size -= oldest.size
            if self._by_id.get(oldest.id) is oldest:
                del self._by_id[oldest.id]
        server, duration = record.get("upstream"), record.get("duration_ms")
        if isinstance(server, str) and isinstance(duration, float | int):
            durations = self._durations.get(server)
            if durations is None and len(self._durations) < MAX_SERVERS:
                durations = self._durations[server] = deque(maxlen=MAX_DURATIONS)
            if durations is not None:
                durations.append(float(duration))
        for news in self._followers:
            news.set()

    @property
    def newest(self) -> int:
        """The number of the newest record; 0 if there was none."""
        return self._next - 1

    def event_id(self, number: int) -> str:
        """Returns the id of the event that ends with this record; it also names this run of the hub."""
        return f"{self._run}-{number}"

    def number_of(self, event_id: str) -> int | None:
        """Returns the number in an event's id; None if it is not of this run."""
        run, _, number = event_id.partition("-")
        if run != self._run or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        return min(int(number), self.newest)

    def after(self, number: int) -> tuple[int, list[Entry]]:
        """Returns how many records after `number` are not kept any more, and those that are, oldest first."""
        oldest = self._entries[0].number if self._entries else self._next
        first = max(number + 1, oldest)
        return first - (number + 1), list(islice(self._entries, first - oldest, None))

    def newest_first(self, before: str | None = None) -> Iterator[Entry]:
        """Iterates over the kept records, the newest first; with `before`, the id of a call, over older ones only."""
        limit = self._by_id.get(before) if before is not None else None
        if before is not None and limit is None:
            return
        for entry in reversed(tuple(self._entries)):
            if limit is None or entry.number < limit.number:
                yield entry

    def find(self, id: str) -> Entry | None:
        """Returns the record of a call; None if it is not kept."""
        return self._by_id.get(id)

    def percentiles(self, server: str) -> tuple[float, float] | None:
        """Returns the median and the 95th percentile of a server's newest calls in milliseconds; None without any."""
        durations = sorted(self._durations.get(server, ()))
        if not durations:
            return None
        last = len(durations) - 1
        return durations[round(last * 0.5)], durations[round(last * 0.95)]


def iso(seconds: float) -> str:
    """Returns a time in seconds since 1970 as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def shown_object(value: Json, limit: int = MAX_TEXT) -> Json:
    """Returns an object as `shown` makes it."""
    return {name: shown(item, limit) for name, item in value.items()}


def shown(value: Any, limit: int = MAX_TEXT, depth: int = 30) -> Any:
    """Returns JSON with every text safe to show: hidden characters as escapes, long texts cut with their length."""
    if isinstance(value, str):
        if len(value) <= limit:
            return value if value.isprintable() else _lines(value, limit)
        return f"{_lines(value[:limit], limit)}… ({len(value):,} characters)"
    if isinstance(value, dict):
        if not depth:
            return "…"
        return {shown(str(name), 200): shown(item, limit, depth - 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item, limit, depth - 1) for item in value] if depth else "…"
    return value


def _lines(text: str, limit: int) -> str:
    """Returns a text with its line ends, and all other hidden characters as escapes."""
    return "\n".join(printable(line, limit) for line in text.split("\n"))


class CallsPart:
    """Serves `GET /calls`, and `GET /calls/ID` with what every rule did."""

    def __init__(self, hub: Engine, feed: Feed) -> None:
        self._hub = hub
        self._feed = feed

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns the two endpoints."""
        return {("GET", "/calls"): self.calls, ("GET", "/calls/"): self.call}

    async def calls(self, page_request: PageRequest) -> Json:
        """Returns the newest calls that fit the query."""
        self._feed.watch()
        query, viewer = page_request.query, page_request.session.viewer
        limit = min(number_in(query, "limit", 200), MAX_PAGE)
        filters = {name: query[name] for name in ("verdict", "server", "principal") if query.get(name)}
        search_text = query.get("text", "").casefold()[:200]
        rows: list[Json] = []
        size = 0
        for number, entry in enumerate(self._feed.newest_first(query.get("before") or None)):
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            row = entry.row(viewer)
            if row is None or any(row[name] != value for name, value in filters.items()):
                continue
            if search_text and search_text not in _searchable_text(row):
                continue
            if len(rows) == limit or size > MAX_ROWS_BYTES:
                return {"calls": rows, "more": True}
            rows.append(row)
            size += approximate_size(row)
        return {"calls": rows, "more": False}

    async def call(self, page_request: PageRequest) -> Json:
        """Returns the record of one call. Raises PageError for a call of somebody else, as for one that is not kept."""
        viewer, entry = page_request.session.viewer, self._feed.find(page_request.rest)
        record = entry.seen_by(viewer) if entry is not None else None
        if record is None:
            raise not_found("such call, or it is not kept any more")
        route = {"server": record.get("upstream"), "tool": record.get("tool"), "name": record.get("name")}
        route["run"] = run_of(record.get("within"), entry.id if entry is not None else None)
        steps = shown(self._hub.rules.steps(record)) if viewer.admin else []
        return {"call": await in_thread(_shown_whole, record), "route": shown(route), "steps": steps}


def _shown_whole(record: Json) -> Any:
    return shown(bounded(record, MAX_RECORD))


def _searchable_text(row: Json) -> str:
    texts = (row.get(name) for name in ("name", "server", "tool", "method", "client", "code", "policy", "reason", "id"))
    return " ".join(str(text) for text in texts if text is not None).casefold()
