"""Sends requests to addresses that a server has named: metadata, registration, tokens. Uses httpx2, as the SDK does.

A server must not lead the hub to where the server itself could not go: URLs are HTTPS, or on this machine if the
server is; addresses are public if the server's is. Connections are made to the very addresses that were checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import httpx2
from yarl import URL

from mcp_hub.config.credentials import is_loopback
from mcp_hub.oauth.token_store import SignInError, TokenUnavailable
from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.proxies import ProxySettingError
from mcp_hub.text import printable
from mcp_hub.transport.egress import PROXIED_LOOKUP, Egress, ResponseBodyTooLarge, egress_failure, whole
from mcp_hub.transport.http1.client_response import HttpFailure
from mcp_hub.transport.trust_store import UnusableCertificates

MAX_BODY: Final = 256 * 1024
"""Bytes of one answer; metadata and tokens have a few thousand."""
RESOLVE_WAIT: Final = 10.0
STEP_WAIT: Final = 10.0
"""Seconds to connect, and between two pieces of an answer."""
MAX_ADDRESSES: Final = 4
"""Addresses of one host that are tried."""
_PUBLIC: Final = AddressRules()


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to allowed addresses only. `allow` adds addresses, as `web.allow_addresses` does.

    Raises SignInError for a refused address, TokenUnavailable for one that does not answer.
    """

    def __init__(self, server_url: str, allow: Sequence[str], egress: Egress) -> None:
        self._server = httpx2.URL(server_url)
        self._allowed = AddressRules(tuple(allow))
        self._egress = egress

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request and returns the answer with its whole body."""
        url = request.url
        check_url(str(self._server), str(url))
        timeouts = request.extensions.get("timeout", {})
        connect, read = timeouts.get("connect") or STEP_WAIT, timeouts.get("read") or STEP_WAIT
        body = await request.aread()
        proxy = None
        try:
            proxy = self._egress.proxy_for(url.scheme, url.host, _port_of(url))
            addresses = (await self._addresses(url))[:MAX_ADDRESSES]
            # No connection is kept: one that is checked for a name must not serve another name of the same address.
            exchange = (self._egress if _origin(url) == _origin(self._server) else self._egress.anonymous).response(
                request.method,
                URL(str(url), encoded=True),
                {
                    name.decode(): value.decode()
                    for name, value in request.headers.raw
                    if name.lower() not in _OF_THE_HOP
                },
                body if body or request.method == "POST" else None,
                connect=connect,
                addresses=None if proxy is not None else addresses,
            )
            async with asyncio.timeout(connect + read), exchange as response:
                if (response.get("content-encoding") or "identity").lower() not in ("", "identity"):
                    raise TokenUnavailable("the authorization server compresses its answers, which was not requested")
                answer = await whole(response, MAX_BODY)
        except ResponseBodyTooLarge:
            raise TokenUnavailable(f"the authorization server answers with more than {MAX_BODY:,} bytes") from None
        except (HttpFailure, ProxySettingError, UnusableCertificates, ValueError, TimeoutError) as error:
            reason = egress_failure(error, proxy) or type(error).__name__
            raise TokenUnavailable(f"{_display_url(url)} cannot be reached: {reason}") from None
        headers = [(name, value) for name, value in answer.headers if name.encode() not in _OF_THE_HOP]
        return httpx2.Response(answer.status, headers=headers, content=answer.content)

    async def _addresses(self, url: httpx2.URL) -> list[str]:
        """Returns the addresses of a URL's host, all of them checked; [] if only a proxy can resolve it.

        Raises SignInError for an address that is not allowed, TokenUnavailable for an unknown host.
        """
        port = _port_of(url)
        addresses = await self._resolved(url)
        if _origin(url) == _origin(self._server) or is_loopback(self._server.host):
            return addresses  # the user has named it, or the server runs on this machine and reaches everything itself
        server_addresses = await self._resolved(self._server)
        if any(_PUBLIC.refused("", address, 0) is not None for address in server_addresses):
            # A server on a private network may name private addresses, but not this machine.
            if any(_is_loopback(address) for address in addresses) and self._refused(url.host, addresses, port):
                raise SignInError(f"{_display_url(url)} leads to this machine, but the server runs elsewhere")
            return addresses
        reason = self._refused(url.host, addresses, port) if addresses else self._allowed.refused_name(url.host, port)
        if reason is not None:
            raise SignInError(f"{_display_url(url)} is not allowed: {reason}")
        return addresses

    async def _resolved(self, url: httpx2.URL) -> list[str]:
        """Returns the addresses of a host; [] if it is unknown here but is reached through a proxy that may know it."""
        proxied = self._egress.proxy_for(url.scheme, url.host, _port_of(url)) is not None
        try:
            async with asyncio.timeout(PROXIED_LOOKUP if proxied else RESOLVE_WAIT):
                infos = await asyncio.get_running_loop().getaddrinfo(url.host, url.port or 443, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError):
            if proxied:
                return []
            raise TokenUnavailable(f"cannot find the host of {_display_url(url)}") from None
        return list(dict.fromkeys(str(info[4][0]) for info in infos))

    def _refused(self, host: str, addresses: Sequence[str], port: int) -> str | None:
        return next(
            (reason for address in addresses if (reason := self._allowed.refused(host, address, port)) is not None),
            None,
        )


class AuthorizationServer:
    """Sends the requests of a sign-in and remembers the last answer. `allow` is as for CheckedTransport."""

    def __init__(self, server_url: str, allow: Sequence[str] = (), egress: Egress | None = None) -> None:
        self._url = server_url
        self._egress = Egress.of() if egress is None else egress
        self._allow = allow
        self.status: int | None = None
        """HTTP status of the last answer."""
        self.error = ""
        """The error code of the last answer (RFC 6749)."""

    @property
    def last(self) -> str:
        """The last answer in words, for an error message."""
        return f"HTTP {self.status}{': ' + self.error if self.error else ''}"

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Opens an HTTP client to `send` with."""
        async with httpx2.AsyncClient(
            transport=CheckedTransport(self._url, self._allow, self._egress),
            timeout=STEP_WAIT,
            headers={"Accept-Encoding": "identity", "User-Agent": "mcp-hub"},
            follow_redirects=False,
            trust_env=False,
        ) as http:
            yield http

    async def send(self, http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """Sends one request and returns its answer. Raises SignInError, TokenUnavailable, and what httpx2 raises."""
        request.headers.setdefault("Accept", "application/json")
        request.headers["Accept-Encoding"] = "identity"
        response = await http.send(request)
        self.status, self.error = response.status_code, ""
        try:
            body = response.json() if response.status_code >= 400 else None
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict):
            self.error = error_code(body.get("error"))
        return response


