"""A program whose call is cancelled while it is being started leaves nothing behind, whatever moment it is."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from mcp_hub.servers.builtin import programs
from mcp_hub.servers.builtin.programs import ProgramRunner
from mcp_hub.transport import reaper
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio

STEPS = 8
"""Rounds of the loop; after so many a program has long been started."""


@pytest.mark.parametrize("rounds", range(STEPS))
async def test_a_call_that_is_cancelled_at_any_moment_leaves_no_program(rounds: int) -> None:
    mark = f"given-up-{os.getpid()}-{rounds}:"
    executions = ProgramRunner({**os.environ, reaper.MARK: mark})
    program = [sys.executable, "-S", "-c", "import os, time; os.fork(); time.sleep(999)"]
    async with asyncio.timeout(PATIENCE):
        running = asyncio.ensure_future(executions.run(program, 999, "program"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert reaper.marked(mark) == []
    assert executions._groups == set()


@pytest.mark.parametrize("rounds", [2, 3])
async def test_without_environment_marks_the_process_group_is_still_ended(
    rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "marked", lambda prefix: [])
    monkeypatch.setattr(programs, "_HAS_MARKS", False)
    path = tmp_path / "group"
    code = f"import os, time; os.fork() and open({str(path)!r}, 'w', 1).write(f'{{os.getpgid(0)}}\\n'); time.sleep(999)"
    async with asyncio.timeout(PATIENCE):
        running = asyncio.ensure_future(
            ProgramRunner(os.environ).run([sys.executable, "-S", "-c", code], 999, "program")
        )
        for _ in range(rounds):
            await asyncio.sleep(0)
        end = time.monotonic() + PATIENCE
        while not (path.exists() and path.read_text()) and time.monotonic() < end:
            pass  # it has forked, and the loop does not know yet that it was started
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while reaper.group_alive(int(path.read_text())):
            await asyncio.sleep(0)
