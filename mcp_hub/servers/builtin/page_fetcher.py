"""Fetches one page over HTTP and checks every redirect before it sends anything.

A name is resolved once for each redirect, its addresses are checked, and only those are dialled. So a name that
resolves to another address a moment later gains nothing. Nothing is kept from one page to the next.
"""

from __future__ import annotations

import base64
import email.message
import ipaddress
import posixpath
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from yarl import URL

from mcp_hub.security import urls
from mcp_hub.security.address_rules import RULE as ADDRESS
from mcp_hub.security.proxies import ForwardProxy
from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.checked_lookups import CheckedLookups, RequestRefused
from mcp_hub.servers.local.tool_results import ToolRefused
from mcp_hub.text import printable
from mcp_hub.transport.egress import Egress, egress_failure
from mcp_hub.transport.http1 import client_response as failures
from mcp_hub.transport.http1.client_response import HttpFailure, HttpResponse
from mcp_hub.transport.http_client import CookieJar
from mcp_hub.transport.trust_store import UnusableCertificates
from mcp_hub.version import VERSION

MAXREDIRECTS: Final = 10
CONNECT_WAIT: Final = 15.0
"""Seconds to connect to one address, so that the next address has a chance."""
ERROR_BODY: Final = 64 * 1024
"""Most bytes read of the body of an error answer."""
_MAX_PRINTED: Final = 300
_URL: Final = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
"""Matches a URL: its scheme and host, its path, its query."""
_SENDABLE: Final = "%!$&'()*+,/:;=?@[]|~"
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
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
    bare = printable(str(url.with_user(None).with_query(None).with_fragment(None)), _MAX_PRINTED)
    return f"{bare}?…" if url.query_string else bare


class Fetcher:
    """Fetches pages by the rules in `settings`. It has no deadline of its own: the caller sets one."""

    def __init__(self, settings: Settings) -> None:
        self._url_rules = settings.url_rules
        self._max_bytes = settings.max_bytes
        self._egress = Egress(settings.proxies)
        self._lookups = CheckedLookups(settings.address_rules)

    async def fetch(self, url: URL) -> FetchedPage:
        """Returns the page at an http or https URL after following its redirects.

        Raises ToolRefused with the code `guard_blocked` for a URL or an address that is not allowed,
        `result_too_large`, and `tool_error` for every failure of the network or the server.
        """
        credentials, origin = _credentials(url), url.origin()
        cookies: defaultdict[URL, CookieJar] = defaultdict(CookieJar)
        for redirects in range(MAXREDIRECTS + 1):
            url = _with_resolved_host(url.with_user(None).with_fragment(None))
            if (refusal := self._url_rules.refusal(str(url))) is not None:
                raise ToolRefused("guard_blocked", refusal)
            proxy = None
            jar = cookies[url.origin()]
            headers = jar.added(url, {**_HEADERS, **(credentials if url.origin() == origin else {})})
            try:
                proxy = self._egress.proxy_for(url.scheme, url.raw_host or "", url.port or 0)
                addresses = await self._checked_addresses(url, proxied=proxy is not None)
                async with self._egress.response(
                    "GET", url, headers, connect=CONNECT_WAIT, addresses=None if proxy is not None else addresses
                ) as response:
                    jar.take(url, response.all("set-cookie"))
                    target = response.location if response.status in REDIRECTS else None
                    if target is None:
                        return await self._read_page(response, url, redirects)
            except (HttpFailure, UnusableCertificates, OSError, ValueError) as error:
                raise ToolRefused("tool_error", f"{printable_url(url)} {failure_text(error, proxy)}") from None
            following = redirect_target(url, target)
            if following is None:
                text = f"{printable_url(url)} redirects to {printable(target.partition('?')[0], 100)!r}"
                raise ToolRefused("tool_error", f"{text}, which is not an http(s) address")
            url = following
        raise ToolRefused("tool_error", f"{printable_url(url)}: more than {MAXREDIRECTS} redirects")

    async def _checked_addresses(self, url: URL, *, proxied: bool) -> list[str]:
        """Resolves a host and returns the addresses that may be dialled, at least one. Raises ToolRefused.

        `proxied`: the host is reached through a proxy, which may know names that are not known here.
        """
        try:
            return await self._lookups.addresses_of(url.raw_host or "", url.port or 0, proxied=proxied)
        except RequestRefused as refusal:
            text = f"{printable_url(url)} is not fetched: {refusal}"
            raise ToolRefused("guard_blocked", text, rule=ADDRESS) from None
        except (OSError, UnicodeError):
            text = f"the name of {printable_url(url)} cannot be resolved: check its spelling and the network connection"
            raise ToolRefused("tool_error", text) from None

    async def _read_page(self, response: HttpResponse, url: URL, redirects: int) -> FetchedPage:
        is_error = response.status >= 400
        body = bytearray()
        while chunk := await response.chunk():  # decompressed, in pieces of bounded size
            body += chunk
            if is_error and len(body) >= ERROR_BODY:
                break
            if len(body) > self._max_bytes:
                text = f"{printable_url(url)} is larger than {self._max_bytes} bytes; web.max_bytes allows more"
                raise ToolRefused("result_too_large", text)
        kind = response.get("content-type") or ""
        declared = email.message.Message()
        declared["Content-Type"] = kind
        declared["Content-Disposition"] = response.get("content-disposition") or ""
        return FetchedPage(
            url=str(url),
            status=response.status,
            content_type=declared.get_content_type() if kind.strip() else "",
            charset=_text(declared.get_param("charset")),
            extension=_extension(declared, url),
            body=bytes(body[:ERROR_BODY] if is_error else body),
            redirects=redirects,
        )

    def close(self) -> None:
        """Cancels pending name look-ups without waiting for them."""
        self._lookups.close()


