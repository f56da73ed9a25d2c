"""The HTTP client of one upstream: tokens, redirects within its origin, and failures as LinkErrors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email.utils
import importlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub import codes
from mcp_hub.config.models import Server
from mcp_hub.security.lru import Lru
from mcp_hub.security.proxies import ForwardProxy, ProxySettingError
from mcp_hub.security.redaction import KnownSecrets
from mcp_hub.text import printable
from mcp_hub.transport import (
    MAX_CHALLENGE,
    Authorization,
    Challenge,
    FrameTooLarge,
    LinkError,
    RedirectNotFollowed,
    SessionLost,
)
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.http1 import client_response
from mcp_hub.transport.http1.client_connection import ClientConnection, ResponseCallback
from mcp_hub.transport.http1.client_response import HttpResponse
from mcp_hub.transport.http1.pool import HttpPool, RequestHeadEncoder, is_header
from mcp_hub.transport.http_failures import (
    connect_wait,
    error_text,
    excerpt_of,
    failure_of,
    refusal,
    refused_by_proxy,
    where,
)
from mcp_hub.transport.lines import ByteBuffer
from mcp_hub.transport.trust_store import UnusableCertificates

if TYPE_CHECKING:
    from yarl import URL

    from mcp_hub.transport.http1.client_response import HttpResponse

SESSION: Final = "Mcp-Session-Id"
VERSION: Final = "MCP-Protocol-Version"

_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")


class SessionHeaders:
    """The headers of one session: the id that the upstream assigned, if any, and the negotiated revision."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._version: str | None = None

    def forget(self) -> None:
        """Forgets both; a new handshake begins."""
        self.id = self._version = None

    def begin(self, response: HttpResponse) -> None:
        """Takes the session id from the answer to `initialize`. Raises LinkError for an invalid one."""
        session_id = response.get(SESSION.lower())
        if session_id is not None and not _ID.fullmatch(session_id):
            raise LinkError(f"its {SESSION} is not 1 to 1024 visible ASCII characters", status=response.status)
        self.id = session_id

    def headers(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the headers of one request: the given ones, and those of the session."""
        headers = dict(extra or {})
        if VERSION in headers:
            self._version = headers[VERSION]
        elif self._version is not None:
            headers[VERSION] = self._version  # responses, the DELETE and resumptions come without one
        if self.id is not None:
            headers[SESSION] = self.id
        return headers


MAX_COOKIES: Final = 50
"""Cookies that are kept; beyond that, the oldest are dropped."""
MAX_COOKIE: Final = 4096
"""Characters of the name and value of one cookie."""
MAX_LINES: Final = 50
"""Set-Cookie headers of one response that are read."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r'[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*|"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"')
_SECONDS: Final = re.compile(r"-?[0-9]{1,12}")


class _Cookie(msgspec.Struct, frozen=True):
    value: str
    path: str
    secure: bool
    until: float | None
    """Expiry in seconds since the epoch; None: at the end of the session."""


class CookieJar:
    """Keeps the cookies of one origin. They are sent to that origin only, whatever domain they name."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._cookies: Lru[tuple[str, str], _Cookie] = Lru(MAX_COOKIES)

    def take(self, url: URL, lines: Sequence[str]) -> None:
        """Takes the Set-Cookie headers of a response from `url`. Malformed and oversized ones are ignored."""
        for line in lines[:MAX_LINES]:
            first, *parts = line.split(";")
            name, equals, value = (part.strip() for part in first.partition("="))
            if not equals or len(name) + len(value) > MAX_COOKIE:
                continue
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                continue
            attributes = {
                key.strip().lower(): text.strip() for key, _, text in (attribute.partition("=") for attribute in parts)
            }
            expires_at = self._expiry(attributes)
            path = attributes.get("path", "")
            path = path if path.startswith("/") else url.raw_path.rpartition("/")[0] or "/"
            self._cookies.pop((name, path), None)
            if expires_at is None or expires_at > self._clock():
                self._cookies[name, path] = _Cookie(value, path, "secure" in attributes, expires_at)

    def _expiry(self, attributes: Mapping[str, str]) -> float | None:
        if _SECONDS.fullmatch(seconds := attributes.get("max-age", "")):
            return self._clock() + int(seconds)
        try:
            return email.utils.parsedate_to_datetime(attributes["expires"].replace("-", " ")).timestamp()
        except (KeyError, ValueError, OverflowError):
            return None

    def added(self, url: URL, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the headers of a request to `url`, with its cookies added."""
        pairs = [
            f"{name}={cookie.value}"
            for (name, _), cookie in self._cookies.items()
            if (cookie.until is None or cookie.until > self._clock())
            and (not cookie.secure or url.scheme == "https")
            and _is_below(url.raw_path, cookie.path)
        ]
        return {**headers, "Cookie": "; ".join(pairs)} if pairs else headers


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


log = logging.getLogger("mcp_hub.transport")

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

POOL: Final = 128
"""Connections to one upstream: twice its 64 concurrent calls, so that a cancellation always gets through."""
KEEP_ALIVE: Final = 4.0
"""Seconds an idle plain connection is kept: uvicorn and Node close theirs after 5, which would lose a POST."""
KEEP_ALIVE_TLS: Final = 30.0
"""The same for TLS, where reuse saves a handshake; such servers are behind load balancers that wait for a minute."""
MAX_REDIRECTS: Final = 3
SHOWN_BODY: Final = 2000
"""Bytes of a body that belongs to no request from which its error quotes."""
ERROR_BODY: Final = 64 * 1024
"""Bytes of an error response's body that are read."""
ERROR_BODY_WAIT: Final = 5.0
"""Seconds for those bytes to arrive."""
MAX_RETRY_AFTER: Final = 86400.0
NOT_EXECUTED: Final = frozenset({405, 413, 415, 421, 429})
"""Statuses by which a server certainly refuses a message before it acts on it, besides 401, 403 and a lost session.

Other statuses also come from an application that has acted: 409 or 422 after half of its work, 303 after all of it.
"""
_SAME_METHOD: Final = frozenset({307, 308})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NOT_OURS: Final = frozenset({"connection", "content-length", "mcp-session-id", "transfer-encoding"})
"""Headers that the configuration cannot set, as the transport sets them itself."""


def content_type(response: HttpResponse) -> str:
    """Returns the media type of a response, in lower case, without parameters."""
    return (response.get("content-type") or "").partition(";")[0].strip().lower()


def is_json(data: bytes | memoryview) -> bool:
    """Returns whether the data of an event begins like a JSON message; some servers also send other text."""
    return bytes(data[:64]).lstrip()[:1] in (b"{", b"[")


class HttpClient:
    """Sends requests to one configured URL and its origin. Everything it raises is a LinkError.

    With an `authorization`, every request carries its token; one that is refused is sent once more with a new token.
    """

    def __init__(
        self, server: Server, authorization: Authorization | None = None, egress: Egress | None = None
    ) -> None:
        self._server = server
        self._egress = Egress.of(server.egress) if egress is None else egress
        self._proxy: ForwardProxy | None = None
        self._cookies = CookieJar() if self._egress.keeps_cookies else None
        self._plain = authorization is None and self._cookies is None
        """Whether a request carries nothing that a response may change: neither token nor cookies."""
        self._authorization = authorization
        self._token: str | None = None
        self._token_waiters = 0
        """Number of requests that wait for a token."""
        self._headers = {name: value.get_secret_value() for name, value in server.headers.items()}
        self._pool: HttpPool | None = None
        self._heads: RequestHeadEncoder | None = None
        self._url: URL | None = None
        self._secrets: list[str] = []

    @property
    def url(self) -> URL:
        """The configured URL without user and password."""
        if self._url is None:
            raise LinkError("the connection is not open", executed=False)
        return self._url

    async def open(self) -> None:
        """Creates the connection pool; nothing is sent yet. Raises LinkError for an invalid URL or header."""
        await asyncio.to_thread(importlib.import_module, "yarl")
        headers = self._checked_headers()
        url = self._checked_url(headers)
        values = [*headers.values(), *url.query.values()]
        self._secrets = [part for value in values for part in (value, value.partition(" ")[2])]
        self._url = url
        try:
            self._proxy = self._egress.proxy_for(url.scheme, url.raw_host or "", url.port or 0)
            self._pool, self._heads = await self._egress.connections(
                url,
                headers,
                limit=POOL,
                connect=connect_wait(self._server),
                keep=KEEP_ALIVE_TLS if url.scheme == "https" else KEEP_ALIVE,
            )
        except (ProxySettingError, UnusableCertificates) as error:
            raise self.link_error(error) from None

    def _checked_headers(self) -> dict[str, str]:
        for name, value in self._headers.items():
            if not is_header(name, value):
                text = f"the configured header {printable(name, 60)!r} is not valid (a line end in its value?)"
                raise LinkError(text, executed=False, code=codes.VALUE_WRONG)
        return {name: value.strip() for name, value in self._headers.items() if name.lower() not in _NOT_OURS}

    def _checked_url(self, headers: dict[str, str]) -> URL:
        from yarl import URL

        try:
            url = URL(self._server.url or "").with_fragment(None)
            if url.scheme not in ("http", "https") or not url.host or ":" in (url.user or ""):
                raise ValueError
        except ValueError:
            text = "its url is not an http:// or https:// address"
            raise LinkError(text, executed=False, code=codes.VALUE_WRONG) from None
        if url.user is not None:
            if "authorization" not in {name.lower() for name in headers}:
                credentials = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
                headers["Authorization"] = f"Basic {credentials}"
            url = url.with_user(None)
        return url

    async def request(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: float | None = None,
    ) -> HttpResponse:
        """Sends a request and returns the response once its head has arrived; follows redirects within the origin.

        A POST is redirected only if it stays a POST. `within`: seconds for each attempt, not counting the wait for a
        token.

        Raises TimeoutError after `within`, HostUnreachable, SignInNeeded, or LinkError for any other failure.
        """
        if self._authorization is None:
            if within is None:
                return await self._follow_redirects(method, url, headers, body)
            async with asyncio.timeout(within):
                return await self._follow_redirects(method, url, headers, body)
        for again in (False, True):
            with self._waiting_for_token():
                self._token = token = await self._authorization.token()
            token_headers = headers if token is None else {**headers, "Authorization": f"Bearer {token}"}
            async with asyncio.timeout(within):
                response = await self._follow_redirects(method, url, token_headers, body)
            if response.status not in (401, 403):
                break
            challenge = ", ".join(response.all("www-authenticate"))[:MAX_CHALLENGE]
            try:
                with self._waiting_for_token():
                    is_renewed = await self._authorization.challenged(
                        token, Challenge(response.status, challenge), again=again
                    )
            except BaseException:
                response.close()
                raise
            if not is_renewed:
                break
            await self.discard(response)
        return response

    @property
    def signing_in(self) -> bool:
        """Whether a request waits for a token rather than for the upstream."""
        return self._token_waiters > 0

    @contextlib.contextmanager
    def _waiting_for_token(self) -> Iterator[None]:
        self._token_waiters += 1
        try:
            yield
        finally:
            self._token_waiters -= 1

    def begin(self, headers: Mapping[str, str], body: bytes, on_response: ResponseCallback) -> ClientConnection | None:
        """Sends a POST to the URL on an idle connection without waiting. Pass what `on_response` gets to `finish`.

        Returns the connection, whose `cancel` gives up the request; None if nothing was sent.
        """
        if self._pool is None or self._heads is None or not self._plain:
            return None
        try:
            head = self._heads.head("POST", self.url.raw_path_qs, headers, len(body))
        except ValueError:
            return None
        return self._pool.begin(head, body, on_response)

    async def finish(
        self, headers: Mapping[str, str], body: bytes, outcome: HttpResponse | client_response.HttpFailure
    ) -> HttpResponse:
        """Completes a POST that was sent by `begin`: returns or raises the same as `request`."""
        if isinstance(outcome, client_response.HttpFailure):
            raise self.link_error(outcome)
        return await self._follow_redirects("POST", self.url, headers, body, outcome)

    async def _follow_redirects(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None = None,
        response: HttpResponse | None = None,
    ) -> HttpResponse:
        for _ in range(MAX_REDIRECTS + 1):
            if response is None:
                response = await self._exchange(method, url, headers, body)
            if self._cookies is not None:
                self._cookies.take(url, response.all("set-cookie"))
            if response.status not in _REDIRECTS:
                return response
            try:
                url = self._redirect_target(method, url, response)
            finally:
                response.close()
            response = None
        text = f"{where(self.url)} redirects more than {MAX_REDIRECTS} times"
        raise LinkError(text, code=codes.REDIRECTED)

    async def _exchange(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        if self._pool is None or self._heads is None:
            raise LinkError("the connection is not open", executed=False)
        if self._cookies is not None:
            headers = self._cookies.added(url, headers)
        try:
            head = self._heads.head(method, url.raw_path_qs, headers, None if body is None else len(body))
        except ValueError:
            text = f"{where(url)} or a header for it is not valid"
            raise LinkError(text, executed=False, code=codes.VALUE_WRONG) from None
        try:
            return await self._pool.exchange(method, head, body)
        except Exception as error:
            raise self.link_error(error) from None

    def _redirect_target(self, method: str, url: URL, response: HttpResponse) -> URL:
        from yarl import URL

        status = response.status
        location = response.location
        try:
            if location is None:
                raise ValueError
            target = url.join(URL(location)).with_user(None)
            is_same_origin = target.origin() == self.url.origin()
        except ValueError:
            text = f"HTTP {status} without a usable Location"
            raise LinkError(text, status=status, code=codes.REDIRECTED) from None
        if is_same_origin and (method == "GET" or status in _SAME_METHOD):
            return target
        text = (
            f"HTTP {status}: it redirects to {where(target)}, which is not followed; set the url to that if it is right"
        )
        raise RedirectNotFollowed(text, str(target), status)

    def arrived_body(self, response: HttpResponse) -> bytes | None:
        """Returns the whole body if it has arrived and is at most `max_frame` bytes; else None: then use `read`."""
        return response.arrived_body() if response.size <= self._server.max_frame else None

    async def read(self, response: HttpResponse) -> bytes | memoryview:
        """Reads the whole body, decompressed. Raises FrameTooLarge above `max_frame`, LinkError if it breaks off."""
        limit = self._server.max_frame
        if (content := self.arrived_body(response)) is not None:
            return content
        body = ByteBuffer(limit)
        while chunk := await self.chunk(response):
            if body.size + len(chunk) > limit:
                response.refuse()
                raise self.too_large()
            body.add(chunk)
        return body.take()

    async def chunk(self, response: HttpResponse) -> bytes:
        """Waits for the next part of a body; `b""` is the end. Raises LinkError if it breaks off."""
        try:
            return await response.chunk()
        except Exception as error:
            response.close()
            raise self.link_error(error) from None

    async def discard(self, response: HttpResponse) -> None:
        """Closes a response whose body does not matter; the connection is kept if the body is short."""
        if content_type(response) != EVENTS:
            await self._read_error_body(response)
        response.close()

    async def _read_error_body(self, response: HttpResponse) -> bytes:
        body = b""
        try:
            async with asyncio.timeout(ERROR_BODY_WAIT):
                while len(body) < ERROR_BODY and (chunk := await response.chunk()):
                    body += chunk
        except Exception as error:
            log.debug("the rest of an error's body did not come: %s", type(error).__name__)
        return body[:ERROR_BODY]

    async def refused(self, response: HttpResponse, session: str | None) -> tuple[LinkError, bytes]:
        """Returns the LinkError for an error response, and its body. `session`: the session id of the request."""
        status = response.status
        body = await self._read_error_body(response)
        response.close()
        proxy = self._proxy
        if proxy is not None and proxy.forwards(self.url.scheme):
            proxy_text = refused_by_proxy(proxy, response)
            if proxy_text is not None:
                return LinkError(proxy_text, executed=False, status=status), body
        if status in (401, 403):
            return refusal(self._server, status, self._mask(response.get("www-authenticate") or "", session)), body
        if status in (404, 410) and session is not None:
            return SessionLost(f"HTTP {status}: the session is gone", executed=status != 404, status=status), body
        executed = status not in NOT_EXECUTED
        text = error_text(status, body, lambda excerpt: self._mask(excerpt, session))
        return LinkError(text, executed=executed, status=status, retry_after=retry_after(response)), body

    def foreign_answer(self, status: int, body: bytes | memoryview, session: str | None) -> LinkError:
        """Returns the error for a body that has no answer to its request."""
        excerpt = excerpt_of(bytes(body[:SHOWN_BODY]), lambda text: self._mask(text, session))
        return LinkError(f"its answer does not belong to the request: {excerpt}", status=status)

    def _mask(self, text: str, session: str | None = None) -> str:
        return KnownSecrets([*self._secrets, session or "", self._token or ""]).mask(text)

    def too_large(self) -> FrameTooLarge:
        """Returns the error for a response above `max_frame`."""
        return FrameTooLarge(f"the answer is larger than the limit of {self._server.max_frame:,} bytes (max_frame)")

    def link_error(self, error: Exception) -> LinkError:
        """Returns a failure as a LinkError."""
        return failure_of(error, self.url, self._server, self._mask, self._proxy)

    def forget_cookies(self) -> None:
        """Drops the cookies of a session that is over."""
        if self._cookies is not None:
            self._cookies = CookieJar()

    async def close(self) -> None:
        """Closes all connections, in at most half a second."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


def is_transient(status: int) -> bool:
    """Returns whether a server that refuses with this status may take the same request later."""
    return status >= 500 or status in (408, 425, 429)


def retry_after(response: HttpResponse) -> float | None:
    """Returns the seconds that a server which refuses for a while (429, 503) asks to wait; None if it names none."""
    value = (response.get("retry-after") or "").strip() if response.status in (429, 503) else ""
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value[:12]), MAX_RETRY_AFTER)
    try:
        wait = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(wait, 0.0), MAX_RETRY_AFTER)
