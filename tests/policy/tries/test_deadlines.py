"""A call ends at its deadline, the server is told, and its session answers the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB, fake, hub, spawned

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_times_out_and_its_session_continues(tmp_path: Path, modern: bool) -> None:
    """Check 16."""
    record = tmp_path / "record"
    async with hub(tmp_path, {"a": fake("--record", str(record), timeout=1)}, modern=modern) as client:
        pid = await client.text("a__pid")
        late = await client.call("a__sleep", {"seconds": 10})
        assert late["_meta"]["mcp-hub/error"]["code"] == "timeout"
        assert late["_meta"]["mcp-hub/error"]["retryable"] is True
        assert "servers.a.timeout" in late["content"][0]["text"]  # as it is written
        assert await client.text("a__pid") == pid
    assert "notifications/cancelled" in record.read_text()


async def test_a_tool_can_have_its_own_deadline(tmp_path: Path) -> None:
    entry = fake(timeout=0.5, tools={"sl*": {"timeout": "300s"}, "sleep": {"timeout": "700ms"}})
    async with hub(tmp_path, {"a": entry}) as client:
        late = await client.call("a__sleep", {"seconds": 10})
        assert "within 0.7 s (setting: servers.a.tools.sleep.timeout)" in late["content"][0]["text"]


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"mcpServers": {"a": {"timeout": 1}}}, "mcpServers.a.timeout"),
        ({"mcpServers": {"a": {}}, "defaults": {"idle_timeout": "1s"}}, "defaults.idle_timeout"),
        ({"servers": {"a": {"deadlines": {"call": "1s"}}}}, "servers.a.deadlines.call"),
    ],
)
async def test_the_error_of_a_deadline_names_the_key_in_the_file(
    tmp_path: Path, document: dict[str, Any], key: str
) -> None:
    ((root, servers), *_) = document.items()
    entries = {root: {"a": {**fake(), **servers["a"]}}}
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({**document, **entries}))
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        late = await client.call("a__sleep", {"seconds": 10})
        assert f"(setting: {key})" in late["content"][0]["text"]


async def test_progress_extends_the_idle_deadline_and_silence_does_not(tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text(SLOW)
    entry = {"command": "python3", "args": [str(program)], "idle_timeout": "1s", "timeout": "60s"}
    async with hub(tmp_path, {"a": entry}) as client:
        assert await client.text("a__steps") == "done"
        silent = await client.call("a__silent")
        assert silent["_meta"]["mcp-hub/error"]["code"] == "timeout"
        assert "no progress for 1 s" in silent["content"][0]["text"]


SLOW = """
import json, sys, time

def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        info = {"name": "slow", "version": "1"}
        send({"id": message["id"], "result": {
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("steps", "silent")]
        send({"id": message["id"], "result": {"tools": tools}})
    elif method == "tools/call" and params["name"] == "steps":
        for step in range(6):
            time.sleep(0.4)
            token = params["_meta"]["progressToken"]
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        send({"id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}})
    elif method == "tools/call":
        continue
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
"""
