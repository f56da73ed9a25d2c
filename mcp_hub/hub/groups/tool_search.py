"""Searches the catalogs that callers see, with an index of each and a process that compares the meanings of texts."""

from __future__ import annotations

import asyncio
import logging
import secrets
from array import array
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from mcp_hub.catalog import Catalog, Route
from mcp_hub.errors import CallError, ProtocolError
from mcp_hub.observability.stalls import in_slices
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.search import SearchedTool, SearchIndex
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.catalog_cache import CatalogCache

log = logging.getLogger("mcp_hub")

Json = dict[str, Any]

MAX_INDEXES: Final = 32
"""The most indexes that are kept; with one more, the least recently used is dropped, and made again when needed."""
PART: Final = 500
"""The most tools that the process gets in one request."""
COMPARE_WAIT: Final = 1.0
"""Seconds for one comparison; after that, a query is answered by words alone."""
PREPARE_WAIT: Final = 60.0
"""Seconds for the vectors of one part."""
SCALE: Final = 20_000
"""The number by which a process's answer expresses a likeness of 1."""


class MeaningProcess:
    """The process that compares the meanings of texts. Its tables of tools end with the session to it.

    Args:
        start: Starts the process with the first use and returns it; None if there is none.
        cache: The catalog cache, in whose directory the process keeps vectors; None: they are not kept.
        may_cache: Returns whether the vectors of a tool may be kept there.
    """

    def __init__(
        self, start: Callable[[], Upstream | None], cache: CatalogCache | None, may_cache: Callable[[Route], bool]
    ) -> None:
        self._start = start
        self._cache = cache
        self._may_cache = may_cache
        self._ready: WeakKeyDictionary[SearchIndex, tuple[ref[Any], str]] = WeakKeyDictionary()
        """The session that has the table of an index, and the name of the table there."""
        self._preparations: WeakKeyDictionary[SearchIndex, asyncio.Task[None]] = WeakKeyDictionary()

    async def likeness(self, index: SearchIndex, query: str) -> list[float] | None:
        """Returns how much each tool of an index is like a query; None if the process has no index or no answer."""
        process = self._start()
        session = process.session if process is not None else None
        if process is None or not index.tools:
            return None
        session_ref, table = self._ready.get(index, (None, ""))
        if session is None or session_ref is None or session_ref() is not session:
            self._prepare(index, process)
            return None
        try:
            async with asyncio.timeout(COMPARE_WAIT):
                text = await _request(process, "compare", {"table": table, "query": query})
            numbers = array("h", b64decode(text))
        except (CallError, ProtocolError, TimeoutError, Base64Error, ValueError) as error:
            log.debug("a search goes by words alone: %s", error)
            return None
        if len(numbers) != len(index.tools):
            self._ready.pop(index, None)  # the process has dropped the table
            return None
        return [number / SCALE for number in numbers]

    async def prepared(self, index: SearchIndex) -> bool:
        """Gives an index to the process if it does not have it; returns whether it has it then."""
        if await self.likeness(index, "") is None and (task := self._preparations.get(index)) is not None:
            await asyncio.wait({task})
        return index in self._ready

    def _prepare(self, index: SearchIndex, process: Upstream) -> None:
        if index not in self._preparations:
            task = asyncio.get_running_loop().create_task(self._send_index(index, process), name="search index")
            self._preparations[index] = task
            task.add_done_callback(lambda _: self._preparations.pop(index, None))

    async def _send_index(self, index: SearchIndex, process: Upstream) -> None:
        table = secrets.token_hex(8)
        secret = self._cache.secret("vectors") if self._cache is not None else None
        directory = str(self._cache.directory) if self._cache is not None and secret is not None else ""
        store = {"directory": directory, "secret": (secret or secrets.token_bytes(32)).hex()}
        try:
            await process.connected()
            session = process.session
            for part, start in enumerate(range(0, len(index.tools), PART)):
                tools = index.tools[start : start + PART]
                servers = list(dict.fromkeys(f"{tool.server} {tool.about_server}" for tool in tools))
                numbers = {text: number for number, text in enumerate(servers)}
                async with asyncio.timeout(PREPARE_WAIT):
                    await _request(process, "prepare", {
                        "table": table,
                        "part": part,
                        "tools": [tool.meaning() for tool in tools],
                        "servers": servers,
                        "of": [numbers[f"{tool.server} {tool.about_server}"] for tool in tools],
                        "keep": [self._may_cache(Route(tool.server, TOOLS, tool.names[-1])) for tool in tools],
                        "store": store,
                    })  # fmt: skip
            if session is not None and session is process.session:
                self._ready[index] = (ref(session), table)
        except (CallError, ProtocolError, TimeoutError, ValueError) as error:
            log.warning("search goes by words alone, as meanings cannot be compared: %s", printable(str(error)))

    async def close(self) -> None:
        """Cancels all preparations."""
        for task in list(self._preparations.values()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _request(process: Upstream, tool: str, arguments: Json) -> str:
    response = await process.request(TOOLS.act_method, {"name": tool, "arguments": arguments})
    content = response.result.get("content") or [{}]
    if response.result.get("isError"):
        raise ValueError(str(content[0].get("text", ""))[:500])
    return str(content[0].get("text", ""))


class ToolSearch:
    """Searches catalogs. What it finds, and in which order, does not depend on any other catalog."""

    def __init__(
        self, start: Callable[[], Upstream | None], cache: CatalogCache | None, may_cache: Callable[[Route], bool]
    ) -> None:
        self._process = MeaningProcess(start, cache, may_cache)
        self._indexes: Lru[int, tuple[ref[Catalog], SearchIndex]] = Lru(MAX_INDEXES)
        self._index_lock = asyncio.Lock()

    async def find(self, catalog: Catalog, query: str) -> list[str]:
        """Returns the names of the listed tools that fit a query, the best first."""
        index = await self._index(catalog)
        corrected = await in_slices(index.correcting(query))
        likeness = await self._process.likeness(index, corrected)
        ranking = await in_slices(index.ranking(query, corrected, likeness))
        return [index.tools[number].names[0] for number in ranking]

    async def warm(self, catalog: Catalog) -> bool:
        """Makes the index of a catalog, and returns whether meanings can be compared once that has been tried."""
        return await self._process.prepared(await self._index(catalog))

    async def close(self) -> None:
        """Cancels all preparations."""
        await self._process.close()

    async def _index(self, catalog: Catalog) -> SearchIndex:
        async with self._index_lock:
            catalog_ref, index = self._indexes.use(id(catalog)) or (None, None)
            if index is None or catalog_ref is None or catalog_ref() is not catalog:
                index = await in_slices(SearchIndex.building(_tools(catalog)))
                for key in [key for key, entry in self._indexes.items() if entry[0]() is None]:
                    del self._indexes[key]
                self._indexes[id(catalog)] = (ref(catalog), index)
            return index


def _tools(catalog: Catalog) -> Iterator[SearchedTool]:
    descriptions: dict[str, str] = {}
    for entry in catalog.tools_of_models():
        name, server, original = entry.exposed, entry.route.upstream, entry.route.name
        if server not in descriptions:
            descriptions[server] = catalog.about(server)
        yield SearchedTool.of(entry.wire, (name, f"{server}/{original}", original), server, descriptions[server])
