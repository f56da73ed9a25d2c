"""The built-in upstream `browser`: tools that navigate and act on pages. Tools that read are in page_content.py.

Names and arguments are those of Playwright's own MCP server, which models know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.browser_session import ACTION, ACTS, NAVIGATION, READS, CurrentBrowser, OpenBrowser
from mcp_hub.servers.builtin.page_content import PageContent
from mcp_hub.servers.builtin.pages import (
    find_element,
    goto,
    notes,
    report,
    text_result,
    wait_until_settled,
    web_address,
)
from mcp_hub.servers.local import mark_of, tool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult

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
