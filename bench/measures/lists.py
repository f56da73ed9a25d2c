"""`tools/list` of many tools."""

from __future__ import annotations

import json
import time

from bench.cells import HTTP_STDIO, STDIO_STDIO
from bench.client.conversation import Conversation
from bench.client.messages import Request, request
from bench.plan import Cast
from bench.table import Table

SIZES = (200, 1000)
UPSTREAMS = 10

TABLE = Table(
    title="Lists",
    what=f"Milliseconds of a complete tools/list, all its pages, of {SIZES[0]} and {SIZES[1]:,} tools of {UPSTREAMS} "
    "servers; direct: of one server with as many tools. A tool is about 500 bytes.",
    columns=tuple((f"{size:,} tools, ms", f"p50 {size}", 2) for size in SIZES),
    ratios=tuple((f"{size:,} ×", f"p50 {size}") for size in SIZES),
    cells=(STDIO_STDIO, HTTP_STDIO),
    small_cells=(HTTP_STDIO,),
)


def measure(cast: Cast) -> None:
    """All figures of one scene."""
    for size in SIZES[:1] if cast.plan.small else SIZES:
        with cast.at_work(UPSTREAMS, size // UPSTREAMS):
            pages: dict[str, list[Request]] = {}
            for _, actor in cast.turns():
                with cast.noting(actor.row):
                    if actor.row not in pages:
                        pages[actor.row] = _pages(actor.conversation)
                    cast.add(actor.row, f"p50 {size}", _median(actor.conversation, pages[actor.row], cast.plan.seconds))


def _pages(conversation: Conversation) -> list[Request]:
    """The requests that bring one whole list, so that reading cursors does not count."""
    pages = [request(conversation.era, "tools/list")]
    while cursor := json.loads(conversation.ask(pages[-1]))["result"].get("nextCursor"):
        pages.append(request(conversation.era, "tools/list", {"cursor": cursor}))
    return pages


def _median(conversation: Conversation, pages: list[Request], seconds: float) -> float:
    times = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        for page in pages:
            conversation.ask(page)
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1e3
