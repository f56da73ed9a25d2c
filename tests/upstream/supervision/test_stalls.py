"""A blocked event loop is reported: by the hub in its log and status, by the hubs of the tests as a failure."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from mcp_hub.catalog import Item, Route
from mcp_hub.cli import GARBAGE_AFTER
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.observability.stalls import (
    EVERY,
    MAX_THREADS,
    SLICE,
    STALL,
    StallMonitor,
    drop,
    in_slices,
    in_thread,
    run_for,
)
from mcp_hub.policy import Call, Json, Next, Policy
from mcp_hub.protocol.frames import LARGE, weighing, weighs_more
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from tests.fakes.client import PATIENCE, check_stalls, spawned, write_config

pytestmark = pytest.mark.anyio


def busy(seconds: float) -> None:
    """Uses this many seconds of processor time in this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_a_blocked_loop_is_reported_with_its_duration(caplog: pytest.LogCaptureFixture) -> None:
    stalls = StallMonitor()
    with caplog.at_level(logging.WARNING, "mcp_hub"):
        async with stalls.watched(), asyncio.timeout(PATIENCE):
            await asyncio.sleep(0)
            busy(EVERY + 2 * STALL)  # the fault itself
            while not stalls.count:
                await asyncio.sleep(0)
    assert stalls.longest > STALL
    assert "one callback blocked the event loop" in caplog.text


async def test_waiting_for_cpu_time_is_not_reported_as_a_stall() -> None:
    stalls = StallMonitor()
    async with stalls.watched(), asyncio.timeout(PATIENCE):
        await asyncio.sleep(0)
        time.sleep(EVERY + 3 * STALL)  # it uses no processor time, as on a machine that is busy with other programs
        while not stalls.longest:
            await asyncio.sleep(0)
    assert stalls.longest < STALL
    assert stalls.count == 0


async def test_sliced_work_lets_other_tasks_run_in_between() -> None:
    rounds = 0

    async def second_task() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    def work():  # type: ignore[no-untyped-def]
        for _ in range(20):
            busy(0.002)
            yield
        return "done"

    running = asyncio.create_task(second_task())
    assert await in_slices(work()) == "done"
    running.cancel()
    assert rounds > 3
    assert run_for(iter(()), 0.0) == (True, None)  # type: ignore[arg-type]


class _SlowToFree:
    left = 0

    def __init__(self) -> None:
        _SlowToFree.left += 1

    def __del__(self) -> None:
        _SlowToFree.left -= 1
        until = time.thread_time() + SLICE / 2
        while time.thread_time() < until:
            pass


async def test_other_tasks_run_while_a_large_list_is_freed() -> None:
    items = [_SlowToFree() for _ in range(20)]
    turns = 0
    drop(items)
    async with asyncio.timeout(PATIENCE):
        while _SlowToFree.left:
            await asyncio.sleep(0)
            turns += 1
    assert not items
    assert turns > 3


async def test_garbage_collection_scans_few_objects_at_a_time() -> None:
    scanned: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] < 2:
            young = range(info["generation"] + 1)
            scanned.append(sum(len(gc.get_objects(generation=generation)) for generation in young))

    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*GARBAGE_AFTER)
    gc.callbacks.append(look)
    try:
        live_objects = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*before)
    assert len(live_objects) == 300_000
    assert scanned
    assert max(scanned) < 16_000


async def test_cancelled_callers_do_not_let_more_threads_work() -> None:
    thread_counts: list[int] = []
    running: list[int] = []
    free = threading.Event()

    def work() -> None:
        running.append(0)
        thread_counts.append(len(running))
        free.wait(PATIENCE)
        running.pop()

    for _ in range(3 * MAX_THREADS):
        before, task = len(thread_counts), asyncio.create_task(in_thread(work))
        async with asyncio.timeout(PATIENCE):
            while len(thread_counts) == before and len(running) < MAX_THREADS:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
    free.set()
    async with asyncio.timeout(PATIENCE):
        assert await in_thread(pow, 2, 3) == 8
    assert thread_counts == [1, 2]


