"""A time limit ends its block and nothing else, whether it has a timer of its own or shares one."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from mcp_hub.policy import deadline
from mcp_hub.policy.deadline import TimeLimit

pytestmark = pytest.mark.anyio

HANG_BOUND = 20.0


@pytest.fixture(params=["own timer", "shared timer"], autouse=True)
def _timers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "shared timer":
        monkeypatch.setattr(deadline, "LONG", 0.0)
        monkeypatch.setattr(deadline, "STEP", 0.02)
    return


async def test_a_time_limit_cancels_its_block_and_not_its_task() -> None:
    async with asyncio.timeout(HANG_BOUND):
        with pytest.raises(TimeoutError), TimeLimit(0.01) as limit:
            await asyncio.Event().wait()
        assert limit.expired
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_time_limits_of_the_same_moment_all_fire() -> None:
    async def limited() -> None:
        with TimeLimit(0.01):
            await asyncio.Event().wait()

    async with asyncio.timeout(HANG_BOUND):
        results = await asyncio.gather(*(limited() for _ in range(20)), return_exceptions=True)
    assert {type(result) for result in results} == {TimeoutError}


async def test_a_time_limit_left_early_never_fires() -> None:
    async with asyncio.timeout(HANG_BOUND):
        with TimeLimit(0.01) as limit:
            pass
        with pytest.raises(TimeoutError), TimeLimit(0.03):
            await asyncio.Event().wait()
        assert not limit.expired


async def test_a_suspended_time_limit_does_not_fire_until_resumed() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(HANG_BOUND):
        with pytest.raises(TimeoutError), TimeLimit(0.01) as limit:
            limit.suspend()
            limit.suspend()
            assert limit.deadline is None
            inner = loop.create_task(_limited(0.05))
            with pytest.raises(TimeoutError):
                await inner
            limit.resume()  # it was suspended twice
            inner = loop.create_task(_limited(0.05))
            with pytest.raises(TimeoutError):
                await inner
            assert not limit.expired
            limit.resume()
            await asyncio.Event().wait()


async def test_a_time_limit_whose_block_has_ended_is_not_resumed() -> None:
    async with asyncio.timeout(HANG_BOUND):
        with TimeLimit(0.01) as suspended:
            suspended.suspend()
        suspended.resume()
        with TimeLimit(0.01) as finished:
            pass
        finished.suspend()
        finished.resume()
        with pytest.raises(TimeoutError), TimeLimit(0.03):
            await asyncio.Event().wait()
        assert not suspended.expired
        assert not finished.expired


async def test_an_inner_time_limit_does_not_affect_the_outer_one() -> None:
    async with asyncio.timeout(HANG_BOUND):
        with TimeLimit(HANG_BOUND) as outer:
            with pytest.raises(TimeoutError), TimeLimit(0.01):
                await asyncio.Event().wait()
            await asyncio.sleep(0)
        assert not outer.expired


async def test_a_task_cancelled_from_outside_stays_cancelled() -> None:
    task = asyncio.get_running_loop().create_task(_limited(HANG_BOUND))
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(HANG_BOUND):
        with pytest.raises(asyncio.CancelledError):
            await task


async def _limited(seconds: float) -> None:
    with TimeLimit(seconds):
        await asyncio.Event().wait()


def test_time_limits_do_not_keep_an_ended_loop_alive() -> None:
    async def limited() -> None:
        with TimeLimit(HANG_BOUND):
            pass

    loop = asyncio.new_event_loop()
    loop.run_until_complete(limited())
    loop.close()
    reference = weakref.ref(loop)
    del loop
    gc.collect()
    assert reference() is None
