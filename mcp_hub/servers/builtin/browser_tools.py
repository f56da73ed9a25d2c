"""The built-in upstream `browser`: tools that navigate, act on pages and read them.

Names and arguments are those of Playwright's own MCP server, which models know.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.browser_session import ACTION, ACTS, NAVIGATION, READS, CurrentBrowser, OpenBrowser
from mcp_hub.servers.builtin.pages import (
    fetch,
    fetch_by_click,
    find_element,
    goto,
    notes,
    refuse_refused,
    report,
    text_result,
    tree_of,
    wait_until_settled,
    web_address,
)
from mcp_hub.servers.builtin.tabs import embedded_resource, title_of
from mcp_hub.servers.local import mark_of, tool
from mcp_hub.servers.local.tool_results import MAX_PART, ToolRefused, ToolResult, part_of

if TYPE_CHECKING:
    from playwright.async_api import Download, Page

Ref = Annotated[str, "Reference of the element, from the latest snapshot, such as e12"]
Element = Annotated[str, "The element in words, for whoever reads the calls"]
Modifier = Literal["Alt", "Control", "ControlOrMeta", "Meta", "Shift"]


class FormField(BaseModel):
    """One field of a form."""

    model_config = ConfigDict(extra="forbid")

    ref: str = Field(description="Reference of the field, from the latest snapshot")
    type: Literal["textbox", "checkbox", "radio", "combobox", "slider"] = Field(description="Its kind")
    value: str = Field(
        description="What to enter: for a checkbox or radio `true` or `false`, for a combobox the option"
    )
    name: str = Field(default="", description="The field in words")


class BrowserTools:
    """The tools that navigate and act, on the browser of this process."""

    def __init__(self, browser: CurrentBrowser) -> None:
        self._browser = browser

    @tool(annotations=ACTS)
    async def browser_navigate(self, url: Annotated[str, "The http or https URL to open"]) -> ToolResult:
        """Open a URL in the current tab; the answer has a snapshot of the page."""
        target = web_address(url)

        async def work(browser: OpenBrowser) -> ToolResult:
            hint = await goto(browser, target, self._browser.bounded(NAVIGATION))
            return await report(browser, said=hint)

        return await self._browser.run(work, NAVIGATION)

    @tool(annotations=ACTS)
    async def browser_navigate_back(self) -> ToolResult:
        """Go back to the previous page of the current tab."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.chosen()
            await page.go_back(timeout=self._browser.bounded(NAVIGATION) * 1000)
            await wait_until_settled(page)
            return await report(browser)

        return await self._browser.run(work, NAVIGATION)

    @tool(annotations=ACTS)
    async def browser_click(
        self,
        ref: Ref,
        element: Element = "",
        doubleClick: Annotated[bool, "Click twice"] = False,
        button: Annotated[Literal["left", "right", "middle"], "Which button of the mouse"] = "left",
        modifiers: Annotated[list[Modifier], "Keys to hold meanwhile"] = [],  # noqa: B006 - never changed
    ) -> ToolResult:
        """Click an element; the answer has a snapshot of the page as it is then."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.chosen()
            locator = await find_element(page, ref)
            click = locator.dblclick if doubleClick else locator.click
            await click(button=button, modifiers=modifiers, timeout=self._browser.milliseconds)
            await wait_until_settled(page)
            return await report(browser)

        return await self._browser.run(work, ACTION * 2)

    @tool(annotations=ACTS)
    async def browser_type(
        self,
        ref: Ref,
        text: Annotated[str, "What to enter; it replaces what is there"],
        element: Element = "",
        submit: Annotated[bool, "Press Enter afterwards"] = False,
        slowly: Annotated[
            bool, "Type one character at a time, for pages that watch the keys; nothing is replaced"
        ] = False,
    ) -> ToolResult:
        """Enter a text into a field."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.chosen()
            locator = await find_element(page, ref)
            if slowly:
                await locator.press_sequentially(text, timeout=self._browser.milliseconds)
            else:
                await locator.fill(text, timeout=self._browser.milliseconds)
            if submit:
                await locator.press("Enter", timeout=self._browser.milliseconds)
            await wait_until_settled(page)
            return await report(browser, tree=submit or slowly)

        return await self._browser.run(work, ACTION * 3)

    @tool(annotations=ACTS)
    async def browser_fill_form(
        self, fields: Annotated[list[FormField], Field(min_length=1, max_length=100), "The fields to fill in"]
    ) -> ToolResult:
        """Fill in several fields of a form, one after the other; nothing is sent off."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.chosen()
            for field in fields:
                locator = await find_element(page, field.ref)
                if field.type in ("textbox", "slider"):
                    await locator.fill(field.value, timeout=self._browser.milliseconds)
                elif field.type == "combobox":
                    await locator.select_option(label=field.value, timeout=self._browser.milliseconds)
                else:
                    await locator.set_checked(field.value.lower() == "true", timeout=self._browser.milliseconds)
            await wait_until_settled(page)
            return await report(browser)

        return await self._browser.run(work, NAVIGATION)

    @tool(annotations=ACTS)
    async def browser_select_option(
        self,
        ref: Ref,
        values: Annotated[list[str], "The options to select, by value or label; all others are not"],
        element: Element = "",
    ) -> ToolResult:
        """Select options in a dropdown."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.chosen()
            locator = await find_element(page, ref)
            await locator.select_option(values, timeout=self._browser.milliseconds)
            await wait_until_settled(page)
            return await report(browser)

        return await self._browser.run(work, ACTION * 2)

    @tool(annotations=ACTS)
    async def browser_press_key(
        self, key: Annotated[str, "Name of the key or a character: Enter, ArrowLeft, a, Control+a"]
    ) -> ToolResult:
        """Press a key; what has the focus gets it."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.chosen()
            await page.keyboard.press(key)
            await wait_until_settled(page)
            return await report(browser)

        return await self._browser.run(work, ACTION * 2)

    @tool(annotations=READS)
    async def browser_wait_for(
        self,
        time: Annotated[float | None, Field(ge=0), "Seconds to wait; with a text, the most to wait for it"] = None,
        text: Annotated[str | None, "Wait until this text is seen"] = None,
        textGone: Annotated[str | None, "Wait until this text is seen no more"] = None,
    ) -> ToolResult:
        """Wait for a text to appear or to disappear, or for some time to pass."""
        if time is None and text is None and textGone is None:
            raise ToolRefused("invalid_parameters", "One of time, text and textGone is needed.")
        seconds = self._browser.bounded(ACTION if time is None else time)

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.current()
            if text is None and textGone is None:
                await page.wait_for_timeout(seconds * 1000)
            if text is not None:
                await page.get_by_text(text).first.wait_for(state="visible", timeout=seconds * 1000)
            if textGone is not None:
                await page.get_by_text(textGone).first.wait_for(state="hidden", timeout=seconds * 1000)
            return await report(browser)

        return await self._browser.run(work, seconds * 2 + ACTION)

    @tool(annotations=ACTS)
    async def browser_tabs(
        self,
        action: Annotated[Literal["list", "new", "select", "close"], "What to do"],
        index: Annotated[int | None, "Which tab, for select and close; without it the current one is closed"] = None,
        url: Annotated[str | None, "What to open in a new tab"] = None,
    ) -> ToolResult:
        """List the tabs, open a new one, go to one, or close one."""
        if action == "select" and index is None:
            raise ToolRefused("invalid_parameters", "index is needed: which tab to go to.")
        target = None if url is None else web_address(url)

        async def work(browser: OpenBrowser) -> ToolResult:
            tabs = browser.tabs
            await tabs.current()
            if action == "new":
                await tabs.new()
                if target is not None:
                    await goto(browser, target, self._browser.bounded(NAVIGATION))
                    return await report(browser, said=await tabs.listing())
            elif action == "select" and index is not None:
                await tabs.select(index).bring_to_front()
                return await report(browser, said=await tabs.listing())
            elif action == "close":
                await tabs.close(index)
            return text_result("\n".join([await tabs.listing(), *notes(browser)]))

        return await self._browser.run(work, NAVIGATION)

    @tool(annotations=ACTS)
    async def browser_close(self) -> str:
        """Close the browser. The next call opens a new one."""
        return await self._browser.close()


_current: CurrentBrowser | None = None


def tools(settings: Settings) -> Sequence[Callable[..., Any]]:
    """Returns the tools of the browser of this process. The first call of a tool starts the browser."""
    global _current
    _current = CurrentBrowser(settings)
    parts = (BrowserTools(_current), PageContent(_current))
    members = (getattr(part, name) for part in parts for name in vars(type(part)))
    return [member for member in members if mark_of(member) is not None]


async def close() -> None:
    """Closes the browser, if one is open."""
    if _current is not None:
        await _current.end()


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
            return await self._reading(browser, page, part_of(tree, offset, MAX_PART, "browser_snapshot with offset"))

        return await self._browser.run(work, ACTION * 2)

    @tool(annotations=READS)
    async def browser_text(self, ref: Part = None, offset: Offset = 0) -> ToolResult:
        """The text of the page as it is seen, without references."""

        async def work(browser: OpenBrowser) -> ToolResult:
            page = await browser.tabs.current()
            refuse_refused(browser, page)
            target = page.locator("body") if ref is None else await find_element(page, ref)
            text = await target.inner_text(timeout=self._browser.milliseconds)
            return await self._reading(browser, page, part_of(text, offset, MAX_PART, "browser_text with offset"))

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
