"""`builtin: web` in a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.client import StdioClient, hub
from tests.servers.scrape.site import serving
from tests.transport.forward_proxy import forwarding

pytestmark = pytest.mark.anyio


async def scraped(client: StdioClient, url: str) -> dict[str, object]:
    return await client.call("reader__scrape_website", {"url": url})


async def test_a_page_is_read_through_the_hub_by_the_rules_of_the_file(tmp_path: Path) -> None:
    async with serving() as site, serving() as inside:
        page = site.put("/page", "<h1>Read</h1>", "text/html")
        redirected = site.redirect("/away", inside.url("/"))
        denied = site.redirect("/denied", "/private/page")
        web = {"allow_addresses": [f"127.0.0.1:{site.port}"], "max_bytes": "10KiB", "javascript": False}
        guard = {"deny_urls": ["127.0.0.1/private*"], "message": "Not that one."}
        async with hub(tmp_path, {"reader": {"builtin": "web"}}, web=web, guard=guard) as client:
            assert await client.tool_names() == ["reader__scrape_website"]
            result = await scraped(client, page)
            assert result["content"] == [{"type": "text", "text": "# Read"}]
            assert result["_meta"]["mcp-hub/source"]["url"] == page
            codes = []
            for url in (redirected, denied, site.put("/large", "x" * 20_000, "text/plain"), "file:///etc/hostname"):
                result = await scraped(client, url)
                assert result["isError"]
                codes.append(result["_meta"]["mcp-hub/error"]["code"])
        assert codes == ["guard_blocked", "guard_blocked", "result_too_large", "guard_blocked"]
        assert inside.requests == []
        assert "/private/page" not in site.asked


@pytest.mark.parametrize("place", ["root", "variable"])
async def test_pages_are_fetched_through_the_proxy_of_the_root_or_of_the_environment(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as site, forwarding(hosts={"news.example": site.port}, user="me", password="w0rd") as proxy:
        site.put("/page", "The text.", "text/plain")
        address = f"http://me:w0rd@127.0.0.1:{proxy.port}"
        if place == "variable":
            monkeypatch.setenv("HTTP_PROXY", address)
        async with hub(
            tmp_path, {"reader": {"builtin": "web"}}, **({"proxy": address} if place == "root" else {})
        ) as client:
            result = await scraped(client, "http://news.example/page")
        assert result["content"] == [{"type": "text", "text": "The text."}]
        assert proxy.asked == ["GET http://news.example/page"]
