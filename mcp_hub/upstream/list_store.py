"""The lists of one upstream: fetched page by page within bounds, cached on disk, and fetched again when they change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import cached_property
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.config.models import Server
from mcp_hub.errors import METHOD_NOT_FOUND, HubError, UpstreamAnswered
from mcp_hub.observability.stalls import drop, in_slices, in_thread
from mcp_hub.protocol.frames import settle_heap, weighing, weighs_more, weight_left
from mcp_hub.protocol.kinds import (
    DUPLICATES_KEY,
    KINDS,
    LEFT_OUT_KEY,
    MAX_ITEM,
    MAX_LIST,
    TOOLS,
    Kind,
    name_of,
    overlong_name,
)
from mcp_hub.text import printable
from mcp_hub.transport import LinkError, LinkLost
from mcp_hub.upstream.attribution import declared_for_all
from mcp_hub.upstream.catalog_cache import CachedCatalog, CatalogCache, Json
from mcp_hub.upstream.lifecycle import Backoff
from mcp_hub.upstream.session import Agreement, UpstreamSession

log = logging.getLogger("mcp_hub.upstream")

MAX_PAGES: Final = 100
MAX_LEFT_OUT: Final = 1000
"""Characters shown of a note about a file that is left out: its path, the reason, and the command that mends it."""
MAX_NOTES: Final = 100
"""Files, or names found twice, that a server with local tools may report with one list."""
MAX_ITEMS: Final = 10_000
MAX_NAMES: Final = 1024 * 1024
"""Characters of all names or URIs of one list, about a hundred for each item: each is compared in many spellings."""
MAX_LOGGED: Final = 20
"""Items of one list that are named in the log when they are left out; the others are counted."""
SMALL: Final = 128 * 1024
"""Weight of lists, or bytes of a cache file, up to which they are written or read without a thread, in about 1 ms."""
MANY: Final = 4 * 1024 * 1024
"""Weight of lists above which garbage collection of their values would block the event loop for 20 ms."""
SETTLE: Final = 0.1
"""Seconds in which changes are collected before the lists are fetched again."""
LONGEST_RETRY: Final = 300.0
"""Upper end in seconds of the pause before a list that fails is fetched again."""

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
Unusable = Callable[[Kind, Any], str | None]
"""Returns why an item must not be offered to any client; None if it may."""


class DrainedList(msgspec.Struct, frozen=True):
    """The items of one list, and the reason why it is incomplete, if it is."""

    items: list[Any]
    shortfall: str | None = None
    duplicates: tuple[dict[str, str], ...] = ()
    failed: bool = False
    """Whether the server failed to answer, so that it may list more when it is asked again."""


async def drain(ask: Ask, kind: Kind, page_deadline: float) -> DrainedList:
    """Fetches all pages of one list. `ask(method, params)` sends one request; each page has `page_deadline` seconds.

    Raises:
        Exception: TimeoutError, or whatever `ask` raises, for the first page. A later page that fails ends the list.
    """
    items: list[Any] = []
    seen: set[str] = set()
    remaining = MAX_LIST
    params: dict[str, Any] = {}
    for page in range(MAX_PAGES):
        try:
            async with asyncio.timeout(page_deadline):
                answer = await ask(kind.list_method, params)
        except Exception as error:
            if page == 0:
                raise
            text = f"page {page + 1} of {kind.list_method} failed: {printable(str(error)) or type(error).__name__}"
            return DrainedList(items, text, failed=True)
        page_items = answer.get(kind.result_key) if isinstance(answer, dict) else None
        if not isinstance(page_items, list):
            text = f"page {page + 1} of {kind.list_method} has no list {kind.result_key!r}"
            return DrainedList(items, text, failed=True)
        items.extend(page_items)
        if len(items) > MAX_ITEMS:
            return DrainedList(items[:MAX_ITEMS], f"{kind.list_method} has more than {MAX_ITEMS:,} items")
        if (remaining := await in_slices(weight_left(page_items, remaining))) < 0:
            return DrainedList(items, f"{kind.list_method} is larger than {MAX_LIST:,} bytes")
        cursor = answer.get("nextCursor")
        if not cursor or type(cursor) not in (str, int, float):
            return DrainedList(items, _left_out(answer), _duplicates(answer))
        if cursor in seen:
            return DrainedList(items, f"{kind.list_method} repeats a cursor")
        seen.add(cursor)
        params = {"cursor": cursor}
    return DrainedList(items, f"{kind.list_method} has more than {MAX_PAGES} pages")


def _left_out(answer: dict[str, Any]) -> str | None:
    texts = [printable(text, MAX_LEFT_OUT) for text in _notes(answer, LEFT_OUT_KEY) if isinstance(text, str)]
    return "; ".join(texts) or None


def _duplicates(answer: dict[str, Any]) -> tuple[dict[str, str], ...]:
    entries = (entry for entry in _notes(answer, DUPLICATES_KEY) if isinstance(entry, dict))
    named = ({name: entry.get(name) for name in ("name", "kept", "dropped")} for entry in entries)
    return tuple(
        {name: printable(text) if isinstance(text, str) else "" for name, text in texts.items()} for texts in named
    )


def _notes(answer: dict[str, Any], key: str) -> list[Any]:
    meta = answer.get("_meta")
    notes = meta.get(key) if isinstance(meta, dict) else None
    return notes[:MAX_NOTES] if isinstance(notes, list) else []


class RawLists:
    """The items that one upstream lists, by kind, as it sent them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.items: dict[Kind, list[Any]] = {}
        self.stand_ins: list[Any] = []
        """The tools that clients are listed as long as those of the server are not known."""
        self.shortfalls: dict[Kind, str] = {}
        """The reason why a list is incomplete or out of date, for the user."""
        self.failed: set[Kind] = set()
        """The lists that the server failed to answer when it was asked last."""
        self._cut: set[Kind] = set()
        """The lists of which only the first pages are known."""
        self._left_out: dict[Kind, Counter[str]] = {}
        """How many items of a list are left out, by reason."""
        self.duplicates: tuple[dict[str, str], ...] = ()
        """Names of local tools that were found twice: `{"name", "kept", "dropped"}` with the files of both."""
        self.tools: dict[str, dict[str, Any]] = {}
        """The tools as the server listed them, by their original names."""

    @property
    def incomplete(self) -> list[str]:
        """What is missing from the lists, one line each, for the user."""
        left_out = [
            f"{number:,} of {kind.list_method} left out: {reason}"
            for kind, reasons in self._left_out.items()
            for reason, number in reasons.items()
        ]
        return [*self.shortfalls.values(), *left_out]

    def offered(self, kind: Kind) -> list[Any] | None:
        """Returns the list that clients are shown; None if there is none yet."""
        return self.items.get(kind, self.stand_ins if self.stand_ins and kind is TOOLS else None)

    def adopt(self, items: dict[Kind, list[Any]]) -> None:
        """Replaces the lists of these kinds."""
        self.items.update(items)
        if TOOLS in items:
            # Of two tools with one name the first counts, as in the catalog.
            self.tools = {
                tool["name"]: tool
                for tool in reversed(items[TOOLS])
                if isinstance(tool, dict) and isinstance(tool.get("name"), str)
            }

    def schema(self, tool: Any) -> dict[str, Any] | None:
        """Returns the inputSchema of a tool, by its original name."""
        listed = self.tools.get(tool) if isinstance(tool, str) else None
        schema = listed.get("inputSchema") if listed is not None else None
        return schema if isinstance(schema, dict) else None

    async def fetch(self, ask: Ask, offers: Callable[[Kind], bool], kinds: Iterable[Kind], unusable: Unusable) -> bool:
        """Fetches the server's lists, without unusable items; returns whether any has changed.

        A list that the server fails to answer stays as it is, and is in `failed`.

        Raises:
            LinkError: the transport failed as a whole or for the list of tools, or that list is not known yet and was
                not answered in time.
        """
        kinds = list(kinds)
        answers = await asyncio.gather(*(self._drain(ask, kind, unusable, offered=offers(kind)) for kind in kinds))
        lists = {kind: items for kind, items in zip(kinds, answers, strict=True) if items is not None}
        previous = {kind: self.items.get(kind) for kind in lists}
        if await in_slices(_same(previous, lists)):
            drop([item for items in lists.values() for item in items])
            return False
        previous.clear()  # so that the last holder of the old lists can free them in slices
        self.adopt(lists)
        if await in_slices(weighing(list(lists.values()), MANY)):
            settle_heap()
        return True

    async def _drain(self, ask: Ask, kind: Kind, unusable: Unusable, *, offered: bool) -> list[Any] | None:
        """Returns the server's list; None if it fails and no more of the list is known than before."""
        drained = await self._ask(ask, kind) if offered else DrainedList([])
        known = self.items.get(kind)
        is_complete = known is not None and kind not in self._cut
        stays = drained.failed and (is_complete or len(drained.items) < max(1, len(known or ())))
        self._report(kind, drained, stays=stays and known is not None)
        (self.failed.add if drained.failed else self.failed.discard)(kind)
        if stays:
            return None
        (self._cut.add if drained.failed else self._cut.discard)(kind)
        if kind is TOOLS and self._server.tools_dir is not None:
            self.duplicates = drained.duplicates
            for duplicate in drained.duplicates:
                text = "%s: %s: the tool %s is left out: %s has it already"
                log.warning(text, self._server.id, duplicate["dropped"], duplicate["name"], duplicate["kept"])
        return await in_slices(self._usable(kind, drained.items, unusable))

    async def _ask(self, ask: Ask, kind: Kind) -> DrainedList:
        limit, known = self._server.deadlines.list, kind in self.items
        try:
            return await drain(ask, kind, limit)
        except UpstreamAnswered as error:
            if error.code == METHOD_NOT_FOUND:
                return DrainedList([])
            text = f"{kind.list_method} was answered with an error: {printable(error.message)}"
        except TimeoutError:
            setting = self._server.key_of_deadline("list")
            text = f"it did not answer {kind.list_method} within {limit:g} s (setting: {setting})"
            if kind is TOOLS and not known:
                raise LinkError(text, code=codes.LIST_LATE) from None
        except LinkError as error:
            if kind is TOOLS or not _concerns_request_only(error):
                raise
            text = f"{kind.list_method} failed: {error}"
        return DrainedList([], text, failed=True)

    def _report(self, kind: Kind, drained: DrainedList, *, stays: bool) -> None:
        """Notes for the user why a list is incomplete, and logs it once as long as the reason stays the same."""
        former, text = self.shortfalls.pop(kind, None), drained.shortfall
        if text is None:
            return
        if drained.failed:
            text += "; the list from before stays, and it is asked again" if stays else "; it is asked again"
        self.shortfalls[kind] = text
        if text != former:
            log.warning("%s: %s", self._server.id, text)

    def _usable(self, kind: Kind, items: list[Any], unusable: Unusable) -> Generator[None, None, list[Any]]:
        """Returns the items that may be processed further, and counts the others by reason."""
        usable: list[Any] = []
        reasons: Counter[str] = Counter()
        remaining = MAX_NAMES
        for item in items:
            yield
            reason = (yield from _oversized(kind, item)) or unusable(kind, item)
            remaining -= len(name_of(kind, item)) if reason is None else 0
            if remaining < 0:
                reason = reason or f"the list has more than {MAX_NAMES:,} characters of names"
            if reason is None:
                usable.append(item)
                continue
            if reasons.total() < MAX_LOGGED:
                self._log_left_out(kind, item, reason)
            if reason in reasons or len(reasons) < MAX_LOGGED:
                reasons[printable(reason, 300)] += 1
        self._left_out[kind] = reasons
        return usable

    def _log_left_out(self, kind: Kind, item: Any, reason: str) -> None:
        name = printable(name_of(kind, item) or type(item).__name__, 100)
        log.warning("%s: the %s %s is left out: %s", self._server.id, kind.unknown, name, printable(reason, 300))


