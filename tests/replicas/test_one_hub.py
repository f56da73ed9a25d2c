"""Three replicas for a minute: killed, paused and cut off from the store in turn, and every call accounted for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos.replicas import chaos, kill, kill_store, pause
from tests.replicas.account import ANSWERED, NOTICED, Account
from tests.replicas.served import Cluster

pytestmark = pytest.mark.anyio
SESSIONS = 120
OF_THEIR_OWN = 12
"""Sessions that also call a server with a process for each of them."""
BETWEEN = 4.0
"""Seconds of calls between two faults."""
PAUSED = 8.0


async def test_every_call_and_every_change_is_accounted_for_while_replicas_and_store_fail(tmp_path: Path) -> None:
    report = await chaos(tmp_path, SESSIONS, OF_THEIR_OWN, failing, 1.0)
    print(report.table())
    assert report.wrong[:20] == []
    assert report.outcomes[ANSWERED] > 10 * SESSIONS
    assert report.told > SESSIONS


async def failing(served: Cluster, account: Account) -> None:
    """Has each part fail in turn, for a minute."""
    for number in range(3):
        await asyncio.sleep(BETWEEN)
        await kill(served, account, number)
    await asyncio.sleep(BETWEEN)
    await kill_store(served, account)
    await asyncio.sleep(NOTICED)
    await pause(served, account, 0, PAUSED)
    await asyncio.sleep(NOTICED)
