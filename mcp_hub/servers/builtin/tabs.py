"""The tabs of one browser, and the downloads that begin in them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import mimetypes
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.servers.builtin.page_guard import PageGuard
from mcp_hub.servers.local.tool_results import ToolRefused
from mcp_hub.transport.background import TaskSet

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Page, WebSocket

MAX_WAITING: Final = 10
"""Most downloads that wait to be fetched; the oldest are dropped."""
MAX_TEXT: Final = 256 * 1024
"""Most bytes of a text file that is returned as text instead of base64."""
_POLL: Final = 0.1
_TEXT_TYPES: Final = frozenset({"application/json", "application/xml", "application/javascript", "image/svg+xml"})


class Downloads:
    """The downloads of one browser, oldest first. All files in `directory` together have at most `max_bytes`."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.directory = directory
        self._max_bytes = max_bytes
        self._pending: list[Download] = []
        self._too_large: set[Download] = set()
        self._tasks = TaskSet()

    def started(self, download: Download) -> str:
        """Registers a download that has begun, and returns a sentence about it for the caller."""
        self._pending.append(download)
        self._spawn(self._watch(download))
        while len(self._pending) > MAX_WAITING:
            self._spawn(self._drop(self._pending.pop(0)))
        return f"A download began: {download.suggested_filename!r}. browser_download without arguments returns it."

    def latest(self) -> Download | None:
        """Removes and returns the newest download that nobody has fetched, or None."""
        return self._pending.pop() if self._pending else None

    def take(self, download: Download) -> Download:
        """Removes this download from those that wait to be fetched, and returns it."""
        if download in self._pending:
            self._pending.remove(download)
        return download

    async def content(self, download: Download, content_type: str | None) -> list[dict[str, Any]]:
        """Waits until a download is complete and returns its content blocks.

        Raises ToolRefused if it fails or is too large.
        """
        try:
            failure = await download.failure()
            if download in self._too_large:
                limit = f"{self._max_bytes:,} bytes (web.max_bytes)"
                raise ToolRefused("result_too_large", f"{download.suggested_filename!r} is larger than {limit}.")
            if failure is not None:
                raise ToolRefused("tool_error", f"The download of {download.suggested_filename!r} failed: {failure}.")
            data = await asyncio.to_thread(Path(await download.path()).read_bytes)
            if len(data) > self._max_bytes:
                limit = f"{self._max_bytes:,} (web.max_bytes)"
                message = f"{download.suggested_filename!r} has {len(data):,} bytes, more than {limit}."
                raise ToolRefused("result_too_large", message)
        finally:
            self._spawn(self._drop(download))
        name = download.suggested_filename
        kind = (content_type or "").partition(";")[0].strip() or mimetypes.guess_type(name)[0] or ""
        url = download.url if download.url.startswith("http") else f"download:///{name}"
        resource = embedded_resource(url, kind, data)
        text = f"Downloaded {name!r} ({len(data):,} bytes, {resource['resource']['mimeType']}) from {url}"
        return [{"type": "text", "text": text}, resource]

    async def _watch(self, download: Download) -> None:
        """Cancels a download if all files of the directory together grow over the limit."""
        failure = asyncio.ensure_future(download.failure())
        while not failure.done():
            await asyncio.wait({failure}, timeout=_POLL)
            if not failure.done() and await asyncio.to_thread(self._total_size) > self._max_bytes:
                self._too_large.add(download)
                await download.cancel()
        failure.exception()

    def _total_size(self) -> int:
        total = 0
        for file in self.directory.glob("*"):
            try:
                total += file.stat().st_size
            except OSError:
                continue  # just renamed or removed
        return total

    async def _drop(self, download: Download) -> None:
        self._too_large.discard(download)
        await download.cancel()
        await download.delete()

    def _spawn(self, work: Any) -> None:
        self._tasks.start(_ignore_errors(work))


async def _ignore_errors(work: Any) -> None:
    from playwright.async_api import Error

    with contextlib.suppress(Error, OSError):  # the browser, page, dialog or file is gone already
        await work


