"""Timers that are set for every request and nearly never needed."""

from __future__ import annotations

import asyncio

import pytest

from mcp_hub.downstream.responses import TimeoutQueue
from mcp_hub.transport.http1.send_buffer import LazyTimer
from tests.downstream.fronts import HANG_BOUND
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio


async def test_the_earliest_deadline_expires_first() -> None:
    passed = asyncio.Event()
    deadline = LazyTimer(passed.set)
    deadline.set(1000.0)
    deadline.set(0.01)
    await asyncio.wait_for(passed.wait(), HANG_BOUND)


async def test_a_postponed_deadline_expires_once_at_its_new_time() -> None:
    loop, times = asyncio.get_running_loop(), list[float]()
    done = asyncio.Event()

    def late() -> None:
        times.append(loop.time())
        done.set()

    deadline, began = LazyTimer(late), loop.time()
    deadline.set(0.01)
    deadline.set(0.06)
    await asyncio.wait_for(done.wait(), HANG_BOUND)
    assert times[0] - began > 0.059  # the clock of the loop is that exact
    done.clear()
    deadline.set(0.01)
    await asyncio.wait_for(done.wait(), HANG_BOUND)
    assert len(times) == 2


async def test_a_closed_deadline_does_not_expire() -> None:
    passed, after = asyncio.Event(), asyncio.Event()
    deadline, later = LazyTimer(passed.set), LazyTimer(after.set)
    deadline.set(0.01)
    deadline.close()
    later.set(0.05)
    await asyncio.wait_for(after.wait(), HANG_BOUND)
    assert not passed.is_set()


async def test_timeouts_expire_in_the_order_they_were_started_unless_cancelled() -> None:
    late: list[str] = []
    last = asyncio.Event()
    patience = TimeoutQueue(lambda: 0.02)
    for name in "abc":
        patience.begin(name, lambda name=name: late.append(name))  # type: ignore[misc]
    patience.end("b")
    patience.begin("d", last.set)
    await asyncio.wait_for(last.wait(), HANG_BOUND)
    assert (late, len(patience)) == (["a", "c"], 0)
    last.clear()
    patience.begin("e", last.set)
    await asyncio.wait_for(last.wait(), HANG_BOUND)
