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
    expired = asyncio.Event()
    deadline = LazyTimer(expired.set)
    deadline.set(1000.0)
    deadline.set(0.01)
    await asyncio.wait_for(expired.wait(), HANG_BOUND)


async def test_a_postponed_deadline_expires_once_at_its_new_time() -> None:
    loop, times = asyncio.get_running_loop(), list[float]()
    done = asyncio.Event()

    def on_expiry() -> None:
        times.append(loop.time())
        done.set()

    deadline, started_at = LazyTimer(on_expiry), loop.time()
    deadline.set(0.01)
    deadline.set(0.06)
    await asyncio.wait_for(done.wait(), HANG_BOUND)
    assert times[0] - started_at > 0.059  # the clock of the loop is that exact
    done.clear()
    deadline.set(0.01)
    await asyncio.wait_for(done.wait(), HANG_BOUND)
    assert len(times) == 2


async def test_a_closed_deadline_does_not_expire() -> None:
    expired, second_expired = asyncio.Event(), asyncio.Event()
    deadline, second = LazyTimer(expired.set), LazyTimer(second_expired.set)
    deadline.set(0.01)
    deadline.close()
    second.set(0.05)
    await asyncio.wait_for(second_expired.wait(), HANG_BOUND)
    assert not expired.is_set()


async def test_timeouts_expire_in_the_order_they_were_started_unless_cancelled() -> None:
    expired: list[str] = []
    last = asyncio.Event()
    timeouts = TimeoutQueue(lambda: 0.02)
    for name in "abc":
        timeouts.begin(name, lambda name=name: expired.append(name))  # type: ignore[misc]
    timeouts.end("b")
    timeouts.begin("d", last.set)
    await asyncio.wait_for(last.wait(), HANG_BOUND)
    assert (expired, len(timeouts)) == (["a", "c"], 0)
    last.clear()
    timeouts.begin("e", last.set)
    await asyncio.wait_for(last.wait(), HANG_BOUND)
