"""Fetches one page over HTTP and checks every redirect before it sends anything.

A name is resolved once for each redirect, its addresses are checked, and only those are dialled. So a name that
resolves to another address a moment later gains nothing. Nothing is kept from one page to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.message
import ipaddress
import posixpath
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from mcp_hub.security import urls
from mcp_hub.security.address_rules import RULE as ADDRESS
from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.local.tool_results import ToolRefused
from mcp_hub.text import printable
from mcp_hub.version import VERSION

MAX_REDIRECTS: Final = 10
CONNECT_WAIT: Final = 15.0
"""Seconds to connect to one address, so that the next address has a chance."""
ERROR_BODY: Final = 64 * 1024
"""Most bytes read of the body of an error answer."""
_LOOKUPS: Final = 64
"""Most names resolved at the same time. A name server that hangs blocks a thread for half a minute."""
_HEADER_LINE: Final = 64 * 1024
_SHOWN: Final = 300
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "User-Agent": f"Mozilla/5.0 (compatible; mcp-hub/{VERSION})",
    "Accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "Accept-Language": "en, *;q=0.5",
}


@dataclass(frozen=True)
class FetchedPage:
    """A fetched page."""

    url: str
    """The URL after all redirects, without user and password."""
    status: int
    content_type: str
    """The media type without parameters, in lower case; empty if the server did not declare one."""
    charset: str | None
    extension: str | None
    """The extension of the file's name, with its dot."""
    body: bytes
    """The decompressed body; only its first `ERROR_BODY` bytes if the status is 400 or higher."""
    redirects: int


def printable_url(url: URL) -> str:
    """Returns a URL for an error message, without user, password and the values of its query."""
    bare = printable(str(url.with_user(None).with_query(None).with_fragment(None)), _SHOWN)
    return f"{bare}?…" if url.query_string else bare


class Fetcher:
    """Fetches pages by the rules in `settings`. It has no deadline of its own: the caller sets one."""

    def __init__(self, settings: Settings) -> None:
        self._url_rules = settings.url_rules
        self._address_rules = settings.address_rules
        self._max_bytes = settings.max_bytes
        self._lookups = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="lookup")

    async def fetch(self, url: URL) -> FetchedPage:
        """Returns the page at an http or https URL after following its redirects.

        Raises ToolRefused with the code `guard_blocked` for a URL or an address that is not allowed,
        `result_too_large`, and `tool_error` for every failure of the network or the server.
        """
        dialled = _CheckedResolver()
        connector = aiohttp.TCPConnector(resolver=dialled, use_dns_cache=False, socket_factory=dialled.socket)
        session = aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WAIT),
            max_line_size=_HEADER_LINE,
            max_field_size=_HEADER_LINE,
            trust_env=False,  # a proxy would dial addresses that were not checked here
        )
        async with session:
            return await self._follow(session, dialled, url)

    async def _follow(self, session: aiohttp.ClientSession, dialled: _CheckedResolver, url: URL) -> FetchedPage:
        credentials, origin = _credentials(url), url.origin()
        for redirects in range(MAX_REDIRECTS + 1):
            url = _as_resolved(url.with_user(None).with_fragment(None))
            if self._url_rules.refuses(str(url)) is not None:
                raise ToolRefused("guard_blocked", self._url_rules.message)
            dialled.allow(url, await self._checked_addresses(url))
            auth = credentials if url.origin() == origin else None
            try:
                async with session.get(url, auth=auth, allow_redirects=False) as response:
                    target = response.headers.get("Location") if response.status in _REDIRECTS else None
                    if target is None:
                        return await self._page(response, url, redirects)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise ToolRefused("tool_error", f"{printable_url(url)} {_in_words(error)}") from None
            url = _joined(url, target)
        raise ToolRefused("tool_error", f"{printable_url(url)}: more than {MAX_REDIRECTS} redirects")

    async def _checked_addresses(self, url: URL) -> list[str]:
        """Resolves a host and returns the addresses that may be dialled, at least one. Raises ToolRefused."""
        host, port = url.raw_host or "", url.port or 0
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._lookups, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            )
        except (OSError, UnicodeError):
            text = f"the name of {printable_url(url)} cannot be resolved: check its spelling and the network connection"
            raise ToolRefused("tool_error", text) from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        name = host.rstrip(".").lower()
        refusals = {address: self._address_rules.refused(name, address, port) for address in addresses}
        allowed = [address for address, refusal in refusals.items() if refusal is None]
        if not allowed:
            text = next((refusal for refusal in refusals.values() if refusal), "the name has no address")
            raise ToolRefused("guard_blocked", f"{printable_url(url)} is not fetched: {text}", rule=ADDRESS)
        return allowed

    async def _page(self, response: aiohttp.ClientResponse, url: URL, redirects: int) -> FetchedPage:
        failed = response.status >= 400
        body = bytearray()
        async for chunk in response.content.iter_any():  # decompressed, in pieces of bounded size
            body += chunk
            if failed and len(body) >= ERROR_BODY:
                break
            if len(body) > self._max_bytes:
                text = f"{printable_url(url)} is larger than {self._max_bytes} bytes; web.max_bytes allows more"
                raise ToolRefused("result_too_large", text)
        kind = response.headers.get("Content-Type", "")
        declared = email.message.Message()
        declared["Content-Type"] = kind
        declared["Content-Disposition"] = response.headers.get("Content-Disposition", "")
        return FetchedPage(
            url=str(url),
            status=response.status,
            content_type=declared.get_content_type() if kind.strip() else "",
            charset=_text(declared.get_param("charset")),
            extension=_extension(declared, url),
            body=bytes(body[:ERROR_BODY] if failed else body),
            redirects=redirects,
        )

    def close(self) -> None:
        """Cancels pending name look-ups without waiting for them."""
        self._lookups.shutdown(wait=False, cancel_futures=True)


