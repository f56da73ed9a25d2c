"""Many clients at once, each with a session and a connection of its own."""

from __future__ import annotations

import statistics
import time

from bench.cells import HTTP_HTTP, HTTP_STDIO
from bench.client.crowd import Crowd, descriptors
from bench.plan import Cast
from bench.processes import resident
from bench.table import Table

CLIENTS, SMALL = 1_000, 50
CALLS = 5
WITHIN = 20.0
"""Seconds for all calls of one row; what is not answered then counts as not answered."""

TABLE = Table(
    title="Clients",
    what=f"{CLIENTS:,} clients over HTTP, each with a session and a connection of its own, call {CALLS} times in a "
    f"row, all at once. Answered: of the {CLIENTS * CALLS:,} calls, within {WITHIN:g} s. Opening: seconds until all of "
    "them are connected and have shaken hands.",
    columns=(
        ("opening, s", "open", 2),
        ("answered", "answered", 0),
        ("calls/s", "rate", 0),
        ("p50 ms", "p50", 1),
        ("p99 ms", "p99", 1),
        ("KiB a client", "memory", 1),
    ),
    ratios=(("calls/s ×", "rate"), ("p99 ×", "p99")),
    cells=(HTTP_STDIO,),
    small_cells=(HTTP_STDIO,),
    eras=("handshake",),
    possible=(HTTP_STDIO, HTTP_HTTP),
)


def measure(cast: Cast) -> None:
    """All figures of one scene, one row after the other, once: there are enough clients for a median."""
    count = SMALL if cast.plan.small else CLIENTS
    descriptors(count + 100)
    with cast.at_work():
        for _, actor in cast.turns(1):
            with cast.noting(actor.row):
                before = resident(actor.pids)
                began = time.perf_counter()
                crowd = Crowd(actor.running.port, cast.era, actor.tool("echo"), count)
                try:
                    crowd.open(2 * WITHIN)
                    cast.add(actor.row, "open", time.perf_counter() - began)
                    sample = crowd.call(CALLS, WITHIN)
                    if actor.pids:
                        cast.add(actor.row, "memory", (resident(actor.pids) - before) / count / 1024)
                finally:
                    crowd.close()
                cast.add(actor.row, "answered", len(sample.latencies))
                cast.add(actor.row, "rate", sample.rate)
                cast.add(actor.row, "p50", statistics.median(sample.latencies) * 1e3)
                cast.add(actor.row, "p99", sample.quantile(0.99) * 1e3)
