"""Both HTTP links against the servers people run: the mcp SDK's and fastmcp's, under uvicorn."""

import asyncio
import contextlib
import gc
import socket
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import fastmcp
import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from mcp_hub.config.models import Server as Configured
from mcp_hub.errors import UpstreamAnswered
from mcp_hub.transport import LinkLost, SessionLost
from mcp_hub.transport.http_link import HttpLink
from mcp_hub.transport.peer import Peer
from mcp_hub.transport.sse_link import SseLink
from tests.fakes.offers import nothing_offered
from tests.transport.scripted_http import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _forgotten_streams_of_the_sdk() -> Iterator[None]:
    """Ignores memory streams that the SDK's servers do not close; warnings about transports still fail."""
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unclosed <MemoryObject", ResourceWarning)
        gc.collect()


HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"


def sdk_server() -> MCPServer:
    server = MCPServer("real")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def steps(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        await ctx.report_progress(2, 2)
        return "done"

    return server


def fastmcp_server() -> fastmcp.FastMCP:
    server = fastmcp.FastMCP("real")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def steps(ctx: fastmcp.Context) -> str:
        await ctx.report_progress(1, 2)
        await ctx.report_progress(2, 2)
        return "done"

    return server


APPS = {
    "sdk http": lambda: sdk_server().streamable_http_app(),
    "sdk http json": lambda: sdk_server().streamable_http_app(json_response=True),
    "sdk sse": lambda: sdk_server().sse_app(),
    "fastmcp http": lambda: fastmcp_server().http_app(),
    "fastmcp sse": lambda: fastmcp_server().http_app(transport="sse"),
}


@contextlib.asynccontextmanager
async def served(app: Any, port: int = 0) -> AsyncIterator[int]:
    """Serve an ASGI app on a port of this machine, which is yielded."""
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        running = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with asyncio.timeout(PATIENCE):
                while not server.started:
                    await asyncio.sleep(0)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            async with asyncio.timeout(PATIENCE):
                await running


class Talk:
    """A peer on a link, and what it heard."""

    def __init__(self, kind: str, port: int) -> None:
        transport = "sse" if "sse" in kind else "http"
        url = f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
        configured = Configured(id="up", transport=transport, url=url, namespace="up")  # type: ignore[arg-type]
        self.link: HttpLink | SseLink = SseLink(configured) if transport == "sse" else HttpLink(configured)
        self.loss: asyncio.Future[LinkLost] = asyncio.get_running_loop().create_future()
        self.peer = Peer(self.link, notified=lambda *_: None, requested=nothing_offered, lost=self._lost)

    def _lost(self, error: LinkLost) -> None:
        if not self.loss.done():
            self.loss.set_result(error)

    async def shake_hands(self) -> None:
        await self.link.open(self.peer)
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        answer = await self.peer.request("initialize", params)
        assert answer["protocolVersion"] == HANDSHAKE
        await self.peer.notify("notifications/initialized", headers={"MCP-Protocol-Version": HANDSHAKE})

    async def call(self, name: str, **arguments: Any) -> tuple[Any, list[Any]]:
        progress: list[Any] = []
        answer = await self.peer.request(
            "tools/call",
            {"name": name, "arguments": arguments},
            on_progress=lambda params: progress.append(params["progress"]),
        )
        return answer, progress


@contextlib.asynccontextmanager
async def talking(kind: str, port: int) -> AsyncIterator[Talk]:
    talk = Talk(kind, port)
    try:
        async with asyncio.timeout(PATIENCE):
            await talk.shake_hands()
        yield talk
    finally:
        async with asyncio.timeout(PATIENCE):
            await talk.peer.close()


@pytest.mark.parametrize("kind", APPS)
async def test_a_real_server_lists_answers_in_parallel_and_reports_progress(kind):
    async with served(APPS[kind]()) as port, talking(kind, port) as talk, asyncio.timeout(PATIENCE):
        if isinstance(talk.link, HttpLink):
            talk.link.open_standing_stream()
        listed = await talk.peer.request("tools/list", {})
        assert [tool["name"] for tool in listed["tools"]] == ["echo", "steps"]
        answers = await asyncio.gather(*(talk.call("echo", text=f"é{n}") for n in range(20)))
        assert [answer["content"][0]["text"] for answer, _ in answers] == [f"é{n}" for n in range(20)]
        answer, progress = await talk.call("steps")
        assert answer["content"][0]["text"] == "done"
        if kind != "sdk http json":  # which has no way to send progress
            assert progress == [1, 2]
        with pytest.raises(UpstreamAnswered):
            await talk.peer.request("no/such/method", {})


async def test_a_modern_request_needs_no_handshake():
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "server/discover"}
    async with served(sdk_server().streamable_http_app()) as port:
        talk = Talk("http", port)
        async with asyncio.timeout(PATIENCE):
            await talk.link.open(talk.peer)
            answer = await talk.peer.request("server/discover", {"_meta": meta}, headers=headers)
            assert MODERN in answer["supportedVersions"]
            with pytest.raises(UpstreamAnswered) as caught:  # HTTP 400 with a JSON-RPC error in it
                await talk.peer.request("server/discover", {"_meta": meta}, headers={**headers, "Mcp-Method": "other"})
            assert caught.value.code == -32020
            await talk.peer.close()


async def test_a_restarted_server_no_longer_knows_the_session():
    async with served(sdk_server().streamable_http_app()) as port:
        talk = Talk("http", port)
        async with asyncio.timeout(PATIENCE):
            await talk.shake_hands()
            await talk.call("echo", text="a")
    async with served(sdk_server().streamable_http_app(), port), asyncio.timeout(PATIENCE):
        with pytest.raises(SessionLost) as caught:
            await talk.call("echo", text="b")
        assert caught.value.executed is False
        await talk.peer.close()


@pytest.mark.parametrize("kind", ["sdk http", "sdk sse"])
async def test_a_server_that_stops_loses_the_link(kind, monkeypatch):
    monkeypatch.setattr("mcp_hub.transport.http_stream.FIRST_DELAY", 0.01)
    async with served(APPS[kind]()) as port:
        talk = Talk(kind, port)
        async with asyncio.timeout(PATIENCE):
            await talk.shake_hands()
            if isinstance(talk.link, HttpLink):
                talk.link.open_standing_stream()
            await talk.call("echo", text="a")
    async with asyncio.timeout(PATIENCE):
        assert isinstance(await talk.loss, LinkLost)
        await talk.peer.close()
