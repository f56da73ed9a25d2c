"""Renders pages in a browser, for pages that have no content without JavaScript."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.browser_session import OpenBrowser, open_browser, playwright_message
from mcp_hub.servers.builtin.proxy import RequestRefused
from mcp_hub.servers.local.tool_results import ToolRefused

if TYPE_CHECKING:
    from playwright.async_api import Page

WARM: Final = 60.0
"""Seconds a browser is kept after its last page. Rendering then takes a moment instead of seconds."""
PAGES_AT_ONCE: Final = 4
QUIET: Final = 0.7
"""Share of the remaining time that is spent waiting until the page makes no more requests."""
_READY: Final = 1.0
"""Least seconds that a page has before its content is read."""
_TRIES: Final = 3


class Renderer:
    """One browser for all pages, with a separate browser context for each page."""

    def __init__(self, settings: Settings) -> None:
        self._settings = replace(settings, profile=None, headless=True)
        self._open: OpenBrowser | None = None
        self._opening = asyncio.Lock()
        self._slots = asyncio.Semaphore(PAGES_AT_ONCE)
        self._running = 0
        self._cooling: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def rendered(self, url: str, seconds: float) -> tuple[str, str]:
        """Renders a page; see `render_page`."""
        try:
            async with asyncio.timeout(seconds) as limit, self._slots:
                self._running += 1
                try:
                    browser = await self._browser()
                    return await self._page(browser, url, limit.when() or 0.0)
                finally:
                    self._running -= 1
                    self._cool()
        except TimeoutError:
            raise ToolRefused("timeout", f"the browser took longer than {seconds:.3g} s") from None

    async def _browser(self) -> OpenBrowser:
        async with self._opening:
            if self._open is not None and self._open.gone.is_set():
                await self._open.close()
                self._open = None
            if self._open is None:
                self._open = await open_browser(self._settings)
            return self._open

    async def _page(self, browser: OpenBrowser, url: str, deadline: float) -> tuple[str, str]:
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        loop = asyncio.get_running_loop()
        try:
            browser.guard.check(url)
            context = await browser.new_context()
            try:
                page = await context.new_page()
                await page.goto(url, wait_until="domcontentloaded", timeout=(deadline - loop.time()) * 1000)
                quiet = max((deadline - loop.time()) * QUIET, _READY) * 1000
                with contextlib.suppress(Late):  # some pages never stop making requests
                    await page.wait_for_load_state("networkidle", timeout=quiet)
                html, final = await _content(page), page.url
            finally:
                with contextlib.suppress(Error):
                    await context.close()
        except RequestRefused as refusal:
            raise ToolRefused(refusal.code, str(refusal)) from None
        except Late:
            raise TimeoutError from None
        except Error as error:
            raise ToolRefused("tool_error", playwright_message(error)) from None
        if (refused := browser.guard.refusal_at(final)) is not None:
            raise ToolRefused(refused.code, str(refused))
        if len(html) > self._settings.max_bytes:
            limit = f"{self._settings.max_bytes:,} (web.max_bytes)"
            raise ToolRefused(
                "result_too_large", f"the page has {len(html):,} characters in a browser, more than {limit}"
            )
        return html, final

    def _cool(self) -> None:
        if self._cooling is not None:
            self._cooling.cancel()
        self._cooling = asyncio.get_running_loop().call_later(WARM, self._cold)

    def _cold(self) -> None:
        if self._running == 0:
            self._closing = asyncio.ensure_future(self.close())

    async def close(self) -> None:
        """Ends the browser, if one is open. The next page opens another."""
        async with self._opening:
            browser, self._open = self._open, None
            if browser is not None:
                await browser.close()


async def _content(page: Page) -> str:
    """Returns the HTML of a page, trying again while the page is navigating to another."""
    from playwright.async_api import Error

    for _ in range(_TRIES - 1):
        try:
            return await page.content()
        except Error:
            await page.wait_for_load_state("domcontentloaded")
    return await page.content()


_renderers: dict[Settings, Renderer] = {}


async def render_page(url: str, settings: Settings, seconds: float) -> tuple[str, str]:
    """Returns the HTML of a page after its scripts have run, and its URL after all redirects.

    Every request of the page is under the rules in `settings`, and nothing is kept from one page to the next. Raises
    ToolRefused with the code `guard_blocked`, `timeout`, `result_too_large`, or `server_unavailable` if there is no
    browser.
    """
    if settings not in _renderers:
        _renderers[settings] = Renderer(settings)
    return await _renderers[settings].rendered(url, seconds)


async def close() -> None:
    """Ends every browser that is kept warm."""
    for renderer in list(_renderers.values()):
        await renderer.close()
