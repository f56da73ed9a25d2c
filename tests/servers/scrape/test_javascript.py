"""Pages that hold nothing until a browser runs their scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from mcp_hub.security.url_rules import UrlRules
from tests.fakes.client import PATIENCE
from tests.servers.scrape.site import Site, refused, scraper, serving

pytestmark = pytest.mark.anyio

EMPTY = "<html><head><title>Shop</title></head><body><noscript>Please enable it</noscript><script>run()</script></body>"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


async def test_a_page_rendered_by_scripts_is_opened_in_a_browser(site: Site) -> None:
    script = "document.body.innerHTML = '<h1>Made ' + 'here</h1>'; fetch('/more'); fetch('/guarded/more')"
    url = site.put("/made", f"<html><body><script>{script}</script></body></html>", "text/html")
    start = site.redirect("/start", url)
    async with scraper(javascript=True, url_rules=UrlRules(deny=("127.0.0.1/guarded*",))) as client:
        result = await client.call("scrape_website", {"url": start})
        assert result["content"] == [{"type": "text", "text": "# Made here"}]
        source = result["_meta"]["mcp-hub/source"]
        assert (source["url"], source["rendered"], source["redirects"]) == (url, True, 1)
        below = psutil.Process(client.process.pid).children(recursive=True)
    assert "/more" in site.asked
    assert "/guarded/more" not in site.asked
    assert len(below) > 2
    _, alive = psutil.wait_procs(below, PATIENCE)
    assert alive == []


async def test_scripts_that_lead_to_a_guarded_url_are_refused(site: Site) -> None:
    url = site.put("/leads", "<html><body><script>location.href = '/guarded/page'</script></body></html>", "text/html")
    rules = UrlRules(deny=("127.0.0.1/guarded*",))
    async with scraper(javascript=True, url_rules=rules) as client:
        assert await refused(client, url) == "guard_blocked"
    assert "/guarded/page" not in site.asked


async def test_without_a_browser_the_plain_page_is_returned_with_a_note(site: Site, tmp_path: Path) -> None:
    url = site.put("/shop", EMPTY, "text/html")
    async with scraper(javascript=True, executable=str(tmp_path / "no-browser")) as client:
        result = await client.call("scrape_website", {"url": url})
    assert not result.get("isError")
    assert result["_meta"]["mcp-hub/source"]["rendered"] is False
    text = result["content"][0]["text"]
    assert text.startswith("Please enable it")
    assert "JavaScript" in text


async def test_with_javascript_off_no_browser_is_started(site: Site) -> None:
    url = site.put("/shop", EMPTY, "text/html")
    async with scraper(javascript=False) as client:
        result = await client.call("scrape_website", {"url": url})
    assert result["content"] == [{"type": "text", "text": "Please enable it"}]
    assert len(site.requests) == 1