def _concerns_request_only(error: LinkError) -> bool:
    """Returns whether a failure, such as HTTP 500 or a list above `max_frame`, says nothing about other requests."""
    if isinstance(error, LinkLost) or error.status == 401 or error.retry_after is not None:
        return False
    return error.executed or error.status is not None  # else nothing was sent


def _oversized(kind: Kind, item: Any) -> Generator[None, None, str | None]:
    """Returns why an item is too large to be processed in bounded time; None if it is not."""
    overlong = overlong_name(kind, item)
    if overlong is not None:
        return f"its {overlong}"
    return f"it is larger than {MAX_ITEM:,} bytes" if (yield from weighing(item, MAX_ITEM)) else None


def _same(previous: dict[Kind, list[Any] | None], current: dict[Kind, list[Any]]) -> Generator[None, None, bool]:
    for kind, items in current.items():
        previous_items = previous[kind]
        if previous_items is None or len(previous_items) != len(items):
            return False
        for old_item, new_item in zip(previous_items, items, strict=True):
            yield
            if old_item != new_item:
                return False
    return True


class ListRefresher:
    """Fetches changed lists again: soon, once for many changes, and once more for changes during a fetch.

    `fetch(session, kinds)` fetches lists and returns those that failed, which are fetched again after a pause that
    grows; `session()` returns the session to ask, None while none is open. A list that changes while it is being
    fetched may be incomplete, so it is fetched again.
    """

    def __init__(
        self,
        server: str,
        session: Callable[[], UpstreamSession | None],
        fetch: Callable[[UpstreamSession, set[Kind]], Awaitable[set[Kind]]],
    ) -> None:
        self._server = server
        self._session = session
        self._fetch = fetch
        self._stale: set[Kind] = set()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(LONGEST_RETRY)
        self._retry: asyncio.TimerHandle | None = None
        self._failed: set[Kind] = set()
        """The lists that `_retry` fetches again."""

    def notified(self, method: str) -> None:
        """Handles a notification; one that is not about a list is ignored."""
        self.soon({kind for kind in KINDS if kind.changed == method})

    def soon(self, kinds: set[Kind], after: float = SETTLE) -> None:
        """Fetches these lists, and those that are stale, after `after` seconds; several calls cause one fetch."""
        self._stale |= kinds
        if self._stale and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(after))

    async def settled(self, seconds: float) -> None:
        """Waits until no refresh is pending, at most `seconds`."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)

    def forget(self) -> None:
        """Drops pending refreshes, as all lists are about to be fetched anyway."""
        self._stale = set()
        self._retry_after(set())

    async def fetch(self, session: UpstreamSession, kinds: set[Kind]) -> None:
        """Fetches these lists now. Raises what a request raises."""
        self._retry_after(await self._fetch(session, kinds))

    def _retry_after(self, failed: set[Kind], at_least: float = 0.0) -> None:
        """Fetches the lists that failed again after a pause of `at_least` seconds, which grows until none fails."""
        if self._retry is not None:
            self._retry.cancel()
        self._failed = failed
        if failed:
            self._backoff.failures += 1
            delay = max(self._backoff.delay(), at_least)
            self._retry = asyncio.get_running_loop().call_later(delay, self.soon, failed, 0.0)
        else:
            self._backoff.failures = 0

    async def _run(self, after: float) -> None:
        while self._stale:
            await asyncio.sleep(after)
            session = self._session()
            if session is None or not self._stale:
                return  # the stale lists are refreshed with the next ones
            kinds, self._stale, after = self._stale, set(), SETTLE
            try:
                await self.fetch(session, kinds)
            except (HubError, LinkError, TimeoutError) as error:
                if not session.lost.is_set():
                    level = logging.DEBUG if self._backoff.failures else logging.WARNING
                    log.log(level, "%s: its lists could not be refreshed, and are asked again: %s", self._server, error)
                    self._retry_after(self._failed | kinds, getattr(error, "retry_after", None) or 0.0)
            except Exception:
                log.exception("refreshing the lists of %s failed inside the hub", self._server)

    def cancel(self) -> None:
        """Stops fetching, without waiting for the task to end."""
        self._retry_after(set())
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stops fetching and waits for the task to end."""
        self.cancel()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task