def error_code(value: Any) -> str:
    """Returns an error code of RFC 6749, safe to show."""
    return printable(value, 60) if isinstance(value, str) and value else "no reason given"


def check_url(server_url: str, url: str) -> None:
    """Checks a URL that a server has named.

    Raises:
        SignInError: nothing may be sent to it, and it must not be opened.
    """
    try:
        server, target = httpx2.URL(server_url), httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise SignInError("the server names an invalid URL") from None
    if not url.isascii() or any(char in url for char in " \"'<>\\^`{|}") or not url.isprintable() or target.userinfo:
        raise SignInError(f"the server names a URL with characters that are not allowed: {_display_url(target)}")
    both_local = is_loopback(server.host) and is_loopback(target.host)
    if target.scheme == "https" and target.host:
        return
    if target.scheme == "http" and (both_local or _origin(target) == _origin(server)):
        return
    raise SignInError(f"the server names {_display_url(target)}, which is not https://")


_OF_THE_HOP: Final = frozenset({b"connection", b"transfer-encoding", b"content-length", b"content-encoding"})


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _port_of(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _is_loopback(address: str) -> bool:
    return is_loopback(address.partition("%")[0])


def _display_url(url: httpx2.URL) -> str:
    return printable(str(url.copy_with(userinfo=b"", query=None, fragment=None)), 200)
