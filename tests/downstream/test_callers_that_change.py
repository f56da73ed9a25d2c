"""What a principal began before a reload removes it, or gives it another profile, reaches nothing afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.catalog import Route
from mcp_hub.config.models import Listen
from mcp_hub.downstream import Connection, not_delivered
from mcp_hub.policy import Call
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import Principal, callers
from mcp_hub.security.callers import Caller
from tests.downstream.network.visitor import ACCEPT, TOKENS, Visitor, bearer
from tests.downstream.page.opened import ServedHub, served_hub
from tests.fakes.client import ENVELOPE, MODERN, PATIENCE, fake

pytestmark = pytest.mark.anyio

PROFILES = {"wide": {"tools": ["a/add", "a/echo"]}, "narrow": {"tools": ["a/echo"]}}
ADD: dict[str, Any] = {"name": "a__add", "arguments": {"a": 1, "b": 2}}
SESSION = {"mcp-protocol-version": "2025-11-25"}


def listen_with(profile: str | None) -> dict[str, Any]:
    """Settings with bob, and with alice and a profile of hers unless that is None."""
    alice = {} if profile is None else {"alice": {"token": TOKENS["alice"], "profile": profile}}
    return {"principals": {**alice, "bob": {"token": TOKENS["bob"]}}}


def reload(served: ServedHub, profile: str | None) -> None:
    served.app.take(Listen(port=served.port, **listen_with(profile)))


def alice_at(served: ServedHub) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=served.base, timeout=PATIENCE, headers={**ACCEPT, **bearer(TOKENS["alice"])})


def message(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


async def answer_after_reload(
    served: ServedHub, http: httpx2.AsyncClient, data: bytes, headers: dict[str, str], profile: str | None
) -> httpx2.Response:
    """The answer to a request of alice whose body is complete only after a reload."""
    goes_on = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield data[:10]
        await goes_on.wait()
        yield data[10:]

    sent = asyncio.create_task(http.post("/mcp", content=body(), headers=headers))
    async with asyncio.timeout(PATIENCE):
        while not len(served.hub.callers):
            await asyncio.sleep(0)
    reload(served, profile)
    goes_on.set()
    return await sent


@pytest.mark.parametrize("profile", ["narrow", None])
async def test_a_modern_request_that_is_complete_only_after_the_reload_is_not_carried_out(
    tmp_path: Path, profile: str | None
) -> None:
    record = tmp_path / "record"
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "a__add"}
    servers = {"a": fake("--record", str(record))}
    async with (
        served_hub(tmp_path / "hub", servers, listen_with("wide"), profiles=PROFILES) as served,
        alice_at(served) as http,
    ):
        data = message("tools/call", {**ADD, "_meta": ENVELOPE})
        assert (await answer_after_reload(served, http, data, headers, profile)).status_code == 503
        assert "tools/call" not in record.read_text()


async def test_an_initialize_that_is_complete_only_after_the_reload_begins_no_session(tmp_path: Path) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "v", "version": "1"}}
    async with (
        served_hub(tmp_path, {"a": fake()}, listen_with("wide"), profiles=PROFILES) as served,
        alice_at(served) as http,
    ):
        answer = await answer_after_reload(served, http, message("initialize", params), {}, "narrow")
        assert (answer.status_code, len(served.app.streamable.sessions)) == (503, 0)


async def test_a_session_that_a_reload_has_missed_is_not_found_with_another_profile(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"a": fake()}, listen_with("wide"), profiles=PROFILES) as served,
        alice_at(served) as http,
    ):
        sessions = served.app.streamable.sessions
        session = sessions.new(Principal("alice", "wide"))
        assert session is not None
        reload(served, "narrow")
        sessions.admit(session)  # its `initialize` waited for a server during the reload
        alice = Visitor(http, "handshake")
        alice.session = {"mcp-session-id": session.id, **SESSION}
        answer = await alice.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ADD})
        assert answer.status_code == 404


async def test_a_stream_that_nobody_reads_takes_no_request_with_another_profile(tmp_path: Path) -> None:
    echo = message("tools/call", {"name": "a__echo", "arguments": {"text": "x" * 1_500_000}})
    async with (
        served_hub(tmp_path, {"a": fake()}, listen_with("wide"), profiles=PROFILES, sse=True) as served,
        alice_at(served) as http,
        http.stream("GET", "/sse", headers={"accept": "text/event-stream"}) as stream,
    ):
        lines = stream.aiter_lines()
        while not (line := await anext(lines)).startswith("data: "):
            pass
        endpoint = line.removeprefix("data: ")
        async with asyncio.timeout(PATIENCE):
            while served.dispatcher.backlog.waiting < 4_000_000:
                assert (await http.post(endpoint, content=echo)).status_code == 202
                (connection,) = served.dispatcher.connections
                while connection.in_flight:
                    await asyncio.sleep(0)
        reload(served, "narrow")
        assert (await http.post(endpoint, content=message("tools/call", ADD))).status_code == 404


async def test_a_request_that_arrives_with_the_end_of_its_client_is_not_carried_out(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake(session="client")}) as served:
        connection = Connection(Caller(), not_delivered)
        served.dispatcher.join(connection)
        served.dispatcher.leave(connection)
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ADD}
        answer = await served.dispatcher.answer(connection, request, not_delivered, "handshake")
        assert answer["result"]["isError"]
        assert len(served.hub.upstreams["a"].own_sessions) == 0


async def test_a_call_that_goes_on_for_a_caller_that_is_gone_leaves_no_session(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake(session="client")}) as served:
        gone = Caller(Principal("gone"), is_principal=True)
        gone.end()
        params = {**ADD, "name": "add"}
        call = Call("tools/call", "a__add", Route("a", TOOLS, "add"), params, "modern", Envelope(), gone)
        assert (await served.hub.act(call))["content"][0]["text"] == "3"
        assert len(served.hub.upstreams["a"].own_sessions) == 0


async def test_no_principal_ends_while_a_call_of_it_runs_in_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 1)
    async with served_hub(tmp_path, {"a": fake(session="client")}) as served:
        connection, started = Connection(Caller(Principal("alice")), not_delivered), asyncio.Event()
        arguments = {"steps": 40, "pause": 0.02}  # it runs on when the first step is told
        params = {"name": "a__count", "arguments": arguments, "_meta": {**ENVELOPE, "progressToken": 1}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

        def notified(_: Any) -> None:
            if not started.is_set():
                started.set()
                served.hub.callers.of(Principal("bob"))

        answer = await served.dispatcher.answer(connection, request, notified, "modern")
        assert started.is_set()
        assert not answer["result"].get("isError"), answer
