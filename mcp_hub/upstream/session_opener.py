"""Opens sessions with one server: dials a link, negotiates the era, and bounds the time for both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.config.models import EraPin, Server
from mcp_hub.errors import HubError, UpstreamAnswered
from mcp_hub.protocol.era import LOG_MESSAGE, UPDATED, Era
from mcp_hub.protocol.kinds import PRESETS
from mcp_hub.protocol.questions import ELICITATION_COMPLETE, TASK_CHANGED, WATCHED_TASK, Json
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.security.redaction import LEARNED
from mcp_hub.transport import Link, LinkError, LinkLost
from mcp_hub.transport.peer import Cause, Peer
from mcp_hub.upstream.attribution import CallAttribution, ClientRegistry
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.lifecycle import HealthMonitor, StartLimiter
from mcp_hub.upstream.link_dialer import LinkDialer
from mcp_hub.upstream.negotiation import ClientCapabilities, ClientEra, NoAgreement, negotiate
from mcp_hub.upstream.session import Agreement, UpstreamSession

Notified = Callable[[str, Json, Cause | None], None]
"""Takes a notification: its method, its params, and the call on whose stream it came."""
OnUpdated = Callable[[Caller | None, Json], None]
OnNotification = Callable[[str, Json], None]
"""Takes a notification that is about the lists: its method and its params."""
CONNECT_ERRORS: Final = (HubError, LinkError, NoAgreement, TimeoutError)
"""Exceptions of opening a session that are not bugs of the hub."""


class HubSide(msgspec.Struct, frozen=True):
    """The hub's side of a session: its identity, what it declares, and the handlers of the server's messages."""

    info: Json
    notified: Notified
    attribution: CallAttribution
    capabilities: ClientCapabilities
    client_era: ClientEra
    clean: Callable[[str], str] = str
    """Redacts secrets in a text from the server, for the log."""
    last_words: list[str] = msgspec.field(default_factory=list)
    """The last stderr lines of the process, if the session could not be opened."""
    oddity: list[str] = msgspec.field(default_factory=list)
    """What came in place of an answer then."""
    server: str = ""
    """The id of the server, for the user."""


class SessionOpener:
    """Opens the sessions of one upstream.

    `updated(caller, params)` handles changes of resources; the caller is the session's, None if the session is shared.
    `messages` redacts texts from the server. `health` monitors every session.
    """

    def __init__(
        self,
        server: Server,
        dialer: LinkDialer,
        info: Json,
        clients: ClientRegistry,
        starts: StartLimiter,
        updated: OnUpdated,
        messages: ErrorMessages,
        health: HealthMonitor,
    ) -> None:
        self._server = server
        self._dialer = dialer
        self._info = info
        self._clients = clients
        self._starts = starts
        self._updated = updated
        self._messages = messages
        self._held_until = 0.0
        """`time.monotonic()` before which the server asked to get no further attempt (Retry-After)."""
        self._health = health

    async def open_shared(
        self, previous: Agreement | None, notified: OnNotification, beside: UpstreamSession | None = None
    ) -> UpstreamSession:
        """Opens a session that all callers share.

        Args:
            previous: what was negotiated on an earlier session.
            beside: an open shared session; the new one gets the other era.

        Raises:
            LinkError, UpstreamAnswered, NoAgreement, CommandNotFound, LeftOut: as for `open_session`.
        """
        attribution = CallAttribution(self._server, SOLE if self._clients.expected else None, self._clients)
        capabilities = partial(self._clients.shared_capabilities, self._server)
        entry = self._server
        if beside is not None:
            other_era: EraPin = "modern" if beside.era == "handshake" else "handshake"
            entry = entry.model_copy(update={"era": other_era, "transport": beside.transport})
        session = await self._open(entry, None, attribution, capabilities, self._clients.sole_era, notified, previous)
        session.has_sole_era = entry.era != "auto" or entry.origin != "mcp"  # the hub's own servers ask clients nothing
        return session

    async def open_own(
        self, previous: Agreement | None, caller: Caller, declared: Json | None, notified: OnNotification
    ) -> UpstreamSession:
        """Opens a session for one caller alone.

        Args:
            previous: what was negotiated on an earlier session.
            declared: the capabilities to declare; None: those that the caller declared when it connected.

        Raises:
            LinkError, UpstreamAnswered, NoAgreement, CommandNotFound, LeftOut: as for `open_session`.
        """

        async def capabilities() -> Json:
            return declared if declared is not None else await self._clients.own_capabilities(self._server, caller)

        async def client_era() -> Era | None:
            return (
                await self._clients.sole_era() if caller is SOLE else "modern" if caller.is_principal else "handshake"
            )

        attribution = CallAttribution(self._server, caller, self._clients)
        entry = _entry_for(self._server, caller)
        return await self._open(entry, caller, attribution, capabilities, client_era, notified, previous)

    async def _open(
        self,
        entry: Server,
        caller: Caller | None,
        attribution: CallAttribution,
        capabilities: ClientCapabilities,
        client_era: ClientEra,
        notified: OnNotification,
        previous: Agreement | None,
    ) -> UpstreamSession:
        handler = self._notification_handler(caller, attribution, notified)
        side = HubSide(
            self._info, handler, attribution, capabilities, client_era, self._messages.clean, server=self._server.id
        )
        limit = self._server.deadlines.connect
        if (wait := self._held_until - time.monotonic()) > 0:
            text = f"it asked for no further attempt for {wait:.0f} s"
            raise LinkError(text, executed=False, retry_after=wait, code=codes.RATE_LIMITED)
        async with self._starts.slot():
            try:
                async with asyncio.timeout(limit):
                    session = await open_session(entry, self._dialer, side, previous)
            except LinkError as refusal:
                self._held_until = max(self._held_until, time.monotonic() + (refusal.retry_after or 0.0))
                raise
            except TimeoutError:
                raise _late(side, self._server) from None
        session.agreement = session.agreement.succeeding(previous)
        self._health.follow(session)
        return session

    def _notification_handler(
        self, caller: Caller | None, attribution: CallAttribution, notified: OnNotification
    ) -> Notified:
        def handle(method: str, params: Json, cause: Cause | None) -> None:
            if method == UPDATED:
                self._updated(caller, params)
            elif method == TASK_CHANGED:
                self._updated(caller, {"uri": f"{WATCHED_TASK}{params.get('taskId')}"})
            elif method == ELICITATION_COMPLETE:
                attribution.elicitations.notify_complete(params)
            elif method == LOG_MESSAGE:
                attribution.pass_log(self._messages.clean_message(params), cause)
            elif method == PRESETS and self._server.tools_dir is not None:
                self._learn_presets(params.get("values"))
            else:
                notified(method, params)

        return handle

    def _learn_presets(self, values: Any) -> None:
        """Redacts the preset values of local functions from now on, which their process has sent."""
        if isinstance(values, list):
            LEARNED.hold(self, (value for value in values if isinstance(value, str)))


def _late(side: HubSide, server: Server) -> LinkError:
    """Returns the error of a handshake without an answer within the deadline."""
    limit, setting = server.deadlines.connect, server.key_of_deadline("connect")
    text = f"it did not answer the handshake within {limit:g} s (setting: {setting})"
    error = LinkError("; ".join([text, *filter(None, side.oddity)]), code=codes.HANDSHAKE_LATE)
    error.last_words = tuple(side.last_words)
    return error


def _entry_for(server: Server, caller: Caller) -> Server:
    """Returns the server's entry for the session of one caller, with a separate browser profile.

    Only principals get a profile that is kept: a client session of the handshake era never returns, and no other
    caller may see its data.
    """
    if server.profile is None:
        return server
    name = caller.directory
    own = server.profile.with_name(f"{server.profile.name}-callers") / name if name is not None else None
    return server.model_copy(update={"profile": own})


# --- opening ---------------------------------------------------------------------------------------------------


async def open_session(
    server: Server, dialer: LinkDialer, side: HubSide, previous: Agreement | None = None
) -> UpstreamSession:
    """Connects to a server and negotiates with it. Not bounded in time.

    Args:
        previous: what was negotiated on an earlier session.

    Raises:
        LinkError: no transport of the server's works.
        UpstreamAnswered: the server refused the handshake.
        NoAgreement: the server speaks no revision that the hub knows.
        CommandNotFound: the server's command does not exist.
        LeftOut: the server is this hub itself, or would make the chain of hubs too long.
    """
    *preferred, transport = dialer.transports(server)
    for candidate in preferred:
        try:
            return await _open(
                dialer.link(server, candidate, side.clean), candidate, dialer, side, server.era, previous
            )
        except LinkError as error:
            if error.status is None or not 400 <= error.status < 500 or error.status in (401, 403, 429):
                raise  # no sign that the server speaks another transport
    link = dialer.link(server, transport, side.clean)
    try:
        return await _open(link, transport, dialer, side, server.era, previous)
    except (LinkLost, UpstreamAnswered, NoAgreement) as error:
        if not link.is_local or server.era != "auto":
            raise
        first_era = await side.client_era() or (previous.era if previous is not None else "modern")
        is_settled = previous is not None and (previous.only or previous.era == first_era)
        can_retry = isinstance(error, LinkLost) or first_era == "handshake"
        if is_settled or not can_retry:
            raise
        # The first request may have ended the process, or fixed its era: a new process is asked in the other era.
        pin: EraPin = "modern" if first_era == "handshake" else "handshake"
        link = dialer.link(server, transport, side.clean)
        session = await _open(link, transport, dialer, side, pin, None)
        session.agreement = msgspec.structs.replace(session.agreement, only=True)
        return session


async def _open(
    link: Link, transport: str, dialer: LinkDialer, side: HubSide, pin: EraPin, previous: Agreement | None
) -> UpstreamSession:
    session: UpstreamSession | None = None
    early_losses: list[LinkLost] = []

    def on_lost(error: LinkLost) -> None:
        if session is None:
            early_losses.append(error)
        else:
            session.lose(error)

    peer = Peer(link, notified=side.notified, requested=side.attribution.answer, lost=on_lost, server=side.server)
    try:
        await link.open(peer)
        agreement = await negotiate(peer, pin, side.info, side.capabilities, side.client_era, previous)
        if dialer.ancestry is not None:
            dialer.ancestry.admit(agreement.nested_hubs)
        if early_losses:
            raise early_losses[0]
    except BaseException as error:
        side.last_words[:], side.oddity[:] = link.last_words, [peer.oddity]
        if isinstance(error, LinkError):
            error.last_words = link.last_words
        await asyncio.shield(peer.close())
        raise
    session = UpstreamSession(peer, agreement, transport, side.info, side.attribution, dialer.ancestry)
    return session
