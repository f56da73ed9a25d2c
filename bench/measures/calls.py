"""Calls: one after the other, and 8, 32, 128 in flight."""

from __future__ import annotations

from bench.cells import ALL, HTTP_HTTP, STDIO_STDIO
from bench.client.flood import flood
from bench.client.messages import echo
from bench.plan import Actor, Cast
from bench.processes import processor_seconds
from bench.table import Table

IN_FLIGHT = (1, 8, 32, 128)
WARM = 20
PATIENT, IMPATIENT = 4.0, 0.5
"""Seconds that what is in flight may take; more calls than a row answers in them are not tried. The second for the
short form."""

TABLE = Table(
    title="Calls",
    what="A call of a tool that says a few characters back. One after the other: milliseconds of one call. Then calls "
    "a second with so many in flight, and microseconds of processor time (user and system) the proxy's processes "
    "take for one.",
    columns=(
        ("p50 ms", "p50", 3),
        ("p95 ms", "p95", 3),
        ("p99 ms", "p99", 3),
        *((f"calls/s {n}", f"rate {n}", 0) for n in IN_FLIGHT),
        *((f"CPU µs {n}", f"cpu {n}", 0) for n in IN_FLIGHT),
    ),
    ratios=(("p50 ×", "p50"), ("calls/s 32 ×", "rate 32")),
    cells=ALL,
    small_cells=(STDIO_STDIO, HTTP_HTTP),
)


def measure(cast: Cast) -> None:
    """All figures of one scene."""
    patience = IMPATIENT if cast.plan.small else PATIENT
    with cast.at_work():
        for _, actor in cast.turns():
            with cast.noting(actor.row):
                rate = float("inf")
                for in_flight in IN_FLIGHT:
                    if in_flight / rate <= patience:
                        rate = _stretch(cast, actor, in_flight)


def _stretch(cast: Cast, actor: Actor, in_flight: int) -> float:
    """One timed stretch; calls a second."""
    request = echo(actor.conversation.era, actor.tool("echo"))
    flood(actor.conversation, request, in_flight, cast.plan.seconds / 8, most=max(WARM, in_flight))
    before = processor_seconds(actor.pids)
    sample = flood(actor.conversation, request, in_flight, cast.plan.seconds)
    spent = processor_seconds(actor.pids) - before
    if in_flight == 1:
        for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            cast.add(actor.row, name, sample.quantile(part) * 1e3)
    cast.add(actor.row, f"rate {in_flight}", sample.rate)
    if actor.pids:
        cast.add(actor.row, f"cpu {in_flight}", spent / len(sample.latencies) * 1e6)
    return sample.rate
