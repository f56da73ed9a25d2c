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
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from tests import fakes
from tests.replicas.account import INTRUDE, KILL, MINE, NOTICED, OWN, PAUSE, STORE, WATCH, Account, Fault
from tests.replicas.raw_client import RawClient
from tests.replicas.served import Cluster, cluster
from tests.replicas.subscriber import Changes
from tests.replicas.traffic import open_sessions

LEDGER = Path(fakes.__file__).with_name("ledger.py")
TOKENS: Final = {"ann": "a" * 40, "bob": "b" * 40}
EVERY = 10.0
"""Seconds between two faults."""
STORE_AWAY = 3.0
PAUSED = 30.0
CALLS_A_SECOND = 200
"""Of all sessions together."""
CHANGES_A_SECOND = 20
"""Of all resources together."""
OF_THEIR_OWN = 20
"""The part of the sessions that also call a server with a process for each of them: one in so many."""
AT_MOST_OF_THEIR_OWN = 60
SUBSCRIBING = 5
INTRUDING = 10
"""The parts of the sessions that subscribe to resources, and that try what is another principal's: one in so many."""
FIRST_ANSWER = 1.0
"""Seconds after a kill until the first answer of any client."""

QUIET = 2.0

Failing = Callable[[Cluster, Account], Awaitable[None]]
"""Makes one part after the other fail, and records each fault."""


class Report(msgspec.Struct):
    """The counts of a run, and the promises that were broken."""

    seconds: float
    sessions: int
    subscribers: int
    changes: int
    told: int
    """Notifications of changes that subscribers received."""
    faults: list[Fault]
    outcomes: dict[str, int]
    first_answers: list[float]
    without_a_fault: list[float]
    """The same QUIET seconds before each kill: how long the machine takes without a fault."""
    wrong: list[str]

    def table(self) -> str:
        """Returns the report as text."""
        counted = ", ".join(f"{count:,} {outcome}" for outcome, count in self.outcomes.items())
        kinds = [entry.kind for entry in self.faults]
        failed = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
        lines = [
            f"{self.seconds:.0f} s, {self.sessions:,} sessions, {len(self.faults)} faults: {failed}",
            f"{sum(self.outcomes.values()):,} calls: {counted}",
            f"{self.changes:,} changes, of which {self.subscribers:,} subscribers were told {self.told:,} times",
            f"first answer after a kill: {_stats(self.first_answers)}; just before it: {_stats(self.without_a_fault)}",
        ]
        lines += [f"WRONG: {text}" for text in self.wrong[:50]] or ["every call and every change is accounted for"]
        lines += [str(entry) for entry in self.faults if self.wrong]
        return "\n".join(lines)


def _stats(seconds: list[float]) -> str:
    ordered = sorted(seconds) or [0.0]
    return f"{ordered[len(ordered) // 2]:.3f} s in the middle, {ordered[-1]:.3f} s at most"


async def chaos(directory: Path, sessions: int, own: int, failing: Failing, pace: float) -> Report:
    """Runs chaos: each session makes calls with at most `pace` seconds between two, until `failing` returns.

    `own`: sessions that also call a server with a process for each of them.
    """
    account, stop, changes = Account(), asyncio.Event(), Changes(directory / "changes")
    ledger = directory / "ledger"
    command: dict[str, Any] = {"command": sys.executable, "args": [str(LEDGER), str(ledger)]}
    servers = {
        "up": {**command, "args": [*command["args"], str(directory / "changes")]},
        "own": {**command, "session": "client", "max_sessions": own + 10},
    }
    listen = {
        "principals": {name: {"token": token} for name, token in TOKENS.items()},
        "limits": {"sessions": sessions + 10, "calls": 8192},
    }
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(cluster(directory, servers, listen=listen))
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        clients = {
            name: [RawClient(http, served.url, token) for _ in range(sessions // len(TOKENS))]
            for name, token in TOKENS.items()
        }
        traffic = await open_sessions(account, clients, lambda number: kinds_of(number, own))
        subscribers = [session.subscriber for session in traffic if session.subscriber is not None]
        uris = [uri for subscriber in subscribers for uri in subscriber.uris]
        running = [asyncio.ensure_future(session.run(stop, pace)) for session in traffic]
        running.append(asyncio.ensure_future(changes.run(uris, stop, 2 / CHANGES_A_SECOND)))
        began = time.monotonic()
        await failing(served, account)
        stop.set()
        await asyncio.gather(*running)
        await asyncio.gather(*(subscriber.settle(changes) for subscriber in subscribers))
        return Report(
            time.monotonic() - began,
            len(traffic),
            len(subscribers),
            sum(len(times) for times in changes.made.values()),
            sum(subscriber.times_told for subscriber in subscribers),
            account.faults,
            account.counts(),
            account.first_answers(),
            account.first_answers(QUIET),
            account.problems(ledger),
        )


def kinds_of(number: int, own: int) -> list[str]:
    """Returns the kinds of calls that a session draws from."""
    kinds = [OWN, OWN, MINE, "call", "modern"] if number < own else ["call", "call", "modern", "ask"]
    return [
        *kinds,
        *([WATCH] if number % SUBSCRIBING == 0 else []),
        *([INTRUDE] if number % INTRUDING == 1 else []),
    ]


@contextlib.asynccontextmanager
async def fault(account: Account, kind: str) -> AsyncIterator[None]:
    """Notes when something fails, and until when clients may notice it."""
    began = time.monotonic()
    yield
    account.faults.append(Fault(kind, began, time.monotonic() + NOTICED))


async def kill(served: Cluster, account: Account, number: int) -> None:
    """Kills a replica, and starts it once more."""
    async with fault(account, KILL):
        served.kill(number)
    await served.restart(number)


async def kill_store(served: Cluster, account: Account, until: Awaitable[None]) -> None:
    """Kills the store with all that it holds, and starts it once more."""
    async with fault(account, STORE):
        await served.store.kill()
        await until
        await served.store.start()


async def pause(served: Cluster, account: Account, number: int, until: Awaitable[None]) -> None:
    """Stops a replica, whose connections stay open, and resumes it."""
    async with fault(account, PAUSE):
        served.signal(number, signal.SIGSTOP)
        await until
        served.signal(number, signal.SIGCONT)


async def _fail_until(served: Cluster, account: Account, until: float) -> None:
    """Makes one part after the other fail, the replicas most often."""
    turn = 0
    while time.monotonic() < until:
        await asyncio.sleep(EVERY)
        turn += 1
        if turn % 7 == 5:
            await kill_store(served, account, asyncio.sleep(STORE_AWAY))
        elif turn % 7 == 0:
            await pause(served, account, turn % 3, asyncio.sleep(PAUSED))
        else:
            await kill(served, account, turn % 3)
    await asyncio.sleep(NOTICED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", action="store_true", help="(this run)")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sessions", type=int, default=2000)
    options = parser.parse_args()
    sessions = options.sessions
    own = min(max(1, sessions // OF_THEIR_OWN), AT_MOST_OF_THEIR_OWN)

    def failing(served: Cluster, account: Account) -> Awaitable[None]:
        return _fail_until(served, account, time.monotonic() + options.minutes * 60)

    with tempfile.TemporaryDirectory(prefix="chaos") as directory:
        report = asyncio.run(chaos(Path(directory), sessions, own, failing, 2 * sessions / CALLS_A_SECOND))
    report.wrong += [
        f"the first answer after a kill came after {seconds} s"
        for seconds in report.first_answers
        if seconds > FIRST_ANSWER
    ]
    print(report.table())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
