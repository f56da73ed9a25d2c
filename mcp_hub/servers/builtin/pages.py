"""Pages in the browser: opens URLs, waits for pages, and shows them to a model as snapshots with references."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from mcp_hub.servers.builtin.browser_session import OpenBrowser
from mcp_hub.servers.builtin.checked_lookups import RequestRefused
from mcp_hub.servers.builtin.tabs import title_of
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult, part_of

if TYPE_CHECKING:
    from playwright.async_api import Download, Locator, Page, Request, Response

MAX_AFTER_ACTION: Final = 20_000
"""Most characters of the snapshot in the result of an action."""
SNAPSHOT_WAIT: Final = 10.0
SETTLE: Final = 0.3
"""Seconds within which the consequences of an action begin: a navigation, a request, a dialog."""
SETTLE_AT_MOST: Final = 5.0
_STEP: Final = 0.05
_REFERENCE: Final = re.compile(r"(f\d+)?e\d+")


async def find_element(page: Page, ref: str) -> Locator:
    """Returns the element that a snapshot's reference such as `e12` names.

    Raises ToolRefused if `ref` is not a reference, or its element is no longer on the page.
    """
    from playwright.async_api import Error

    if not _REFERENCE.fullmatch(ref):
        message = f"{ref[:100]!r} is not a reference: browser_snapshot shows them, as in [ref=e12]."
        raise ToolRefused("invalid_parameters", message)
    locator = page.get_by_ref(ref)
    try:
        count = await locator.count()
    except Error:
        count = 0  # the frame of the reference is gone
    if not count:
        raise ToolRefused("tool_error", f"The element {ref} is no longer on the page: take a new snapshot.")
    return locator


async def tree_of(target: Page | Locator, depth: int | None = None) -> str:
    """Returns the accessibility tree of a page or element, with references."""
    return await target.aria_snapshot(mode="ai", depth=depth, timeout=SNAPSHOT_WAIT * 1000)


async def wait_until_settled(page: Page) -> None:
    """Waits up to `SETTLE_AT_MOST` seconds until navigations and requests that an action caused have ended."""
    from playwright.async_api import Error

    pending: set[Request] = set()

    def on_request(request: Request) -> None:
        pending.add(request)

    def on_request_end(request: Request) -> None:
        pending.discard(request)

    page.on("request", on_request)
    page.on("requestfinished", on_request_end)
    page.on("requestfailed", on_request_end)
    try:
        async with asyncio.timeout(SETTLE_AT_MOST):
            await asyncio.sleep(SETTLE)
            await page.wait_for_load_state("load")
            while pending and not page.is_closed():  # noqa: ASYNC110 - three kinds of events end it
                await asyncio.sleep(_STEP)
    except (TimeoutError, Error):
        pass  # the page is still loading, or its tab has closed itself
    finally:
        page.remove_listener("request", on_request)
        page.remove_listener("requestfinished", on_request_end)
        page.remove_listener("requestfailed", on_request_end)


def refuse_refused(browser: OpenBrowser, page: Page) -> None:
    """Raises ToolRefused if the tab shows a page that the rules forbid."""
    refusal = browser.guard.refusal_at(page.url)
    if refusal is not None:
        raise ToolRefused(refusal.code, str(refusal))


async def report(browser: OpenBrowser, *, tree: bool = True, said: str = "") -> ToolResult:
    """Returns the result of an action: the tab's URL and title, what happened meanwhile, and a snapshot if `tree`.

    Raises ToolRefused if the tab shows a refused page.
    """
    page = await browser.tabs.current()
    refuse_refused(browser, page)
    lines = [said] if said else []
    lines += [f"URL: {page.url[:2000]}", f"Title: {await title_of(page)}"]
    lines += notes(browser)
    if tree:
        snapshot = await tree_of(page)
        lines += ["Snapshot:", part_of(snapshot, 0, MAX_AFTER_ACTION, "browser_snapshot with offset")]
    return text_result("\n".join(lines))


def notes(browser: OpenBrowser) -> list[str]:
    """Returns what happened since the last result: dialogs, new tabs, downloads, refused requests."""
    return [*browser.tabs.take_notes(), *browser.guard.take_notes()]


def text_result(text: str) -> ToolResult:
    """Returns a result with one text block."""
    return ToolResult([{"type": "text", "text": text}])


NEWS_WAIT: Final = 1.0
"""Seconds to wait, after a navigation failed, for the event that it became a download."""


def web_address(url: str) -> str:
    """Returns a URL that a tool may open; a missing scheme becomes https. Raises ToolRefused for any other scheme."""
    text = url.strip()
    if not text:
        raise ToolRefused("invalid_parameters", "url is empty: name the page to open.")
    scheme, colon, remainder = text.partition(":")
    if text == "about:blank" or (scheme.lower() in ("http", "https") and remainder.startswith("//")):
        return text
    if colon and not remainder.partition("/")[0].isdigit():  # not a host and its port
        message = f"Only http and https URLs are opened, not {scheme[:30].lower()!r}."
        raise ToolRefused("invalid_parameters", message)
    return f"https://{text}"


async def goto(browser: OpenBrowser, url: str, seconds: float) -> str:
    """Opens a URL in the current tab. Returns a hint for the caller if the tab cannot show it, else "".

    A tab whose process dies meanwhile is replaced once. Raises ToolRefused if the rules forbid it or it cannot be
    reached.
    """
    from playwright.async_api import Error

    _check_url(browser, url)
    page = await browser.tabs.current()
    try:
        hint = await _goto_and_settle(browser, page, url, seconds)
        if not browser.tabs.crashed(page):
            return hint
    except Error:
        if not browser.tabs.crashed(page):
            raise
    return await _goto_and_settle(browser, await browser.tabs.new(), url, seconds)


async def _goto_and_settle(browser: OpenBrowser, page: Page, url: str, seconds: float) -> str:
    response, download = await _goto(browser, page, url, seconds)
    if download is not None:
        return ""  # the URL was a file and is being downloaded, as the notes say
    if response is not None and response.status == 502:
        _raise_failure(browser, page.url)
    await wait_until_settled(page)
    if response is not None and response.headers.get("content-type", "").startswith("application/pdf"):
        return "This is a PDF, of which there is no snapshot: browser_download with its URL returns it."
    return ""


async def _goto(browser: OpenBrowser, page: Page, url: str, seconds: float) -> tuple[Response | None, Download | None]:
    """Opens a URL in a page. Returns its response, or else the download that this page has begun instead."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as PlaywrightTimeout

    begun: asyncio.Future[Download] = asyncio.get_running_loop().create_future()

    def on_download(download: Download) -> None:
        if not begun.done():
            begun.set_result(download)

    page.on("download", on_download)
    try:
        return await page.goto(url, timeout=seconds * 1000), None
    except PlaywrightTimeout:
        raise
    except Error:
        _raise_failure(browser, url)
        await asyncio.wait({begun}, timeout=NEWS_WAIT)
        if not begun.done():
            raise
        return None, begun.result()
    finally:
        page.remove_listener("download", on_download)


