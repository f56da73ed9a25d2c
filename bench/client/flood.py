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
    conversation: Conversation,
    request: Request,
    in_flight: int,
    seconds: float,
    most: int | None = None,
    beside: Request | None = None,
) -> Flood:
    """Keep so many in flight for so many seconds, or until `most` were sent; then wait for the last. One of `beside`
    is in flight all the time too, and not timed. Each answer is checked. Raises Lost, BadAnswer.
    """
    clock = time.perf_counter
    latencies: list[float] = []
    began: dict[int, float] = {}
    slow = conversation.start(beside) if beside is not None else None
    start = clock()
    end = start + seconds
    left = most if most is not None else 1 << 62

    def begin() -> None:
        nonlocal left
        # Before the request is made, so that what it takes to write counts too.
        now = clock()
        began[conversation.start(request)] = now
        left -= 1

    for _ in range(min(in_flight, left)):
        begin()
    ended = start
    while began or slow is not None:
        for answer in conversation.wait():
            now = clock()
            number = request.check(answer)
            if number == slow:
                slow = conversation.start(beside) if beside is not None and now < end else None
                continue
            latencies.append(now - began.pop(number))
            ended = now
            if now < end and left > 0:
                begin()
    return Flood(latencies, ended - start)
