"""One client of the handshake era over HTTP: its session, and the streams that it can resume."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.downstream import Caller
from mcp_hub.downstream.event_stream import EventKeeper, EventLog
from mcp_hub.policy.quotas import Share
from mcp_hub.protocol.frames import Message

if TYPE_CHECKING:
    from mcp_hub.downstream.replicas.ownership import Ownership
    from mcp_hub.downstream.replicas.watched_resources import WatchedResources
    from mcp_hub.security import Principal

MAX_STREAMS: Final = 64
"""The most streams of one session that nobody reads; with one more, the oldest is dropped."""
MAX_TOTAL: Final = 64 * 1024 * 1024
"""The most bytes in all streams of one listener that nobody reads."""
RESUME_WITHIN: Final = 300.0
"""Seconds for which a call goes on after its client has lost the connection."""
REMEMBERED: Final = 60.0
"""Seconds for which a finished stream is kept, as the client may not have received its last bytes."""


class SessionStreams:
    """The resumable streams of one session; number 0 is the standing stream.

    `total` is the budget that all sessions of the listener share.
    """

    def __init__(self, total: RetentionBudget, share: Share | None = None) -> None:
        self.standing = EventLog(0, share)
        self.keeper: EventKeeper | None = None
        self._share = share
        self._total = total
        self._logs: OrderedDict[int, EventLog] = OrderedDict()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._given_up: dict[int, Callable[[], object]] = {}
        self._written: dict[int, Callable[[], object]] = {}
        """By stream number: a function that takes the stream from the response that is still written from it."""
        self._last = 0

    def new(self) -> EventLog:
        """Returns the stream of a new request. It can be found only after `keep`."""
        self._last += 1
        return EventLog(self._last, self._share, self.keeper)

    def keep_with(self, keeper: EventKeeper) -> None:
        """Keeps the events of this session with `keeper`, for all replicas."""
        self.keeper = self.standing.keeper = keeper

    def begin(self, log: EventLog, take: Callable[[], object]) -> None:
        """Notes that a response sends the events of a stream. `take()` ends that response and calls `keep`."""
        self._written[log.number] = take

    def end(self, log: EventLog) -> None:
        """Notes that no response sends the events of a stream any more."""
        self._written.pop(log.number, None)

    def find(self, event_id: str) -> tuple[EventLog, int] | None:
        """Returns the stream and number of an event; None for an unknown id or one that is not kept any more.

        A stream that is still written to another response is taken from it: the client has lost that connection, but
        the hub has not noticed yet.
        """
        number, _, event = event_id.removeprefix("" if self.keeper is None else self.keeper.prefix).partition("-")
        if not (number.isdecimal() and event.isdecimal() and len(number) + len(event) < 40):
            return None
        take = self._written.pop(int(number), None)
        if take is not None:
            take()
        log = self.standing if int(number) == 0 else self._logs.get(int(number))
        return (log, int(event)) if log is not None else None

    def keep(self, log: EventLog, give_up: Callable[[], object] | None, seconds: float = RESUME_WITHIN) -> None:
        """Keeps a stream that nobody reads; calls `give_up()` if it is not resumed in time or memory is needed."""
        self._logs[log.number] = log
        self._logs.move_to_end(log.number)
        if give_up is not None:
            self._given_up[log.number] = give_up
        self._set_timer(log.number, seconds)
        self._total.add(self, log)
        while len(self._logs) > MAX_STREAMS:
            self.forget(next(iter(self._logs)))

    def detach_call(self, log: EventLog) -> None:
        """Removes the `give_up` of a stream whose call has ended."""
        self._given_up.pop(log.number, None)

    def restart_timeout(self, log: EventLog) -> None:
        """Starts the timeout of a stream again, after another reader has gone."""
        if log.number in self._logs:
            self._set_timer(log.number, REMEMBERED if log.done else RESUME_WITHIN)

    def stop_timeout(self, log: EventLog) -> None:
        """Stops the timeout of a stream that is read again."""
        timer = self._timers.pop(log.number, None)
        if timer is not None:
            timer.cancel()

    def forget(self, number: int) -> None:
        """Drops a stream, and cancels its call if that still runs."""
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
        log = self._logs.pop(number, None)
        give_up = self._given_up.pop(number, None)
        if log is not None:
            self._total.remove(log)
        if give_up is not None:
            give_up()

    def close(self) -> None:
        """Drops all streams; the session ends."""
        for number in list(self._logs):
            self.forget(number)

    def _set_timer(self, number: int, seconds: float) -> None:
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
        self._timers[number] = asyncio.get_running_loop().call_later(seconds, self.forget, number)


class Resumable(msgspec.Struct, frozen=True):
    """The streams of a request's session. `primes`: whether its client accepts events without a message.

    `asked`: the request or batch.
    """

    streams: SessionStreams
    primes: bool
    asked: Any


class RetentionBudget:
    """Bounds the bytes that all sessions of a listener keep; above MAX_TOTAL it drops the stream kept for longest."""

    def __init__(self) -> None:
        self._streams_by_log: OrderedDict[EventLog, SessionStreams] = OrderedDict()
        self._sizes: dict[EventLog, int] = {}
        self._bytes = 0

    def add(self, streams: SessionStreams, log: EventLog) -> None:
        """Counts a stream that is kept."""
        self.remove(log)
        self._streams_by_log[log] = streams
        log.grown = self._measure
        self._measure(log)

    def remove(self, log: EventLog) -> None:
        """Stops counting a stream."""
        self._streams_by_log.pop(log, None)
        self._bytes -= self._sizes.pop(log, 0)
        log.grown = None

    def _measure(self, log: EventLog) -> None:
        self._bytes += log.size - self._sizes.get(log, 0)
        self._sizes[log] = log.size
        while len(self._streams_by_log) > 1 and self._bytes > MAX_TOTAL:
            oldest, streams = next(iter(self._streams_by_log.items()))
            streams.forget(oldest.number)


class HandshakeSession:
    """One client after `initialize`, with a secret id. `shared`: whether several replicas serve it."""

    def __init__(
        self, principal: Principal, now: float, total: RetentionBudget, share: Share, *, shared: bool = False
    ) -> None:
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
        self.streams = SessionStreams(total, share)
        """The streams of its requests, and the standing stream."""
        self.standing = self.streams.standing
        self.continued: tuple[Hashable, int] | None = None
        """The event of another replica that the standing stream continues after, and its own last event before that."""
        self.principal = principal
        self.caller = Caller(principal, self._reach if shared else self.standing.put_once)
        self.closed: Callable[[], None] | None = None
        """Called when the session ends at this replica."""
        self.is_ended = False
        self.busy = 0
        """Number of exchanges in progress, including the standing stream."""
        self.used = now

    def _reach(self, message: Message) -> None:
        """Sends a message on the standing stream, whichever replica has it."""
        if not self.passed_on(message):
            self.standing.put_once(message)

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
