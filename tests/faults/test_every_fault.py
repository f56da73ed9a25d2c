"""Under every fault of a server its neighbour answers all calls, its own calls end clearly, and it comes back."""

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
"""Seconds between two calls, and between two looks at the hub, of which no event tells."""


async def neighbour(one: Front, over: asyncio.Event) -> int:
    """Call the good server all the time; how often it answered. Every answer is its own call's."""
    for number in itertools.count():
        if over.is_set():
            return number
        await asyncio.sleep(PACE)
        assert await one.client.text("good__echo", {"text": f"n{number}"}) == f"n{number}"
    raise AssertionError


async def settled(one: Front, before: dict[str, Any]) -> None:
    """Wait until the hub needs no more than before: descriptors, children, tasks, calls."""
    now: dict[str, Any] = {}
    needs = ("calls", "descriptors", "children", "tasks")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not now or any(now[what] > before[what] for what in needs):
                now = await one.facts()
                await asyncio.sleep(PACE)
    assert {what: now[what] - before[what] for what in needs if now[what] > before[what]} == {}


async def recovered(one: Front) -> None:
    async with asyncio.timeout(PATIENCE):
        for number in itertools.count():
            if (await one.outcome(f"after{number}", "bad__echo"))[0] == OK:
                return
            await asyncio.sleep(PACE)


@pytest.mark.parametrize("fault", EVERY, ids=lambda fault: f"{fault.name}-{fault.era}")
async def test_a_fault_fails_only_calls_to_its_own_server(tmp_path: Path, fault: Fault) -> None:
    async with front(tmp_path, fault) as one:
        assert await asyncio.gather(*(one.outcome(f"before{n}") for n in range(3))) == [(OK, "")] * 3
        await one.client.text("good__echo")
        before = await one.facts()
        over = asyncio.Event()
        beside = asyncio.create_task(neighbour(one, over))
        one.turn(fault.name)
        if fault.again and not fault.http:
            await killed(one)
        nonces = [f"during{number}" for number in range(3)]
        outcomes = await asyncio.gather(*(one.outcome(nonce) for nonce in nonces))
        for nonce, (outcome, words) in zip(nonces, outcomes, strict=True):
            assert outcome in fault.comes_to, words
            assert fault.words in words
            assert one.executed(nonce) <= 1
            if outcome == OK and fault.name != "out-of-order":
                assert one.executed(nonce) == 1
        one.turn("")
        await recovered(one)
        over.set()
        assert await beside > 0
        await settled(one, before)


async def killed(one: Front) -> None:
    """Have the faulty server start anew."""
    pid = next(server["pid"] for server in (await one.facts())["servers"] if server["server"] == "bad")
    os.kill(pid, signal.SIGKILL)
    await one.client.until(lambda: b"bad was lost" in one.client.stderr)
