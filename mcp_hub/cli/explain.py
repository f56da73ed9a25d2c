"""What became of one call: where it went, what each policy did, how long it took."""

from __future__ import annotations

import re
from typing import Any, Final

from mcp_hub.hub.engine import Hub
from mcp_hub.policy import Call, Policy
from mcp_hub.policy.trace import outcome
from mcp_hub.text import printable

_NAMES: Final = {"UrlGuard": "guard"}
"""Of policies that are not called what their class is."""


def explained(hub: Hub, call: Call, error: BaseException | None, result: Any, seconds: float) -> dict[str, Any]:
    """The facts, for `--json`; `result` or `error` is what came of it."""
    upstream = hub.upstreams.get(call.route.upstream)
    agreement = upstream.agreement if upstream is not None else None
    verdict, decided, code, reason = outcome(call, error, result)
    end = None
    if error is not None:
        end = f"{'refused' if verdict == 'refused' else 'ended the call'}: {reason or type(error).__name__}"
    facts: dict[str, Any] = {
        "route": {
            "name": call.exposed,
            "server": call.route.upstream,
            "transport": upstream.transport if upstream is not None else None,
            "era": agreement.era if agreement is not None else None,
            "revision": agreement.version if agreement is not None else None,
            "tool": call.route.name,
        },
        "policies": _policies(hub, call, decided, end) if upstream is not None else [],
        "attempts": call.attempts,
        "fallback": call.fallback,
        "duration_ms": round(seconds * 1000, 1),
        "verdict": verdict,
    }
    return facts if code is None else {**facts, "code": code}


def _policies(hub: Hub, call: Call, decided: str | None, end: str | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    reached = True
    notes = list(call.notes)
    watching = (hub.rules.trace, hub.rules.spans)
    for name in (_name_of(policy) for policy in hub.rules.chain.policies if policy not in watching):
        own = [note for note in notes if note.startswith(f"{name}:")]
        notes = [note for note in notes if note not in own]
        did = [note.partition(":")[2].strip() for note in own]
        if name == decided and end is not None:
            did.append(end)
        found.append({"policy": name, "did": did or ["passed" if reached else "not reached"]})
        reached = reached and not (name == decided and end is not None and end.startswith("refused"))
    return found + ([{"policy": "other", "did": notes}] if notes else [])


def _name_of(policy: Policy) -> str:
    name = type(policy).__name__
    return _NAMES.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def explanation_text(facts: dict[str, Any]) -> str:
    """The facts for a person, a line each."""
    route = facts["route"]
    era = f"{route['era']} {route['revision']}" if route["era"] else "era not known yet"
    times = {0: "was not asked", 1: "was asked once"}.get(facts["attempts"], f"was asked {facts['attempts']} times")
    code = f" ({facts['code']})" if "code" in facts else ""
    lines = [
        ("name", route["name"]),
        ("server", f"{route['server']} ({route['transport']}, {era})" if route["transport"] else "the hub itself"),
        ("tool", route["tool"]),
        *((one["policy"], "; ".join(one["did"])) for one in facts["policies"]),
        ("upstream", times + (f"; answered by {facts['fallback']}" if facts["fallback"] else "")),
        ("outcome", f"{facts['verdict']}{code} after {facts['duration_ms']:,} ms"),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {printable(str(text), 1000)}" for name, text in lines)
