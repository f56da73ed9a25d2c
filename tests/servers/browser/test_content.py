"""What comes out of pages that is no text: pictures, PDFs, files."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from mcp_hub.servers.builtin.tabs import MAX_TABS
from tests.servers.browser.browsing import Browsing, browsing, ref_of
from tests.servers.browser.png import Picture, picture
from tests.servers.scrape.site import Site, serving

pytestmark = pytest.mark.anyio

PAGE = """<title>Red and blue</title><body style="margin:0;background:rgb(200,10,20)">
<button style="display:block;border:0;width:40px;height:30px;background:rgb(0,0,255)" aria-label=Blue></button>
<div style="height:3000px"></div><a href=/file download=report.bin>Report</a> <a href=/notes>Notes</a></body>"""
FILE = bytes(range(256)) * 40
LIMIT = 1_000_000


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        running.put("/page", PAGE, "text/html")
        running.put("/file", FILE, "application/octet-stream")
        running.put("/notes", "äöü\n", "text/plain; charset=utf-8", headers={"Content-Disposition": "attachment"})
        running.put("/large", b"x" * (LIMIT + 1), "application/octet-stream")

        async def endless(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(headers={"Content-Disposition": "attachment; filename=endless.bin"})
            await answer.prepare(request)
            while True:
                await answer.write(b"x" * 65536)

        running.answers["/endless"] = endless
        yield running


@pytest.fixture(scope="module")
async def browser(site: Site) -> AsyncIterator[Browsing]:
    async with browsing(max_bytes=LIMIT) as running:
        yield running


def resource(result: dict[str, Any]) -> dict[str, Any]:
    (embedded,) = [block["resource"] for block in result["content"] if block["type"] == "resource"]
    return dict(embedded)


async def screenshot(browser: Browsing, **arguments: Any) -> Picture:
    result = await browser.call("take_screenshot", **arguments)
    (image,) = [block for block in result["content"] if block["type"] == "image"]
    assert image["mimeType"] == "image/png"
    return picture(base64.b64decode(image["data"]))


async def test_a_screenshot_shows_the_viewport(browser: Browsing, site: Site) -> None:
    await browser.call("navigate", url=site.url("/page"))
    shot = await screenshot(browser)
    assert (shot.width, shot.height) == (1280, 800)
    assert (shot.at(20, 15), shot.at(60, 15), shot.at(20, 60)) == ((0, 0, 255), (200, 10, 20), (200, 10, 20))


async def test_a_screenshot_can_show_one_element_or_the_whole_page(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/page"))
    shot = await screenshot(browser, ref=ref_of(page, 'button "Blue"'), element="the blue one")
    assert (shot.width, shot.height, shot.at(39, 29)) == (40, 30, (0, 0, 255))
    assert (await screenshot(browser, fullPage=True)).height > 3000
    result = await browser.call("take_screenshot", type="jpeg")
    assert base64.b64decode(result["content"][1]["data"]).startswith(b"\xff\xd8\xff")


async def test_a_screenshot_of_an_endless_page_is_bounded(browser: Browsing, site: Site) -> None:
    site.put("/high", "<title>High</title><div style='height:200000px'></div>", "text/html")
    await browser.call("navigate", url=site.url("/high"))
    result = await browser.call("take_screenshot", fullPage=True)
    assert "8000" in result["content"][0]["text"]
    assert picture(base64.b64decode(result["content"][1]["data"])).height == 8000


async def test_a_page_can_be_saved_as_pdf(browser: Browsing, site: Site) -> None:
    await browser.call("navigate", url=site.url("/page"))
    pdf = resource(await browser.call("pdf_save"))
    data = base64.b64decode(pdf["blob"])
    assert pdf["mimeType"] == "application/pdf"
    assert data.startswith(b"%PDF-")
    assert data.rstrip().endswith(b"%%EOF")
    site.put("/page.pdf", data, "application/pdf")
    assert "browser_download" in await browser.text("navigate", url=site.url("/page.pdf"))
    assert base64.b64decode(resource(await browser.call("download", url=site.url("/page.pdf")))["blob"]) == data


async def test_a_file_is_downloaded_by_its_url_with_the_cookies_of_the_browser(browser: Browsing, site: Site) -> None:
    async def mine(request: web.Request) -> web.Response:
        return web.Response(text=request.cookies.get("who", "nobody"), content_type="text/html")

    site.answers["/mine"] = mine
    await browser.call("navigate", url=site.url("/page"))
    await browser.call("cookies", action="set", name="who", value="ada", url=site.url())
    assert resource(await browser.call("download", url=site.url("/mine")))["text"] == "ada"
    start = site.redirect("/elsewhere", "/file")
    download = resource(await browser.call("download", url=start))
    assert base64.b64decode(download["blob"]) == FILE
    assert download["mimeType"] == "application/octet-stream"
    assert f"(current) [Red and blue]({site.url('/page')})" in await browser.text("tabs", action="list")


async def test_a_file_is_downloaded_by_a_click(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/page"))
    result = await browser.call("download", ref=ref_of(page, 'link "Report"'))
    assert base64.b64decode(resource(result)["blob"]) == FILE
    assert "'report.bin'" in result["content"][0]["text"]


async def test_a_download_started_by_an_action_can_be_fetched_later(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/page"))
    assert "browser_download" in await browser.text("click", ref=ref_of(page, 'link "Notes"'))
    assert resource(await browser.call("download"))["text"] == "äöü\n"
    assert "browser_download" in await browser.text("navigate", url=site.url("/notes"))
    assert resource(await browser.call("download"))["text"] == "äöü\n"
    assert (await browser.refused("download"))[0] == "tool_error"


@pytest.mark.parametrize("path", ["/large", "/endless"])
async def test_a_download_above_the_limit_is_cancelled(browser: Browsing, site: Site, path: str) -> None:
    code, text = await browser.refused("download", url=site.url(path))
    assert code == "result_too_large"
    assert "web.max_bytes" in text


async def test_downloading_a_missing_file_is_an_error(browser: Browsing, site: Site) -> None:
    code, text = await browser.refused("download", url=site.url("/nothing-here"))
    assert code == "tool_error"
    assert "404" in text


async def test_a_download_that_another_tab_begins_is_not_taken_for_the_requested_one(
    browser: Browsing, site: Site
) -> None:
    asked, begun = asyncio.Event(), asyncio.Event()

    async def until_asked(request: web.Request) -> web.Response:
        await asked.wait()
        return web.Response()

    async def other(request: web.Request) -> web.Response:
        begun.set()
        return web.Response(body=b"other", headers={"Content-Disposition": "attachment; filename=other.bin"})

    async def nothing(request: web.Request) -> web.Response:
        asked.set()
        await begun.wait()
        return web.Response(status=204)

    site.answers |= {"/asked": until_asked, "/other": other, "/empty": nothing}
    site.put("/noisy", "<script>fetch('/asked').then(() => location = '/other')</script>", "text/html")
    await browser.call("navigate", url=site.url("/noisy"))
    await browser.call("tabs", action="new")
    assert (await browser.refused("download", url=site.url("/empty")))[0] == "tool_error"
    assert resource(await browser.call("download"))["uri"] == site.url("/other")
    asked.clear()
    begun.clear()
    await browser.call("tabs", action="select", index=0)
    await browser.call("navigate", url=site.url("/noisy"))
    await browser.call("tabs", action="new")
    assert (await browser.refused("navigate", url=site.url("/empty")))[0] == "tool_error"
    await browser.call("close")


async def test_a_cookie_is_deleted_by_its_domain_with_or_without_the_leading_dot(browser: Browsing) -> None:
    async def domains(action: str, domain: str, **arguments: str) -> list[str]:
        await browser.call("cookies", action=action, domain=domain, **arguments)
        listed = json.loads(await browser.text("cookies", action="list", domain="dots.example"))
        return sorted(cookie["domain"] for cookie in listed)

    await browser.call("cookies", action="set", name="a", value="1", domain=".sub.dots.example")
    for domain in ("dots.example", ".dots.example", "DOTS.example"):
        await browser.call("cookies", action="set", name="a", value="1", url="http://dots.example/")
        assert await domains("set", ".dots.example", name="a", value="2") == [".dots.example", "dots.example"]
        assert await domains("delete", "ots.example", name="a") == [".dots.example", "dots.example"]
        assert await domains("delete", domain, name="b") == [".dots.example", "dots.example"]
        assert await domains("delete", domain, name="a") == []
    assert "sub.dots.example" in await browser.text("cookies", action="list")
    await browser.call("cookies", action="clear")


async def test_a_file_is_downloaded_while_all_tabs_are_in_use(browser: Browsing, site: Site) -> None:
    await browser.call("navigate", url=site.url("/page"))
    listing = await browser.text("tabs", action="list")
    for _ in range(listing.count("\n") + 1, MAX_TABS):
        await browser.call("tabs", action="new")
    assert (await browser.refused("tabs", action="new"))[0] == "tool_error"
    for _ in range(2):
        assert base64.b64decode(resource(await browser.call("download", url=site.url("/file")))["blob"]) == FILE
        assert (await browser.text("tabs", action="list")).count("\n- ") == MAX_TABS - 1
    for _ in range(MAX_TABS - 1):
        await browser.call("tabs", action="close", index=0)
