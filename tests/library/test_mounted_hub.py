"""`mcp_hub.asgi`: the hub in an application of somebody else, served by uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import mcp_hub
from mcp_hub.errors import ConfigError
from tests.downstream.network.visitor import ACCEPT, Visitor, bearer
from tests.fakes.client import PATIENCE, fake, free_port, spawned, write_config

pytestmark = pytest.mark.anyio

TOKEN = "t" * 32


@contextlib.asynccontextmanager
async def served(app: Any, lifespan: str = "on") -> AsyncIterator[str]:
    """The base URL of an application on a port of its own."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan=lifespan, ws="none", timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    )
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(PATIENCE):
            while not server.started and not running.done():
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE):
            await running


def mounted_in_starlette(hub: Any) -> Starlette:
    """An application with a page of its own, which has the hub below `/tools`."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with hub:
            yield

    async def home(request: Any) -> PlainTextResponse:
        return PlainTextResponse("the page of the application")

    return Starlette(routes=[Route("/", home), Mount("/tools", hub)], lifespan=lifespan)


async def by_name(headers: Mapping[str, str]) -> str | None:
    """The application's own way to say who it is."""
    principals: dict[str, str] = {"alice": "alice", "bob": mcp_hub.Principal("bob", "quiet")}
    if headers.get("x-name") == "trouble":
        raise RuntimeError("the database is away")
    return principals.get(headers.get("x-name", ""))


def visitor(base: str, era: str = "modern", **headers: str) -> Visitor:
    http = httpx2.AsyncClient(base_url=base, headers={**ACCEPT, **headers}, timeout=PATIENCE)
    return Visitor(http, era)


def test_mounting_a_hub_without_authentication_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"give authenticate=, or set listen\.token"):
        mcp_hub.asgi({"servers": {}})
    with pytest.raises(ConfigError, match=r"listen\.token has 5 bytes"):
        mcp_hub.asgi({"servers": {}, "listen": {"token": "short"}})
    with pytest.raises(ConfigError, match=r"listen\.verify\.resource"):
        jwt = {"issuer": "https://login.example", "audience": "a", "jwks_uri": "https://login.example/keys"}
        mcp_hub.asgi({"servers": {}, "listen": {"verify": {"jwt": jwt}}})


def test_mounting_with_a_blocking_principal_function_is_refused() -> None:
    with pytest.raises(TypeError, match="async def"):
        mcp_hub.asgi({"servers": {}}, authenticate=lambda headers: "alice")  # type: ignore[arg-type, return-value]


def test_a_token_from_the_environment_allows_mounting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_HUB_TOKEN", TOKEN)
    mcp_hub.asgi({"servers": {}})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_clients_of_both_eras_are_served_below_the_path_of_the_mount(tmp_path: Path, mode: str) -> None:
    hub = mcp_hub.asgi(write_config(tmp_path, {"up": fake()}, listen={"token": TOKEN}))
    http = httpx2.AsyncClient(headers=bearer(TOKEN), timeout=PATIENCE)
    async with served(mounted_in_starlette(hub)) as base, asyncio.timeout(PATIENCE), http:
        assert (await http.get(base)).text == "the page of the application"
        assert (await http.get(f"{base}/tools/healthz")).json() == {"status": "ok"}
        assert (await http.get(f"{base}/healthz")).status_code == 404
        transport = streamable_http_client(f"{base}/tools/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:  # type: ignore[arg-type]
            result = await client.call_tool("up__echo", {"text": "hello"})
            assert result.content[0].text == "hello"  # type: ignore[union-attr]


async def test_a_client_of_the_older_transport_is_sent_below_the_path_of_the_mount(tmp_path: Path) -> None:
    hub = mcp_hub.asgi(write_config(tmp_path, {"up": fake()}, listen={"token": TOKEN}), sse=True)
    async with (
        served(mounted_in_starlette(hub)) as base,
        asyncio.timeout(PATIENCE),
        Client(sse_client(f"{base}/tools/sse", headers=bearer(TOKEN)), mode="legacy") as client,
    ):
        result = await client.call_tool("up__echo", {"text": "hello"})
        assert result.content[0].text == "hello"  # type: ignore[union-attr]


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_profile_that_the_application_changes_holds_from_the_next_request(tmp_path: Path, era: str) -> None:
    profile = "growing"

    async def changing(headers: Mapping[str, str]) -> str:
        return mcp_hub.Principal("alice", profile)

    profiles = {"growing": {"tools": ["up/echo", "up/grow"]}, "quiet": {"tools": ["up/echo"]}}
    servers = {"up": fake(session="client")}
    hub = mcp_hub.asgi(write_config(tmp_path, servers, profiles=profiles), authenticate=changing)
    async with served(hub) as base, visitor(base, era).http as http, asyncio.timeout(PATIENCE):
        alice = Visitor(http, era)
        await alice.begin()
        assert await alice.text("up__grow", {"name": "echo", "definition": "changed"}) == "grown"
        profile = "quiet"
        if era == "handshake":
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert (await alice.post(message)).status_code == 404
            alice = Visitor(http, era)
            await alice.begin()
        assert await alice.names("tools/list") == ["up__echo"]
        assert await alice.text("up__echo", {"text": "a"}) == "a"


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_the_application_determines_the_principal_and_its_profile(tmp_path: Path, era: str) -> None:
    profiles = {"quiet": {"tools": ["up/echo"]}}
    hub = mcp_hub.asgi(write_config(tmp_path, {"up": fake()}, profiles=profiles), authenticate=by_name)
    async with served(hub) as base:
        alice, bob = visitor(base, era, **{"x-name": "alice"}), visitor(base, era, **{"x-name": "bob"})
        async with alice.http, bob.http:
            await alice.begin()
            await bob.begin()
            assert await alice.text("up__echo", {"text": "a"}) == "a"
            assert await bob.names("tools/list") == ["up__echo"]
            assert len(await alice.names("tools/list")) > 1
            if era == "handshake":
                stolen = await bob.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, alice.session)
                assert stolen.status_code == 404


