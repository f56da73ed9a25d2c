"""The built-in upstream `native`: REST endpoints as tools. One call is one request, as the tool's file describes it."""

from __future__ import annotations

import asyncio
import base64
import codecs
import email.message
import json
import os
import re
from typing import Any, Final

from yarl import URL

from mcp_hub.config.native_tools import (
    InvalidArgument,
    NativeRequest,
    NativeToolDefinition,
    PointerNotFound,
    resolve_pointer,
)
from mcp_hub.protocol.kinds import JSON_KEY
from mcp_hub.security.proxies import ProxyRules
from mcp_hub.security.redaction import Redactor
from mcp_hub.servers.builtin import Settings, native_from_environ
from mcp_hub.servers.builtin.page_fetcher import REDIRECTS, failure_text, redirect_target
from mcp_hub.servers.local import Mark
from mcp_hub.servers.local.local_tool import LocalTool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult
from mcp_hub.text import NOT_TEXT_CODECS, printable
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.http1 import client_response as failures
from mcp_hub.transport.http1.client_response import HttpFailure, HttpResponse
from mcp_hub.transport.http1.pool import HttpPool, RequestHeadEncoder
from mcp_hub.transport.trust_store import UnusableCertificates
from mcp_hub.version import VERSION

MAX_REDIRECTS: Final = 5
CONNECT_WAIT: Final = 15.0
EXCERPT: Final = 2000
"""Characters of an error answer that are shown."""
ERROR_BODY: Final = 64 * 1024
POOL: Final = 64
KEEP_ALIVE: Final = 4.0
"""Seconds an idle connection is kept."""
_TRY_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_KEEP_METHOD: Final = frozenset({307, 308})
_AFTER_SENDING: Final = (failures.ConnectionBroke, failures.EmptyReply, failures.IncompleteBody, failures.NotHttp)

_HEADERS: Final = {
    "User-Agent": f"mcp-hub/{VERSION}",
    "Accept": "application/json, text/*;q=0.9, */*;q=0.5",
}

_clients: list[EndpointClient] = []


def tools(settings: Settings) -> list[LocalTool]:
    """Returns the tools of this upstream, in the order of their files."""
    client = EndpointClient(settings.proxies)
    _clients.append(client)
    return [Endpoint(tool, client) for tool in native_from_environ(os.environ)]


async def close() -> None:
    """Closes the connections of all clients that `tools` made."""
    await asyncio.gather(*(client.close() for client in _clients), return_exceptions=True)


class Endpoint(LocalTool):
    """One native tool. Its schema is written in its file instead of derived from a function."""

    def __init__(self, tool: NativeToolDefinition, client: EndpointClient) -> None:
        schema = tool.definition["inputSchema"]
        mark = Mark(
            name=tool.name,
            description=tool.description,
            title=tool.title,
            tags=tool.tags,
            annotations=tool.definition["annotations"],
            json_schema=schema,
        )
        super().__init__(self._call, mark)
        self._tool = tool
        self._client = client
        self._redaction = Redactor(tool.secrets)

    async def _call(self, /, **arguments: Any) -> ToolResult:
        """Sends the request and returns its answer; an HTTP error becomes a result with `is_error`.

        Raises ToolRefused.
        """
        try:
            request = self._tool.request(arguments)
        except InvalidArgument as error:
            text = f"The arguments of {self.name!r} do not fit, nothing was called. {error}"
            raise ToolRefused("invalid_parameters", text) from None
        status, kind, charset, body = await self._client.send(self._tool, request)
        if not 200 <= status < 300:
            return self._http_error(status, _excerpt(body, charset))
        return self._result(status, kind, charset, body)

    def _http_error(self, status: int, excerpt: str) -> ToolResult:
        is_denied = status in (401, 403)
        text = f"{_origin(self._tool.url)} answered with HTTP status {status}"
        text += ": it does not accept the credentials of this tool." if is_denied else "."
        if excerpt:
            text += f" It says:\n\n{self._redaction.text(excerpt)}"
        code = "permission_denied" if is_denied else "tool_error"
        facts = {"code": code, "server": None, "tool": self.name, "retryable": status in _TRY_LATER}
        meta = {"mcp-hub/error": facts, "mcp-hub/status": status}
        return ToolResult([{"type": "text", "text": text}], meta=meta, is_error=True)

    def _result(self, status: int, kind: str, charset: str | None, body: bytes) -> ToolResult:
        media = kind.partition("/")[0]
        if media in ("image", "audio") and self._tool.result is None and kind != "image/svg+xml":
            data = base64.b64encode(body).decode()
            return ToolResult([{"type": media, "data": data, "mimeType": kind}])
        try:
            text = _decode(body, charset or "utf-8-sig")
        except (ValueError, LookupError):
            raise ToolRefused("tool_error", f"{_origin(self._tool.url)} answered with {kind}, not text") from None
        if self._tool.result is None and not kind.endswith(("/json", "+json")):
            return _text(text if text.strip() else f"(HTTP {status}, without content)")
        try:
            value = json.loads(text, parse_constant=_reject_constant)
            selected = value if self._tool.result is None else resolve_pointer(value, self._tool.result)
        except PointerNotFound as error:
            raise ToolRefused(
                "tool_error", f"the answer of {_origin(self._tool.url)} is not as expected: {error}"
            ) from None
        except (ValueError, RecursionError):
            if self._tool.result is None:
                return _text(text if text.strip() else f"(HTTP {status}, without content)")
            raise ToolRefused("tool_error", f"the answer of {_origin(self._tool.url)} is not JSON") from None
        if isinstance(selected, str):
            return _text(selected)
        # If all of the answer is the result, its text is passed on as it is, so that no number changes its form.
        written = text if selected is value else json.dumps(selected, ensure_ascii=False)
        if isinstance(selected, dict):
            return ToolResult([{"type": "text", "text": written}], structured=selected)
        return ToolResult([{"type": "text", "text": written}], meta={JSON_KEY: True})


