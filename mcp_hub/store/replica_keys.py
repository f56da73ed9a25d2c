"""The keys that all replicas of a hub share, and what is sealed with them: ids, states, addresses, forwards.

What is sealed can be read by anybody who has it, and made by replicas only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any, Final

from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.store import Script, Store

SIZE: Final = 32
"""Bytes of a key that replicas make."""
MAX_SEALED: Final = 6000
"""Characters of a sealed text; it travels in a header."""
KEPT: Final = 4
"""Keys in the store: the newest seals, all open."""
RENEW_AFTER: Final = 7 * 24 * 3600
"""Seconds until replicas make another key. The oldest of four is in use for four weeks."""

_KEYS: Final = Script("""
local now = tonumber(redis.call('TIME')[1])
local newest = redis.call('LINDEX', KEYS[1], 0)
if not newest or now - tonumber(string.match(newest, '^%d+')) >= tonumber(ARGV[2]) then
    redis.call('LPUSH', KEYS[1], now .. ':' .. ARGV[1])
    redis.call('LTRIM', KEYS[1], 0, tonumber(ARGV[3]) - 1)
end
return redis.call('LRANGE', KEYS[1], 0, -1)
""")


class ReplicaKeys:
    """Seals with the first of `keys`, and opens with each of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("there is no key")
        self._keys = tuple(keys)

    @classmethod
    async def shared(cls, store: Store) -> ReplicaKeys:
        """Returns the keys that are in the store; the first replica makes one. Raises StoreUnavailable."""
        fresh = secrets.token_hex(SIZE)
        found = await _KEYS.run(store, ["keys"], fresh, RENEW_AFTER, KEPT)
        return cls([bytes.fromhex(one.decode().partition(":")[2]) for one in found])

    def seal(self, kind: str, value: Any) -> str:
        """Returns a JSON value as sealed text. What is sealed as one `kind` opens as that kind only."""
        payload = encode(value)
        return f"{_text(payload)}.{_text(_mac(self._keys[0], kind, payload))}"

    def open(self, kind: str, sealed: str, longest: int = MAX_SEALED) -> Any:
        """Returns the value of a sealed text; None if no replica has sealed it as that kind, or it is too long."""
        payload, _, mac = sealed.partition(".")
        if len(sealed) > longest:
            return None
        try:
            data, said = _bytes(payload), _bytes(mac)
            if not any([hmac.compare_digest(_mac(key, kind, data), said) for key in self._keys]):
                return None
            return decode(data)
        except (ValueError, FrameError):
            return None

    def derived(self, kind: str) -> list[bytes]:
        """Returns the keys that follow from these for another use."""
        return [_mac(key, f"derived {kind}", b"") for key in self._keys]

    def sign(self, kind: str, data: bytes) -> str:
        """Returns the MAC of some bytes."""
        return _text(_mac(self._keys[0], kind, data))

    def is_signed(self, kind: str, data: bytes, mac: str) -> bool:
        """Returns whether a replica has signed these bytes."""
        try:
            said = _bytes(mac)
        except ValueError:
            return False
        return any([hmac.compare_digest(_mac(key, kind, data), said) for key in self._keys])


def _mac(key: bytes, kind: str, data: bytes) -> bytes:
    name = kind.encode()
    return hmac.digest(key, b"mcp-hub replica\0%d\0" % len(name) + name + data, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(data) != text:
        raise binascii.Error  # one text for each value: ids are compared
    return data