class _CheckedResolver(AbstractResolver):
    """The addresses that one fetch may dial: aiohttp's resolver, and a check of each socket before it connects."""

    def __init__(self) -> None:
        self._addresses: dict[str, list[str]] = {}
        self._allowed: set[tuple[str, int]] = set()

    def allow(self, url: URL, addresses: list[str]) -> None:
        self._addresses[url.raw_host or ""] = addresses
        self._allowed |= {(_plain(address), url.port or 0) for address in addresses}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses.get(host, [])
        ]

    def socket(self, info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        if (_plain(address[0]), address[1]) not in self._allowed:  # for a literal address, aiohttp skips the resolver
            raise PermissionError(f"{address[0]} was not checked")
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        pass


def _plain(address: str) -> str:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).compressed
    return address


def _credentials(url: URL) -> aiohttp.BasicAuth | None:
    return None if url.user is None else aiohttp.BasicAuth(url.user, url.password or "", encoding="utf-8")


def _as_resolved(url: URL) -> URL:
    """Writes the host of a URL as a resolver understands it: 0x7f.1 and 2130706433 become 127.0.0.1."""
    parsed = urls.parse(str(url))
    if parsed is None or not parsed.host or url.raw_host == parsed.host:
        return url
    try:
        ipaddress.ip_address(parsed.host)
    except ValueError:
        return url
    return url.with_host(parsed.host)


def _joined(url: URL, location: str) -> URL:
    try:
        target = url.join(URL(location.strip()))
        if target.scheme in ("http", "https") and target.raw_host:
            return target
    except ValueError:
        pass
    where = printable(location.partition("?")[0], 100)
    text = f"{printable_url(url)} redirects to {where!r}, which is not an http(s) address"
    raise ToolRefused("tool_error", text)


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _extension(declared: email.message.Message, url: URL) -> str | None:
    try:
        name = declared.get_filename() or url.name
    except (ValueError, LookupError, TypeError):
        name = url.name
    suffix = posixpath.splitext(name)[1].lower()
    return suffix if 1 < len(suffix) <= 10 else None


def _in_words(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"has a certificate that is not valid here: {printable(str(error.certificate_error), 200)}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer; it may work later"
    if isinstance(error, TimeoutError):
        return "cannot be reached: no answer to the connection attempt; is the server up?"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or type(error.os_error).__name__
        return f"cannot be reached: {printable(str(reason), 200)}; is the address right, is the server up?"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "broke off in the middle of the page, or its compression is broken; it may work later"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"does not answer with valid HTTP: {printable(error.message, 200)}"
    return f"cannot be fetched: {type(error).__name__}"
