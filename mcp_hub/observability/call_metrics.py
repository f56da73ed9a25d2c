"""Counts and durations of calls, bounded in number, and their text in the OpenMetrics 1.0 format."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from mcp_hub import errors

log = logging.getLogger("mcp_hub")

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1200.0)
"""Upper bounds of the buckets in seconds, up to the longest that a call may take by default."""
MAX_SERIES: Final = 2000
"""The most combinations of labels that are counted separately, as a server may keep renaming its tools."""
OTHER: Final = "other"
"""The label of all further combinations."""

OK: Final = "ok"
TOOL_ERROR: Final = "tool_error"
FAILURES: Final = frozenset({"error", TOOL_ERROR})
"""The verdicts of calls that failed. A call that a rule refuses or its client cancels is no failure of the server."""
_RPC_OUTCOMES: Final = {
    errors.INVALID_PARAMS: "invalid_params",
    errors.INVALID_REQUEST: "invalid_request",
    errors.METHOD_NOT_FOUND: "method_not_found",
    errors.INTERNAL_ERROR: "internal_error",
    errors.RESOURCE_NOT_FOUND: "resource_not_found",
}
_OTHER_RPC_ERROR: Final = "rpc_error"
"""Any other error code of a server."""


class IMetricsCollector(Protocol):
    """Receives every call, on the hub's event loop: it must not block. Exceptions it raises are logged."""

    def record(self, *, server: str, tool: str, method: str, code: str, seconds: float, success: bool) -> None:
        """Records one call. `code` is `ok`, `tool_error` for a result with `isError`, else the code of the error."""


class Series(NamedTuple):
    """The labels of one counter. `server` and `tool` are empty where there is none."""

    server: str
    method: str
    tool: str
    code: str


class DurationHistogram:
    """A histogram of durations: the calls in each of `BUCKETS`, and a last count for longer ones."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """The number of all calls."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Iterates over (upper bound, calls within it); the last bound is infinite."""
        total = 0
        for bound, count in zip((*BUCKETS, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total


class CallMetrics:
    """Counts calls since the hub began, and passes each on to the `collectors`."""

    def __init__(self, collectors: Sequence[IMetricsCollector] = ()) -> None:
        self.calls: dict[Series, int] = {}
        self.durations: dict[tuple[str, str], DurationHistogram] = {}
        """By server and method."""
        self.failures: dict[str, int] = {}
        """Failed calls by server."""
        self._collectors = list(collectors)
        self._failed_collectors: set[int] = set()

    def add(self, collector: IMetricsCollector) -> None:
        """Adds a collector."""
        self._collectors.append(collector)

    def record(self, server: str, method: str, tool: str, verdict: str, code: str | int | None, seconds: float) -> None:
        """Counts a call that has ended. Never raises."""
        outcome = outcome_word(verdict, code)
        key = Series(server, method, tool, outcome)
        count = self.calls.get(key, 0)
        if not count and len(self.calls) >= MAX_SERIES:
            key = Series(OTHER, method, OTHER, outcome)
            count = self.calls.get(key, 0)
        self.calls[key] = count + 1
        if verdict in FAILURES:
            self.failures[key.server] = self.failures.get(key.server, 0) + 1
        durations = self.durations.get((key.server, key.method))
        if durations is None:
            durations = self.durations[key.server, key.method] = DurationHistogram()
        durations.counts[bisect_left(BUCKETS, seconds)] += 1
        durations.seconds += seconds
        if self._collectors:
            self._notify_collectors(server, method, tool, outcome, seconds)

    def _notify_collectors(self, server: str, method: str, tool: str, code: str, seconds: float) -> None:
        for collector in self._collectors:
            try:
                collector.record(
                    server=server, tool=tool, method=method, code=code, seconds=seconds, success=code == OK
                )
            except Exception:
                if id(collector) not in self._failed_collectors:  # once, as it may fail for every call
                    self._failed_collectors.add(id(collector))
                    log.exception("a collector of metrics failed")

    def facts(self) -> dict[str, Any]:
        """Returns the counts as plain JSON values."""
        calls = [{**series._asdict(), "count": count} for series, count in sorted(self.calls.items())]
        durations = [
            {"server": server, "method": method, "count": histogram.count, "seconds": round(histogram.seconds, 6)}
            | {
                "buckets": {
                    "+Inf" if end == float("inf") else f"{end:g}": count for end, count in histogram.cumulative()
                }
            }
            for (server, method), histogram in sorted(self.durations.items())
        ]
        return {"calls": calls, "durations": durations, "failures": dict(self.failures)}


def outcome_word(verdict: str, code: str | int | None) -> str:
    """Returns the outcome of a call as one of a fixed set of words, whatever a server answers."""
    if isinstance(code, str):
        return code
    if code is None:
        return verdict if verdict in (OK, TOOL_ERROR) else OTHER
    return _RPC_OUTCOMES.get(code, _OTHER_RPC_ERROR)


CONTENT_TYPE: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

MetricKind = Literal["counter", "gauge", "histogram", "info", "stateset"]
Labels = Mapping[str, str]

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class MetricFamily(msgspec.Struct):
    """One metric family with its samples."""

    name: str
    kind: MetricKind
    help: str
    unit: str = ""
    """The unit that the name ends with, if any."""
    lines: list[str] = msgspec.field(default_factory=list)

    def add(self, value: float, labels: Labels | None = None, suffix: str = "") -> None:
        """Adds a sample; `suffix` is the one its kind requires, such as `_total`."""
        self.lines.append(f"{self.name}{suffix}{_braces(labels or {})} {openmetrics_number(value)}")

    def add_state(self, state: str, states: Iterable[str], labels: Labels) -> None:
        """Adds a sample for each state: 1 for `state`, 0 for the others."""
        for candidate in states:
            self.add(float(candidate == state), {**labels, self.name: candidate})

    def text(self) -> str:
        """Returns the family's metadata and samples as text."""
        unit = [f"# UNIT {self.name} {self.unit}"] if self.unit else []
        head = [f"# TYPE {self.name} {self.kind}", *unit, f"# HELP {self.name} {_escaped(self.help)}"]
        return "\n".join([*head, *self.lines])


def write_openmetrics(families: Iterable[MetricFamily]) -> bytes:
    """Returns the whole exposition of these families."""
    text = "\n".join([*(family.text() for family in families), "# EOF", ""])
    return text.encode("utf-8", "replace")


def openmetrics_number(value: float) -> str:
    """Writes a number as the format requires."""
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def bucket_bound(value: float) -> str:
    """Writes the bound of a bucket, which is always a float."""
    return "+Inf" if value == float("inf") else repr(float(value))


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
