"""The hub watches the reaper of its children: it replaces it, tells it the live groups, reports if none starts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_hub.transport import children, reaper
from mcp_hub.transport.children import Children
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio

PATIENCE = 30.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_new_reaper_gets_only_the_process_groups_that_are_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups have no mark, so that the reaper knows them from the hub alone."""
    monkeypatch.setattr(children, "STEADY", 0.0)
    watched = Children()
    program = [sys.executable, "-c", "import time; time.sleep(600)"]
    living, spared = [await asyncio.create_subprocess_exec(*program, start_new_session=True) for _ in range(2)]
    try:
        for process in (living, spared):
            watched.add(process.pid)
        await until(lambda: watched.reaper is not None)
        watched.remove(spared.pid)
        first = watched.reaper
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: watched.reaper not in (None, first))
        assert watched.problem is None
        await watched.close()  # the reaper sees the end of its pipe, as when the hub is killed
        async with asyncio.timeout(PATIENCE):
            assert await living.wait() == -signal.SIGTERM
        assert reaper.group_alive(spared.pid)
    finally:
        for process in (living, spared):
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def test_a_missing_reaper_is_reported_until_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(children, "AGAIN", 0.01)
    python = sys.executable
    monkeypatch.setattr(children.sys, "executable", str(tmp_path / "missing"))
    watched = Children()
    watched.add(2**22 + 1)  # no process can have this number
    await until(lambda: watched.problem is not None)
    assert watched.reaper is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.setattr(children.sys, "executable", python)
    await until(lambda: watched.reaper is not None)
    assert watched.problem is None
    await watched.close()
