"""Three replicas for a minute: killed, paused and cut off from the store in turn, and every call accounted for."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import fakes
from tests.replicas.raw_client import RawClient
from tests.replicas.served import Cluster, cluster
from tests.replicas.traffic import ANSWERED, Account, open_sessions

pytestmark = pytest.mark.anyio
LEDGER = Path(fakes.__file__).with_name("ledger.py")
SESSIONS = 120
OF_THEIR_OWN = 12
"""Sessions that also call a server with a process for each of them."""
NOTICED = 6.0
"""Seconds for which clients may notice a fault: a lease, and what a client waits for an owner that is gone."""


def kinds_of(number: int) -> list[str]:
    return ["own", "own", "call", "modern"] if number < OF_THEIR_OWN else ["call", "call", "modern", "ask"]


async def test_every_call_is_accounted_for_while_replicas_and_store_fail(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    command: dict[str, Any] = {"command": sys.executable, "args": [str(LEDGER), str(ledger)]}
    servers = {"up": command, "own": {**command, "session": "client", "max_sessions": 100}}
    account, stop = Account(), asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(cluster(tmp_path, servers))
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        clients = [RawClient(http, served.url) for _ in range(SESSIONS)]
        traffic = await open_sessions(account, clients, kinds_of)
        running = [asyncio.ensure_future(one.run(stop)) for one in traffic]
        await failing(served, account)
        stop.set()
        await asyncio.gather(*running)
    print(account.counts(), "first answers after faults:", account.first_answers())
    assert not account.problems(ledger)[:20]
    assert account.counts()[ANSWERED] > 10 * SESSIONS


async def failing(served: Cluster, account: Account) -> None:
    """Has each part fail in turn, for a minute."""
    for number in range(3):
        await asyncio.sleep(4)
        async with fault(account):
            served.kill(number)
        await served.restart(number)
    await asyncio.sleep(4)
    async with fault(account):
        await served.store.kill()
        await asyncio.sleep(3)
        await served.store.start()
    await asyncio.sleep(NOTICED)
    async with fault(account):
        served.signal(0, signal.SIGSTOP)
        await asyncio.sleep(8)
        served.signal(0, signal.SIGCONT)
    await asyncio.sleep(NOTICED)


@contextlib.asynccontextmanager
async def fault(account: Account) -> Any:
    """Notes when something fails, and until when clients may notice it."""
    began = time.monotonic()
    yield
    account.faults.append((began, time.monotonic() + NOTICED))
