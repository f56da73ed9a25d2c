"""Processes of servers that end after each answer, as some do by design."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import hub

pytestmark = pytest.mark.anyio

ENDS = """
import json, os, sys
tools = [{"name": "pid", "inputSchema": {"type": "object"}}, {"name": "fail", "inputSchema": {"type": "object"}}]
info = {"name": "ending", "version": "1"}
begun = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
for line in sys.stdin:
    asked = json.loads(line)
    method, answer = asked.get("method"), {"error": {"code": -32601, "message": "unknown"}}
    if method == "initialize":
        answer = {"result": begun}
    elif method == "tools/list":
        answer = {"result": {"tools": tools}}
    elif method == "tools/call" and asked["params"]["name"] == "pid":
        answer = {"result": {"content": [{"type": "text", "text": str(os.getpid())}]}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
    if method == "tools/call":
        os._exit(STATUS)
"""


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize(("tool", "code"), [("pid", None), ("fail", -32601)])
async def test_a_server_that_ends_after_each_answer_answers_every_call(
    tmp_path: Path, status: int, tool: str, code: int | None
) -> None:
    servers: dict[str, Any] = {"a": {"command": sys.executable, "args": ["-c", ENDS.replace("STATUS", str(status))]}}
    async with hub(tmp_path, servers) as client:
        await client.tool_names()
        for count in range(1, 9):
            result = await client.start("tools/call", {"name": f"a__{tool}", "arguments": {}})
            assert result.get("error", {}).get("code") == code, result
            assert ("isError" in result.get("result", {})) is False
            await client.until(lambda count=count: client.stderr.count(b"a was lost") == count)
