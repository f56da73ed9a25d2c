"""What a hub counts of its calls: at /metrics, in `mcp-hub status`, and for whoever collects in a library."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import mcp_hub
from mcp_hub.errors import INVALID_PARAMS, UpstreamAnswered
from mcp_hub.observability.call_metrics import BUCKETS, MAX_SERIES, OTHER, CallMetrics, MetricFamily, write_openmetrics
from tests.downstream.network.visitor import TOKENS, bearer, network_hub, visiting
from tests.fakes.client import FAKE, HUB, PATIENCE, fake, spawned

pytestmark = pytest.mark.anyio

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


def parsed(text: str) -> Samples:
    """Sample -> labels -> value, by the reference parser."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return samples


def sample_value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name][frozenset(labels.items())]


def calls(samples: Samples, code: str, tool: str = "echo", server: str = "up") -> float:
    return sample_value(samples, "mcp_hub_calls_total", server=server, method="tools/call", tool=tool, code=code)


async def read(base: str, token: str | None = None, method: str = "GET") -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
        return await http.request(method, "/metrics", headers=bearer(token))


async def test_call_outcomes_are_counted_and_shown_to_authorized_callers(tmp_path: Path) -> None:
    listen = {
        "principals": {
            "alice": {"token": TOKENS["alice"]},
            "bob": {"token": TOKENS["bob"], "profile": "few"},
        }
    }
    servers = {"up": fake(timeout="1s"), "other": fake(), "dead": {"command": "no-such-command"}}
    profiles = {"few": {"tools": ["up/echo"]}}
    env = {"MCP_HUB_RUNTIME_DIR": str(tmp_path / "run")}
    os.environ.update(env)
    try:
        async with network_hub(tmp_path, servers, listen, profiles=profiles) as (_, base):
            async with visiting(base, "handshake", TOKENS["alice"]) as alice:
                for name, arguments in (
                    ("up__echo", {"text": "a"}),
                    ("up__echo", {"text": "b"}),
                    ("up__sleep", {"seconds": 60}),
                    ("up__fail", {}),
                    ("up__nothing", {}),
                    ("other__echo", {"text": 'quoted "\\\n'}),
                ):
                    await alice.call(name, arguments)
                response = await read(base, TOKENS["alice"])
                samples_of_few = parsed((await read(base, TOKENS["bob"])).text)
                answers = [await read(base), await read(base, "wrong" * 10), await read(base, TOKENS["alice"], "POST")]
            async with spawned([*HUB, "status", "--json"], env=env) as asking:
                await asking.exited()
                await asking.until(lambda: bool(asking.noise) and asking.noise[-1].rstrip() == b"]")
                (facts,) = json.loads(b"".join(asking.noise))
    finally:
        del os.environ["MCP_HUB_RUNTIME_DIR"]
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    samples_of_all = parsed(response.text)
    assert calls(samples_of_all, "ok") == 2
    assert calls(samples_of_all, "timeout", "sleep") == 1
    assert calls(samples_of_all, "rpc_error", "fail") == 1
    assert calls(samples_of_all, "unknown", "", "") == 1
    assert calls(samples_of_all, "ok", server="other") == 1
    up_labels = {"server": "up", "method": "tools/call"}
    assert sample_value(samples_of_all, "mcp_hub_call_duration_seconds_count", **up_labels) == 4
    assert sample_value(samples_of_all, "mcp_hub_call_duration_seconds_bucket", **up_labels, le="+Inf") == 4
    assert sample_value(samples_of_all, "mcp_hub_call_duration_seconds_bucket", **up_labels, le="0.5") == 3
    assert sample_value(samples_of_all, "mcp_hub_call_duration_seconds_sum", **up_labels) > 1
    assert sample_value(samples_of_all, "mcp_hub_server_state", server="up", mcp_hub_server_state="ready") == 1
    assert sample_value(samples_of_all, "mcp_hub_server_state", server="dead", mcp_hub_server_state="ready") == 0
    assert sample_value(samples_of_all, "mcp_hub_server_breaker", server="up", mcp_hub_server_breaker="closed") == 1
    assert sample_value(samples_of_all, "mcp_hub_server_calls_running", server="up") == 0
    assert sample_value(samples_of_all, "mcp_hub_server_starts_total", server="up") == 1
    assert sample_value(samples_of_all, "mcp_hub_clients") >= 1
    # Whoever sees a part of the hub hears of that part.
    assert calls(samples_of_few, "ok") == 2
    assert "other" not in {value for samples in samples_of_few.values() for labels in samples for _, value in labels}
    assert {dict(labels)["tool"] for labels in samples_of_few["mcp_hub_calls_total"]} == {"echo"}
    assert not {"mcp_hub_clients", "mcp_hub_server_tools"} & set(samples_of_few)
    assert sample_value(samples_of_all, "mcp_hub_server_tools", server="up") > 10
    assert [answer.status_code for answer in answers] == [401, 401, 405]
    counted = {(row["server"], row["tool"], row["code"]): row["count"] for row in facts["metrics"]["calls"]}
    assert counted["up", "echo", "ok"] == 2
    assert counted["up", "sleep", "timeout"] == 1


