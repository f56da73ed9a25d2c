"""What every policy did with a call: for `mcp-hub call --explain`, and for the live page from the record of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from mcp_hub.catalog import Item
from mcp_hub.policy import Json, Policy

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


def explain_record(policies: Iterable[str], record: Mapping[str, Any]) -> list[Json]:
    """Returns `{"policy", "did": text}` for each policy and the server, from the record of a call.

    Records have no secrets, so the steps have none.
    """
    verdict, decided = record.get("verdict"), record.get("policy")
    reason = record.get("error") or record.get("reason") or record.get("code")
    end = how_it_ended(str(verdict), str(reason)) if reason is not None and decided is not None else None
    steps = explain(policies, record.get("notes") or (), decided, end)
    if "upstream" in record:
        steps.append({"policy": UPSTREAM, "did": [_upstream_step(record.get("attempts"), record.get("fallback"))]})
    return [{**step, "did": "; ".join(step["did"])} for step in steps]


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
