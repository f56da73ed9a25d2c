"""What the calls of a hub came to and how long they took, as counts: bounded in number, next to nothing for a call."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mcp_hub import errors

log = logging.getLogger("mcp_hub")

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1200.0)
"""Upper ends in seconds: from what comes out of memory to the longest a call may take by default."""
MAX_SERIES: Final = 2000
"""Combinations that are counted apart; a server may rename its tools for ever, and every one is kept."""
OTHER: Final = "other"
"""What is beyond that."""

OK: Final = "ok"
TOOL_ERROR: Final = "tool_error"
_OF_PEERS: Final = {
    errors.INVALID_PARAMS: "invalid_params",
    errors.INVALID_REQUEST: "invalid_request",
    errors.METHOD_NOT_FOUND: "method_not_found",
    errors.INTERNAL_ERROR: "internal_error",
    errors.RESOURCE_NOT_FOUND: "resource_not_found",
}
_OF_RPC: Final = "rpc_error"
"""Any other code that a server answered with."""


class IMetricsCollector(Protocol):
    """Whoever wants to be told of every call, in the loop of the hub: it must not block. What it raises is logged."""

    def record(self, *, server: str, tool: str, method: str, code: str, seconds: float, success: bool) -> None:
        """`code` is `ok`, `tool_error` for a result that says so itself, else that of the error."""


class Series(NamedTuple):
    """What is counted apart. `server` and `tool` are empty where there is none."""

    server: str
    method: str
    tool: str
    code: str


class Durations:
    """A histogram: how many calls ended within each of `BUCKETS`, the last one beyond them all."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """All of them."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(upper end, calls up to it), the last one infinite."""
        total = 0
        for end, count in zip((*BUCKETS, float("inf")), self.counts, strict=True):
            total += count
            yield end, total


class Metrics:
    """Counts since the hub began. `collectors` are told of each call as well."""

    def __init__(self, collectors: Sequence[IMetricsCollector] = ()) -> None:
        self.calls: dict[Series, int] = {}
        self.durations: dict[tuple[str, str], Durations] = {}
        """By server and method."""
        self._collectors = list(collectors)
        self._told_of: set[int] = set()

    def add(self, collector: IMetricsCollector) -> None:
        """Tell one more of every call from now on."""
        self._collectors.append(collector)

    def record(self, server: str, method: str, tool: str, verdict: str, code: str | int | None, seconds: float) -> None:
        """One call has ended. Never raises."""
        word = code_word(verdict, code)
        key = Series(server, method, tool, word)
        if key not in self.calls and len(self.calls) >= MAX_SERIES:
            key = Series(OTHER, method, OTHER, word)
        self.calls[key] = self.calls.get(key, 0) + 1
        durations = self.durations.get((key.server, key.method))
        if durations is None:
            durations = self.durations[key.server, key.method] = Durations()
        durations.counts[bisect_left(BUCKETS, seconds)] += 1
        durations.seconds += seconds
        if self._collectors:
            self._tell(server, method, tool, word, seconds)

    def _tell(self, server: str, method: str, tool: str, code: str, seconds: float) -> None:
        for collector in self._collectors:
            try:
                collector.record(
                    server=server, tool=tool, method=method, code=code, seconds=seconds, success=code == OK
                )
            except Exception:
                if id(collector) not in self._told_of:  # once: it may go on for every call
                    self._told_of.add(id(collector))
                    log.exception("a collector of metrics failed")

    def facts(self) -> dict[str, Any]:
        """The same as a plain tree."""
        calls = [{**series._asdict(), "count": count} for series, count in sorted(self.calls.items())]
        durations = [
            {"server": server, "method": method, "count": one.count, "seconds": round(one.seconds, 6)}
            | {"buckets": {"+Inf" if end == float("inf") else f"{end:g}": count for end, count in one.cumulative()}}
            for (server, method), one in sorted(self.durations.items())
        ]
        return {"calls": calls, "durations": durations}


def code_word(verdict: str, code: str | int | None) -> str:
    """What a call came to, as one of few words: what servers answer with must not make more of them."""
    if isinstance(code, str):
        return code
    if code is None:
        return verdict if verdict in (OK, TOOL_ERROR) else OTHER
    return _OF_PEERS.get(code, _OF_RPC)