class Collector:
    def __init__(self) -> None:
        self.recorded: list[dict[str, Any]] = []

    def record(self, *, server: str, tool: str, method: str, code: str, seconds: float, success: bool) -> None:
        assert seconds >= 0
        self.recorded.append({"server": server, "tool": tool, "method": method, "code": code, "success": success})


class Broken:
    def record(self, **_: Any) -> None:
        raise RuntimeError("no")


async def test_a_hub_in_a_program_reports_to_its_collectors_and_its_tracer(tmp_path: Path) -> None:
    """Check 50: with an exporter in memory there is one span for each call."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    collector: mcp_hub.IMetricsCollector = Collector()
    servers = {"up": {"command": sys.executable, "args": [FAKE]}}
    instance = mcp_hub.Hub({"servers": servers}, collectors=[Broken(), collector], tracer_provider=provider)
    async with asyncio.timeout(PATIENCE), instance as hub:
        with provider.get_tracer("program").start_as_current_span("the program's own") as program_span:
            await hub.call("up", "echo", {"text": "x"})
            with pytest.raises(UpstreamAnswered):
                await hub.call("up", "fail")
            parent = program_span.get_span_context()
    echo, fail, program = exporter.get_finished_spans()
    assert program.name == "the program's own"
    assert (echo.name, fail.name) == ("execute_tool up__echo", "execute_tool up__fail")
    assert echo.status.is_ok
    assert not fail.status.is_ok
    assert echo.attributes is not None
    assert json.loads(str(echo.attributes["gen_ai.tool.call.result"]))["content"][0]["text"] == "x"
    assert {span.parent.span_id for span in (echo, fail) if span.parent is not None} == {parent.span_id}
    assert isinstance(collector, Collector)
    common = {"server": "up", "method": "tools/call"}
    assert collector.recorded == [
        {**common, "tool": "echo", "code": "ok", "success": True},
        {**common, "tool": "fail", "code": "rpc_error", "success": False},
    ]
    provider.get_tracer("program").start_span("it is still the program's").end()
    assert len(exporter.get_finished_spans()) == 4


def test_the_number_of_label_values_is_bounded() -> None:
    metrics = CallMetrics()
    for number in range(MAX_SERIES * 2):
        metrics.record("up", "tools/call", f"tool{number}", "ok", None, BUCKETS[0])
        metrics.record("up", "tools/call", "one", "error", -33000 - number, 1e9)
    assert len(metrics.calls) <= MAX_SERIES + 1
    assert sum(metrics.calls.values()) == 4 * MAX_SERIES
    assert metrics.calls[(OTHER, "tools/call", OTHER, "ok")] > 0
    assert metrics.calls[("up", "tools/call", "one", "rpc_error")] == 2 * MAX_SERIES


def test_the_codes_of_the_protocol_keep_their_names() -> None:
    metrics = CallMetrics()
    metrics.record("up", "tools/call", "t", "error", INVALID_PARAMS, 0.0)
    metrics.record("up", "tools/call", "t", "tool_error", None, 0.0)
    assert [series.code for series in metrics.calls] == ["invalid_params", "tool_error"]


def test_any_text_is_escaped_as_a_label_value() -> None:
    family = MetricFamily("odd", "gauge", 'a "help"\nof two lines \\')
    values = ['"', "\\", "\n", "ü", "a\\n", ""]
    for number, value in enumerate(values):
        family.add(number, {"value": value})
    samples = parsed(write_openmetrics([family]).decode())["odd"]
    assert {dict(labels)["value"]: number for labels, number in samples.items()} == dict(
        zip(values, range(len(values)), strict=True)
    )
