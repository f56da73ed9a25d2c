"""The browser of this process: one running Chromium, started by the first call and replaced after it has died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.servers.builtin import Settings, chromium
from mcp_hub.servers.builtin.chromium import READY_HOST, BrowserProfile
from mcp_hub.servers.builtin.page_guard import PageGuard
from mcp_hub.servers.builtin.proxy import Proxy
from mcp_hub.servers.builtin.scratch import Scratch
from mcp_hub.servers.builtin.tabs import Downloads, Tabs
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, ViewportSize

CLOSE_WAIT: Final = 1.0
"""Seconds that each of Chromium, its driver and the proxy has to end. The process itself is killed shortly after."""
ALIVE_WAIT: Final = 5.0
VIEWPORT: Final[ViewportSize] = {"width": 1280, "height": 800}
MAX_ERROR: Final = 1000


class OpenBrowser:
    """A running Chromium with its driver, its proxy and its guard. `gone` is set once any of them has ended."""

    def __init__(self, settings: Settings, scratch: Scratch, profile: BrowserProfile, proxy: Proxy) -> None:
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
        self._exit_stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Starts the proxy, the driver and Chromium.

        Raises ToolRefused if there is no browser or it does not start in time. `close` must be called in either case.
        """
        try:
            executable = chromium.find(self.settings.executable, os.environ, Path.home())
        except chromium.NoChromium as error:
            raise ToolRefused("server_unavailable", f"There is no browser to start: {error}.") from None
        from playwright.async_api import Error

        self._exit_stack.push_async_callback(_end_quietly, self.proxy.close)
        try:
            async with asyncio.timeout(chromium.LAUNCH_WAIT):
                await self.proxy.start()
                await self._launch(executable)
        except Error as error:
            message = f"The browser {executable} does not start: {_launch_error(error)}"
            raise ToolRefused("server_unavailable", message) from None
        except TimeoutError:  # an OSError as well
            limit = f"{chromium.LAUNCH_WAIT:g} s"
            raise ToolRefused("timeout", f"The browser {executable} did not start within {limit}.") from None
        except OSError as error:
            raise ToolRefused("server_unavailable", f"The browser {executable} does not start: {error}") from None

    async def _launch(self, executable: Path) -> None:
        driver = await chromium.start_driver()
        self._exit_stack.push_async_callback(_end_quietly, driver.stop)
        if chromium.needs_no_sandbox():
            print("browser: started as root, so Chromium runs without its sandbox", file=sys.stderr, flush=True)
        options = chromium.options(executable, self.proxy.url, self.settings.headless, self.downloads.directory)
        self.context = context = await driver.chromium.launch_persistent_context(
            self._profile.path, accept_downloads=True, service_workers="block", viewport=VIEWPORT, **options
        )
        self._exit_stack.push_async_callback(_end_quietly, context.close)
        self._profile.opened()
        browser = context.browser
        assert browser is not None
        context.on("close", self._on_end)
        browser.on("disconnected", self._on_end)
        await self.guard.attach(browser, self.gone.set)
        first, *restored = context.pages
        for page in restored:  # pages that the profile restores
            await page.close()
        # This page stays open, hidden from callers: a browser forgets session cookies with its last page.
        await first.goto(f"http://{READY_HOST}/")
        self.tabs = Tabs(context, self.guard, self.downloads)
        await self.tabs.current()

    def _on_end(self, _: Any) -> None:
        self.gone.set()

    async def new_context(self) -> BrowserContext:
        """Returns another browser context.

        It shares the rules of the guard with the first one, but no cookies or storage.
        """
        assert self.context.browser is not None
        return await self.context.browser.new_context(
            accept_downloads=False, service_workers="block", viewport=VIEWPORT
        )

    async def alive(self) -> bool:
        """Returns whether the browser still answers. A call may fail before the browser reports that it has ended."""
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(ALIVE_WAIT):
                await self.context.cookies(f"http://{READY_HOST}/")
        except (Error, TimeoutError):
            self.gone.set()
        return not self.gone.is_set()

    async def close(self) -> None:
        """Ends the browser, its driver and its proxy. Whatever does not end in time ends with this process."""
        self.gone.set()
        await self._exit_stack.aclose()
        await asyncio.to_thread(self._profile.release)
        await asyncio.to_thread(self._scratch.remove)


