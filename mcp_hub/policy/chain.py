"""All policies of a configuration, in their fixed order, and what each of them did with a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.catalog import Item, Route
from mcp_hub.config.models import Config
from mcp_hub.config.settings import KeyTable
from mcp_hub.policy import Call, Chain, Json, NewlyListedTool, Next, Policy, PolicyParts, compose
from mcp_hub.policy.access import Access
from mcp_hub.policy.breaker import CircuitBreaker, CircuitState
from mcp_hub.policy.confirm import Confirm
from mcp_hub.policy.data_flow import FlowPolicy
from mcp_hub.policy.deadline import DeadlinePolicy
from mcp_hub.policy.fallback import FallbackPolicy
from mcp_hub.policy.guard import FilterResults, UrlGuard
from mcp_hub.policy.limits import LimitsPolicy
from mcp_hub.policy.pins import PinReview
from mcp_hub.policy.presentation import Presentation, Preset
from mcp_hub.policy.read_only import ReadOnly
from mcp_hub.policy.retry import RetryPolicy
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.policy.screen import ScreenReview
from mcp_hub.policy.shape_result import ShapeResult
from mcp_hub.policy.trace import Trace
from mcp_hub.policy.validate import Validate

if TYPE_CHECKING:
    from mcp_hub.policy.spans import Spans, Tracer

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
        steps.append({"policy": UPSTREAM, "did": [upstream_step(record.get("attempts"), record.get("fallback"))]})
    return [{**step, "did": "; ".join(step["did"])} for step in steps]


def upstream_step(attempts: Any, fallback: Any) -> str:
    """Returns what the server did with a call, as the last step of its explanation."""
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
            did = "passes it" if policy.concerns(item.route) else "does not concern it"
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


ITEMS_PER_STEP: Final = 32
"""The most tools or prompts that `Rules.shape` handles in one step."""

POLICIES: Final[tuple[type[Policy], ...]] = (
    Trace,
    Access,
    ReadOnly,
    Confirm,
    FlowPolicy,
    DeadlinePolicy,
    ShapeResult,
    FilterResults,
    Preset,
    Validate,
    UrlGuard,
    FallbackPolicy,
    RetryPolicy,
    CircuitBreaker,
    LimitsPolicy,
    Presentation,
)
"""The policies from the outermost to the innermost. `Spans` comes before them if calls are traced."""
KEYS: Final = KeyTable.of(key for policy in POLICIES for key in getattr(policy, "keys", ()))
"""The keys of configuration files that belong to policies."""


def rule_names(config: Config) -> tuple[RuleNames, ...]:
    """Returns the names in all rules of a configuration."""
    return tuple(names for policy in POLICIES for names in policy.rule_names(config) if names.names)


MakesTracer = Callable[[], Awaitable["Tracer | None"]]


class Rules(msgspec.Struct, frozen=True):
    """The chain of a configuration, and the policies that other parts query directly."""

    chain: Chain
    access: Access
    confirm: Confirm
    guard: UrlGuard
    deadline: DeadlinePolicy
    trace: Trace
    breaker: CircuitBreaker
    shaping: tuple[Policy, ...]
    """The policies that change results."""
    pins: PinReview
    screen: ScreenReview
    spans: Spans | None = None

    async def observe(self, call: Call, call_next: Next) -> Json:
        """Runs a call that the hub itself answers, recorded and traced like any other."""
        outermost = (self.spans, self.trace) if self.spans is not None else (self.trace,)
        return await compose(outermost, call_next)(call)

    async def connect_first(self, call: Call, connect: Next, *, is_connected: bool) -> Json:
        """Connects to the server of a tool that is not listed yet, then calls the tool.

        `connect` raises NewlyListedTool if the tool can be called. The policies behind `trace` run around `connect`
        too, so the guard, the fallback, retries and the breaker apply to it. They do not if the server is
        connected or a rule hides the tool.
        """

        async def connect_and_call(call: Call) -> Json:
            skips_policies = is_connected or self.access.why(call.route) is not None
            original_params = call.params
            try:
                return await (connect if skips_policies else self.chain.compose_behind(self.trace, call, connect))(call)
            except NewlyListedTool:
                call.params = original_params
            return await self.chain.compose_behind(self.trace, call)(call)

        return await self.observe(call, lambda call: self.deadline(call, connect_and_call))

    def shape(self, items: Sequence[Item]) -> Generator[None, None, list[Item]]:
        """Applies all policies to the items of an upstream, in steps, and returns those that may be listed."""
        yield from self.access.review(items)
        shaped: list[Item] = []
        start = 0
        while start < len(items):
            yield
            # Rules compare many spellings of a URI, which takes 100 times as long as a tool: each URI has a step.
            end = start
            while end < min(start + ITEMS_PER_STEP, len(items)) and not items[end].route.kind.by_uri:
                end += 1
            end = max(end, start + 1)
            shaped += self.chain.shape(items[start:end])
            start = end
        return shaped

    def instructions(self, upstream: str, text: str | None) -> str | None:
        """Returns a server's instructions if they may be passed on, else None."""
        if text is None:
            return None
        # Both reviews run, so that each can log what it finds.
        passes = [review.passes_instructions(upstream, text) for review in (self.pins, self.screen)]
        return text if all(passes) else None

    async def shaped(self, call: Call, result: Json) -> Json:
        """Applies the result-shaping policies to a result that did not come through the chain."""

        async def return_result(_: Call) -> Json:
            return result

        return await compose(self.shaping, return_result)(call)

    def why(self, route: Route, profile: str | None = None) -> str | None:
        """Returns the rule that hides a route from callers of a profile, None if they may reach it."""
        return self.access.why(route, profile)

    def steps(self, record: Json) -> list[Json]:
        """Returns what every policy did with a call, from its record (`explain_record`)."""
        return explain_record([policy.name for policy in self.chain.policies], record)

    def listing(self, item: Item, profile: str | None) -> list[Json]:
        """Returns what every policy makes of a listed item for callers of a profile (`explain_listing`)."""
        return explain_listing(self.chain.policies, item, lambda: self.access.why(item.route, profile))

    def breaker_state(self, upstream: str) -> CircuitState:
        """Returns the state of an upstream's circuit breaker."""
        return self.breaker.state(upstream)

    def reaches(self, route: Route, profile: str | None) -> bool:
        """Returns whether callers of a profile may see a resource."""
        return self.access.why(route, profile) is None and not self.guard.hides(route)


def make_rules(parts: PolicyParts, innermost: Next, tracer: MakesTracer | None = None) -> Rules:
    """Makes all policies of a configuration, from the outermost to the innermost.

    Args:
        parts: The configuration and the shared objects that the policies use.
        innermost: Sends a call that has passed all policies to its upstream.
        tracer: Returns a tracer once it is ready; None: calls are not traced.
    """
    policies: list[Policy] = [parts.find(kind) for kind in POLICIES]
    spans: Spans | None = None
    if tracer is not None:
        from mcp_hub.policy.spans import Spans

        spans = Spans(parts, tracer)
        policies.insert(0, spans)
    chain = Chain(policies, innermost)
    return Rules(
        chain=chain,
        access=parts.find(Access),
        confirm=parts.find(Confirm),
        guard=parts.find(UrlGuard),
        deadline=parts.find(DeadlinePolicy),
        trace=parts.find(Trace),
        breaker=parts.find(CircuitBreaker),
        shaping=(parts.find(ShapeResult), parts.find(FilterResults)),
        pins=parts.find(PinReview),
        screen=parts.find(ScreenReview),
        spans=spans,
    )
