"""Code mode: what a program costs, and a call in it beside an ordinary one."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from bench.cells import STDIO_STDIO
from bench.plan import Cast
from bench.rows import HUB
from bench.table import Table
from tests.fakes.client import StdioClient, fake, hub

RUNS: Final = 40
CALLS: Final = 40
"""Calls in one program."""

TABLE = Table(
    title="Programs",
    what=f"One client over stdio, one server. The first program starts the process that runs them; then {RUNS} "
    f"programs without a call, and {RUNS} with {CALLS} calls one after the other, beside as many ordinary calls: "
    "medians.",
    columns=(
        ("first program, ms", "first", 0),
        ("a program, ms", "program", 1),
        ("an ordinary call, ms", "call", 2),
        ("a call in a program, ms", "inner", 2),
        ("more, ms", "more", 2),
        ("processes before the first", "before", 0),
    ),
    ratios=(),
    cells=(STDIO_STDIO,),
    small_cells=(STDIO_STDIO,),
    eras=("handshake",),
    possible=(STDIO_STDIO,),
    by_name=True,
)


def measure(cast: Cast) -> None:
    """The figures of a hub with `code_mode`."""
    with cast.noting(HUB):
        for column, value in asyncio.run(_figures()).items():
            cast.add(HUB, column, value)


async def _figures() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        root = {"code_mode": {"enabled": True, "writes": True}, "call_log": "off"}
        async with hub(Path(name), {"up": fake()}, **root) as client:
            await client.tool_names()
            children = psutil.Process(client.process.pid).children(recursive=True)
            before = sum("programs" in child.cmdline() for child in children)
            first = await _taken(client, "hub_run", {"code": "1"})
            program = median([await _taken(client, "hub_run", {"code": "1"}) for _ in range(RUNS)])
            loop = f"for _ in range({CALLS}):\n    await up__echo(text='x')"
            many, calls = [], []
            for _ in range(RUNS):
                many.append(await _taken(client, "hub_run", {"code": loop}))
                calls += [await _taken(client, "up__echo", {"text": "x"}) for _ in range(CALLS)]
    inner, call = (median(many) - program) / CALLS, median(calls)
    return {"first": first, "program": program, "call": call, "inner": inner, "more": inner - call, "before": before}


async def _taken(client: StdioClient, tool: str, arguments: dict[str, str]) -> float:
    began = time.perf_counter()
    result = await client.call(tool, arguments)
    if result.get("isError"):
        raise ValueError(str(result["content"]))
    return (time.perf_counter() - began) * 1000
