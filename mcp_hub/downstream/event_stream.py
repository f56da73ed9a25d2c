"""Event streams to clients: the outbox of waiting messages, the log to resume a stream from, and the writing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol

from mcp_hub.downstream import encoded, not_delivered
from mcp_hub.policy.quotas import LARGE, Share
from mcp_hub.protocol.era import CANCELLED
from mcp_hub.transport.background import set_within
from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.sse_codec import COMMENT, encode_event, prime

MAX_WAITING: Final = 256
"""The most messages in an outbox; more notifications are dropped."""
MAX_BYTES: Final = 8 * 1024 * 1024


class Outbox:
    """The encoded messages that wait for one stream, in order.

    It is bounded: notifications above the bounds are dropped and counted, and questions refused. Answers and the
    cancellation of a question are always kept.
    """

    def __init__(self, share: Share | None = None) -> None:
        """`share`: that of the caller who reads the stream."""
        self.dropped = 0
        self.news = asyncio.Event()
        """Set when something was put; the reader clears it."""
        self._waiting: deque[tuple[bytes, str | None]] = deque()
        self._bytes = 0
        self._share = share

    def __repr__(self) -> str:
        return f"Outbox({len(self._waiting)} waiting, {self.dropped} dropped)"

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether a notification would be dropped now."""
        if len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_BYTES:
            return True
        return self._bytes > LARGE and self._share is not None and self._share.full

    @property
    def unread(self) -> int:
        """Returns the number of bytes that wait to be written (ByteQueue)."""
        return self._bytes

    def drop_unread(self) -> bool:
        """Returns False: waiting messages are dropped only with the connection (ByteQueue)."""
        return False

    def clear(self) -> None:
        """Drops everything that waits."""
        self._waiting.clear()
        self._bytes = 0

    def put(self, message: Any) -> None:
        """Adds a message, a list of them as a batch, or the text of one. Never blocks.

        Raises ProtocolError for a question if it is full.
        """
        method = message.get("method") if isinstance(message, dict) else None
        if method is not None and self.full and method != CANCELLED:
            self.dropped += 1
            not_delivered(message)
            return
        data = message if isinstance(message, bytes) else encoded(message)
        self._waiting.append((data, method))
        self._bytes += len(data)
        if self._bytes > LARGE and self._share is not None:
            self._share.watch(self)
        self.news.set()

    def put_once(self, message: Any) -> None:
        """Adds a message, but no second `list_changed` of the same kind while the first one waits."""
        method = message.get("method")
        repeats = isinstance(method, str) and method.endswith("/list_changed")
        if not (repeats and any(method == queued_method for _, queued_method in self._waiting)):
            self.put(message)

    def take(self) -> bytes | None:
        """Removes and returns the oldest message; None if none waits."""
        if not self._waiting:
            return None
        data, _ = self._waiting.popleft()
        self._bytes -= len(data)
        return data

    def take_event(self) -> bytes | None:
        """Removes the oldest message and returns it as an event; None if none waits."""
        data = self.take()
        return encode_event(data) if data is not None else None


MAX_KEPT: Final = 256
"""Written events of one stream that are kept for resumption."""
MAX_KEPT_BYTES: Final = 1024 * 1024
"""Bytes of those events."""
RETRY: Final = 1000
"""Milliseconds that a client is told to wait before it resumes a stream."""


class EventKeeper(Protocol):
    """Keeps the events of a session where every replica of the hub finds them. Its methods never raise."""

    prefix: str
    """The beginning of event ids, which names this replica."""

    def begin(self, stream: int, asked: Any) -> Awaitable[None]:
        """Keeps `asked`, the request or batch that a stream answers."""

    def keep(self, stream: int, number: int, data: bytes | None) -> Awaitable[bool]:
        """Keeps an event; `data` None ends the stream. Returns False if another replica has taken over the stream."""


