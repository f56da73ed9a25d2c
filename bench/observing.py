"""CPU time of observing a call: the outermost rules around a call that does nothing, and prometheus_client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from mcp_hub.catalog import Route
from mcp_hub.config.root_rules import TracingSettings
from mcp_hub.observability.call_metrics import CallMetrics
from mcp_hub.observability.tracing import SpanTracing
from mcp_hub.policy import Call, Chain, Json, Policy
from mcp_hub.policy.call_record import RecordLabels
from mcp_hub.policy.spans import Spans
from mcp_hub.policy.trace import Trace
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.redaction import Redactor

RUNS, CALLS, SECRETS = 5, 5000, 20
ROUTE = Route("up", TOOLS, "echo")
ARGUMENTS: Json = {"text": "hello", "url": "https://example.org/a?page=2", "limit": 10}
RESULT: Json = {"content": [{"type": "text", "text": "x" * 1024}]}


async def _nothing(call: Call) -> Json:
    return RESULT


async def _per_call(policies: Sequence[Policy], runs: int = RUNS) -> float:
    """Microseconds of CPU time of one call, the best of some runs."""
    chain, best = Chain(policies, _nothing), float("inf")
    for _ in range(runs):
        began = time.process_time()
        for _ in range(CALLS):
            params = {"name": "echo", "arguments": ARGUMENTS}
            await chain.run(Call("tools/call", "up__echo", ROUTE, params, "handshake", Envelope()))
        await asyncio.sleep(0)  # records are made in the loop's next round
        best = min(best, (time.process_time() - began) / CALLS * 1e6)
    return best


async def _share_of_secrets(bare: float, redactor: Redactor) -> float:
    """Percent that a record takes longer where secrets are known than where none is, in interleaved runs."""
    none, some = float("inf"), float("inf")
    for _ in range(2 * RUNS):
        none = min(none, await _per_call([Trace(_drop, Redactor())], 1))
        some = min(some, await _per_call([Trace(_drop, redactor)], 1))
    return ((some - bare) / (none - bare) - 1) * 100


def _prometheus() -> float:
    from prometheus_client import CollectorRegistry, Counter, Histogram

    registry = CollectorRegistry()
    calls = Counter("calls", "-", ["server", "method", "tool", "code"], registry=registry)
    durations = Histogram("seconds", "-", ["server", "method"], registry=registry)

    def record() -> None:
        calls.labels("up", "tools/call", "echo", "ok").inc()
        durations.labels("up", "tools/call").observe(0.01)

    return _each(record)


def _each(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        for _ in range(CALLS):
            work()
        best = min(best, (time.process_time() - began) / CALLS * 1e6)
    return best


def _import_ms(module: str) -> float:
    program = f"import time; t = time.process_time(); import {module}; print((time.process_time() - t) * 1e3)"
    return min(float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(RUNS))


async def main() -> None:
    from opentelemetry.sdk.trace import TracerProvider

    redaction = Redactor([f"https://service{number}.example/{number * 7919:032x}" for number in range(SECRETS)])
    metrics = CallMetrics()
    spans = Spans(
        SpanTracing(TracingSettings(), TracerProvider()).tracer,
        redaction,
        RecordLabels(),
        lambda route: {"description": "it"},
    )
    bare = await _per_call([Trace(None, redaction)])
    counted = _each(lambda: metrics.record("up", "tools/call", "echo", "ok", None, 0.01))
    rows = [
        ("a count", counted, "µs a call"),
        ("the same by prometheus_client", _prometheus(), "µs a call"),
        ("importing prometheus_client", _import_ms("prometheus_client"), "ms"),
        ("a record, to be written by another thread", await _per_call([Trace(_drop, redaction)]) - bare, "µs a call"),
        (f"what {SECRETS} known secrets add to a record", await _share_of_secrets(bare, redaction), "%"),
        ("a span, to be sent by another thread", await _per_call([spans, Trace(None, redaction)]) - bare, "µs a call"),
    ]
    for name, value, unit in rows:
        print(f"| {name} | {value:.1f} {unit} |")


def _drop(record: Json) -> None:
    pass


if __name__ == "__main__":
    asyncio.run(main())
