"""Memory: idle, and after many calls."""

from __future__ import annotations

import time

from bench.cells import STDIO_HTTP, STDIO_STDIO
from bench.client.flood import flood
from bench.client.messages import echo
from bench.plan import Actor, Cast
from bench.processes import resident
from bench.rows import DIRECT
from bench.stage import Stage
from bench.table import Table

UPSTREAMS, SMALL = 10, 2
SETTLE = 1.0
"""Seconds of nothing before a process is called idle."""
WARM, CALLS = 1_000, 9_000
LONGEST = 8.0
"""Seconds for the calls of one row; a slow one has fewer."""
IN_FLIGHT = 8
MEBI = 2**20

TABLE = Table(
    title="Memory",
    what=f"MiB of resident memory of the proxy's processes, each counted by itself, with {UPSTREAMS} servers and a "
    f"client over stdio: idle after the first list, after {WARM:,} calls, after {WARM + CALLS:,}. Slow rows have as "
    f"many calls as fit into {LONGEST:g} s. The first process is the proxy without the helpers it started.",
    columns=(
        ("idle", "idle", 1),
        ("idle, first process", "first", 1),
        (f"after {WARM:,} calls", "warm", 1),
        ("after all", "after", 1),
        ("growth", "growth", 2),
        ("calls", "calls", 0),
    ),
    ratios=(),
    cells=(STDIO_STDIO, STDIO_HTTP),
    small_cells=(STDIO_STDIO,),
    eras=("handshake",),
)


def measure(cast: Cast) -> None:
    """All figures of one scene, one row after the other, once: memory does not vary."""
    parts = 50 if cast.plan.small else 1
    with Stage(cast.scene.cell, cast.era, SMALL if cast.plan.small else UPSTREAMS).opened() as stage:
        for row in cast.plan.rows:
            if row.name == DIRECT:
                continue
            with cast.noting(row.name):
                running = stage.start(row)
                try:
                    actor = Actor(running, running.converse())
                    conversation, request = actor.conversation, echo(cast.era, actor.tool("echo"))
                    time.sleep(SETTLE / parts)
                    pids = running.pids()
                    cast.add(row.name, "idle", resident(pids) / MEBI)
                    cast.add(row.name, "first", resident(pids[:1]) / MEBI)
                    first = flood(conversation, request, IN_FLIGHT, LONGEST / 3, most=WARM // parts)
                    warm = resident(running.pids()) / MEBI
                    second = flood(conversation, request, IN_FLIGHT, LONGEST, most=CALLS // parts)
                    after = resident(running.pids()) / MEBI
                finally:
                    running.close()
                for figure, value in (("warm", warm), ("after", after), ("growth", after - warm)):
                    cast.add(row.name, figure, value)
                cast.add(row.name, "calls", len(first.latencies) + len(second.latencies))
