"""Cells: the transport of the client and that of the servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Downstream = Literal["stdio", "http", "sse"]
Upstream = Literal["stdio", "http"]


@dataclass(frozen=True, slots=True)
class Cell:
    """`str(cell)` is how it is shown, client first; `name` is how it is named on the command line."""

    client: Downstream
    upstream: Upstream

    def __str__(self) -> str:
        return f"{self.client} ← {self.upstream}"

    @property
    def name(self) -> str:
        return f"{self.client}-{self.upstream}"


ALL = tuple(Cell(client, upstream) for client in get_args(Downstream) for upstream in get_args(Upstream))
STDIO_STDIO, STDIO_HTTP, HTTP_STDIO, HTTP_HTTP, *_ = ALL
BY_NAME = {cell.name: cell for cell in ALL}
