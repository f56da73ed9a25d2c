"""What the table of a measure shows: figures, and figures by those of the direct connection."""

from __future__ import annotations

from dataclasses import dataclass

from bench.cells import ALL, STDIO_STDIO, Cell
from bench.client.messages import ERAS, Era


@dataclass(frozen=True, slots=True)
class Table:
    """`columns` are (heading, figure, digits behind the point); `ratios` (heading, figure)."""

    title: str
    what: str
    """How it is measured, one or two sentences."""
    columns: tuple[tuple[str, str, int], ...]
    ratios: tuple[tuple[str, str], ...]
    cells: tuple[Cell, ...]
    """Those that are measured unless others are asked for."""
    small_cells: tuple[Cell, ...]
    """The same in the short form."""
    eras: tuple[Era, ...] = ERAS
    possible: tuple[Cell, ...] = ALL
    """Those it makes sense in."""
    by_name: bool = False
    """Whether it is measured only if it is named, as it needs more than the rows, or takes long."""

    @classmethod
    def named(
        cls,
        title: str,
        what: str,
        columns: tuple[tuple[str, str, int], ...],
        cell: Cell = STDIO_STDIO,
        era: Era = "handshake",
    ) -> Table:
        """Returns the table of a measure in one cell and one era, which runs only if it is named."""
        return cls(title, what, columns, (), (cell,), (cell,), (era,), (cell,), by_name=True)
