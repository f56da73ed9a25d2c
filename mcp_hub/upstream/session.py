"""One open session with an upstream, in the era that was negotiated."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub.config.ancestry import Ancestry, HubPath
from mcp_hub.errors import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION, LeftOut, ProtocolError, UpstreamAnswered
from mcp_hub.protocol import era as eras
from mcp_hub.protocol import routing_headers
from mcp_hub.protocol.era import ROOTS_CHANGED, SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE, Envelope, Era, is_more_verbose
from mcp_hub.protocol.kinds import KINDS, TOOLS, Kind
from mcp_hub.protocol.questions import (
    FORWARDED_EXTENSIONS,
    SHOWS_APPS,
    TASKS_EXTENSION,
    WATCHED_TASK,
    extension_settings,
    with_extension,
)
from mcp_hub.text import printable
from mcp_hub.transport import LinkError, LinkLost, SessionLost
from mcp_hub.transport.background import BACKGROUND, set_within
from mcp_hub.transport.peer import NO_CAUSE, Cause, Peer, Progress
from mcp_hub.upstream.attribution import ROOTS_ANSWER, ROOTS_WAIT, AttributedCall, CallAttribution
from mcp_hub.upstream.catalog_cache import CachedCatalog

log = logging.getLogger("mcp_hub.upstream")

VERSION_HEADER: Final = "MCP-Protocol-Version"
SIDE_WAIT: Final = 10.0
"""Seconds that a server has to answer requests for which no call waits: to log a level, or to unsubscribe."""
STANDING_WAIT: Final = 1.0
"""Seconds that a new session waits for its standing stream: a server's requests before that would be lost."""
PROBE_WAIT: Final = 2.0
"""Seconds that a refused request waits for another one to tell whether the refusal is about the session."""
UNKNOWN_SESSION: Final = frozenset({-32600, -32001, -32000, UNSUPPORTED_PROTOCOL_VERSION})
"""Codes with which servers answer requests of a session or era that they do not know; they may mean something else."""
LISTEN_AGAIN: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Seconds before each new attempt to listen for changes; the last one repeats."""
LISTEN_FILTERS: Final = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}

_LISTING: Final = {
    kind.list_method: Envelope(capabilities=with_extension({}, kind.extension) if kind.extension else SHOWS_APPS)
    for kind in KINDS
}
"""The envelopes of requests for lists: they declare the extension of their kind, or apps."""


class Agreement(msgspec.Struct, frozen=True):
    """What was negotiated with an upstream, and what the upstream declared."""

    era: Era
    version: str
    capabilities: dict[str, Any]
    instructions: str | None
    server_info: dict[str, Any]
    declared: dict[str, Any] = msgspec.field(default_factory=dict)
    """The client capabilities that were declared to the server in the handshake."""
    only: bool = False
    """Whether the server is known to speak this era only."""
    nested_hubs: HubPath = HubPath()
    """The hubs behind it, if it is a hub."""
    undeclared: tuple[str, ...] | None = None
    """The names of the kinds that it lists without having declared them; None: it was not asked yet."""

    @classmethod
    def from_cache(cls, cached: CachedCatalog) -> Agreement:
        """Returns what an earlier run of the hub negotiated."""
        version, capabilities, info = cached.protocol_version, cached.capabilities, cached.server_info
        only, undeclared = cached.only, cached.undeclared
        return cls(cached.era, version, capabilities, cached.instructions, info, only=only, undeclared=undeclared)

    def succeeding(self, previous: Agreement | None) -> Agreement:
        """Returns it with what is known of the undeclared lists of the same version of the server."""
        is_same = previous is not None and (previous.era, previous.server_info) == (self.era, self.server_info)
        return msgspec.structs.replace(self, undeclared=previous.undeclared) if previous and is_same else self

    def offers(self, kind: Kind) -> bool:
        """Returns whether the server lists this kind: it has declared it, or answered when it was asked."""
        if kind.extension is None:
            return kind.capability in self.capabilities or kind.name in (self.undeclared or ())
        forwarded = kind.extension in FORWARDED_EXTENSIONS[self.era]
        return forwarded and extension_settings(self.capabilities, kind.extension) is not None

    @property
    def unasked(self) -> list[Kind]:
        """The kinds that the server may list without having declared them, as some servers of the handshake era do."""
        is_asked = self.era == "modern" or self.undeclared is not None
        return [] if is_asked else [kind for kind in KINDS if not (kind.extension or self.offers(kind))]

    def to_cache(self, lists: dict[str, list[Any]]) -> CachedCatalog:
        """Returns the catalog to cache. `lists` holds the upstream's raw items by `Kind.name`."""
        version, capabilities, info = self.version, self.capabilities, self.server_info
        only, undeclared = self.only, self.undeclared
        return CachedCatalog(self.era, version, capabilities, self.instructions, info, lists, only, undeclared)


