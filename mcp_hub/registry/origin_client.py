"""GET requests to one origin, with a deadline and a size limit. Redirects to other origins are not followed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import quote

from mcp_hub.config.credentials import is_private_channel
from mcp_hub.config.models import Deadlines, Server
from mcp_hub.protocol.frames import decode
from mcp_hub.registry import RegistryError
from mcp_hub.security.redaction import MASK
from mcp_hub.text import printable
from mcp_hub.transport import FrameTooLarge, LinkError, RedirectNotFollowed
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.http_client import HttpClient
from mcp_hub.transport.http_failures import where

CONNECT: Final = 10.0
ANSWER: Final = 30.0
"""Seconds for one response, the connection included."""
MAX_ANSWER: Final = 32 * 1024 * 1024
"""Bytes of a response. The npm index sends 10 MiB for packages with thousands of versions."""


class OriginRedirect(RegistryError):
    """The origin redirects to another one; `target` is the URL."""

    def __init__(self, text: str, target: str) -> None:
        super().__init__(text)
        self.target = target


class OriginClient:
    """A client of one base address; use it as an async context manager.

    Everything it raises is a RegistryError that begins with `label`, such as "the npm index". `egress`: makes the
    connections; None: by the proxy settings of the environment.
    """

    def __init__(
        self, base: str, label: str, *, egress: Egress | None = None, answer: float = ANSWER, limit: int = MAX_ANSWER
    ) -> None:
        self._base = base.rstrip("/")
        self._label = label
        self._answer = answer
        if not re.match(r"https?://[^/]", base) or not is_private_channel(base):
            raise RegistryError(f"{label}: {_redacted(base)} must begin with https://, or with http:// on this machine")
        try:
            self._server = Server(
                id="registry",
                transport="http",
                url=self._base,
                namespace="",
                max_frame=limit,
                deadlines=Deadlines(connect=CONNECT),
            )
        except ValueError as error:
            raise RegistryError(f"{label}: {_redacted(base)} is not an address: {printable(str(error))}") from None
        self._http = HttpClient(self._server, egress=egress)

    async def __aenter__(self) -> Self:
        try:
            await self._http.open()
        except LinkError as error:
            raise RegistryError(f"{self._label}: {error}") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def fetch(self, *path: str, query: Mapping[str, str] | None = None, accept: str = "*/*") -> bytes | None:
        """Returns the bytes at base/path; None for 404. Each part of the path is percent-encoded as one segment.

        Raises OriginRedirect for a redirect to another origin, RegistryError for any other failure.
        """
        from yarl import URL

        url = self._http.url
        if path:
            segments = (quote(part, safe="@") for part in path)
            url = URL("/".join([str(url).rstrip("/"), *segments]), encoded=True)
        if query:
            url = url.with_query(dict(query))
        display_url = where(url)
        try:
            async with asyncio.timeout(self._answer):
                response = await self._http.request("GET", url, {"Accept": accept})
                if response.status == 404:
                    await self._http.discard(response)
                    return None
                if response.status != 200:
                    await self._http.discard(response)
                    raise RegistryError(f"{self._label}: HTTP {response.status} from {display_url}")
                return bytes(await self._http.read(response))
        except TimeoutError:
            raise RegistryError(f"{self._label}: no answer from {display_url} within {self._answer:g} s") from None
        except FrameTooLarge:
            limit = self._server.max_frame
            raise RegistryError(f"{self._label}: the answer of {display_url} is larger than {limit:,} bytes") from None
        except RedirectNotFollowed as error:
            raise OriginRedirect(f"{self._label}: {error}", error.target) from None
        except LinkError as error:
            raise RegistryError(f"{self._label}: {error}") from None


class JsonClient(OriginClient):
    """A client whose answers are JSON."""

    async def get(
        self, *path: str, query: Mapping[str, str] | None = None, accept: str = "application/json"
    ) -> Any | None:
        """Returns the JSON at base/path; None for 404. Raises RegistryError as `fetch`, also if it is not JSON."""
        body = await self.fetch(*path, query=query, accept=accept)
        try:
            return None if body is None else await asyncio.to_thread(decode, body)
        except (ValueError, RecursionError):
            raise RegistryError(f"{self._label}: its answer is not JSON") from None


def _redacted(base: str) -> str:
    scheme, separator, remainder = base.partition("://")
    host, _, path = remainder.partition("/")
    user, at, host = host.rpartition("@")
    return repr(printable(f"{scheme}{separator}{MASK if user else ''}{at}{host}/{path}".rstrip("/"), 200))
