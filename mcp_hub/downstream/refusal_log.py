"""Refusals of a listener before authentication: all are counted by cause, and recorded at a limited rate."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.security.counters import TokenBuckets
from mcp_hub.transport.http1.listener import RefusalSink

RATE: Final = 10.0
"""Records a second: enough to see who was refused and why, too few to fill a disk or to hide the calls."""
BURST: Final = 50
SUMMED_AFTER: Final = 1.0
"""Seconds until the refusals without a record of their own are summed up in one."""

CAUSES: Final = (
    *("no_token", "bad_token", "certificate", "uid", "scope", "profile", "verifier"),
    *("host", "target", "forwarded", "origin", "cross_site", "path"),
    *("bad_request", "transfer_encoding", "head_too_large", "head_too_slow", "tls"),
    *("crowded", "full", "replica"),
)
"""All causes that are counted. None of them contains text of a client."""

Write = Callable[[dict[str, Any]], None]


class RefusalLog(RefusalSink):
    """Counts refusals by cause, and records them within RATE. `write` takes the facts of a record; None: none is made.

    The facts never contain a token, nor a header that may have one: only a Host or an Origin, if that is the cause and
    it is well-formed.
    """

    def __init__(self, write: Write | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._write = write
        self._bucket = TokenBuckets[None](1, clock)
        self._unwritten: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def note(self, cause: str, peer: str, status: int | None = None, said: str | None = None) -> None:
        """Counts one refusal. `said`: the Host or Origin, if that is the cause. Never blocks."""
        self.counts[cause] += 1
        if self._write is None:
            return
        if self._unwritten or self._bucket.take(None, RATE, BURST) > 0:
            self._unwritten[cause] += 1
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(SUMMED_AFTER, self._sum_up)
            return
        facts = {"peer": peer, "cause": cause, "status": status}
        self._write(facts if said is None else {**facts, "said": said})

    def _sum_up(self) -> None:
        """Records the number of refusals that got no record of their own."""
        self._timer = None
        unwritten, self._unwritten = self._unwritten, Counter()
        if unwritten and self._write is not None:
            self._write({"not_written": unwritten.total(), "causes": dict(sorted(unwritten.items()))})

    def close(self) -> None:
        """Records the refusals that have no record yet; the listener has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._sum_up()

    def facts(self) -> dict[str, int]:
        """Returns the counts by cause; causes without a refusal are missing."""
        return dict(sorted(self.counts.items()))