def _credentials(url: URL) -> dict[str, str]:
    if url.user is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()}


def _with_resolved_host(url: URL) -> URL:
    """Writes the host of a URL as a resolver understands it: 0x7f.1 and 2130706433 become 127.0.0.1."""
    parsed = urls.parse(str(url))
    if parsed is None or not parsed.host or url.raw_host == parsed.host:
        return url
    try:
        ipaddress.ip_address(parsed.host)
    except ValueError:
        return url
    return url.with_host(parsed.host)


def url_as_written(text: str, base: URL | None = None) -> URL:
    """Reads a URL, which is relative to `base` if there is one. Raises ValueError.

    Its path and query stay as written, as a signature may cover them: only characters that HTTP has no place for are
    percent-encoded.
    """
    origin, path, query = _URL.fullmatch(text).groups("")  # type: ignore[union-attr]  # it matches every text
    authority = URL(origin)
    if authority.raw_authority:
        base = URL.build(
            scheme=authority.scheme or (base.scheme if base is not None else ""),
            authority=authority.raw_authority, path="/", encoded=True,
        )  # fmt: skip
    elif base is None or authority.scheme not in ("", base.scheme):
        raise ValueError("the URL has no host")
    path, query = (quote(part, safe=_SENDABLE, errors="surrogateescape") for part in (path, query))
    return base.join(URL.build(path=path, query_string=query, encoded=True))


def redirect_target(url: URL, location: str) -> URL | None:
    """Returns the URL to which the one at `url` redirects; None if it is not an http or https URL."""
    try:
        target = url_as_written(location.strip(), url)
    except ValueError:
        return None
    return target if target.scheme in ("http", "https") and target.raw_host else None


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _extension(declared: email.message.Message, url: URL) -> str | None:
    try:
        name = declared.get_filename() or url.name
    except (ValueError, LookupError, TypeError):
        name = url.name
    suffix = posixpath.splitext(name)[1].lower()
    return suffix if 1 < len(suffix) <= 10 else None


def failure_text(error: Exception, proxy: ForwardProxy | None) -> str:
    """Returns what happened to a request, as the rest of a sentence that begins with its URL."""
    if (text := egress_failure(error, proxy)) is not None:
        return f"cannot be reached: {text}"
    match error:
        case failures.NameUnknown():
            return "cannot be reached: its name has no address"
        case failures.CertificateRefused():
            return f"has a certificate that is not valid here: {printable(str(error), 200)}"
        case failures.TlsFailed() | failures.CertificateWanted():
            return "cannot be reached: no TLS connection could be made"
        case failures.ConnectFailed(error=cause):
            reason = cause.strerror or type(cause).__name__
            return f"cannot be reached: {printable(str(reason), 200)}; is the address right, is the server up?"
        case failures.ConnectTimeout() | TimeoutError():
            return "cannot be reached: no answer to the connection attempt; is the server up?"
        case failures.EmptyReply() | failures.ConnectionBroke():
            return "closed the connection without an answer; it may work later"
        case failures.IncompleteBody():
            return "broke off in the middle of its answer, or its compression is broken; it may work later"
        case failures.NotHttp():
            return f"does not answer with valid HTTP: {printable(str(error), 200)}"
    return f"cannot be fetched: {type(error).__name__}"
