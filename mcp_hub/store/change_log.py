"""A log of changes in the store, by which replicas inform each other. Each replica reads it from its last position."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mcp_hub.errors import Overloaded
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.store import Script, Store
from mcp_hub.store.replica_keys import FRESH, ReplicaKeys

log = logging.getLogger("mcp_hub.store")

MAX_CHANGES: Final = 10_000
"""Changes that are kept; beyond that, the oldest are dropped."""
MAX_CHANGE: Final = 1024 * 1024
"""Bytes of one change."""
KEPT_SECONDS: Final = 7 * 24 * 3600
"""Seconds for which changes are kept after the last one."""
PAGE: Final = 200
"""Changes that are read at once."""
_KIND: Final = "change"
"""The kind under which changes are signed."""

_APPEND: Final = Script("""
local id = redis.pcall('XADD', KEYS[1], 'MAXLEN', ARGV[2], '*', 'c', ARGV[1])
if type(id) == 'table' and string.find(id.err, 'exhausted') then
    redis.call('DEL', KEYS[1])
    id = redis.call('XADD', KEYS[1], '*', 'c', ARGV[1])
end
if type(id) == 'table' then return redis.error_reply(id.err) end
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[2], id, 'EX', ARGV[3])
return id
""")
"""Adds a change (KEYS[1]), to a new log if the old one has no id left, and notes its id as the newest (KEYS[2])."""


class Change(msgspec.Struct, frozen=True):
    """One change: the replica that made it (`by`), its kind, the name of the caller (`about`), and its value."""

    by: str
    kind: str
    about: str
    value: Any
    at: int = 0
    """When it was made, in microseconds since 1970: later than every change that its replica knew then."""


class ChangeLog:
    """The log of one hub. Changes that no replica has signed, or not in the last KEPT_SECONDS, are ignored."""

    def __init__(self, store: Store, keys: Callable[[], ReplicaKeys]) -> None:
        self._store = store
        self._keys = keys
        self._last_id = "0-0"
        self._newest = 0
        """The time of the newest change that is known here."""
        self._has_warned = False
        self.skipped = False
        """Whether changes were dropped before they could be read here."""

    async def append(self, change: Change) -> Change:
        """Adds a change, and returns it with its time. Raises Overloaded if it is too large, and StoreUnavailable."""
        self._newest = max(time.time_ns() // 1000, self._newest + 1)
        change = msgspec.structs.replace(change, at=self._newest)
        payload = encode(msgspec.to_builtins(change))
        if len(payload) > MAX_CHANGE:
            raise Overloaded(f"This is too large to tell the other replicas of it: {len(payload):,} bytes.")
        signed = f"{self._keys().sign(_KIND, payload)} ".encode() + payload
        await _APPEND.run(self._store, ["changes", "newest"], signed, MAX_CHANGES, KEPT_SECONDS)
        return change

    async def read(self) -> list[Change]:
        """Returns the next changes, at most PAGE of them; none if all were read. Raises StoreUnavailable."""
        while entries := await self._next_page():
            if changes := [change for signed in entries if (change := self._change_of(signed)) is not None]:
                return changes
        return []

    async def _next_page(self) -> list[bytes]:
        """Returns the next entries with their signatures, at most PAGE of them; none if all were read."""
        key, last_id = self._store.key("changes"), self._last_id
        entries = await self._store.execute("XRANGE", key, last_id, "+", "COUNT", PAGE + 1)
        if not entries and last_id != "0-0":  # it begins anew
            entries = await self._store.execute("XRANGE", key, "-", "+", "COUNT", PAGE + 1)
        if last_id != "0-0" and (not entries or entries[0][0].decode() != last_id):
            self.skipped = True  # the last one read was dropped, so later ones may be too
        new_entries = [entry for entry in entries if entry[0].decode() != last_id][:PAGE]
        if new_entries:
            self._last_id = new_entries[-1][0].decode()
        elif not entries:
            self._last_id = "0-0"
        return [fields.get(b"c", b"") for _, fields in new_entries]

    def _change_of(self, signed: bytes) -> Change | None:
        mac, _, payload = signed.partition(b" ")
        if not self._keys().is_signed(_KIND, payload, mac.decode("latin-1")):
            return None
        try:
            change = msgspec.convert(decode(payload), Change)
        except (FrameError, msgspec.ValidationError):
            return None
        age = time.time() - change.at / 1e6
        if not -FRESH <= age <= KEPT_SECONDS:
            if age < 0 and not self._has_warned:
                self._has_warned = True
                log.warning("changes of a replica are ignored, as its clock is %.0f s ahead of the one here", -age)
            return None
        self._newest = max(self._newest, change.at)
        return change
