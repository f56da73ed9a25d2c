"""Calls at once and per second: whoever comes too many is told when to come again, nobody waits for ever."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from mcp_hub import Hub
from mcp_hub.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.errors import Overloaded
from mcp_hub.policy import Call, Json
from mcp_hub.policy.limits import LimitSettings as Rules
from mcp_hub.policy.limits import LimitsPolicy
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import Principal
from mcp_hub.security.callers import Callers
from tests.fakes.client import PATIENCE, fake, hub
from tests.fakes.network import network_hub, sdk

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """Calls that stay until they are let go, in the order in which they got through."""

    def __init__(self, **rules: object) -> None:
        limits = Rules.model_validate(rules)
        server = Server(id="a", transport="stdio", command="x", namespace="a", settings={"limits": limits})
        self.clock = Clock()
        self.policy = LimitsPolicy({"a": server}, self.clock)
        self._callers = Callers()
        self.through: list[str] = []
        self._go: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[Json]] = {}

    async def come(self, name: str, caller: str = "one") -> None:
        self._go[name] = asyncio.Event()

        async def answer(_: Call) -> Json:
            self.through.append(name)
            await self._go[name].wait()
            return {}

        route = Route("a", TOOLS, "t")
        call = Call("tools/call", name, route, {}, "modern", Envelope(), self._callers.of(Principal(caller)))
        self.tasks[name] = asyncio.ensure_future(self.policy(call, answer))
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def leave(self, name: str) -> None:
        self._go[name].set()
        await self.settle()

    def refused(self, name: str) -> float:
        error = self.tasks[name].exception()
        assert isinstance(error, Overloaded)
        assert error.retry_after is not None
        return error.retry_after


async def test_waiting_calls_get_slots_in_order() -> None:
    desk = Desk(at_once=1, waiting=2)
    for name in "abcd":
        await desk.come(name)
    assert desk.through == ["a"]
    assert desk.refused("d") > 0
    await desk.leave("a")
    await desk.leave("b")
    assert desk.through == ["a", "b", "c"]


async def test_a_caller_with_all_its_slots_taken_is_skipped() -> None:
    desk = Desk(at_once=2, per_caller=1)
    await desk.come("a1", "a")
    await desk.come("a2", "a")
    await desk.come("b1", "b")
    assert desk.through == ["a1", "b1"]
    await desk.leave("b1")
    assert desk.through == ["a1", "b1"]
    await desk.leave("a1")
    assert desk.through == ["a1", "b1", "a2"]


async def test_waiting_callers_take_turns() -> None:
    desk = Desk(at_once=1, waiting=20)
    for name in ("a1", "a2", "a3", "a4"):
        await desk.come(name, "a")
    await desk.come("b1", "b")
    await desk.come("c1", "c")
    await desk.come("b2", "b")
    for name in ("a1", "a2", "b1", "c1", "a3", "b2"):
        await desk.leave(name)
    assert desk.through == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_the_caller_with_most_waiting_calls_loses_its_newest_to_others() -> None:
    desk = Desk(at_once=1, waiting=3)
    for name in ("a1", "a2", "a3", "a4"):
        await desk.come(name, "a")
    await desk.come("b1", "b")
    assert desk.refused("a4") > 0
    await desk.come("b2", "b")
    assert desk.refused("b2") > 0
    await desk.come("c1", "c")
    assert desk.refused("a3") > 0
    await desk.come("d1", "d")
    assert desk.refused("d1") > 0
    for name in ("a1", "a2", "b1"):
        await desk.leave(name)
    assert desk.through == ["a1", "a2", "b1", "c1"]


async def test_no_slot_is_lost_or_granted_twice_in_any_order_of_events() -> None:
    numbers = random.Random(3)
    desk = Desk(at_once=3, per_caller=2, waiting=6)
    inside: list[str] = []
    for number in range(600):
        name = f"{number}"
        await desk.come(name, numbers.choice("abcd"))
        alive = [key for key, task in desk.tasks.items() if not task.done()]
        inside = [key for key in desk.through if key in alive]
        assert len(inside) <= 3
        assert len(alive) - len(inside) <= 6
        assert desk.policy._slots["a"].waiting.size == len(alive) - len(inside)
        if numbers.random() < 0.9 and alive:
            leaving = numbers.choice(alive)
            if numbers.random() < 0.5:
                desk.tasks[leaving].cancel()
            else:
                desk._go[leaving].set()
            if numbers.random() < 0.5:
                await asyncio.sleep(0)
    while alive := [key for key, task in desk.tasks.items() if not task.done()]:
        await desk.leave(alive[0])
    slots = desk.policy._slots["a"]
    assert (slots.in_use, slots.waiting.size) == ({}, 0)
    assert not slots.waiting._principals


async def test_a_cancelled_waiter_does_not_block_the_next() -> None:
    desk = Desk(at_once=1)
    for name in "abc":
        await desk.come(name)
    desk.tasks["b"].cancel()
    await desk.settle()
    await desk.leave("a")
    assert desk.through == ["a", "c"]
    await desk.leave("c")
    await desk.come("d")
    assert desk.through == ["a", "c", "d"]


async def test_a_waiter_cancelled_when_it_gets_its_slot_returns_the_slot() -> None:
    desk = Desk(at_once=1)
    for name in "abc":
        await desk.come(name)
    desk._go["a"].set()
    await asyncio.sleep(0)
    desk.tasks["b"].cancel()
    await desk.settle()
    await desk.leave("b")
    await desk.leave("c")
    await desk.come("d")
    assert desk.through[-1] == "d"


async def test_the_call_rate_is_counted_for_all_callers_and_for_each() -> None:
    desk = Desk(rate=2, rate_per_caller=1)
    await desk.come("a1", "a")
    await desk.come("a2", "a")
    assert desk.refused("a2") == pytest.approx(1)
    await desk.come("b1", "b")
    await desk.come("c1", "c")
    assert desk.refused("c1") == pytest.approx(0.5)
    desk.clock.now = 1
    await desk.come("a3", "a")
    assert desk.through == ["a1", "b1", "a3"]


async def test_a_call_takes_one_token_for_all_its_attempts() -> None:
    gone = {
        "command": sys.executable,
        "args": ["-c", ""],
        "retry": {"attempts": 3, "backoff": 0.01, "max_backoff": 0.02},
    }
    config = {"servers": {"fake": fake(limits={"rate": 0.001}), "gone": {**gone, "limits": {"rate_per_caller": 0.001}}}}
    async with Hub(config) as program, asyncio.timeout(PATIENCE):  # each first call connects the server, and is tried
        assert (await program.call("fake", "echo", {"text": "x"}))["content"][0]["text"] == "x"
        failed = await program.call("gone", "echo", {"text": "x"})
        assert failed["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        for server in ("fake", "gone"):
            refused = await program.call(server, "echo", {"text": "x"})
            assert refused["_meta"]["mcp-hub/error"]["code"] == "overloaded"


async def test_too_many_concurrent_calls_are_overloaded_with_a_retry_time(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake(limits={"at_once": 1, "waiting": 0}), "b": fake()}) as client:
        await client.tool_names()
        first = client.start("tools/call", {"name": "a__sleep", "arguments": {"seconds": 20}}, "first")
        second = await client.call("a__echo", {"text": "x"})
        facts = second["_meta"]["mcp-hub/error"]
        assert (facts["code"], facts["retryable"]) == ("overloaded", True)
        assert facts["retry_after"] > 0
        assert await client.text("b__echo", {"text": "x"}) == "x"
        client.notify("notifications/cancelled", {"requestId": "first"})
        async with asyncio.timeout(PATIENCE):
            while (await client.call("a__echo", {"text": "x"})).get("isError"):
                pass
        first.cancel()


async def test_one_caller_does_not_take_all_slots(tmp_path: Path) -> None:
    limits = {"at_once": 2, "per_caller": 1, "waiting": 0}
    record = tmp_path / "record"
    async with (
        network_hub(tmp_path / "hub", {"a": fake("--record", str(record), limits=limits)}) as (_, base),
        sdk(base + "/mcp", "handshake") as first,
        sdk(base + "/mcp", "handshake") as second,
    ):
        async with asyncio.timeout(PATIENCE):
            sleeping = asyncio.ensure_future(first.call_tool("a__sleep", {"seconds": 20}))
            while b'"sleep"' not in record.read_bytes():
                assert not (await second.call_tool("a__echo", {"text": "x"})).is_error
            refused = await first.call_tool("a__echo", {"text": "x"})
            assert refused.meta is not None
            assert refused.meta["mcp-hub/error"]["code"] == "overloaded"
            assert not (await second.call_tool("a__echo", {"text": "x"})).is_error
            sleeping.cancel()
            await asyncio.wait([sleeping])
