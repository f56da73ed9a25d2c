"""A run of chaos over three replicas: kill one every ten seconds, the store, pause one, and account for all calls.

python -m tests.chaos.replicas --replicas [--minutes N] [--sessions N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests import fakes
from tests.replicas.raw_client import RawClient
from tests.replicas.served import Cluster, cluster
from tests.replicas.test_one_hub import NOTICED, fault
from tests.replicas.traffic import Account, open_sessions

LEDGER = Path(fakes.__file__).with_name("ledger.py")
EVERY = 10.0
"""Seconds between two faults."""
STORE_AWAY = 3.0
PAUSED = 30.0
CALLS_A_SECOND = 200
"""Of all sessions together."""
OF_THEIR_OWN = 20
"""The part of the sessions that also call a server with a process for each of them: one in so many."""
AT_MOST_OF_THEIR_OWN = 60


@dataclass
class Report:
    """What happened, and what does not add up."""

    seconds: float
    sessions: int
    outcomes: dict[str, int]
    first_answers: list[float]
    wrong: list[str]

    def table(self) -> str:
        """For people."""
        counted = ", ".join(f"{count:,} {what}" for what, count in self.outcomes.items())
        lines = [
            f"{self.seconds:.0f} s, {self.sessions:,} sessions, {len(self.first_answers)} faults",
            f"{sum(self.outcomes.values()):,} calls: {counted}",
            f"first answer after a fault: {sorted(self.first_answers)[-1] if self.first_answers else 0:.3f} s at most",
        ]
        lines += [f"WRONG: {text}" for text in self.wrong[:50]] or ["every call is accounted for"]
        return "\n".join(lines)


async def chaos(seconds: float, sessions: int, directory: Path) -> Report:
    """One run."""
    ledger = directory / "ledger"
    command: dict[str, Any] = {"command": sys.executable, "args": [str(LEDGER), str(ledger)]}
    servers = {"up": command, "own": {**command, "session": "client", "max_sessions": AT_MOST_OF_THEIR_OWN + 10}}
    own = min(max(1, sessions // OF_THEIR_OWN), AT_MOST_OF_THEIR_OWN)
    account, stop = Account(), asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        listen = {"limits": {"sessions": sessions + 10, "calls": 8192}}
        served = await stack.enter_async_context(cluster(directory, servers, listen=listen))
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        clients = [RawClient(http, served.url) for _ in range(sessions)]
        traffic = await open_sessions(
            account, clients, lambda n: ["own", "call", "modern"] if n < own else ["call", "call", "modern", "ask"]
        )
        running = [asyncio.ensure_future(one.run(stop, 2 * sessions / CALLS_A_SECOND)) for one in traffic]
        began = time.monotonic()
        await _failing(served, account, began + seconds)
        stop.set()
        await asyncio.gather(*running)
        return Report(
            time.monotonic() - began, sessions, account.counts(), account.first_answers(), account.problems(ledger)
        )


async def _failing(served: Cluster, account: Account, until: float) -> None:
    """Has one part after the other fail, the replicas most often."""
    turn = 0
    while time.monotonic() < until:
        await asyncio.sleep(EVERY)
        turn += 1
        async with fault(account):
            if turn % 7 == 5:
                await served.store.kill()
                await asyncio.sleep(STORE_AWAY)
                await served.store.start()
            elif turn % 7 == 0:
                served.signal(turn % 3, signal.SIGSTOP)
                await asyncio.sleep(PAUSED)
                served.signal(turn % 3, signal.SIGCONT)
            else:
                served.kill(turn % 3)
        if turn % 7 not in (0, 5):
            await served.restart(turn % 3)
    await asyncio.sleep(NOTICED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", action="store_true", help="(this run)")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sessions", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos") as directory:
        report = asyncio.run(chaos(options.minutes * 60, options.sessions, Path(directory)))
    print(report.table())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