async def test_a_request_that_the_application_does_not_recognise_is_refused(tmp_path: Path) -> None:
    hub = mcp_hub.asgi(write_config(tmp_path, {"up": fake()}), authenticate=by_name)
    async with served(hub) as base:
        for headers, status in ({}, 401), ({"x-name": "mallory"}, 401), ({"x-name": "trouble"}, 503):
            stranger = visitor(base, **headers)
            async with stranger.http:
                answer = await stranger.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
                assert answer.status_code == status
                assert "database" not in answer.text
        foreign = visitor(base, **{"x-name": "alice", "host": "evil.example"})
        async with foreign.http:
            assert (await foreign.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})).status_code == 421


async def test_a_mounted_hub_that_was_not_started_says_how_to_start_it(tmp_path: Path) -> None:
    hub = mcp_hub.asgi(write_config(tmp_path, {}), authenticate=by_name)
    async with served(Starlette(routes=[Mount("/tools", hub)])) as base, httpx2.AsyncClient() as http:
        answer = await http.get(f"{base}/tools/healthz")
        assert answer.status_code == 503
        assert "async with hub:" in answer.text


async def test_a_mounted_hub_stops_after_its_running_calls_end(tmp_path: Path) -> None:
    hub = mcp_hub.asgi(write_config(tmp_path, {"up": fake()}), authenticate=by_name)
    async with served(hub, lifespan="off") as base, asyncio.timeout(PATIENCE):
        alice = visitor(base, "handshake", **{"x-name": "alice"})
        async with alice.http:
            async with hub:
                await alice.begin()
                arguments = {"steps": 20, "pause": 0.02}
                params = {"name": "up__count", "arguments": arguments, "_meta": {"progressToken": "p"}}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                accept = {**alice.session, "accept": "application/json, text/event-stream"}
                call_stream = alice.http.stream("POST", "/mcp", json=message, headers=accept)
                answer = await call_stream.__aenter__()
                lines = answer.aiter_lines()
                while "progress" not in await anext(lines):
                    pass
            remainder = "".join([line async for line in lines])
            assert '"result"' in remainder
            await call_stream.__aexit__(None, None, None)
            assert (await alice.http.get("/healthz")).status_code == 503


PROGRAM = """
import mcp_hub, uvicorn
hub = mcp_hub.asgi({config!r})
uvicorn.run(hub, port={port}, timeout_graceful_shutdown=2)
"""


async def test_the_application_server_stops_with_an_open_stream(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()}, listen={"token": TOKEN})
    port = free_port()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(config=str(config), port=port))
    async with spawned([sys.executable, str(program)]) as process, asyncio.timeout(PATIENCE):
        await process.until(lambda: b"Uvicorn running" in process.stderr)
        client = visitor(f"http://127.0.0.1:{port}", "handshake", **bearer(TOKEN))
        async with client.http:
            await client.begin()
            listening = {**client.session, "accept": "text/event-stream"}
            async with client.http.stream("GET", "/mcp", headers=listening) as stream:
                assert stream.status_code == 200
                process.process.send_signal(signal.SIGTERM)
                assert await process.exited() in (0, -signal.SIGTERM)
