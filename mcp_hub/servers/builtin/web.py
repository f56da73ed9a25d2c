"""The built-in upstream `web`: fetches a page or document and returns it as Markdown."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import Field
from yarl import URL

from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.converter import Converter, MarkdownDocument, SourceDocument
from mcp_hub.servers.builtin.page_fetcher import FetchedPage, Fetcher, printable_url, url_as_written
from mcp_hub.servers.local import tool
from mcp_hub.servers.local.tool_results import MAX_PART, ToolRefused, ToolResult, part_of
from mcp_hub.text import printable

SOURCE_KEY: Final = "mcp-hub/source"
"""Key in the `_meta` of a result that says where the text comes from."""
MAX_URL: Final = 8192
NEARLY_EMPTY: Final = 100
"""A page with scripts and fewer characters of text than this is rendered in a browser."""
EXCERPT: Final = 1000
"""Characters of an error page that are shown."""
EXCERPT_WAIT: Final = 10.0
"""Seconds for converting an error page."""
_BROWSER_SHARE: Final = 0.8
"""Share of the remaining time for the browser; the rest is for returning the plain page if the browser fails."""
_TRY_LATER: Final = frozenset({408, 429, 502, 503, 504})
_HTML: Final = ("text/html", "application/xhtml+xml")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d{1,5}(?:[/?#]|$))")
"""Matches the word before a colon, unless a port follows the colon."""

_open: list[Scraper] = []


def tools(settings: Settings) -> list[Callable[..., Any]]:
    """Returns the functions of this upstream."""
    scraper = Scraper(settings)
    _open.append(scraper)

    @tool(
        title="Read a web page",
        annotations={"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True},
    )
    async def scrape_website(
        url: Annotated[str, "Address of the page or document, http or https; https:// may be left out"],
        start_index: Annotated[int, Field(ge=0), "Where to go on, in characters, when the answer before was cut"] = 0,
        max_length: Annotated[int, Field(ge=1), "Most characters of the answer"] = MAX_PART,
    ) -> ToolResult:
        """Fetch a web page or an online document and return its text as Markdown.

        Reads HTML, PDF, Word (.docx), PowerPoint (.pptx), Excel (.xlsx), CSV, JSON, feeds and plain text, follows
        redirects, and opens pages that need JavaScript in a browser if there is one. A long text comes in parts. Links
        and headings are kept; images are not described. Private network addresses are refused unless the user has
        allowed them.
        """
        result = await scraper.scrape(url)
        if not result.is_error:
            block = result.content[0]
            block["text"] = part_of(block["text"], start_index, max_length, "scrape_website with start_index")
        return result

    return [scrape_website]


async def close() -> None:
    """Ends the child processes of all scrapers that `tools` made."""
    browsers = sys.modules.get("mcp_hub.servers.builtin.render")  # imported by the first page that needed one
    closing = [scraper.close() for scraper in _open] + ([] if browsers is None else [browsers.close()])
    await asyncio.gather(*closing, return_exceptions=True)


class Scraper:
    """Fetches pages and converts them, any number at the same time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings)
        self._converter = Converter(settings.docintel_endpoint, memory=settings.max_memory)

    async def scrape(self, text: str) -> ToolResult:
        """Returns the page at the address in `text`; an HTTP error is a result with `is_error`. Raises ToolRefused."""
        url = address(text)
        if (refusal := self._settings.url_rules.refusal(text)) is not None:  # as written, not normalised
            raise ToolRefused("guard_blocked", refusal)
        seconds = self._settings.timeout
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                page = await self._fetcher.fetch(url)
                return await self._result(page, deadline)
        except TimeoutError:
            message = f"{printable_url(url)} took longer than {seconds:.3g} s; web.timeout allows more"
            raise ToolRefused("timeout", message) from None

    async def _result(self, page: FetchedPage, deadline: float) -> ToolResult:
        remaining = deadline - asyncio.get_running_loop().time()
        document = SourceDocument(page.body, page.content_type, page.charset, page.extension, page.url)
        if page.status >= 400:
            return await self._http_error(page, document, min(EXCERPT_WAIT, remaining / 2))
        try:
            converted = await self._converter.convert(document, remaining)
        except ToolRefused as refused:
            kind = page.content_type or "of no declared type"
            text = f"{printable_url(URL(page.url))} was fetched ({kind}, {len(page.body)} bytes), but {refused.message}"
            raise ToolRefused(refused.code, text) from None
        if self._settings.javascript and _needs_javascript(page, converted):
            return await self._render(page, converted, deadline)
        return _page_result(page, converted)

    async def _http_error(self, page: FetchedPage, document: SourceDocument, seconds: float) -> ToolResult:
        """Returns the error result with an excerpt of the server's error page, if that can be converted."""
        try:
            excerpt = (await self._converter.convert(document, seconds)).markdown.strip()
        except ToolRefused:
            excerpt = ""
        text = f"{printable_url(URL(page.url))} answered with HTTP status {page.status}."
        if excerpt:
            text += f" Its page says:\n\n{excerpt[:EXCERPT]}{'…' if len(excerpt) > EXCERPT else ''}"
        facts = {"code": "tool_error", "server": None, "tool": "scrape_website", "retryable": page.status in _TRY_LATER}
        meta = {"mcp-hub/error": facts, SOURCE_KEY: {**_source(page), "status": page.status}}
        return ToolResult([{"type": "text", "text": text}], meta=meta, is_error=True)

    async def _render(self, page: FetchedPage, plain: MarkdownDocument, deadline: float) -> ToolResult:
        loop = asyncio.get_running_loop()
        try:
            from mcp_hub.servers.builtin.render import render_page

            html, final_url = await render_page(page.url, self._settings, (deadline - loop.time()) * _BROWSER_SHARE)
            document = SourceDocument(html.encode("utf-8", "replace"), "text/html", "utf-8", None, final_url)
            converted = await self._converter.convert(document, deadline - loop.time())
        except ToolRefused as refused:
            if refused.code == "guard_blocked":
                raise
            return _page_result(page, plain, f"it could not be opened in a browser: {refused.message}")
        except ImportError as error:
            from mcp_hub.config.extras import missing

            return _page_result(page, plain, f"it could not be opened in a browser: {missing('browser') or error}")
        except (RuntimeError, OSError) as error:
            return _page_result(page, plain, f"it could not be opened in a browser: {printable(str(error), 300)}")
        meta = {SOURCE_KEY: {**_source(page), "url": str(URL(final_url).with_user(None)), "rendered": True}}
        return ToolResult([{"type": "text", "text": converted.markdown}], meta=meta)

    async def close(self) -> None:
        """Ends the name look-ups and child processes."""
        self._fetcher.close()
        await self._converter.close()


