"""The bytes that wait for clients: counted for each caller and for all, and bounded.

An answer that has to be queued is let in while there is room, and is answered `overloaded` in its place where there is
none. What a client reads at once never gets here: only what is large is looked at, and then the queues are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import msgspec

from mcp_hub.config.listen import Unread
from mcp_hub.downstream.quotas import FREE
from mcp_hub.errors import INTERNAL_ERROR, Overloaded, to_wire
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import FrameError, Message, encode

LARGE: Final = 64 * 1024
"""Bytes from which on something is measured. What is smaller is bounded by the number of requests and connections."""
STALLED: Final = 5.0
"""Seconds without a byte read after which a connection is dropped, if the room it takes is needed by others."""
RETRY_AFTER: Final = 1.0
MAX_KNOWN: Final = 1024
"""Callers known by a key whose share is kept although nothing is in it."""


class Queue(Protocol):
    """Something that holds bytes for one client; it can be referred to weakly."""

    @property
    def unread(self) -> int:
        """Bytes that it holds now."""

    def drop_unread(self) -> bool:
        """Drop what it holds, and the connection it is for; False if it cannot."""


class Held:
    """An answer that waits for its turn on a connection (Queue)."""

    __slots__ = ("__weakref__", "unread")

    def __init__(self, unread: int) -> None:
        self.unread = unread

    def drop_unread(self) -> bool:
        """It goes with its connection."""
        return False


class _Seen(msgspec.Struct):
    """The least that a queue was seen to hold, and when: one that holds less than before is being read."""

    unread: int
    since: float


class Share:
    """What waits for one caller. It is answered here whether more may."""

    __slots__ = ("__weakref__", "_backlog", "_queues", "_requests")

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._queues: WeakKeyDictionary[Queue, _Seen] | None = None
        """None until something was large enough to be counted, which is never for most callers."""
        self._requests = 0

    @property
    def waiting(self) -> int:
        """Bytes that wait now: the caller's own requests, and what it has not read."""
        if self._queues is None:
            return self._requests
        now, total = self._backlog.clock(), self._requests
        for queue, seen in list(self._queues.items()):
            unread = queue.unread
            if not unread:
                del self._queues[queue]
            elif unread != seen.unread:
                seen.unread, seen.since = unread, now
            total += unread
        return total

    @property
    def full(self) -> bool:
        """Whether the caller has so much to read that nothing more should be done for it."""
        return self._queues is not None and self.waiting >= self._backlog.bounds().caller

    def watch(self, queue: Queue) -> None:
        """Count what is in a queue, for as long as something is."""
        if self._queues is None:
            self._queues = WeakKeyDictionary()
        if queue not in self._queues:
            self._backlog.active.add(self)
            self._queues[queue] = _Seen(queue.unread, self._backlog.clock())

    def stalled(self) -> list[tuple[int, Queue]]:
        """The queues nobody has read from for long, with the bytes they hold."""
        oldest = self._backlog.clock() - STALLED
        queues = list(self._queues.items()) if self._queues is not None else []
        return [(seen.unread, queue) for queue, seen in queues if seen.since <= oldest]

    def refusal(self, size: int) -> Overloaded | None:
        """Why so many bytes more may not wait; None if they may. Nothing is refused while nothing waits."""
        waiting, bounds = self.waiting, self._backlog.bounds()
        if waiting and waiting + size > bounds.caller:
            text = f"{waiting:,} bytes wait for this client, and {bounds.caller:,} may (setting: unread.caller)."
        elif self._backlog.has_room(size, max(bounds.total, bounds.caller)):
            return None
        else:
            text = f"Too much waits for other clients: {bounds.total:,} bytes may (setting: unread.total)."
        return Overloaded(f"{text} There is no room for {size:,} more.", retry_after=RETRY_AFTER)

    def encoded(self, answer: Any, request: Any) -> bytes:
        """JSON text of the answer to a request, or to a list of them; of its refusal where there is no room for it."""
        data = encoded(answer)
        if len(data) >= LARGE and (refusal := self.refusal(len(data))) is not None:
            return encoded(declined(request, refusal))
        return data

    def begin(self, request: Any, size: int) -> Overloaded | None:
        """A request (or a list of them) of so many bytes begins, and ends with `end`; or the reason why it must not."""
        if size < LARGE and self._queues is None:
            return None
        if self.full and not (isinstance(request, dict) and str(request.get("method")) in FREE):
            text = f"{self.waiting:,} bytes wait for this client to read them: it has to, before it asks for more"
            bound = f"{self._backlog.bounds().caller:,} bytes may (setting: unread.caller)"
            return Overloaded(f"{text}; {bound}.", retry_after=RETRY_AFTER, executed=False)
        if size < LARGE:
            return None
        refusal = self.refusal(size)
        if refusal is not None:
            refusal.executed = False
        else:
            self._requests += size
            self._backlog.active.add(self)
        return refusal

    def end(self, size: int) -> None:
        """A request that was let in has ended."""
        if size >= LARGE:
            self._requests -= size


class Backlog:
    """The shares of all callers. `bounds()` are those in force, `clock()` gives seconds."""

    def __init__(self, bounds: Callable[[], Unread] = Unread, clock: Callable[[], float] = time.monotonic) -> None:
        self.bounds = bounds
        self.clock = clock
        self.active: set[Share] = set()
        """Those with something in them, and some that had."""
        self._of: dict[Hashable, Share] = {}

    def share(self) -> Share:
        """That of a caller with a session or connection of its own."""
        return Share(self)

    def of(self, key: Hashable) -> Share:
        """That of a caller who is known by a key; the same for as long as something waits."""
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= MAX_KNOWN:
                self._of = {known: share for known, share in self._of.items() if share in self.active}
            found = self._of[key] = Share(self)
        return found

    @property
    def waiting(self) -> int:
        """Bytes that wait for all."""
        total = 0
        for share in list(self.active):
            waiting = share.waiting
            if not waiting:
                self.active.discard(share)
            total += waiting
        return total

    def has_room(self, size: int, bound: int) -> bool:
        """Whether so many bytes more may wait. Connections that nobody reads from are dropped where that makes room."""
        waiting = self.waiting
        if not waiting or waiting + size <= bound:
            return True
        stalled = sorted((one for share in self.active for one in share.stalled()), key=lambda one: -one[0])
        for unread, queue in stalled:
            if waiting + size <= bound:
                break
            if queue.drop_unread():
                waiting -= unread
        return waiting + size <= bound


def declined(request: Any, error: Overloaded) -> Any:
    """What a request is answered in place of its result; of a list of them, each."""
    if isinstance(request, list):
        return [declined(one, error) for one in request if isinstance(one, dict) and "id" in one]
    params = request.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    method = request.get("method")
    answer: Message = {"jsonrpc": "2.0", "id": request.get("id")}
    answer |= to_wire(error, method if isinstance(method, str) else None, name if isinstance(name, str) else None)
    if "result" in answer and eras.is_modern(params):
        answer["result"]["resultType"] = "complete"
    return answer


def encoded(message: Any) -> bytes:
    """JSON text of a message; an answer that JSON cannot say becomes an error with its id."""
    try:
        return encode(message)
    except FrameError:
        request_id = message.get("id") if isinstance(message, dict) else None
        error = {"code": INTERNAL_ERROR, "message": "The answer cannot be written as JSON."}
        return encode({"jsonrpc": "2.0", "id": request_id, "error": error})
