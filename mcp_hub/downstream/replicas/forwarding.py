"""Forwards requests to the replica they belong to, checks those that arrive, and streams the responses back."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub.config.listen import UNIX
from mcp_hub.downstream import PROGRAM, program_of
from mcp_hub.errors import CallError
from mcp_hub.protocol.era import LISTEN
from mcp_hub.security import ANONYMOUS, Principal
from mcp_hub.store.membership import Member, Membership
from mcp_hub.store.replica_keys import FRESH, ReplicaKeys
from mcp_hub.transport.http1.client_connection import ClientConnection
from mcp_hub.transport.http1.client_response import (
    ConnectFailed,
    ConnectTimeout,
    HttpFailure,
    HttpResponse,
    NameUnknown,
    PoolClosed,
)
from mcp_hub.transport.http1.dialler import Dialler, HostDialler, PathDialler
from mcp_hub.transport.http1.exchange import EVENTS, ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import HeaderLines, RequestHead
from mcp_hub.transport.http1.pool import HttpPool, RequestHeadEncoder
from mcp_hub.transport.trust_store import trusted_certificates

log = logging.getLogger("mcp_hub.replicas")

PATH: Final = "/replica"
HEADER: Final = "X-Mcp-Hub-Forward"
KIND: Final = "forward"
"""The kind of sealed text that the header of a forward is."""
PROOF: Final = "proof"
"""The kind of sealed text that answers HELLO."""
MAX_NONCES: Final = 200_000
"""The most forwards that are remembered while they are valid; one more is refused, as it might be a replay."""
CONNECT: Final = 1.0
KEEP: Final = 4.0
LIMIT: Final = 256
"""The most connections to one replica for requests that end by themselves."""
MAX_STREAMS: Final = 10_000
"""The most connections to one replica for standing streams and listeners: each client that this one serves has one."""
MISDIRECTED: Final = 421
"""The status of a replica that is not the owner; nothing was executed."""
PUSH: Final = "PUSH"
"""The method that passes a message to the replica that has a session's standing stream."""
LOOK: Final = "LOOK"
"""The method that makes another replica look for changes now."""
CHECK: Final = "CHECK"
"""The method by which a replica that claims something makes another one check whether it still owns it."""
HELLO: Final = "HELLO"
"""The method by which a replica proves on each new connection that it is alive and has the address that was dialled."""
KNOWS: Final = "KNOWS"
"""The method that asks another replica whether it can read a resource."""
RESTORE: Final = "RESTORE"
"""The method by which a former owner of a session makes the present one restore its subscriptions."""
_FORWARDED_HEADERS: Final = frozenset({"accept", "content-type", "last-event-id"})
_PROTOCOL_PREFIX: Final = "mcp-"
"""The beginning of the names of all other headers that are forwarded. Of the cookies only PROGRAM is."""
MAX_HEADER: Final = 40_000
"""The most characters of a sealed header; no real client sends more."""
_RETURNED: Final = ("mcp-session-id", "retry-after")


Headers = Sequence[tuple[str, str]]
"""Headers of a request, each with its name in lower case."""


class ReplicaGone(CallError):
    """The replica that a request belongs to failed while it answered. The call may have been executed."""

    code, rpc_code, retryable = "server_unavailable", -32010, True


