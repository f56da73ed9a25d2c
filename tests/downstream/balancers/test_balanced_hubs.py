"""The files of docs/examples in nginx, HAProxy and Caddy: streams, resumption, sessions, and a hub that stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

import httpx2
import pytest

from tests.downstream.balancers.proxies import CLIENT, KINDS, TOKENS, Balancer, Kind, balanced_hub, balancing
from tests.downstream.balancers.visiting import Guest, guest, result_text
from tests.fakes.client import PATIENCE, StdioClient, fake

pytestmark = pytest.mark.anyio

ASKING = str(Path(__file__).parents[2] / "fakes" / "asking.py")
SESSIONS = 1000


@pytest.mark.parametrize("kind", KINDS)
async def test_a_balancer_passes_events_during_a_call_and_resumes_a_stream(tmp_path: Path, kind: Kind) -> None:
    servers = {"up": fake(), "asks": {"command": sys.executable, "args": [ASKING]}}
    records = tmp_path / "records.jsonl"
    async with (
        asyncio.timeout(PATIENCE * 2),
        balanced_hub(tmp_path / "hub", servers, call_log=str(records)) as (_, port),
        balancing(kind, tmp_path / "balancer", [port]) as balancer,
    ):
        await _question_crosses(balancer)
        await _stream_is_resumed(balancer)
        await _client_is_recorded(balancer, records)


async def _question_crosses(balancer: Balancer) -> None:
    """The call ends only when its question was answered, so a balancer that keeps events would keep it for ever."""
    async with guest(balancer) as caller, guest(balancer) as answerer:
        await caller.shake_hands(roots={})
        answerer.session = caller.session
        caller.call("asks__ask", {"method": "roots/list"})
        assert (await caller.connection.head()).headers["content-type"] == "text/event-stream"
        question = await _event(caller)
        assert question["method"] == "roots/list"
        answerer.post({"id": question["id"], "result": {"roots": [{"uri": "file:///kept"}]}})
        assert (await answerer.connection.response()).status == 202
        assert "file:///kept" in result_text(await _event(caller))


async def _stream_is_resumed(balancer: Balancer) -> None:
    async with guest(balancer) as first:
        await first.shake_hands()
        first.call("up__count", {"steps": 8, "pause": 0.2}, progressToken="p")
        await first.connection.head()
        assert (await _event(first))["params"]["progress"] == 1
        last_id, session = first.connection.last_id, first.session
    async with guest(balancer) as second:
        second.send("GET", [("Accept", "text/event-stream"), *session, ("Last-Event-ID", last_id)])
        assert (await second.connection.head()).status == 200
        steps = []
        while "result" not in (message := await _event(second)):
            steps.append(message["params"]["progress"])
        assert steps == list(range(2, 9))
        assert result_text(message) == "counted"


async def _client_is_recorded(balancer: Balancer, records: Path) -> None:
    """Every record has the address of the client, also of one that says it is another."""
    async with guest(balancer) as client:
        answer = await client.modern_call("up__echo", {"text": "last"}, ("X-Forwarded-For", "203.0.113.9"))
        assert result_text(answer.json) == "last"
    entries: list[dict[str, object]] = []
    while "up__echo" not in {entry["name"] for entry in entries}:
        await asyncio.sleep(0.05)
        entries = [json.loads(line) for line in records.read_text().splitlines()]
    assert {(entry.get("principal", entry["caller"]), entry["peer"]) for entry in entries} == {
        ("principal-guest0", CLIENT)
    }


async def _event(client: Guest) -> dict[str, object]:
    while True:
        name, value = await client.connection.event()
        if name == "message":
            message: dict[str, object] = value
            return message
        assert name == "comment"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_thousand_sessions_have_their_streams_open_at_once(tmp_path: Path, kind: Kind) -> None:
    async with (
        asyncio.timeout(PATIENCE * 4),
        balanced_hub(tmp_path / "hub", {"up": fake()}) as (_, port),
        balancing(kind, tmp_path / "balancer", [port]) as balancer,
        contextlib.AsyncExitStack() as stack,
    ):
        semaphore = asyncio.Semaphore(32)

        async def open_session(number: int) -> Guest:
            async with semaphore:
                client = await stack.enter_async_context(guest(balancer))
                await client.shake_hands()
                client.call("up__echo", {"text": f"nonce {number}"})
                assert result_text((await client.connection.response()).json) == f"nonce {number}"
                client.send("GET", [("Accept", "text/event-stream"), *client.session])
                assert (await client.connection.head()).status == 200
                return client

        guests = await asyncio.gather(*(open_session(number) for number in range(SESSIONS)))
        assert len({client.session[0][1] for client in guests}) == SESSIONS
        assert not any(client.connection.reader.at_eof() for client in guests)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stopping_hub_behind_a_balancer_loses_no_call(tmp_path: Path, kind: Kind) -> None:
    async with (
        asyncio.timeout(PATIENCE * 2),
        balanced_hub(tmp_path / "one", {"up": fake()}) as (hub, first_port),
        balanced_hub(tmp_path / "two", {"up": fake()}) as (_, second_port),
        balancing(kind, tmp_path / "balancer", [first_port, second_port]) as balancer,
    ):
        calls = Calls(balancer)
        async with calls.running():
            await calls.until(lambda: len(set(calls.pids)) == 2)
            await _stop(balancer, hub, first_port)
            assert await hub.exited() == 0
            before = len(calls.pids)
            await calls.until(lambda: len(calls.pids) >= before + 40)
        assert calls.lost == []
        assert len(set(calls.pids[before:])) == 1


async def _stop(balancer: Balancer, hub: StdioClient, port: int) -> None:
    """Stops a hub, which says by its health that it is about to, while it serves as before."""
    if balancer.kind == "nginx":
        balancer.take_out(0)
    hub.process.send_signal(signal.SIGTERM)
    headers = {"host": "hub.example"}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE) as http:
        while (await http.get("/healthz")).status_code != 503:
            pass
        token = {"authorization": f"Bearer {TOKENS['guest0']}", "accept": "application/json"}
        served = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=token)
        assert served.status_code != 503


class Calls:
    """Clients that call one after the other, each with a token of its own and each call on a new connection."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._changed = asyncio.Condition()
        self._is_over = False
        self.pids: list[str] = []
        """The process ids of the servers that answered; each hub has one server."""
        self.lost: list[str] = []

    @contextlib.asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            for name in TOKENS:
                group.create_task(self._call(name))
            try:
                yield
            finally:
                self._is_over = True

    async def _call(self, name: str) -> None:
        while not self._is_over:
            async with guest(self._balancer, name) as client:
                answer = await client.modern_call("up__pid", {})
                async with self._changed:
                    if answer.status == 200 and "result" in answer.json:
                        self.pids.append(result_text(answer.json))
                    else:
                        self.lost.append(f"{answer.status} {answer.body.decode()}")
                    self._changed.notify_all()

    async def until(self, condition) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)
