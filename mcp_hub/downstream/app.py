"""The network side of the hub: serves a dispatcher on sockets, routes requests, and shuts down in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from mcp_hub.config.models import Listen
from mcp_hub.downstream import error_response
from mcp_hub.downstream.admission import Admission, Gate, Refusal, check_listener
from mcp_hub.downstream.metrics_page import metrics_page
from mcp_hub.downstream.mount import Mount
from mcp_hub.downstream.open_pages import HEALTH, LIVE, READY, ROOT, is_read, write_health, write_welcome
from mcp_hub.downstream.page_access import UI, PageAccess, comes_back
from mcp_hub.downstream.refusal_log import RefusalLog
from mcp_hub.downstream.responses import BROKEN
from mcp_hub.downstream.sse import MESSAGES, SseEndpoint
from mcp_hub.downstream.streamable import StreamableEndpoint
from mcp_hub.downstream.verifier import MCP, WELL_KNOWN, ProtectedResource
from mcp_hub.errors import INTERNAL_ERROR, HubError, ProtocolError
from mcp_hub.observability.call_metrics import CONTENT_TYPE
from mcp_hub.policy.quotas import Quotas
from mcp_hub.security import ANONYMOUS, PEER, Principal
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.http1.listener import Listener
from mcp_hub.transport.http1.listening_sockets import (
    OwnPath,
    accepting,
    base_url,
    bind,
    connections_possible,
    is_unix,
)
from mcp_hub.transport.http1.server_connection import ServerConnection
from mcp_hub.transport.http1.tls_server import Certificates, TlsServer

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.replicas import Replicas
    from mcp_hub.downstream.replicas.forward_endpoint import ForwardEndpoint
    from mcp_hub.downstream.verifier import Verifier

log = logging.getLogger("mcp_hub.downstream")

FORWARDS: Final = "/replica"
"""The path to which other replicas forward requests."""
METRICS: Final = "/metrics"
CORS: Final = [
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-allow-headers", b"*, Authorization"),
    (b"access-control-max-age", b"600"),
]

END_GRACE: Final = 2.75
"""Seconds that clients have at shutdown to read what has been written."""


class App:
    """Serves `dispatcher` to the clients of one listener; with `sse` also over the legacy transport.

    `gate` replaces the checks that `listen` describes, `verifier` is the one for `listen.verify`, `quotas` are those of
    the dispatcher, and `mount` is given where an application serves the hub. Raises ConfigError if the hub has servers
    that must not be reachable from a network; from then on the hub refuses configurations that have any.
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
        mount: Mount | None = None,
    ) -> None:
        dispatcher.over_network()
        quotas = quotas or Quotas(listen)
        self._dispatcher = dispatcher
        self._callers = dispatcher.hub.callers
        self._mount = mount
        self._gate = gate if gate is not None else self._make_gate(listen)
        self._resource = self._make_resource(listen)
        self._verifier = verifier
        self._quotas = quotas
        self._max_forwarded = listen.max_body
        self._admission = self._make_admission()
        self.streamable = StreamableEndpoint(dispatcher, listen.max_body, quotas)
        self.sse = SseEndpoint(dispatcher, listen.max_body, quotas) if sse else None
        self._routes = {"/mcp": self.streamable.__call__, METRICS: self._metrics}
        if self.sse is not None:
            self._routes |= {"/sse": self.sse.open, MESSAGES: self.sse.post}
        self._open: dict[str, Callable[[HttpRequest, HttpReply], Awaitable[None]]] = {
            ROOT: self._welcome,
            HEALTH: self._health,
            READY: self._health,
            LIVE: self._live,
        }
        """Routes that need no authentication."""
        if self._resource is not None:
            self._open |= {WELL_KNOWN: self._metadata, WELL_KNOWN + MCP: self._metadata}
        self._leaving = self._draining = False
        self._replicas: Replicas | None = None
        self._forwards: ForwardEndpoint | None = None
        self.page: PageAccess | None = None
        """Access to the live page, which is served if the listener's settings say so."""
        self._serves_page = listen.serves_page
        self.shutdown_delay = listen.shutdown_delay
        self.refusals = RefusalLog(dispatcher.hub.record_stranger)

    def _make_gate(self, listen: Listen) -> Gate:
        return Gate(listen) if self._mount is None else self._mount.gate(listen)

    def _make_resource(self, listen: Listen) -> ProtectedResource | None:
        verify = listen.verify
        return None if verify is None else ProtectedResource(listen, verify, mounted=self._mount is not None)

    def _make_admission(self) -> Admission:
        make = Admission if self._mount is None else self._mount.admission
        return make(self._gate, self._verifier, self._resource)

    def trusts(self, peer: str) -> bool:
        """Returns whether `peer` is a trusted proxy."""
        return self._gate.trusts(peer)

    @property
    def routes(self) -> list[str]:
        """All paths that are served."""
        return sorted(path or "/" for path in (*self._routes, *self._open))

    async def __call__(self, request: HttpRequest, reply: HttpReply) -> None:
        """Answers one HTTP request. Raises nothing but CancelledError."""
        try:
            await self._route(request, reply)
        except ClientGone:
            return
        except Exception:
            log.exception("a %s request failed inside the hub", request.method)
            if not reply.started:
                await reply.json(500, error_response(None, ProtocolError(INTERNAL_ERROR, BROKEN)))

    def _route(self, request: HttpRequest, reply: HttpReply) -> Awaitable[None]:
        head, gate = request.head, self._gate
        if head.route is not None and head.passed is gate and not self._draining:
            principal = gate.admit(head.lines, request.proven) if gate.authenticates else ANONYMOUS
            if isinstance(principal, Principal):
                PEER.set(head.peer)
                request.let_in()
                serving: Awaitable[None] = head.route(request, reply, principal)
                return serving
        if self._forwards is not None and request.path == FORWARDS:
            return self._serve_forward(request, reply, self._forwards)
        return self._check(request, reply)

    def join(self, replicas: Replicas) -> None:
        """Makes this the listener of one replica among several."""
        self._replicas = replicas
        self._forwards = replicas.serves(self.streamable, self._max_forwarded, self._knows)

    async def _serve_forward(self, request: HttpRequest, reply: HttpReply, forwards: ForwardEndpoint) -> None:
        if not await forwards(request, reply):
            self._note(request, "replica", 403)

    def _knows(self, principal: Principal) -> bool:
        """Returns whether a principal that another replica has authenticated is known here too."""
        gate = self._gate
        return not gate.authenticates or self._resource is not None or principal.key in gate.principals

    async def _check(self, request: HttpRequest, reply: HttpReply) -> None:
        """Serves a request whose head has not been accepted yet, or whose sender the gate alone does not know."""
        head = request.head
        if head.passed is not self._gate:
            head.peer = self._gate.peer(request.peer, request.headers)
            request.speaks_for(head.peer)
            refusal = self._gate.refusal(request.headers, request.port, head.authority, request.proven)
            is_return = (
                refusal is not None and refusal.cause == "cross_site" and self._serves_page and comes_back(request)
            )
            if refusal is not None and not is_return:
                await self._turn_away(request, reply, refusal)
                return
            head.passed = self._gate
            if not self._gate.authenticates:
                request.let_in()
        PEER.set(head.peer)
        path = request.path.removesuffix("/")
        if self._serves_page and self.page is not None and (path == UI or path.startswith(f"{UI}/")):
            await self._live_page(request, reply, self.page)
        elif path not in self._open and path not in self._routes:
            self._note(request, "path", 404)
            await reply.text(404, "Not Found")
        elif self._is_preflight(request, reply):
            await reply.send(204, headers=CORS)
        elif path in self._open:
            await self._open[path](request, reply)
        elif self._draining:
            await _stopping(reply)
        else:
            principal = await self._admission.admit(request.headers, request.port, request.proven)
            if isinstance(principal, Refusal):
                await self._turn_away(request, reply, principal)
                return
            request.let_in()
            head.route = self._routes[path] if reply.extra is None else None
            if self._draining:  # checked again, as authentication may have taken a while
                await _stopping(reply)
            else:
                await self._routes[path](request, reply, principal)

    def page_base(self, bases: list[str]) -> str | None:
        """Returns the URL under which a browser of this machine reaches the live page; None if it is not served.

        `bases`: the URLs of the listener.
        """
        if not self._serves_page or self.page is None:
            return None
        if not bases[0].startswith("http://"):
            return None  # no browser opens a Unix socket, and a certificate is for the name that other machines know
        port = int(bases[0].rpartition(":")[2])
        # A listener on all addresses does not know by which names it is reached, so its page could not sign in.
        return bases[0] if self._gate.is_own_origin(bases[0].encode(), port) else None

    async def _live_page(self, request: HttpRequest, reply: HttpReply, access: PageAccess) -> None:
        if self._draining:
            await _stopping(reply)
            return
        from mcp_hub.downstream.page import PageFront

        await access.page.serve(request, reply, lambda: PageFront(self._gate, self._admission, self._note))

    def _note(self, request: HttpRequest, cause: str, status: int, said: str | None = None) -> None:
        """Counts and records a request that is refused before its sender was let in."""
        self.refusals.note(cause, request.head.peer, status, said)

    async def _turn_away(self, request: HttpRequest, reply: HttpReply, refusal: Refusal) -> None:
        self._note(request, refusal.cause, refusal.status, refusal.said)
        lines = [(b"www-authenticate", refusal.challenge)] if refusal.challenge is not None else []
        if refusal.retry_after is not None:
            lines.append((b"retry-after", b"%d" % refusal.retry_after))
        await reply.text(refusal.status, refusal.text, lines)

    def _is_preflight(self, request: HttpRequest, reply: HttpReply) -> bool:
        """Returns whether it is a CORS preflight; adds the CORS headers to every reply to a request with an Origin."""
        origins = request.values(b"origin")
        if not origins:
            return False
        reply.extra = [
            (b"access-control-allow-origin", origins[0].encode("latin-1")),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate"),
            (b"vary", b"Origin"),
        ]
        return request.method == "OPTIONS" and bool(request.values(b"access-control-request-method"))

    async def _welcome(self, request: HttpRequest, reply: HttpReply) -> None:
        if await is_read(request, reply):
            paths = [path for path in self._routes if path in ("/mcp", "/sse")]
            await write_welcome(request, reply, paths, with_page=self._serves_page and self.page is not None)

    async def _health(self, request: HttpRequest, reply: HttpReply) -> None:
        if await is_read(request, reply):
            await write_health(reply, leaving=self._leaving or self._draining, store=self._store_state)

    async def _live(self, request: HttpRequest, reply: HttpReply) -> None:
        if await is_read(request, reply):
            await write_health(reply, leaving=False, store=self._store_state)

    @property
    def _store_state(self) -> str | None:
        return None if self._replicas is None else self._replicas.store_state

    async def _metrics(self, request: HttpRequest, reply: HttpReply, principal: Principal) -> None:
        if await is_read(request, reply):
            replicas = self._replicas.facts() if self._replicas is not None else None
            page = metrics_page(self._dispatcher, principal, self.refusals.facts(), replicas)
            await reply.send(200, page, CONTENT_TYPE, [(b"cache-control", b"no-store")])

    async def _metadata(self, request: HttpRequest, reply: HttpReply) -> None:
        if self._resource is not None and await is_read(request, reply):
            await reply.json(200, self._resource.document(request.port))

    def take(self, listen: Listen) -> None:
        """Applies changed tokens, principals, names and limits; forgets principals that are gone or changed profile."""
        earlier, self._gate = self._gate.principals, self._make_gate(listen)
        self._serves_page = listen.serves_page
        self.shutdown_delay = listen.shutdown_delay
        if self.page is not None and not self._serves_page:
            self.page.sign_out()
        if self._resource is not None and listen.verify is not None:
            self._resource = self._make_resource(listen)
        self._admission = self._make_admission()
        self._quotas.take(listen)
        removed = earlier - self._gate.principals
        if removed:
            self.streamable.close_of(removed)
            if self.sse is not None:
                self.sse.close_of(removed)
            for key in removed:
                self._callers.end(key)

    # --- shutdown ----------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Tells load balancers by `/healthz` that the hub is about to stop. All requests are served as before."""
        self._leaving = True

    async def drain(self, grace: float) -> None:
        """Accepts no new requests, waits at most `grace` seconds for the others, then ends every stream and session."""
        if self._replicas is not None:
            await self._replicas.hand_over()
        self._draining = True
        self._dispatcher.close()
        if self.page is not None:
            self.page.end_sessions()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self.streamable.drained()
                if self.sse is not None:
                    await self.sse.drained()
        self.streamable.close_all()
        if self.sse is not None:
            self.sse.close_all()


