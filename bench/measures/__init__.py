"""The measures by name, each a module with a TABLE and `measure(cast)`, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.measures import (
    calls,
    clients,
    code,
    context,
    first,
    line,
    lists,
    memory,
    page,
    replicas,
    results,
    retrieval,
    start,
)
from bench.plan import Cast
from bench.table import Table


class Measure(NamedTuple):
    """`run` measures one scene."""

    table: Table
    run: Callable[[Cast], None]


MEASURES = {
    "calls": Measure(calls.TABLE, calls.measure),
    "lists": Measure(lists.TABLE, lists.measure),
    "results": Measure(results.TABLE, results.measure),
    "start": Measure(start.TABLE, start.measure),
    "memory": Measure(memory.TABLE, memory.measure),
    "clients": Measure(clients.TABLE, clients.measure),
    "line": Measure(line.TABLE, line.measure),
    "first": Measure(first.TABLE, first.measure),
    "code": Measure(code.TABLE, code.measure),
    "context": Measure(context.TABLE, context.measure),
    "retrieval": Measure(retrieval.TABLE, retrieval.measure),
    "page": Measure(page.TABLE, page.measure),
    "replicas": Measure(replicas.TABLE, replicas.measure),
}
USUAL = [name for name, measure in MEASURES.items() if not measure.table.by_name]
"""Those that are measured unless others are named."""
