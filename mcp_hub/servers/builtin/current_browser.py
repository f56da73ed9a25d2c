"""The browser of this process: opened by the first call, replaced after it has died, closed at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from mcp_hub.servers.builtin.open_browser import OpenBrowser, opened, said
from mcp_hub.servers.builtin.settings import Settings
from mcp_hub.servers.local.results import ToolRefused, ToolResult

NAVIGATION: Final = 30.0
"""Seconds a page has to load."""
ACTION: Final = 10.0
"""Seconds for anything else."""
GRACE: Final = 5.0
"""Seconds a tool may take beyond its deadline to say what it came to."""
TURN_WAIT: Final = 90.0
"""Seconds a call waits for the one before it: no tool takes longer."""
HUNG: Final = 1.0
"""Seconds in which a page that is not hung answers."""
READS: Final = {"readOnlyHint": True, "openWorldHint": True}
ACTS: Final = {"readOnlyHint": False, "openWorldHint": True}
MAX_SHOWN: Final = 10
"""Lost tabs that are named."""

Work = Callable[[OpenBrowser], Awaitable[ToolResult]]


class CurrentBrowser:
    """One call at a time; each has a deadline, and none waits for a browser that is not there any more."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._open: OpenBrowser | None = None
        self._urls: list[str] = []
        self._lost = ""
        self._turn = asyncio.Lock()

    def bounded(self, seconds: float) -> float:
        """These seconds, but never more than the setting `web.timeout` has."""
        return min(seconds, self.settings.timeout)

    async def run(self, work: Work, seconds: float = ACTION, grace: float = GRACE) -> ToolResult:
        """What `work` makes with an open browser. Raises ToolRefused; says first what a crash has lost.

        `grace` is for work that keeps to `seconds` by itself.
        """
        async with self._in_turn():
            browser = await self._ready()
            try:
                result = await self._within(work(browser), browser, self.bounded(seconds) + grace)
            except ToolRefused as refusal:
                raise ToolRefused(refusal.code, self._told() + refusal.message) from None
            finally:
                if not browser.gone.is_set():
                    self._urls = browser.tabs.urls
            if told := self._told():
                return ToolResult([{"type": "text", "text": told.strip()}, *result.content], result.structured)
            return result

    async def close(self) -> str:
        """Close the browser, if there is one; the next call opens a new one."""
        async with self._in_turn():
            browser, self._open, self._lost, self._urls = self._open, None, "", []
            if browser is None:
                return "No browser was open."
            await browser.close()
            return "The browser is closed."

    async def end(self) -> None:
        """Close the browser at the end of the process, whatever still runs."""
        browser, self._open = self._open, None
        if browser is not None:
            await browser.close()

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(TURN_WAIT):
                await self._turn.acquire()
        except TimeoutError:
            raise ToolRefused("timeout", "The browser is still busy with another call.") from None
        try:
            yield
        finally:
            self._turn.release()

    async def _ready(self) -> OpenBrowser:
        if self._open is not None and self._open.gone.is_set():
            dead, self._open = self._open, None
            self._lost = self._loss(dead)
            await dead.close()
        if self._open is None:
            self._open = await opened(self.settings)
        return self._open

    def _loss(self, browser: OpenBrowser) -> str:
        shown = [url[:500] for url in self._urls[:MAX_SHOWN]]
        if len(self._urls) > MAX_SHOWN:
            shown.append(f"and {len(self._urls) - MAX_SHOWN} more")
        what = f"its tabs ({', '.join(shown)})" if shown else "its tabs"
        rest = "Cookies are kept in the profile" if browser.keeps_profile else "Its cookies and logins are lost as well"
        return f"The browser had ended unexpectedly; a new one was opened. Lost are {what}. {rest}.\n\n"

    def _told(self) -> str:
        lost, self._lost = self._lost, ""
        return lost

    async def _within(self, work: Awaitable[ToolResult], browser: OpenBrowser, seconds: float) -> ToolResult:
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        working = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(browser.gone.wait())
        try:
            await asyncio.wait({working, ending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                if browser.gone.is_set():
                    raise _ended_meanwhile()
                raise ToolRefused("timeout", f"It took longer than {seconds:g} s.{await self._unhang(browser)}")
            return working.result()
        except (Late, TimeoutError) as error:
            what = said(error) or "A deadline within the call passed."
            raise ToolRefused("timeout", f"{what}{await self._unhang(browser)}") from None
        except Error as error:
            if not await browser.alive():
                raise _ended_meanwhile() from None
            raise ToolRefused("tool_error", said(error)) from None
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.wait({working, ending}, timeout=HUNG)
            if working.done() and not working.cancelled():
                working.exception()  # seen: it is not news any more

    async def _unhang(self, browser: OpenBrowser) -> str:
        """Close the current tab if its page answers nothing any more, such as one in an endless loop."""
        from playwright.async_api import Error

        page = await browser.tabs.current()
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
                await browser.tabs.close(None)
        return " The page did not react to anything any more, so its tab was closed."


def _ended_meanwhile() -> ToolRefused:
    what = (
        "The browser ended during this call; what it was doing may have happened or not. The next call opens a new one."
    )
    return ToolRefused("server_unavailable", what)
