"""A stream whose client may lose its connection and come back: events with ids, kept for a while, within bounds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.downstream.backlog import Share
from mcp_hub.downstream.outbox import Outbox
from mcp_hub.transport.sse import encode_event, prime

MAX_KEPT: Final = 256
"""Events of one stream that were written and can be asked for again."""
MAX_KEPT_BYTES: Final = 1024 * 1024
"""Of one stream, likewise."""
MAX_STREAMS: Final = 64
"""Streams of one session that nobody reads; of one more the oldest is given up."""
MAX_TOTAL: Final = 64 * 1024 * 1024
"""Bytes of all streams of one listener that nobody reads."""
RESUME_WITHIN: Final = 300.0
"""Seconds a call goes on whose client has lost its connection."""
REMEMBERED: Final = 60.0
"""Seconds a finished stream is kept: its end may have been written and not have arrived."""
RETRY: Final = 1000
"""Milliseconds a client is told to wait before it comes back."""


class EventLog(Outbox):
    """One stream of a session: what waits to be written, and what was. `number` is the stream's in its session."""

    def __init__(self, number: int, share: Share | None = None) -> None:
        super().__init__(share)
        self.number = number
        self.done = False
        """Whether nothing will be added."""
        self.reader: object | None = None
        """Whoever writes it to a client now; a newer one takes its place."""
        self.grown: Callable[[EventLog], None] | None = None
        """Told when it holds more, while nobody reads it."""
        self._next = 1
        self._again: deque[tuple[int, bytes]] = deque()
        self._written: deque[tuple[int, bytes]] = deque()
        self._written_bytes = 0

    @property
    def unread(self) -> int:
        """Bytes that wait (Queue), and of an answer that is being written also the copy that is kept."""
        again = sum(len(data) for _, data in self._again)
        return self._bytes + again + (self._written_bytes if self.done and self.grown is None else 0)

    @property
    def size(self) -> int:
        """Bytes it holds."""
        return self._written_bytes + self._bytes + sum(len(data) for _, data in self._again)

    def first(self) -> bytes:
        """The event that only gives an id to come back with."""
        return prime(f"{self.number}-0", RETRY)

    def put(self, message: Any) -> None:
        """Add a message, or a list of them as a batch. Never blocks, never raises."""
        super().put(message)
        if self.grown is not None:
            self.grown(self)

    def take_event(self) -> bytes | None:
        """The next event, None if none waits; it is kept."""
        if self._again:
            number, data = self._again.popleft()
        else:
            taken = self.take()
            if taken is None:
                return None
            number, data = self._next, taken
            self._next += 1
        self._written.append((number, data))
        self._written_bytes += len(data)
        while len(self._written) > MAX_KEPT or (self._written_bytes > MAX_KEPT_BYTES and len(self._written) > 1):
            self._written_bytes -= len(self._written.popleft()[1])
        return encode_event(data, id=f"{self.number}-{number}")

    def rewind(self, last: int) -> bool:
        """Have everything after event `last` written again; False if that is not kept any more."""
        oldest = self._written[0][0] if self._written else self._next
        if not oldest - 1 <= last < self._next:
            return False
        while self._written and self._written[-1][0] > last:
            number, data = self._written.pop()
            self._written_bytes -= len(data)
            self._again.appendleft((number, data))
        self.news.set()
        return True

    def end(self, answer: Any) -> None:
        """Add the answer: the last event."""
        self.put(answer)
        self.done = True
        self.news.set()

    def __len__(self) -> int:
        return super().__len__() + len(self._again)


class Streams:
    """The streams of one session that can be come back to; 0 is the standing one. `total` counts for the listener."""

    def __init__(self, total: Total, share: Share | None = None) -> None:
        self.standing = EventLog(0, share)
        self._share = share
        self._total = total
        self._logs: OrderedDict[int, EventLog] = OrderedDict()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._given_up: dict[int, Callable[[], object]] = {}
        self._last = 0

    def new(self) -> EventLog:
        """The stream of a request, known to nobody before `leave`."""
        self._last += 1
        return EventLog(self._last, self._share)

    def find(self, event_id: str) -> tuple[EventLog, int] | None:
        """The stream and the number of an event in it; None for what is not of this session, or gone."""
        number, _, event = event_id.partition("-")
        if not (number.isdecimal() and event.isdecimal() and len(event_id) < 40):
            return None
        log = self.standing if int(number) == 0 else self._logs.get(int(number))
        return (log, int(event)) if log is not None else None

    def leave(self, log: EventLog, give_up: Callable[[], object] | None, seconds: float = RESUME_WITHIN) -> None:
        """Nobody reads a stream any more. `give_up()` is called if nobody comes back in time, or room is needed."""
        self._logs[log.number] = log
        self._logs.move_to_end(log.number)
        if give_up is not None:
            self._given_up[log.number] = give_up
        self._set_timer(log.number, seconds)
        self._total.left(self, log)
        while len(self._logs) > MAX_STREAMS:
            self.forget(next(iter(self._logs)))

    def leave_be(self, log: EventLog) -> None:
        """Its call has ended: there is nothing to give up but the stream, and the call's own result is not kept."""
        self._given_up.pop(log.number, None)

    def left_again(self, log: EventLog) -> None:
        """Whoever came back to a stream is gone too."""
        if log.number in self._logs:
            self._set_timer(log.number, REMEMBERED if log.done else RESUME_WITHIN)

    def resumed(self, log: EventLog) -> None:
        """Somebody reads it again."""
        timer = self._timers.pop(log.number, None)
        if timer is not None:
            timer.cancel()

    def forget(self, number: int) -> None:
        """A stream is given up."""
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
        log = self._logs.pop(number, None)
        give_up = self._given_up.pop(number, None)
        if log is not None:
            self._total.gone(log)
        if give_up is not None:
            give_up()

    def close(self) -> None:
        """The session ends."""
        for number in list(self._logs):
            self.forget(number)

    def _set_timer(self, number: int, seconds: float) -> None:
        before = self._timers.pop(number, None)
        if before is not None:
            before.cancel()
        self._timers[number] = asyncio.get_running_loop().call_later(seconds, self.forget, number)


class Total:
    """Bounds what all sessions of a listener keep: where there is no room, the stream left longest is given up."""

    def __init__(self) -> None:
        self._left: OrderedDict[EventLog, Streams] = OrderedDict()
        self._sizes: dict[EventLog, int] = {}
        self._bytes = 0

    def left(self, streams: Streams, log: EventLog) -> None:
        """A stream is kept."""
        self.gone(log)
        self._left[log] = streams
        log.grown = self._measure
        self._measure(log)

    def gone(self, log: EventLog) -> None:
        """It is not kept any more."""
        self._left.pop(log, None)
        self._bytes -= self._sizes.pop(log, 0)
        log.grown = None

    def _measure(self, log: EventLog) -> None:
        self._bytes += log.size - self._sizes.get(log, 0)
        self._sizes[log] = log.size
        while len(self._left) > 1 and self._bytes > MAX_TOTAL:
            oldest, of = next(iter(self._left.items()))
            of.forget(oldest.number)