class EndpointClient:
    """Sends the requests through one pool for each origin, without cookies or anything else shared between calls."""

    def __init__(self, proxies: ProxyRules) -> None:
        self._egress = Egress(proxies)
        self._origins: dict[str, tuple[HttpPool, RequestHeadEncoder]] = {}

    async def send(self, tool: NativeToolDefinition, request: NativeRequest) -> tuple[int, str, str | None, bytes]:
        """Returns (status, content type, charset, body) of the answer. Raises ToolRefused."""
        try:
            return await self._follow_redirects(tool, request)
        except (HttpFailure, UnusableCertificates, OSError, ValueError) as error:
            # Only the kind of the failure and the origin are shown: other texts may quote the request.
            text = f"{_origin(request.url)} {failure_text(error, None)}"
            if tool.method != "GET" and isinstance(error, _AFTER_SENDING):
                text += "; but what was asked for may have happened"
            raise ToolRefused("server_unavailable", text) from None

    async def _follow_redirects(
        self, tool: NativeToolDefinition, request: NativeRequest
    ) -> tuple[int, str, str | None, bytes]:
        url, method, body = URL(request.url, encoded=True), tool.method, request.body
        origin = url.origin()
        pool, head_encoder = await self._connections(origin)
        for _ in range(MAX_REDIRECTS + 1):
            size = None if body is None else len(body)
            response = await pool.exchange(
                method, head_encoder.head(method, url.raw_path_qs, request.headers, size), body
            )
            try:
                location = response.location if response.status in REDIRECTS else None
                if location is None:
                    limit = tool.max_bytes if 200 <= response.status < 300 else ERROR_BODY
                    content = await _read_body(response, limit, tool)
                    declared = email.message.Message()
                    declared["Content-Type"] = response.get("content-type") or "application/octet-stream"
                    charset = declared.get_content_charset()
                    return response.status, declared.get_content_type().lower(), charset, content
                status = response.status
            finally:
                response.close()
            target = redirect_target(url, location)
            if target is None:
                text = f"{_origin(str(url))} redirects to something that is not an http(s) address"
                raise ToolRefused("tool_error", text)
            url = target
            # The credentials and the arguments were meant for the first origin only.
            if url.origin() != origin:
                text = f"{_origin(tool.url)} redirects to {_origin(str(url))}, which is not followed"
                raise ToolRefused("tool_error", f"{text}: set that as api_url")
            if method not in ("GET", "HEAD") and status not in _KEEP_METHOD:
                text = f"{_origin(tool.url)} redirects a {method} (status {status}), which is not followed"
                raise ToolRefused("tool_error", f"{text}: set the URL in its Location header as api_url")
        raise ToolRefused("tool_error", f"{_origin(tool.url)}: more than {MAX_REDIRECTS} redirects")

    async def _connections(self, origin: URL) -> tuple[HttpPool, RequestHeadEncoder]:
        """Returns the connections to an origin of a tool; there are as many origins as tools at most."""
        if str(origin) not in self._origins:
            connections = await self._egress.connections(
                origin, _HEADERS, limit=POOL, connect=CONNECT_WAIT, keep=KEEP_ALIVE
            )
            self._origins.setdefault(str(origin), connections)
        return self._origins[str(origin)]

    async def close(self) -> None:
        """Closes all connections."""
        await asyncio.gather(*(pool.close() for pool, _ in self._origins.values()))


async def _read_body(response: HttpResponse, limit: int, tool: NativeToolDefinition) -> bytes:
    body = bytearray()
    while chunk := await response.chunk():  # decompressed, in pieces of bounded size
        body += chunk
        if len(body) > limit:
            if response.status >= 300:
                return bytes(body[:limit])
            text = f"{_origin(tool.url)} answered with more than {limit:,} bytes; max_bytes of the tool allows more"
            raise ToolRefused("result_too_large", text)
    return bytes(body)


def _origin(url: str) -> str:
    """Returns the origin of a URL for an error message, as paths may contain tokens too."""
    scheme, _, remainder = url.partition("://")
    return printable(f"{scheme}://{re.split('[/?#]', remainder)[0]}", 300)


def _excerpt(body: bytes, charset: str | None) -> str:
    try:
        text = _decode(body, charset or "utf-8", "replace").strip()
    except (ValueError, LookupError):
        text = body.decode("utf-8", "replace").strip()
    excerpt = "\n".join(printable(line, EXCERPT) for line in text[:EXCERPT].splitlines())
    return excerpt + ("…" if len(text) > EXCERPT else "")


def _decode(body: bytes, charset: str, errors: str = "strict") -> str:
    """Decodes a body. Raises ValueError, and LookupError for a name that is not an encoding of texts."""
    name = codecs.lookup(charset).name
    if name in NOT_TEXT_CODECS:
        raise LookupError(charset)
    return body.decode(name, errors)


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _text(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])
