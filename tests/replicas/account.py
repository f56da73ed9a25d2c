"""The account of every call that was made over replicas while they failed, and what in it does not add up."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import msgspec

ANSWERED = "answered"
BROKEN = "broken"
"""The connection broke, or the balancer answered in the place of a replica: the client does not know more."""
WATCH: Final = "watch"
"""Subscribing or unsubscribing: nothing that could be carried out twice."""
INTRUDE: Final = "intrude"
"""A call with the session of another principal."""
OWN: Final = "own"
MINE: Final = "mine"
"""Calls of a server with a process for each session, and of the modern era for each principal."""
KILL: Final = "kill"
PAUSE: Final = "pause"
STORE: Final = "store"
NOTICED = 6.0
"""Seconds for which clients may notice a fault: a lease, and what a client waits for an owner that is gone."""
_OF_OWNERS: Final = frozenset({OWN, MINE, WATCH})
_BECAUSE_OF: Final = {
    BROKEN: frozenset({KILL, PAUSE}),
    "server_unavailable": frozenset({KILL, PAUSE, STORE}),
    "store_unavailable": frozenset({STORE, PAUSE}),  # to a replica that was paused, the store was away
    "session_restarted": frozenset({KILL, PAUSE, STORE}),
}
"""What may come of a call that is not answered, and the faults that may be its cause."""


class Fault(msgspec.Struct):
    """Something that failed, from `began` until its clients may notice it no more (`ended`)."""

    kind: str
    began: float
    ended: float


class Operation(msgspec.Struct):
    """One call, and what came of it: ANSWERED, BROKEN, or the code of an error."""

    id: str
    kind: str
    began: float
    principal: str = ""
    outcome: str = ""
    ended: float = 0.0
    executed: bool | None = None
    """What an error says about it: False, or None for nothing."""
    by: tuple[str, str] | None = None
    """The process that says it has carried this out, and its number there."""

    @property
    def session(self) -> str:
        """The name of the session that made it."""
        return self.id.partition("-")[0]


class Account:
    """Every operation, and every fault of the machinery."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.faults: list[Fault] = []
        self.wrong: list[str] = []
        """What must never happen, as it was seen."""

    def problems(self, ledger: Path) -> list[str]:
        """What does not add up, with what was carried out by the servers."""
        lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
        done = Counter(id for id, _, _ in lines)
        by = {id: (pid, number) for id, pid, number in lines}
        found = [*self.wrong, *self._mixed(by)]
        for one in self.operations:
            times = done.pop(one.id, 0)
            name = f"{one.id} ({one.kind}, {one.outcome}, {one.began:.1f} to {one.ended:.1f})"
            if not one.outcome:
                found.append(f"{name} has no outcome")
            if times > 1:
                found.append(f"{name} was carried out {times} times")
            if one.outcome == ANSWERED and (times != (one.kind not in (WATCH, INTRUDE)) or one.by != by.get(one.id)):
                found.append(f"{name} was carried out {times} times, by {by.get(one.id)}, answered by {one.by}")
            if times and (one.executed is False or one.kind == INTRUDE):
                found.append(f"{name} was not to be carried out, and was")
            if one.outcome != ANSWERED and not self._excused(one):
                found.append(f"{name} without a reason")
        found += [f"{id} was carried out and never asked for" for id in done]
        return found

    def _excused(self, one: Operation) -> bool:
        """Whether something had failed that is a reason for what came of a call."""
        causes = _BECAUSE_OF.get(one.outcome, frozenset())
        if one.outcome != BROKEN and one.kind not in _OF_OWNERS:
            return False  # what needs no owner needs no store either
        late = one.outcome == "session_restarted"  # it is said with the first call that needs what was lost
        return any(
            fault.kind in causes and fault.began <= one.ended and (late or one.began <= fault.ended)
            for fault in self.faults
        )

    def _mixed(self, by: dict[str, tuple[str, str]]) -> list[str]:
        """What processes of one session, or of one principal, have carried out for others."""
        whose: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for one in self.operations:
            if one.kind in (OWN, MINE) and one.id in by:
                whose[by[one.id][0]].add((one.kind, one.session if one.kind == OWN else one.principal))
        return [f"the process {pid} was that of {sorted(them)}" for pid, them in whose.items() if len(them) > 1]

    def counts(self) -> dict[str, int]:
        """How many operations came to what."""
        return dict(sorted(Counter(one.outcome for one in self.operations).items()))

    def first_answers(self, before: float = 0.0) -> list[float]:
        """For each kill, the seconds until the first answer to a call that began after it.

        `before`: seconds before the kill from which to look instead, to compare: nothing has failed there.
        """
        found = []
        for fault in self.faults:
            if fault.kind == KILL:
                at = fault.began - before
                later = [one for one in self.operations if one.began >= at and one.outcome == ANSWERED]
                found.append(round(min((one.ended for one in later), default=float("inf")) - at, 3))
        return found
