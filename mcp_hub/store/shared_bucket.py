"""A token bucket that all replicas take from, fair between principals."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final

from mcp_hub.security.counters import TokenBuckets
from mcp_hub.store import Script, Store, StoreUnavailable

ACTIVE: Final = 1.0
"""Seconds after its last request for a token for which a principal counts as active."""
MAX_LOCAL: Final = 10_000
"""Local buckets that are kept; beyond that, the least recently used are dropped."""

_TAKE: Final = Script("""
local rate, room, who, active = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local function level(key, rate, room)
    local kept = redis.call('HMGET', key, 'tokens', 'at')
    local tokens, at = tonumber(kept[1]), tonumber(kept[2])
    if not (tokens and at and tokens >= 0 and tokens <= room) then return room end
    return math.min(room, tokens + math.max(now - at, 0) * rate)
end
local function keep(key, tokens, rate, room)
    redis.call('HSET', key, 'tokens', tostring(tokens), 'at', tostring(now))
    redis.call('PEXPIRE', key, math.ceil(1000 * (room / rate + active)))
end
redis.call('ZADD', KEYS[2], now, who)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. tostring(now - active))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '(' .. tostring(now + active), '+inf')
redis.call('PEXPIRE', KEYS[2], math.ceil(2000 * active))
local sharing = math.max(redis.call('ZCARD', KEYS[2]), 1)
local own_rate, own_room = rate / sharing, math.max(room / sharing, 1)
local all, own = level(KEYS[1], rate, room), level(KEYS[3], own_rate, own_room)
local spare = sharing == 1 or all > room / 2
if all >= 1 and (own >= 1 or spare) then
    keep(KEYS[1], all - 1, rate, room)
    keep(KEYS[3], math.max(own - 1, 0), own_rate, own_room)
    return '0'
end
keep(KEYS[1], all, rate, room)
keep(KEYS[3], own, own_rate, own_room)
local wait = (1 - all) / rate
if own < 1 then wait = math.max(wait, (1 - own) / own_rate) end
return tostring(wait)
""")
"""Takes a token from KEYS[1] (all) for a principal (KEYS[3]) among those active (KEYS[2]); returns seconds to wait."""


class SharedBucket:
    """Takes tokens for the calls of all replicas: `rate` tokens are added per second, up to `room`.

    Each active principal gets an equal part of the rate; unused tokens are for all. While the store is unavailable,
    this replica counts alone with its part of the rate: `rate` divided by `replicas()`, the last known number.
    """

    def __init__(self, store: Store, replicas: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._replicas = replicas
        self._local = TokenBuckets[str](MAX_LOCAL, clock)
        """The buckets while the store is unavailable."""

    @property
    def parts(self) -> int:
        """The number of parts of a rate: 1 while the store is available, else the number of replicas."""
        return max(self._replicas(), 1) if self._store.is_unavailable else 1

    async def take(self, name: str, rate: float, principal: str, room: float | None = None) -> float:
        """Takes a token of the bucket `name` and returns 0, or returns the seconds until there may be one.

        `room`: tokens that may be taken at once; None: those of one second, at least one.
        """
        room, principal_hash = max(rate, 1.0) if room is None else room, _short(principal)
        bucket = f"bucket:{_short(name)}"
        try:
            wait = await _TAKE.run(
                self._store,
                [bucket, f"{bucket}:active", f"{bucket}:of:{principal_hash}"],
                rate,
                room,
                principal_hash,
                ACTIVE,
            )
        except StoreUnavailable:
            parts = max(self._replicas(), 1)  # also if the store has refused this request alone
            return self._local.take(name, rate / parts, max(room / parts, 1.0))
        self._local.pop(name, None)
        return float(wait)


def _short(name: str) -> str:
    """Returns a hash of a name of any length, for keys that do not reveal it."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
