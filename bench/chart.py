"""The figures as bars, on a scale of powers of ten: an SVG written by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.rows import DIRECT
from bench.sheet import Sheet

WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 860, 230, 90, 14, 3, 34
COLOURS = {DIRECT: "#9aa0a6", "hub": "#1a73e8", "sdk": "#e8710a", "fastmcp": "#a142f4"}
PEER_COLOURS = ("#12a4af", "#d93025", "#188038", "#795548")
CHARTS = (
    ("calls", "p50", "p50 of one call, ms"),
    ("calls", "rate 32", "calls/s with 32 in flight"),
    ("calls", "cpu 32", "processor time of the proxy for a call with 32 in flight, µs"),
    ("lists", "p50 1000", "tools/list of 1,000 tools, ms"),
    ("results", "p50 1", "1 MiB result, ms"),
    ("start", "50", "start to the complete list of 50 servers, s"),
    ("memory", "idle", "memory with 10 servers, MiB"),
)


def chart(sheet: Sheet, title: str) -> str:
    """One drawing with a group of bars for each scene that has the figure."""
    parts: list[str] = []
    top = 30.0
    for measure, figure, heading in CHARTS:
        groups = [
            (f"{scene.cell}, {scene.era}", bars)
            for scene, rows in sheet.figures.items()
            if scene.measure == measure
            and (bars := [(row, value) for row in rows if (value := sheet.median(scene, row, figure)) is not None])
        ]
        if groups:
            drawn, top = _bars(heading, groups, top)
            parts += drawn
    style = "text{font:12px sans-serif;fill:#202124}.h{font-weight:bold}.v{font-size:11px;fill:#5f6368}"
    size = f'width="{WIDTH}" height="{top:.0f}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {top:.0f}">',
        f"<style>{style}</style>",
        f'<rect {size} fill="#ffffff"/>',
        f'<text class="h" x="10" y="20">{escape(title)}</text>',
        *parts,
        "</svg>\n",
    )
    return "\n".join(lines)


def _bars(heading: str, groups: Sequence[tuple[str, list[tuple[str, float]]]], top: float) -> tuple[list[str], float]:
    values = [value for _, bars in groups for _, value in bars if value > 0]
    low = math.floor(math.log10(min(values, default=1.0))) if values else 0
    high = max(low + 1, math.ceil(math.log10(max(values, default=10.0))))
    room = WIDTH - LEFT - RIGHT
    parts = [f'<text class="h" x="10" y="{top + 20:.0f}">{escape(heading)} (each mark ten times the one before)</text>']
    begin = top = top + HEAD
    for label, bars in groups:
        parts.append(f'<text x="10" y="{top + 11:.0f}">{escape(label)}</text>')
        for row, value in bars:
            length = room * max(0.0, math.log10(max(value, 10**low)) - low) / (high - low)
            parts.append(
                f'<rect x="{LEFT}" y="{top:.0f}" width="{max(1.0, length):.1f}" height="{BAR}" fill="{_colour(row)}"/>'
                f'<text class="v" x="{LEFT + length + 5:.1f}" y="{top + 11:.0f}">{escape(row)} {value:,.4g}</text>'
            )
            top += BAR + GAP
        top += 6
    for power in range(low, high + 1):
        x = LEFT + room * (power - low) / (high - low)
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{begin - 4:.0f}" y2="{top - 4:.0f}" stroke="#e0e0e0"/>'
        parts.insert(1, line)
    return parts, top + 10


def _colour(row: str) -> str:
    return COLOURS.get(row) or PEER_COLOURS[sum(row.encode()) % len(PEER_COLOURS)]
