"""One running Chromium: its driver, its proxy, its guard, its one context and the tabs in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.servers.builtin import chromium
from mcp_hub.servers.builtin.chromium import READY_HOST
from mcp_hub.servers.builtin.downloads import Downloads
from mcp_hub.servers.builtin.page_guard import PageGuard
from mcp_hub.servers.builtin.profile import Profile
from mcp_hub.servers.builtin.proxy import Proxy
from mcp_hub.servers.builtin.scratch import Scratch
from mcp_hub.servers.builtin.settings import Settings
from mcp_hub.servers.builtin.tabs import Tabs
from mcp_hub.servers.local.results import ToolRefused

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, ViewportSize

CLOSE_WAIT: Final = 1.0
"""Seconds each of Chromium, its driver and the proxy has to end; what runs us may have little more for all."""
ALIVE_WAIT: Final = 5.0
VIEWPORT: Final[ViewportSize] = {"width": 1280, "height": 800}
MAX_ERROR: Final = 1000


class OpenBrowser:
    """Started by `opened`. `gone` is set once the browser, its driver or its guard has ended."""

    def __init__(self, settings: Settings, scratch: Scratch, profile: Profile, proxy: Proxy) -> None:
        self.settings = settings
        self.keeps_profile = settings.profile is not None
        self.proxy = proxy
        self.guard = PageGuard(settings.url_rules, proxy)
        self.downloads = Downloads(scratch.path / "downloads", settings.max_bytes)
        self.gone = asyncio.Event()
        self.context: BrowserContext
        self.tabs: Tabs
        self._scratch = scratch
        self._profile = profile
        self._ends = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Start everything. Raises ToolRefused; `close` is to be called then as well."""
        try:
            executable = chromium.find(self.settings.executable, os.environ, Path.home())
        except chromium.NoChromium as error:
            raise ToolRefused("server_unavailable", f"There is no browser to start: {error}.") from None
        from playwright.async_api import Error

        self._ends.push_async_callback(_ended, self.proxy.close)
        try:
            async with asyncio.timeout(chromium.LAUNCH_WAIT):
                await self.proxy.start()
                await self._launch(executable)
        except Error as error:
            what = f"The browser {executable} does not start: {_reason(error)}"
            raise ToolRefused("server_unavailable", what) from None
        except TimeoutError:  # an OSError as well
            waited = f"{chromium.LAUNCH_WAIT:g} s"
            raise ToolRefused("timeout", f"The browser {executable} did not start within {waited}.") from None
        except OSError as error:
            raise ToolRefused("server_unavailable", f"The browser {executable} does not start: {error}") from None

    async def _launch(self, executable: Path) -> None:
        driver = await chromium.start_driver()
        self._ends.push_async_callback(_ended, driver.stop)
        if chromium.needs_no_sandbox():
            print("browser: started as root, so Chromium runs without its sandbox", file=sys.stderr, flush=True)
        options = chromium.options(executable, self.proxy, self.settings.headless, self.downloads.directory)
        self.context = context = await driver.chromium.launch_persistent_context(
            self._profile.path, accept_downloads=True, service_workers="block", viewport=VIEWPORT, **options
        )
        self._ends.push_async_callback(_ended, context.close)
        self._profile.opened()
        browser = context.browser
        assert browser is not None
        context.on("close", self._has_gone)
        browser.on("disconnected", self._has_gone)
        await self.guard.attach(browser, self.gone.set)
        first, *others = context.pages
        for page in others:  # what a profile opens by itself
            await page.close()
        # It stays, unseen: with its last page a browser forgets the cookies of the session.
        await first.goto(f"http://{READY_HOST}/")
        self.tabs = Tabs(context, self.guard, self.downloads)
        await self.tabs.current()

    def _has_gone(self, _: Any) -> None:
        self.gone.set()

    async def new_context(self) -> BrowserContext:
        """Another context, which shares nothing with the first one but the rules."""
        assert self.context.browser is not None
        return await self.context.browser.new_context(
            accept_downloads=False, service_workers="block", viewport=VIEWPORT
        )

    async def alive(self) -> bool:
        """Whether the browser still answers; a failure may come before the news that it has ended."""
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(ALIVE_WAIT):
                await self.context.cookies(f"http://{READY_HOST}/")
        except (Error, TimeoutError):
            self.gone.set()
        return not self.gone.is_set()

    async def close(self) -> None:
        """End it all; what does not end in time ends with this process."""
        self.gone.set()
        await self._ends.aclose()
        await asyncio.to_thread(self._profile.release)
        await asyncio.to_thread(self._scratch.remove)


async def _ended(end: Callable[[], Awaitable[None]]) -> None:
    """End one part, in time or not at all; one that has died already says so in many ways."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_WAIT):
            await end()


def said(error: Exception) -> str:
    """What Playwright says, without its log of every attempt."""
    return str(error).partition("\nCall log")[0].strip()[:MAX_ERROR]


def _reason(error: Exception) -> str:
    """The first line of what Playwright says of a start, and the last ones of what Chromium said itself."""
    first, *log = str(error).strip().splitlines() or [""]
    own = [line.partition("[err] ")[2] for line in log if "[err] " in line][-5:]
    return " | ".join([first, *own])[:MAX_ERROR]


async def opened(settings: Settings) -> OpenBrowser:
    """A new browser. Raises ToolRefused if there is none or it does not start."""
    scratch = Scratch("browser")
    try:
        profile = Profile(Path(settings.profile) if settings.profile else scratch.path / "profile")
    except BaseException:
        scratch.remove()
        raise
    browser = OpenBrowser(settings, scratch, profile, Proxy(settings.address_rules, settings.url_rules))
    try:
        await browser.start()
    except BaseException:
        await browser.close()
        raise
    return browser