async def _stopping(reply: HttpReply) -> None:
    await reply.text(503, "The hub is stopping.", [(b"retry-after", b"5"), (b"connection", b"close")])


async def serve_network(
    app: App,
    listen: Listen,
    *,
    stop: asyncio.Event,
    grace: float = 10.0,
    ready: Callable[[list[str]], None],
    handed: Sequence[socket.socket] = (),
) -> None:
    """Serves until `stop` is set and `shutdown_delay` has passed, then waits for calls, at most `grace` seconds.

    Clients then have END_GRACE seconds to read the rest. `ready` gets the base URLs (`http://127.0.0.1:8808`,
    `unix:/path`) once connections are accepted. `handed` are listening sockets that take the place of those that
    `listen` describes. Raises HubError, with a text for the user, if the listener must not or cannot start.
    """
    problem = check_listener(listen)
    if problem is not None:
        raise HubError(problem)
    certificates = Certificates(listen.tls) if listen.tls is not None else None
    sockets = list(handed) or await bind(listen)
    own_path = OwnPath(listen.socket_path) if listen.socket_path is not None and not handed else None
    try:
        listener = Listener(app, connections_possible(), refusals=app.refusals, exempt=app.trusts)
        servers: list[asyncio.Server | TlsServer] = []
        certificate_watch = None if certificates is None else BACKGROUND.keep("certificates", certificates.watched)
        try:
            for sock in sockets:
                if certificates is None or is_unix(sock):
                    servers.append(await accepting(sock, partial(ServerConnection, listener)))
                else:
                    servers.append(TlsServer(listener, certificates, sock))
            ready([base_url(sock, "http" if certificates is None else "https") for sock in sockets])
            await stop.wait()
            app.leave()
            await asyncio.sleep(app.shutdown_delay)
            if own_path is not None:
                own_path.remove()
            for server in servers:
                server.close()
            await app.drain(grace)
            await listener.close(END_GRACE)
        finally:
            if certificate_watch is not None:
                certificate_watch.cancel()
            if own_path is not None:
                own_path.remove()
            for server in servers:
                server.close()
            await listener.abort()  # clients that have not read their replies until now
            app.refusals.close()
    finally:
        for sock in sockets:
            sock.close()
