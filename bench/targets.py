"""What the hub is to reach, all of it ratios within one run but memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.cells import HTTP_HTTP, HTTP_STDIO, STDIO_STDIO, Cell
from bench.rows import DIRECT, HUB, SDK
from bench.sheet import Scene, Sheet


@dataclass(frozen=True, slots=True)
class Target:
    """One of them; `good` is None where this run has not measured it."""

    what: str
    wanted: str
    reached: float | None
    good: bool | None


def targets(sheet: Sheet) -> list[Target]:
    """Those of which this run has measured something."""
    return [target for target in (*_calls(sheet), *_others(sheet)) if target.reached is not None]


def _at_most(what: str, limit: float, unit: str, reached: float | None) -> Target:
    return Target(what, f"at most {limit:g} {unit}".rstrip(), reached, None if reached is None else reached <= limit)


def _at_least(what: str, limit: float, unit: str, reached: float | None) -> Target:
    good = None if reached is None else reached >= limit
    return Target(what, f"at least {limit:g} {unit}".rstrip(), reached, good)


def _scenes(sheet: Sheet, measure: str, cell: Cell | None = None) -> Iterator[Scene]:
    for scene in sheet.figures:
        if scene.measure == measure and cell in (None, scene.cell):
            yield scene


def _calls(sheet: Sheet) -> Iterator[Target]:
    for cell, limit in ((HTTP_HTTP, 3.0), (HTTP_STDIO, 2.5), (STDIO_STDIO, 2.5)):
        for scene in _scenes(sheet, "calls", cell):
            ratio = sheet.ratio(scene, HUB, "p50", DIRECT)
            yield _at_most(f"sequential p50, {cell}, {scene.era}", limit, "× direct", ratio)
    yield from _worst(sheet, "CPU for a call at 32 in flight, by that of the SDK's", "cpu 32", 1 / 12, max)
    for in_flight in (32, 128):
        what = f"calls/s at {in_flight} in flight, by those of the SDK"
        yield from _worst(sheet, what, f"rate {in_flight}", 10.0, min)


def _worst(
    sheet: Sheet, what: str, figure: str, limit: float, worst: Callable[[list[float]], float]
) -> Iterator[Target]:
    """Of all cells, the one that is furthest from it."""
    ratios = {}
    for scene in _scenes(sheet, "calls"):
        if (ratio := sheet.ratio(scene, HUB, figure, SDK)) is not None:
            ratios[ratio] = f"{scene.cell}, {scene.era}"
    if not ratios:
        return
    found = worst(list(ratios))
    good = found <= limit if worst is max else found >= limit
    wanted = f"at most 1/{1 / limit:.0f}" if worst is max else f"at least {limit:g} ×"
    yield Target(f"{what}, the worst cell ({ratios[found]})", f"{wanted} the SDK's", found, good)


def _others(sheet: Sheet) -> Iterator[Target]:
    for scene in _scenes(sheet, "lists"):
        ratio = sheet.ratio(scene, HUB, "p50 1000", DIRECT)
        yield _at_most(f"tools/list of 1,000 tools, {scene.cell}, {scene.era}", 1.3, "× direct", ratio)
    for scene in _scenes(sheet, "results", HTTP_STDIO):
        yield _at_most("1 MiB result, " + str(scene.cell), 4.0, "× direct", sheet.ratio(scene, HUB, "p50 1", DIRECT))
    for scene in _scenes(sheet, "start"):
        for figure, limit, how in (("kept 50", 1 / 6, "with the catalog kept"), ("50", 1 / 2, "nothing kept")):
            ratio = sheet.ratio(scene, HUB, figure, SDK, "50")
            good = None if ratio is None else ratio <= limit
            what = f"start to the complete list, 50 servers, {how}, {scene.cell}"
            yield Target(what, f"at most 1/{1 / limit:.0f} of the SDK's", ratio, good)
    for scene in _scenes(sheet, "memory"):
        limit = 45.0 if scene.cell == STDIO_STDIO else 65.0
        what = f"memory idle, 10 servers, {scene.cell}"
        yield _at_most(what, limit, "MiB", sheet.median(scene, HUB, "idle"))
        what = f"growth from 1,000 calls to the last, {scene.cell}"
        yield _at_most(what, 1.0, "MiB", sheet.median(scene, HUB, "growth"))
    for scene in _scenes(sheet, "first"):
        for figure, limit, caches in (
            ("all empty", 60.0, "nothing cached"),
            ("all full", 5.0, "all cached"),
            ("all uv", 5.0, "all cached, with uv"),
        ):
            what = f"pip install to the first tools of three servers, {caches}"
            yield _at_most(what, limit, "s", sheet.median(scene, HUB, figure))
    yield from _economy(sheet)


def _economy(sheet: Sheet) -> Iterator[Target]:
    """Of context economy: how well tools are found, what tasks cost, and what programs take."""
    for scene in _scenes(sheet, "retrieval"):
        for queries, figure, limit in (
            ("golden set", "recall@5", 0.88),
            ("recorded", "hit@3", 0.6),
            ("steps", "recall@5", 0.75),
        ):
            yield _at_least(f"{figure}, {queries}", limit, "", sheet.median(scene, f"{queries}: hub", figure))
            for plain in ("BM25", "meaning"):
                of_plain = sheet.median(scene, f"{queries}: {plain}", figure)
                if of_plain is not None:
                    what = f"{figure}, {queries}, as by {plain} alone"
                    yield _at_least(what, round(of_plain, 3), "", sheet.median(scene, f"{queries}: hub", figure))
        for figure, limit, what in (("index", 1000.0, "index of 527 tools"), ("ms", 5.0, "a query of 527 tools")):
            yield _at_most(what, limit, "ms", sheet.median(scene, "steps: hub", figure))
    for scene in _scenes(sheet, "context"):
        for way, limit in (("search", 15.0), ("code", 25.0)):
            yield _at_least(f"tokens of ten tasks in `{way}`", limit, "× fewer", sheet.median(scene, way, "less"))
    for scene in _scenes(sheet, "code"):
        yield _at_most("a program without a call, warm", 50.0, "ms", sheet.median(scene, HUB, "program"))
        yield _at_most("a call in a program, beyond an ordinary one", 1.0, "ms", sheet.median(scene, HUB, "more"))
        yield _at_most("processes for programs before the first", 0.0, "", sheet.median(scene, HUB, "before"))
