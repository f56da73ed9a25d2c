"""Pages made by their scripts, for whoever wants their HTML: one browser, a context of its own for each page."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import psutil
import pytest
from aiohttp import web

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin import Settings, render
from mcp_hub.servers.local.tool_results import ToolRefused
from tests.fakes.client import PATIENCE
from tests.servers.browser.browsing import LOOPBACK, below, chromiums
from tests.servers.scrape.site import Site, scrape, scraper, serving

pytestmark = pytest.mark.anyio

SCRIPTED = "<body><script>fetch('/data').then((r) => r.text()).then((t) => { document.body.innerText = t })</script>"


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        running.put("/made", SCRIPTED, "text/html")

        async def data(request: web.Request) -> web.Response:
            answer = web.Response(text=f"cookies: {dict(request.cookies)}")
            answer.set_cookie("seen", "yes")
            return answer

        async def never(request: web.Request) -> web.Response:
            await running.released.wait()
            return web.Response()

        running.answers["/data"] = data
        running.answers["/never"] = never
        yield running


@pytest.fixture(scope="module")
async def warm(site: Site) -> AsyncIterator[Settings]:
    """Settings of a browser that is kept for the module."""
    rules = UrlRules(deny=("127.0.0.1/secret*",), message="Not this one.")
    with mock.patch.dict(os.environ):
        yield Settings(url_rules=rules, address_rules=LOOPBACK)
        await render.close()


def browsers() -> set[int]:
    """Ids of the browsers of this process."""
    return {process.pid for process in chromiums(os.getpid())}


async def test_rendered_pages_have_run_their_scripts_and_share_a_browser_but_no_cookies(
    warm: Settings, site: Site
) -> None:
    start = site.redirect("/start", "/made")
    html, url = await render.render_page(start, warm, PATIENCE)
    assert url == site.url("/made")
    assert "cookies: {}" in html
    first = browsers()
    pages = await asyncio.gather(*(render.render_page(site.url("/made"), warm, PATIENCE) for _ in range(6)))
    assert all("cookies: {}" in html for html, _ in pages)
    assert browsers() == first
    assert len(first) == 1


async def test_url_rules_apply_to_rendered_pages(warm: Settings, site: Site) -> None:
    site.put("/leads", "<script>location = '/secret/page'</script>", "text/html")
    for url in (site.url("/secret/page"), site.url("/leads"), site.redirect("/hop", "http://10.0.0.1/")):
        with pytest.raises(ToolRefused) as refused:
            await render.render_page(url, warm, PATIENCE)
        assert refused.value.code == "guard_blocked"
    assert "/secret/page" not in site.asked


async def test_a_silent_page_times_out_and_a_page_that_never_settles_is_returned_as_it_is(
    warm: Settings, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "QUIET", 0.03)
    with pytest.raises(ToolRefused) as refused:
        await render.render_page(site.url("/never"), warm, 1.0)
    assert refused.value.code == "timeout"
    site.put("/restless", "<p>Here</p><script>setInterval(() => fetch('/data'), 50)</script>", "text/html")
    html, _ = await render.render_page(site.url("/restless"), warm, PATIENCE)
    assert "Here" in html


async def test_a_browser_that_died_is_replaced(warm: Settings, site: Site) -> None:
    await render.render_page(site.url("/made"), warm, PATIENCE)
    (pid,) = browsers()
    dead = psutil.Process(pid)
    dead.kill()
    psutil.wait_procs([dead], PATIENCE)
    try:
        html, _ = await render.render_page(site.url("/made"), warm, PATIENCE)
    except ToolRefused:  # the news of its end came with this very page
        html, _ = await render.render_page(site.url("/made"), warm, PATIENCE)
    assert "cookies: {}" in html


async def test_an_idle_browser_is_closed_after_a_timeout(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "WARM", 0.01)
    settings = Settings(address_rules=AddressRules(allow=(f"127.0.0.1:{site.port}",)))
    before = browsers()
    with mock.patch.dict(os.environ):
        await render.render_page(site.url("/made"), settings, PATIENCE)
    async with asyncio.timeout(PATIENCE):
        while browsers() - before:
            await asyncio.sleep(0.01)


async def test_the_browser_ends_with_the_scrapers_process(site: Site) -> None:
    with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ, TMPDIR=directory):
        async with scraper(javascript=True) as client:
            assert "cookies" in await scrape(client, site.url("/made"))
            started = below(client.process.pid)
            assert list(Path(directory).glob("mcp-hub-browser-*"))
        assert psutil.wait_procs(started, PATIENCE)[1] == []
        assert list(Path(directory).glob("mcp-hub-browser-*")) == []