def address(text: str) -> URL:
    """Reads a URL as a person writes it; a missing scheme becomes https. Raises ToolRefused (`invalid_parameters`)."""
    candidate = text.strip()
    if not candidate or len(candidate) > MAX_URL:
        raise _invalid_address(f"it must have 1 to {MAX_URL} characters")
    if not candidate.isprintable() or " " in candidate or "\\" in candidate:
        raise _invalid_address("spaces, backslashes and control characters are not allowed; write %20 for a space")
    scheme = _SCHEME.match(candidate)
    if scheme is not None and scheme[1].lower() not in ("http", "https"):
        raise _invalid_address(f"only http:// and https:// addresses are fetched, not {scheme[1][:20]}:")
    if scheme is None:
        candidate = f"https:{candidate}" if candidate.startswith("//") else f"https://{candidate}"
    try:
        url = url_as_written(candidate)
        if url.raw_host and url.port:
            return url
    except ValueError:
        pass
    raise _invalid_address("its host is missing or invalid; write it like https://example.com/page")


def _invalid_address(reason: str) -> ToolRefused:
    return ToolRefused("invalid_parameters", f"'url' is not the address of a web page: {reason}.")


def _needs_javascript(page: FetchedPage, converted: MarkdownDocument) -> bool:
    return page.content_type in _HTML and converted.scripts and len(converted.markdown.strip()) < NEARLY_EMPTY


def _source(page: FetchedPage) -> dict[str, Any]:
    return {
        "url": page.url,
        "content_type": page.content_type,
        "bytes": len(page.body),
        "rendered": False,
        "redirects": page.redirects,
    }


def _page_result(page: FetchedPage, converted: MarkdownDocument, reason: str | None = None) -> ToolResult:
    source = _source(page)
    if converted.title:
        source["title"] = converted.title
    text = converted.markdown if converted.markdown.strip() else "(This page has no text.)"
    if reason is not None:
        text += f"\n\n[This page shows itself only with JavaScript, and {reason}]"
    return ToolResult([{"type": "text", "text": text}], meta={SOURCE_KEY: source})
