"""Sources of listings: a registry with the official interface, a directory of files, and the bundled seed.

`MCP_HUB_REGISTRY` names the registry: a base address or a directory. The seed works without a network.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from mcp_hub.protocol.frames import decode
from mcp_hub.registry import Listing, RegistryError
from mcp_hub.registry.origin_client import JsonClient
from mcp_hub.registry.package_index import order_of
from mcp_hub.registry.server_json import NAME, read_answer
from mcp_hub.security.private_files import read_regular
from mcp_hub.text import printable
from mcp_hub.transport.egress import Egress

VARIABLE: Final = "MCP_HUB_REGISTRY"
OFFICIAL_BASE: Final = "https://registry.modelcontextprotocol.io"
SEED: Final = "the bundled list"

PAGE: Final = 100
"""Listings in one request: the most that the official registry returns."""
MAX_PAGES: Final = 10
MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
SEARCH_WAIT: Final = 45.0
"""Seconds for all pages of a search."""
MAX_FILES: Final = 5000
MAX_FILE: Final = 8 * 1024 * 1024


class Found(msgspec.Struct, frozen=True):
    """The result of a search."""

    listings: tuple[Listing, ...]
    problems: tuple[str, ...] = ()
    """Texts about listings that were left out, and about parts that were not searched."""


class Source(Protocol):
    """A place that has listings. Its methods raise RegistryError."""

    @property
    def label(self) -> str:
        """The name that the user sees."""

    async def search(self, word: str) -> Found:
        """Returns the latest version of each server that has the word in its name or description."""

    async def find(self, name: str, version: str = "latest") -> Listing | None:
        """Returns one server; None if there is none of this name and version."""


def registry_of(environ: Mapping[str, str], home: Path, egress: Egress | None = None) -> Source:
    """Returns the registry that the environment names, by default the official one.

    `egress`: makes the connections to it; None: by the proxy settings of the environment. Raises RegistryError if the
    name is neither a directory nor a usable address.
    """
    location = environ.get(VARIABLE, "").strip() or OFFICIAL_BASE
    if "://" in location:
        return HttpRegistry(location, egress)
    directory = home / location[2:] if location.startswith("~/") else Path.cwd() / location
    if not directory.is_dir():
        display_text = printable(location, 200)
        raise RegistryError(f"{VARIABLE}: {display_text!r} is neither a directory nor an address with https://")
    return FileRegistry(directory)


class HttpRegistry:
    """A registry with the official interface, version 0.1."""

    def __init__(self, base: str, egress: Egress | None = None) -> None:
        self._base = base
        self._egress = egress
        self._client()  # an unusable address is refused now
        self.label = printable(base.partition("://")[2].rpartition("@")[2].rstrip("/"), 100)

    def _client(self) -> JsonClient:
        return JsonClient(self._base, "the registry", egress=self._egress, limit=MAX_PAGE_BYTES)

    async def search(self, word: str) -> Found:
        """Searches all its pages (`Source.search`)."""
        listings: dict[str, Listing] = {}
        problems: list[str] = []
        try:
            async with asyncio.timeout(SEARCH_WAIT):
                async for answer in self._pages(word, problems):
                    _add(listings, problems, answer, self.label)
        except TimeoutError:
            problems.append(f"{self.label}: not all of it was searched: its pages took more than {SEARCH_WAIT:g} s")
        return Found(tuple(listings.values()), tuple(problems))

    async def _pages(self, word: str, problems: list[str]) -> AsyncIterator[Any]:
        """Yields the listings of all pages. Adds a problem if a page is repeated or if there are too many pages."""
        query = {"search": word, "version": "latest", "limit": str(PAGE)}
        seen: set[str] = set()
        async with self._client() as client:
            for _ in range(MAX_PAGES):
                page = await client.get("v0.1", "servers", query=query)
                servers = page.get("servers") if isinstance(page, dict) else None
                if not isinstance(page, dict) or not isinstance(servers, list):
                    raise RegistryError(f"{self.label}: its answer is not a list of servers; is it a registry of MCP?")
                if len(servers) > PAGE:
                    problems.append(f"{self.label}: a page has {len(servers):,} servers; the first {PAGE} count")
                for answer in servers[:PAGE]:
                    yield answer
                metadata = page.get("metadata")
                cursor = metadata.get("nextCursor") if isinstance(metadata, dict) else None
                if not isinstance(cursor, str) or not cursor:
                    return
                if cursor in seen or len(cursor) > 1000:
                    problems.append(f"{self.label}: it gives the same page again; the search ends here")
                    return
                seen.add(cursor)
                query = {**query, "cursor": cursor}
        problems.append(f"{self.label}: there are more than {MAX_PAGES * PAGE} servers; a longer word finds fewer")

    async def find(self, name: str, version: str = "latest") -> Listing | None:
        """Returns one server (Source)."""
        async with self._client() as client:
            answer = await client.get("v0.1", "servers", name, "versions", version)
        if answer is None:
            return None
        listing = read_answer(answer, self.label, name)
        if version not in ("latest", listing.version):
            raise RegistryError(f"{self.label}: asked for {version} of {name}, it answered {listing.version}")
        return listing


class FileRegistry:
    """A directory of files `*.json`: a server.json each, or an answer of a registry with several."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.label = printable(str(directory), 200)

    async def search(self, word: str) -> Found:
        """Searches all its files (`Source.search`)."""
        listings, problems = await asyncio.to_thread(self._read)
        return Found(tuple(_matching(_newest(listings), word)), tuple(problems))

    async def find(self, name: str, version: str = "latest") -> Listing | None:
        """Returns one server (Source)."""
        listings, _ = await asyncio.to_thread(self._read)
        versions = [listing for listing in listings if listing.name == name]
        if version != "latest":
            return next((listing for listing in versions if listing.version == version), None)
        return next(iter(_newest(versions)), None)

    def _read(self) -> tuple[list[Listing], list[str]]:
        listings: list[Listing] = []
        problems: list[str] = []
        paths = sorted(self._directory.glob("*.json"))
        if len(paths) > MAX_FILES:
            problems.append(f"{self.label}: there are {len(paths):,} files; the first {MAX_FILES:,} count")
        for path in paths[:MAX_FILES]:
            try:
                content = _content(path)
            except RegistryError as error:
                problems.append(str(error))
                continue
            servers = content.get("servers") if isinstance(content, dict) else None
            for answer in servers if isinstance(servers, list) else [content]:
                try:
                    listings.append(read_answer(answer, self.label))
                except RegistryError as error:
                    problems.append(f"{printable(path.name, 100)}: {error}")
        return listings, problems


