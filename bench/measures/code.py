"""Code mode: what a program costs, and a call in it beside an ordinary one."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from bench.plan import Cast
from bench.processes import processor_seconds
from bench.rows import HUB
from bench.table import Table
from tests.fakes.client import StdioClient, fake, hub

RUNS: Final = 40
CALLS: Final = 40
"""Calls in one program."""

TABLE = Table.named(
    title="Programs",
    what=f"One client over stdio, one server. The first program starts the process that runs them; then, {RUNS} "
    f"times in turn, a program without a call, one with {CALLS} calls one after the other, and as many ordinary "
    "calls: medians. `more` is the median of what a call in a program took longer than the ordinary ones of its turn. "
    "CPU: of all processes of the hub for one call, without the server.",
    columns=(
        ("first program, ms", "first", 0),
        ("a program, ms", "program", 1),
        ("an ordinary call, ms", "call", 2),
        ("a call in a program, ms", "inner", 2),
        ("more, ms", "more", 2),
        ("CPU of an ordinary call, ms", "cpu call", 2),
        ("CPU of one in a program, ms", "cpu inner", 2),
        ("processes before the first", "before", 0),
    ),
)


def measure(cast: Cast) -> None:
    """The figures of a hub with `code_mode`."""
    with cast.noting(HUB):
        for column, value in asyncio.run(_figures(RUNS // 8 if cast.plan.small else RUNS)).items():
            cast.add(HUB, column, value)


async def _figures(runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        root = {"code_mode": {"enabled": True, "writes": True}, "call_log": "off"}
        async with hub(Path(name), {"up": fake()}, **root) as client:
            await client.tool_names()
            before = len(_runners(client))
            first = await _milliseconds(client, "hub_run", {"code": "1"})
            own = [client.process.pid, *_runners(client)]
            loop = f"for _ in range({CALLS}):\n    await up__echo(text='x')"
            turns: list[dict[str, float]] = []
            for _ in range(runs):
                turn = {"program": await _milliseconds(client, "hub_run", {"code": "1"})}
                used = processor_seconds(own)
                total = await _milliseconds(client, "hub_run", {"code": loop})
                turn["inner"] = (total - turn["program"]) / CALLS
                used, turn["cpu inner"] = processor_seconds(own), processor_seconds(own) - used
                turn["call"] = median([await _milliseconds(client, "up__echo", {"text": "x"}) for _ in range(CALLS)])
                turn["cpu call"] = processor_seconds(own) - used
                turns.append(turn | {"more": turn["inner"] - turn["call"]})
    figures = {figure: median(turn[figure] for turn in turns) for figure in ("program", "call", "inner", "more")}
    for figure in ("cpu call", "cpu inner"):  # the clock of processors is too coarse for one turn
        figures[figure] = 1000 * sum(turn[figure] for turn in turns) / len(turns) / CALLS
    return {"first": first, "before": before, **figures}


def _runners(client: StdioClient) -> list[int]:
    """The processes that run programs: the one that the hub starts and its workers."""
    children = psutil.Process(client.process.pid).children(recursive=True)
    started = [child for child in children if "programs" in child.cmdline()]
    return [process.pid for child in started for process in (child, *child.children(recursive=True))]


async def _milliseconds(client: StdioClient, tool: str, arguments: dict[str, str]) -> float:
    began = time.perf_counter()
    result = await client.call(tool, arguments)
    if result.get("isError"):
        raise ValueError(str(result["content"]))
    return (time.perf_counter() - began) * 1000
