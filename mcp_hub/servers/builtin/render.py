"""Renders pages in a browser, for pages that have no content without JavaScript."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.browser_session import OpenBrowser, open_browser, playwright_message
from mcp_hub.servers.builtin.checked_lookups import RequestRefused
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
        self._browser: OpenBrowser | None = None
        self._lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(PAGES_AT_ONCE)
        self._active_pages = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._close_task: asyncio.Task[None] | None = None

    async def rendered(self, url: str, seconds: float) -> tuple[str, str]:
        """Renders a page; see `render_page`."""
        try:
            async with asyncio.timeout(seconds) as limit, self._slots:
                self._active_pages += 1
                try:
                    browser = await self._ensure_browser()
                    return await self._render(browser, url, limit.when() or 0.0)
                finally:
                    self._active_pages -= 1
                    self._restart_idle_timer()
        except TimeoutError:
            raise ToolRefused("timeout", f"the browser took longer than {seconds:.3g} s") from None

    async def _ensure_browser(self) -> OpenBrowser:
        async with self._lock:
            if self._browser is not None and self._browser.gone.is_set():
                await self._browser.close()
                self._browser = None
            if self._browser is None:
                self._browser = await open_browser(self._settings)
            return self._browser

    async def _render(self, browser: OpenBrowser, url: str, deadline: float) -> tuple[str, str]:
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as PlaywrightTimeout

        loop = asyncio.get_running_loop()
        try:
            browser.guard.check(url)
            context = await browser.new_context()
            try:
                page = await context.new_page()
                await page.goto(url, wait_until="domcontentloaded", timeout=(deadline - loop.time()) * 1000)
                idle_timeout = max((deadline - loop.time()) * QUIET, _READY) * 1000
                with contextlib.suppress(PlaywrightTimeout):  # some pages never stop making requests
                    await page.wait_for_load_state("networkidle", timeout=idle_timeout)
                html, final_url = await _page_content(page), page.url
            finally:
                with contextlib.suppress(Error):
                    await context.close()
        except RequestRefused as refusal:
            raise ToolRefused(refusal.code, str(refusal)) from None
        except PlaywrightTimeout:
            raise TimeoutError from None
        except Error as error:
            raise ToolRefused("tool_error", playwright_message(error)) from None
        if (refused := browser.guard.refusal_at(final_url)) is not None:
            raise ToolRefused(refused.code, str(refused))
        if len(html) > self._settings.max_bytes:
            limit = f"{self._settings.max_bytes:,} (web.max_bytes)"
            raise ToolRefused(
                "result_too_large", f"the page has {len(html):,} characters in a browser, more than {limit}"
            )
        return html, final_url

    def _restart_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(WARM, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self._active_pages == 0:
            self._close_task = asyncio.ensure_future(self.close())

    async def close(self) -> None:
        """Ends the browser, if one is open. The next page opens another."""
        async with self._lock:
            browser, self._browser = self._browser, None
            if browser is not None:
                await browser.close()


async def _page_content(page: Page) -> str:
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
