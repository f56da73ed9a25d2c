"""Sync doors: when a call has ended, its async function ends too, with its thread and its loop."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil
import pytest

from mcp_hub import Hub, ToolManager
from mcp_hub.library.server_entries import with_call_settings
from mcp_hub.servers.local import Mark
from mcp_hub.servers.local.local_tool import LocalTool
from tests.fakes.client import PATIENCE
from tests.library.test_hub import code


class Endless:
    """An async function that runs until it is cancelled."""

    def __init__(self) -> None:
        self.started, self.cancelled = threading.Event(), threading.Semaphore(0)

    async def forever(self) -> str:
        """Wait."""
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.release()
        return "never"


def ended(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_calls_that_time_out_end_their_functions_and_leak_nothing() -> None:
    endless = Endless()
    with ToolManager(timeout=0.1) as manager:
        manager.tool_func(endless.forever)
        for number in range(6):
            manager.call_tool("forever")
            assert endless.cancelled.acquire(timeout=PATIENCE)
            ended("function")
            if number == 0:
                before = psutil.Process().num_fds()
        assert psutil.Process().num_fds() <= before


def test_the_end_of_a_hub_ends_the_functions_of_sync_calls() -> None:
    endless = Endless()
    hub = Hub()
    hub.put_function(LocalTool(endless.forever))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(hub.call_sync, "local", "forever")
        assert endless.started.wait(PATIENCE)
        hub.close()
        assert endless.cancelled.acquire(timeout=PATIENCE)
        assert running.exception(PATIENCE) is not None or code(running.result()) == "server_unavailable"
    ended("function")


def test_an_interrupted_sync_door_cancels_its_function() -> None:
    endless = Endless()

    async def interrupting() -> str:
        main = threading.main_thread().ident or 0
        while "result" not in [frame.name for frame in traceback.extract_stack(sys._current_frames()[main])]:
            await asyncio.sleep(0)  # until the door waits for this function
        signal.pthread_kill(main, signal.SIGINT)
        return await endless.forever()

    async def in_a_loop() -> None:
        with ToolManager() as manager:
            manager.tool_func(interrupting)
            door = manager.get_tool_func("interrupting", shift="sync")
            assert door is not None
            with pytest.raises(KeyboardInterrupt):
                door()

    loop = asyncio.new_event_loop()  # asyncio.run would take the signal itself
    loop.run_until_complete(in_a_loop())
    loop.close()
    assert endless.cancelled.acquire(timeout=PATIENCE)
    ended("mcp-hub sync")


def test_a_cancelled_call_ends_the_async_post_processor_of_a_sync_function() -> None:
    endless = Endless()

    async def process(call: object, response: object) -> None:
        await endless.forever()

    def plain() -> str:
        """Text."""
        return "text"

    with ToolManager(timeout=0.1) as manager:
        manager.hub.put_function(LocalTool(plain, Mark(postprocess=process)))
        manager.hub.change_sync(partial(with_call_settings, 0.1, True))
        assert code(manager.hub.call_sync("local", "plain")) == "timeout"
        assert endless.cancelled.acquire(timeout=PATIENCE)
