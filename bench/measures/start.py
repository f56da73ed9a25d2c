"""The start: from the spawn to the first complete list."""

from __future__ import annotations

import shutil
import time

from bench.cells import STDIO_HTTP, STDIO_STDIO, Cell
from bench.plan import Actor, Cast
from bench.processes import processor_seconds
from bench.rows import DIRECT, FASTMCP, SDK, Row
from bench.stage import Stage
from bench.table import Table

SIZES = (1, 10, 50)
SMALL = (3,)
KEEPS_NOTHING = (DIRECT, SDK, FASTMCP)
"""Rows whose second start is as the first."""
CELLS: tuple[Cell, ...] = (STDIO_STDIO, STDIO_HTTP)

TABLE = Table(
    title="Start",
    what="Seconds from the spawn over stdio to a tools/list that has the five tools of every server, with 1, 10 and 50 "
    "servers; direct: one server with as many tools. First with nothing kept from an earlier start, then with what the "
    "start before has kept. CPU: what the proxy's processes have taken until then.",
    columns=(
        *((f"{size} {'server' if size == 1 else 'servers'}, s", f"{size}", 3) for size in (*SIZES, 3)),
        *((f"{size} kept, s", f"kept {size}", 3) for size in (*SIZES, 3)),
        *((f"CPU ms {size}", f"cpu {size}", 0) for size in (*SIZES, 3)),
        *((f"CPU ms {size} kept", f"cpu kept {size}", 0) for size in (*SIZES, 3)),
    ),
    ratios=(),
    cells=(STDIO_STDIO,),
    small_cells=(STDIO_STDIO,),
    eras=("handshake",),
    possible=CELLS,
)


def measure(cast: Cast) -> None:
    """All figures of one scene. Each row has the machine to itself while it starts."""
    for size in SMALL if cast.plan.small else SIZES:
        with Stage(cast.scene.cell, cast.era, size).opened() as stage:
            for turn in range(cast.plan.repeat):
                shift = turn % len(cast.plan.rows)
                for row in (*cast.plan.rows[shift:], *cast.plan.rows[:shift]):
                    with cast.noting(row.name):
                        shutil.rmtree(stage.data_directory(row), ignore_errors=True)
                        _start(cast, stage, row, f"{size}")
                        if row.name not in KEEPS_NOTHING:
                            _start(cast, stage, row, f"kept {size}")


def _start(cast: Cast, stage: Stage, row: Row, figure: str) -> None:
    began = time.perf_counter()
    running = stage.start(row)
    try:
        actor = Actor(running, running.converse())
        cast.add(row.name, figure, time.perf_counter() - began)
        if actor.pids:
            cast.add(row.name, f"cpu {figure}", processor_seconds(actor.pids) * 1e3)
    finally:
        running.close()
