"""Outbound connections: every network connection that the hub itself makes goes through an Egress.

An Egress chooses the proxy for a host, knows the trusted certificates and the hub's own, and makes connection pools.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.security.proxies import ForwardProxy, ProxyRules, ProxySettingError
from mcp_hub.security.redaction import LEARNED
from mcp_hub.text import printable
from mcp_hub.transport.http1.client_response import HttpFailure, HttpResponse, ProxyFailed
from mcp_hub.transport.http1.dialler import Dialler, HostDialler, ProxyDialler
from mcp_hub.transport.http1.pool import HttpPool, RequestHeadEncoder
from mcp_hub.transport.trust_store import UnusableCertificates, tls_context, trusted_certificates

if TYPE_CHECKING:
    import ssl

    from yarl import URL

CONNECT: Final = 10.0
"""Seconds for a connection that serves a single request."""
PROXIED_LOOKUP: Final = 2.0
"""Seconds for resolving a host that a proxy will resolve again, in order to refuse private addresses. In a network with
a proxy, local name servers often do not know external names and never answer."""


class Egress:
    """Makes connections to one upstream server, or for the hub's own requests, by its proxy rules and settings."""

    def __init__(self, rules: ProxyRules, settings: EgressSettings | None = None) -> None:
        self._rules = rules
        self._settings = EgressSettings() if settings is None else settings

    @classmethod
    def of(cls, settings: EgressSettings | None = None, environ: Mapping[str, str] = os.environ) -> Egress:
        """Returns the egress for the settings of an entry and the proxy variables of the environment."""
        effective = EgressSettings() if settings is None else settings
        proxy = None if effective.proxy is None else effective.proxy.get_secret_value()
        return cls(ProxyRules.of(environ, proxy, own=effective.own), effective)

    @property
    def rules(self) -> ProxyRules:
        """The rules about proxies."""
        return self._rules

    @property
    def keeps_cookies(self) -> bool:
        """Whether cookies are sent back within a session."""
        return self._settings.cookies

    @property
    def anonymous(self) -> Egress:
        """The same egress without the hub's client certificate."""
        return Egress(self._rules, self._settings.model_copy(update={"client_cert": None, "client_key": None}))

    def proxy_for(self, scheme: str, host: str, port: int) -> ForwardProxy | None:
        """Returns the proxy for a host; None for a direct connection. Raises ProxySettingError."""
        proxy = self._rules.proxy_for(scheme, host, port)
        if proxy is not None:
            LEARNED.learn(proxy.password)
        return proxy

    def describe_route(self, url: str) -> str:
        """Describes how the host of a URL is reached: `direct` or `through PROXY (SETTING)`, without secrets."""
        from yarl import URL

        try:
            parsed = URL(url)
            proxy = self.proxy_for(parsed.scheme, parsed.raw_host or "", parsed.port or 0)
        except ProxySettingError as error:
            return str(error)
        except ValueError:
            return "direct"
        return "direct" if proxy is None else f"through {printable(str(proxy), 200)} ({proxy.source})"

    async def tls(self) -> ssl.SSLContext:
        """Returns the TLS context for this egress. Raises UnusableCertificates."""
        settings = self._settings
        if settings.ca is None and settings.client_cert is None:
            return await asyncio.to_thread(trusted_certificates)
        return await asyncio.to_thread(tls_context, settings.ca, settings.client_cert, settings.client_key)

    async def maker(
        self,
        scheme: str,
        host: str,
        port: int,
        *,
        addresses: Sequence[str] | None = None,
        encrypted: bool | None = None,
    ) -> Dialler:
        """Returns the dialler for a host.

        `addresses`: those to dial instead of resolving the name; ignored if there is a proxy. `encrypted`: whether
        the connections use TLS; None: decided by the scheme.

        Raises ProxySettingError and UnusableCertificates.
        """
        proxy = self.proxy_for(scheme, host, port)
        tls = await self.tls() if (scheme == "https" if encrypted is None else encrypted) else None
        if proxy is None:
            return HostDialler(host, port, tls, addresses)
        to_proxy = await self.anonymous.tls() if proxy.kind == "https" else None
        return ProxyDialler(host, port, tls, proxy, to_proxy, tunnels=not proxy.forwards(scheme))

    async def connections(
        self,
        url: URL,
        headers: Mapping[str, str],
        *,
        limit: int = 1,
        connect: float = CONNECT,
        keep: float = 0.0,
        addresses: Sequence[str] | None = None,
    ) -> tuple[HttpPool, RequestHeadEncoder]:
        """Returns a connection pool for the origin of a URL, and the encoder of request heads for it.

        Raises ProxySettingError and UnusableCertificates.
        """
        host, port = url.raw_host or "", url.port or 0
        proxy = self.proxy_for(url.scheme, host, port)
        forwarded = proxy is not None and proxy.forwards(url.scheme)
        if proxy is not None and forwarded and proxy.authorization is not None:
            headers = {**headers, "Proxy-Authorization": proxy.authorization}
        maker = await self.maker(url.scheme, host, port, addresses=addresses)
        pool = HttpPool(maker, limit=limit, connect=connect, keep=keep)
        return pool, RequestHeadEncoder(url, headers, absolute=forwarded)

    @contextlib.asynccontextmanager
    async def response(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        connect: float = CONNECT,
        addresses: Sequence[str] | None = None,
    ) -> AsyncIterator[HttpResponse]:
        """Sends one request on a new connection, which is closed at the end of the block.

        Raises HttpFailure, ProxySettingError, UnusableCertificates, and ValueError for an invalid header.
        """
        pool, heads = await self.connections(url, {}, connect=connect, addresses=addresses)
        try:
            head = heads.head(method, url.raw_path_qs, headers, None if body is None else len(body))
            yield await pool.exchange(method, head, body)
        finally:
            await pool.close()

    async def streams(
        self, scheme: str, host: str, port: int, *, limit: int, addresses: Sequence[str] | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Returns the two streams of a raw connection to a host, without TLS; `limit` is the reader's buffer in bytes.

        Not bounded in time. Raises HttpFailure, ProxySettingError and UnusableCertificates.
        """
        maker = await self.maker(scheme, host, port, addresses=addresses, encrypted=False)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit)
        transports: list[Any] = []

        class Streams(asyncio.StreamReaderProtocol):
            def connection_made(self, transport: Any) -> None:
                transports.append(transport)
                super().connection_made(transport)

        protocol, _ = await maker.dial(lambda: Streams(reader))
        return reader, asyncio.StreamWriter(transports[0], protocol, reader, loop)


def egress_failure(error: Exception, proxy: ForwardProxy | None = None) -> CodedText | None:
    """Returns the text for the user if the proxy or a certificate file caused the failure; None for other causes."""
    if isinstance(error, ProxyFailed):
        proxy_name = "the proxy" if proxy is None else f"the proxy {proxy} (set by {proxy.source})"
        return CodedText(printable(f"{proxy_name} {error}", 500), _PROXY_CODES[error.step])
    if isinstance(error, ProxySettingError):
        return CodedText(printable(str(error), 500), codes.PROXY_UNREACHABLE)
    if isinstance(error, UnusableCertificates):
        return error.text
    return None


_PROXY_CODES: Final = {
    **dict.fromkeys(("name", "connect", "tls", "answer"), codes.PROXY_UNREACHABLE),
    "credentials": codes.PROXY_CREDENTIALS,
    "refused": codes.PROXY_REFUSED,
}


class FetchedBody(msgspec.Struct, frozen=True):
    """One complete response, with its body in `content`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    content: bytes


class ResponseBodyTooLarge(HttpFailure):
    """The body of a response is larger than its limit."""


async def whole(response: HttpResponse, limit: int) -> FetchedBody:
    """Reads a response to its end. Raises ResponseBodyTooLarge beyond `limit` bytes, HttpFailure if it breaks off."""
    body = bytearray()
    while chunk := await response.chunk():
        body += chunk
        if len(body) > limit:
            raise ResponseBodyTooLarge
    return FetchedBody(response.status, response.headers, bytes(body))
