"""Three replicas: killed, paused and cut off from the store in turn, and every call accounted for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos.replicas import chaos, kill, kill_store, pause
from tests.fakes.client import PATIENCE
from tests.replicas.account import ANSWERED, Account
from tests.replicas.served import Cluster

pytestmark = pytest.mark.anyio
SESSIONS = 120
OF_THEIR_OWN = 12
"""Sessions that also call a server with a process for each of them."""
BETWEEN = 400
"""Answered calls between two faults."""
CALLS_PER_FAULT = 500
"""Answered calls during each fault, which take longer than a lease."""


async def test_every_call_and_every_change_is_accounted_for_while_replicas_and_store_fail(tmp_path: Path) -> None:
    report = await chaos(tmp_path, SESSIONS, OF_THEIR_OWN, failing, 1.0)
    print(report.table())
    assert report.wrong[:20] == []
    assert report.outcomes[ANSWERED] > 10 * SESSIONS
    assert report.told > SESSIONS


async def failing(served: Cluster, account: Account) -> None:
    """Makes each part fail in turn."""
    for number in range(3):
        await answered(account, BETWEEN)
        await kill(served, account, number)
    await answered(account, BETWEEN)
    await kill_store(served, account, answered(account, CALLS_PER_FAULT))
    await answered(account, BETWEEN)
    await pause(served, account, 0, answered(account, CALLS_PER_FAULT))
    await answered(account, 2 * BETWEEN)


async def answered(account: Account, count: int) -> None:
    """Waits until `count` more calls are answered."""
    target = account.counts().get(ANSWERED, 0) + count
    async with asyncio.timeout(PATIENCE):
        while account.counts().get(ANSWERED, 0) < target:
            await asyncio.sleep(0.05)
