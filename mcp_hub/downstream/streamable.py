"""`/mcp`: streamable HTTP of both eras, told apart per request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_hub.downstream.answers import Answers
from mcp_hub.downstream.handshake import Handshake
from mcp_hub.downstream.http import JSON, Reply, Request
from mcp_hub.downstream.jsonrpc import id_of, read_body, refuse, refuse_with, shape_of
from mcp_hub.downstream.modern import Modern, is_modern
from mcp_hub.errors import HEADER_MISMATCH, INVALID_REQUEST, PARSE_ERROR
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import FrameError, decode_exactly

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.quotas import Quotas
    from mcp_hub.security.principals import Principal

VERSION_HEADER: Final = b"mcp-protocol-version"


class Streamable:
    """The one endpoint; `max_body` in bytes."""

    def __init__(self, dispatcher: Dispatcher, max_body: int, quotas: Quotas) -> None:
        self._max_body = max_body
        self.answers = Answers(dispatcher)
        self.modern = Modern(dispatcher, self.answers)
        self.handshake = Handshake(dispatcher, self.answers, quotas)

    async def __call__(self, request: Request, reply: Reply, principal: Principal) -> None:
        """Answer one HTTP request of an authenticated sender."""
        versions = request.values(VERSION_HEADER)
        version = versions[0] if versions else None
        if len(versions) > 1:
            await refuse(reply, 400, HEADER_MISMATCH, "MCP-Protocol-Version appears more than once.")
        elif request.method == "POST":
            await self._post(request, reply, principal, version)
        elif request.method not in ("GET", "DELETE"):
            await reply.text(405, "Method Not Allowed", [(b"allow", b"GET, POST, DELETE")])
        elif version in eras.MODERN_REVISIONS:
            await reply.text(405, "This revision has no sessions", [(b"allow", b"POST")])
        elif version is not None and version not in eras.HANDSHAKE_REVISIONS:
            await refuse_with(reply, 400, eras.unsupported_version(version))
        elif request.method == "GET":
            await self.handshake.stand(request, reply, principal)
        else:
            await self.handshake.delete(request, reply, principal)

    async def _post(self, request: Request, reply: Reply, principal: Principal, version: str | None) -> None:
        # A client that takes no event stream is served too, without notifications; one that takes no JSON is not,
        # because most answers and all errors are JSON.
        if not request.accepts(JSON):
            await refuse(reply, 406, INVALID_REQUEST, "Accept must allow application/json and text/event-stream.")
            return
        body = await read_body(request, reply, self._max_body)
        if body is None:
            return
        try:
            message = decode_exactly(body)
        except FrameError:
            await refuse(reply, 400, PARSE_ERROR, "Parse error: the body is not JSON.")
            return
        modern = version in eras.MODERN_REVISIONS or (isinstance(message, dict) and is_modern(message))
        shape = shape_of(message)
        if version is not None and version not in (*eras.MODERN_REVISIONS, *eras.HANDSHAKE_REVISIONS):
            await refuse_with(reply, 400, eras.unsupported_version(version), id_of(message))
        elif isinstance(message, list) and not modern:
            await self.handshake.take_batch(request, reply, principal, message)
        elif shape is None:
            await refuse(reply, 400, INVALID_REQUEST, "The body must be one JSON-RPC message.", id_of(message))
        elif modern:
            await self.modern.take(request, reply, principal, message, shape)
        else:
            await self.handshake.take(request, reply, principal, message, shape)
