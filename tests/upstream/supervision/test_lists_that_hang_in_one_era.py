"""A server whose lists hang in the modern era is served in the handshake era."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fakes.client import hub

pytestmark = pytest.mark.anyio

SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    versions = ["2026-07-28", "2025-11-25"]
    if method == "server/discover":
        result = {"resultType": "complete", "supportedVersions": versions, "capabilities": {"tools": {}}}
    elif method == "initialize":
        info = {"name": "x", "version": "1"}
        result = {"protocolVersion": versions[1], "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list" and "_meta" not in params:
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_a_server_whose_lists_hang_in_the_modern_era_is_tried_in_the_other(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-c", SERVER], "deadlines": {"list": "1s"}}
    async with hub(tmp_path, {"up": entry}, modern=True, list_wait="1ms") as client:
        while "up__t" not in await client.tool_names():
            pass
        await client.until(lambda: b"tools/list" in client.stderr)
