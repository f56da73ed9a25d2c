"""Pages that are fetched through a forward proxy, and the addresses that are refused all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.proxies import ProxyRules
from tests.servers.scrape.site import Site, refused, scrape, scraper, serving
from tests.transport.forward_proxy import ForwardingProxy, forwarding

pytestmark = pytest.mark.anyio

NAME = "news.example"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


def rules(proxy: ForwardingProxy, kind: str = "http", user: str = "") -> ProxyRules:
    return ProxyRules.of({"ALL_PROXY": f"{kind}://{user}127.0.0.1:{proxy.port}"})


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_a_page_is_fetched_by_a_host_name_that_only_the_proxy_resolves(site: Site, kind: str) -> None:
    site.put("/page", "The text.", "text/plain")
    site.redirect("/moved", "/page")
    async with forwarding(hosts={NAME: site.port}, socks=kind == "socks5h") as proxy:
        async with scraper(proxies=rules(proxy, kind)) as client:
            assert await scrape(client, f"http://{NAME}/moved") == "The text."
        assert len(proxy.asked) == 2
        assert all(NAME in line for line in proxy.asked)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://[::1]:{port}/",
        "http://2130706433:{port}/",
        "http://localhost:{port}/",
        "http://metadata.google.internal/computeMetadata",
        "http://intranet/",
        "http://printer.local/",
    ],
)
async def test_private_addresses_and_names_are_refused_before_the_proxy_is_asked(site: Site, url: str) -> None:
    names = {"metadata.google.internal": site.port, "intranet": site.port, "printer.local": site.port}
    async with forwarding(hosts={NAME: site.port, **names}) as proxy:
        site.redirect("/leads", url.format(port=site.port))
        async with scraper(address_rules=AddressRules(), proxies=rules(proxy)) as client:
            assert await refused(client, url.format(port=site.port)) == "guard_blocked"
            assert await refused(client, f"http://{NAME}/leads") == "guard_blocked"
        assert proxy.asked == [f"GET http://{NAME}/leads"]


async def test_a_private_name_can_be_allowed(site: Site) -> None:
    site.put("/page", "The text.", "text/plain")
    async with forwarding(hosts={"wiki.internal": site.port}) as proxy:
        allowed = AddressRules(allow=("wiki.internal",))
        async with scraper(address_rules=allowed, proxies=rules(proxy)) as client:
            assert await scrape(client, "http://wiki.internal/page") == "The text."


async def test_a_proxy_error_is_reported_without_the_proxys_password(site: Site) -> None:
    async with forwarding(hosts={NAME: site.port}, user="me", password="other") as proxy:
        async with scraper(proxies=rules(proxy, user="me:s3cret-w0rd@")) as client:
            result = await client.call("scrape_website", {"url": f"https://{NAME}/page"})
        text = result["content"][0]["text"]
        assert result["isError"]
        assert "does not accept its user and password" in text
        assert "s3cret-w0rd" not in text
