"""Subscriptions of sessions while replicas fail: which changes each session is notified of, and which are lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import defaultdict
from pathlib import Path

from tests.replicas.account import KILL, PAUSE, STORE, Account
from tests.replicas.raw_client import Json, RawClient, Unanswered, code_of

EVERYBODYS = "x:all"
BEFORE = 2.0
"""A change in these seconds before a fault may not have reached its clients."""
SETTLED = 30.0
"""Seconds within which the last changes must reach their clients."""
RECONNECT = 0.1
LATE = 40.0
"""Seconds for which an unanswered request may still be carried out: a paused replica reads it after the pause."""
ON, OFF, UNSURE = "on", "off", "unsure"


class Changes:
    """Changes of resources, each of which every server notices."""

    def __init__(self, file: Path) -> None:
        self.made: defaultdict[str, list[float]] = defaultdict(list)
        """When each resource has changed; the n-th time is the change N."""
        self._file = file
        file.touch()

    def make(self, uri: str) -> None:
        """Changes a resource."""
        self.made[uri].append(time.monotonic())
        with self._file.open("a") as file:
            file.write(f"{uri} {len(self.made[uri])}\n")

    async def run(self, uris: list[str], stop: asyncio.Event, pace: float) -> None:
        """Changes resources in random order, with at most `pace` seconds between two."""
        chosen = random.Random(len(uris))
        while not stop.is_set():
            self.make(EVERYBODYS if chosen.random() < 0.02 else chosen.choice(uris))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pace * chosen.random()):
                    await stop.wait()


class Subscriber:
    """The subscriptions of one session: one that stays, one that everybody has, and one that comes and goes."""

    def __init__(self, account: Account, client: RawClient, name: str) -> None:
        self.stays, self.comes_and_goes = f"x:{name}", f"x:{name}-at-times"
        self.uris = [self.stays, self.comes_and_goes]
        """Resources that nobody else subscribes to."""
        self._account = account
        self._client = client
        self._name = name
        self._states: dict[str, list[tuple[float, str]]] = {uri: [(0.0, OFF)] for uri in (*self.uris, EVERYBODYS)}
        self._notified: defaultdict[str, dict[int, tuple[float, str | None]]] = defaultdict(dict)
        """For each resource, the changes that it was notified of, with the time and the event id of the last notice."""
        self._declared: defaultdict[str, list[float]] = defaultdict(list)
        """The times at which it was told that changes of a resource may have been missed."""
        self._settled_at = float("-inf")
        """The time after which no unanswered switch can be carried out any more."""
        self._listening: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Subscribes, and listens from then on."""
        for uri in (self.stays, EVERYBODYS):
            self._is(uri, UNSURE)
            assert code_of(await self._client.request("resources/subscribe", {"uri": uri})) is None
            self._is(uri, ON)
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def switch(self) -> Json:
        """Subscribes to what comes and goes, or unsubscribes from it; returns the answer. Raises Unanswered."""
        uri = self.comes_and_goes
        target_state = OFF if self._states[uri][-1][1] == ON else ON
        self._is(uri, UNSURE)
        method = "resources/subscribe" if target_state == ON else "resources/unsubscribe"
        began = time.monotonic()
        try:
            answer = await self._client.request(method, {"uri": uri})
        except BaseException:  # a cancelled switch counts, too
            self._settled_at = time.monotonic() + LATE
            raise
        if code_of(answer) is None and began >= self._settled_at:
            self._is(uri, target_state)
        return answer

    @property
    def times_told(self) -> int:
        """The number of changes that it was notified of."""
        return sum(len(notified) for notified in self._notified.values())

    def told_of_a_loss(self, at: float) -> None:
        """Notes that the session was said to have been restarted."""
        for uri in self._states:
            self._declared[uri].append(at)

    def _is(self, uri: str, state: str) -> None:
        self._states[uri].append((time.monotonic(), state))

    def _was(self, uri: str, state: str, since: float, until: float) -> bool:
        """Whether a subscription was in this state all the time."""
        start = max(number for number, (at, _) in enumerate(self._states[uri]) if at <= since)
        return all(state_then == state for at, state_then in self._states[uri][start:] if at <= until)

    async def _listen(self) -> None:
        last_event_id: str | None = None
        while True:
            try:
                async with contextlib.aclosing(self._client.stream(last_event_id)) as events:
                    async for id, message in events:
                        last_event_id = id or last_event_id
                        self._take(id, message)
            except Unanswered as error:
                if last_event_id is None:
                    self.told_of_a_loss(time.monotonic())  # it broke before the first event, so it cannot be resumed
                if error.status == 404:
                    self._account.wrong.append(f"the stream of the session {self._name} was lost")
                elif error.status == 400:
                    last_event_id = None  # the hub no longer keeps the events
                    self.told_of_a_loss(time.monotonic())
            await asyncio.sleep(RECONNECT)

    def _take(self, id: str | None, message: Json | None) -> None:
        if message is None or message.get("method") != "notifications/resources/updated":
            return
        uri, number, now = message["params"]["uri"], message["params"].get("number"), time.monotonic()
        if uri not in self._states:
            self._account.wrong.append(f"{self._name} was told of {uri}")
            return
        if number is None:
            self._declared[uri].append(now)
            return
        before, event = self._notified[uri].get(number, (now, id))
        if before != now and not any(before <= declared <= now for declared in self._declared[uri]):
            twice = f"at {before:.1f} by {event} and at {now:.1f} by {id}"
            self._account.wrong.append(f"{self._name} was told twice of the change {number} of {uri}: {twice}")
        self._notified[uri][number] = now, id

    async def settle(self, changes: Changes) -> None:
        """Waits until no change is missing, at most SETTLED seconds, notes what is wrong, and stops listening."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLED):
                while self._missing(changes):
                    await asyncio.sleep(RECONNECT)
        self._account.wrong += self._missing(changes)
        self._account.wrong += [
            f"{self._name} was told of the change {number} of {uri}, and does not subscribe to it"
            for uri, notified in self._notified.items()
            for number, (at, _) in notified.items()
            if self._was(uri, OFF, changes.made[uri][number - 1], at)
        ]
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    def _missing(self, changes: Changes) -> list[str]:
        """Describes the changes without a notification that no declared loss explains."""
        return [
            f"{self._name} was not told of the change {number} of {uri}, at {at:.1f}"
            for uri in self._states
            for number, at in zip(itertools.count(1), changes.made[uri], strict=False)
            if number not in self._notified[uri]
            and self._was(uri, ON, at, time.monotonic())
            and not any(self._may_be_lost(at, declared) for declared in self._declared[uri])
        ]

    def _may_be_lost(self, at: float, declared: float) -> bool:
        """Whether a change falls between a fault and a loss that was declared because of it.

        That is the last fault before, or an earlier one whose time to be noticed was not over yet.
        """
        faults = [
            fault for fault in self._account.faults if fault.kind in (KILL, PAUSE, STORE) and fault.began <= declared
        ]
        latest = max((fault.began for fault in faults), default=float("inf"))
        return any(
            fault.began - BEFORE <= at <= declared
            for fault in faults
            if fault.began == latest or declared <= fault.ended
        )
