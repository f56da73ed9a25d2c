"""Pages that hold nothing until a browser runs their scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scrape.site import Site, scraper, serving

pytestmark = pytest.mark.anyio

EMPTY = "<html><head><title>Shop</title></head><body><noscript>Please enable it</noscript><script>run()</script></body>"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


async def test_without_a_browser_what_was_there_is_returned_and_the_lack_is_said(site: Site, tmp_path: Path) -> None:
    url = site.put("/shop", EMPTY, "text/html")
    async with scraper(javascript=True, executable=str(tmp_path / "no-browser")) as client:
        result = await client.call("scrape_website", {"url": url})
    assert not result.get("isError")
    assert result["_meta"]["mcp-hub/source"]["rendered"] is False
    text = result["content"][0]["text"]
    assert text.startswith("Please enable it")
    assert "JavaScript" in text


async def test_switched_off_no_browser_is_tried(site: Site) -> None:
    url = site.put("/shop", EMPTY, "text/html")
    async with scraper(javascript=False) as client:
        result = await client.call("scrape_website", {"url": url})
    assert result["content"] == [{"type": "text", "text": "Please enable it"}]
    assert len(site.requests) == 1