async def test_thread_work_propagates_exceptions_and_survives_cancellation() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)
    cancelled = asyncio.create_task(in_thread(time.sleep, 0.05))
    await asyncio.sleep(0)
    cancelled.cancel()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*(in_thread(pow, 2, n) for n in range(5))) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    "value",
    ["x" * (LARGE + 1), [0] * LARGE, {"a": ["x" * 10] * LARGE}, {"k" * (LARGE + 1): 1}, [[[]] * 2] * LARGE],
)
def test_large_values_are_distinguished_from_small_ones(value: object) -> None:
    assert weighs_more(value)
    assert not weighs_more({"name": "echo", "arguments": {"text": "x" * 1000, "n": [1, 2.5, None, True]}})


@pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop")
@pytest.mark.parametrize(("seconds", "told"), [(0.7, True), (0.0, False)])
async def test_test_hubs_fail_on_a_callback_that_blocks_the_event_loop(
    tmp_path: Path, seconds: float, told: bool
) -> None:
    """The watchdog itself, on a program that does what a hub must not do."""
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.fakes.watched import Watch, watched_loop\n"
        "def keeps_the_loop(seconds):\n"
        "    until = time.thread_time() + seconds\n"
        "    while time.thread_time() < until: pass\n"
        "async def main():\n"
        f"    asyncio.get_running_loop().call_soon(keeps_the_loop, {seconds})\n"
        f"    for _ in range(20): keeps_the_loop(0.02); await asyncio.sleep(0)\n"
        f"watch = Watch({str(tmp_path / 'stalls')!r}, 0.1)\n"
        "with asyncio.Runner(loop_factory=watched_loop(watch)) as runner: runner.run(main())\n"
    )
    async with spawned([sys.executable, str(program)]) as process:
        assert await process.exited() == 0
    if not told:
        check_stalls(tmp_path / "stalls")
        return
    with pytest.raises(AssertionError, match="keeps_the_loop"):
        check_stalls(tmp_path / "stalls")
    (stall,) = map(json.loads, (tmp_path / "stalls").read_text().splitlines())
    assert stall["seconds"] >= seconds


def test_a_large_value_is_measured_in_steps_with_the_same_result() -> None:
    schema = {"properties": {f"p{number}": {"type": "string"} for number in range(9_000)}}
    for limit in (LARGE, 256 * 1024, 512 * 1024, 1024 * 1024):
        steps = weighing(schema, limit)
        done, outcome = run_for(steps)
        assert (done, outcome) == (True, weighs_more(schema, limit))
    assert len(list(weighing(schema, 1024 * 1024))) > 15
    assert not list(weighing({"type": "string"}, LARGE))


class Steps(Policy):
    """A policy that records the number of URIs in each step of a build."""

    name = "steps"

    def __init__(self) -> None:
        self.uris: list[int] = []

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        self.uris.append(sum(item.route.kind is RESOURCES for item in items))
        return items

    def __call__(self, call: Call, call_next: Next) -> Awaitable[Json]:
        return call_next(call)


async def test_each_uri_of_a_list_is_processed_in_its_own_step(tmp_path: Path) -> None:
    rules = Engine(read_config(write_config(tmp_path, {"up": {"command": "x"}})).config).rules
    rules.chain.insert(steps := Steps(), after=rules.access)
    tools = [Item(Route("up", TOOLS, name), name, {"name": name}) for name in ("a", "b", "c")]
    uris = [Item(Route("up", RESOURCES, uri), uri, {"uri": uri}) for uri in ("x://1", "x://2", "x://3")]
    items = [*tools, *uris, *tools]
    for _ in rules.shape(items):
        pass
    assert steps.uris == [0, 1, 1, 1, 0]