class UpstreamResult(NamedTuple):
    """A result object, and the era of the session it came on."""

    result: dict[str, Any]
    era: Era


class UpstreamSession:
    """A link, the peer on it, and what was negotiated. `lost` is set once no request can be sent on it any more."""

    def __init__(
        self,
        peer: Peer,
        agreement: Agreement,
        transport: str,
        info: dict[str, Any],
        attribution: CallAttribution,
        ancestry: Ancestry | None = None,
    ) -> None:
        self.peer = peer
        self.agreement = agreement
        self.era: Era = agreement.era
        self.transport = transport
        """The name of the transport, for display."""
        self.needs_schemas = agreement.era == "modern" and peer.link.repeats_params
        """Whether a call needs its tool's schema, to repeat arguments in headers."""
        self.has_served = False
        """Whether it has answered a call, so that its end is no failure to start."""
        self.has_sole_era = False
        """Whether the other era must not be tried while this session lasts."""
        self.nested_hubs = agreement.nested_hubs
        """The hubs behind the server, as it last reported them."""
        self.left_out: LeftOut | None = None
        """Why the server must not be served, if that turned out during the session."""
        self.lost = asyncio.Event()
        self.loss: LinkError | None = None
        self.log_level: str | None = None
        """The log level that a server of the handshake era was set to; None: never set."""
        self.attribution = attribution
        self.first_roots = attribution.first_roots if "roots" in agreement.declared else None
        """What calls wait for; None: nothing. It is dropped once the first call has waited."""
        self._heard_at_first = peer.received_count
        if self.first_roots is not None:
            self.first_roots.expect()
        self._ancestry = ancestry
        self._info = info
        self._listening: asyncio.Task[None] | None = None
        self._changed: Callable[[], None] | None = None
        self._watched: list[str] = []
        self._cannot_listen = False
        """Whether a modern server does not implement `subscriptions/listen`."""

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last stderr lines of the server's process, escaped; empty if it has none."""
        return self.peer.link.last_words

    @property
    def may_have_other_era(self) -> bool:
        """Whether, as far as is known, the server may also have the other era than this session's."""
        return not (self.has_sole_era or self.agreement.only or self.peer.link.sole_era)

    @property
    def is_local(self) -> bool:
        """Whether the server runs on this machine, so that its end is always noticed."""
        return self.peer.link.is_local

    @property
    def pid(self) -> int | None:
        """The id of the server's process; None if it has none."""
        return self.peer.link.pid

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        envelope: Envelope | None = None,
        on_progress: Progress | None = None,
        schema: dict[str, Any] | None = None,
        cause: Cause = NO_CAUSE,
        open_ended: bool = False,
        is_probe: bool = False,
    ) -> Any:
        """Sends one request in the upstream's era and returns its result, which may be any JSON value.

        Args:
            envelope: that of the client whose call caused the request.
            schema: the inputSchema of the called tool, if `needs_schemas`.
            cause: the call to which messages on the stream of this request are attributed.
            open_ended: as for `Peer.request`.
            is_probe: a refusal is not taken as a sign that the session may be lost.

        Raises:
            UpstreamAnswered: the upstream answered with an error.
            LinkError: the transport failed. SessionLost: the upstream no longer knows the session.
        """
        version = self.agreement.version
        headers = {VERSION_HEADER: version}
        if self.era == "modern":
            own_envelope = Envelope(version, {}, self._info)
            if envelope is not None:
                own_envelope = msgspec.structs.replace(envelope, client_info=self._info)
            params = eras.with_envelope(params, own_envelope)
            if self.needs_schemas:
                param_map = routing_headers.param_map(schema) if schema else None
                headers.update(routing_headers.emit(method, params, param_map or {}))
        try:
            return await self.peer.request(
                method, params, headers=headers, on_progress=on_progress, cause=cause, open_ended=open_ended
            )
        except UpstreamAnswered as error:
            if not is_probe and (error.code in UNKNOWN_SESSION or not error.is_sound):
                await self._lose_if_all_get(error)
            raise
        except LinkError as error:
            error.last_words = error.last_words or self.last_words
            if isinstance(error, SessionLost):
                self.lose(error)
            elif not is_probe and error.status is not None and (error.status == 400 or error.status < 300):
                await self._lose_if_all_get(error)
            raise

    async def _lose_if_all_get(self, refusal: UpstreamAnswered | LinkError) -> None:
        """Raises SessionLost if other requests are refused like one was: then the refusal is about the session.

        A server of the modern era has none, but another one that has not may have taken its place. A ping alone does
        not tell, as some servers refuse every method that they do not know in the same way.
        """
        lists = [kind.list_method for kind in KINDS if self.agreement.offers(kind)]
        if self.is_local or self.lost.is_set():
            return
        for method in ("ping" if self.era == "handshake" else eras.DISCOVER, *lists[:1]):
            if not await self._is_refused_like(refusal, method):
                return
        loss = SessionLost(f"the session is gone, as every request is refused: {printable(str(refusal))}")
        self.lose(loss)
        raise loss from None

    async def _is_refused_like(self, refusal: UpstreamAnswered | LinkError, method: str) -> bool:
        try:
            async with asyncio.timeout(PROBE_WAIT):
                await self.request(method, {}, is_probe=True)
        except UpstreamAnswered as error:
            return isinstance(refusal, UpstreamAnswered) and error.code == refusal.code
        except LinkError as error:
            is_alike = isinstance(refusal, LinkError) and error.status == refusal.status
            return is_alike or isinstance(error, SessionLost)
        except TimeoutError:
            pass
        return False

    async def list_page(self, method: str, params: dict[str, Any]) -> Any:
        """Requests one page of a list.

        Raises:
            LeftOut: the server is a hub that by now serves this hub, or too many hubs in a row; the session ends.
            UpstreamAnswered, LinkError: as for `request`.
        """
        answer = await self.request(method, params, envelope=_LISTING.get(method))
        behind = HubPath.read(answer)
        try:
            if self._ancestry is not None:
                self._ancestry.admit(behind)
        except LeftOut as error:
            self.left_out = error
            self.lose(LinkLost(str(error)))
            raise
        self.nested_hubs = behind
        return answer

    def unusable(self, kind: Kind, item: Any) -> str | None:
        """Returns why a listed item cannot be used, or None if it can: a tool's headers must be well defined."""
        if kind is not TOOLS or not self.needs_schemas or not isinstance(item, dict):
            return None
        return routing_headers.invalid_annotation(item.get("inputSchema"))

    async def find_undeclared(self, seconds: float) -> set[Kind]:
        """Asks once for each list that the server has not declared. Notes in `agreement` which ones it has.

        An error, or no answer within `seconds`, means that it does not have one. Returns those that it has.
        """
        unasked = self.agreement.unasked
        # Noted at once, so that a server that ends because of this is not asked again.
        self.agreement = msgspec.structs.replace(self.agreement, undeclared=())
        answers = await asyncio.gather(*(self._lists(kind, seconds) for kind in unasked))
        found = [kind for kind, is_answered in zip(unasked, answers, strict=True) if is_answered]
        self.agreement = msgspec.structs.replace(self.agreement, undeclared=tuple(kind.name for kind in found))
        return set(found)

    async def _lists(self, kind: Kind, seconds: float) -> bool:
        with contextlib.suppress(LinkError, ProtocolError, TimeoutError):
            async with asyncio.timeout(seconds):
                # Not by `request`, for which some errors would mean that the session is lost.
                headers = {VERSION_HEADER: self.agreement.version}
                answer = await self.peer.request(kind.list_method, {}, headers=headers)
                return isinstance(answer, dict) and isinstance(answer.get(kind.result_key), list)
        return False

    async def log_from(self, level: str) -> None:
        """Makes a server of the handshake era log this level and above. Errors of the server are ignored.

        It waits at most SIDE_WAIT for the answer.
        """
        if self.era == "modern" or "logging" not in self.agreement.capabilities:
            return
        if not is_more_verbose(level, self.log_level):
            return
        self.log_level = level
        with contextlib.suppress(LinkError, ProtocolError, TimeoutError):
            async with asyncio.timeout(SIDE_WAIT):
                await self.request(SET_LEVEL, {"level": level})

    @property
    def busy(self) -> bool:
        """Whether requests are waiting for responses, apart from the one that listens for changes."""
        return self.peer.in_flight > 0

    @property
    def announces_changes(self) -> bool:
        """Whether changes of lists are certain to be announced: the server declares it, and the stream must be open."""
        if self.era == "modern":
            return not self._cannot_listen
        lists = [self.agreement.capabilities.get(kind.capability) for kind in KINDS]
        declared = all(capability.get("listChanged") is True for capability in lists if isinstance(capability, dict))
        declared = declared and not self.agreement.undeclared
        return declared and self.peer.link.is_local  # a stream over a network may have ended unnoticed

    def end(self, error: LinkLost) -> None:
        """Gives up the connection; requests in flight fail with this error."""
        self.peer.lost(error)

    def lose(self, error: LinkError) -> None:
        """Marks the session as lost: no request can be sent on it any more."""
        if not self.lost.is_set():
            self.loss = error
            self.lost.set()

    def watch_for_changes(self, changed: Callable[[], None] | None = None) -> None:
        """Keeps the stream of announced changes open; `changed` is called when some may have been missed.

        The server may send pings on that stream, too.
        """
        self._changed = changed
        if self.era == "modern":
            self._renew_listening()
            return
        self.peer.link.open_standing_stream({VERSION_HEADER: self.agreement.version})

    async def ready_for_questions(self) -> None:
        """Waits at most STANDING_WAIT until the server can send requests outside of the streams of calls.

        The session is closed if this is cancelled, as nobody else has it yet.
        """
        if self.era == "handshake":
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STANDING_WAIT):
                        await self.peer.link.standing_stream()
            except BaseException:
                await asyncio.shield(self.close())
                raise

    async def ready_for_call(self, call: AttributedCall, method: str) -> None:
        """Waits until the server has applied the client's roots, if it asks for them at once.

        If it asked when there was no call to carry the question, it is made to ask again within the first call of a
        tool; few clients expect a question in answer to other requests. An answer to a ping, or to any request, shows
        that the server runs: on a busy machine, time alone does not.
        """
        carries = call.asker is not None and method == TOOLS.act_method
        if (roots := self.first_roots) is None or (roots.is_refused and not carries):
            return
        try:
            async with asyncio.timeout(ROOTS_ANSWER):
                await roots.turn.acquire()
        except TimeoutError:
            self.first_roots = None  # the call before this one is parked, perhaps by a client that is gone
            return
        try:
            if self.first_roots is None:
                return
            with call:  # only now, as two calls could not carry one question
                if roots.is_pending and self.peer.received_count == self._heard_at_first:
                    await self._ping()
                is_answered = await roots.answered() if roots.is_pending else False
                if roots.is_refused and carries:
                    roots.expect()
                    await self.announce(ROOTS_CHANGED)
                    await self._ping()
                    is_answered = await roots.answered()
                if is_answered:
                    await self._ping()
                    await asyncio.sleep(ROOTS_WAIT)
            if carries or not roots.is_refused:
                self.first_roots = None
        finally:
            roots.turn.release()

    async def _ping(self) -> None:
        """Waits at most PROBE_WAIT until the server answers a ping; an error is an answer."""
        with contextlib.suppress(LinkError, ProtocolError, TimeoutError):
            async with asyncio.timeout(PROBE_WAIT):
                await self.request("ping", {})

    async def announce(self, method: str) -> None:
        """Sends a client's notification to a server of the handshake era; a failed link is ignored."""
        if self.era == "handshake":
            with contextlib.suppress(LinkError):
                await self.peer.notify(method, headers={VERSION_HEADER: self.agreement.version})

    async def watch(self, uris: Sequence[str], *, new: str | None = None, old: str | None = None) -> None:
        """Subscribes to changes of exactly these `uris`.

        Args:
            new: the only one that was added since the last call.
            old: the only one that was removed since then; without both, all are new. Those that the server refuses,
                or does not answer within SIDE_WAIT, are left out then.

        Raises:
            TimeoutError: the server did not end the old subscription within SIDE_WAIT.
            UpstreamAnswered, LinkError: as for `request`.
        """
        if self.era == "modern":
            self._watched = list(uris)
            self._renew_listening()
            return
        if old is not None:
            async with asyncio.timeout(SIDE_WAIT):
                await self.request(UNSUBSCRIBE, {"uri": old})
        if new is not None and not new.startswith(WATCHED_TASK):  # this era has no tasks
            await self.request(SUBSCRIBE, {"uri": new})
        for uri in uris if new is None and old is None else ():
            with contextlib.suppress(UpstreamAnswered, TimeoutError):
                async with asyncio.timeout(SIDE_WAIT):
                    await self.request(SUBSCRIBE, {"uri": uri})

    def _renew_listening(self) -> None:
        """Opens a new stream before the old one is closed: the filters of a stream cannot be changed."""
        previous = self._listening
        self._listening = BACKGROUND.keep("listening to a server", self._listen)
        if previous is not None:
            previous.cancel()

    async def _listen(self) -> None:
        attempt = 0
        tasks = [name.removeprefix(WATCHED_TASK) for name in self._watched if name.startswith(WATCHED_TASK)]
        uris = [name for name in self._watched if not name.startswith(WATCHED_TASK)]
        watched = {"resourceSubscriptions": uris, "taskIds": tasks}
        filters = {**LISTEN_FILTERS, **{name: ids for name, ids in watched.items() if ids}}
        envelope = Envelope(capabilities=with_extension({}, TASKS_EXTENSION)) if tasks else None
        while not self.lost.is_set():
            started_at, pause = asyncio.get_running_loop().time(), 0.0
            try:
                await self.request(eras.LISTEN, {"notifications": filters}, envelope=envelope, open_ended=True)
            except UpstreamAnswered as error:
                if error.code == METHOD_NOT_FOUND:
                    self._cannot_listen = True
                    return
            except LinkError as error:
                log.debug("listening ended: %s", error)
                pause = error.retry_after or 0.0
            attempt = 0 if asyncio.get_running_loop().time() - started_at > LISTEN_AGAIN[-1] else attempt
            await set_within(self.lost, max(LISTEN_AGAIN[min(attempt, len(LISTEN_AGAIN) - 1)], pause))
            attempt += 1
            if self._changed is not None:
                self._changed()

    async def close(self) -> None:
        """Ends the session and the server's process, within the link's bounds. Never raises."""
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._listening
        await self.peer.close()
