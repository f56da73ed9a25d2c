"""The rows of the servers on the live page, as one viewer may see them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.catalog import OWN, Catalog
from mcp_hub.codes import code_of
from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageRequest, not_found
from mcp_hub.downstream.page.feed import Feed, iso, shown_object
from mcp_hub.hub.server_switch import SWITCHED_OFF, SWITCHED_OFF_ON_PAGE
from mcp_hub.observability.call_metrics import FAILURES, DurationHistogram
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.screen import ScreenReview, what_is
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable
from mcp_hub.upstream.lifecycle import CONNECTED_STATES, UpstreamState

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page.sessions import Viewer
    from mcp_hub.upstream import Upstream
    from mcp_hub.upstream.session import UpstreamSession

MAX_LINES: Final = 20
"""Last lines of a server's stderr that are shown."""
MAX_FINDINGS: Final = 100
"""Findings about one server that are shown."""
FINDINGS_EVERY: Final = 1.0
"""The least seconds between two collections of the screen's findings while it works through the same lists."""
MAX_CACHED: Final = 64
"""Viewers whose counts are cached."""
MAX_SERVERS: Final = 1000
"""Servers that are shown: the first of the configuration."""
MAX_ROWS: Final = 4000
"""Rows of servers that are cached, for all viewers."""
MAX_TEXT: Final = 200
"""Characters of one text of a row; the details of a server have the whole."""
ROWS_PER_STEP: Final = 20
"""Rows that are made before other tasks run."""


