"""Children, on both kinds of loop: given up while they start, and with no descriptor too many or too few closed."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from io import FileIO
from typing import Any

import psutil
import pytest
import uvloop

from mcp_hub.transport import child_process
from tests.fakes.client import PATIENCE

STEPS = 10
"""Rounds of the event loop that are enough to start a child."""


class RecordingProtocol(asyncio.SubprocessProtocol):
    """Waits for the end of a process."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_start_that_is_cancelled_at_any_moment_stays_cancelled_and_leaves_no_process(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    protocols: list[RecordingProtocol] = []

    def recording_protocol() -> RecordingProtocol:
        protocols.append(RecordingProtocol())
        return protocols[-1]

    async def start() -> None:
        child, _ = await child_process.spawn(recording_protocol, [sys.executable, "-c", "input()"], env={}, cwd=None)
        try:
            await asyncio.Event().wait()
        finally:
            child.close()

    async def cancelled_after(rounds: int) -> None:
        starting = asyncio.ensure_future(start())
        for _ in range(rounds):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    async def all_starts() -> None:
        async with asyncio.timeout(PATIENCE):
            for rounds in range(STEPS):
                await cancelled_after(rounds)
            for protocol in protocols:
                await protocol.exited.wait()

    run(all_starts())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_closing_pipes_closes_no_other_descriptor(
    run: Callable[[Coroutine[Any, Any, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    class Reused(FileIO):
        """Somebody opens a file just before this one is closed, and gets its number if that is free already."""

        def close(self) -> None:
            if not self.closed:
                opened.append(os.open(os.devnull, os.O_RDONLY))
            super().close()

    monkeypatch.setattr(child_process, "FileIO", Reused)

    async def start_and_close() -> None:
        async with asyncio.timeout(PATIENCE):
            child, protocol = await child_process.spawn(
                RecordingProtocol, [sys.executable, "-c", "input()"], env={}, cwd=None
            )
            child.close()
            await protocol.exited.wait()

    run(start_and_close())
    assert len(opened) == 3
    for fd in opened:
        os.fstat(fd)
        os.close(fd)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_children_leave_no_descriptor_even_if_they_could_not_be_started(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def start(*argv: str) -> None:
        child, protocol = await child_process.spawn(RecordingProtocol, argv, env={}, cwd=None)
        child.close()
        await protocol.exited.wait()

    async def all_starts() -> None:
        async with asyncio.timeout(PATIENCE):
            await start(sys.executable, "-c", "input()")
            before = _descriptors()
            for _ in range(5):
                await start(sys.executable, "-c", "input()")
                with pytest.raises(OSError, match="/nonexistent"):
                    await start("/nonexistent")
            await asyncio.sleep(0)
            assert _descriptors() == before

    run(all_starts())


def _descriptors() -> int:
    return psutil.Process().num_fds()