async def _end_quietly(end: Callable[[], Awaitable[None]]) -> None:
    """Ends one part within `CLOSE_WAIT` and ignores every error, as a part that has died already fails in many ways."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_WAIT):
            await end()


def playwright_message(error: Exception) -> str:
    """Returns the message of a Playwright error without Playwright's log of its attempts."""
    return str(error).partition("\nCall log")[0].strip()[:MAX_ERROR]


def _launch_error(error: Exception) -> str:
    """Returns the first line of Playwright's error and the last lines that Chromium itself wrote."""
    first, *log = str(error).strip().splitlines() or [""]
    chromium_lines = [line.partition("[err] ")[2] for line in log if "[err] " in line][-5:]
    return " | ".join([first, *chromium_lines])[:MAX_ERROR]


async def open_browser(settings: Settings) -> OpenBrowser:
    """Starts a new browser. Raises ToolRefused if there is none or it does not start."""
    scratch = Scratch("browser")
    try:
        profile = BrowserProfile(Path(settings.profile) if settings.profile else scratch.path / "profile")
    except BaseException:
        scratch.remove()
        raise
    browser = OpenBrowser(
        settings, scratch, profile, Proxy(settings.address_rules, settings.url_rules, settings.proxies)
    )
    try:
        await browser.start()
    except BaseException:
        await browser.close()
        raise
    return browser


NAVIGATION: Final = 30.0
"""Seconds a page has to load."""
ACTION: Final = 10.0
"""Seconds for any other action."""
GRACE: Final = 5.0
"""Seconds a tool may take beyond its deadline to report its outcome."""
TURN_WAIT: Final = 90.0
"""Seconds a call waits for the call before it. No tool takes longer than that."""
HUNG: Final = 1.0
"""Seconds within which a page that still runs answers a trivial script."""
READS: Final = {"readOnlyHint": True, "openWorldHint": True}
ACTS: Final = {"readOnlyHint": False, "openWorldHint": True}
MAX_LOST_URLS: Final = 10
"""Most lost tabs that are listed by URL."""

BrowserWork = Callable[[OpenBrowser], Awaitable[ToolResult]]


