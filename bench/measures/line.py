"""Head of line: calls while something slow is under way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.cells import HTTP_STDIO, STDIO_STDIO
from bench.client.flood import flood
from bench.client.messages import NUMBER, Request, call, echo
from bench.plan import Actor, Cast
from bench.table import Table

SLEEP, SLEEP_SMALL = 2.0, 0.3
LONG = 16 * 2**20
LONG_SMALL = 2**20

SCENES = (
    ("alone", "alone"),
    ("2 s call", "sleep"),
    ("16 MiB result", "long"),
    ("stalled client", "stalled"),
)

TABLE = Table(
    title="Head of line",
    what="Milliseconds of calls one after the other: alone; while another call of the same client takes 2 s in the "
    "same server; while the same client is sent one result of 16 MiB after the other, of another server; while another "
    "client has asked for such a result and does not read it (not over stdio, where there is one client). `direct` has "
    "one server.",
    columns=tuple(
        (f"{part} {heading}", f"{part} {figure}", 2) for heading, figure in SCENES for part in ("p50", "p99", "max")
    ),
    ratios=(),
    cells=(STDIO_STDIO, HTTP_STDIO),
    small_cells=(HTTP_STDIO,),
    eras=("handshake",),
)


def measure(cast: Cast) -> None:
    """All figures of one scene."""
    long, seconds = (LONG_SMALL, SLEEP_SMALL) if cast.plan.small else (LONG, SLEEP)
    with cast.at_work(upstreams=2):
        for _, actor in cast.turns():
            with cast.noting(actor.row):
                sleep = call(cast.era, actor.tool("sleep"), {"seconds": seconds, "text": NUMBER})
                heavy = call(cast.era, actor.last_tool("big"), {"bytes": long})
                _beside(cast, actor, "alone", None)
                _beside(cast, actor, "sleep", sleep)
                _beside(cast, actor, "long", heavy)
                if cast.scene.cell.client != "stdio":
                    with _stalled(actor, heavy):
                        _beside(cast, actor, "stalled", None)


@contextlib.contextmanager
def _stalled(actor: Actor, heavy: Request) -> Iterator[None]:
    """Runs beside another client that sends a request and never reads the answer."""
    conversation = actor.running.converse()
    try:
        conversation.start(heavy)
        yield
    finally:
        actor.running.part(conversation)


def _beside(cast: Cast, actor: Actor, figure: str, beside: Request | None) -> None:
    request = echo(cast.era, actor.tool("echo"))
    sample = flood(actor.conversation, request, 1, cast.plan.seconds, beside=beside)
    for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        cast.add(actor.row, f"{name} {figure}", sample.quantile(part) * 1e3)
