"""The account of every call over replicas that fail: it records the calls, and finds contradictions among them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import msgspec

ANSWERED = "answered"
BROKEN = "broken"
"""The connection broke, or the balancer answered for a replica: the client does not know the outcome."""
WATCH: Final = "watch"
"""Subscribing or unsubscribing, which has no effect if it is repeated."""
INTRUDE: Final = "intrude"
"""A call with the session of another principal."""
OWN: Final = "own"
MINE: Final = "mine"
"""Calls of a server with one process per session (OWN), or per principal in the modern era (MINE)."""
KILL: Final = "kill"
PAUSE: Final = "pause"
STORE: Final = "store"
NOTICED = 6.0
"""Seconds for which clients may notice a fault: a lease, and the time that a call waits for a lost owner."""
_OF_OWNERS: Final = frozenset({OWN, MINE, WATCH})
_BECAUSE_OF: Final = {
    BROKEN: frozenset({KILL, PAUSE}),
    "server_unavailable": frozenset({KILL, PAUSE, STORE}),
    "store_unavailable": frozenset({STORE, PAUSE}),  # for a paused replica, the store was unreachable
    "session_restarted": frozenset({KILL, PAUSE, STORE}),
}
"""The possible outcomes of a call without an answer, and the faults that may cause each."""


class Fault(msgspec.Struct):
    """A fault that clients may notice between `began` and `ended`."""

    kind: str
    began: float
    ended: float


class Operation(msgspec.Struct):
    """One call and its outcome: ANSWERED, BROKEN, or the code of an error."""

    id: str
    kind: str
    began: float
    principal: str = ""
    outcome: str = ""
    ended: float = 0.0
    executed: bool | None = None
    """False if the error says that the call was not carried out; None if it does not say."""
    by: tuple[str, str] | None = None
    """The pid of the process that reports to have carried this out, and the number of the call there."""

    @property
    def session(self) -> str:
        """The name of the session that made the call."""
        return self.id.partition("-")[0]


class Account:
    """Every operation, and every fault that the test caused."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.faults: list[Fault] = []
        self.wrong: list[str] = []
        """Descriptions of events that must never happen."""

    def problems(self, ledger: Path) -> list[str]:
        """Returns the contradictions between the account and the ledger of what the servers carried out."""
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
        """Returns whether a fault explains the outcome of a call."""
        causes = _BECAUSE_OF.get(operation.outcome, frozenset())
        if operation.outcome != BROKEN and operation.kind not in _OF_OWNERS:
            return False  # a call that needs no owner does not need the store
        # The first call that needs the lost state reports its loss, however late.
        late = operation.outcome == "session_restarted"
        return any(
            fault.kind in causes and fault.began <= operation.ended and (late or operation.began <= fault.ended)
            for fault in self.faults
        )

    def _mixed(self, by: dict[str, tuple[str, str]]) -> list[str]:
        """Describes each process of one session or principal that carried out calls of another."""
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
        """Returns the number of operations for each outcome."""
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
