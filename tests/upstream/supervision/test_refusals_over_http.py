"""What a refusal by a server over HTTP costs: the request, the session, or the next attempt to connect."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mcp_hub.errors import CallError, NotConnected, ServerUnavailable, UpstreamAnswered
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.protocol.kinds import PROMPTS, TOOLS
from mcp_hub.upstream import Upstream, lifecycle
from tests.fakes.client import PATIENCE, write_config

pytestmark = pytest.mark.anyio

SESSION = "Mcp-Session-Id"


class Board:
    """A server of the handshake era over streamable HTTP; `refusals` are its responses by method, in place of its own.

    A request of a session that it does not know gets `stranger`: a status and an error, in which METHOD stands for the
    method, or a body that is none. While it is `modern`, it knows no sessions, and later no requests without one.
    """

    modern = False

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.sessions: set[str] = set()
        self.refusals: dict[str, tuple[int, Any, dict[str, str]]] = {}
        self.stranger: tuple[int, Any] = (404, {"code": -32600, "message": "Session not found"})
        self.released = asyncio.Event()
        """The list of prompts waits for it."""
        self.released.set()
        self.capabilities: dict[str, Any] = {"tools": {}}

    async def respond(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        id, method = message.get("id"), message["method"]
        self.asked[method] += 1
        if method in self.refusals or "*" in self.refusals:
            status, error, headers = self.refusals.get(method) or self.refusals["*"]
            return self._error(status, id, error, headers)
        if method == "initialize":
            name = f"s{self.asked[method]}"
            self.sessions.add(name)
            info = {"name": "board", "version": "1"}
            version = message["params"]["protocolVersion"]
            result: Any = {"protocolVersion": version, "capabilities": self.capabilities, "serverInfo": info}
            return web.json_response({"jsonrpc": "2.0", "id": id, "result": result}, headers={SESSION: name})
        if method == "server/discover" and self.modern:
            meta = {"io.modelcontextprotocol/serverInfo": {"name": "board", "version": "1"}}
            result = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities, "_meta": meta}
            return web.json_response({"jsonrpc": "2.0", "id": id, "result": {**result, "resultType": "complete"}})
        if request.headers.get(SESSION) not in self.sessions and not self.modern:
            status, error = self.stranger
            if isinstance(error, bytes):
                return web.Response(body=error, status=status, content_type="text/html")
            if isinstance(error, dict):
                error = {**error, "message": error["message"].replace("METHOD", method)}
            return self._error(status, None, error)
        if id is None:
            return web.Response(status=202)
        if method == "prompts/list":
            await self.released.wait()
        tools = [{"name": "t", "inputSchema": {"type": "object"}}]
        prompts = [{"name": "p"}]
        lists = {"tools/list": {"tools": tools}, "prompts/list": {"prompts": prompts}, "tools/call": {"content": []}}
        return web.json_response({"jsonrpc": "2.0", "id": id, "result": lists.get(method, {})})

    def _error(self, status: int, id: Any, error: Any, headers: dict[str, str] | None = None) -> web.Response:
        if error is None:
            return web.Response(status=status, headers=headers)
        return web.json_response({"jsonrpc": "2.0", "id": id, "error": error}, status=status, headers=headers)


@contextlib.asynccontextmanager
async def served(tmp_path: Path, board: Board, **entry: Any) -> AsyncIterator[Upstream]:
    """Serves the board, and opens the hub's upstream for it; waits for its first attempt to connect."""
    app = web.Application()
    app.router.add_route("*", "/mcp", board.respond)
    async with TestServer(app) as server:
        entry = {"url": str(server.make_url("/mcp")), "transport": "http", **entry}
        config = load_config(write_config(tmp_path, {"a": entry}))
        async with Engine(config) as engine, asyncio.timeout(PATIENCE):
            upstream = engine.upstreams["a"]
            upstream.wake()
            await upstream.attempted.wait()
            yield upstream


async def call(upstream: Upstream) -> Any:
    return (await upstream.request("tools/call", {"name": "t", "arguments": {}})).result


async def failure(upstream: Upstream) -> CallError:
    with pytest.raises(CallError) as caught:
        await call(upstream)
    return caught.value


async def test_404_with_an_error_under_the_id_of_the_request_costs_no_session(tmp_path: Path) -> None:
    board = Board()
    async with served(tmp_path, board) as upstream:
        board.refusals["tools/call"] = (404, {"code": -32001, "message": "no such row"}, {})
        for _ in range(6):
            with pytest.raises(UpstreamAnswered):
                await call(upstream)
        del board.refusals["tools/call"]
        assert await call(upstream) == {"content": []}
    assert board.asked["initialize"] == 1


REFUSALS_OF_STRANGERS = [
    (404, None),
    (410, None),
    (400, None),
    (400, {"code": -32000, "message": "Bad Request: No valid session ID provided"}),
    (200, {"code": -32600, "message": "Session not found"}),
    (200, {"code": -32600, "message": "No session for METHOD"}),
    (200, "Session not found"),
    (200, b"<html>Session not found"),
]


