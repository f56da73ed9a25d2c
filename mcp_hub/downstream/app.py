"""The network side: who may come in, and which way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import Admission
from mcp_hub.downstream.answers import BROKEN
from mcp_hub.downstream.http import ClientGone, Reply, Request
from mcp_hub.downstream.jsonrpc import failure
from mcp_hub.downstream.metrics import metrics_page
from mcp_hub.downstream.protected_resource import MCP, WELL_KNOWN, ProtectedResource
from mcp_hub.downstream.quotas import Quotas
from mcp_hub.downstream.refusals import Refusals
from mcp_hub.downstream.security import Gate, Refusal
from mcp_hub.downstream.sse import MESSAGES, SseConnections
from mcp_hub.downstream.streamable import Streamable
from mcp_hub.errors import INTERNAL_ERROR, ProtocolError
from mcp_hub.observability.openmetrics import CONTENT_TYPE
from mcp_hub.security.principals import PEER, Principal

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.verifier import Verifier

log = logging.getLogger("mcp_hub.downstream")

HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"
CORS: Final = [
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-allow-headers", b"*, Authorization"),
    (b"access-control-max-age", b"600"),
]


class App:
    """Serves `dispatcher` to the clients of one listener; with `sse` also over the legacy transport.

    `gate` replaces the checks that `listen` describes; `verifier` is the one that `listen.verify` describes; `quotas`
    are those the dispatcher has as well. Raises ConfigError if the hub has servers that nobody on a network may reach;
    from then on it takes no configuration that has.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        listen: Listen,
        *,
        sse: bool,
        gate: Gate | None = None,
        verifier: Verifier | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        dispatcher.over_network()
        quotas = quotas or Quotas(listen)
        self._dispatcher = dispatcher
        self._gate = gate if gate is not None else Gate(listen)
        self._resource = ProtectedResource(listen, listen.verify) if listen.verify is not None else None
        self._verifier = verifier
        self._quotas = quotas
        self._admission = Admission(self._gate, verifier, self._resource)
        self.streamable = Streamable(dispatcher, listen.max_body, quotas)
        self.sse = SseConnections(dispatcher, listen.max_body, quotas) if sse else None
        self._routes = {"/mcp": self.streamable.__call__, METRICS: self._metrics}
        if self.sse is not None:
            self._routes |= {"/sse": self.sse.open, MESSAGES: self.sse.post}
        self._open: dict[str, Callable[[Request, Reply], Awaitable[None]]] = {HEALTH: self._health}
        """What is answered to everybody."""
        if self._resource is not None:
            self._open |= {WELL_KNOWN: self._metadata, WELL_KNOWN + MCP: self._metadata}
        self._draining = False
        self.refusals = Refusals(lambda facts: dispatcher.hub.rules.trace.refused_stranger(facts))

    def trusts(self, peer: str) -> bool:
        """Whether connections from `peer` are those of a trusted proxy."""
        return self._gate.trusts(peer)

    @property
    def routes(self) -> list[str]:
        """The paths that are served."""
        return sorted([*self._routes, *self._open])

    async def __call__(self, request: Request, reply: Reply) -> None:
        """Answer one HTTP request. Raises nothing but CancelledError."""
        try:
            await self._route(request, reply)
        except ClientGone:
            return
        except Exception:
            log.exception("a %s request failed inside the hub", request.method)
            if not reply.started:
                await reply.json(500, failure(ProtocolError(INTERNAL_ERROR, BROKEN)))

    async def _route(self, request: Request, reply: Reply) -> None:
        head = request.head
        if head.passed is not self._gate:
            head.peer = self._gate.peer(request.peer, request.headers)
            refusal = self._gate.refusal(request.headers, request.port, head.authority)
            if refusal is not None:
                await self._turn_away(request, reply, refusal)
                return
            head.passed = self._gate
            if not self._gate.authenticates:
                request.let_in()
        PEER.set(head.peer)
        path = request.path.removesuffix("/")
        if path not in self._open and path not in self._routes:
            self._note(request, "path", 404)
            await reply.text(404, "Not Found")
        elif self._is_preflight(request, reply):
            await reply.whole(204, headers=CORS)
        elif path in self._open:
            await self._open[path](request, reply)
        elif self._draining:
            await _stopping(reply)
        else:
            principal = await self._admission.admit(request.headers, request.port)
            if isinstance(principal, Refusal):
                await self._turn_away(request, reply, principal)
                return
            request.let_in()
            if self._draining:  # since it was asked who it is
                await _stopping(reply)
            else:
                await self._routes[path](request, reply, principal)

    def _note(self, request: Request, cause: str, status: int, said: str | None = None) -> None:
        """Count and record a request that is refused before anybody was let in."""
        self.refusals.note(cause, request.head.peer, status, said)

    async def _turn_away(self, request: Request, reply: Reply, refusal: Refusal) -> None:
        self._note(request, refusal.cause, refusal.status, refusal.said)
        lines = [(b"www-authenticate", refusal.challenge)] if refusal.challenge is not None else []
        if refusal.retry_after is not None:
            lines.append((b"retry-after", b"%d" % refusal.retry_after))
        await reply.text(refusal.status, refusal.text, lines)

    def _is_preflight(self, request: Request, reply: Reply) -> bool:
        """Whether a browser only asks if it may; every reply to an accepted Origin says that it may read it."""
        origins = request.values(b"origin")
        if not origins:
            return False
        reply.extra = [
            (b"access-control-allow-origin", origins[0].encode("latin-1")),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate"),
            (b"vary", b"Origin"),
        ]
        return request.method == "OPTIONS" and bool(request.values(b"access-control-request-method"))

    async def _health(self, request: Request, reply: Reply) -> None:
        if not await _is_read(request, reply):
            return
        if self._draining:
            await reply.json(503, {"status": "stopping"})
        else:
            await reply.json(200, {"status": "ok"})

    async def _metrics(self, request: Request, reply: Reply, principal: Principal) -> None:
        if await _is_read(request, reply):
            page = metrics_page(self._dispatcher, principal, self.refusals.facts())
            await reply.whole(200, page, CONTENT_TYPE, [(b"cache-control", b"no-store")])

    async def _metadata(self, request: Request, reply: Reply) -> None:
        if self._resource is not None and await _is_read(request, reply):
            await reply.json(200, self._resource.document(request.port))

    def take(self, listen: Listen) -> None:
        """Go over to other tokens, principals, names and limits. Sessions of those who lose their place end."""
        before, self._gate = self._gate.principals, Gate(listen)
        if self._resource is not None and listen.verify is not None:
            self._resource = ProtectedResource(listen, listen.verify)
        self._admission = Admission(self._gate, self._verifier, self._resource)
        self._quotas.take(listen)
        gone = before - self._gate.principals
        if gone:
            self.streamable.handshake.sessions.close_of(gone)
            if self.sse is not None:
                self.sse.close_of(gone)

    # --- the end -----------------------------------------------------------------------------------------------

    async def drain(self, grace: float) -> None:
        """Take nothing new, let what runs finish for at most `grace` seconds, then end every stream and session."""
        self._draining = True
        self._dispatcher.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self.streamable.answers.drained()
                if self.sse is not None:
                    await self.sse.drained()
        self.streamable.answers.abort()
        self.streamable.handshake.sessions.close_all()
        if self.sse is not None:
            self.sse.close_all()


async def _stopping(reply: Reply) -> None:
    await reply.text(503, "The hub is stopping.", [(b"retry-after", b"5"), (b"connection", b"close")])


async def _is_read(request: Request, reply: Reply) -> bool:
    """Whether a request only reads; if not, it has been refused."""
    if request.method in ("GET", "HEAD"):
        return True
    await reply.text(405, "Method Not Allowed", [(b"allow", b"GET, HEAD")])
    return False
