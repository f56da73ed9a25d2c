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
"""Seconds everything has to come back once nobody disturbs any more; a bound, not a figure."""
WARM = 1000
"""Calls before the first look."""
IDLE = 6.0
"""Seconds until idle connections to servers are closed (KEEP_ALIVE of the hub, 4 s) and lists are read again (5 s)."""
LOOK = 0.1
GROWTH = 48 * 2**20
"""Bytes of memory the hub may need more than before: what its allocator keeps of the largest messages."""
NEEDS = ("calls", "descriptors", "children", "tasks")


@dataclass
class Report:
    """What happened, and which promises were broken."""

    seconds: float
    disturbances: Counter[str]
    outcomes: Counter[str]
    wrong: list[str]
    before: dict[str, Any]
    after: dict[str, Any]

    def table(self) -> str:
        """For people."""
        lines = [f"{self.seconds:.0f} s of chaos: {_words(self.disturbances)}"]
        lines.append(f"{sum(self.outcomes.values()):,} calls: {_words(self.outcomes)}")
        for what in (*NEEDS, "rss"):
            lines.append(f"{what}: {self.before[what]:,} before, {self.after[what]:,} after")
        lines += [f"BROKEN: {text}" for text in self.wrong] or ["every promise was kept"]
        return "\n".join(lines)


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.most_common())


async def chaos(seconds: float, seed: int, directory: Path) -> Report:
    """One run. What it does is decided by `seed`, what comes of it also by how fast the machine is."""
    account = Account()
    async with world(directory) as one:
        await _recovered(one)
        await _called(one, account, seed, _answered(account, WARM))  # until connections and caches are there
        await asyncio.sleep(IDLE)
        before = await _most(one, IDLE)
        monkey = Monkey(one, seed)
        await _called(one, account, seed + 1, monkey.rage(seconds))
        one.calm()
        await _recovered(one)
        after = await _settled(one, before)
        wrong = account.wrong + _effects(one, account) + _grown(before, after)
    return Report(seconds, monkey.done, account.counts, wrong, before, after)


async def _called(one: World, account: Account, seed: int, meanwhile: Any) -> None:
    over = asyncio.Event()
    # Numbers that no run before has used, so that no nonce comes twice.
    first = CALLERS * len(account.outcomes)
    callers = [Caller(first + number, one, account, seed) for number in range(CALLERS)]
    running = [asyncio.create_task(caller.run(over)) for caller in callers]
    try:
        await meanwhile
    finally:
        over.set()
        for ended in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(ended, BaseException):
                account.wrong.append(f"a client got no answer: {ended!r}")


async def _recovered(one: World) -> None:
    """Every server answers, by itself."""
    missing = Account()
    names = {target.id for target in one.targets}
    probe = Caller(random.randrange(10**9), one, missing, 0)
    over = asyncio.Event()
    running = asyncio.create_task(probe.run(over))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RECOVERY):
            while names:
                servers = (await one.facts())["servers"]
                names = {server["server"] for server in servers if server["state"] != "ready"}
                await asyncio.sleep(LOOK)
    over.set()
    await running
    if names:
        raise RuntimeError(f"not back after {RECOVERY:g} s: {', '.join(sorted(names))}")


async def _answered(account: Account, number: int) -> None:
    while len(account.outcomes) < number:
        await asyncio.sleep(LOOK)


async def _most(one: World, seconds: float) -> dict[str, Any]:
    """The facts over so long, each need at its most: lists read again hold connections now and then."""
    most = await one.facts()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await asyncio.sleep(LOOK)
                now = await one.facts()
                most |= {what: max(most[what], now[what]) for what in NEEDS}
    return most


async def _settled(one: World, before: dict[str, Any]) -> dict[str, Any]:
    """The facts once the hub needs no more than before, or as they are when it had its time."""
    now = await one.facts()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RECOVERY):
            while any(now[what] > before[what] for what in NEEDS):
                await asyncio.sleep(LOOK)
                now = await one.facts()
    return now


def _effects(one: World, account: Account) -> list[str]:
    wrong = []
    for target in one.targets:
        executed = target.executed()
        wrong += [f"{nonce} of {target.id} was executed {n} times" for nonce, n in executed.items() if n > 1]
    done = {nonce for target in one.targets for nonce in target.executed()}
    wrong += [f"{nonce} was answered and never executed" for nonce, how in account.outcomes.items()
              if how == "ok" and nonce not in done]  # fmt: skip
    return wrong


def _grown(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    wrong = [f"{what} grew from {before[what]} to {after[what]}" for what in NEEDS if after[what] > before[what]]
    grown = after["rss"] - before["rss"]
    return [*wrong, f"memory grew by {grown:,} bytes"] if grown > GROWTH else wrong


def main() -> int:
    """0 if every promise was kept."""
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
