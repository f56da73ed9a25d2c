"""What every policy did with a call: for `mcp-hub call --explain`, and for the live page from the record of a call."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakSet

from mcp_hub.catalog import Item
from mcp_hub.policy import Call, Chain, Json, Next, Policy
from mcp_hub.policy.call_record import RecordLabels

MAX_TIMED: Final = 2000
"""Calls whose times are kept; beyond that, the oldest are dropped."""
WATCHING: Final = frozenset({"trace", "spans"})
"""Policies that only observe calls, so that explanations leave them out."""
UPSTREAM: Final = "upstream"
"""The last step: the server itself."""


def explain(policies: Iterable[str], notes: Sequence[str], decided: str | None, end: str | None) -> list[Json]:
    """Returns `{"policy", "did": [texts]}` for each policy, from the outermost to the innermost.

    Args:
        policies: Their names.
        notes: What they noted during the call, each with its policy's name in front.
        decided: The policy that decided the outcome of the call.
        end: What that policy did, such as `refused: blacklist`; None: no policy ended the call.
    """
    steps: list[Json] = []
    is_reached, remaining = True, list(notes)
    for name in (name for name in policies if name not in WATCHING):
        own_notes = [note for note in remaining if note.startswith(f"{name}:")]
        remaining = [note for note in remaining if note not in own_notes]
        did = [note.partition(":")[2].strip() for note in own_notes]
        if name == decided and end is not None:
            did.append(end)
        steps.append({"policy": name, "did": did or ["passed" if is_reached else "not reached"]})
        is_reached = is_reached and not (name == decided and end is not None and end.startswith("refused"))
    return steps + ([{"policy": "other", "did": remaining}] if remaining else [])


def how_it_ended(verdict: str, reason: str) -> str:
    """Returns the text for the policy that ended a call, such as `refused: blacklist`."""
    return f"{'refused' if verdict == 'refused' else 'ended the call'}: {reason}"


def explain_record(policies: Iterable[str], record: Mapping[str, Any], times: Mapping[str, float]) -> list[Json]:
    """Returns `{"policy", "did": text, "ms"}` for each policy and the server, from the record of a call.

    Records have no secrets, so the steps have none. `times`: milliseconds by policy; `ms` is None if it is not known.
    """
    verdict, decided = record.get("verdict"), record.get("policy")
    reason = record.get("error") or record.get("reason") or record.get("code")
    end = how_it_ended(str(verdict), str(reason)) if reason is not None and decided is not None else None
    steps = explain(policies, record.get("notes") or (), decided, end)
    if "upstream" in record:
        steps.append({"policy": UPSTREAM, "did": [_upstream_step(record.get("attempts"), record.get("fallback"))]})
    return [{**step, "did": "; ".join(step["did"]), "ms": times.get(step["policy"])} for step in steps]


def _upstream_step(attempts: Any, fallback: Any) -> str:
    times = {0: "was not asked", 1: "was asked once"}.get(attempts, f"was asked {attempts} times")
    return times + (f"; answered by {fallback}" if fallback else "")


def explain_listing(policies: Sequence[Policy], item: Item, why: Callable[[], str | None]) -> list[Json]:
    """Returns `{"policy", "did": text}` for each policy, from the outermost to the innermost: what it does to an item.

    `why()` returns the rule that hides the item from the profile in question, or None.
    """
    steps: list[Json] = []
    current: Item | None = item
    for policy in reversed(policies):
        if policy.name in WATCHING:
            continue
        did, previous = "not reached", current
        if previous is not None:
            concerns = getattr(policy, "concerns", None)
            did = "passes it" if concerns is None or concerns(item.route) else "does not concern it"
            current = next(iter(policy.shape([previous])), None)
            if policy.name == "access":
                current = None if (rule := why()) is not None else current
                did = did if current is not None else f"hides it: {rule}"
            elif current is None:
                did = "hides it"
            elif current is not previous:
                did = _changes(previous, current) or did
        steps.append({"policy": policy.name, "did": did})
    return steps[::-1]


def _changes(previous: Item, current: Item) -> str:
    renamed = [f"renames it to {current.local}"] if current.local != previous.local else []
    old, new = (item.wire if isinstance(item.wire, dict) else {} for item in (previous, current))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) is not new.get(name)]
    changed = [name for name in names if old.get(name) != new.get(name)]
    return "; ".join([*renamed, *([f"changes {', '.join(changed)}"] if changed else [])])


class StepTimes:
    """The time that each policy took in each call, measured only while a live page is open."""

    def __init__(self, labels: RecordLabels, clock: Callable[[], float] = time.perf_counter) -> None:
        self._labels = labels
        self._clock = clock
        self._chains: WeakSet[Chain] = WeakSet()
        self._watchers = 0
        self._of: OrderedDict[str, dict[str, float]] = OrderedDict()

    def follow(self, chain: Chain) -> None:
        """Adds a chain whose calls are timed while a live page is open."""
        self._chains.add(chain)
        chain.wrap = self._timed if self._watchers else None

    def watch(self) -> None:
        """Adds a watcher. The first one starts the timing."""
        self._watchers += 1
        self._apply()

    def unwatch(self) -> None:
        """Removes a watcher. The last one stops the timing and drops the times."""
        self._watchers -= 1
        self._apply()
        if not self._watchers:
            self._of.clear()

    def _apply(self) -> None:
        for chain in self._chains:
            chain.wrap = self._timed if self._watchers else None

    def of(self, label: str) -> Mapping[str, float]:
        """Returns the milliseconds of a call by policy; {} if they are not known."""
        return {name: round(seconds * 1000, 3) for name, seconds in self._of.get(label, {}).items()}

    def _timed(self, policies: Sequence[Policy], innermost: Next) -> tuple[Sequence[Policy], Next]:
        return [_TimedPolicy(policy, self.measured) for policy in policies], _timed_innermost(innermost, self.measured)

    def measured(self, call: Call, name: str, began: float | None, inner: float) -> float:
        """Adds the seconds since `began`, less the `inner` ones of later policies, to the time of policy `name`.

        Assigns a label to the call if it has none; with `began=None` it only does that. Returns the clock's time.
        """
        now = self._clock()
        if call.label is None:
            call.label = self._labels.next_call()
        if began is None:
            return now
        times = self._of.get(call.label)
        if times is None:
            times = self._of[call.label] = {}
            while len(self._of) > MAX_TIMED:
                self._of.popitem(last=False)
        times[name] = times.get(name, 0.0) + now - began - inner
        return now


Measured = Callable[[Call, str, float | None, float], float]


class _TimedPolicy:
    """A policy whose time is measured, without the time of the policies inside of it."""

    def __init__(self, policy: Policy, measured: Measured) -> None:
        self.name = policy.name
        self.shape = policy.shape
        self._policy = policy
        self._measured = measured

    async def __call__(self, call: Call, call_next: Next) -> Json:
        inner = 0.0

        async def run_inner(call: Call) -> Json:
            nonlocal inner
            inner_start = self._measured(call, self.name, None, 0.0)
            try:
                return await call_next(call)
            finally:
                inner += self._measured(call, self.name, None, 0.0) - inner_start

        start = self._measured(call, self.name, None, 0.0)
        try:
            return await self._policy(call, run_inner)
        finally:
            self._measured(call, self.name, start, inner)


def _timed_innermost(innermost: Next, measured: Measured) -> Next:
    async def timed(call: Call) -> Json:
        start = measured(call, UPSTREAM, None, 0.0)
        try:
            return await innermost(call)
        finally:
            measured(call, UPSTREAM, start, 0.0)

    return timed
