"""A call with effects is executed at most once under every fault; one that may be repeated is, and succeeds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from mcp_hub.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.errors import ServerUnavailable
from mcp_hub.policy import Call, Json
from mcp_hub.policy.retry import RetryPolicy, RetrySettings
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.client import PATIENCE, fake, free_port, hub
from tests.policy.tries.counted import FAST, counting, counting_http, written

pytestmark = pytest.mark.anyio

OVER_STDIO = ("die-before", "die-after", "error", "rpc-error")
OVER_HTTP = (
    "303",
    "400",
    "408",
    "409",
    "422",
    "429",
    "500",
    "503",
    "reset-before",
    "reset-after",
    "cut",
    "error",
    "rpc-error",
)


@pytest.mark.parametrize("fault", OVER_STDIO)
async def test_over_stdio_a_tool_with_effects_is_executed_at_most_once(tmp_path: Path, fault: str) -> None:
    async with hub(tmp_path, {"c": counting(tmp_path, fault)}) as client:
        await client.start("tools/call", {"name": "c__effect", "arguments": {}})
        assert await client.text("c__pid")
    assert written(tmp_path, "did effect") <= 1


@pytest.mark.parametrize("fault", OVER_HTTP)
async def test_over_http_a_tool_with_effects_is_executed_at_most_once(tmp_path: Path, fault: str) -> None:
    async with counting_http(tmp_path, fault) as url:
        servers = {"c": {"url": url, "transport": "http", "era": "handshake", **FAST}}
        async with hub(tmp_path, servers) as client:
            await client.start("tools/call", {"name": "c__effect", "arguments": {}})
            assert await client.text("c__other") == "other done"
    assert written(tmp_path, "did effect") <= 1


async def test_over_http_a_tool_with_effects_is_repeated_if_its_call_was_refused_unread(tmp_path: Path) -> None:
    async with counting_http(tmp_path, "413") as url:
        servers = {"c": {"url": url, "transport": "http", "era": "handshake", **FAST}}
        async with hub(tmp_path, servers) as client:
            assert await client.text("c__effect") == "effect done"
    assert written(tmp_path, "did effect") == 1


async def test_over_sse_a_call_ends_with_its_answer_although_its_post_ends_late_or_with_an_error(
    tmp_path: Path,
) -> None:
    """Like servlets of the Java SDK, the server answers a POST after its work, behind a proxy that gives up."""
    async with counting_http(tmp_path, *(f"late-{status}" for status in (200, 500, 504, 200, 500, 200))) as url:
        deadlines = {"write": 0.1}  # all calls are longer
        servers = {"c": {"url": url.replace("/mcp", "/sse"), "transport": "sse", "deadlines": deadlines, **FAST}}
        async with hub(tmp_path, servers) as client:
            for _ in range(6):  # more than the failures that open the breaker
                assert await client.text("c__read") == "read done"
    assert written(tmp_path, "got read") == 6


@pytest.mark.parametrize("tool", ["read", "idem"])
@pytest.mark.parametrize("fault", ["die-before", "die-after"])
async def test_over_stdio_repeatable_calls_are_retried_and_succeed(tmp_path: Path, tool: str, fault: str) -> None:
    async with hub(tmp_path, {"c": counting(tmp_path, fault)}) as client:
        assert await client.text(f"c__{tool}") == f"{tool} done"
    assert written(tmp_path, f"got {tool}") == 2


@pytest.mark.parametrize("fault", ["429", "500", "503", "reset-before", "reset-after", "cut"])
async def test_over_http_repeatable_calls_are_retried_and_succeed(tmp_path: Path, fault: str) -> None:
    async with counting_http(tmp_path, fault) as url:
        servers = {"c": {"url": url, "transport": "http", "era": "handshake", **FAST}}
        async with hub(tmp_path, servers) as client:
            assert await client.text("c__read") == "read done"
    assert written(tmp_path, "got read") == 2


async def test_reading_a_resource_is_retried(tmp_path: Path) -> None:
    async with hub(tmp_path, {"c": counting(tmp_path, "die-after")}) as client:
        assert (await client.request("resources/read", {"uri": "count://one"}))["contents"][0]["text"] == "one"


async def test_a_call_is_repeated_if_its_server_ended_before_the_call_was_sent(tmp_path: Path) -> None:
    """The server ends when it is told what to log, which the hub does before the call."""
    async with hub(tmp_path, {"c": counting(tmp_path, "die-before")}, modern=True) as client:
        params = {"_meta": {"io.modelcontextprotocol/logLevel": "debug"}}
        result = await client.call("c__effect", **params)
    assert result["content"][0]["text"] == "effect done"
    assert written(tmp_path, "got effect") == 1


async def test_the_configuration_decides_which_calls_may_be_retried(tmp_path: Path) -> None:
    rules = {"other": {"retry": True}, "read": {"retry": False}}
    retry = {"attempts": 3, "backoff": 0.01, "tools": ["ef*"]}
    faults = ("die-after", "die-after", "ok", "die-after")
    async with hub(tmp_path, {"c": counting(tmp_path, *faults, tools=rules, retry=retry)}) as client:
        assert await client.text("c__effect") == "effect done"
        failed = await client.call("c__read")
        assert failed["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
    assert written(tmp_path, "got effect") == 3
    assert written(tmp_path, "got read") == 1


async def test_a_call_succeeds_after_two_503_responses(tmp_path: Path) -> None:
    """Check 24."""
    port = free_port()
    async with counting_http(tmp_path, "503", "503", port=port) as url:
        servers = {
            "c": {"url": url, "transport": "http", "era": "handshake", "retry": {"attempts": 3, "backoff": 0.01}}
        }
        async with hub(tmp_path, servers) as client:
            assert await client.text("c__read") == "read done"
    assert written(tmp_path, "got read") == 3


async def test_a_call_answered_with_an_error_is_not_retried(tmp_path: Path) -> None:
    async with hub(tmp_path, {"c": counting(tmp_path, "error")}) as client:
        assert (await client.call("c__read"))["isError"] is True
    assert written(tmp_path, "got read") == 1


@pytest.mark.parametrize(("written", "made"), [({}, 2), ({"attempts": 7}, 7)])
async def test_a_call_to_a_killed_server_makes_the_attempts_that_are_written_also_if_starts_fail(
    tmp_path: Path, written: dict[str, int], made: int
) -> None:
    dead, journal, calls = tmp_path / "dead", tmp_path / "journal", tmp_path / "calls"
    retry = {"backoff": 0.01, "max_backoff": 0.02, **written}
    up = fake("--die-if", str(dead), "--journal", str(journal), retry=retry, breaker={"cooldown": "100ms"})
    async with hub(tmp_path, {"up": up}, call_log=str(calls)) as client:
        pid = int(await client.text("up__pid"))
        dead.touch()
        os.kill(pid, signal.SIGKILL)
        failed = await client.call("up__echo", {"text": "x"})
        assert failed["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert "not now" in failed["content"][0]["text"]  # why it does not start
        dead.unlink()
        async with asyncio.timeout(PATIENCE):  # the supervisor goes on by itself
            while (await client.call("up__echo", {"text": "x"})).get("isError"):
                pass
    record = next(entry for entry in map(json.loads, calls.read_text().splitlines()) if entry["code"] is not None)
    assert record["attempts"] == made


async def test_retries_that_the_server_postpones_too_far_cost_nothing_of_the_budget() -> None:
    settings = RetrySettings.model_validate({"attempts": 2, "max_backoff": 1, "budget": 0.01})
    server = Server(id="a", transport="stdio", command="x", namespace="a", settings={"retry": settings})
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    policy = RetryPolicy({"a": server}, lambda route: {"readOnlyHint": True}, sleep=sleep)

    async def attempts_of(retry_after: float) -> int:
        attempts = 0

        async def fail(_: Call) -> Json:
            nonlocal attempts
            attempts += 1
            raise ServerUnavailable("away", server="a", retry_after=retry_after)

        with pytest.raises(ServerUnavailable):
            await policy(Call("tools/call", "t", Route("a", TOOLS, "t"), {}, "handshake", Envelope(), "one"), fail)
        return attempts

    assert {await attempts_of(60.0) for _ in range(30)} == {1}
    assert slept == []
    assert await attempts_of(0.5) == 2
