"""What is counted for each caller: the tokens of a rate, and what is under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from mcp_hub.security.lru import Lru

K = TypeVar("K")


class TokenBuckets(Lru[K, tuple[float, float]]):
    """Token buckets by key, as (tokens, time of their count): `rate` tokens are added per second, up to `room`.

    Of more than `bound` buckets, the least recently used are dropped. `clock()` returns seconds.
    """

    def __init__(self, bound: int, clock: Callable[[], float]) -> None:
        super().__init__(bound)
        self._clock = clock

    def take(self, key: K, rate: float, room: float | None = None) -> float:
        """Takes a token and returns 0, or returns the seconds until there is one.

        `room`: tokens that may be taken at once; None: those of one second, at least one.
        """
        now, room = self._clock(), max(rate, 1.0) if room is None else room
        tokens, counted_at = self.get(key, (room, now))
        tokens = min(room, tokens + (now - counted_at) * rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / rate
        self[key] = (tokens if wait else tokens - 1, now)
        return wait


class InFlight(Counter[K]):
    """What is under way, by key: it is added by `+= 1`."""

    def leave(self, key: K) -> None:
        """Counts one that has ended."""
        self[key] -= 1
        if self[key] <= 0:
            del self[key]
