"""The keys that all replicas of a hub share, and the values that they seal: ids, states, addresses, forwards.

Sealing is signing without encryption: anybody can read a sealed value, only replicas can make one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any, Final

from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.store import Script, Store
from mcp_hub.text import base64url, base64url_bytes

FRESH: Final = 30.0
"""Seconds for which signed members and forwards are valid. The clocks of replicas must not differ by more."""
SIZE: Final = 32
"""Bytes of a key that replicas make."""
MAX_SEALED: Final = 6000
"""Characters of a sealed text; it travels in a header."""
KEPT: Final = 8
"""Keys in the store: one of the newest seals, all of them open."""
SEALS_AFTER: Final = 180
"""Age in seconds from which a key is used to seal: other replicas may not know a newer one yet."""
RENEW_AFTER: Final = 7 * 24 * 3600
"""Seconds until replicas make another key. The oldest of eight is in use for eight weeks."""

_KEYS: Final = Script("""
local now, all, there = tonumber(redis.call('TIME')[1]), {}, {}
local stored = redis.call('LRANGE', KEYS[1], 0, 99)
local function at(entry) return tonumber(string.match(entry, '^%d+')) end
local function add(entry)
    local time, key = string.match(entry, '^(%d+):(%x+)$')
    if time and #time <= 12 and #key == 64 and not there[entry] then
        there[entry] = true
        table.insert(all, entry)
    end
end
for _, entry in ipairs(stored) do add(entry) end
for i = 4, #ARGV do add(ARGV[i]) end
table.sort(all, function(one, other) return at(one) > at(other) or (at(one) == at(other) and one > other) end)
if not all[1] or now - at(all[1]) >= tonumber(ARGV[2]) then table.insert(all, 1, now .. ':' .. ARGV[1]) end
while #all > tonumber(ARGV[3]) do table.remove(all) end
if table.concat(all, ' ') ~= table.concat(stored, ' ') then
    redis.call('DEL', KEYS[1])
    redis.call('RPUSH', KEYS[1], unpack(all))
end
return {tostring(now), all}
""")
"""Returns the time and the keys that are stored (KEYS[1]) or known (from ARGV[4]); adds one if all are too old.

Entries that are no keys are removed.
"""


class ReplicaKeys:
    """Seals with the first of `keys`, and opens with each of them."""

    def __init__(self, keys: Sequence[bytes], entries: Sequence[bytes] = ()) -> None:
        """`entries`: the keys as the store has them, each with the time when it was made."""
        if not keys:
            raise ValueError("there is no key")
        self._keys = tuple(keys)
        self._entries = tuple(entries)

    @classmethod
    async def load_shared(cls, store: Store, known: ReplicaKeys | None = None) -> ReplicaKeys:
        """Returns the keys in the store; the first replica makes one. Raises StoreUnavailable.

        `known` keys are written back to a store that has lost them.
        """
        fresh, entries = secrets.token_hex(SIZE), known.entries if known is not None else ()
        now, stored = await _KEYS.run(store, ["keys"], fresh, RENEW_AFTER, KEPT, *entries)
        dated_keys = [
            (int(entry.partition(b":")[0]), bytes.fromhex(entry.decode().partition(":")[2])) for entry in stored
        ]
        known_to_all = [key for at, key in dated_keys if int(now) - at >= SEALS_AFTER] or [dated_keys[-1][1]]
        keys = [known_to_all[0], *(key for _, key in dated_keys if key != known_to_all[0])]
        return cls(keys, stored)

    @property
    def entries(self) -> tuple[bytes, ...]:
        """The keys with their times, as stored; () for keys of the configuration."""
        return self._entries

    def seal(self, kind: str, value: Any) -> str:
        """Returns a JSON value as sealed text, which opens only as the same `kind`."""
        payload = encode(value)
        return f"{base64url(payload)}.{base64url(_mac(self._keys[0], kind, payload))}"

    def open(self, kind: str, sealed: str, longest: int = MAX_SEALED) -> Any:
        """Returns the value of a sealed text; None if no replica has sealed it as that kind, or it is too long."""
        payload, _, mac = sealed.partition(".")
        if len(sealed) > longest:
            return None
        try:
            data, sealed_mac = base64url_bytes(payload), base64url_bytes(mac)
            if not any([hmac.compare_digest(_mac(key, kind, data), sealed_mac) for key in self._keys]):
                return None
            return decode(data)
        except (ValueError, FrameError):
            return None

    def derive(self, kind: str) -> list[bytes]:
        """Returns keys that are derived from these for another purpose."""
        return [_mac(key, f"derived {kind}", b"") for key in self._keys]

    def sign(self, kind: str, data: bytes) -> str:
        """Returns the MAC of some bytes."""
        return base64url(_mac(self._keys[0], kind, data))

    def is_signed(self, kind: str, data: bytes, mac: str) -> bool:
        """Returns whether a replica has signed these bytes."""
        try:
            signature = base64url_bytes(mac)
        except ValueError:
            return False
        return any([hmac.compare_digest(_mac(key, kind, data), signature) for key in self._keys])


def _mac(key: bytes, kind: str, data: bytes) -> bytes:
    name = kind.encode()
    return hmac.digest(key, b"mcp-hub replica\0%d\0" % len(name) + name + data, hashlib.sha256)