class ServerRows:
    """Makes the rows of the servers, and serves `GET /servers/ID`.

    Long computations run in threads, and are cached by catalog.
    """

    def __init__(self, dispatcher: Dispatcher, feed: Feed, cure: Callable[[str], str | None]) -> None:
        self._hub = dispatcher.hub
        self._feed = feed
        self._cure = cure
        self._tokens: Lru[int, tuple[Catalog, Counter[str]]] = Lru(8)
        """By the `id()` of the catalog, which is kept so that no other object gets the same id."""
        self._flags: dict[str, list[tuple[str, str]]] = {}
        """Server -> (exposed name or `""`, finding)."""
        self._cached_counts: Lru[str, tuple[int, Counter[str], Counter[str]]] = Lru(MAX_CACHED)
        """Principal -> (number of the newest record, calls and errors by server)."""
        self._rows: Lru[tuple[str, str], tuple[tuple[Any, ...], Json]] = Lru(MAX_ROWS)
        """(Principal, or `""` for admins; server) -> the facts that the row was made from, and the row."""
        self._flags_source: tuple[Catalog | None, ScreenReview | None, int] = None, None, 0
        """The catalog, the review, and the version of the review that `_flags` were collected from."""
        self._flags_at = 0.0

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns the one endpoint."""
        return {("GET", "/servers/"): self.server}

    def catalog_of(self, viewer: Viewer) -> Catalog:
        """Returns the catalog that a viewer may see."""
        return self._hub.catalogs.of(SOLE if viewer.admin else self._hub.callers.of(viewer.principal))

    def sees(self, viewer: Viewer, server: str | None) -> bool:
        """Returns whether a viewer may know of a server."""
        return viewer.admin or (server in self.catalog_of(viewer).upstreams and server in self._hub.upstreams)

    async def rows(self, viewer: Viewer) -> list[Json]:
        """Returns the rows of all servers that a viewer sees, in the order of the configuration."""
        catalog = self.catalog_of(viewer)
        tokens = await self._tokens_of(catalog)
        flags = await self._findings()
        counts = self._counts(viewer)
        rows: list[Json] = []
        for number, (id, upstream) in enumerate(list(self._hub.upstreams.items())):
            if number % ROWS_PER_STEP == ROWS_PER_STEP - 1:
                await asyncio.sleep(0)
            if self.sees(viewer, id) and len(rows) < MAX_SERVERS:
                cost = catalog.tools_by_server[id], tokens[id]
                findings = [text for name, text in flags.get(id, []) if viewer.admin or catalog.entry(TOOLS, name)]
                rows.append(self._cached_row(upstream, viewer, cost, findings, (counts[0][id], counts[1][id])))
        return rows

    async def totals(self, viewer: Viewer) -> Json:
        """Returns `tools`, `tokens`, `calls` and `errors` of all servers, with calls of names that no server has."""
        catalog, (calls, errors) = self.catalog_of(viewer), self._counts(viewer)
        tokens = await self._tokens_of(catalog)
        total = tokens.total() - tokens[OWN]
        return {"tools": catalog.server_tools, "tokens": total, "calls": calls.total(), "errors": errors.total()}

    def _cached_row(
        self, upstream: Upstream, viewer: Viewer, cost: tuple[int, int], flags: list[str], counts: tuple[int, int]
    ) -> Json:
        """Returns the row of a server, whose `version` is another one as soon as something of it has changed.

        `cost`: its tools and their tokens; `counts`: its calls and failed calls.
        """
        id, session = upstream.server.id, upstream.session
        facts = (
            *(upstream, upstream.state, upstream.error, upstream.starts, upstream.wants_sign_in, upstream.calls.count),
            *(session, tuple(session.last_words) if session is not None else (), tuple(flags), counts, cost),
            *(self._hub.rules.breaker_state(id), tuple(self._incomplete(upstream)), self._pin_problems(id)),
        )
        owner = "" if viewer.admin else viewer.principal
        cached = self._rows.get((owner, id))
        if cached is None or cached[0] != facts:
            row = self._row(upstream, viewer, cost, flags, counts) | {"version": hash(facts) % 2**32}
            cached = self._rows[owner, id] = facts, row
        return cached[1]

    def _counts(self, viewer: Viewer) -> tuple[Counter[str], Counter[str]]:
        """Returns the calls and the failed calls by server: all of them for an admin, else the viewer's own."""
        calls: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        if viewer.admin:
            metrics = self._hub.metrics
            for series, count in list(metrics.calls.items()):
                calls[series.server] += count
            errors.update(metrics.failures)
            return calls, errors
        cached = self._cached_counts.get(viewer.principal)
        if cached is not None and cached[0] == self._feed.newest:
            return cached[1], cached[2]
        for entry in self._feed.newest_first():
            if entry.principal == viewer.principal:
                server = entry.record.get("upstream") or ""
                calls[server] += 1
                errors[server] += entry.record.get("verdict") in FAILURES
        self._cached_counts[viewer.principal] = self._feed.newest, calls, errors
        return calls, errors

    def _row(
        self, upstream: Upstream, viewer: Viewer, cost: tuple[int, int], flags: list[str], counts: tuple[int, int]
    ) -> Json:
        id = upstream.server.id
        median, p95 = self._percentiles(id) if viewer.admin else (None, None)
        row = {
            "server": id,
            "state": str(upstream.state),
            "transport": upstream.transport,
            "tools": cost[0],
            "tokens": cost[1],
            "calls": counts[0],
            "errors": counts[1],
            "p50_ms": median,
            "p95_ms": p95,
            "problem": printable(upstream.error, MAX_TEXT) if upstream.error is not None else None,
            "code": code_of(upstream.error),
            "flagged": len(flags),
            "pins": len(self._pin_problems(id)) if viewer.admin else 0,
            "sign_in": upstream.wants_sign_in,
            "disabled": upstream.state is UpstreamState.DISABLED,
            "switched_off": upstream.error in (SWITCHED_OFF, SWITCHED_OFF_ON_PAGE),
        }
        return shown_object(row, MAX_TEXT)

    async def server(self, page_request: PageRequest) -> Json:
        """Returns all that the page shows of one server. Raises PageError."""
        viewer, id = page_request.session.viewer, page_request.rest
        row = next((row for row in await self.rows(viewer) if row["server"] == id), None)
        upstream = self._hub.upstreams.get(id)
        if row is None or upstream is None:
            raise not_found("such server")
        catalog, flags = self.catalog_of(viewer), self._flags.get(id, [])
        session, agreement = upstream.session, upstream.agreement
        is_connected = agreement is not None and upstream.state in CONNECTED_STATES
        details = {
            "problem": printable(upstream.error, 2000) if upstream.error is not None else None,
            "cure": self._cure(row["code"]) if row["code"] is not None else None,
            "flagged": [text for name, text in flags if viewer.admin or catalog.entry(TOOLS, name)],
            "breaker": str(self._hub.rules.breaker_state(id)),
            "era": agreement.era if agreement is not None and is_connected else None,
            "revision": agreement.version if agreement is not None and is_connected else None,
            "since": iso(time.time() - (time.monotonic() - upstream.since)),
            **(self._details_for_admins(upstream, session) if viewer.admin else {}),
        }
        return row | shown_object(details)

    def _incomplete(self, upstream: Upstream) -> list[str]:
        return [*upstream.incomplete, *self._hub.catalog.left_out(upstream.server.id)]

    def _details_for_admins(self, upstream: Upstream, session: UpstreamSession | None) -> Json:
        pins = [f"{kind} {name}: {text}" for kind, name, text in self._pin_problems(upstream.server.id)[:MAX_FINDINGS]]
        return {
            "restarts": max(0, upstream.starts - 1),
            "stderr": list(upstream.last_words[-MAX_LINES:]),
            "pins": [printable(text) for text in pins],
            "incomplete": [printable(text) for text in self._incomplete(upstream)[:MAX_FINDINGS]],
            "pid": session.pid if session is not None else None,
            "running": upstream.calls.count,
        }

    def _pin_problems(self, server: str) -> tuple[tuple[str, str, str], ...]:
        review = self._hub.rules.pins
        return tuple(review.problems(server))

    def _percentiles(self, server: str) -> tuple[float | None, float | None]:
        """Returns the median and the 95th percentile of a server's newest calls, else of all since the start."""
        newest = self._feed.percentiles(server)
        if newest is not None:
            return newest
        durations = self._hub.metrics.durations.get((server, TOOLS.act_method))
        return (_quantile(durations, 0.5), _quantile(durations, 0.95)) if durations is not None else (None, None)

    async def _tokens_of(self, catalog: Catalog) -> Counter[str]:
        """Returns the tokens of the tools that each server has in a catalog."""
        cached = self._tokens.get(id(catalog))
        if cached is None:
            cached = self._tokens[id(catalog)] = catalog, await in_thread(_tokens_by_server, catalog)
        return cached[1]

    async def _findings(self) -> dict[str, list[tuple[str, str]]]:
        """Returns what the screen has found so far, by server."""
        catalog, screen, now = self._hub.catalog, self._hub.rules.screen, time.monotonic()
        source = catalog, screen, screen.version
        if source[:2] != self._flags_source[:2] or (
            source != self._flags_source and now - self._flags_at >= FINDINGS_EVERY
        ):
            self._flags_source, self._flags_at = source, now
            self._flags = await in_thread(self._collect_flags, catalog)
        return self._flags

    def _collect_flags(self, catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
        flags: dict[str, list[tuple[str, str]]] = {}
        screen = self._hub.rules.screen
        for _ in range(3):
            try:
                for id, route, flag in screen.flags():
                    server_flags = flags.setdefault(id, [])
                    if len(server_flags) < MAX_FINDINGS:
                        text = f"{route.kind.unknown} {route.name[:200]}: {what_is(flag)}"
                        server_flags.append((catalog.exposed(route) or "", printable(text, 600)))
                return flags
            except RuntimeError:  # the lists have changed meanwhile
                flags = {}
        return flags


def _tokens_by_server(catalog: Catalog) -> Counter[str]:
    tokens: Counter[str] = Counter()
    for entry in catalog.entries(TOOLS):
        tokens[entry.route.upstream] += entry.tokens
    return tokens


def _quantile(durations: DurationHistogram, share: float) -> float | None:
    """Estimates a quantile from the buckets of a histogram, in milliseconds."""
    target, total_before, start = durations.count * share, 0, 0.0
    for end, total in durations.cumulative():
        if total >= target and total > total_before:
            if end == float("inf"):
                return round(start * 1000, 1)
            return round((start + (end - start) * (target - total_before) / (total - total_before)) * 1000, 1)
        total_before, start = total, end
    return None