class CurrentBrowser:
    """Runs one call at a time on the browser of this process, starting or replacing the browser where needed.

    Each call has a deadline, and fails at once if the browser ends.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._browser: OpenBrowser | None = None
        self._urls: list[str] = []
        self._loss_note = ""
        self._is_closing = False
        """Whether the caller asked for the end of this browser."""
        self._lock = asyncio.Lock()

    def bounded(self, seconds: float) -> float:
        """Returns `seconds`, or the setting `web.timeout` if that is less."""
        return min(seconds, self.settings.timeout)

    @property
    def milliseconds(self) -> float:
        """Returns how long one action may take."""
        return self.bounded(ACTION) * 1000

    async def run(self, work: BrowserWork, seconds: float = ACTION, grace: float = GRACE) -> ToolResult:
        """Calls `work` with an open browser and returns its result, preceded by a note of what a crash has lost.

        `work` is cancelled after `seconds` plus `grace` seconds; `grace` is for work that ends by itself after
        `seconds`. Raises ToolRefused if the browser does not start, ends, or takes too long.
        """
        async with self._exclusive():
            browser = await self._ensure_browser()
            try:
                result = await self._run_within(work(browser), browser, self.bounded(seconds) + grace)
            except ToolRefused as refusal:
                raise ToolRefused(refusal.code, self._take_loss_note() + refusal.message) from None
            finally:
                if not browser.gone.is_set():
                    self._urls = browser.tabs.urls
            if loss_note := self._take_loss_note():
                return ToolResult([{"type": "text", "text": loss_note.strip()}, *result.content], result.structured)
            return result

    async def close(self) -> str:
        """Closes the browser if one is open, and returns a sentence that says so. The next call opens a new one."""
        async with self._exclusive():
            if self._browser is None:
                return "No browser was open."
            self._is_closing = True
            await self._drop(self._browser)
            return "The browser is closed."

    async def end(self) -> None:
        """Closes the browser at the end of the process, even if a call still runs."""
        browser, self._browser = self._browser, None
        if browser is not None:
            await browser.close()

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(TURN_WAIT):
                await self._lock.acquire()
        except TimeoutError:
            raise ToolRefused("timeout", "The browser is still busy with another call.") from None
        try:
            yield
        finally:
            self._lock.release()

    async def _ensure_browser(self) -> OpenBrowser:
        if self._browser is not None and self._browser.gone.is_set():
            self._loss_note = "" if self._is_closing else self._loss_message(self._browser)
            await self._drop(self._browser)
        if self._browser is None:
            self._browser = await open_browser(self.settings)
        return self._browser

    async def _drop(self, browser: OpenBrowser) -> None:
        """Closes the browser and then forgets it, so that the call after a cancelled one closes what is left."""
        await browser.close()
        self._browser, self._urls, self._is_closing = None, [], False

    def _loss_message(self, browser: OpenBrowser) -> str:
        urls = [url[:500] for url in self._urls[:MAX_LOST_URLS]]
        if len(self._urls) > MAX_LOST_URLS:
            urls.append(f"and {len(self._urls) - MAX_LOST_URLS} more")
        lost_tabs = f"its tabs ({', '.join(urls)})" if urls else "its tabs"
        profile_note = (
            "Cookies are kept in the profile" if browser.keeps_profile else "Its cookies and logins are lost as well"
        )
        return f"The browser had ended unexpectedly; a new one was opened. Lost are {lost_tabs}. {profile_note}.\n\n"

    def _take_loss_note(self) -> str:
        note, self._loss_note = self._loss_note, ""
        return note

    async def _run_within(self, work: Awaitable[ToolResult], browser: OpenBrowser, seconds: float) -> ToolResult:
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as PlaywrightTimeout

        work_task = asyncio.ensure_future(work)
        end_task = asyncio.ensure_future(browser.gone.wait())
        try:
            await asyncio.wait({work_task, end_task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not work_task.done():
                if browser.gone.is_set():
                    raise _ended_during_call()
                raise ToolRefused("timeout", f"It took longer than {seconds:g} s.{await self._close_if_hung(browser)}")
            return work_task.result()
        except (PlaywrightTimeout, TimeoutError) as error:
            message = playwright_message(error) or "A deadline within the call passed."
            raise ToolRefused("timeout", f"{message}{await self._close_if_hung(browser)}") from None
        except Error as error:
            if not await browser.alive():
                raise _ended_during_call() from None
            raise ToolRefused("tool_error", playwright_message(error)) from None
        finally:
            for task in (work_task, end_task):
                task.cancel()
            await asyncio.wait({work_task, end_task}, timeout=HUNG)
            if work_task.done() and not work_task.cancelled():
                work_task.exception()  # marks it as retrieved, so that asyncio does not log it

    async def _close_if_hung(self, browser: OpenBrowser) -> str:
        """Closes the current tab if its page no longer answers, for example because of an endless loop."""
        from playwright.async_api import Error

        page = browser.tabs.shown
        if page is None:
            return ""
        try:
            async with asyncio.timeout(HUNG):
                await page.evaluate("1")
                return ""
        except TimeoutError:
            pass
        except Error:
            return ""
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(HUNG):
                await browser.tabs.end(page)
        return " The page did not react to anything any more, so its tab was closed."


def _ended_during_call() -> ToolRefused:
    message = (
        "The browser ended during this call; what it was doing may have happened or not. The next call opens a new one."
    )
    return ToolRefused("server_unavailable", message)
