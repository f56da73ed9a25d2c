"""A server whose lists hang in the modern era is served in the handshake era."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.upstream.catalog_cache import CatalogCache
from tests.diagnosis.looking import checked
from tests.fakes.client import PATIENCE, hub, write_config

pytestmark = pytest.mark.anyio

SERVER = """
import json, sys
hangs = sys.argv[1:]
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    versions = ["2026-07-28", "2025-11-25"]
    if method == "server/discover":
        result = {"resultType": "complete", "supportedVersions": versions, "capabilities": {"tools": {}}}
    elif method == "initialize" and "modern only" in hangs:
        error = {"code": -32022, "message": "no handshake", "data": {"supported": versions[:1]}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    elif method == "initialize":
        info = {"name": "x", "version": "1"}
        result = {"protocolVersion": versions[1], "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list" and "_meta" not in params and "both" not in hangs:
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    else:
        for name in (hang.removeprefix("log=") for hang in hangs if hang.startswith("log=")):
            open(name, "a").write(f"{method} in the modern era\\n")
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def entry(*hangs: str, **keys: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", SERVER, *hangs], "deadlines": {"list": "1s"}, **keys}


async def test_a_server_whose_lists_hang_in_the_modern_era_is_tried_in_the_other(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": entry()}, modern=True, list_wait=PATIENCE) as client:
        assert await client.tool_names() == ["up__t"]


async def test_the_era_whose_lists_hang_is_not_tried_again_at_the_next_start(tmp_path: Path) -> None:
    log = tmp_path / "asked"
    config = read_config(write_config(tmp_path, {"up": entry(f"log={log}")})).config
    asked = []
    for _ in range(2):
        async with asyncio.timeout(PATIENCE), Engine(config, kept=CatalogCache(tmp_path / "cache")) as engine:
            up = engine.upstreams["up"]
            up.start_now()
            await up.attempted.wait()
            assert up.session is not None
            assert [tool["name"] for tool in up.lists.items[TOOLS]] == ["t"]
            assert (up.starts, up.session.era) == (1, "handshake")
            asked.append(log.read_text().count("tools/list in the modern era"))
    assert asked == [1, 1]


def test_check_lists_a_server_whose_lists_hang_in_the_modern_era(tmp_path: Path) -> None:
    assert checked(write_config(tmp_path, {"up": entry()})) == set()


@pytest.mark.parametrize("up", [entry("both"), entry("modern only"), entry(era="modern")])
def test_a_server_that_lists_in_no_era_is_told_by_its_lists(tmp_path: Path, up: dict[str, Any]) -> None:
    assert checked(write_config(tmp_path, {"up": up})) == {codes.LIST_LATE}
