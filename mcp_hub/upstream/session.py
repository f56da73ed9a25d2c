"""One open conversation with an upstream, in the era it was found to have."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.config.ancestry import Ancestry, Behind
from mcp_hub.config.models import EraPin, Server
from mcp_hub.errors import METHOD_NOT_FOUND, LeftOut, ProtocolError, UpstreamAnswered
from mcp_hub.protocol import era as eras
from mcp_hub.protocol import routing_headers
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import KINDS, TOOLS, Kind
from mcp_hub.protocol.log_levels import SET_LEVEL, says_more
from mcp_hub.transport.link import LinkError, LinkLost, SessionLost
from mcp_hub.transport.peer import NO_CAUSE, Peer, Progress
from mcp_hub.upstream.agreement import VERSION_HEADER, Agreement, NoAgreement, Offered, Spoken, agree
from mcp_hub.upstream.causes import Causes
from mcp_hub.upstream.dial import Dialer
from mcp_hub.upstream.watches import SUBSCRIBE, UNSUBSCRIBE

log = logging.getLogger("mcp_hub.upstream")

LISTEN_AGAIN: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Seconds between attempts to listen for changes again, the last one for ever."""
LISTEN_FILTERS: Final = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}

Notified = Callable[[str, dict[str, Any], object], None]
"""Takes a notification: its method, its params, and the cause of the request on whose stream it came."""


class Side(msgspec.Struct, frozen=True):
    """The hub's side of a conversation: who it is, what it hears, whom the server may ask."""

    info: dict[str, Any]
    notified: Notified
    causes: Causes
    offered: Offered
    spoken: Spoken
    clean: Callable[[str], str] = str
    """A text of the server's without secrets, for the log."""


class Session:
    """A link, the peer on it, and what was agreed. `lost` is set when the link has died by itself."""

    def __init__(
        self, peer: Peer, agreement: Agreement, transport: str, side: Side, ancestry: Ancestry | None = None
    ) -> None:
        self.peer = peer
        self.agreement = agreement
        self.transport = transport
        self.behind = agreement.behind
        """What the server said last of itself, if it is a hub."""
        self.left_out: LeftOut | None = None
        """Why it must not be served, found out since."""
        self.lost = asyncio.Event()
        self.loss: LinkError | None = None
        self.log_level: str | None = None
        """What a server of the handshake era was told to log; None: nothing."""
        self.causes = side.causes
        self._ancestry = ancestry
        self._info = side.info
        self._listening: asyncio.Task[None] | None = None
        self._changed: Callable[[], None] = _nothing
        self._watched: list[str] = []
        self._deaf = False
        """Whether a modern server has no way to tell of changes."""

    @property
    def era(self) -> Era:
        """The era this upstream is spoken to in."""
        return self.agreement.era

    @property
    def says_more(self) -> bool:
        """Whether requests have headers that are made from the schema of a tool."""
        return self.transport == "http" and self.era == "modern"

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last stderr lines of the process behind it, escaped."""
        return self.peer.link.last_words

    @property
    def pid(self) -> int | None:
        """Of the process behind it; None where there is none."""
        return getattr(self.peer.link, "pid", None)

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        envelope: Envelope | None = None,
        on_progress: Progress | None = None,
        schema: dict[str, Any] | None = None,
        cause: object = NO_CAUSE,
    ) -> Any:
        """One request in the upstream's era. `envelope` is its causer's, `schema` the called tool's inputSchema.

        `cause` is what comes on the stream of this request is attributed to.

        Raises what Peer.request raises.
        """
        version = self.agreement.version
        headers = {VERSION_HEADER: version}
        if self.era == "modern":
            asked = Envelope(version, {}, self._info)
            if envelope is not None:
                asked = msgspec.structs.replace(envelope, client_info=self._info)
            params = eras.stamped(params, asked)
            if self.says_more:
                param_map = routing_headers.param_map(schema) if schema else None
                headers.update(routing_headers.emit(method, params, param_map or {}))
        try:
            return await self.peer.request(method, params, headers=headers, on_progress=on_progress, cause=cause)
        except LinkError as error:
            error.last_words = error.last_words or self.last_words
            if isinstance(error, SessionLost):
                self._die(error)
            raise

    async def list_page(self, method: str, params: dict[str, Any]) -> Any:
        """One page of a list. What a hub lists may come from this one by now: then the session ends.

        Raises LeftOut, and what `request` raises.
        """
        answer = await self.request(method, params)
        behind = Behind.read(answer)
        try:
            if self._ancestry is not None:
                self._ancestry.admit(behind)
        except LeftOut as error:
            self.left_out = error
            self._die(LinkLost(str(error)))
            raise
        self.behind = behind
        return answer

    def unusable(self, kind: Kind, item: Any) -> str | None:
        """Why an item of a list must not be offered: over HTTP nobody may call a tool whose headers cannot be said."""
        if kind is not TOOLS or self.era != "modern" or self.transport != "http" or not isinstance(item, dict):
            return None
        return routing_headers.invalid_annotation(item.get("inputSchema"))

    async def log_from(self, level: str) -> None:
        """See to it that a server of the handshake era logs this level and above. Never raises but CancelledError."""
        if self.era == "modern" or "logging" not in self.agreement.capabilities or not says_more(level, self.log_level):
            return
        self.log_level = level
        with contextlib.suppress(LinkError, ProtocolError):
            await self.request(SET_LEVEL, {"level": level})

    @property
    def busy(self) -> bool:
        """Whether requests wait for their answers, besides the one that listens for changes."""
        listening = self._listening is not None and not self._listening.done()
        return self.peer.in_flight > (1 if listening and not self._deaf else 0)

    @property
    def announces_changes(self) -> bool:
        """Whether changed lists are sure to be told of: declared, and on a way that is known to be open."""
        if self.era == "modern":
            return not self._deaf
        lists = [self.agreement.capabilities.get(kind.capability) for kind in KINDS]
        declared = all(one.get("listChanged") is True for one in lists if isinstance(one, dict))
        return declared and self.transport == "stdio"  # a standing stream over HTTP may have ended unnoticed

    def end(self, error: LinkLost) -> None:
        """Give the connection up: what is in flight fails with this."""
        self.peer.lost(error)

    def _die(self, error: LinkError) -> None:
        """Nothing can be asked on this session any more."""
        if not self.lost.is_set():
            self.loss = error
            self.lost.set()

    def watch_for_changes(self, changed: Callable[[], None]) -> None:
        """Keep the way open on which the upstream announces changes; `changed` is called when some may be missed."""
        self._changed = changed
        if self.era == "modern":
            self._listen_anew()
            return
        open_stream = getattr(self.peer.link, "open_standing_stream", None)
        if open_stream is not None:
            open_stream({VERSION_HEADER: self.agreement.version})

    async def watch(self, uris: Sequence[str], *, new: str | None = None, old: str | None = None) -> None:
        """Hear of changes of `uris`, among which one is new or from which one was taken; neither: all are new.

        Raises what a request raises.
        """
        if self.era == "modern":
            self._watched = list(uris)
            self._listen_anew()
            return
        for uri in [old] if old is not None else []:
            await self.request(UNSUBSCRIBE, {"uri": uri})
        for uri in [new] if new is not None else [] if old is not None else uris:
            await self.request(SUBSCRIBE, {"uri": uri})

    def _listen_anew(self) -> None:
        """What is listened for is said once and cannot be changed: the new way is opened before the old is closed."""
        before = self._listening
        self._listening = asyncio.get_running_loop().create_task(self._listen())
        if before is not None:
            before.cancel()

    async def _listen(self) -> None:
        attempt = 0
        filters = {**LISTEN_FILTERS, **({"resourceSubscriptions": self._watched} if self._watched else {})}
        while not self.lost.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self.request(eras.LISTEN, {"notifications": filters})
            except UpstreamAnswered as error:
                if error.code == METHOD_NOT_FOUND:
                    self._deaf = True
                    return
            except LinkError as error:
                log.debug("listening ended: %s", error)
            attempt = 0 if asyncio.get_running_loop().time() - began > LISTEN_AGAIN[-1] else attempt
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_AGAIN[min(attempt, len(LISTEN_AGAIN) - 1)]):
                    await self.lost.wait()
            attempt += 1
            self._changed()

    async def close(self) -> None:
        """End the conversation and what is behind it, within the link's bounds. Never raises."""
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._listening
        await self.peer.close()


