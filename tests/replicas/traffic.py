"""Traffic over several replicas while they fail, and the account of every call that was made meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.replicas.raw_client import Json, RawClient, Unanswered, code_of, text_of

ANSWERED = "answered"
BROKEN = "broken"
"""The connection broke, or the balancer answered in the place of a replica: the client does not know more."""
WITHIN = 20.0
"""Seconds that a client waits for an answer."""


class Operation(msgspec.Struct):
    """One call, and what came of it: ANSWERED, BROKEN, or the code of an error."""

    id: str
    kind: str
    began: float
    outcome: str = ""
    ended: float = 0.0
    executed: bool | None = None
    """What an error says about it."""


class Account:
    """Every operation, and every fault of the machinery."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.faults: list[tuple[float, float]] = []
        """When something was killed or paused, and until when its clients may notice it."""
        self.wrong: list[str] = []
        """What must never happen, as it was seen."""

    def problems(self, ledger: Path) -> list[str]:
        """What does not add up, with what was carried out by the servers."""
        found = list(self.wrong)
        done = Counter(ledger.read_text().split()) if ledger.exists() else Counter()
        for one in self.operations:
            times = done.pop(one.id, 0)
            if not one.outcome:
                found.append(f"{one.id} ({one.kind}) has no outcome")
            if times > 1:
                found.append(f"{one.id} ({one.kind}, {one.outcome}) was carried out {times} times")
            if one.outcome == ANSWERED and times != 1:
                found.append(f"{one.id} ({one.kind}) was answered, and carried out {times} times")
            if one.executed is False and times:
                found.append(f"{one.id} ({one.kind}, {one.outcome}) was said not to be carried out, and was")
            late = one.outcome == "session_restarted"  # it is said with the first call that needs what was lost
            if one.outcome != ANSWERED and not any(a <= one.ended and (late or one.began <= b) for a, b in self.faults):
                found.append(f"{one.id} ({one.kind}) came to {one.outcome}, and nothing had failed")
        return [*found, *(f"{id} was carried out and never asked for" for id in done)]

    def counts(self) -> dict[str, int]:
        """How many operations came to what."""
        return dict(sorted(Counter(one.outcome for one in self.operations).items()))

    def first_answers(self) -> list[float]:
        """For each fault, the seconds until the first answer to a call that began after it."""
        found = []
        for at, _ in self.faults:
            ended = [one.ended for one in self.operations if one.began >= at and one.outcome == ANSWERED]
            found.append(round(min(ended) - at, 3) if ended else float("inf"))
        return found


class SessionTraffic:
    """One client of the handshake era that makes calls one after the other, and checks what it gets."""

    def __init__(self, account: Account, client: RawClient, name: str, kinds: list[str]) -> None:
        self._account = account
        self._client = client
        self._name = name
        self._kinds = kinds
        self._numbers = itertools.count(1)
        self._own: tuple[str, int] | None = None
        """Process and number of the last call of a server of its own."""
        self._unknown = self._unseen = 0
        """Calls of that server since then of which nothing is known."""
        self._told = False
        """Whether a loss was said since then."""
        self._random = random.Random(name)

    async def run(self, stop: asyncio.Event, pace: float = 1.0) -> None:
        """Makes calls until it is told to stop, with at most `pace` seconds between two."""
        while not stop.is_set():
            await self._one(self._random.choice(self._kinds))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pace * self._random.random()):
                    await stop.wait()

    async def _one(self, kind: str) -> None:
        one = Operation(f"{self._name}-{next(self._numbers)}", kind, time.monotonic())
        self._account.operations.append(one)
        try:
            async with asyncio.timeout(WITHIN):
                answer = await self._asked(one.id) if kind == "ask" else await self._called(kind, one.id)
            self._take(one, answer)
        except (Unanswered, TimeoutError):
            one.outcome = BROKEN
        one.ended = time.monotonic()
        if kind == "own":
            self._follow(one)

    async def _called(self, kind: str, id: str) -> Json:
        name = "own__do" if kind == "own" else "up__do"
        if kind == "modern":
            return await self._client.modern("tools/call", {"name": name, "arguments": {"id": id}})
        return await self._client.call(name, {"id": id})

    async def _asked(self, id: str) -> Json:
        params = {"name": "up__ask", "arguments": {"id": id}}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        async with contextlib.aclosing(self._client.events(message)) as events:
            async for _, got in events:
                if got.get("method") == "elicitation/create":
                    if not got["params"]["message"].endswith(id):
                        self._account.wrong.append(f"{self._name} was asked for another one: {got}")
                    await self._client.post({"jsonrpc": "2.0", "id": got["id"], "result": {"action": "accept"}})
                elif "method" not in got and got.get("id") == id:
                    return got
        raise Unanswered

    def _take(self, one: Operation, answer: Json) -> None:
        self._last: tuple[str, int] | None = None
        if answer.get("error", {}).get("message") == "Session not found":
            self._account.wrong.append(f"the session {self._name} was lost")
        code = code_of(answer)
        if code is not None:
            one.outcome = code
            if code == "session_restarted":
                one.executed = False if "was not carried out" in str(answer) else None
            return
        one.outcome = ANSWERED
        id, pid, number = text_of(answer).split()
        if id != one.id:
            self._account.wrong.append(f"{one.id} got the answer to {id}")
        self._last = (pid, int(number))

    def _follow(self, one: Operation) -> None:
        """Checks that the server of this client's own is the same as before, unless a loss was said."""
        if one.outcome != ANSWERED:
            self._told = self._told or one.outcome == "session_restarted"
            self._unknown += 1
            self._unseen += 1
            return
        assert self._last is not None
        (pid, number), before = self._last, self._own
        if before is not None and before[0] == pid and not before[1] < number <= before[1] + 1 + self._unseen:
            self._account.wrong.append(f"{one.id}: call {number} of {pid} after {before[1]}, {self._unseen} unknown")
        if before is not None and before[0] != pid and not (self._told or self._unknown):
            self._account.wrong.append(f"{one.id}: the server of before was lost, and nothing was said")
        if before is not None and before[0] == pid:
            self._unseen -= number - before[1] - 1  # those that have shown up; others may still be carried out
        self._own, self._unknown, self._told = self._last, 0, False


async def open_sessions(
    account: Account, clients: list[RawClient], kinds_of: Any, at_once: int = 20
) -> list[SessionTraffic]:
    """Opens a session for each client; `kinds_of(number)` says what it calls."""
    gate = asyncio.Semaphore(at_once)

    async def opened(number: int, client: RawClient) -> SessionTraffic:
        async with gate:
            await client.begin(elicitation={})
        return SessionTraffic(account, client, f"s{number}", kinds_of(number))

    return list(await asyncio.gather(*(opened(number, client) for number, client in enumerate(clients))))
