"""Whoever keeps the event loop is told of."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from mcp_hub.stalls import EVERY, STALL, Stalls
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio


async def test_a_loop_that_is_kept_is_told_of_with_how_long(caplog: pytest.LogCaptureFixture) -> None:
    stalls = Stalls()
    with caplog.at_level(logging.WARNING, "mcp_hub"):
        async with stalls.watched(), asyncio.timeout(PATIENCE):
            await asyncio.sleep(0)
            time.sleep(EVERY + 2 * STALL)  # the fault itself
            while not stalls.count:
                await asyncio.sleep(0)
    assert stalls.longest > STALL
    assert "everybody waited" in caplog.text