def embedded_resource(uri: str, kind: str, data: bytes) -> dict[str, Any]:
    """Returns a file as an embedded resource: a small text file as text, any other in base64."""
    if len(data) <= MAX_TEXT and (not kind or kind.startswith("text/") or kind in _TEXT_TYPES):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            if "\0" not in text:
                return {"type": "resource", "resource": {"uri": uri, "mimeType": kind or "text/plain", "text": text}}
    blob = base64.b64encode(data).decode()
    kind = kind or "application/octet-stream"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": blob}}


MAX_TABS: Final = 20
"""Most tabs. A page can open tabs without end; further ones are closed at once."""
MAX_NOTES: Final = 20
OPENING: Final = 8.0
"""Seconds a blank page has to open. If its process dies meanwhile, Playwright may wait for it without end."""
OPENINGS: Final = 3
"""Most attempts to open a blank page; all of them together take less than a call may."""
TITLE_WAIT: Final = 2.0
"""Seconds to wait for the title of a page that may never answer."""


class Tabs:
    """The tabs of a browser context, in the order in which they were opened."""

    def __init__(self, context: BrowserContext, guard: PageGuard, downloads: Downloads) -> None:
        self._context = context
        self._guard = guard
        self._downloads = downloads
        self._pages: list[Page] = []
        self._current: Page | None = None
        self._moved = False
        self._crashed: weakref.WeakSet[Page] = weakref.WeakSet()
        self._hidden: weakref.WeakSet[Page] = weakref.WeakSet()
        self._opening_hidden = 0
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._tasks = TaskSet()
        context.on("page", self._on_page)
        context.on("dialog", self._on_dialog)

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def urls(self) -> list[str]:
        """Returns the URL of each tab."""
        return [page.url for page in self._pages]

    @property
    def shown(self) -> Page | None:
        """Returns the page that the tools act on, or None if all were closed."""
        return self._current

    async def current(self) -> Page:
        """Returns the page that the tools act on. If all were closed, opens a new one."""
        if self._current is None:
            self._current = await self._open_blank()
        return self._current

    async def chosen(self) -> Page:
        """Returns the current page for an action.

        Raises ToolRefused if it became current because another tab has ended, and the caller was not told yet.
        """
        page = await self.current()
        if self._moved:
            text = "Nothing was done, as the tab that was current has ended. Look at the page first."
            raise ToolRefused("tool_error", "\n".join([text, *self.take_notes()]))
        return page

    async def new(self) -> Page:
        """Opens a tab and makes it the current one. Raises ToolRefused if too many are open."""
        if len(self._pages) >= MAX_TABS:
            raise ToolRefused("tool_error", f"{MAX_TABS} tabs are open: close one with browser_tabs first.")
        self._current = await self._open_blank()
        self._moved = False
        return self._current

    async def hidden(self) -> Page:
        """Opens a page for internal use, which callers do not see. The tool that opened it closes it."""
        self._opening_hidden += 1
        try:
            page = await self._open_blank()
            self._hidden.add(page)
            self._forget(page)
        finally:
            self._opening_hidden -= 1
            for excess in self._pages[MAX_TABS:]:
                self._close_excess(excess)
        return page

    async def _open_blank(self) -> Page:
        from playwright.async_api import Error

        for _ in range(OPENINGS - 1):
            open_task = asyncio.ensure_future(self._context.new_page())
            try:
                async with asyncio.timeout(OPENING):
                    return await asyncio.shield(open_task)
            except TimeoutError:
                self._spawn(_close_when_open(open_task))
            except Error:
                continue  # its process died
        return await self._context.new_page()

    def crashed(self, page: Page) -> bool:
        """Returns whether the process of this page has died."""
        return page in self._crashed

    def select(self, index: int) -> Page:
        """Makes the tab with this index the current one. Raises ToolRefused if there is none."""
        self._current = self._page_at(index)
        self._moved = False
        return self._current

    async def close(self, index: int | None) -> None:
        """Closes the tab with this index, or the current one. Raises ToolRefused if there is none."""
        page = await self.current() if index is None else self._page_at(index)
        self._forget(page)  # before its end is reported, as it is no news to the caller
        await page.close()

    async def end(self, page: Page) -> None:
        """Closes a page that has failed. The caller is told of it before the next action."""
        self._on_end(page)
        await page.close()

    def _page_at(self, index: int) -> Page:
        if not 0 <= index < len(self._pages):
            raise ToolRefused(
                "invalid_parameters", f"There is no tab {index}: browser_tabs with action 'list' shows them."
            )
        return self._pages[index]

    async def listing(self) -> str:
        """Returns one line of text for each tab."""
        lines = []
        pages = list(self._pages)
        titles = await asyncio.gather(*map(title_of, pages))  # at once: any number of them may not answer
        for index, (page, title) in enumerate(zip(pages, titles, strict=True)):
            mark = " (current)" if page is self._current else ""
            refusal = self._guard.refusal_at(page.url)
            label = f"refused: {refusal}" if refusal is not None else title
            lines.append(f"- {index}:{mark} [{label}]({page.url[:500]})")
        return "\n".join(lines) or "No tab is open."

    def take_notes(self) -> list[str]:
        """Returns what happened since the last call, one line each."""
        notes = list(self._notes)
        if self._moved and self._current is not None:
            notes.append(f"The tab that was current has ended; now current is {self._current.url[:500]}.")
        self._moved = False
        self._notes.clear()
        return notes

    def _on_page(self, page: Page) -> None:
        page.on("close", self._on_end)
        page.on("crash", self._on_crash)
        page.on("download", lambda download: self._on_download(page, download))
        page.on("websocket", self._on_websocket)
        # A hidden page that is being opened is known as such a moment later. Until then it has room.
        if len(self._pages) >= MAX_TABS * (2 if self._opening_hidden else 1):
            self._close_excess(page)
            return
        self._pages.append(page)
        if self._current is not None:
            self._spawn(self._note_popup(page))

    def _close_excess(self, page: Page) -> None:
        self._notes.append(f"A page opened more than {MAX_TABS} tabs; the one for {page.url[:200]} was closed.")
        self._forget(page)
        self._spawn(page.close())

    async def _note_popup(self, page: Page) -> None:
        opener = await page.opener()
        if opener is not None and page in self._pages:
            index = self._pages.index(page)
            self._notes.append(f"A page opened tab {index}; browser_tabs with action 'select' goes there.")

    def _forget(self, page: Page) -> None:
        if page in self._pages:
            self._pages.remove(page)
        if page is self._current:
            self._current = self._pages[-1] if self._pages else None

    def _on_end(self, page: Page) -> None:
        was_current = page is self._current
        self._forget(page)
        self._moved = self._moved or (was_current and self._current is not None)

    def _on_crash(self, page: Page) -> None:
        self._crashed.add(page)
        self._notes.append(f"The tab at {page.url[:500]} crashed and was closed.")
        self._on_end(page)
        self._spawn(page.close())

    def _on_dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":  # the caller asked to leave the page
            self._spawn(dialog.accept())
            return
        self._notes.append(f"The page showed a dialog ({dialog.type}), which was dismissed: {dialog.message[:1000]!r}")
        self._spawn(dialog.dismiss())

    def _on_download(self, page: Page, download: Any) -> None:
        note = self._downloads.started(download)
        if page not in self._hidden:
            self._notes.append(note)

    def _on_websocket(self, websocket: WebSocket) -> None:
        self._guard.websocket(websocket.url)

    def _spawn(self, work: Any) -> None:
        self._tasks.start(_ignore_errors(work))


async def _close_when_open(open_task: asyncio.Future[Page]) -> None:
    page = await open_task
    await page.close()


async def title_of(page: Page) -> str:
    """Returns the title of a page, or "" if the page does not answer in time."""
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(TITLE_WAIT):
            return (await page.title())[:500]
    except (Error, TimeoutError):
        return ""