@pytest.mark.parametrize("stranger", REFUSALS_OF_STRANGERS)
async def test_a_session_that_a_restarted_server_does_not_know_is_replaced(
    tmp_path: Path, stranger: tuple[int, Any]
) -> None:
    board = Board()
    board.stranger = stranger
    async with served(tmp_path, board) as upstream:
        board.sessions.clear()
        if stranger[0] == 404:  # certainly not executed, so sent again
            assert await call(upstream) == {"content": []}
        else:
            error = await failure(upstream)
            assert (type(error), error.executed) == (ServerUnavailable, True)
        assert await call(upstream) == {"content": []}
    assert board.asked["initialize"] == 2


UNKNOWN_REVISION = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2025-11-25"]}}


@pytest.mark.parametrize("stranger", [*REFUSALS_OF_STRANGERS[2:], (400, UNKNOWN_REVISION)])
async def test_a_modern_server_in_whose_place_another_one_is_gets_a_handshake(
    tmp_path: Path, stranger: tuple[int, Any]
) -> None:
    board = Board()
    board.modern, board.stranger = True, stranger
    board.refusals["subscriptions/listen"] = (404, {"code": -32601, "message": "Method not found"}, {})
    async with served(tmp_path, board) as upstream:
        await call(upstream)
        board.modern = False
        await failure(upstream)
        assert await call(upstream) == {"content": []}
        assert upstream.agreement is not None
        assert upstream.agreement.era == "handshake"


@pytest.mark.parametrize("refusal", [(400, None), (200, {"code": -32600, "message": "Invalid Request"})])
async def test_a_refusal_that_a_ping_does_not_get_is_about_the_request(
    tmp_path: Path, refusal: tuple[int, Any]
) -> None:
    board = Board()
    async with served(tmp_path, board) as upstream:
        board.refusals["tools/call"] = (*refusal, {})
        for _ in range(3):
            with pytest.raises((ServerUnavailable, UpstreamAnswered)):
                await call(upstream)
        assert upstream.session is not None
    assert board.asked["ping"] == 3
    assert board.asked["initialize"] == 1


async def test_a_server_that_refuses_pings_like_everything_it_does_not_know_keeps_its_session(tmp_path: Path) -> None:
    board = Board()
    board.refusals["ping"] = board.refusals["tools/call"] = (200, {"code": -32600, "message": "Invalid Request"}, {})
    async with served(tmp_path, board) as upstream:
        for _ in range(3):
            with pytest.raises(UpstreamAnswered):
                await call(upstream)
        assert upstream.session is not None
    assert board.asked["initialize"] == 1


async def test_a_server_that_forgets_every_session_gets_one_new_initialize_in_a_while(tmp_path: Path) -> None:
    board = Board()
    async with served(tmp_path, board) as upstream:
        board.refusals["tools/call"] = (404, None, {})
        for _ in range(5):
            error = await failure(upstream)
        assert isinstance(error, NotConnected)
        assert error.retry_after is not None
        assert 0 < error.retry_after <= lifecycle.RENEWAL
    assert board.asked["initialize"] == 2


@pytest.mark.parametrize("fault", [(500, None), (413, None), (403, None), (200, "x" * 10_000), "late"])
async def test_an_optional_list_that_fails_costs_that_list_alone_and_is_asked_for_again(
    tmp_path: Path, fault: Any
) -> None:
    board = Board()
    board.capabilities = {"tools": {}, "prompts": {}}
    if fault == "late":
        board.released.clear()
    else:
        board.refusals["prompts/list"] = (*fault, {})
    async with served(tmp_path, board, max_frame="5kB", deadlines={"list": 0.2}) as upstream:
        assert await call(upstream) == {"content": []}
        assert [tool["name"] for tool in upstream.lists.items[TOOLS]] == ["t"]
        assert any("prompts/list" in note for note in upstream.incomplete)
        board.refusals.clear()
        board.released.set()
        while not upstream.lists.items.get(PROMPTS):
            await asyncio.sleep(0)
        assert upstream.incomplete == []
    assert board.asked["initialize"] == 1


async def test_lists_are_not_asked_again_before_the_time_that_the_server_asked_for(tmp_path: Path) -> None:
    board = Board()
    async with served(tmp_path, board) as upstream:
        await call(upstream)
        board.refusals["tools/list"] = (429, None, {"Retry-After": "60"})
        upstream.list_store.refresh_all()
        refresher = upstream.list_store._refresher
        while refresher._retry is None:
            await asyncio.sleep(0)
        assert refresher._retry.when() - asyncio.get_running_loop().time() > 30
        assert [tool["name"] for tool in upstream.lists.items[TOOLS]] == ["t"]


async def test_a_transport_that_fails_for_all_lists_makes_the_server_unavailable(tmp_path: Path) -> None:
    board = Board()
    board.capabilities = {"tools": {}, "prompts": {}}
    board.refusals["prompts/list"] = (401, None, {})
    async with served(tmp_path, board) as upstream:
        assert upstream.error is not None
        assert upstream.session is None


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("refused", ["*", "initialize", "tools/list"])
async def test_a_server_that_asks_for_time_gets_no_attempt_to_connect_meanwhile(
    tmp_path: Path, status: int, refused: str
) -> None:
    board = Board()
    board.refusals[refused] = (status, None, {"Retry-After": "60"})
    async with served(tmp_path, board) as upstream:
        asked = board.asked.total()
        for _ in range(5):
            upstream.wake()
            error = await failure(upstream)
            assert isinstance(error, NotConnected)
            assert error.retry_after is not None
            assert 30 < error.retry_after <= 60
        assert board.asked.total() == asked
        assert board.asked["initialize"] == (0 if refused == "*" else 1)
