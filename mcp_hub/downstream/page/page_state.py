"""The state of a hub as the live page first shows it, and its calls, page by page."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageRequest, not_found, number_in
from mcp_hub.downstream.page.feed import MAX_ROWS_BYTES, iso, run_of, shown
from mcp_hub.downstream.page.safe_json import bounded
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.call_record import approximate_size
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.downstream.page.client_rows import ClientRows
    from mcp_hub.downstream.page.config_view import ConfigView
    from mcp_hub.downstream.page.confirmations import ConfirmationsPart
    from mcp_hub.downstream.page.feed import Feed
    from mcp_hub.downstream.page.server_rows import ServerRows
    from mcp_hub.hub import Engine
    from mcp_hub.hub.hub_status import Status

MAX_PAGE: Final = 500
"""Calls in one answer."""
MAX_RECORD: Final = 1024 * 1024
"""Characters of the texts of one record that are shown."""
LOOKED_AT_ONCE: Final = 100
"""Calls that are compared with a filter before other tasks run."""


class StatePart:
    """Serves `GET /state`: what every view needs. The page asks for tools, calls, clients and details by themselves."""

    def __init__(
        self,
        hub: Engine,
        status: Status,
        feed: Feed,
        servers: ServerRows,
        clients: ClientRows,
        view: ConfigView,
        confirmations: ConfirmationsPart,
    ) -> None:
        self._hub = hub
        self._status = status
        self._feed = feed
        self._servers = servers
        self._clients = clients
        self._view = view
        self._confirmations = confirmations

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns the one endpoint."""
        return {("GET", "/state"): self.state}

    async def state(self, page_request: PageRequest) -> Json:
        """Returns the state as the viewer of a session may see it."""
        viewer, hub = page_request.session.viewer, self._hub
        self._feed.watch()
        rows = await self._servers.rows(viewer)
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
            "clients": len((await self._clients.of(viewer)).rows),
            **await self._view.show(viewer),
            "confirmations": self._confirmations.rows(viewer),
            "watched_since": self._feed.since,
            "last_event_id": self._feed.event_id(self._feed.newest),
            "totals": {name: sum(row[name] for row in rows) for name in ("calls", "errors", "tools", "tokens")},
        }


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
