"""The breaker: its table, one probe at a time, and what it looks like from a client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_hub.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.errors import CallError, Overloaded, ServerUnavailable, UpstreamAnswered
from mcp_hub.policy import Call, Json
from mcp_hub.policy.breaker import BreakerSettings as Rules
from mcp_hub.policy.breaker import CircuitBreaker, CircuitOpen, CircuitState
from mcp_hub.policy.retry import RetryPolicy, RetrySettings
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.client import PATIENCE, fake, free_port, hub
from tests.policy.tries.counted import counting, counting_http, written

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def call() -> Call:
    return Call("tools/call", "a__t", Route("a", TOOLS, "t"), {"name": "t"}, "handshake", Envelope())


def breaker(clock: Clock, failures: int = 2) -> CircuitBreaker:
    rules = {"breaker": Rules(failures=failures, cooldown=10)}
    server = Server(id="a", transport="stdio", command="x", namespace="a", settings=rules)
    return CircuitBreaker({"a": server}, clock)


async def outcome(policy: CircuitBreaker, error: BaseException | None = None) -> str:
    """What becomes of a call whose upstream answers, or raises `error`: `ok` or the name of the exception."""

    async def answer(_: Call) -> Json:
        if error is not None:
            raise error
        return {"content": []}

    try:
        await policy(call(), answer)
    except (CallError, UpstreamAnswered, asyncio.CancelledError) as raised:
        return type(raised).__name__
    return "ok"


LOST = ServerUnavailable("gone", server="a")
NO = UpstreamAnswered({"code": -32050, "message": "no"})


async def test_a_breaker_opens_after_failures_in_a_row_and_closes_after_a_probe() -> None:
    clock = Clock()
    policy = breaker(clock)
    assert [await outcome(policy, error) for error in (LOST, None, LOST, NO, LOST)] == [
        "ServerUnavailable", "ok", "ServerUnavailable", "UpstreamAnswered", "ServerUnavailable",
    ]  # fmt: skip
    assert policy.state("a") is CircuitState.CLOSED
    assert await outcome(policy, LOST) == "ServerUnavailable"
    assert policy.state("a") is CircuitState.OPEN
    assert await outcome(policy) == "CircuitOpen"
    clock.now = 9.9
    assert await outcome(policy) == "CircuitOpen"
    clock.now = 10
    assert await outcome(policy, LOST) == "ServerUnavailable"
    assert policy.state("a") is CircuitState.OPEN
    clock.now = 19.9
    assert await outcome(policy) == "CircuitOpen"
    clock.now = 20
    assert await outcome(policy) == "ok"
    assert policy.state("a") is CircuitState.CLOSED
    assert await outcome(policy, LOST) == "ServerUnavailable"
    assert policy.state("a") is CircuitState.CLOSED


async def test_attempts_that_a_person_asked_for_pass_the_breaker_that_they_open() -> None:
    policy, retrying = breaker(Clock()), call()
    settings = RetrySettings.model_validate({"attempts": 4, "backoff": 0.001})
    server = Server(id="a", transport="stdio", command="x", namespace="a", settings={"retry": settings})
    attempts: list[CircuitState] = []

    async def answer(_: Call) -> Json:
        attempts.append(policy.state("a"))
        if len(attempts) < 4:
            raise LOST
        assert await outcome(policy) == "CircuitOpen"  # of another call
        return {"content": []}

    retry = RetryPolicy({"a": server}, lambda _: {"readOnlyHint": True})
    await retry(retrying, lambda again: policy(again, answer))
    assert attempts == [CircuitState.CLOSED] * 2 + [CircuitState.OPEN] * 2
    assert policy.state("a") is CircuitState.CLOSED
    assert [note for note in retrying.notes if note.startswith("breaker")] == ["breaker: open after 2 failures"]


@pytest.mark.parametrize("error", [Overloaded("full", server="a"), asyncio.CancelledError()])
async def test_an_inconclusive_probe_lets_the_next_call_probe(error: BaseException) -> None:
    clock = Clock()
    policy = breaker(clock, 1)
    await outcome(policy, LOST)
    clock.now = 10
    assert await outcome(policy, error) == type(error).__name__
    assert policy.state("a") is CircuitState.HALF_OPEN
    assert await outcome(policy) == "ok"
    assert policy.state("a") is CircuitState.CLOSED


async def test_only_one_of_many_concurrent_calls_is_the_probe() -> None:
    clock = Clock()
    policy = breaker(clock, 1)
    await outcome(policy, LOST)
    clock.now = 10
    attempts = 0
    released = asyncio.Event()

    async def answer(_: Call) -> Json:
        nonlocal attempts
        attempts += 1
        await released.wait()
        return {}

    calls = [asyncio.ensure_future(policy(call(), answer)) for _ in range(50)]
    async with asyncio.timeout(PATIENCE):
        refused, _ = await asyncio.wait(calls[1:])
        released.set()
        await calls[0]
    assert attempts == 1
    for task in refused:
        error = task.exception()
        assert isinstance(error, CircuitOpen)
        assert error.retry_after is not None


async def test_transport_failures_open_the_breaker_and_it_recovers_after_the_cool_down(tmp_path: Path) -> None:
    """Check 25."""
    port = free_port()
    rules = {"breaker": {"failures": 3, "cooldown": "500ms"}, "retry": "off"}
    entry = {"url": f"http://127.0.0.1:{port}/mcp", "transport": "http", "era": "handshake", **rules}
    async with counting_http(tmp_path, "500", "500", "500", port=port), hub(tmp_path, {"c": entry}) as client:
        codes = [(await client.call("c__read"))["_meta"]["mcp-hub/error"]["code"] for _ in range(3)]
        assert codes == ["server_unavailable"] * 3
        opened = await client.call("c__read")
        facts = opened["_meta"]["mcp-hub/error"]
        assert (facts["code"], facts["retryable"]) == ("circuit_open", True)
        assert facts["retry_after"] > 0
        assert written(tmp_path, "got read") == 3
        async with asyncio.timeout(PATIENCE):
            while (await client.call("c__read")).get("isError"):
                pass
        assert written(tmp_path, "got read") == 4


async def test_error_responses_of_a_server_never_open_the_breaker(tmp_path: Path) -> None:
    """Check 25, its second half."""
    faults = ["error"] * 6
    async with hub(tmp_path, {"c": counting(tmp_path, *faults, breaker={"failures": 2})}) as client:
        for _ in faults:
            assert (await client.call("c__read"))["content"][0]["text"] == "the tool says no"
        assert await client.text("c__read") == "read done"


async def test_deadlines_and_invalid_arguments_never_open_the_breaker(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake(timeout="200ms", breaker={"failures": 1})}) as client:
        for _ in range(2):
            late = await client.call("a__sleep", {"seconds": 10})
            assert late["_meta"]["mcp-hub/error"]["code"] == "timeout"
        assert await client.text("a__echo", {"text": "x"}) == "x"


async def test_a_server_that_refuses_requests_by_http_is_alive_and_gets_further_calls(tmp_path: Path) -> None:
    faults = ("500", "400", "500", "409", "500", "422")
    async with counting_http(tmp_path, *faults) as url:
        entry = {"url": url, "transport": "http", "era": "handshake", "breaker": 2}
        async with hub(tmp_path, {"c": entry}) as client:
            for _ in faults:
                answer = await client.call("c__effect")
                assert answer["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
            assert await client.text("c__effect") == "effect done"