class Seed:
    """The list of reference servers that comes with the hub. Their short names are enough to find them."""

    label = SEED

    async def search(self, word: str) -> Found:
        """Searches the list (`Source.search`)."""
        return Found(tuple(_matching(self._listings(), word)))

    async def find(self, name: str, version: str = "latest") -> Listing | None:
        """Returns one server by its full or short name (`Source.find`)."""
        listing = next((listing for listing in self._listings() if name in (listing.name, listing.short_name)), None)
        return listing if listing is not None and version in ("latest", listing.version) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The short names."""
        return tuple(listing.short_name for listing in self._listings())

    def _listings(self) -> list[Listing]:
        content = files("mcp_hub.registry").joinpath("seed.json").read_bytes()
        return [read_answer(answer, SEED) for answer in decode(content)["servers"]]


def is_registry_name(text: str) -> bool:
    """Returns whether a text is the name of a server of a registry, such as `io.github.owner/server`."""
    return NAME.fullmatch(text) is not None


def _content(path: Path) -> Any:
    display_path = printable(str(path), 300)
    try:
        return decode(read_regular(path, MAX_FILE)[0])
    except (ValueError, RecursionError):
        raise RegistryError(f"{display_path} is not JSON") from None
    except OSError as error:
        raise RegistryError(f"{display_path} cannot be read: {error.strerror}") from None


def _add(listings: dict[str, Listing], problems: list[str], answer: Any, label: str) -> None:
    try:
        listing = read_answer(answer, label)
    except RegistryError as error:
        problems.append(str(error))
        return
    before = listings.get(listing.name)
    if listing.latest and (before is None or order_of(before.version) < order_of(listing.version)):
        listings[listing.name] = listing


def _newest(listings: list[Listing]) -> Iterator[Listing]:
    newest: dict[str, Listing] = {}
    for listing in listings:
        before = newest.get(listing.name)
        if before is None or (before.latest, order_of(before.version)) < (listing.latest, order_of(listing.version)):
            newest[listing.name] = listing
    yield from newest.values()


def _matching(listings: Iterator[Listing] | list[Listing], word: str) -> Iterator[Listing]:
    term = word.casefold()
    for listing in listings:
        if any(term in text.casefold() for text in (listing.name, listing.title or "", listing.description)):
            yield listing
