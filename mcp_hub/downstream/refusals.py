"""What was refused before anybody was let in: counted by cause, and recorded as far as the rate allows."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.policy.bucket import Bucket

RATE: Final = 10.0
"""Records a second: enough to see who knocks and why, too few to fill a disk or to hide the calls between them."""
BURST: Final = 50
SUMMED_AFTER: Final = 1.0
"""Seconds until those that were not written are, as one record with their number."""

CAUSES: Final = (
    *("no_token", "bad_token", "scope", "profile", "verifier"),
    *("host", "target", "forwarded", "origin", "cross_site", "path"),
    *("bad_request", "transfer_encoding", "head_too_large", "head_too_slow", "tls"),
    *("crowded", "full"),
)
"""Everything that is counted. No text of a client's is among it."""

Write = Callable[[dict[str, Any]], None]


class Refusals:
    """Counts since the listener began. `write` takes the facts of a record; None: there are counts only.

    The facts never hold a token, nor anything of a header that may have one: only a Host or an Origin, where that is
    the cause and has the form of one.
    """

    def __init__(self, write: Write | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._write = write
        self._clock = clock
        self._bucket = Bucket.full(RATE, clock(), BURST)
        self._unwritten: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def note(self, cause: str, peer: str, status: int | None = None, said: str | None = None) -> None:
        """Something was refused: how it was answered, and the Host or Origin where that is the cause. Never blocks."""
        self.counts[cause] += 1
        if self._write is None:
            return
        if self._unwritten or self._bucket.wait(self._clock()) > 0:
            self._unwritten[cause] += 1
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(SUMMED_AFTER, self._sum_up)
            return
        facts = {"peer": peer, "cause": cause, "status": status}
        self._write(facts if said is None else {**facts, "said": said})

    def _sum_up(self) -> None:
        """Record the number of those that were not written."""
        self._timer = None
        unwritten, self._unwritten = self._unwritten, Counter()
        if unwritten and self._write is not None:
            self._write({"not_written": unwritten.total(), "causes": dict(sorted(unwritten.items()))})

    def close(self) -> None:
        """The listener has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._sum_up()

    def facts(self) -> dict[str, int]:
        """The counts of what happened at least once, by cause."""
        return dict(sorted(self.counts.items()))
