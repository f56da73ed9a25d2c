"""An upstream's lists, drained page by page; nothing an upstream answers makes it endless."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Final

import msgspec

from mcp_hub.config.models import Server
from mcp_hub.errors import METHOD_NOT_FOUND, UpstreamAnswered
from mcp_hub.observability.stalls import in_slices
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import DUPLICATES_KEY, LEFT_OUT_KEY, MAX_ITEM, TOOLS, Kind, overlong_name
from mcp_hub.text import printable
from mcp_hub.transport.link import LinkError

log = logging.getLogger("mcp_hub.upstream")

MAX_PAGES: Final = 100
MAX_LEFT_OUT: Final = 1000
"""Characters of a text about a file that is left out: its path, why, and the command that mends it."""
MAX_ITEMS: Final = 10_000
MAX_NAMES: Final = 1024 * 1024
"""Characters of all names or URIs of one list, a hundred for each of 10,000: each is read in many spellings."""
MAX_TOLD: Final = 20
"""Items of one list that are named in the log when they are left out; the others are counted."""

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
Unusable = Callable[[Kind, Any], str | None]
"""Why an item must not be offered to anybody; None if it may."""


class Drained(msgspec.Struct, frozen=True):
    """The items of one list, and why it is not complete, if it is not."""

    items: list[Any]
    shortfall: str | None = None
    duplicates: tuple[dict[str, str], ...] = ()


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
            return Drained(items, _left_out(answer), _duplicates(answer))
        if cursor in seen:
            return Drained(items, f"{kind.list_method} repeats a cursor")
        seen.add(cursor)
        params = {"cursor": cursor}
    return Drained(items, f"{kind.list_method} has more than {MAX_PAGES} pages")


def _left_out(answer: dict[str, Any]) -> str | None:
    meta = answer.get("_meta")
    texts = meta.get(LEFT_OUT_KEY) if isinstance(meta, dict) else None
    shown = [printable(str(text), MAX_LEFT_OUT) for text in texts] if isinstance(texts, list) else []
    return "; ".join(shown) or None


def _duplicates(answer: dict[str, Any]) -> tuple[dict[str, str], ...]:
    meta = answer.get("_meta")
    found = meta.get(DUPLICATES_KEY) if isinstance(meta, dict) else None
    named = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return tuple({key: printable(str(one.get(key))) for key in ("name", "kept", "dropped")} for one in named)


class Lists:
    """What one upstream lists, raw, by kind."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.items: dict[Kind, list[Any]] = {}
        self.shortfalls: dict[Kind, str] = {}
        """Why a list is not complete, in words for the user."""
        self._left_out: dict[Kind, Counter[str]] = {}
        """How many items of a list are left out for which reason."""
        self.duplicates: tuple[dict[str, str], ...] = ()
        """Of local tools: names that were found twice, with the files of both."""
        self._tools: dict[str, dict[str, Any]] = {}

    @property
    def incomplete(self) -> list[str]:
        """What is missing of the lists, in words for the user."""
        left_out = [
            f"{number:,} of {kind.list_method} left out: {reason}"
            for kind, reasons in self._left_out.items()
            for reason, number in reasons.items()
        ]
        return [*self.shortfalls.values(), *left_out]

    def adopt(self, items: dict[Kind, list[Any]]) -> None:
        """Take these lists for the kinds they are of."""
        self.items.update(items)
        if TOOLS in items:
            # Of two of one name the first counts, as in the catalog.
            self._tools = {
                tool["name"]: tool
                for tool in reversed(items[TOOLS])
                if isinstance(tool, dict) and isinstance(tool.get("name"), str)
            }

    def tool(self, name: str) -> dict[str, Any] | None:
        """A tool as the server listed it."""
        return self._tools.get(name)

    def schema(self, tool: Any) -> dict[str, Any] | None:
        """The inputSchema of a tool under its original name."""
        listed = self._tools.get(tool) if isinstance(tool, str) else None
        schema = listed.get("inputSchema") if listed is not None else None
        return schema if isinstance(schema, dict) else None

    async def fetch(self, ask: Ask, capabilities: dict[str, Any], kinds: Iterable[Kind], unusable: Unusable) -> bool:
        """Ask for the lists the server declares, without what is unusable; True if any differs from before.

        Raises LinkError, also for a list that is not answered within its deadline.
        """
        asked = [kind for kind in kinds if kind.capability in capabilities]
        answers = await asyncio.gather(*(self._drain(ask, kind, unusable) for kind in asked))
        found = {kind: items for kind, items in zip(asked, answers, strict=True)} | {
            kind: [] for kind in kinds if kind not in asked
        }
        before = {kind: self.items.get(kind) for kind in found}
        if await in_slices(_same(before, found)):
            return False
        self.adopt(found)
        return True

    async def _drain(self, ask: Ask, kind: Kind, unusable: Unusable) -> list[Any]:
        limit = self._server.deadlines.list
        self.shortfalls.pop(kind, None)
        try:
            drained = await drain(ask, kind, limit)
        except UpstreamAnswered as error:
            if error.code != METHOD_NOT_FOUND:
                self.shortfalls[kind] = f"{kind.list_method} was answered with an error: {printable(error.message)}"
            return []
        except TimeoutError:
            setting = f"servers.{self._server.id}.deadlines.list"
            raise LinkError(f"it did not answer {kind.list_method} within {limit:g} s (setting: {setting})") from None
        if drained.shortfall is not None:
            self.shortfalls[kind] = drained.shortfall
            log.warning("%s: %s", self._server.id, drained.shortfall)
        if kind is TOOLS and self._server.tools_dir is not None:
            self.duplicates = drained.duplicates
            for one in drained.duplicates:
                text = "%s: %s: the tool %s is left out: %s has it already"
                log.warning(text, self._server.id, one["dropped"], one["name"], one["kept"])
        return await in_slices(self._usable(kind, drained.items, unusable))

    def _usable(self, kind: Kind, items: list[Any], unusable: Unusable) -> Generator[None, None, list[Any]]:
        """The items that may be looked at any further; the reasons for the others are kept for the user."""
        usable: list[Any] = []
        reasons: Counter[str] = Counter()
        left = MAX_NAMES
        for item in items:
            yield
            reason = _oversized(kind, item) or unusable(kind, item)
            name = item.get(kind.name_key) if isinstance(item, dict) else None
            left -= len(name) if reason is None and isinstance(name, str) else 0
            if left < 0:
                reason = reason or f"the list has more than {MAX_NAMES:,} characters of names"
            if reason is None:
                usable.append(item)
                continue
            if reasons.total() < MAX_TOLD:
                self._tell(kind, item, reason)
            if reason in reasons or len(reasons) < MAX_TOLD:
                reasons[printable(reason, 300)] += 1
        self._left_out[kind] = reasons
        return usable

    def _tell(self, kind: Kind, item: Any, reason: str) -> None:
        named = item.get(kind.name_key) if isinstance(item, dict) else None
        name = printable(named if isinstance(named, str) else type(named).__name__, 100)
        log.warning("%s: the %s %s is left out: %s", self._server.id, kind.unknown, name, printable(reason, 300))


def _oversized(kind: Kind, item: Any) -> str | None:
    """Why nothing that reads names and texts may see an item: its work would have no bound."""
    overlong = overlong_name(kind, item)
    if overlong is not None:
        return f"its {overlong}"
    return f"it is larger than {MAX_ITEM:,} bytes" if weighs_more(item, MAX_ITEM) else None


def _same(before: dict[Kind, list[Any] | None], now: dict[Kind, list[Any]]) -> Generator[None, None, bool]:
    for kind, items in now.items():
        former = before[kind]
        if former is None or len(former) != len(items):
            return False
        for one, other in zip(former, items, strict=True):
            yield
            if one != other:
                return False
    return True
