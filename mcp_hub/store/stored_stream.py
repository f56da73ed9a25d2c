"""The events of one stream to a client, in the store: any replica can continue it if its own one has died."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from mcp_hub.store import Script, Store
from mcp_hub.store.replica_keys import ReplicaKeys

MAX_EVENTS: Final = 256
"""Events of one stream that are kept."""
KEPT_SECONDS: Final = 300
"""Seconds for which a stream is kept after its last event."""
LOOK_EVERY: Final = 0.1
"""Seconds between two polls for further events."""
PAGE: Final = 64
"""Events that are read at once."""

_APPEND: Final = Script("""
local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', ARGV[2], ARGV[3] .. '-1', 'e', ARGV[1])
if type(added) == 'table' and added.err then
    return string.find(added.err, 'WRONGTYPE') and redis.error_reply(added.err) or 0
end
redis.call('EXPIRE', KEYS[1], ARGV[4])
redis.call('EXPIRE', KEYS[2], ARGV[4])
return 1
""")


class StoredEvent(NamedTuple):
    """A stored event. `data` is the text of its message; None: the stream ends here."""

    number: int
    data: bytes | None


class StoredStream:
    """The stream `name` of a session. Numbers of its events begin at 1 and grow by one.

    Events are signed with their place. Those that no replica has signed for it count as not stored.
    """

    def __init__(self, store: Store, keys: Callable[[], ReplicaKeys], name: str) -> None:
        self._store = store
        self._keys = keys
        self._name = f"stream:{name}"

    async def append(self, number: int, data: bytes | None) -> bool:
        """Adds an event; None ends the stream. Returns False if an event with this number is stored.

        Raises StoreUnavailable.
        """
        keys = [self._name, f"{self._name}:asked"]
        signed = self._signed(number, data or b"")
        return bool(await _APPEND.run(self._store, keys, signed, MAX_EVENTS, number, KEPT_SECONDS))

    async def begin(self, requests: bytes) -> None:
        """Stores the requests that the stream answers. Raises StoreUnavailable."""
        signed = self._signed(0, requests)
        await self._store.execute("SET", self._store.key(f"{self._name}:asked"), signed, "EX", KEPT_SECONDS)

    async def requests(self) -> bytes | None:
        """Returns the requests that the stream answers; None if they are not stored. Raises StoreUnavailable."""
        return self._opened(0, await self._store.execute("GET", self._store.key(f"{self._name}:asked")))

    async def read(self, after: int) -> list[StoredEvent] | None:
        """Returns the events after a number; None if some of them are no longer stored. Raises StoreUnavailable."""
        key = self._store.key(self._name)
        entries = await self._store.execute("XRANGE", key, f"({after}-1", "+", "COUNT", PAGE)
        events = self._events(entries)
        if not events:
            if after and not await self._store.execute("XRANGE", key, f"{after}-1", f"{after}-1"):
                return None
            return []
        return events if events[0].number == after + 1 and events[-1].number == after + len(events) else None

    async def all_events(self) -> list[StoredEvent]:
        """Returns all stored events. Raises StoreUnavailable."""
        entries = await self._store.execute("XRANGE", self._store.key(self._name), "-", "+")
        return self._events(entries)

    def _events(self, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[StoredEvent]:
        events = []
        for id, fields in entries:
            number = int(id.partition(b"-")[0])
            if (data := self._opened(number, fields.get(b"e"))) is not None:
                events.append(StoredEvent(number, data or None))
        return events

    def _signed(self, number: int, data: bytes) -> bytes:
        return f"{self._keys().sign(self._place(number), data)} ".encode() + data

    def _opened(self, number: int, signed: bytes | None) -> bytes | None:
        """Returns what was signed for this place; None if nothing was."""
        mac, _, data = (signed or b"").partition(b" ")
        return data if self._keys().is_signed(self._place(number), data, mac.decode("latin-1")) else None

    def _place(self, number: int) -> str:
        return f"event {number} of {self._name}"
