"""What a running hub says of itself: a plain tree of facts, escaped and without secrets."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.hub.engine import Hub
from mcp_hub.protocol.kinds import KINDS, TOOLS
from mcp_hub.text import printable
from mcp_hub.upstream.connection import Upstream
from mcp_hub.upstream.states import THERE
from mcp_hub.version import VERSION

SHOWN_LINES: Final = 5
"""Of what the process of a server wrote last to its stderr."""
MAX_LINE: Final = 500

Json = dict[str, Any]


class Status:
    """`serving` is where clients find the hub: `stdio`, or its URLs. Other parts add facts under `more`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._began = time.monotonic()
        self.serving: list[str] = ["stdio"]
        self.more: Json = {}
        self.refusals: Callable[[], dict[str, int]] = dict
        """Counts of what the listener refused before anybody was let in, by cause; over stdio there are none."""

    def facts(self) -> Json:
        """Everything, as it is now. Times are seconds."""
        hub = self._hub
        config = hub.config
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "seconds": round(time.monotonic() - self._began, 1),
            "config": str(config.path) if config.path is not None else None,
            "generation": hub.generation.number,
            "serving": self.serving,
            **self.more,
            "exposed": {kind.name: len(hub.catalog.names(kind)) for kind in KINDS},
            "calls": hub.generation.calls.count,
            "reaper": {"pid": hub.children.reaper, "problem": hub.children.problem},
            "metrics": hub.metrics.facts(),
            "refusals": self.refusals(),
            "tasks": len(asyncio.all_tasks()),
            "servers": [self._of(upstream) for upstream in hub.upstreams.values()],
        }

    def _of(self, upstream: Upstream) -> Json:
        now = time.monotonic()
        agreement, there, session = upstream.agreement, upstream.state in THERE, upstream.session
        due = upstream.backing_off.next_attempt
        last_words = session.last_words if session is not None else ()
        return {
            "server": upstream.server.id,
            "state": str(upstream.state),
            "seconds": round(now - upstream.since, 1),
            "listed": upstream.presence.listed,
            "era": agreement.era if agreement is not None and there else None,
            "revision": agreement.version if agreement is not None and there else None,
            "transport": upstream.transport,
            "session": upstream.server.session,
            "sessions": upstream.own_sessions,
            "pid": session.pid if session is not None else None,
            "tools": len(upstream.lists.items.get(TOOLS, ())),
            "calls": upstream.calls.count,
            "starts": upstream.starts,
            "failures": upstream.backing_off.failures,
            "next_attempt": round(max(0.0, due - now), 1) if due is not None else None,
            "breaker": str(self._hub.rules.breaker.state(upstream.server.id)),
            "stray": session.peer.stray if session is not None else 0,
            "problem": printable(upstream.error, 2000) if upstream.error is not None else None,
            "stderr": [upstream.shown(line, MAX_LINE) for line in last_words[-SHOWN_LINES:]],
            "incomplete": [printable(text) for text in upstream.incomplete],
        }