class EventLog(Outbox):
    """A stream that its client can resume: an outbox that also keeps written events, within bounds.

    `number`: the stream's number in its session. `keeper`: that of its session, where there are several replicas.
    """

    def __init__(self, number: int, share: Share | None = None, keeper: EventKeeper | None = None) -> None:
        super().__init__(share)
        self.number = number
        self.keeper = keeper
        self._kept_until = 0
        """The number of the last event that the keeper has."""
        self._keeping = asyncio.Lock()
        self.done = False
        """Whether it is complete."""
        self.reader: object | None = None
        """Identifies the response that carries the stream now; a newer one replaces it."""
        self.unattended = False
        """Whether it is kept for its client while no response carries it."""
        self._next = 1
        self._rewound: deque[tuple[int, bytes]] = deque()
        self._written: deque[tuple[int, bytes]] = deque()
        self._written_bytes = 0

    @property
    def unread(self) -> int:
        """Returns the number of bytes that wait, and of the kept copy of an answer being written (ByteQueue)."""
        rewound = sum(len(data) for _, data in self._rewound)
        return self._bytes + rewound + (self._written_bytes if self.done and not self.unattended else 0)

    def _prefix(self) -> str:
        return "" if self.keeper is None else self.keeper.prefix

    @property
    def size(self) -> int:
        """Bytes that wait or are kept."""
        return self._written_bytes + self._bytes + sum(len(data) for _, data in self._rewound)

    @property
    def written(self) -> int:
        """The number of the last event before the next one to be written."""
        return (self._rewound[0][0] if self._rewound else self._next) - 1

    def first(self) -> bytes:
        """Returns an event without a message, whose id the client can resume from."""
        return prime(f"{self._prefix()}{self.number}-{self.written}", RETRY)

    @property
    def full(self) -> bool:
        """Whether a notification would be dropped now. Less may wait for a client that is not there."""
        return super().full or (self.unattended and self._bytes >= MAX_KEPT_BYTES)

    def take_event(self) -> bytes | None:
        """Returns the next event and keeps it for resumption; None if none waits."""
        if self._rewound:
            number, data = self._rewound.popleft()
        else:
            oldest = self.take()
            if oldest is None:
                return None
            number, data = self._next, oldest
            self._next += 1
        self._written.append((number, data))
        self._written_bytes += len(data)
        while len(self._written) > MAX_KEPT or (self._written_bytes > MAX_KEPT_BYTES and len(self._written) > 1):
            self._written_bytes -= len(self._written.popleft()[1])
        return encode_event(data, id=f"{self._prefix()}{self.number}-{number}")

    async def keep_written(self, keeper: EventKeeper) -> bool:
        """Passes the event that was taken last to the keeper, before it is written.

        Returns False if it must not be written, because another replica has taken over the stream.
        """
        number, data = self._written[-1]
        async with self._keeping:
            return await self._keep(keeper, [(number, data)])

    async def keep_end(self, keeper: EventKeeper) -> None:
        """Passes everything that waits, and then the end of the stream, to the keeper."""
        async with self._keeping:
            last = self._next + len(self._waiting)
            waiting = zip(range(self._next, last), (data for data, _ in self._waiting), strict=True)
            if await self._keep(keeper, [*self._written, *self._rewound, *waiting]):
                await keeper.keep(self.number, last, None)

    async def _keep(self, keeper: EventKeeper, events: Iterable[tuple[int, bytes]]) -> bool:
        """Passes those events to the keeper that it does not have yet; returns False if it refuses one."""
        for number, data in events:
            if number > self._kept_until:
                if not await keeper.keep(self.number, number, data):
                    return False
                self._kept_until = number
        return True

    def holds(self, last: int) -> bool:
        """Returns whether all events after number `last` are kept."""
        logged = self._written or self._rewound  # an earlier resumption may have written nothing
        oldest = logged[0][0] if logged else self._next
        return oldest - 1 <= last < self._next

    def rewind(self, last: int) -> bool:
        """Queues all events after number `last` to be written again; returns False if they are not kept any more."""
        if not self.holds(last):
            return False
        while self._rewound and self._rewound[0][0] <= last:
            number, data = self._rewound.popleft()
            self._written.append((number, data))
            self._written_bytes += len(data)
        while self._written and self._written[-1][0] > last:
            number, data = self._written.pop()
            self._written_bytes -= len(data)
            self._rewound.appendleft((number, data))
        self.news.set()
        return True

    def __len__(self) -> int:
        return super().__len__() + len(self._rewound)


KEEP_ALIVE: Final = 15.0
"""Seconds of silence until a comment is written; some proxies close streams that are silent for a minute."""


async def news_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for `event` and clears it; returns False if it was not set within so many seconds."""
    is_news = await set_within(event, seconds)
    event.clear()
    return is_news


async def pump(
    request: HttpRequest,
    reply: HttpReply,
    outbox: Outbox,
    is_done: Callable[[], bool],
    replaced: Callable[[], bool] = lambda: False,
) -> None:
    """Writes an outbox to an open stream until the client is gone, or `is_done()` is true and nothing waits.

    With `replaced()` true it ends at once: what waits is for the response that has taken over the outbox, and would be
    lost on this one. Set `outbox.news` after making either of them true.
    """
    request.watch(outbox.news.set)
    log = outbox if isinstance(outbox, EventLog) else None
    keeper = None if log is None else log.keeper
    try:
        while not request.disconnected:
            if replaced():
                await reply.end()
                return
            event = outbox.take_event()
            if event is not None:
                if keeper is not None and log is not None and not await log.keep_written(keeper):
                    await reply.end()
                    return
                await reply.write(event)
            elif is_done():
                await reply.end()
                return
            elif not await news_within(outbox.news, KEEP_ALIVE):
                await reply.write(COMMENT)
    except ClientGone:
        return
    finally:
        request.unwatch()
