"""The figures as Markdown: one table for each measure, cell and era, and the targets."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measures import MEASURES
from bench.rows import DIRECT
from bench.sheet import Scene, Sheet
from bench.table import Table
from bench.targets import Target


def number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def times(value: float | None) -> str:
    """A ratio, with more digits the smaller it is."""
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:,.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [_line(headings), _line(["---", *["---:"] * (len(headings) - 1)]), *map(_line, lines), ""]


def scene(sheet: Sheet, scene: Scene, table: Table) -> list[str]:
    """Returns one table, and below it why figures of rows are missing."""
    rows = sheet.figures[scene]
    columns = [column for column in table.columns if any(column[1] in figures for figures in rows.values())]
    ratios = [ratio for ratio in table.ratios if any(ratio[1] in figures for figures in rows.values())]
    lines = []
    for row in rows:
        figures = [number(sheet.median(scene, row, figure), digits) for _, figure, digits in columns]
        compared = [times(sheet.ratio(scene, row, figure, DIRECT)) for _, figure in ratios]
        lines.append([row, *figures, *compared])
    text = [f"### {table.title}, {scene.cell}, {scene.era} era", ""]
    text += _table(["", *(heading for heading, *_ in columns), *(heading for heading, _ in ratios)], lines)
    missing = [f"- {row}: {sheet.missing[scene, row]}" for row in rows if (scene, row) in sheet.missing]
    return [*text, *missing, ""] if missing else text


def targets(measured: Sequence[Target]) -> list[str]:
    """Returns the table of targets, and whether this run reached them."""
    lines = [
        [
            target.label,
            target.bound,
            times(target.reached),
            "–" if target.good is None else "yes" if target.good else "no",
        ]
        for target in measured
    ]
    return ["## Targets", "", *_table(["measure", "target", "this run", "reached"], lines)]


def report(sheet: Sheet, head: Sequence[str], measured: Sequence[Target]) -> str:
    """Returns the whole report."""
    text = [*head, ""]
    for name, measure in MEASURES.items():
        scenes = [key for key in sheet.figures if key.measure == name]
        if scenes:
            text += [f"## {measure.table.title}", "", measure.table.what, ""]
            for key in scenes:
                text += scene(sheet, key, measure.table)
    if measured:
        text += targets(measured)
    return "\n".join(text)
