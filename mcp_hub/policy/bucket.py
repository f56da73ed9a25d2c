"""So many a second: tokens that come back with the time."""

from __future__ import annotations

import msgspec


class Bucket(msgspec.Struct):
    """Tokens that come back at `rate` a second, at most `room` of them."""

    rate: float
    room: float
    tokens: float
    seen: float

    @classmethod
    def full(cls, rate: float, now: float, room: float | None = None) -> Bucket:
        """As many tokens as there may be: without `room` as many as come in one second, and at least one."""
        room = max(rate, 1.0) if room is None else room
        return cls(rate, room, room, now)

    def wait(self, now: float) -> float:
        """Seconds until the next token; 0 after taking one."""
        self.tokens = min(self.room, self.tokens + (now - self.seen) * self.rate)
        self.seen = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / self.rate