def _nothing() -> None:
    pass


async def open_session(server: Server, dialer: Dialer, side: Side, known: Agreement | None = None) -> Session:
    """Connect and agree. `known` is what was agreed before.

    Raises LinkError, UpstreamAnswered, NoAgreement, CommandNotFound, LeftOut; not bounded in time.
    """
    pin = server.era
    if server.transport == "auto":
        try:
            return await _open(server, "http", dialer, side, pin, known)
        except LinkError as error:
            if error.status is None or not 400 <= error.status < 500 or error.status in (401, 403, 429):
                raise
        return await _open(server, "sse", dialer, msgspec.structs.replace(side, spoken=_the_handshake), pin, known)
    if server.transport == "sse":
        side = msgspec.structs.replace(side, spoken=_the_handshake)
    try:
        return await _open(server, server.transport, dialer, side, pin, known)
    except (LinkLost, UpstreamAnswered, NoAgreement) as error:
        first = await side.spoken() or (known.era if known is not None else "modern")
        settled = known is not None and (known.only or known.era == first)
        again = isinstance(error, LinkLost) or first == "handshake"
        if server.transport != "stdio" or pin != "auto" or settled or not again:
            raise
        # It may be the first question that it did not survive, or that settled the era of the connection.
        session = await _open(server, "stdio", dialer, side, "modern" if first == "handshake" else "handshake", None)
        session.agreement = msgspec.structs.replace(session.agreement, only=True)
        return session


async def _the_handshake() -> Era | None:
    """The specification gives SSE no other era; a server may have one all the same."""
    return "handshake"


async def _open(
    server: Server, transport: str, dialer: Dialer, side: Side, pin: EraPin, known: Agreement | None
) -> Session:
    session: Session | None = None
    early: list[LinkLost] = []

    def lost(error: LinkLost) -> None:
        if session is None:
            early.append(error)
        else:
            session._die(error)

    peer = Peer(
        dialer.link(server, transport, side.clean), notified=side.notified, requested=side.causes.answer, lost=lost
    )
    try:
        await peer.link.open(peer)
        agreement = await agree(peer, pin, side.info, side.offered, side.spoken, known)
        if dialer.ancestry is not None:
            dialer.ancestry.admit(agreement.behind)
        if early:
            raise early[0]
    except BaseException as error:
        if isinstance(error, LinkError):
            error.last_words = peer.link.last_words
        await asyncio.shield(peer.close())
        raise
    session = Session(peer, agreement, transport, side, dialer.ancestry)
    return session
