"""Sends requests, one after the other or several at once, and measures how long each of them takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.client.conversation import Conversation
from bench.client.messages import Request


@dataclass(frozen=True, slots=True)
class Flood:
    """The latency of each request, and the seconds that all of them took together."""

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
    """Keeps `in_flight` requests in flight for `seconds`, or until `most` were sent; then waits for the last. One
    request of `beside` is in flight all the time too, and is not timed. Each answer is checked. Raises Lost, BadAnswer.
    """
    clock = time.perf_counter
    latencies: list[float] = []
    began: dict[int, float] = {}
    slow = conversation.start(beside) if beside is not None else None
    start = clock()
    end = start + seconds
    remaining = most if most is not None else 1 << 62

    def begin() -> None:
        nonlocal remaining
        # Before the request is made, so that what it takes to write counts too.
        now = clock()
        began[conversation.start(request)] = now
        remaining -= 1

    for _ in range(min(in_flight, remaining)):
        begin()
    last_answer_at = start
    while began or slow is not None:
        for answer in conversation.wait():
            now = clock()
            number = request.check(answer)
            if number == slow:
                slow = conversation.start(beside) if beside is not None and now < end else None
                continue
            latencies.append(now - began.pop(number))
            last_answer_at = now
            if now < end and remaining > 0:
                begin()
    return Flood(latencies, last_answer_at - start)
