"""Every call becomes one record, and nothing a rule does wrong reaches further than its own call."""

import asyncio
import json
import threading
from typing import Any

import pytest

from mcp_hub.catalog import Route
from mcp_hub.errors import (
    CallCancelled,
    DeadlineExceeded,
    InternalError,
    InvalidParameters,
    Overloaded,
    ResultTooLarge,
    ServerUnavailable,
    ToolFailed,
    UpstreamAnswered,
)
from mcp_hub.policy import Call, Chain, Json, Next, Policy, unknown_name
from mcp_hub.policy.breaker import CircuitOpen
from mcp_hub.policy.call_record import approximate_size
from mcp_hub.policy.guard import GuardBlocked
from mcp_hub.policy.trace import Trace
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.frames import LARGE
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from mcp_hub.security import PEER
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.security.redaction import Redactor
from tests.fakes.callers import a_principal
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio

SECRET = "canary-secret-value"
OK: Json = {"content": [{"type": "text", "text": "fine"}]}


class Doing(Policy):
    """A policy that does what it is told."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    async def __call__(self, call: Call, call_next: Next) -> Json:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        if self.outcome is not None:
            return self.outcome  # type: ignore[no-any-return]
        return await call_next(call)


def a_call(arguments: Any = None, **fields: Any) -> Call:
    params = {"name": "echo", **({} if arguments is None else {"arguments": arguments})}
    envelope = Envelope(client_info={"name": "tester"})
    return Call("tools/call", "up__echo", Route("up", TOOLS, "echo"), params, "handshake", envelope, **fields)


class Traced:
    """A chain of a Trace and one more policy."""

    def __init__(self, outcome: Any = None, **options: Any) -> None:
        self.records: list[Json] = []
        self.ticks = 0.0
        self.trace = Trace(
            self.records.append, Redactor([SECRET]), clock=self.clock, now=lambda: 1_700_000_000.125, **options
        )
        self.chain = Chain((self.trace, Doing(outcome)), self.upstream)

    def clock(self) -> float:
        self.ticks += 0.25
        return self.ticks

    async def upstream(self, call: Call) -> Json:
        call.attempts += 1
        return OK

    async def run(self, call: Call) -> Json:
        """The result, its record made."""
        try:
            return await self.chain.run(call)
        finally:
            await asyncio.sleep(0)  # records are made when the answer is on its way

    async def record(self, call: Call) -> Json:
        with pytest.raises(BaseException) as caught:
            await self.run(call)
        self.error = caught.value
        (record,) = self.records
        return record


async def test_a_call_is_recorded_with_its_route_and_its_outcome() -> None:
    traced = Traced()
    call = a_call({"text": "hello", "api_key": "abc"})
    call.notes.append(f"preset: token {SECRET}")
    assert await traced.run(call) is OK
    (record,) = traced.records
    assert record.pop("id").endswith("-1")
    size_in, size_out = record.pop("bytes_in"), record.pop("bytes_out")
    assert abs(size_in - len(json.dumps(call.params["arguments"]))) < 8
    assert abs(size_out - len(json.dumps(OK))) < 8
    assert record == {
        "event": "call",
        "time": "2023-11-14T22:13:20.125Z",
        "caller": "only",
        "client": "tester",
        "era": "handshake",
        "method": "tools/call",
        "name": "up__echo",
        "upstream": "up",
        "tool": "echo",
        "verdict": "ok",
        "code": None,
        "policy": None,
        "attempts": 1,
        "fallback": None,
        "duration_ms": 250.0,
        "notes": ["preset: token ***"],
        "arguments": {"text": "hello", "api_key": "***"},
    }


@pytest.mark.parametrize(
    ("error", "verdict", "code", "policy"),
    [
        (unknown_name(TOOLS, "up__echo", "handshake"), "refused", -32602, "access"),
        (InvalidParameters("a is missing"), "refused", "invalid_parameters", "validate"),
        (GuardBlocked("no"), "refused", "guard_blocked", "guard"),
        (CircuitOpen("no"), "refused", "circuit_open", "breaker"),
        (Overloaded("no"), "refused", "overloaded", "limits"),
        (DeadlineExceeded("late"), "error", "timeout", "deadline"),
        (TimeoutError(), "error", "timeout", "deadline"),
        (ResultTooLarge("big"), "error", "result_too_large", "shape-result"),
        (ToolFailed("oh"), "error", "tool_error", "shape-result"),
        (ServerUnavailable("gone"), "error", "server_unavailable", None),
        (UpstreamAnswered({"code": -32050, "message": "no"}), "error", -32050, None),
        (asyncio.CancelledError(), "cancelled", "cancelled", None),
        (CallCancelled("bye"), "cancelled", "cancelled", None),
    ],
)
async def test_every_outcome_is_recorded_and_reaches_the_caller(
    error: BaseException, verdict: str, code: Any, policy: str | None
) -> None:
    traced = Traced(error)
    record = await traced.record(a_call({}))
    assert (record["verdict"], record["code"], record["policy"]) == (verdict, code, policy)
    assert traced.error is error


async def test_a_tool_error_result_is_recorded_with_the_verdict_tool_error() -> None:
    failed = {**OK, "isError": True}
    traced = Traced(failed)
    assert await traced.run(a_call({})) is failed
    assert traced.records[0]["verdict"] == "tool_error"


async def test_an_unexpected_exception_fails_one_call_and_logs_one_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    traced = Traced(ZeroDivisionError("oh"))
    record = await traced.record(a_call({}))
    assert isinstance(traced.error, InternalError)
    assert "oh" not in traced.error.message
    assert (record["verdict"], record["code"]) == ("error", "internal")
    assert ["Traceback" in entry.getMessage() for entry in caplog.records] == [True]
    traced.chain.policies[1].outcome = None  # type: ignore[attr-defined]
    assert await traced.run(a_call({})) is OK


async def test_a_failing_record_sink_fails_no_call() -> None:
    def broken(record: Json) -> None:
        raise OSError("full")

    chain = Chain((Trace(broken, Redactor()),), Traced().upstream)
    assert await chain.run(a_call({})) is OK
    await asyncio.sleep(0)


async def test_errors_are_redacted_and_otherwise_unchanged() -> None:
    error = {"code": -1, "message": f"bad key {SECRET}", "data": [SECRET], "extra": 1}
    traced = Traced(UpstreamAnswered(error))
    record = await traced.record(a_call({}))
    assert isinstance(traced.error, UpstreamAnswered)
    assert traced.error.error == {"code": -1, "message": "bad key ***", "data": ["***"], "extra": 1}
    assert SECRET not in json.dumps(record)
    failed = {"content": [{"type": "text", "text": SECRET}], "isError": True, "more": 1}
    result = await Traced(failed).chain.run(a_call({}))
    assert result == {"content": [{"type": "text", "text": "***"}], "isError": True, "more": 1}
    traced = Traced(ServerUnavailable(f"it said {SECRET}"))
    await traced.record(a_call({}))
    assert SECRET not in str(traced.error)


@pytest.mark.parametrize("size", [100, LARGE + 1])
async def test_an_error_of_any_size_is_redacted(size: int) -> None:
    text = f"{'x' * size} {SECRET} {SECRET.encode().hex()}"
    traced = Traced({"content": [{"type": "text", "text": text}], "isError": True})
    result = await traced.chain.run(a_call())
    assert result["content"][0]["text"] == f"{'x' * size} *** ***"
    failing = Traced(UpstreamAnswered({"code": -32000, "message": text}))
    with pytest.raises(UpstreamAnswered) as caught:
        await failing.chain.run(a_call())
    assert caught.value.error["message"] == f"{'x' * size} *** ***"


async def test_a_call_that_is_cancelled_while_its_error_is_redacted_is_recorded() -> None:
    traced = Traced(UpstreamAnswered({"code": -32000, "message": "x" * (LARGE + 1)}))
    running = asyncio.ensure_future(traced.chain.run(a_call()))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0)
    assert [record["verdict"] for record in traced.records] == ["cancelled"]


async def test_a_successful_result_passes_unredacted() -> None:
    result = {"content": [{"type": "text", "text": SECRET}]}
    assert await Traced(result).chain.run(a_call({})) is result


async def test_an_unknown_name_is_recorded_with_the_rule_that_hides_it() -> None:
    traced = Traced()
    traced.trace.unknown("tools/call", "up__x", "handshake", SOLE, "blacklist")
    traced.trace.unknown("resources/read", "a://b?token=abc", "handshake", Caller(), "unknown")
    hidden, unlisted = traced.records
    assert (hidden["verdict"], hidden["code"], hidden["policy"], hidden["reason"]) == (
        "refused",
        -32602,
        "access",
        "blacklist",
    )
    assert (unlisted["code"], unlisted["policy"], unlisted["reason"]) == (-32002, None, "unknown")
    assert unlisted["name"] == "a://b?token=***"


async def test_a_caller_has_one_anonymous_label() -> None:
    traced = Traced()
    first, second = Caller(), Caller()
    principals = [a_principal(name) for name in ("", "alice@example.org", "alice@example.org")]
    for caller in (first, second, first, *principals, SOLE):
        await traced.run(a_call({}, caller=caller))
    labels = [record["caller"] for record in traced.records]
    assert labels[0] == labels[2] != labels[1]
    assert labels[4] == labels[5]
    assert labels[3] == "anonymous"
    assert labels[6] == "only"
    assert "alice" not in "".join(labels)


async def test_arguments_can_be_left_out_and_a_trace_without_a_sink_writes_nothing() -> None:
    traced = Traced(arguments=False)
    await traced.run(a_call({"text": "x"}))
    assert "arguments" not in traced.records[0]
    assert await Chain((Trace(None, Redactor()),), traced.upstream).run(a_call({})) is OK


async def test_names_notes_and_errors_are_bounded() -> None:
    traced = Traced(ServerUnavailable("x" * 100_000))
    call = a_call({"a": "x" * 100_000})
    call.exposed = "n" * 100_000
    call.notes.extend(["note " * 1000] * 100)
    record = await traced.record(call)
    assert len(json.dumps(record)) < 12_000


async def test_the_kind_of_a_record_follows_from_the_method() -> None:
    traced = Traced()
    route = Route("up", RESOURCES, "a://b")
    await traced.run(Call("resources/read", "a://b", route, {"uri": "a://b"}, "modern", Envelope()))
    (record,) = traced.records
    assert (record["method"], record["era"], record["bytes_in"]) == ("resources/read", "modern", 0)
    assert "arguments" not in record


@pytest.mark.parametrize(
    "value",
    [
        {"content": [{"type": "text", "text": "x" * 100_000}]},
        {"rows": [{"id": n, "name": "row", "ok": True} for n in range(50_000)]},
        [[["abc"] * 50] * 50] * 50,
        {},
        "text",
    ],
)
def test_the_size_of_a_value_is_estimated_to_within_a_half(value: Any) -> None:
    assert len(json.dumps(value, separators=(",", ":"))) / 2 <= approximate_size(value) + 4
    assert approximate_size(value) <= len(json.dumps(value)) * 1.5 + 4


def test_the_size_of_a_deeply_nested_value_is_estimated() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert approximate_size(deep) > 0


async def test_large_arguments_are_prepared_for_the_record_in_a_thread() -> None:
    records: list[Json] = []
    threads: list[int] = []

    def prepared(call: Call, arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return arguments

    trace = Trace(records.append, Redactor(), shown=prepared)
    for arguments in ({"a": 1}, {f"a{number}": number for number in range(LARGE)}):
        assert await Chain((trace, Doing(OK)), Traced().upstream).run(a_call(arguments)) == OK
        await asyncio.sleep(0)
        await trace.close()
    assert [record["verdict"] for record in records] == ["ok", "ok"]
    main_thread = threading.get_ident()
    assert [thread == main_thread for thread in threads] == [True, False]


async def test_calls_that_end_together_are_all_recorded_each_with_its_own_peer() -> None:
    records: list[Json] = []
    trace = Trace(records.append, Redactor())
    chain = Chain((trace, Doing(OK)), Traced().upstream)

    async def call_as(peer: str) -> None:
        PEER.set(peer)
        await chain.run(a_call())

    peers = [f"peer {number}" for number in range(500)]
    await asyncio.gather(*map(call_as, peers))
    async with asyncio.timeout(PATIENCE):
        while len(records) < len(peers):
            await asyncio.sleep(0)
    assert [record["peer"] for record in records] == peers


async def test_a_call_that_ends_just_before_the_hub_is_recorded() -> None:
    records: list[Json] = []
    trace = Trace(records.append, Redactor())
    await Chain((trace, Doing(OK)), Traced().upstream).run(a_call())
    await trace.close()
    assert [record["verdict"] for record in records] == ["ok"]
