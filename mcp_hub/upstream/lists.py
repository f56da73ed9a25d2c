"""An upstream's lists, drained page by page; nothing an upstream answers makes it endless."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from mcp_hub.kinds import Kind

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Drained:
    """The items of one list, and why it is not complete, if it is not."""

    items: list[Any]
    shortfall: str | None = None


async def drain(ask: Ask, kind: Kind, page_deadline: float) -> Drained:
    """All pages of one list. `ask(method, params)` gives one result; each page has `page_deadline` seconds.

    Raises TimeoutError and whatever `ask` raises for the first page; a later page that fails ends the list there.
    """
    items: list[Any] = []
    seen: set[str] = set()
    params: dict[str, Any] = {}
    for page in range(MAX_PAGES):
        try:
            async with asyncio.timeout(page_deadline):
                answer = await ask(kind.list_method, params)
        except Exception as error:
            if page == 0:
                raise
            return Drained(items, f"page {page + 1} of {kind.list_method} failed: {error or type(error).__name__}")
        found = answer.get(kind.result_key) if isinstance(answer, dict) else None
        if not isinstance(found, list):
            return Drained(items, f"page {page + 1} of {kind.list_method} has no list {kind.result_key!r}")
        items.extend(found)
        if len(items) > MAX_ITEMS:
            return Drained(items[:MAX_ITEMS], f"{kind.list_method} has more than {MAX_ITEMS:,} items")
        cursor = answer.get("nextCursor")
        if not isinstance(cursor, str):
            return Drained(items)
        if cursor in seen:
            return Drained(items, f"{kind.list_method} repeats a cursor")
        seen.add(cursor)
        params = {"cursor": cursor}
    return Drained(items, f"{kind.list_method} has more than {MAX_PAGES} pages")
