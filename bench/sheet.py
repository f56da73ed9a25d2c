"""Every figure that was measured, with all its repetitions, and why some are missing."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from bench.cells import Cell


@dataclass(frozen=True, slots=True)
class Scene:
    """One table: a measure in one cell and era."""

    measure: str
    cell: Cell
    era: str


@dataclass
class Sheet:
    """Figures by scene, row and name; `missing` says why a row has none or stopped having them."""

    figures: dict[Scene, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    missing: dict[tuple[Scene, str], str] = field(default_factory=dict)

    def add(self, scene: Scene, row: str, figure: str, value: float) -> None:
        self.figures.setdefault(scene, {}).setdefault(row, {}).setdefault(figure, []).append(value)

    def fail(self, scene: Scene, row: str, reason: object) -> None:
        """Records why a row has no figures, or no more of them."""
        self.figures.setdefault(scene, {}).setdefault(row, {})
        self.missing[scene, row] = " ".join(f"{reason or type(reason).__name__}".split())[:200]

    def median(self, scene: Scene, row: str, figure: str) -> float | None:
        values = self.figures.get(scene, {}).get(row, {}).get(figure)
        return statistics.median(values) if values else None

    def ratio(self, scene: Scene, row: str, figure: str, base: str, base_figure: str | None = None) -> float | None:
        """Returns a row's median divided by that of another row of the same run."""
        above, below = self.median(scene, row, figure), self.median(scene, base, base_figure or figure)
        return above / below if above is not None and below else None

    def as_json(self) -> list[dict[str, Any]]:
        """Returns all figures with their repetitions."""
        entries = []
        for scene, rows in self.figures.items():
            labels = {"measure": scene.measure, "cell": scene.cell.name, "era": scene.era}
            for row, figures in rows.items():
                for figure, values in figures.items():
                    middle = statistics.median(values)
                    entries.append({**labels, "row": row, "figure": figure, "median": middle, "values": values})
                if (scene, row) in self.missing:
                    entries.append({**labels, "row": row, "missing": self.missing[scene, row]})
        return entries
