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
        problems = [*self.wrong, *self._mixed(by)]
        for op in self.operations:
            times = done.pop(op.id, 0)
            name = f"{op.id} ({op.kind}, {op.outcome}, {op.began:.1f} to {op.ended:.1f})"
            if not op.outcome:
                problems.append(f"{name} has no outcome")
            if times > 1:
                problems.append(f"{name} was carried out {times} times")
            if op.outcome == ANSWERED and (times != (op.kind not in (WATCH, INTRUDE)) or op.by != by.get(op.id)):
                problems.append(f"{name} was carried out {times} times, by {by.get(op.id)}, answered by {op.by}")
            if times and (op.executed is False or op.kind == INTRUDE):
                problems.append(f"{name} was not to be carried out, and was")
            if op.outcome != ANSWERED and not self._excused(op):
                problems.append(f"{name} without a reason")
        problems += [f"{id} was carried out and never asked for" for id in done]
        return problems

    def _excused(self, operation: Operation) -> bool:
        """Whether something had failed that is a reason for what came of a call."""
        causes = _BECAUSE_OF.get(operation.outcome, frozenset())
        if operation.outcome != BROKEN and operation.kind not in _OF_OWNERS:
            return False  # what needs no owner needs no store either
        late = operation.outcome == "session_restarted"  # it is said with the first call that needs what was lost
        return any(
            fault.kind in causes and fault.began <= operation.ended and (late or operation.began <= fault.ended)
            for fault in self.faults
        )

    def _mixed(self, by: dict[str, tuple[str, str]]) -> list[str]:
        """What processes of one session, or of one principal, have carried out for others."""
        identities_of: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for op in self.operations:
            if op.kind in (OWN, MINE) and op.id in by:
                identities_of[by[op.id][0]].add((op.kind, op.session if op.kind == OWN else op.principal))
        return [
            f"the process {pid} was that of {sorted(identities)}"
            for pid, identities in identities_of.items()
            if len(identities) > 1
        ]

    def counts(self) -> dict[str, int]:
        """How many operations came to what."""
        return dict(sorted(Counter(operation.outcome for operation in self.operations).items()))

    def first_answers(self, before: float = 0.0) -> list[float]:
        """For each kill, the seconds until the first answer to a call that began after it.

        `before`: seconds before the kill from which to look instead, to compare: nothing has failed there.
        """
        delays = []
        for fault in self.faults:
            if fault.kind == KILL:
                at = fault.began - before
                answered = [op for op in self.operations if op.began >= at and op.outcome == ANSWERED]
                delays.append(round(min((op.ended for op in answered), default=float("inf")) - at, 3))
        return delays
