"""One client of the handshake era over HTTP: its session, and the streams that it can resume."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.downstream import Connection, error_response
from mcp_hub.downstream.event_stream import EventKeeper, EventLog
from mcp_hub.errors import INVALID_REQUEST, ProtocolError
from mcp_hub.policy.quotas import Share
from mcp_hub.protocol.era import CANCELLED
from mcp_hub.protocol.frames import Message
from mcp_hub.security.callers import Caller

if TYPE_CHECKING:
    from mcp_hub.downstream.replicas.ownership import Ownership
    from mcp_hub.downstream.replicas.watched_resources import WatchedResources
    from mcp_hub.security import Principal

MAX_STREAMS: Final = 64
"""The most finished streams that one session keeps; with one more, the oldest is dropped."""
MAX_TOTAL: Final = 64 * 1024 * 1024
"""The most bytes in the finished streams that all sessions of one listener keep."""
RESUME_WITHIN: Final = 300.0
"""Seconds for which a call goes on after its client has lost the connection."""
REMEMBERED: Final = 60.0
"""Seconds for which a finished stream is kept, as the client may not have received its last bytes."""


ASKED_FOR: Final = 15.0
"""Seconds for which a question on the standing stream waits for the client to open that stream."""


class SessionStreams:
    """The resumable streams of one session; number 0 is the standing stream.

    A stream that is finished and that nobody reads is kept while there is room. The stream of a running call, and one
    that is read, are never dropped for others.

    `total` is the budget that all sessions of the listener share, `principal` the owner of the session.
    """

    def __init__(self, total: RetentionBudget, share: Share | None = None, principal: str = "") -> None:
        self.standing = EventLog(0, share)
        self.keeper: EventKeeper | None = None
        self.principal = principal
        self._share = share
        self._total = total
        self._logs: dict[int, EventLog] = {}
        """The streams that can be resumed, but those that a response to a POST still carries."""
        self._finished: OrderedDict[int, int] = OrderedDict()
        """Number -> bytes of the streams that may be dropped, the one that was kept first first."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._given_up: dict[int, Callable[[], object]] = {}
        self._written: dict[int, tuple[EventLog, Callable[[], object]]] = {}
        """By number: a stream that a response to a POST carries, and a function that takes it from that response."""
        self._last = 0

    def new(self) -> EventLog:
        """Returns the stream of a new request. It can be found only after `begin` or `keep`."""
        self._last += 1
        return EventLog(self._last, self._share, self.keeper)

    def keep_with(self, keeper: EventKeeper) -> None:
        """Keeps the events of this session with `keeper`, for all replicas."""
        self.keeper = self.standing.keeper = keeper

    def begin(self, log: EventLog, take: Callable[[], object]) -> None:
        """Notes that a response sends the events of a stream. `take()` ends that response and calls `keep`."""
        self._written[log.number] = log, take

    def end(self, log: EventLog) -> None:
        """Notes that no response sends the events of a stream any more."""
        self._written.pop(log.number, None)

    def resume(self, event_id: str) -> EventLog | None:
        """Returns the stream of an event, rewound to it; None for an unknown id or one that is not kept any more.

        A stream that is still written to another response is taken from it: the client has lost that connection, but
        the hub has not noticed yet. A response whose stream cannot be resumed from the event goes on.
        """
        text, _, event = event_id.removeprefix("" if self.keeper is None else self.keeper.prefix).partition("-")
        if not (text.isdecimal() and event.isdecimal() and len(text) + len(event) < 40):
            return None
        number = int(text)
        log, take = self._written.get(number, (self._logs.get(number), None))
        log = self.standing if number == 0 else log
        if log is None or not log.holds(int(event)):
            return None
        if take is not None:
            self._written.pop(number)
            take()
        log.rewind(int(event))
        return log

    def keep(self, log: EventLog, give_up: Callable[[], object] | None, seconds: float = RESUME_WITHIN) -> None:
        """Keeps a stream that nobody reads; calls `give_up()` if it is not resumed in time."""
        self._logs[log.number] = log
        if give_up is not None:
            self._given_up[log.number] = give_up
        self._set_timer(log.number, seconds)
        self._sort(log)

    def finish(self, log: EventLog) -> None:
        """Notes that the call of a kept stream has ended; its client has time to come back for the answer."""
        self._given_up.pop(log.number, None)
        timer = self._timers.get(log.number)
        if timer is not None and timer.when() < asyncio.get_running_loop().time() + REMEMBERED:
            self._set_timer(log.number, REMEMBERED)
        self._sort(log)

    def begin_reading(self, log: EventLog) -> None:
        """Notes that a response to a GET carries a stream: it has no timeout."""
        self._stop_timer(log.number)
        self._sort(log)

    def end_reading(self, log: EventLog) -> None:
        """Starts the timeout of a stream again, after its reader has gone."""
        if log.number in self._logs:
            self._set_timer(log.number, REMEMBERED if log.done else RESUME_WITHIN)
        self._sort(log)

    def drop_oldest(self, newest: EventLog | None = None) -> bool:
        """Drops the finished stream that was kept first; returns False if there is none, or only `newest`."""
        number = next(iter(self._finished), None)
        if number is None or (newest is not None and self._logs[number] is newest):
            return False
        self.forget(number)
        return True

    def forget(self, number: int) -> None:
        """Drops a stream, and cancels its call if that still runs."""
        self._stop_timer(number)
        log = self._logs.pop(number, None)
        give_up = self._given_up.pop(number, None)
        if log is not None:
            self._sort(log)
        if give_up is not None:
            give_up()

    def close(self) -> None:
        """Drops all streams; the session ends."""
        for number in list(self._logs):
            self.forget(number)

    def _sort(self, log: EventLog) -> None:
        """Notes whether a stream is carried by a response, and whether it may be dropped."""
        number = log.number
        log.unattended = number in self._logs and log.reader is None
        self._total.change(self, -self._finished.pop(number, 0))
        if log.unattended and log.done:
            self._finished[number] = log.size
            self._total.change(self, log.size)
            if len(self._finished) > MAX_STREAMS:
                self.drop_oldest()
            self._total.make_room(log)

    def _set_timer(self, number: int, seconds: float) -> None:
        self._stop_timer(number)
        self._timers[number] = asyncio.get_running_loop().call_later(seconds, self.forget, number)

    def _stop_timer(self, number: int) -> None:
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()


