"""Opening URLs in a browser: in a tab, or as a file to keep."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcp_hub.servers.builtin.open_browser import OpenBrowser
from mcp_hub.servers.builtin.proxy import Refused
from mcp_hub.servers.builtin.snapshot import located, refuse_refused, settled
from mcp_hub.servers.local.results import ToolRefused

if TYPE_CHECKING:
    from playwright.async_api import Download, Page

NEWS_WAIT: Final = 1.0
"""Seconds between a navigation that was no navigation and the news of the download it became."""


def address(url: str) -> str:
    """A URL that a tool may open; a missing scheme is https. Raises ToolRefused for what is no web page."""
    text = url.strip()
    if not text:
        raise ToolRefused("invalid_parameters", "url is empty: name the page to open.")
    scheme, colon, rest = text.partition(":")
    if text == "about:blank" or (scheme.lower() in ("http", "https") and rest.startswith("//")):
        return text
    if colon and not rest.partition("/")[0].isdigit():  # not a host and its port
        what = f"Only http and https URLs are opened, not {scheme[:30].lower()!r}."
        raise ToolRefused("invalid_parameters", what)
    return f"https://{text}"


async def goto(browser: OpenBrowser, page: Page, url: str, seconds: float) -> str:
    """Open a URL in a tab; a hint where there is nothing to be seen of it.

    Raises ToolRefused where the rules, or the network, do not let it.
    """
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as Late

    _check(browser, url)
    browser.downloads.arrived.clear()
    try:
        response = await page.goto(url, timeout=seconds * 1000)
    except Late:
        raise
    except Error:
        _raise_failure(browser, url)
        if not await _download_began(browser):
            raise
        return ""  # what was to be opened is a file: the notes say so
    if response is not None and response.status == 502:
        _raise_failure(browser, page.url)
    await settled(page)
    if response is not None and response.headers.get("content-type", "").startswith("application/pdf"):
        return "This is a PDF, of which there is no snapshot: browser_download with its URL returns it."
    return ""


async def fetch(browser: OpenBrowser, url: str, seconds: float) -> Download | None:
    """The download of whatever is at a URL, in a tab of its own that nobody sees."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as Late

    _check(browser, url)
    page = await browser.tabs.hidden()
    try:
        session = await browser.context.new_cdp_session(page)
        frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        browser.downloads.arrived.clear()
        with browser.guard.keeping_as_file(frame):
            try:
                response = await page.goto(url, timeout=seconds * 1000)
            except Late:
                raise
            except Error:
                _raise_failure(browser, url)
                if not await _download_began(browser):
                    raise
                return browser.downloads.latest()
        refuse_refused(browser, page)
        _raise_failure(browser, page.url)
        answer = f"status {response.status}" if response is not None else "nothing"
        raise ToolRefused("tool_error", f"{url[:500]} cannot be downloaded: the server answered with {answer}.")
    finally:
        await page.close()


async def fetch_by_click(browser: OpenBrowser, ref: str, seconds: float) -> Download | None:
    """The download that a click sets off."""
    page = await browser.tabs.current()
    locator = await located(page, ref)
    async with page.expect_download(timeout=seconds * 1000) as coming:
        await locator.click(timeout=seconds * 1000)
    await coming.value
    return browser.downloads.latest()


async def _download_began(browser: OpenBrowser) -> bool:
    """Whether a navigation that failed did so because it became a download."""
    try:
        async with asyncio.timeout(NEWS_WAIT):
            return await browser.downloads.arrived.wait()
    except TimeoutError:
        return False


def _check(browser: OpenBrowser, url: str) -> None:
    try:
        browser.guard.check(url)
    except Refused as refusal:
        raise ToolRefused(refusal.code, str(refusal)) from None


def _raise_failure(browser: OpenBrowser, url: str) -> None:
    failure = browser.proxy.failure_at(url)
    if failure is not None:
        raise ToolRefused("tool_error", f"The page cannot be opened: {failure}.")
