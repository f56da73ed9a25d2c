"""All policies of a configuration, in their fixed order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.catalog import Item, Route
from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.policy import Call, Chain, Json, Next, NowListed, Policy, compose
from mcp_hub.policy.access import Access
from mcp_hub.policy.breaker import CircuitBreaker, CircuitState
from mcp_hub.policy.call_record import RecordLabels
from mcp_hub.policy.data_flow import FlowPolicy, UsedLabels
from mcp_hub.policy.deadline import DeadlinePolicy
from mcp_hub.policy.fallback import FallbackPolicy, Scrape
from mcp_hub.policy.guard import FilterResults, UrlGuard
from mcp_hub.policy.limits import LimitsPolicy
from mcp_hub.policy.long_results import LongResults
from mcp_hub.policy.pins import PinReview
from mcp_hub.policy.presentation import Presentation, Preset
from mcp_hub.policy.retry import RetryPolicy
from mcp_hub.policy.screen import ScreenReview
from mcp_hub.policy.selection import Selection
from mcp_hub.policy.shape_result import Function, ShapeResult
from mcp_hub.policy.trace import Measure, Trace
from mcp_hub.policy.validate import Validate
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES
from mcp_hub.security.pinning import PinRecord
from mcp_hub.security.redaction import Redactor

if TYPE_CHECKING:
    from mcp_hub.policy.spans import Spans, Tracer

AT_ONCE: Final = 32
"""Tools or prompts shaped in one step of a build."""

MakesTracer = Callable[[], Awaitable["Tracer | None"]]


class Rules(msgspec.Struct, frozen=True):
    """The chain of a configuration, and the policies that other parts query directly."""

    chain: Chain
    access: Access
    guard: UrlGuard
    deadline: DeadlinePolicy
    trace: Trace
    breaker: CircuitBreaker
    shaping: tuple[Policy, ...]
    """The policies that change results."""
    pins: PinReview
    screen: ScreenReview
    spans: Spans | None = None

    async def watched(self, call: Call, call_next: Next) -> Json:
        """Runs a call that the hub itself answers, recorded and traced like any other."""
        outermost = (self.spans, self.trace) if self.spans is not None else (self.trace,)
        return await compose(outermost, call_next)(call)

    async def introduced(self, call: Call, connect: Next, *, is_connected: bool) -> Json:
        """Runs a call of a tool that its server has not listed: once around `connect`, then as any other.

        So the guard, the fallback, retries, the breaker and the record apply to the connection as well. `connect`
        raises NowListed if the tool can be called. A tool that is hidden by what is known of it has no fallback.
        """

        async def both(call: Call) -> Json:
            known = is_connected or self.access.why(call.route) is not None
            before = call.params
            try:
                return await (connect if known else self.chain.behind(self.trace, call.route, connect))(call)
            except NowListed:
                call.params = before
            return await self.chain.behind(self.trace, call.route)(call)

        return await self.watched(call, lambda call: self.deadline(call, both))

    def shape(self, items: Sequence[Item]) -> Generator[None, None, list[Item]]:
        """Applies all policies to what an upstream lists, in steps, and returns the items that may be listed."""
        yield from self.access.look(items)
        shaped: list[Item] = []
        at = 0
        while at < len(items):
            yield
            # A URI is read in many spellings, which takes a hundred times as long as shaping a tool: each has a step.
            end = at
            while end < min(at + AT_ONCE, len(items)) and items[end].route.kind not in (RESOURCES, TEMPLATES):
                end += 1
            end = max(end, at + 1)
            shaped += self.chain.shape(items[at:end])
            at = end
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

        async def given(_: Call) -> Json:
            return result

        return await compose(self.shaping, given)(call)

    def why(self, route: Route, profile: str | None = None) -> str | None:
        """Returns the rule that hides a route from callers of a profile, None if they may reach it."""
        return self.access.why(route, profile)

    def breaker_state(self, upstream: str) -> CircuitState:
        """Returns the state of an upstream's circuit breaker."""
        return self.breaker.state(upstream)

    def reaches(self, route: Route, profile: str | None) -> bool:
        """Returns whether callers of a profile may see a resource."""
        return self.access.why(route, profile) is None and not self.guard.hides(route)


def make_rules(
    config: Config,
    selection: Selection,
    innermost: Next,
    *,
    record: Callable[[Json], None] | None,
    labels: RecordLabels,
    used: UsedLabels,
    listed: Callable[[Route], Json | None],
    scrape: Scrape,
    run_function: Function,
    long_results: LongResults,
    pinned: Mapping[str, PinRecord],
    measure: Measure | None = None,
    tracer: MakesTracer | None = None,
    in_program: bool = False,
) -> Rules:
    """Makes all policies of a configuration, from the outermost to the innermost.

    Args:
        record: Gets the record of every call; None: no records.
        labels: Names calls and callers in records.
        used: The data-flow labels that sessions have used.
        listed: Returns a tool as its server lists it.
        scrape: Fetches a page, for the fallback.
        run_function: Runs one of the user's post-processors.
        pinned: The pins, by id of the server.
        measure: Gets the metrics of every call.
        tracer: Returns a tracer once it is ready; None: calls are not traced.
        in_program: Whether the hub runs in a program, whose calls may bring presets.
    """
    servers = {server.id: server for server in config.servers}
    browsers = [server.id for server in config.servers if server.browser]
    pins, screen = PinReview(config, pinned), ScreenReview(config)
    access = Access(config, selection, (pins, screen))
    flow = FlowPolicy(servers, config.flows, used)
    guard, breaker = UrlGuard(config.guard, browsers), CircuitBreaker(servers)
    deadline = DeadlinePolicy(servers)
    presentation = Presentation(servers)
    redaction = Redactor(secrets_of(config))
    preset = Preset(servers, of_calls=in_program)
    trace = Trace(
        record,
        redaction,
        arguments=config.call_log.arguments,
        labels=labels,
        measure=measure,
        shown=preset.shown,
    )
    spans: Spans | None = None
    if tracer is not None:
        from mcp_hub.policy.spans import Spans

        spans = Spans(tracer, redaction, labels, listed, arguments=config.tracing.arguments, shown=preset.shown)
    shaping = (ShapeResult(servers, long_results, run_function, listed), FilterResults(config.guard))
    chain = Chain(
        (
            *((spans,) if spans is not None else ()),
            trace,
            access,
            flow,
            deadline,
            *shaping,
            preset,
            Validate(servers, listed, presentation.schema, preset.hidden),
            guard,
            FallbackPolicy(config.fallback, scrape),
            RetryPolicy(servers, lambda route: _annotations(listed(route))),
            breaker,
            LimitsPolicy(servers),
            presentation,
        ),
        innermost,
    )
    return Rules(chain, access, guard, deadline, trace, breaker, shaping, pins, screen, spans)


def _annotations(tool: Json | None) -> Mapping[str, Any]:
    found = tool.get("annotations") if tool is not None else None
    return found if isinstance(found, dict) else {}