async def fetch(browser: OpenBrowser, url: str, seconds: float) -> Download:
    """Downloads the file at a URL in a hidden tab. Raises ToolRefused if it cannot be downloaded."""
    _check_url(browser, url)
    page = await browser.tabs.hidden()
    try:
        session = await browser.context.new_cdp_session(page)
        frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        with browser.guard.keeping_as_file(frame):
            response, download = await _goto(browser, page, url, seconds)
        if download is not None:
            return browser.downloads.take(download)
        refuse_refused(browser, page)
        _raise_failure(browser, page.url)
        response_text = f"status {response.status}" if response is not None else "nothing"
        raise ToolRefused("tool_error", f"{url[:500]} cannot be downloaded: the server answered with {response_text}.")
    finally:
        await page.close()


async def fetch_by_click(browser: OpenBrowser, ref: str, seconds: float) -> Download:
    """Clicks an element and returns the download that this starts. Raises ToolRefused."""
    page = await browser.tabs.chosen()
    locator = await find_element(page, ref)
    async with page.expect_download(timeout=seconds * 1000) as download_info:
        await locator.click(timeout=seconds * 1000)
    return browser.downloads.take(await download_info.value)


def _check_url(browser: OpenBrowser, url: str) -> None:
    try:
        browser.guard.check(url)
    except RequestRefused as refusal:
        raise ToolRefused(refusal.code, str(refusal)) from None


def _raise_failure(browser: OpenBrowser, url: str) -> None:
    failure = browser.proxy.failure_at(url)
    if failure is not None:
        raise ToolRefused("tool_error", f"The page cannot be opened: {failure}.")
