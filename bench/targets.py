"""The targets of the hub: ratios within one run, but for memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.cells import HTTP_HTTP, HTTP_STDIO, STDIO_STDIO, Cell
from bench.rows import DIRECT, HUB, SDK
from bench.sheet import Scene, Sheet


@dataclass(frozen=True, slots=True)
class Target:
    """One target; `good` is None if this run has not measured it."""

    label: str
    bound: str
    reached: float | None
    good: bool | None


def targets(sheet: Sheet) -> list[Target]:
    """Returns the targets that this run has measured."""
    return [target for target in (*_calls(sheet), *_other_measures(sheet)) if target.reached is not None]


def _at_most(label: str, limit: float, unit: str, reached: float | None) -> Target:
    return Target(label, f"at most {limit:g} {unit}".rstrip(), reached, None if reached is None else reached <= limit)


def _at_least(label: str, limit: float, unit: str, reached: float | None) -> Target:
    good = None if reached is None else reached >= limit
    return Target(label, f"at least {limit:g} {unit}".rstrip(), reached, good)


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
        label = f"calls/s at {in_flight} in flight, by those of the SDK"
        yield from _worst(sheet, label, f"rate {in_flight}", 10.0, min)


def _worst(
    sheet: Sheet, label: str, figure: str, limit: float, worst: Callable[[list[float]], float]
) -> Iterator[Target]:
    """Yields the target for the cell that is furthest from it."""
    ratios = {}
    for scene in _scenes(sheet, "calls"):
        if (ratio := sheet.ratio(scene, HUB, figure, SDK)) is not None:
            ratios[ratio] = f"{scene.cell}, {scene.era}"
    if not ratios:
        return
    value = worst(list(ratios))
    good = value <= limit if worst is max else value >= limit
    bound = f"at most 1/{1 / limit:.0f}" if worst is max else f"at least {limit:g} ×"
    yield Target(f"{label}, the worst cell ({ratios[value]})", f"{bound} the SDK's", value, good)


def _other_measures(sheet: Sheet) -> Iterator[Target]:
    for scene in _scenes(sheet, "lists"):
        ratio = sheet.ratio(scene, HUB, "p50 1000", DIRECT)
        yield _at_most(f"tools/list of 1,000 tools, {scene.cell}, {scene.era}", 1.3, "× direct", ratio)
    for scene in _scenes(sheet, "results", HTTP_STDIO):
        yield _at_most("1 MiB result, " + str(scene.cell), 4.0, "× direct", sheet.ratio(scene, HUB, "p50 1", DIRECT))
    for scene in _scenes(sheet, "start"):
        for figure, limit, condition in (("kept 50", 1 / 6, "with the catalog kept"), ("50", 1 / 2, "nothing kept")):
            ratio = sheet.ratio(scene, HUB, figure, SDK, "50")
            good = None if ratio is None else ratio <= limit
            label = f"start to the complete list, 50 servers, {condition}, {scene.cell}"
            yield Target(label, f"at most 1/{1 / limit:.0f} of the SDK's", ratio, good)
    for scene in _scenes(sheet, "memory"):
        limit = 45.0 if scene.cell == STDIO_STDIO else 65.0
        label = f"memory idle, 10 servers, {scene.cell}"
        yield _at_most(label, limit, "MiB", sheet.median(scene, HUB, "idle"))
        label = f"growth from 1,000 calls to the last, {scene.cell}"
        yield _at_most(label, 1.0, "MiB", sheet.median(scene, HUB, "growth"))
    for scene in _scenes(sheet, "first"):
        for figure, limit, caches in (
            ("all empty", 60.0, "nothing cached"),
            ("all full", 5.0, "all cached"),
            ("all uv", 5.0, "all cached, with uv"),
        ):
            label = f"pip install to the first tools of three servers, {caches}"
            yield _at_most(label, limit, "s", sheet.median(scene, HUB, figure))
    yield from _economy(sheet)


def _economy(sheet: Sheet) -> Iterator[Target]:
    """Yields the targets of context economy: finding tools, tokens of tasks, and programs."""
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
                    label = f"{figure}, {queries}, as by {plain} alone"
                    yield _at_least(label, round(of_plain, 3), "", sheet.median(scene, f"{queries}: hub", figure))
        for figure, limit, label in (("index", 1000.0, "index of 527 tools"), ("ms", 5.0, "a query of 527 tools")):
            yield _at_most(label, limit, "ms", sheet.median(scene, "steps: hub", figure))
    for scene in _scenes(sheet, "context"):
        for mode, limit in (("search", 15.0), ("code", 25.0)):
            yield _at_least(f"tokens of ten tasks in `{mode}`", limit, "× fewer", sheet.median(scene, mode, "less"))
    for scene in _scenes(sheet, "code"):
        yield _at_most("a program without a call, warm", 50.0, "ms", sheet.median(scene, HUB, "program"))
        yield _at_most("a call in a program, beyond an ordinary one", 1.0, "ms", sheet.median(scene, HUB, "more"))
        yield _at_most("processes for programs before the first", 0.0, "", sheet.median(scene, HUB, "before"))
