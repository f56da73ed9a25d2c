"""Servers behind Debian's squid and tinyproxy, with and without TLS, and the errors when these refuse or die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from mcp_hub import codes
from tests.fakes.private_authority import PrivateAuthority
from tests.transport.peers.debian_proxies import NAME, DebianProxy, squid, tinyproxy
from tests.transport.scripted_http import PATIENCE, Reply, Request, scripted
from tests.transport.test_proxies_on_the_way import answering, asked, failure_of, reaching, result_of

pytestmark = pytest.mark.anyio

Starter = Callable[[], AbstractAsyncContextManager[DebianProxy]]


@pytest.fixture(params=[squid, tinyproxy], ids=["squid", "tinyproxy"])
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[DebianProxy]:
    start: Starter = request.param
    async with start() as running:
        yield running


@pytest.fixture
def authority(tmp_path: Path) -> PrivateAuthority:
    return PrivateAuthority(tmp_path)


async def test_a_proxy_reaches_servers_with_and_without_tls(proxy: DebianProxy, authority: PrivateAuthority) -> None:
    async with scripted(answering) as plain, scripted(answering, authority.server("localhost")) as encrypted:
        assert await result_of(plain.url, proxy.url()) == {"path": "/mcp"}
        url = f"https://localhost:{encrypted.port}/mcp"
        assert await result_of(url, proxy.url(), ca=str(authority.ca)) == {"path": "/mcp"}
        assert not [name for name in plain.requests[0].headers if name == "proxy-authorization"]
    await proxy.logged(f"CONNECT localhost:{encrypted.port}")
    await proxy.logged(f"127.0.0.1:{plain.port}")


async def test_a_proxy_carries_many_concurrent_calls(proxy: DebianProxy, authority: PrivateAuthority) -> None:
    async with scripted(answering, authority.server("localhost")) as server:
        url = f"https://localhost:{server.port}/mcp"
        async with reaching(url, proxy.url(), ca=str(authority.ca)) as (link, inbox):
            for number in range(20):
                await link.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {}})
            answers = [await inbox.next() for _ in range(20)]
            assert {answer["id"] for answer in answers} == set(range(20))


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_missing_and_wrong_proxy_credentials_are_reported(proxy: DebianProxy, scheme: str) -> None:
    for credentials in ("", "me:wr0ng-w0rd@"):
        error = await failure_of(f"{scheme}://localhost:9/mcp", proxy.url(credentials))
        assert error.hub_code == codes.PROXY_CREDENTIALS, error
        assert "wr0ng" not in str(error)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "127.0.0.1:9"])
async def test_a_host_that_the_proxy_cannot_reach_is_reported(proxy: DebianProxy, host: str) -> None:
    error = await failure_of(f"https://{host}/mcp", proxy.url())
    assert error.hub_code == codes.PROXY_REFUSED, error


async def test_a_proxy_may_die_during_a_call_and_between_calls(proxy: DebianProxy, authority: PrivateAuthority) -> None:
    arrived = asyncio.Event()

    async def unanswered(request: Request, reply: Reply) -> None:
        if request.message.get("id") != 2:
            await answering(request, reply)
            return
        arrived.set()
        await reply.gone()

    async with scripted(unanswered, authority.server("localhost")) as server:
        url = f"https://localhost:{server.port}/mcp"
        async with reaching(url, proxy.url(), ca=str(authority.ca)) as (link, inbox):
            assert await asked(link, inbox, 1) == {"path": "/mcp"}
            await link.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {}})
            async with asyncio.timeout(PATIENCE):
                await arrived.wait()
            await proxy.die()
            assert (await inbox.failure(2)).executed is True
            await link.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {}})
            refused = await inbox.failure(3)
            assert (refused.hub_code, refused.executed) == (codes.PROXY_UNREACHABLE, False)


async def test_squid_resolves_names_that_the_hub_cannot_resolve(authority: PrivateAuthority) -> None:
    async with squid() as proxy, scripted(answering, authority.server(NAME)) as server:
        url = f"https://{NAME}:{server.port}/mcp"
        assert await result_of(url, proxy.url(), ca=str(authority.ca)) == {"path": "/mcp"}
        await proxy.logged(f"CONNECT {NAME}:{server.port}")


async def test_squid_is_reached_over_tls(authority: PrivateAuthority) -> None:
    cert_files = authority.issue("127.0.0.1")
    async with squid(tls=cert_files) as proxy, scripted(answering, authority.server(NAME)) as server:
        url = f"https://{NAME}:{server.port}/mcp"
        assert await result_of(url, proxy.url(scheme="https"), ca=str(authority.ca)) == {"path": "/mcp"}


async def test_tunnels_that_squid_closes_while_idle_are_replaced(authority: PrivateAuthority) -> None:
    async with (
        squid(idle="1 second") as proxy,
        scripted(answering, authority.server(NAME)) as server,
        reaching(f"https://{NAME}:{server.port}/mcp", proxy.url(), ca=str(authority.ca)) as (link, inbox),
    ):
        for number in (1, 2):
            assert await asked(link, inbox, number) == {"path": "/mcp"}
            async with asyncio.timeout(PATIENCE):
                while server.open:
                    await asyncio.sleep(0.05)
            await proxy.logged(f"CONNECT {NAME}:{server.port}")  # now its other end is closed, too
        assert server.connections == 2
