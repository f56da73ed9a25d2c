"""A log of changes in the store, by which replicas inform each other. Each replica reads it from its last position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from mcp_hub.errors import Overloaded
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.store import Script, Store
from mcp_hub.store.replica_keys import ReplicaKeys

MAX_CHANGES: Final = 10_000
"""Changes that are kept; beyond that, the oldest are dropped."""
MAX_CHANGE: Final = 1024 * 1024
"""Bytes of one change."""
KEPT_SECONDS: Final = 7 * 24 * 3600
"""Seconds for which changes are kept after the last one."""
PAGE: Final = 200
"""Changes that are read at once."""
TOPIC: Final = "changes"
"""The topic that is announced to members for each change."""
_KIND: Final = "change"
"""The kind under which changes are signed."""

_APPEND: Final = Script("""
local id = redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[2], '*', 'c', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('HINCRBY', KEYS[2], ARGV[4], 1)
redis.call('EXPIRE', KEYS[2], ARGV[3])
return id
""")


class Change(msgspec.Struct, frozen=True):
    """One change: the replica that made it (`by`), its kind, the name of the caller (`about`), and its value."""

    by: str
    kind: str
    about: str
    value: Any


class ChangeLog:
    """The log of one hub. Changes without the signature of a replica are ignored."""

    def __init__(self, store: Store, keys: Callable[[], ReplicaKeys]) -> None:
        self._store = store
        self._keys = keys
        self._last_id = "0-0"
        self.skipped = False
        """Whether changes were dropped before they could be read here."""

    async def append(self, change: Change) -> None:
        """Adds a change. Raises Overloaded if it is too large, and StoreUnavailable."""
        payload = encode(msgspec.to_builtins(change))
        if len(payload) > MAX_CHANGE:
            raise Overloaded(f"This is too large to tell the other replicas of it: {len(payload):,} bytes.")
        signed = f"{self._keys().sign(_KIND, payload)} ".encode() + payload
        await _APPEND.run(self._store, [TOPIC, "topics"], signed, MAX_CHANGES, KEPT_SECONDS, TOPIC)

    async def read(self) -> list[Change]:
        """Returns the next changes, at most PAGE of them; none if all were read. Raises StoreUnavailable."""
        while entries := await self._next_page():
            if changes := [change for signed in entries if (change := self._change_of(signed)) is not None]:
                return changes
        return []

    async def _next_page(self) -> list[bytes]:
        """Returns the next entries with their signatures, at most PAGE of them; none if all were read."""
        key, last_id = self._store.key(TOPIC), self._last_id
        entries = await self._store.execute("XRANGE", key, last_id, "+", "COUNT", PAGE + 1)
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
            return msgspec.convert(decode(payload), Change)
        except (FrameError, msgspec.ValidationError):
            return None