class Resumable(msgspec.Struct, frozen=True):
    """The streams of a request's session. `primes`: whether its client accepts events without a message.

    `asked`: the request or batch.
    """

    streams: SessionStreams
    primes: bool
    asked: Any


class RetentionBudget:
    """Bounds the bytes of the finished streams that all sessions of a listener keep.

    Above MAX_TOTAL, the principal with most bytes gives up the oldest stream of its session with most bytes.
    """

    def __init__(self) -> None:
        self._by_session: Counter[SessionStreams] = Counter()
        self._by_principal: Counter[str] = Counter()
        self._bytes = 0

    def change(self, streams: SessionStreams, size: int) -> None:
        """Adds to the bytes of a session, or takes from them."""
        if not size:
            return
        self._bytes += size
        self._by_session[streams] += size
        self._by_principal[streams.principal] += size
        if not self._by_session[streams]:
            del self._by_session[streams]
        if not self._by_principal[streams.principal]:
            del self._by_principal[streams.principal]

    def make_room(self, newest: EventLog) -> None:
        """Drops streams until the rest is within the budget, but never `newest`, which was kept just now."""
        while self._bytes > MAX_TOTAL and max(self._by_session, key=self._weight).drop_oldest(newest):
            pass

    def _weight(self, streams: SessionStreams) -> tuple[int, int]:
        return self._by_principal[streams.principal], self._by_session[streams]


class HandshakeSession:
    """One client after `initialize`, with a secret id."""

    def __init__(self, principal: Principal, now: float, total: RetentionBudget, share: Share) -> None:
        self.id = secrets.token_urlsafe(24)
        """192 random bits, visible ASCII; or the sealed id by which every replica knows it."""
        self.ownership: Ownership | None = None
        """Which replica owns it; None if there is one process only."""
        self.watched: WatchedResources | None = None
        """The resources it subscribes to, where several replicas serve it."""
        self.passed_on: Callable[[Message], bool] = lambda message: False
        """Passes a message on to the replica that has its standing stream; returns False if it is this one."""
        self.share = share
        """Its share of the bytes that wait to be read by clients."""
        self.streams = SessionStreams(total, share, principal)
        """The streams of its requests, and the standing stream."""
        self.standing = self.streams.standing
        self.continued: tuple[object, int] | None = None
        """The event of another replica that the standing stream continues after, and its own last event before that."""
        self.principal = principal
        self.caller = Caller(principal)
        self.connection = Connection(self.caller, self._reach)
        self.closed: Callable[[], None] | None = None
        """Called when the session ends at this replica."""
        self.is_ended = False
        self.busy = 0
        """Number of exchanges in progress, including the standing stream."""
        self.used = now

    def _reach(self, message: Message) -> None:
        """Sends a message on the standing stream, whichever replica has it."""
        if self.passed_on(message):
            return
        self.standing.put_once(message)
        if "id" in message and self.standing.reader is None:
            loop = asyncio.get_running_loop()
            loop.call_later(ASKED_FOR, self._give_question_up, message, self.standing.written)

    def _give_question_up(self, question: Message, written: int) -> None:
        """Ends a question on the standing stream if nothing has been written there since."""
        if self.standing.reader is None and self.standing.written == written:
            fault = ProtocolError(INVALID_REQUEST, "The client has not opened the stream on which it could be asked.")
            self.connection.take_answer(error_response(question["id"], fault))
            self.standing.put({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": question["id"]}})

    def let_stream_go(self) -> None:
        """Ends the response that carries the standing stream, so that the client connects to the replica that has it.

        Waiting messages are dropped: the other replica has sent them already, if this one was paused for a while.
        """
        self.standing.clear()
        self.standing.reader = None
        self.standing.news.set()

    def end(self) -> None:
        """Ends the standing stream, and drops the streams that were kept for resumption."""
        if self.closed is not None and not self.is_ended:
            self.closed()
        self.is_ended = True
        self.streams.close()
        self.standing.news.set()
