"""Long results."""

from __future__ import annotations

from bench.cells import HTTP_HTTP, HTTP_STDIO, STDIO_STDIO
from bench.client.flood import flood
from bench.client.messages import call
from bench.plan import Cast
from bench.table import Table

SIZES = (1, 16)
MEBI = 2**20
MAX_CALLS = 40

TABLE = Table(
    title="Results",
    what="Milliseconds of a call whose result is one text of 1 and 16 MiB, lines with quotes in them.",
    columns=tuple((f"{size} MiB, ms", f"p50 {size}", 1) for size in SIZES),
    ratios=tuple((f"{size} MiB ×", f"p50 {size}") for size in SIZES),
    cells=(STDIO_STDIO, HTTP_STDIO, HTTP_HTTP),
    small_cells=(HTTP_STDIO,),
    eras=("handshake",),
)


def measure(cast: Cast) -> None:
    """All figures of one scene. A row that has a bound below 16 MiB fails there."""
    with cast.at_work():
        for size in SIZES[:1] if cast.plan.small else SIZES:
            for turn, actor in cast.turns():
                with cast.noting(actor.row):
                    big = call(actor.conversation.era, actor.tool("big"), {"bytes": size * MEBI})
                    if turn == 0:
                        actor.conversation.ask(big)  # the server makes each size once
                    sample = flood(actor.conversation, big, 1, cast.plan.seconds, most=MAX_CALLS)
                    cast.add(actor.row, f"p50 {size}", sample.quantile(0.5) * 1e3)
