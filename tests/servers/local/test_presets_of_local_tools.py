"""Presets of functions in the child process of `tools_dir` are secrets of the hub as well."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.downstream.network.visitor import network_hub, visiting
from tests.fakes.client import HUB, PATIENCE, hub, spawned, write_config
from tests.hub.reload.test_going_over_to_another_configuration import changed
from tests.observability.spans.collector import collecting

pytestmark = pytest.mark.anyio

CANARY = "canary-29f1"
REPEATING = str(Path(__file__).parents[2] / "fakes" / "repeating.py")
TOOLS = f'''
import sys, traceback
from mcp_hub import ToolResponse, tool

@tool(preset={{"key": "{CANARY}-a", "more": {{"number": 12345678, "list": ["{CANARY}-b"]}}}})
def raises(how: str, key: str, more: dict) -> str:
    "Raise."
    try:
        raise ValueError(f"bad {{key}} and {{more}}")
    except ValueError:
        traceback.print_exc()
        print(key, flush=True)
        if how == "die":
            import os
            os._exit(3)
        if how == "ok":
            return key
        raise

@tool(preset={{"key": "{CANARY}-c"}})
def streams(key: str):
    "Say it on the way."
    yield key
    raise ValueError(key)
'''
BROKEN = f"""
from mcp_hub import tool

@tool(preset={{"key": "{CANARY}-d"}})
def never(key: str) -> str:
    "Never."
    return key

raise RuntimeError("{CANARY}-d")
"""
PRESET = {"say": {"key": f"{CANARY}-e", "options": {"token": f"{CANARY}-f", "depth": 12345678}}}


def servers() -> dict[str, Any]:
    return {"up": {"command": sys.executable, "args": [REPEATING], "preset": PRESET}}


def tools_in(directory: Path) -> str:
    functions = directory / "functions"
    functions.mkdir()
    (functions / "tools.py").write_text(TOOLS)
    (functions / "broken.py").write_text(BROKEN)
    return str(functions)


def assert_clean(directory: Path, *outputs: bytes | str) -> None:
    files = [path for path in directory.rglob("*.jsonl") if path.is_file()]
    texts = [output if isinstance(output, str) else output.decode() for output in outputs]
    assert files
    for text in [*(path.read_text() for path in files), *texts]:
        assert CANARY not in text, text
        assert "12345678" not in text, text


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("local__raises", {"how": "x", "key": "mine"}),
    ("local__raises", {"how": "x"}),
    ("local__raises", {"how": 1}),
    ("local__streams", {}),
    ("local__raises", {"how": "die"}),
    *(("up__say", {"how": how, "key": "mine", "KEY": "mine"}) for how in ("error", "rpc", "tell", "crash")),
    ("up__say", {"how": [], "count": []}),
]


@pytest.mark.parametrize("modern", [False, True])
async def test_no_preset_is_in_any_output_of_the_hub(tmp_path: Path, modern: bool) -> None:
    root = {"tools_dir": tools_in(tmp_path), "call_log": {"file": str(tmp_path / "calls.jsonl")}}
    meta = {"io.modelcontextprotocol/logLevel": "debug"} if modern else {}
    with collecting() as collector:
        config = write_config(tmp_path, servers(), tracing={"endpoint": collector.url}, **root)
        async with spawned([*HUB, "serve", "-vv", "--config", str(config)], modern=modern) as client:
            if not modern:
                await client.initialize()
                await client.request("logging/setLevel", {"level": "debug"})
            answers = []
            for name, arguments in CALLS:
                try:
                    answers.append(await client.call(name, arguments, _meta={"progressToken": "t", **meta}))
                except Exception as error:
                    answers.append(str(error))
            assert await client.text("local__raises", {"how": "ok"}) == f"{CANARY}-a"  # what a tool returns stays
            progress = await client.notified("notifications/progress", 2)
            logged = await client.notified("notifications/message", 1 if modern else 2)
        spans = str(collector.spans)
    assert "bad ***" in str(answers)
    assert b"bad ***" in client.stderr
    records = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert len(records) == len(CALLS) + 1
    for record in records:
        assert record["upstream"] == "local" or not {"key", "KEY", "options"} & set(record.get("arguments", {}))
    # What a caller makes up itself is an unknown argument like any other: nobody learns from that what is preset.
    misfits = [str(answer) for answer in answers if "do not fit" in str(answer) and "does not take" not in str(answer)]
    assert len(misfits) == 2
    assert not [text for text in misfits if "key" in text or "options" in text]
    assert_clean(tmp_path, client.stderr, str(answers), str(progress), str(logged), spans)


async def test_a_preset_that_is_replaced_while_the_hub_runs_stays_a_secret(tmp_path: Path) -> None:
    async with hub(tmp_path, servers(), watch=False) as client:
        await client.call("up__say", {"how": "ok"})
        entries = servers()
        entries["up"]["preset"] = {"say": {"key": f"{CANARY}-new"}}
        await changed(client, tmp_path, entries, watch=False)
        answer = await client.call("up__say", {"how": "error"})
    text = answer["content"][0]["text"]
    assert "token" in text  # which the server was sent before
    assert CANARY not in text
    assert CANARY not in client.stderr.decode()


async def test_no_preset_is_in_the_metrics_or_the_status_of_a_hub(tmp_path: Path) -> None:
    root = {"tools_dir": tools_in(tmp_path), "call_log": {"file": str(tmp_path / "calls.jsonl")}}
    async with network_hub(tmp_path, servers(), {}, **root) as (process, base):
        async with visiting(base, "handshake") as visitor:
            for name, arguments in CALLS:
                await visitor.call(name, arguments)
            metrics = await visitor.http.get("/metrics")
        command = [*HUB, "status", "--json"]
        status = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=PATIENCE, check=False)
    assert metrics.status_code == 200
    assert b"up" in status.stdout
    assert_clean(tmp_path, metrics.text, status.stdout, status.stderr, process.stderr)


@pytest.mark.parametrize("call", ["local/raises", "up/say"])
def test_no_preset_is_in_the_output_of_explain_or_check(tmp_path: Path, call: str) -> None:
    config = write_config(
        tmp_path, servers(), tools_dir=tools_in(tmp_path), call_log={"file": str(tmp_path / "calls.jsonl")}
    )
    server, tool = call.split("/")
    (tmp_path / "calls.jsonl").touch()
    for arguments in (
        ["call", server, tool, "--explain", "-vv", "--args", json.dumps({"how": "error", "key": "mine"})],
        ["check", "-vv", "--json"],
        ["tools", "-vv", "--json"],
    ):
        done = subprocess.run([*HUB, *arguments, "--config", str(config)], capture_output=True, timeout=PATIENCE)
        assert done.stdout
        assert_clean(tmp_path, done.stdout, done.stderr)


async def test_a_local_tools_process_without_a_hub_does_not_report_its_presets(tmp_path: Path) -> None:
    directory = tools_in(tmp_path)
    async with spawned([sys.executable, "-m", "mcp_hub.servers", "local", directory]) as client:
        await client.initialize()
        failed = await client.call("raises", {"how": "x"})
        assert failed["content"][0]["text"] == "Error: bad *** and {'number': ***, 'list': ['***']}"
        assert client.notifications == []
