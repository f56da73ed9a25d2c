"""Loops that run in the background as long as their owner: none ends because of an exception."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.hub.hub_status import Status
from mcp_hub.policy.screen import BackgroundScreening
from mcp_hub.transport.background import BACKGROUND, BackgroundLoops
from mcp_hub.upstream.lifecycle import UpstreamState
from tests.fakes.client import PATIENCE, fake, write_config

pytestmark = pytest.mark.anyio


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)


class Failing:
    """A loop that raises these exceptions, one at each begin, and then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.begun = 0

    async def run(self) -> None:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)


async def test_a_loop_that_fails_is_begun_again_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    loops, work = BackgroundLoops(), Failing(ValueError("hunter2"), ValueError("hunter2"), KeyError("x"))
    with caplog.at_level(logging.ERROR, "mcp_hub"):
        async with asyncio.timeout(PATIENCE):
            await loops.keep("renewals", work.run)
    assert work.begun == 4
    assert loops.facts() == {"restarts": 3, "last_error": "renewals: KeyError"}
    logged = [record.exc_info[0] for record in caplog.records if record.exc_info is not None]
    assert logged == [ValueError, KeyError]


async def test_a_cancelled_loop_ends() -> None:
    loops = BackgroundLoops()
    task = loops.keep("waiting", asyncio.Event().wait)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert loops.restarts == 0


class Review:
    """A review that fails at its first step, and has three."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> bool:
        self.steps += 1
        if self.steps == 1:
            raise RuntimeError("a text that cannot be screened")
        return self.steps < 3


async def test_screening_goes_on_after_a_step_that_fails() -> None:
    review, restarts = Review(), BACKGROUND.restarts
    screening = BackgroundScreening(lambda: review)  # type: ignore[arg-type,return-value]
    screening.soon()
    await until(lambda: review.steps == 3)
    assert BACKGROUND.restarts == restarts + 1
    screening.soon()
    await until(lambda: review.steps == 4)
    screening.close()


async def test_a_server_connects_again_after_a_fault_of_the_hub_that_the_status_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(read_config(write_config(tmp_path, {"up": fake()}), {}).config) as hub:
        upstream, restarts = hub.upstreams["up"], BACKGROUND.restarts
        await upstream.connected()
        with monkeypatch.context() as patch:
            patch.setattr(upstream.visibility, "hide_after", lambda _: 1 / 0)
            assert upstream.session is not None
            assert upstream.session.pid is not None
            os.kill(upstream.session.pid, signal.SIGKILL)
            await until(lambda: BACKGROUND.restarts > restarts)
        await until(lambda: upstream.state is UpstreamState.READY and upstream.starts == 2)
        facts = Status(hub).facts()["background"]
        assert facts == {"restarts": BACKGROUND.restarts, "last_error": "upstream up: ZeroDivisionError"}
