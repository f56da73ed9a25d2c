"""Spans of the calls of `mcp-hub serve`, as a real OTLP endpoint gets them."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.downstream.network.visitor import network_hub, visiting
from tests.fakes.client import HUB, PATIENCE, RpcError, fake, hub, write_config
from tests.observability.spans.collector import Got, collecting

pytestmark = pytest.mark.anyio

SECRET = "canary-of-a-collector-0123456789"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1", "baggage": "a=b"}


@pytest.mark.parametrize("modern", [False, True])
async def test_every_call_creates_a_span_with_its_outcome(tmp_path: Path, modern: bool) -> None:
    """Check 50: one execute_tool span per call, with its result or its error."""
    with collecting() as collector:
        tracing = {"endpoint": collector.url, "service_name": "mine", "headers": {"x-token": SECRET}}
        servers = {"up": fake("--era", "dual", timeout="1s")}
        async with hub(tmp_path, servers, modern=modern, tracing=tracing) as client:
            await client.call("up__echo", {"text": "hello", "token": "abc", "long": "x" * 100_000})
            await client.call("up__sleep", {"seconds": 60})
            with pytest.raises(RpcError):
                await client.call("up__fail")
            with pytest.raises(RpcError):
                await client.call("up__nothing")
            await client.request("resources/read", {"uri": "fake://fake/one"})
            await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "me"}})
        spans = collector.spans
    by_name = {span.name: span for span in spans}
    assert len(spans) == len(by_name) == 6
    echo = by_name["execute_tool up__echo"]
    attributes = echo.attributes
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "up__echo"
    assert attributes["gen_ai.tool.description"] == "echo of fake"
    assert attributes["gen_ai.tool.call.id"]
    assert json.loads(attributes["gen_ai.tool.call.arguments"])["token"] == "***"
    assert json.loads(attributes["gen_ai.tool.call.result"])["content"][0]["text"] == "hello"
    assert json.loads(attributes["agentscope.function.input"])["arguments"]["text"] == "hello"
    assert (attributes["agentscope.function.name"], attributes["mcp.server"]) == ("up.echo", "up")
    assert attributes["agentscope.function.output"] == attributes["gen_ai.tool.call.result"]
    assert all(len(value) < 5000 for value in attributes.values() if isinstance(value, str))
    assert not echo.error
    assert echo.resource["service.name"] == "mine"
    assert errors_of(by_name["execute_tool up__sleep"]) == "timeout"
    assert errors_of(by_name["execute_tool up__fail"]) == "-32050"
    assert errors_of(by_name["execute_tool up__nothing"]) == "unknown"
    assert not by_name["resources/read"].error
    assert not by_name["prompts/get up__greet"].error
    assert {headers["x-token"] for headers in collector.headers} == {SECRET}
    assert set(collector.paths) == {"/v1/traces"}
    assert SECRET.encode() not in client.stderr


def errors_of(span: Got) -> str:
    assert span.error
    ((name, event),) = span.events
    assert name == "exception"
    assert event["exception.type"]
    assert event["exception.message"]
    return str(span.attributes["error.type"])


async def test_calls_of_meta_tools_create_spans_and_hub_call_has_the_span_of_its_inner_tool(tmp_path: Path) -> None:
    with collecting() as collector:
        groups = {"later": {"description": "for later", "tools": ["up/add"]}}
        writes = {"meta_tools": True, "code_mode": {"writes": True}}
        root = {**writes, "groups": groups, "tracing": {"endpoint": collector.url}}
        async with hub(tmp_path, {"up": fake()}, **root) as client:
            await client.tool_names()
            await client.call("hub_search", {"query": "add"})
            await client.call("hub_call", {"tool": "up__add", "arguments": {"a": 1, "b": 2}})
            await client.call("reset_equipped_tools", {"later": True})
            await client.call("hub_call", {"tool": "up__add", "arguments": {"a": 1, "b": 2}}, _meta=CONTEXT)
        assert b"Traceback" not in client.stderr
    search, inactive, reset, called = collector.spans
    assert [search.name, reset.name] == ["execute_tool hub_search", "execute_tool reset_equipped_tools"]
    assert {search.attributes["mcp.server"], reset.attributes["mcp.server"]} == {"(mcp-hub)"}
    assert errors_of(inactive) == "group_inactive"
    assert (called.error, called.attributes["mcp.server"], called.parent) == (False, "up", PARENT)
    assert json.loads(called.attributes["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 2}


@pytest.mark.parametrize("modern", [False, True])
async def test_the_trace_context_of_the_client_reaches_the_server(tmp_path: Path, modern: bool) -> None:
    with collecting() as collector:
        servers = {"up": fake("--era", "dual")}
        async with hub(tmp_path, servers, modern=modern, tracing={"endpoint": collector.url}) as client:
            received = await received_meta(client, CONTEXT)
            without_context = await received_meta(client, {})
            broken = await received_meta(client, {"traceparent": "00-abc", "tracestate": "x=y", "own": [1]})
            unsampled = await received_meta(client, {"traceparent": f"00-{TRACE}-{PARENT}-00"})
            result = await client.call("up__count", {"steps": 2}, _meta={**CONTEXT, "progressToken": "p"})
            assert result["content"][0]["text"] == "counted"
            assert len(await client.notified("notifications/progress", 2)) == 2
        spans = {span.id: span for span in collector.spans}
    trace_fields = received["traceparent"].split("-")
    assert trace_fields[1] == TRACE
    assert spans[trace_fields[2]].parent == PARENT
    assert (received["tracestate"], received["baggage"]) == ("vendor=1", "a=b")
    assert not spans[without_context["traceparent"].split("-")[2]].parent
    assert broken["own"] == [1]
    assert "tracestate" not in broken
    assert broken["traceparent"].split("-")[2] in spans
    assert unsampled["traceparent"].startswith(f"00-{TRACE}-")
    assert unsampled["traceparent"].endswith("-00")
    assert len(spans) == 4


async def received_meta(client: Any, meta: dict[str, Any]) -> dict[str, Any]:
    result = await client.call("up__meta", **({"_meta": meta} if meta else {}))
    received: dict[str, Any] = json.loads(result["content"][0]["text"])
    return received


async def test_trace_context_passes_over_http_on_both_sides(tmp_path: Path) -> None:
    with collecting() as collector:
        async with network_hub(tmp_path / "inner", {"in": fake("--era", "dual")}, {}) as (_, inner):
            servers = {"up": {"url": f"{inner}/mcp", "type": "http"}}
            tracing = {"endpoint": collector.url}
            async with network_hub(tmp_path / "outer", servers, {}, tracing=tracing) as (_, base):
                for era in ("handshake", "modern"):
                    async with visiting(base, era) as visitor:
                        params = {"name": "up__in__meta", "arguments": {}, "_meta": CONTEXT}
                        if era == "modern":
                            answer = await visitor.ask("tools/call", {"name": "up__in__meta", "arguments": {}})
                        else:
                            answer = await visitor.ask("tools/call", params)
                        received = json.loads(answer["result"]["content"][0]["text"])
                        spans = await asyncio.to_thread(collector.wait, len(collector.spans) + 1)
                        assert received["traceparent"].split("-")[2] == spans[-1].id
                        assert spans[-1].parent == (PARENT if era == "handshake" else "")


async def test_with_tracing_off_nothing_changes(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake("--era", "dual")}) as client:
        received = await received_meta(client, {**CONTEXT, "traceparent": "00-whatever"})
        assert received == {**CONTEXT, "traceparent": "00-whatever"} | {
            key: value for key, value in received.items() if key.startswith("io.modelcontextprotocol/")
        }


@pytest.mark.parametrize("on", [False, True])
def test_opentelemetry_is_imported_only_if_tracing_is_on(tmp_path: Path, on: bool) -> None:
    with collecting() as collector:
        tracing = {"endpoint": collector.url} if on else "off"
        config = write_config(tmp_path, {"up": fake()}, tracing=tracing)
        command = [sys.executable, "-X", "importtime", *HUB[1:], "call", "--config", str(config), "up__echo"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ("opentelemetry" in completed.stderr) is on
    assert len(collector.spans) == on


async def test_a_reload_turns_tracing_on_and_off(tmp_path: Path) -> None:
    with collecting() as collector:
        async with hub(tmp_path, {"up": fake()}) as client:
            await client.call("up__echo", {"text": "before"})
            await asyncio.to_thread(rewrite, tmp_path, {"endpoint": collector.url})
            await client.until(lambda: client.stderr.count(b"loaded servers.json again") == 1)
            await client.call("up__echo", {"text": "while"})
            await asyncio.to_thread(rewrite, tmp_path, "off")
            await client.until(lambda: client.stderr.count(b"loaded servers.json again") == 2)
            await client.call("up__echo", {"text": "after"})
            # What was traced is sent when the generation ends, not when the hub does.
            await asyncio.to_thread(collector.wait, 1)
        (span,) = collector.spans
        assert json.loads(span.attributes["gen_ai.tool.call.arguments"]) == {"text": "while"}


def rewrite(directory: Path, tracing: Any) -> None:
    write_config(directory, {"up": fake()}, tracing=tracing)


@pytest.mark.parametrize("how", ["refuses", "hangs", "gone"])
async def test_an_unreachable_collector_delays_neither_calls_nor_shutdown(tmp_path: Path, how: str) -> None:
    with collecting() as collector:
        url = collector.url if how != "gone" else "http://127.0.0.1:9"
        collector.status = 503 if how == "refuses" else 200
        if how == "hangs":
            collector.free.clear()
        async with hub(tmp_path, {"up": fake()}, tracing={"endpoint": url}) as client:
            for number in range(5):
                assert await client.text("up__echo", {"text": str(number)}) == str(number)
            assert client.process.stdin is not None
            client.process.stdin.close()
            assert await client.exited() == 0


def test_without_opentelemetry_check_names_the_package_and_calls_work(tmp_path: Path) -> None:
    """Check 50: nothing needs opentelemetry."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'opentelemetry':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    config = write_config(tmp_path, {"up": fake()}, tracing={"enabled": True})
    completed = subprocess.run(
        [*HUB, "call", "--config", str(config), "up__echo", "--args", '{"text": "there"}'],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (completed.returncode, completed.stdout) == (0, "there\n"), completed.stderr
    assert "pip install 'mcp-hub-gateway[otel]'" in completed.stderr


@pytest.mark.parametrize("bad", [{"endpoint": "localhost:4318"}, {"endpoint": 5}, {"headers": {"a\nb": "c"}}, 7])
def test_invalid_tracing_settings_are_refused(tmp_path: Path, bad: Any) -> None:
    config = write_config(tmp_path, {"up": fake()}, tracing=bad)
    completed = subprocess.run(
        [*HUB, "tools", "--config", str(config)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert completed.returncode == 2, completed.stderr
    assert "tracing" in completed.stderr
