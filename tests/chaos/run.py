"""A run of chaos: disturb, call, then see whether everything is where it was.

python -m tests.chaos.run [--minutes N] [--seed S]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.calling import Account, Caller
from tests.chaos.monkey import Monkey
from tests.chaos.world import World, world

CALLERS = 8
RECOVERY = 60.0
"""Seconds within which everything must recover after the last disturbance; a bound, not a figure."""
WARM = 1000
"""Calls before the first measurement."""
IDLE = 6.0
"""Seconds until idle connections to servers are closed (KEEP_ALIVE of the hub, 4 s) and lists are read again (5 s)."""
LOOK = 0.1
GROWTH = 48 * 2**20
"""Bytes of memory the hub may need more than before: what its allocator keeps of the largest messages."""
NEEDS = ("calls", "descriptors", "children", "tasks")


@dataclass
class Report:
    """The counts of a run, and the promises that were broken."""

    seconds: float
    disturbances: Counter[str]
    outcomes: Counter[str]
    wrong: list[str]
    before: dict[str, Any]
    after: dict[str, Any]

    def table(self) -> str:
        """Returns the report as text."""
        lines = [f"{self.seconds:.0f} s of chaos: {_summary(self.disturbances)}"]
        lines.append(f"{sum(self.outcomes.values()):,} calls: {_summary(self.outcomes)}")
        for need in (*NEEDS, "rss"):
            lines.append(f"{need}: {self.before[need]:,} before, {self.after[need]:,} after")
        lines += [f"BROKEN: {text}" for text in self.wrong] or ["every promise was kept"]
        return "\n".join(lines)


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common())


async def chaos(seconds: float, seed: int, directory: Path) -> Report:
    """Runs chaos once. `seed` decides the disturbances; the outcomes also depend on the speed of the machine."""
    account = Account()
    async with world(directory) as system:
        await _recovered(system)
        await _called(system, account, seed, _answered(account, WARM))  # until connections and caches are there
        await asyncio.sleep(IDLE)
        before = await _peak_facts(system, IDLE)
        monkey = Monkey(system, seed)
        await _called(system, account, seed + 1, monkey.rage(seconds))
        system.calm()
        await _recovered(system)
        after = await _settled(system, before)
        wrong = account.wrong + _effects(system, account) + _grown(before, after)
    return Report(seconds, monkey.done, account.counts, wrong, before, after)


async def _called(system: World, account: Account, seed: int, meanwhile: Any) -> None:
    over = asyncio.Event()
    # Numbers that no run before has used, so that no nonce comes twice.
    first = CALLERS * len(account.outcomes)
    callers = [Caller(first + number, system, account, seed) for number in range(CALLERS)]
    running = [asyncio.create_task(caller.run(over)) for caller in callers]
    try:
        await meanwhile
    finally:
        over.set()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, BaseException):
                account.wrong.append(f"a client got no answer: {result!r}")


async def _recovered(system: World) -> None:
    """Waits until every server is ready again. Raises RuntimeError after RECOVERY seconds."""
    missing = Account()
    names = {target.id for target in system.targets}
    probe = Caller(random.randrange(10**9), system, missing, 0)
    over = asyncio.Event()
    running = asyncio.create_task(probe.run(over))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RECOVERY):
            while names:
                servers = (await system.facts())["servers"]
                names = {server["server"] for server in servers if server["state"] != "ready"}
                await asyncio.sleep(LOOK)
    over.set()
    await running
    if names:
        raise RuntimeError(f"not back after {RECOVERY:g} s: {', '.join(sorted(names))}")


async def _answered(account: Account, number: int) -> None:
    while len(account.outcomes) < number:
        await asyncio.sleep(LOOK)


async def _peak_facts(system: World, seconds: float) -> dict[str, Any]:
    """Returns the facts with the peak of each need over `seconds`: reading lists again uses connections at times."""
    peak = await system.facts()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await asyncio.sleep(LOOK)
                now = await system.facts()
                peak |= {need: max(peak[need], now[need]) for need in NEEDS}
    return peak


async def _settled(system: World, before: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts once the hub needs no more than before, or after RECOVERY seconds."""
    now = await system.facts()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RECOVERY):
            while any(now[need] > before[need] for need in NEEDS):
                await asyncio.sleep(LOOK)
                now = await system.facts()
    return now


def _effects(system: World, account: Account) -> list[str]:
    wrong = []
    for target in system.targets:
        executed = target.executed()
        wrong += [f"{nonce} of {target.id} was executed {n} times" for nonce, n in executed.items() if n > 1]
    executed_nonces = {nonce for target in system.targets for nonce in target.executed()}
    wrong += [f"{nonce} was answered and never executed" for nonce, outcome in account.outcomes.items()
              if outcome == "ok" and nonce not in executed_nonces]  # fmt: skip
    return wrong


def _grown(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    wrong = [f"{need} grew from {before[need]} to {after[need]}" for need in NEEDS if after[need] > before[need]]
    grown = after["rss"] - before["rss"]
    return [*wrong, f"memory grew by {grown:,} bytes"] if grown > GROWTH else wrong


def main() -> int:
    """Returns the exit code: 0 if every promise was kept."""
    parser = argparse.ArgumentParser(description="disturb ten servers behind a hub, and check what clients see of it")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default 30)")
    parser.add_argument("--seed", type=int, help="what decides the disturbances (default: a new one, printed)")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(chaos(options.minutes * 60, seed, Path(directory)))
    print(report.table())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
