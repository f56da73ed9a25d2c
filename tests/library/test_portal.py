"""The thread on which a program's hub lives, while it ends."""

import asyncio
import sys
import threading
from concurrent.futures import CancelledError
from types import FrameType

from mcp_hub.library.portal import Portal
from tests.fakes.client import PATIENCE


def test_work_that_begins_while_the_hub_closes_ends() -> None:
    """The thread that begins it is stopped between its check and its work, until the loop has cancelled the rest."""
    started, checked, closing, submitted = (threading.Event() for _ in range(4))
    outcomes: list[BaseException | None] = []

    async def no_setup() -> None:
        return

    async def never() -> None:
        await asyncio.Event().wait()

    async def lingering() -> None:
        started.set()
        try:
            await never()
        finally:
            closing.set()
            await asyncio.get_running_loop().run_in_executor(None, submitted.wait, PATIENCE)

    def stop(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is asyncio.run_coroutine_threadsafe.__code__:
            sys.settrace(None)
            checked.set()
            closing.wait(1.0)  # this never comes if nothing can close the loop now

    def begin_late() -> None:
        sys.settrace(stop)
        try:
            future = portal.begin(never)
            submitted.set()
            outcomes.append(future.exception(PATIENCE / 2))
        except (CancelledError, RuntimeError, TimeoutError) as error:  # it should be cancelled
            outcomes.append(error)
        finally:
            submitted.set()

    portal = Portal(no_setup)
    portal.begin(lingering)
    assert started.wait(PATIENCE)
    thread = threading.Thread(target=begin_late, daemon=True)
    thread.start()
    assert checked.wait(PATIENCE)
    portal.close()
    thread.join(PATIENCE)
    assert [type(outcome) for outcome in outcomes] == [CancelledError]