class Forward(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a forward's header, which is sealed."""

    to: str
    """The owner that it is meant for."""
    method: str
    principal: str
    digest: str
    """SHA-256 of the body."""
    at: float
    """Seconds since 1970."""
    nonce: str
    headers: list[tuple[str, str]] = []
    """The headers of the client that are forwarded."""
    profile: str | None = None
    label: str | None = None
    told: bool = False
    """Whether it is for replicas that serve the session already: no other one begins to serve it for this message."""


class ForwardedRequest(HttpRequest):
    """A client's request that another replica has received and forwarded. It is not forwarded again."""

    __slots__ = ("told",)
    told: bool


class NotOwner(Exception):
    """The replica that a request was forwarded to is not its owner, or cannot be reached; nothing was executed."""


class NotProven(HttpFailure):
    """What answers at the address of a replica has not proven that it is this replica."""


_NOT_SENT: Final = (ConnectFailed, ConnectTimeout, NameUnknown, PoolClosed, NotProven)


class ReplicaPool(HttpPool):
    """Connections to one replica in one of its lives. The other end proves who it is before it gets anything else.

    The store may have an old record of a replica, at whose address somebody else listens by now.
    """

    def __init__(self, keys: Callable[[], ReplicaKeys], to: Member, dialler: Dialler, limit: int) -> None:
        super().__init__(dialler, limit=limit, connect=CONNECT, keep=KEEP)
        from yarl import URL

        url = URL("http://localhost" if to.address.startswith(f"{UNIX}:") else to.address)
        self._heads = RequestHeadEncoder(url, {"Accept-Encoding": "identity", "Content-Type": "application/json"})
        self._keys = keys
        self._to = to
        self._has_warned = False

    async def greet(self, connection: ClientConnection) -> None:
        """Makes the other end prove that it is the replica. Raises NotProven."""
        challenge = f"{secrets.token_urlsafe(18)} {self._to.address}"
        response = await connection.exchange(*self._request(HELLO, ANONYMOUS, (), challenge.encode()))
        response.close()
        if self._keys().open(PROOF, response.get(HEADER.lower()) or "") != [self._to.owner, challenge]:
            if not self._has_warned:
                self._has_warned = True
                log.warning("what answers at %s has not proven that it is replica %s", self._to.address, self._to.id)
            raise NotProven

    async def post(
        self, method: str, principal: Principal, headers: Headers, body: bytes, *, told: bool
    ) -> HttpResponse:
        """Sends a request in a client's name, and returns the response. Raises HttpFailure."""
        return await self.exchange("POST", *self._request(method, principal, headers, body, told=told))

    def _request(
        self, method: str, principal: Principal, headers: Headers, body: bytes, *, told: bool = False
    ) -> tuple[bytes, bytes]:
        """Returns the head of a request, with its seal, and its body. Raises PoolClosed."""
        forward = Forward(
            self._to.owner,
            method,
            str(principal),
            hashlib.sha256(body).hexdigest(),
            time.time(),
            secrets.token_urlsafe(12),
            list(headers),
            principal.profile,
            principal.label,
            told,
        )
        sealed = self._keys().seal(KIND, msgspec.to_builtins(forward))
        if len(sealed) > MAX_HEADER:
            raise PoolClosed  # the owner would refuse it, so it counts as not reachable
        return self._heads.head("POST", PATH, {HEADER: sealed}, len(body)), body


class ForwardClient:
    """Sends requests to other replicas. `keys()` returns the replica keys."""

    def __init__(self, keys: Callable[[], ReplicaKeys]) -> None:
        self._keys = keys
        self.forwarded = self.broken = 0
        """Requests that were forwarded, and those of them whose replica failed."""
        self._open: dict[asyncio.Timeout, str] = {}
        """The forwards that are under way, each with the owner it is sent to."""
        self._pools: OrderedDict[tuple[str, str, int], ReplicaPool] = OrderedDict()
        """By owner, address and maximum number of connections."""

    async def forward(
        self, to: Member, request: HttpRequest, reply: HttpReply, principal: Principal, body: bytes
    ) -> None:
        """Forwards a client's request, and passes the response on as it comes.

        Raises NotOwner if nothing was executed, ReplicaGone if that is not known, ClientGone.
        """
        self.forwarded += 1
        try:
            with self._cancellable(to) as scope:
                async with scope:
                    request.watch(partial(_break_off, scope))  # before the response begins, as that may take long
                    try:
                        response = await self._send(to, request, principal, body)
                        try:
                            await _relay_response(response, reply)
                        finally:
                            response.close()
                    finally:
                        request.unwatch()
        except (HttpFailure, TimeoutError):
            if request.disconnected:
                raise ClientGone from None
            self.broken += 1
            if reply.started:
                reply.give_up()  # the client sees a stream that broke off, and resumes it
                raise ClientGone from None
            raise _replica_gone() from None

    @contextlib.contextmanager
    def _cancellable(self, to: Member) -> Iterator[asyncio.Timeout]:
        """Yields a scope that `gone` ends with TimeoutError, as a replica that hangs closes no connection."""
        scope = asyncio.timeout(None)
        self._open[scope] = to.owner
        try:
            yield scope
        finally:
            del self._open[scope]

    def gone(self, owners: frozenset[str]) -> None:
        """Breaks off the forwards to replicas that are not alive any more."""
        for scope, owner in self._open.items():
            if owner in owners:
                _break_off(scope)

    async def knows(self, to: Member, principal: Principal, headers: Headers, uri: str) -> bool:
        """Returns whether another replica can read a resource for a client."""
        try:
            async with asyncio.timeout(2 * CONNECT):
                response = await self._post(to, KNOWS, principal, headers, uri.encode())
                response.close()
                return response.status == 204
        except (HttpFailure, TimeoutError):
            return False

    async def tell(self, to: Member, principal: Principal, headers: Headers, body: bytes, method: str = "POST") -> bool:
        """Passes a message on; returns whether the other replica has taken it. Never raises: it may be gone.

        A replica that does not serve the session that `headers` name does not begin to.
        """
        try:
            async with asyncio.timeout(2 * CONNECT):
                response = await self._post(to, method, principal, headers, body, told=True)
                response.close()
                return response.status < 300
        except (HttpFailure, TimeoutError):
            return False

    async def _send(self, to: Member, request: HttpRequest, principal: Principal, body: bytes) -> HttpResponse:
        headers = [
            pair for pair in request.head.text if pair[0] in _FORWARDED_HEADERS or pair[0].startswith(_PROTOCOL_PREFIX)
        ]
        if program := program_of(request.values(b"cookie")):
            headers.append(("cookie", f"{PROGRAM}={program}"))
        try:
            response = await self._post(
                to, request.method, principal, headers, body, is_long_lived=_is_long_lived(request)
            )
        except _NOT_SENT:
            raise NotOwner from None
        if response.status == MISDIRECTED:
            response.close()
            raise NotOwner
        return response

    async def _post(
        self,
        to: Member,
        method: str,
        principal: Principal,
        headers: Headers,
        body: bytes,
        *,
        is_long_lived: bool = False,
        told: bool = False,
    ) -> HttpResponse:
        if not to.address:
            raise PoolClosed  # it has no listener yet
        pool = await self._pool(to, MAX_STREAMS if is_long_lived else LIMIT)
        return await pool.post(method, principal, headers, body, told=told)

    async def _pool(self, to: Member, limit: int) -> ReplicaPool:
        key = (to.owner, to.address, limit)
        pool = self._pools.get(key)
        if pool is None:
            pool = ReplicaPool(self._keys, to, await _dialler(to.address), limit)
            pool = self._pools.setdefault(key, pool)  # another forward may have made one while the dialler was made
        self._pools.move_to_end(key)
        while len(self._pools) > 128:
            _, oldest = self._pools.popitem(last=False)
            await oldest.close()
        return pool

    async def close(self) -> None:
        """Closes all connections."""
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()


async def _dialler(address: str) -> Dialler:
    """Returns the object that makes connections to the listener of a replica."""
    if address.startswith(f"{UNIX}:"):
        return PathDialler(address.removeprefix(f"{UNIX}:"))
    url = urlsplit(address)
    tls = await asyncio.to_thread(trusted_certificates) if url.scheme == "https" else None
    return HostDialler(url.hostname or "", url.port or (443 if tls else 80), tls)


def _break_off(scope: asyncio.Timeout) -> None:
    if not scope.expired():
        scope.reschedule(0.0)


def _is_long_lived(request: HttpRequest) -> bool:
    """Returns whether the response lasts as long as its client: a standing stream, or that of a listener."""
    return request.method == "GET" or request.values(b"mcp-method") == [LISTEN]


def _replica_gone() -> ReplicaGone:
    text = "The replica that this session belongs to failed. The call may have been carried out; it is not sent again."
    return ReplicaGone(text)


async def _relay_response(response: HttpResponse, reply: HttpReply) -> None:
    """Writes a response to the client, an event stream as it comes. Raises HttpFailure if it breaks off, ClientGone."""
    lines: HeaderLines = [
        (name.encode(), value.encode("latin-1")) for name in _RETURNED if (value := response.get(name)) is not None
    ]
    content_type = (response.get("content-type") or "").encode("latin-1")
    if content_type.partition(b";")[0].strip() == EVENTS:
        await reply.start(lines)
        while chunk := await response.chunk():
            await reply.write(chunk)
        await reply.end()
        return
    body = bytearray()
    while chunk := await response.chunk():
        body += chunk
    await reply.send(response.status, bytes(body), content_type or b"application/json", lines)


class ForwardGate:
    """Checks what other replicas forward to this one. `clock` returns seconds since 1970."""

    def __init__(
        self, keys: Callable[[], ReplicaKeys], members: Membership, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self._members = members
        self._clock = clock
        self._nonces: OrderedDict[str, float] = OrderedDict()
        """Nonces, and the time until which each is remembered."""

    def opened(self, sealed: str, body: bytes) -> Forward | int:
        """Returns a forward that was sealed by a replica for this body, or the status it is refused with.

        403: no replica has sealed it, or it is old or a replay. 421: it is meant for another replica.
        """
        content = self._keys().open(KIND, sealed, MAX_HEADER)
        try:
            forward = msgspec.convert(content, Forward)
        except msgspec.ValidationError:
            return 403
        now = self._clock()
        if abs(now - forward.at) > FRESH or hashlib.sha256(body).hexdigest() != forward.digest:
            return 403
        if forward.nonce in self._nonces or not self._has_room(now):
            return 403
        self._nonces[forward.nonce] = now + 2 * FRESH
        if forward.to != self._members.me.owner:
            return MISDIRECTED
        return forward

    def proof(self, challenge: bytes) -> bytes | None:
        """Returns the answer to HELLO, for the header; None if another address than this replica's was dialled.

        Without that, a stranger at an old address could have its questions answered by the replica itself.
        """
        me, text = self._members.me, challenge.decode("utf-8", "replace")
        return self._keys().seal(PROOF, [me.owner, text]).encode() if text.partition(" ")[2] == me.address else None

    def _has_room(self, now: float) -> bool:
        nonces = self._nonces
        while nonces and next(iter(nonces.values())) < now:
            nonces.popitem(last=False)
        return len(nonces) < MAX_NONCES

    def request(self, request: HttpRequest, body: bytes) -> tuple[ForwardedRequest, Principal] | int:
        """Returns the client's request in a forward, and its principal; or the status of a refusal."""
        sealed = request.values(HEADER.lower().encode())
        forward = self.opened(sealed[0], body) if len(sealed) == 1 else 403
        if isinstance(forward, int):
            return forward
        lines = [(name.encode(), value.encode("latin-1")) for name, value in forward.headers]
        head = RequestHead(forward.method, b"/mcp", lines)
        head.peer = request.head.peer
        forwarded = ForwardedRequest(request.wire, head, len(body), body=body)
        forwarded.told = forward.told
        request.watch(forwarded.lose)
        return forwarded, Principal(forward.principal, forward.profile, forward.label)
