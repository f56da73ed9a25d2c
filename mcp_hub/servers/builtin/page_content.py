"""The built-in upstream `browser`: tools that read pages, as a snapshot, text, picture, cookies or file."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from mcp_hub.servers.builtin.browser_session import ACTION, ACTS, NAVIGATION, READS, CurrentBrowser, OpenBrowser
from mcp_hub.servers.builtin.pages import (
    MAX_PART,
    fetch,
    fetch_by_click,
    find_element,
    notes,
    part_of,
    refuse_refused,
    text_result,
    tree_of,
    wait_until_settled,
    web_address,
)
from mcp_hub.servers.builtin.tabs import embedded_resource, title_of
from mcp_hub.servers.local import tool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult

if TYPE_CHECKING:
    from playwright.async_api import Download, Page

MAX_HEIGHT: Final = 8000
"""Most pixels of the height of a whole-page picture; what is below is cut off."""
MAX_VALUE: Final = 256 * 1024
"""Most characters of a value that a script returns."""

Part = Annotated[str | None, "Only this element: its reference from the latest snapshot"]
Offset = Annotated[int, Field(ge=0), "Where to go on, in characters, when the answer before was cut"]


class PageContent:
    """The tools that read a page without acting on it, in the browser of this process."""

    def __init__(self, browser: CurrentBrowser) -> None:
        self._browser = browser

    @tool(annotations=READS)
    async def browser_snapshot(
        self,
        ref: Part = None,
        depth: Annotated[int | None, Field(ge=1), "How deep to go into the tree"] = None,
        offset: Offset = 0,
    ) -> ToolResult:
        """The accessibility tree of the page, with a reference for each element; better than a screenshot."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.current()
            refuse_refused(browser, page)
            tree = await tree_of(page if ref is None else await find_element(page, ref), depth)
            return await self._reading(browser, page, part_of(tree, offset, MAX_PART, "browser_snapshot"))

        return await self._browser.run(work, ACTION * 2)

    @tool(annotations=READS)
    async def browser_text(self, ref: Part = None, offset: Offset = 0) -> ToolResult:
        """The text of the page as it is seen, without references."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.current()
            refuse_refused(browser, page)
            target = page.locator("body") if ref is None else await find_element(page, ref)
            text = await target.inner_text(timeout=self._browser.milliseconds)
            return await self._reading(browser, page, part_of(text, offset, MAX_PART, "browser_text"))

        return await self._browser.run(work, ACTION * 2)

    async def _reading(self, browser: OpenBrowser, page: Page, text: str) -> ToolResult:
        head = [f"URL: {page.url[:2000]}", f"Title: {await title_of(page)}", *notes(browser)]
        return text_result("\n".join([*head, "", text]))

    @tool(annotations=READS)
    async def browser_take_screenshot(
        self,
        ref: Part = None,
        element: Annotated[str, "The element in words, for whoever reads the calls"] = "",
        fullPage: Annotated[bool, "The whole page, not only what is in view"] = False,
        type: Annotated[Literal["png", "jpeg"], "Format of the picture"] = "png",
    ) -> ToolResult:
        """A picture of the page or of one element. To act on the page, take a snapshot instead."""
        if fullPage and ref is not None:
            raise ToolRefused("invalid_parameters", "fullPage is for pages: leave out ref.")

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.current()
            refuse_refused(browser, page)
            options: dict[str, Any] = {"type": type, "scale": "css", "timeout": self._browser.milliseconds}
            note = ""
            if ref is not None:
                target = await find_element(page, ref)
                await target.scroll_into_view_if_needed(timeout=self._browser.milliseconds)
                box = await target.bounding_box() or {"height": 0}
                if box["height"] > MAX_HEIGHT:
                    raise ToolRefused(
                        "tool_error", f"The element is higher than {MAX_HEIGHT} pixels: take a smaller one."
                    )
                picture = await target.screenshot(**options)
            else:
                if fullPage:
                    size = await page.evaluate(_SIZE)
                    options["full_page"] = True
                    if size["height"] > MAX_HEIGHT:
                        options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": MAX_HEIGHT}
                        note = f"The page is {size['height']:g} pixels high; the picture has the first {MAX_HEIGHT}."
                picture = await page.screenshot(**options)
            text = "\n".join([f"URL: {page.url[:2000]}", *([note] if note else []), *notes(browser)])
            image = {"type": "image", "data": base64.b64encode(picture).decode(), "mimeType": f"image/{type}"}
            return ToolResult([{"type": "text", "text": text}, image])

        return await self._browser.run(work, ACTION * 2)

    @tool(annotations=READS)
    async def browser_pdf_save(self) -> ToolResult:
        """The page as a PDF."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.current()
            refuse_refused(browser, page)
            data = await page.pdf(print_background=True)
            if len(data) > self._browser.settings.max_bytes:
                limit = f"{self._browser.settings.max_bytes:,} (web.max_bytes)"
                raise ToolRefused("result_too_large", f"The PDF has {len(data):,} bytes, more than {limit}.")
            file = embedded_resource(page.url[:2000], "application/pdf", data)
            text = "\n".join([f"{page.url[:2000]} as a PDF of {len(data):,} bytes", *notes(browser)])
            return ToolResult([{"type": "text", "text": text}, file])

        return await self._browser.run(work, NAVIGATION)

    @tool(annotations=ACTS)
    async def browser_evaluate(
        self,
        function: Annotated[str, "() => { ... }, or (element) => { ... } with a reference"],
        ref: Part = None,
        element: Annotated[str, "The element in words, for whoever reads the calls"] = "",
    ) -> ToolResult:
        """Run a JavaScript function in the page and return its value as JSON."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.chosen()
            refuse_refused(browser, page)
            if ref is None:
                value = await page.evaluate(function)
            else:
                value = await (await find_element(page, ref)).evaluate(function, timeout=self._browser.milliseconds)
            await wait_until_settled(page)
            refuse_refused(browser, page)
            text = json.dumps(value, ensure_ascii=False, default=str)
            if len(text) > MAX_VALUE:
                message = f"The value has {len(text):,} characters, more than {MAX_VALUE:,}: return a part of it."
                raise ToolRefused("result_too_large", message)
            extra = "\n".join(notes(browser))
            return ToolResult([{"type": "text", "text": part} for part in (text, extra) if part])

        return await self._browser.run(work, ACTION, grace=0.0)

    @tool(annotations=ACTS)
    async def browser_cookies(
        self,
        action: Annotated[Literal["list", "set", "delete", "clear"], "What to do"],
        url: Annotated[str | None, "list: only cookies for this URL; set: the URL it is for, instead of domain"] = None,
        name: Annotated[str | None, "Which cookie, for set and delete"] = None,
        value: Annotated[str | None, "Its value, for set"] = None,
        domain: Annotated[str | None, "Its domain, for set; only of this one, for list and delete"] = None,
        path: Annotated[str, "Its path, for set"] = "/",
        expires: Annotated[
            float | None, "When it ends, in seconds since 1970, for set; without it with the browser"
        ] = None,
        httpOnly: Annotated[bool, "Not seen by scripts, for set"] = False,
        secure: Annotated[bool, "Only over https, for set"] = False,
    ) -> ToolResult:
        """List, set, delete or clear the cookies of this browser."""
        if action in ("set", "delete") and not name:
            raise ToolRefused("invalid_parameters", f"name is needed to {action} a cookie.")
        if action == "set" and (value is None or (url is None) == (domain is None)):
            raise ToolRefused("invalid_parameters", "To set a cookie, value is needed, and either url or domain.")

        async def work(browser: OpenBrowser) -> ToolResult:
            context = browser.context
            # Browsers write a domain with a dot if its subdomains get the cookie too.
            domains = None if domain is None else re.compile(rf"^\.?{re.escape(domain.lstrip('.'))}$", re.IGNORECASE)
            if action == "set":
                scope = {"url": url} if url is not None else {"domain": domain, "path": path}
                cookie: dict[str, Any] = {"name": name, "value": value, "httpOnly": httpOnly, "secure": secure, **scope}
                if expires is not None:
                    cookie["expires"] = expires
                await context.add_cookies([cookie])  # type: ignore[list-item]
            elif action == "delete":
                await context.clear_cookies(name=name, domain=domains)
            elif action == "clear":
                await context.clear_cookies()
            cookies = [dict(cookie) for cookie in await context.cookies(url or [])]
            if domains is not None and action == "list":
                cookies = [cookie for cookie in cookies if domains.match(str(cookie["domain"]))]
            text = json.dumps(cookies, ensure_ascii=False, indent=1)
            return text_result(part_of(text, 0, MAX_VALUE, "browser_cookies with url"))

        return await self._browser.run(work)

    @tool(annotations=ACTS)
    async def browser_download(
        self,
        url: Annotated[str | None, "The file's URL, fetched with the cookies of this browser"] = None,
        ref: Annotated[str | None, "The link or button to click, from the latest snapshot, instead of url"] = None,
        element: Annotated[str, "The element in words, for whoever reads the calls"] = "",
    ) -> ToolResult:
        """Download a file and return it; without arguments, the last download that an action has set off."""
        if url is not None and ref is not None:
            raise ToolRefused("invalid_parameters", "Either url or ref, not both.")
        target = None if url is None else web_address(url)
        seconds = self._browser.settings.timeout

        async def work(browser: OpenBrowser) -> ToolResult:
            download: Download | None
            if target is not None:
                download = await fetch(browser, target, self._browser.bounded(NAVIGATION))
            elif ref is not None:
                download = await fetch_by_click(browser, ref, self._browser.bounded(ACTION))
            else:
                download = browser.downloads.latest()
            if download is None:
                raise ToolRefused("tool_error", "There is no download: name a url, or a ref to click.")
            async with asyncio.timeout(seconds):
                content = await browser.downloads.content(download, browser.guard.content_type(download.url))
            return ToolResult([*content, *({"type": "text", "text": note} for note in notes(browser))])

        return await self._browser.run(work, seconds)


_SIZE: Final = """() => ({
    width: document.documentElement.clientWidth,
    height: Math.max(document.documentElement.scrollHeight, document.body ? document.body.scrollHeight : 0),
})"""
