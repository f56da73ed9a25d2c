"""Serves the requests that other replicas forward to this one, at a path for these alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from mcp_hub.downstream.replicas.forwarding import (
    CHECK,
    HEADER,
    HELLO,
    KNOWS,
    LOOK,
    MISDIRECTED,
    PUSH,
    RESTORE,
    ForwardedRequest,
    ForwardGate,
)
from mcp_hub.downstream.replicas.request_router import RequestRouter
from mcp_hub.downstream.responses import read_body
from mcp_hub.errors import ProtocolError
from mcp_hub.protocol.frames import FrameError, decode
from mcp_hub.security import PEER, Principal
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest

if TYPE_CHECKING:
    from mcp_hub.downstream.handshake_session import HandshakeSession
    from mcp_hub.downstream.streamable import StreamableEndpoint

Knows = Callable[[Principal], bool]
"""Returns whether a principal that another replica has authenticated is known here too."""


class ForwardEndpoint(msgspec.Struct, frozen=True):
    """Checks a request that another replica has sealed, and serves the client's request in it as if it had come here.

    Only the seal proves that a replica has sent it; the sender's address does not count.
    """

    gate: ForwardGate
    endpoint: StreamableEndpoint
    router: RequestRouter
    max_body: int
    knows: Knows
    look: Callable[[], Awaitable[None]]
    """Applies changes of other replicas."""
    check: Callable[[str], Awaitable[None]]
    """Checks whether this replica still owns something."""

    async def __call__(self, request: HttpRequest, reply: HttpReply) -> bool:
        """Answers one request; returns False if it was refused because no replica has sent it."""
        body = await read_body(request, reply, self.max_body)
        if body is None:
            return True
        opened = self.gate.request(request, body)
        if not isinstance(opened, int) and opened[0].method == HELLO:
            request.let_in()
            proof = self.gate.proof(body)
            await reply.send(421 if proof is None else 204, headers=[(HEADER.encode(), proof or b"")])
            return True
        if not isinstance(opened, int) and opened[0].method in (LOOK, CHECK):
            request.let_in()
            await (self.look() if opened[0].method == LOOK else self.check(body.decode("utf-8", "replace")))
            await reply.send(204)
            return True
        if isinstance(opened, int) or not self.knows(opened[1]):
            # Replicas may load changed principals one after the other, so a replica may not know one of them yet.
            status = opened if isinstance(opened, int) else MISDIRECTED
            await reply.text(status, "This is not for this replica.")
            return status != 403
        request.let_in()
        forwarded, principal = opened
        PEER.set(request.head.peer)
        if forwarded.method in (PUSH, KNOWS, RESTORE):
            await self._serve_message(forwarded, reply, principal, body)
        elif forwarded.told and self._session(forwarded, principal) is None:
            await reply.send(404)
        else:
            await self.endpoint(forwarded, reply, principal)
        return True

    async def _serve_message(
        self, request: ForwardedRequest, reply: HttpReply, principal: Principal, body: bytes
    ) -> None:
        """Answers PUSH, a message for a standing stream; RESTORE, subscriptions; KNOWS, whether a URI can be read."""
        session = self._session(request, principal)
        if request.method == RESTORE:
            is_owned = session is not None and self.router.take(session, body)
            await reply.send(202 if is_owned else 404)
            return
        if request.method == KNOWS:
            names_session = bool(request.values(b"mcp-session-id"))
            caller = session.caller if session is not None else self.router.callers.of(principal)
            is_readable = (session is not None or not names_session) and self.router.knows(
                body.decode("utf-8", "replace"), caller
            )
            await reply.send(204 if is_readable else 404)
            return
        if session is not None:
            try:
                session.standing.put_once(decode(body))
            except (FrameError, AttributeError, ProtocolError):
                session = None
        await reply.send(202 if session is not None else 404)

    def _session(self, request: ForwardedRequest, principal: Principal) -> HandshakeSession | None:
        ids = request.values(b"mcp-session-id")
        return self.endpoint.sessions.find(ids[0], principal) if len(ids) == 1 else None
