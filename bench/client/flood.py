"""Requests one after the other or so many at the same time, and how long each of them took."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.client.conversation import Conversation
from bench.client.messages import Request


@dataclass(frozen=True, slots=True)
class Flood:
    """What came of it: the time of each request, and of all of them."""

    latencies: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, part: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def flood(
    conversation: Conversation, request: Request, in_flight: int, seconds: float, most: int | None = None
) -> Flood:
    """Keep so many in flight for so many seconds, or until `most` were sent; then wait for the last. Each answer is
    checked. Raises Lost, BadAnswer.
    """
    clock = time.perf_counter
    latencies: list[float] = []
    began: dict[int, float] = {}
    start = clock()
    end = start + seconds
    left = most if most is not None else 1 << 62
    for _ in range(min(in_flight, left)):
        now = clock()
        began[conversation.start(request)] = now
        left -= 1
    while began:
        for answer in conversation.wait():
            now = clock()
            latencies.append(now - began.pop(request.check(answer)))
            if now < end and left > 0:
                # Before the request is made, so that what it takes to write counts too.
                now = clock()
                began[conversation.start(request)] = now
                left -= 1
    return Flood(latencies, clock() - start)
