"""Pages in the browser: opened by URL, waited for, and shown to a model as a snapshot with references."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from mcp_hub.servers.builtin.browser_session import OpenBrowser
from mcp_hub.servers.builtin.proxy import Refused
from mcp_hub.servers.builtin.tabs import title_of
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult

if TYPE_CHECKING:
    from playwright.async_api import Download, Locator, Page, Request

MAX_AFTER_ACTION: Final = 20_000
"""Characters of the snapshot that comes with the result of an action."""
MAX_PART: Final = 60_000
"""Characters of a snapshot or text that was asked for; the rest is had with `offset`."""
SNAPSHOT_WAIT: Final = 10.0
SETTLE: Final = 0.3
"""Seconds in which an action's consequences begin: a navigation, a request, a dialog."""
SETTLE_AT_MOST: Final = 5.0
_STEP: Final = 0.05
_REFERENCE: Final = re.compile(r"(f\d+)?e\d+")


async def located(page: Page, ref: str) -> Locator:
    """The element of a reference. Raises ToolRefused if it is none, or one of a page that has changed since."""
    from playwright.async_api import Error

    if not _REFERENCE.fullmatch(ref):
        what = f"{ref[:100]!r} is no reference: browser_snapshot shows them, as in [ref=e12]."
        raise ToolRefused("invalid_parameters", what)
    locator = page.get_by_ref(ref)
    try:
        found = await locator.count()
    except Error:
        found = 0  # of a frame that is not there any more
    if not found:
        raise ToolRefused("tool_error", f"There is no element {ref} on the page any more: take a new snapshot.")
    return locator


async def tree_of(target: Page | Locator, depth: int | None = None) -> str:
    """The accessibility tree of a page or element, with references."""
    return await target.aria_snapshot(mode="ai", depth=depth, timeout=SNAPSHOT_WAIT * 1000)


def part_of(text: str, offset: int, limit: int, tool: str) -> str:
    """What of a long text is returned: from `offset`, at most `limit` characters, ending with a line."""
    if offset == 0 and len(text) <= limit:
        return text
    part = text[offset : offset + limit]
    end = offset + len(part)
    if end < len(text):
        part = part[: part.rfind("\n") + 1] or part
        end = offset + len(part)
        part += f"[{len(text) - end:,} characters more: {tool} with offset {end}]"
    return part or f"[It has only {len(text):,} characters.]"


async def settled(page: Page) -> None:
    """Wait for what an action has set off, but not for ever: a navigation, requests in flight."""
    from playwright.async_api import Error

    waiting: set[Request] = set()

    def begun(request: Request) -> None:
        waiting.add(request)

    def ended(request: Request) -> None:
        waiting.discard(request)

    page.on("request", begun)
    page.on("requestfinished", ended)
    page.on("requestfailed", ended)
    try:
        async with asyncio.timeout(SETTLE_AT_MOST):
            await asyncio.sleep(SETTLE)
            await page.wait_for_load_state("load")
            while waiting and not page.is_closed():  # noqa: ASYNC110 - three kinds of events end it
                await asyncio.sleep(_STEP)
    except (TimeoutError, Error):
        pass  # it goes on loading; or the tab has closed itself
    finally:
        page.remove_listener("request", begun)
        page.remove_listener("requestfinished", ended)
        page.remove_listener("requestfailed", ended)


def refuse_refused(browser: OpenBrowser, page: Page) -> None:
    """Raises ToolRefused if the tab stands on what the rules do not let be opened."""
    refusal = browser.guard.refusal_at(page.url)
    if refusal is not None:
        raise ToolRefused(refusal.code, str(refusal))


async def report(browser: OpenBrowser, *, tree: bool = True, said: str = "") -> ToolResult:
    """The result of an action: where the tab stands now, what happened meanwhile, and a snapshot.

    Raises ToolRefused if the tab stands on a refused page.
    """
    page = await browser.tabs.current()
    refuse_refused(browser, page)
    lines = [said] if said else []
    lines += [f"URL: {page.url[:2000]}", f"Title: {await title_of(page)}"]
    lines += notes(browser)
    if tree:
        snapshot = await tree_of(page)
        lines += ["Snapshot:", part_of(snapshot, 0, MAX_AFTER_ACTION, "browser_snapshot")]
    return text_result("\n".join(lines))


def notes(browser: OpenBrowser) -> list[str]:
    """What happened since the last result: dialogs, new tabs, downloads, what was refused."""
    return [*browser.tabs.take_notes(), *browser.guard.take_notes()]


def text_result(text: str) -> ToolResult:
    """A result of one text."""
    return ToolResult([{"type": "text", "text": text}])


NEWS_WAIT: Final = 1.0
"""Seconds between a navigation that was no navigation and the news of the download it became."""


def web_address(url: str) -> str:
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
    arrived = browser.downloads.arrived
    arrived.clear()
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
        arrived = browser.downloads.arrived
        arrived.clear()
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
    arrived = browser.downloads.arrived
    try:
        async with asyncio.timeout(NEWS_WAIT):
            return await arrived.wait()
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