class ListStore:
    """Keeps the lists that all callers share up to date, in memory and in the catalog cache.

    `session()` returns the shared session, None while it is not open; `changed()` is called when the lists differ.
    """

    def __init__(
        self,
        server: Server,
        cache: CatalogCache | None,
        session: Callable[[], UpstreamSession | None],
        changed: Callable[[], None],
    ) -> None:
        self.server = server
        self.lists = RawLists(server)
        self._cache = cache
        self._session = session
        self._changed = changed
        self._refresher = ListRefresher(server.id, session, self._list)
        self._asking: asyncio.Task[None] | None = None
        """Asks for the lists that the server has not declared."""
        self._notes: tuple[str, ...] = ()
        """The last notes about servers that hubs behind this server have left out."""

    @cached_property
    def was_late(self) -> bool:
        """Whether the server came too late for the first list of the last start."""
        return self._cache is not None and self._cache.was_late(self.server)

    def note_late(self, *, late: bool) -> None:
        """Notes for the next start whether the server came too late for the first list."""
        if self._cache is not None and late is not self._cache.was_late(self.server):
            self._cache.note_late(self.server, late=late)

    @property
    def is_cache_large(self) -> bool:
        """Whether reading the cached catalog would block the event loop too long."""
        return self._cache is not None and self._cache.size(self.server) > SMALL

    def load(self, declared: Json | None) -> CachedCatalog | None:
        """Loads the catalog that is cached for these client capabilities, and serves its lists from now on."""
        return self._adopt(self._cache.load(self.server, declared) if self._cache is not None else None)

    async def load_in_thread(self, declared: Json | None) -> CachedCatalog | None:
        """Does what `load` does, but reads the file in a thread."""
        return self._adopt(await in_thread(self._cache.load, self.server, declared) if self._cache else None)

    def _adopt(self, cached: CachedCatalog | None) -> CachedCatalog | None:
        if cached is not None:
            self.lists.adopt({kind: cached.lists.get(kind.name, []) for kind in KINDS})
        return cached

    async def begin(self, session: UpstreamSession) -> None:
        """Fetches all lists on a new session. Lists that change meanwhile are fetched again after `resume`.

        Raises what a request raises; the session is closed then.
        """
        self._refresher.forget()
        try:
            await self._refresher.fetch(session, set(KINDS))
        except BaseException:
            await asyncio.shield(session.close())
            raise

    async def _list(self, session: UpstreamSession, kinds: set[Kind]) -> set[Kind]:
        agreement = session.agreement
        ordered = [kind for kind in KINDS if kind in kinds]
        behind = session.nested_hubs
        if await self.lists.fetch(session.list_page, agreement.offers, ordered, session.unusable) or (
            behind != session.nested_hubs
        ):
            self._changed()
        previous_notes, self._notes = self._notes, session.nested_hubs.notes
        for note in self._notes:
            if note not in previous_notes:
                log.warning("%s: %s", self.server.id, note)
        await self._save(agreement)
        return set(self.lists.failed)

    async def _save(self, agreement: Agreement) -> None:
        if self._cache is not None and not self.lists.shortfalls:
            lists = {kind.name: self.lists.items.get(kind, []) for kind in KINDS}
            cached = agreement.to_cache(lists)
            if weighs_more(lists, SMALL):
                await in_thread(self._cache.save, self.server, cached, self._declared(agreement))
            else:
                self._cache.save(self.server, cached, self._declared(agreement))

    def drop(self) -> None:
        """Empties the lists, and deletes the cached catalog."""
        self.lists.adopt({kind: [] for kind in KINDS})
        if self._cache is not None:
            self._cache.forget(self.server)

    def _declared(self, agreement: Agreement) -> Json | None:
        """Returns the client capabilities by which the server lists; None: all, or it lists by none."""
        is_all = agreement.era == "modern" or agreement.declared == declared_for_all(self.server)
        return None if is_all else agreement.declared

    async def refresh_now(self, kinds: set[Kind]) -> None:
        """Fetches these lists at once; does nothing if no session is open. Raises what a request raises."""
        session = self._session()
        if session is not None:
            await self._refresher.fetch(session, kinds)

    def resume(self, session: UpstreamSession) -> None:
        """Resumes the refreshes that were deferred while no session was open, and asks for lists not declared."""
        self._refresher.soon(set())
        if session.agreement.unasked:
            self._asking = asyncio.get_running_loop().create_task(self._ask_undeclared(session))

    async def _ask_undeclared(self, session: UpstreamSession) -> None:
        if found := await session.find_undeclared(self.server.deadlines.list):
            self._refresher.soon(found, 0.0)
            await self._refresher.settled(self.server.deadlines.list)
        else:
            await self._save(session.agreement)

    @property
    def is_asking(self) -> bool:
        """Whether it waits for lists that the server has not declared; at most twice the deadline of a list."""
        return self._asking is not None and not self._asking.done()

    async def asked(self) -> None:
        """Waits until the lists that the server has not declared are known."""
        if self._asking is not None:
            await asyncio.wait({self._asking})

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Handles a notification on the shared session."""
        self._refresher.notified(method)

    def refresh(self, kind: Kind) -> None:
        """Fetches one list again soon, if a session is open."""
        if self._session() is not None:
            self._refresher.soon({kind})

    def refresh_all(self) -> None:
        """Fetches all lists again soon: anything may have changed."""
        self._refresher.soon(set(KINDS))

    async def close(self) -> None:
        """Stops fetching."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        await self._refresher.close()
