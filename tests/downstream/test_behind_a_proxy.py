"""One setting makes a reverse proxy work, and what a request without it is told names that setting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from aiohttp import ClientSession, ClientTimeout, web
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import Gate, check_listener
from tests.fakes.client import HUB, PATIENCE, fake, spawned, write_config
from tests.fakes.loopback_site import loopback_site

pytestmark = pytest.mark.anyio

TOKEN = "t" * 32
NAME = "hub.example"


@contextlib.asynccontextmanager
async def proxy(base: str) -> AsyncIterator[str]:
    """A reverse proxy that is known as NAME and says so, as proxies do; its address."""
    async with ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
            headers |= {"Host": NAME, "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
            async with session.request(
                request.method, base + str(request.rel_url), headers=headers, data=await request.read()
            ) as answer:
                fields = {
                    k: v for k, v in answer.headers.items() if k.lower() not in ("transfer-encoding", "connection")
                }
                response = web.StreamResponse(status=answer.status, headers=fields)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response

        async with loopback_site(pass_on) as port:
            yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def behind_proxy(tmp: Path, *options: str) -> AsyncIterator[str]:
    config = write_config(tmp, {"up": fake()})
    command = [*HUB, "serve", "--sse", "--port", "0", *options, "--config", str(config)]
    async with spawned(command, env={"MCP_HUB_TOKEN": TOKEN}) as hub:
        await hub.until(lambda: b"Serving" in hub.stderr)
        base = next(line.strip() for line in hub.stderr.decode().splitlines() if line.strip().endswith("/mcp"))
        async with proxy(base.removesuffix("/mcp")) as url:
            yield url
        hub.process.terminate()


def bearer() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {TOKEN}", "Origin": f"https://{NAME}"}, timeout=PATIENCE
    )


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_clients_of_both_eras_are_served_through_a_proxy(tmp_path: Path, mode: str) -> None:
    async with behind_proxy(tmp_path, "--public-host", NAME) as url, bearer() as http, asyncio.timeout(PATIENCE):
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:  # type: ignore[arg-type]
            result = await client.call_tool("up__echo", {"text": "hello"})
            assert result.content[0].text == "hello"  # type: ignore[union-attr]


async def test_a_client_of_the_older_transport_is_served_through_a_proxy(tmp_path: Path) -> None:
    async with behind_proxy(tmp_path, "--public-host", NAME) as url, asyncio.timeout(PATIENCE):
        transport = sse_client(f"{url}/sse", headers={"Authorization": f"Bearer {TOKEN}"})
        async with Client(transport, mode="legacy") as client:
            result = await client.call_tool("up__echo", {"text": "hello"})
            assert result.content[0].text == "hello"  # type: ignore[union-attr]


async def test_a_refused_host_names_the_setting_that_would_allow_it(tmp_path: Path) -> None:
    async with behind_proxy(tmp_path) as url, bearer() as http:
        answer = await http.post(f"{url}/mcp", json={})
        assert answer.status_code == 421
        assert f"--public-host {NAME}" in answer.text


async def test_public_host_without_a_token_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    async with spawned([*HUB, "serve", "--http", "--public-host", NAME, "--config", str(config)]) as hub:
        assert await hub.exited() == 2
        await hub.until(lambda: b"set listen.token" in hub.stderr)


@pytest.mark.parametrize("name", ["https://hub.example", "hub.example/mcp", "", "a b", "hub.example:port"])
async def test_an_invalid_public_host_is_refused(tmp_path: Path, name: str) -> None:
    config = write_config(tmp_path, {"up": fake()})
    async with spawned([*HUB, "serve", "--http", "--public-host", name, "--config", str(config)]) as hub:
        assert await hub.exited() == 2
        await hub.until(lambda: b"--public-host: must be the name" in hub.stderr)


def test_public_host_allows_only_its_own_host_and_origin() -> None:
    from mcp_hub.config.field_types import SecretStr

    gate = Gate(Listen(public_host=("hub.example", "ported.example:8443"), token=SecretStr(TOKEN)))

    def status(host: bytes, origin: bytes | None = None) -> int:
        lines = [(b"host", host), *([(b"origin", origin)] if origin is not None else [])]
        refusal = gate.refusal(lines, 8808)
        return refusal.status if refusal is not None else 0

    assert [status(host) for host in (b"hub.example", b"HUB.example:443", b"ported.example:8443", b"localhost:1")] == [
        0
    ] * 4
    assert [status(host) for host in (b"ported.example", b"evil.example", b"hub.example.evil")] == [421] * 3
    assert status(b"hub.example", b"https://hub.example") == 0
    assert status(b"hub.example", b"http://hub.example") == 0
    assert status(b"hub.example", b"https://ported.example:8443") == 0
    assert status(b"hub.example", b"https://evil.example") == 403
    assert check_listener(Listen(public_host=("hub.example",))) is not None
