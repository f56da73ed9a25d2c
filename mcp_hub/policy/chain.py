"""The rules in their order, made from the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.policy import Call, Chain, Json, Next, Policy, compose
from mcp_hub.policy.access import Access
from mcp_hub.policy.breaker import Breaker
from mcp_hub.policy.deadline import Deadline
from mcp_hub.policy.fallback import Fallback, Scrape
from mcp_hub.policy.flow import Flow, Used
from mcp_hub.policy.guard import FilterResults, UrlGuard
from mcp_hub.policy.limits import Limits
from mcp_hub.policy.long_results import LongResults
from mcp_hub.policy.pins import Pins
from mcp_hub.policy.presentation import Presentation
from mcp_hub.policy.preset import Preset
from mcp_hub.policy.retry import Retry
from mcp_hub.policy.screen import Screen
from mcp_hub.policy.selection import Selection
from mcp_hub.policy.shape_result import Function, ShapeResult
from mcp_hub.policy.trace import Labels, Measure, Trace
from mcp_hub.policy.validate import Validate
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES
from mcp_hub.security.pinning import Pinned
from mcp_hub.security.redaction import Redaction

if TYPE_CHECKING:
    from mcp_hub.policy.spans import Spans, Tracer

AT_ONCE: Final = 32
"""Tools or prompts that are shaped in one step."""

MakesTracer = Callable[[], Awaitable["Tracer | None"]]


class Rules(msgspec.Struct, frozen=True):
    """The chain, and the rules somebody asks something besides."""

    chain: Chain
    access: Access
    guard: UrlGuard
    trace: Trace
    breaker: Breaker
    shaping: tuple[Policy, ...]
    """Those that change results."""
    pins: Pins
    screen: Screen
    spans: Spans | None = None

    async def watched(self, call: Call, call_next: Next) -> Json:
        """What the hub does itself, recorded as the calls that go through the rules."""
        outermost = (self.spans, self.trace) if self.spans is not None else (self.trace,)
        return await compose(outermost, call_next)(call)

    def shape(self, items: Sequence[Item]) -> Generator[None, None, list[Item]]:
        """The items of one upstream as they may be listed, from what it lists itself, in steps."""
        yield from self.access.look(items)
        shaped: list[Item] = []
        at = 0
        while at < len(items):
            yield
            # URIs are read in many spellings, which takes a hundred times as long as what is done to a tool.
            number = 1 if items[at].route.kind in (RESOURCES, TEMPLATES) else AT_ONCE
            shaped += self.chain.shape(items[at : at + number])
            at += number
        return shaped

    def instructions(self, upstream: str, text: str | None) -> str | None:
        """What a server says of itself, if that may be passed on."""
        if text is None:
            return None
        # Both are asked, so that each can tell of what it has found.
        passes = [review.passes_instructions(upstream, text) for review in (self.pins, self.screen)]
        return text if all(passes) else None

    async def shaped(self, call: Call, result: Json) -> Json:
        """A result that did not come through the chain, as if it had."""

        async def given(_: Call) -> Json:
            return result

        return await compose(self.shaping, given)(call)

    def reaches(self, route: Route, profile: str | None) -> bool:
        """Whether callers of a profile may hear of a resource."""
        return self.access.why(route, profile) is None and not self.guard.hides(route)


def make_rules(
    config: Config,
    selection: Selection,
    innermost: Next,
    *,
    record: Callable[[Json], None] | None,
    labels: Labels,
    used: Used,
    listed: Callable[[Route], Json | None],
    scrape: Scrape,
    run_function: Function,
    long_results: LongResults,
    pinned: Mapping[str, Pinned],
    measure: Measure | None = None,
    tracer: MakesTracer | None = None,
    in_program: bool = False,
) -> Rules:
    """All rules of a configuration, from the outermost to the innermost.

    `record` gets a record of every call, `labels` name callers in it, `used` is for Flow;
    `listed(route)` is a tool as its server lists it, `scrape` is for Fallback,
    `run_function` and `long_results` are for ShapeResult, `pinned` is for Pins, `measure` for Trace;
    `tracer` is for Spans, None where no call is traced; `in_program`: the hub is that of a program, whose calls may
    bring presets.
    """
    servers = {server.id: server for server in config.servers}
    browsers = [server.id for server in config.servers if server.browser]
    pins, screen = Pins(config, pinned), Screen(config)
    access = Access(config, selection, (pins, screen))
    flow = Flow(servers, config.flows, used)
    guard, breaker = UrlGuard(config.guard, browsers), Breaker(servers)
    presentation = Presentation(servers)
    redaction = Redaction(secrets_of(config))
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
            Deadline(servers),
            *shaping,
            preset,
            Validate(servers, lambda route: _input_schema(presentation, route, listed(route)), preset.hidden),
            guard,
            Fallback(config.fallback, scrape),
            Retry(servers, lambda route: _annotations(listed(route))),
            breaker,
            Limits(servers),
            presentation,
        ),
        innermost,
    )
    return Rules(chain, access, guard, trace, breaker, shaping, pins, screen, spans)


def _input_schema(presentation: Presentation, route: Route, tool: Json | None) -> Json | None:
    found = tool.get("inputSchema") if tool is not None else None
    return presentation.schema(route, found) if isinstance(found, dict) else None


def _annotations(tool: Json | None) -> Mapping[str, Any]:
    found = tool.get("annotations") if tool is not None else None
    return found if isinstance(found, dict) else {}
