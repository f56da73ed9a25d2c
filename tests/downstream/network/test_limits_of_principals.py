"""What one principal takes is not taken from the others: sessions, requests, calls a second, places in a queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog import Route
from mcp_hub.config.listen import CallerLimits, Listen, NamedPrincipal
from mcp_hub.config.models import Server
from mcp_hub.errors import Overloaded
from mcp_hub.policy import Call, Json
from mcp_hub.policy import quotas as quotas_module
from mcp_hub.policy.limits import LimitSettings as Rules
from mcp_hub.policy.limits import LimitsPolicy
from mcp_hub.policy.quotas import Quotas
from mcp_hub.protocol.era import LISTEN, Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import Principal
from mcp_hub.security.callers import Callers
from tests.downstream.network.visitor import ERAS, TOKENS, Visitor, bearer, network_hub, visiting
from tests.fakes.client import ENVELOPE, MODERN, PATIENCE, fake, hub

pytestmark = pytest.mark.anyio

BOTH = {"accept": "application/json, text/event-stream"}
ALICE, BOB = Principal("alice", label="alice"), Principal("bob", label="bob")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def quotas(own: dict[str, Any] | None = None, **limits: Any) -> tuple[Quotas, Clock]:
    """Quotas and their clock, with the limits `own` for alice alone."""
    clock = Clock()
    alice = NamedPrincipal(token="t" * 32, limits=CallerLimits(**own) if own is not None else None)
    return Quotas(Listen(principals={"alice": alice}, limits=CallerLimits(**limits)), clock), clock


def waits(quotas: Quotas, principal: Principal, method: str = "tools/call") -> float | None:
    """The seconds after which to retry, or None if the request is accepted; it ends at once."""
    try:
        quotas.enter(principal, method)()
    except Overloaded as error:
        return error.retry_after
    return None


def test_the_call_rate_is_counted_for_each_principal() -> None:
    limiter, clock = quotas(rate=2, burst=3)
    assert [waits(limiter, ALICE) for _ in range(4)] == [None, None, None, 0.5]
    assert waits(limiter, BOB) is None
    clock.now = 0.5
    assert [waits(limiter, ALICE) for _ in range(2)] == [None, 0.5]
    clock.now = 100.0
    assert [waits(limiter, ALICE) is None for _ in range(4)] == [True, True, True, False]


def test_a_changed_rate_applies_to_principals_that_were_seen_before() -> None:
    limiter, clock = quotas(rate=1)
    assert [waits(limiter, ALICE) for _ in range(2)] == [None, 1.0]
    limiter.take(Listen(limits=CallerLimits(rate=1)))
    assert waits(limiter, ALICE) == 1.0  # what is unchanged goes on
    limiter.take(Listen(limits=CallerLimits(rate=10, burst=1)))
    clock.now = 0.1
    assert [waits(limiter, ALICE) for _ in range(2)] == [None, 0.1]


def test_a_principal_may_override_the_limits() -> None:
    limiter, _ = quotas({"rate": 100, "calls": 1}, rate=1, calls=9)
    assert [waits(limiter, ALICE) for _ in range(3)] == [None] * 3
    assert [waits(limiter, BOB) is None for _ in range(2)] == [True, False]
    # One who is verified and happens to be called so is somebody else.
    limiter, _ = quotas({"rate": 100, "calls": 1}, rate=1, calls=9)
    assert [waits(limiter, Principal("alice")) is None for _ in range(2)] == [True, False]


@pytest.mark.parametrize("method", ["initialize", "ping", "server/discover", "tools/list", "resources/list"])
def test_requests_of_a_starting_client_are_not_counted_as_calls(method: str) -> None:
    limiter, _ = quotas(rate=1)
    assert [waits(limiter, ALICE, method) for _ in range(50)] == [None] * 50


def test_streams_use_no_slot_but_count_against_the_rate() -> None:
    limiter, _ = quotas(rate=1, burst=2, calls=1)
    assert [waits(limiter, ALICE, LISTEN) is None for _ in range(3)] == [True, True, False]
    assert limiter.enter(BOB, LISTEN)() is None
    assert waits(limiter, BOB) is None


def test_open_subscriptions_use_sessions() -> None:
    limiter, _ = quotas(calls=1, sessions=2)
    leave = [limiter.enter(ALICE, LISTEN) for _ in range(2)]
    assert waits(limiter, ALICE, LISTEN) == quotas_module.SESSION_AGAIN
    with pytest.raises(Overloaded):
        limiter.open_session(ALICE)
    assert [waits(limiter, ALICE), waits(limiter, BOB, LISTEN)] == [None, None]
    leave[0]()
    assert waits(limiter, ALICE, LISTEN) is None
    leave[1]()
    assert not limiter._sessions
    assert not limiter._listening


def test_the_calls_and_rate_buckets_of_all_principals_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "MAX_CALLS", 3)
    monkeypatch.setattr(quotas_module, "MAX_PRINCIPALS", 3)
    limiter, _ = quotas(calls=2, rate=1000)
    leave = [limiter.enter(principal, "tools/call") for principal in (ALICE, ALICE, BOB)]
    assert waits(limiter, BOB) == 1.0
    leave[0]()
    assert waits(limiter, BOB) is None
    for number in range(10):
        waits(limiter, Principal(str(number)))
    assert len(limiter._buckets) == 3


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60),
    calls=st.integers(1, 4),
    sessions=st.integers(1, 4),
)
def test_no_principal_ever_exceeds_its_share_and_counts_return_to_zero(
    steps: list[tuple[str, bool]], calls: int, sessions: int
) -> None:
    limiter, _ = quotas(calls=calls, sessions=sessions)
    running: dict[str, list[Any]] = {name: [] for name in "abc"}
    for name, is_arrival in steps:
        if not is_arrival:
            if running[name]:
                running[name].pop()()
                limiter.close_session(Principal(name))
            continue
        full = len(running[name]) >= min(calls, sessions)
        try:
            limiter.open_session(Principal(name))
        except Overloaded:
            assert len(running[name]) >= sessions
            continue
        try:
            running[name].append(limiter.enter(Principal(name), "tools/call"))
        except Overloaded:
            limiter.close_session(Principal(name))
            assert len(running[name]) >= calls
            continue
        assert not full
    for name, leaving in running.items():
        for leave in leaving:
            leave()
            limiter.close_session(Principal(name))
    assert not limiter._running
    assert not limiter._sessions


# --- concurrency slots of one server ----------------------------------------------------------------------------


class Desk:
    """One server; each call runs until `finish`."""

    def __init__(self, **rules: Any) -> None:
        limits = {"limits": Rules.model_validate(rules)}
        server = Server(id="a", transport="stdio", command="x", namespace="a", settings=limits)
        self.policy = LimitsPolicy({"a": server}, Clock())
        self._callers = Callers()
        self.admitted: list[str] = []
        self._finished: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[Json]] = {}

    async def arrive(self, *names: str) -> None:
        """Starts a call of each name; the first letter of a name is its principal."""
        for name in names:
            self._finished[name] = asyncio.Event()
            route = Route("a", TOOLS, name)
            call = Call("tools/call", name, route, {}, "modern", Envelope(), self._callers.of(Principal(name[0])))
            self.tasks[name] = asyncio.ensure_future(self.policy(call, self._answer))
            await self.settle()

    async def _answer(self, call: Call) -> Json:
        self.admitted.append(call.exposed)
        await self._finished[call.exposed].wait()
        return {}

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    async def finish(self, name: str) -> None:
        self._finished[name].set()
        async with asyncio.timeout(PATIENCE):
            await self.tasks[name]
        await self.settle()

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def test_queued_calls_of_two_principals_are_served_in_turn() -> None:
    desk = Desk(at_once=2)
    await desk.arrive("a1", "a2", "a3", "a4", "a5", "b1", "b2")
    assert desk.admitted == ["a1", "a2"]
    await desk.finish("a1")
    assert desk.admitted[2:] == ["b1"], "b has no place, a has one"
    await desk.finish("b1")
    assert desk.admitted[3:] == ["b2"]
    await desk.finish("a2")
    assert desk.admitted[4:] == ["a3"], "b has one, a has none"
    await desk.finish("b2")
    await desk.finish("a3")
    assert desk.admitted[5:] == ["a4", "a5"]
    await desk.close()


async def test_a_full_queue_drops_the_newest_call_of_the_principal_with_most_calls() -> None:
    desk = Desk(at_once=1, waiting=3)
    await desk.arrive("a1", "a2", "a3", "a4", "b1")
    with pytest.raises(Overloaded) as raised:
        await desk.tasks["a4"]
    assert raised.value.retry_after
    await desk.arrive("a5")
    assert isinstance(desk.tasks["a5"].exception(), Overloaded)
    await desk.arrive("b2")
    assert isinstance(desk.tasks["b2"].exception(), Overloaded), "two of a and one of b: as even as it can be"
    for name in ("a1", "a2", "b1"):
        await desk.finish(name)
    assert desk.admitted == ["a1", "a2", "b1", "a3"], "in turn, though all of a came first"
    await desk.close()


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["come", "go", "give up"])), max_size=40),
    at_once=st.integers(1, 3),
    waiting=st.integers(0, 4),
)
def test_no_slot_is_lost_in_any_order_of_calls(steps: list[tuple[str, str]], at_once: int, waiting: int) -> None:
    async def run() -> None:
        desk = Desk(at_once=at_once, waiting=waiting)
        for number, (principal, step) in enumerate(steps):
            unfinished = [name for name, task in desk.tasks.items() if not task.done() and name[0] == principal]
            if step == "come":
                await desk.arrive(f"{principal}{number}")
            elif unfinished and step == "go" and unfinished[0] in desk.admitted:
                await desk.finish(unfinished[0])
            elif unfinished and step == "give up":
                desk.tasks[unfinished[-1]].cancel()
                await desk.settle()
            running = [name for name in desk.admitted if not desk.tasks[name].done()]
            queued = [name for name, task in desk.tasks.items() if not task.done() and name not in desk.admitted]
            assert len(running) <= at_once
            assert len(queued) <= waiting
            assert not queued or len(running) == at_once, "nobody waits while there is a place"
        await desk.close()
        slots = desk.policy._slots["a"]
        assert (slots.waiting.size, slots.in_use) == (0, {})
        assert not slots.waiting._principals

    asyncio.run(run())


# --- the whole hub ----------------------------------------------------------------------------------------------


def code(answer: dict[str, Any]) -> str | None:
    result = answer.get("result", {})
    error = result.get("_meta", {}).get("mcp-hub/error", {}) if result.get("isError") else {}
    return error.get("code")  # type: ignore[no-any-return]


def listening(**limits: Any) -> dict[str, Any]:
    return {"principals": {name: TOKENS[name] for name in ("alice", "bob")}, "limits": limits}


@pytest.mark.parametrize("era", ERAS)
async def test_concurrent_calls_above_the_limit_get_an_overloaded_error_in_their_methods_form(
    tmp_path: Path, era: str
) -> None:
    record = tmp_path / "record"
    async with (
        network_hub(tmp_path / "hub", {"up": fake("--record", str(record))}, listening(calls=1)) as (process, base),
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(base, era, TOKENS["bob"]) as bob,
        asyncio.timeout(PATIENCE),
    ):
        await alice.names("tools/list")
        sleeping = asyncio.ensure_future(alice.call("up__sleep", {"seconds": 60}))
        while b'"sleep"' not in record.read_bytes():
            assert await bob.text("up__echo", {"text": "b"}) == "b"
        alice.id += 1  # the other one still runs
        refusal = await alice.call("up__echo", {"text": "x"})
        assert code(refusal) == "overloaded"
        assert refusal["result"]["_meta"]["mcp-hub/error"]["retry_after"] > 0
        read = await alice.ask("resources/read", {"uri": "fake://fake/one"})
        assert read["error"]["code"] == -32013
        assert read["error"]["data"]["retry_after"] > 0
        assert await bob.text("up__echo", {"text": "b"}) == "b"
        await process.until(lambda: b"quota" in process.stderr)
        sleeping.cancel()
        await asyncio.wait([sleeping])


@pytest.mark.parametrize("era", ERAS)
async def test_calls_above_the_rate_get_an_overloaded_error_and_never_reach_the_server(
    tmp_path: Path, era: str
) -> None:
    record = tmp_path / "record"
    limits = listening(rate=0.001, burst=2)
    async with (
        network_hub(tmp_path / "hub", {"up": fake("--record", str(record))}, limits) as (_, base),
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(base, era, TOKENS["bob"]) as bob,
    ):
        codes = [code(await alice.call("up__echo", {"text": str(number)})) for number in range(4)]
        assert codes == [None, None, "overloaded", "overloaded"]
        assert await bob.text("up__echo", {"text": "b"}) == "b"
        assert await alice.names("tools/list")
    messages = [json.loads(line) for line in record.read_text().splitlines()]
    assert [
        message["params"]["arguments"]["text"] for message in messages if message.get("method") == "tools/call"
    ] == ["0", "1", "b"]


async def test_sessions_and_streams_of_a_principal_are_bounded_together_and_freed_when_they_end(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path, {}, listening(sessions=2)) as (_, base),
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers=bearer(TOKENS["alice"])) as http,
        visiting(base, "handshake", TOKENS["alice"]) as first,
        asyncio.timeout(PATIENCE),
    ):
        headers = {"accept": "application/json, text/event-stream"}
        hello: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        async with http.stream("GET", "/sse", headers=headers) as stream:
            assert stream.status_code == 200
            for answer in (
                await http.post("/mcp", json=message, headers=headers),
                await http.get("/sse", headers=headers),
            ):
                assert answer.status_code == 429
                assert int(answer.headers["retry-after"]) > 0
                assert answer.json()["error"]["code"] == -32013
            async with visiting(base, "handshake", TOKENS["bob"]) as bob:
                assert "result" in await bob.ask("ping")
        while (await http.post("/mcp", json=message, headers=headers)).status_code != 200:
            pass  # until the hub has seen the stream end
        assert (await http.delete("/mcp", headers=first.session)).status_code == 204
        assert (await http.post("/mcp", json=message, headers=headers)).status_code == 200
        assert (await http.post("/mcp", json=message, headers=headers)).status_code == 429


async def test_open_subscriptions_of_a_shared_token_leave_its_calls_alone(tmp_path: Path) -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    listen = {"jsonrpc": "2.0", "id": 1, "method": LISTEN, "params": params}
    modern = {**BOTH, "mcp-protocol-version": MODERN, "mcp-method": LISTEN}
    async with (
        network_hub(tmp_path, {"up": fake()}, listening(sessions=4, calls=1)) as (_, base),
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers=bearer(TOKENS["alice"])) as http,
        visiting(base, "modern", TOKENS["alice"]) as alice,
        asyncio.timeout(PATIENCE),
    ):
        async with contextlib.AsyncExitStack() as subscriptions:
            lines = []  # a stream whose lines nobody holds is closed
            for _ in range(4):
                stream = await subscriptions.enter_async_context(
                    http.stream("POST", "/mcp", json=listen, headers=modern)
                )
                lines.append(stream.aiter_lines())
                assert "acknowledged" in await anext(lines[-1])
            assert await alice.text("up__echo", {"text": "a"}) == "a"
            assert (await http.post("/mcp", json=listen, headers=modern)).json()["error"]["code"] == Overloaded.rpc_code
        while True:  # until the hub has seen the streams end
            async with http.stream("POST", "/mcp", json=listen, headers=modern) as stream:
                if stream.headers["content-type"] == "text/event-stream":
                    break


async def test_open_subscriptions_over_stdio_leave_calls_alone(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}, modern=True) as client:
        for _ in range(quotas_module.MAX_IN_FLIGHT):
            client.start(LISTEN, {"notifications": {"toolsListChanged": True}})
        assert await client.text("up__echo", {"text": "a"}) == "a"


async def test_a_principal_may_have_more_calls_than_by_default(tmp_path: Path) -> None:
    allowed = quotas_module.MAX_IN_FLIGHT + 20
    server = fake(limits={"at_once": 1, "waiting": allowed})
    async with (
        network_hub(tmp_path, {"up": server}, listening(calls=allowed)) as (_, base),
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers=bearer(TOKENS["alice"])) as http,
        http.stream("GET", "/sse", headers=BOTH) as stream,
        asyncio.timeout(PATIENCE),
    ):
        data = (line.removeprefix("data: ") async for line in stream.aiter_lines() if line.startswith("data: "))
        path = await anext(data)

        async def send(method: str, params: dict[str, Any], request_id: int | None) -> None:
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            answer = await http.post(path, json=message if request_id is None else {**message, "id": request_id})
            assert answer.status_code == 202

        await send("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}, 0)
        assert json.loads(await anext(data))["id"] == 0
        await send("notifications/initialized", {}, None)
        for number in range(1, allowed + 2):
            await send("tools/call", {"name": "up__sleep", "arguments": {"seconds": 600}}, number)
        answer = json.loads(await anext(data))
        assert (answer["id"], code(answer)) == (allowed + 1, "overloaded")


async def test_a_failed_initialize_leaves_no_session(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path, {}, listening(sessions=1)) as (_, base),
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers=bearer(TOKENS["alice"])) as http,
    ):
        headers = {"accept": "application/json, text/event-stream"}
        for _ in range(3):
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": []}
            answer = await http.post("/mcp", json=message, headers=headers)
            assert answer.json()["error"]["code"] == -32602
        await Visitor(http, "handshake").begin()


async def test_a_principals_body_above_the_limit_is_answered_413(tmp_path: Path) -> None:
    listen = {**listening(), "max_body": 1000}
    async with network_hub(tmp_path, {}, listen) as (_, base), visiting(base, "modern", TOKENS["alice"]) as alice:
        answer = await alice.post({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 1000}})
        assert answer.status_code == 413


@pytest.mark.parametrize(
    "limits", [{"calls": 0}, {"sessions": -1}, {"rate": 0}, {"burst": 0}, {"rate": "fast"}, {"calls": 1.5}]
)
async def test_invalid_limits_are_reported(tmp_path: Path, limits: dict[str, Any]) -> None:
    from mcp_hub.errors import ConfigError
    from mcp_hub.hub.composition import load_config
    from tests.fakes.client import write_config

    (key,) = limits
    for listen, location in (
        ({"limits": limits}, f"listen.limits.{key}: "),
        ({"principals": {"a": {"token": "t" * 32, "limits": limits}}}, f"listen.principals.a.limits.{key}: "),
    ):
        with pytest.raises(ConfigError) as raised:
            load_config(write_config(tmp_path, {}, listen=listen))
        assert location in str(raised.value)
