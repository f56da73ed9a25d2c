"""Log messages of servers reach the client whose call it is, from its level on, unchanged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import PATIENCE, RpcError, StdioClient, hub
from tests.fakes.network import network_hub, sdk
from tests.transport.scripted_http import Reply, Request, scripted
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio

ERAS = ("handshake", "modern")
LOG_PARAMS = {"level": "info", "logger": "x", "data": {"future": 10**25}, "future": 1}


def messages(client: StdioClient) -> list[dict[str, Any]]:
    return [n["params"] for n in client.notifications if n["method"] == "notifications/message"]


async def test_the_hub_declares_logging(tmp_path: Path) -> None:
    async with hub(tmp_path, {}, handshake=False) as client:
        assert (await client.initialize())["capabilities"]["logging"] == {}


@pytest.mark.parametrize("era", ERAS)
async def test_a_log_message_reaches_a_handshake_client_unchanged_before_the_answer(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"a": asking("--era", era)}) as client:
        await client.request("logging/setLevel", {"level": "info"})
        assert await client.text("a__level") == "info"
        await client.text("a__log")
        assert messages(client) == [LOG_PARAMS]


async def test_a_modern_server_is_told_the_level_that_its_client_has_set_last(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": asking("--era", "modern")}) as client:
        for level in ("info", "error"):
            await client.request("logging/setLevel", {"level": level})
            assert await client.text("a__level") == level


@pytest.mark.parametrize("era", ERAS)
async def test_log_messages_below_the_level_are_not_passed_on(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"a": asking("--era", era)}) as client:
        await client.request("logging/setLevel", {"level": "warning"})
        for level in ("debug", "notice", "warning", "emergency"):
            await client.text("a__log", {"level": level})
        assert [message["level"] for message in messages(client)] == ["warning", "emergency"]


async def test_a_log_message_outside_of_a_call_reaches_the_client_too(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": asking()}) as client:
        await client.text("a__log_late")
        await client.notified("notifications/message")
        assert messages(client) == [LOG_PARAMS]


@pytest.mark.parametrize("level", ["loud", None, 3])
async def test_an_unknown_log_level_is_refused(tmp_path: Path, level: Any) -> None:
    async with hub(tmp_path, {}) as client:
        with pytest.raises(RpcError) as refused:
            await client.request("logging/setLevel", {"level": level})
        assert refused.value.code == -32602


@pytest.mark.parametrize("era", ERAS)
async def test_a_modern_client_gets_log_messages_at_the_level_of_its_request(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"a": asking("--era", era)}, modern=True) as client:
        await client.text("a__log")
        assert messages(client) == []
        for level in ("debug", "error"):
            meta = {"_meta": {"io.modelcontextprotocol/logLevel": level}}
            await client.call("a__log", {"level": "notice"}, **meta)
        assert [message["level"] for message in messages(client)] == ["notice"]


class Ear:
    """A client over HTTP, and the levels of the log messages that it received, in order."""

    def __init__(self, base: str, path: str) -> None:
        self.levels: list[str] = []
        self.client = sdk(base + path, "handshake", logging_callback=self._hear)

    async def _hear(self, params: Any) -> None:
        self.levels.append(params.level)

    async def call(self, name: str, **arguments: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            assert not (await self.client.call_tool(name, arguments)).is_error

    async def heard(self, levels: list[str]) -> None:
        """Waits until exactly these levels have arrived."""
        async with asyncio.timeout(PATIENCE):
            while self.levels[: len(levels)] != levels:
                await self.client.list_tools()
                assert self.levels == levels[: len(self.levels)], self.levels


@contextlib.asynccontextmanager
async def two_ears(base: str) -> AsyncIterator[tuple[Ear, Ear]]:
    first, second = Ear(base, "/mcp"), Ear(base, "/sse")
    async with first.client, second.client:
        yield first, second


async def test_the_only_client_of_a_shared_server_gets_log_messages_during_and_after_a_call(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"a": asking()}) as (_, base), two_ears(base) as (first, second):
        await first.call("a__log", level="info")
        await first.call("a__log_late", level="error")
        await first.heard(["info", "error"])
        assert second.levels == []


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
@pytest.mark.parametrize("era", ERAS)
async def test_late_log_messages_of_a_shared_server_reach_no_other_client(tmp_path: Path, era: str) -> None:
    """After calls of several clients, only the stream of a call tells which client a message belongs to."""
    async with (
        network_hub(tmp_path / "hub", {"a": asking("--era", era)}) as (_, base),
        two_ears(base) as (first, second),
    ):
        for ear in (first, second):
            await ear.client.set_logging_level("debug")
        await first.call("a__log_next", level="info")
        await second.call("a__log", level="error")
        for ear in (first, second):
            await ear.call("a__echo", text="x")
        assert first.levels == second.levels == []


async def test_clients_with_their_own_sessions_get_the_log_messages_of_their_calls(tmp_path: Path) -> None:
    servers = {"a": asking(session="client")}
    async with network_hub(tmp_path / "hub", servers) as (_, base), two_ears(base) as (first, second):
        await first.call("a__log_late", level="info")
        await second.call("a__log", level="error")
        await first.call("a__log", level="warning")
        await first.heard(["info", "warning"])
        await second.heard(["error"])


async def test_a_log_message_on_the_stream_of_a_call_belongs_to_that_call(tmp_path: Path) -> None:
    """Two calls run at the same time; the first server message of each is its own, one comes when its call is over."""
    both_started, over = asyncio.Barrier(2), asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.method != "POST":
            await reply.full(405)
            return
        message = request.message
        method, number = message["method"], message.get("id")
        if number is None:
            await reply.full(202)
        elif method == "initialize":
            info = {"name": "scripted", "version": "1"}
            capabilities = {"tools": {}, "logging": {}}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            await reply.result(request, result, Mcp_Session_Id="s")
        elif method == "tools/list":
            await reply.result(request, {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]})
        elif method == "tools/call":
            level = message["params"]["arguments"]["level"]
            await reply.stream()
            await both_started.wait()
            await reply.event(log_message(level))
            if level == "error":
                await over.wait()  # the other call has ended, and its stream carried a log message after the response
            await reply.event({"jsonrpc": "2.0", "id": number, "result": {"content": []}})
            if level == "info":
                await reply.event(log_message("critical"))
                over.set()
            await reply.end()
        else:
            await reply.result(request, {})

    def log_message(level: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": 1}}

    async with scripted(script) as server:
        entry = {"url": server.url, "transport": "http", "era": "handshake"}
        async with network_hub(tmp_path / "hub", {"a": entry}) as (_, base), two_ears(base) as (first, second):
            await asyncio.gather(first.call("a__say", level="info"), second.call("a__say", level="error"))
            await first.heard(["info"])
            await second.heard(["error"])
            assert "error" not in first.levels
            assert second.levels == ["error"]
