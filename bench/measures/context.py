"""What tasks over many tools cost in tokens, by the way in which the hub exposes the tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from bench.plan import Cast
from bench.retrieval.sets import live_servers, steps
from bench.rows import HUB
from bench.scripted_model import WAYS, Task, transcripts
from bench.table import Table
from mcp_hub.protocol.kinds import TOOLS

TASKS, CALLS = 10, 10

TABLE = Table.named(
    title="Tokens of tasks",
    what=f"{TASKS} steps of LiveMCPBench's tasks (`--data`), evenly spread, each done by a scripted model in a "
    "conversation of its own over the 527 tools: the mean of the estimated tokens that it reads and writes. `all`: "
    "every tool is listed; `groups`: each server is a group, which the model switches on; `search`: the hub's own "
    "tools are listed, and the model searches, a second time by name where the first did not show it; "
    "`code`: the same, and a program makes the call. What it calls with comes from the definition or the signature it "
    f"was shown. Below, the same tasks with {CALLS} calls of their tool, each answered with twenty rows, of which the "
    "model needs one: it reads all, or its program picks it.",
    columns=(
        ("definitions", "listed", 0),
        ("calls and answers", "said", 0),
        ("together", "tokens", 0),
        ("times less than all", "less", 1),
        ("searches", "searches", 1),
    ),
)


def measure(cast: Cast) -> None:
    """The figures of each mode of exposing tools."""
    if cast.plan.data is None:
        cast.sheet.fail(cast.scene, HUB, "it needs --data DIR, the directory of the sets: see bench/README.md")
        return
    with cast.noting(HUB):
        servers = live_servers(cast.plan.data)
        tasks, baseline = list(_tasks(cast.plan.data)), 0.0
        for calls in (1, CALLS):
            for mode in WAYS:
                repeated_tasks = [replace(task, calls=calls) for task in tasks]
                runs = asyncio.run(transcripts(mode, servers, repeated_tasks, rows=calls > 1))
                tokens = fmean(run.tokens for run in runs)
                baseline = tokens if mode == WAYS[0] else baseline
                row = mode if calls == 1 else f"{mode}, {calls} calls"
                cast.add(row, "listed", fmean(run.listed for run in runs))
                cast.add(row, "said", fmean(run.call_tokens for run in runs))
                cast.add(row, "tokens", tokens)
                cast.add(row, "less", baseline / tokens)
                cast.add(row, "searches", fmean(run.searches for run in runs))


def _tasks(data: Path) -> Iterator[Task]:
    query_set = steps(data)
    for query in query_set.queries[:: max(1, len(query_set.queries) // TASKS)][:TASKS]:
        names = [name for name, label in query_set.labels.items() if label in query.right]
        routes = [route for name in names if (route := query_set.catalog.resolve(TOOLS, name)) is not None]
        yield Task(query.text, frozenset(f"{route.upstream}/{route.name}" for route in routes))
