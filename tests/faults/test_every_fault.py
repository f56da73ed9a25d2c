"""During every fault of a server its neighbour answers all calls, its own calls end, and it recovers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import PATIENCE
from tests.faults.front import Front, front
from tests.faults.table import EVERY, OK, Fault

pytestmark = pytest.mark.anyio


PACE = 0.01
"""Seconds between two calls, and between two polls of the hub, which sends no event."""


async def neighbour(harness: Front, over: asyncio.Event) -> int:
    """Calls the good server until `over` is set, checks each answer, and returns how many there were."""
    for number in itertools.count():
        if over.is_set():
            return number
        await asyncio.sleep(PACE)
        assert await harness.client.text("good__echo", {"text": f"n{number}"}) == f"n{number}"
    raise AssertionError


async def settled(harness: Front, before: dict[str, Any]) -> None:
    """Waits until the hub needs no more than before: descriptors, children, tasks, calls."""
    now: dict[str, Any] = {}
    needs = ("calls", "descriptors", "children", "tasks")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not now or any(now[need] > before[need] for need in needs):
                now = await harness.facts()
                await asyncio.sleep(PACE)
    assert {need: now[need] - before[need] for need in needs if now[need] > before[need]} == {}


async def recovered(harness: Front) -> None:
    async with asyncio.timeout(PATIENCE):
        for number in itertools.count():
            if (await harness.outcome(f"after{number}", "bad__echo"))[0] == OK:
                return
            await asyncio.sleep(PACE)


@pytest.mark.parametrize("fault", EVERY, ids=lambda fault: f"{fault.name}-{fault.era}")
async def test_a_fault_fails_only_calls_to_its_own_server(tmp_path: Path, fault: Fault) -> None:
    async with front(tmp_path, fault) as harness:
        assert await asyncio.gather(*(harness.outcome(f"before{n}") for n in range(3))) == [(OK, "")] * 3
        await harness.client.text("good__echo")
        before = await harness.facts()
        over = asyncio.Event()
        beside = asyncio.create_task(neighbour(harness, over))
        harness.turn(fault.name)
        if fault.again and not fault.http:
            await killed(harness)
        nonces = [f"during{number}" for number in range(3)]
        outcomes = await asyncio.gather(*(harness.outcome(nonce) for nonce in nonces))
        for nonce, (outcome, text) in zip(nonces, outcomes, strict=True):
            assert outcome in fault.comes_to, text
            assert fault.words in text
            assert harness.executed(nonce) <= 1
            if outcome == OK and fault.name != "out-of-order":
                assert harness.executed(nonce) == 1
        harness.turn("")
        await recovered(harness)
        over.set()
        assert await beside > 0
        await settled(harness, before)


async def killed(harness: Front) -> None:
    """Kills the faulty server, so that the hub restarts it."""
    pid = next(server["pid"] for server in (await harness.facts())["servers"] if server["server"] == "bad")
    os.kill(pid, signal.SIGKILL)
    await harness.client.until(lambda: b"bad was lost" in harness.client.stderr)
