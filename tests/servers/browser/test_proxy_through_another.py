"""The browser's proxy goes through the proxy of the company: with tunnels, and with requests that are forwarded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.proxies import ProxyRules
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin.proxy import Proxy
from tests.servers.browser.test_proxy import connected, key, response_to
from tests.servers.scrape.site import Site, serving
from tests.transport.forward_proxy import ForwardingProxy, forwarding

pytestmark = pytest.mark.anyio

NAME = "news.example"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        running.put("/page", "The text.", "text/plain")
        yield running


async def started(outer: ForwardingProxy, kind: str = "http", user: str = "") -> Proxy:
    rules = ProxyRules.of({"ALL_PROXY": f"{kind}://{user}127.0.0.1:{outer.port}"})
    running = Proxy(AddressRules(), UrlRules(), rules)
    await running.start()
    return running


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_pages_with_and_without_tls_go_through_the_other_proxy(site: Site, kind: str) -> None:
    socks = kind == "socks5h"
    async with forwarding(hosts={NAME: site.port}, socks=socks, user="me", password="word") as outer:
        running = await started(outer, kind, "me:word@")
        try:
            status, body = await response_to(running, f"GET http://{NAME}/page HTTP/1.1", f"Host: {NAME}", key(running))
            assert (status, body) == (200, b"The text.")
            async with connected(running) as peer:
                peer.send(f"CONNECT {NAME}:443 HTTP/1.1", key(running))
                assert await peer.head() == 200
                peer.send("GET /page HTTP/1.1", f"Host: {NAME}")
                assert (await peer.answer())[1] == b"The text."
            first = f"SOCKS {NAME}:80" if socks else f"GET http://{NAME}/page"
            assert outer.asked == [first, f"{'SOCKS' if socks else 'CONNECT'} {NAME}:443"]
            assert "Proxy-Authorization" not in site.requests[0].headers
        finally:
            await running.close()


async def test_private_addresses_and_names_are_refused_before_the_other_proxy_is_asked(site: Site) -> None:
    async with forwarding(hosts={"intranet": site.port, "metadata.google.internal": site.port}) as outer:
        running = await started(outer)
        try:
            for host in ("intranet", "metadata.google.internal", "10.0.0.1", "169.254.169.254", "localhost"):
                status, _ = await response_to(running, f"GET http://{host}:{site.port}/ HTTP/1.1", key(running))
                assert status == 403, host
                assert (await response_to(running, f"CONNECT {host}:443 HTTP/1.1", key(running)))[0] == 403, host
            assert outer.asked == []
        finally:
            await running.close()


async def test_a_failure_of_the_other_proxy_is_reported(site: Site) -> None:
    async with forwarding(user="me", password="word") as outer:
        running = await started(outer)
        try:
            assert (await response_to(running, f"CONNECT {NAME}:443 HTTP/1.1", key(running)))[0] == 502
            assert "wants a user and a password" in (running.failure_at(f"https://{NAME}/") or "")
        finally:
            await running.close()
