"""Measures what faults of a server cost its neighbour, and how soon its own calls end: a table for RELIABILITY.md.

python -m tests.faults.figures [--rounds N] [FAULT ...]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.front import Front, front
from tests.faults.table import FAULTS, OK, Fault

WINDOW = 1.0
"""Seconds of calls to the neighbour, calm and under the fault in turn."""


@dataclass
class Figures:
    """Seconds, and ratios of the neighbour's p50 and p99 under the fault to those before it."""

    middles: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)


async def timed(harness: Front, until: asyncio.Event) -> tuple[float, float]:
    """Calls the neighbour, one call after the other, until the event; returns p50 and p99 in seconds."""
    latencies = []
    for number in itertools.count():
        began = time.perf_counter()
        assert await harness.client.text("good__echo", {"text": f"n{number}"}) == f"n{number}"
        latencies.append(time.perf_counter() - began)
        if until.is_set() and len(latencies) >= 100:
            return statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
    raise AssertionError


async def window(harness: Front) -> tuple[float, float]:
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(WINDOW, over.set)
    return await timed(harness, over)


async def measured(fault: Fault, rounds: int) -> Figures:
    """Returns all figures of one fault."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as directory:
        async with front(Path(directory), fault) as harness:
            await harness.outcome("warm")
            await window(harness)
            for number in range(rounds):
                calm = await window(harness)
                over = asyncio.Event()
                harness.turn(fault.name)
                beside = asyncio.create_task(timed(harness, over))
                asyncio.get_running_loop().call_later(WINDOW, over.set)
                began = time.perf_counter()
                await asyncio.gather(*(harness.outcome(f"r{number}c{n}") for n in range(3)))
                figures.durations.append(time.perf_counter() - began)
                middle, tail = await beside
                figures.middles.append(middle / calm[0])
                figures.ratios.append(tail / calm[1])
                harness.turn("")
                began = time.perf_counter()
                while (await harness.outcome(f"a{time.perf_counter_ns()}"))[0] != OK:
                    pass
                figures.recoveries.append(time.perf_counter() - began)
    return figures


async def table(faults: list[Fault], rounds: int) -> None:
    print(
        "| fault | neighbour's p50 and p99, under it / before | its calls end after | a call is answered again after |"
    )
    print("|---|---|---|---|")
    ratios = []
    for fault in faults:
        figures = await measured(fault, rounds)
        ratios += figures.ratios
        duration, recovery = statistics.median(figures.durations), statistics.median(figures.recoveries)
        ratio = statistics.median(figures.ratios)
        middle = statistics.median(figures.middles)
        print(f"| {fault.name} | {middle:.2f}, {ratio:.2f} | {duration:.3f} s | {recovery:.3f} s |", flush=True)
    print(f"\nThe median of all ratios of p99: {statistics.median(ratios):.2f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="measure what faults of a server cost its neighbour")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("fault", nargs="*", help="names of tests/faults/table.py (default: all that show in calls)")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if fault.name in options.fault or (not options.fault and not fault.again)]
    asyncio.run(table(chosen, options.rounds))


if __name__ == "__main__":
    main()
