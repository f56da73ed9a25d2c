"""The hub uses a dual-era server in the era of its client, so that features of one era are not lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.upstream import negotiation
from tests.fakes.client import HUB, PATIENCE, fake, hub, spawned, write_config
from tests.fakes.network import network_hub, sdk, text
from tests.upstream.asking.test_servers_ask_handshake_clients import (
    QUESTION,
    answer,
    asked,
    asking,
    client_of,
    respond,
    respondent,
    text_of,
)

pytestmark = pytest.mark.anyio

ROOTS = {"roots": [{"uri": "file:///x"}]}
BOTH = ("--era", "both")


async def test_the_hub_uses_the_handshake_era_of_its_only_client(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking(*BOTH)) as client:
        call = client.start("tools/call", {"name": "a__ask", "arguments": {"method": "roots/list"}})
        (question,) = await asked(client)
        respond(client, question, result=ROOTS)
        async with asyncio.timeout(PATIENCE):
            assert text_of(await call) == {"result": ROOTS}


async def test_the_hub_uses_the_modern_era_of_its_only_client(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": asking(*BOTH)})
    async with spawned([*HUB, "serve", "--config", str(config)], modern=True) as client:
        assert await client.text("a__ask", {}) == "this is asked of clients of the handshake alone"


async def test_a_cached_catalog_does_not_decide_the_era_for_the_next_client(tmp_path: Path) -> None:
    async def is_modern_upstream(modern: bool) -> bool:
        async with hub(tmp_path, {"up": fake("--era", "dual")}, modern=modern) as client:
            meta = json.loads(await client.text("up__meta"))
            return "io.modelcontextprotocol/protocolVersion" in meta

    eras = (False, True, True, False)
    assert [await is_modern_upstream(modern) for modern in eras] == list(eras)


async def test_a_modern_server_bound_to_its_first_era_is_restarted_for_a_handshake_client(
    tmp_path: Path,
) -> None:
    for modern in (True, False):  # the second client is served from the cached catalog of the first
        async with hub(tmp_path, {"up": fake("--era", "modern", "--one-opening")}, modern=modern) as client:
            assert "io.modelcontextprotocol/protocolVersion" in json.loads(await client.text("up__meta"))


async def test_a_slow_server_that_named_a_modern_revision_gets_no_initialize(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiation, "PROBE_WAIT", 0.2)
    methods: list[str] = []
    initialized = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        message = await request.json()
        methods.append(message["method"])
        if message["method"] == "initialize":
            initialized.set()
        if methods.count("server/discover") == 1:
            data = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
            error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await initialized.wait()
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    app = web.Application()
    app.router.add_post("/mcp", answer)
    async with TestServer(app) as server:
        config = load_config(write_config(tmp_path, {"a": {"url": str(server.make_url("/mcp"))}}))
        async with Engine(config) as engine, asyncio.timeout(PATIENCE):
            await engine.upstreams["a"].attempted.wait()
            assert engine.upstreams["a"].error is None
    assert methods[:2] == ["server/discover", "server/discover"]
    assert "initialize" not in methods


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_per_caller_session_uses_the_era_of_its_caller(tmp_path: Path, path: str) -> None:
    messages: list[str] = []
    async with network_hub(tmp_path, {"a": asking(*BOTH, session="client")}) as (_, base):
        async with sdk(base + path, "handshake", **respondent("old", messages)) as client:
            assert (await answer(client))["result"]["content"] == {"name": "old"}
        async with sdk(base + path, "modern", **respondent("new", messages)) as client:
            async with asyncio.timeout(PATIENCE):
                result = await client.call_tool("a__ask", QUESTION)
            assert "handshake alone" in str(result.content)
    assert messages == ["a asks: who?"]


PID = """import os

import mcp_hub


@mcp_hub.tool
def pid() -> str:
    return str(os.getpid())
"""


async def test_a_stdio_server_has_one_process_per_era_unless_pinned_or_built_in(
    tmp_path: Path,
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir(mode=0o700)
    (tools / "pid.py").write_text(PID)
    dual = fake("--era", "dual")
    servers = {"free": dual, "pinned": {**dual, "era": "handshake"}, "own": {"tools_dir": str(tools)}}
    async with (
        network_hub(tmp_path, servers) as (_, base),
        sdk(f"{base}/mcp", "handshake") as old,
        sdk(f"{base}/mcp", "modern") as new,
    ):
        pids = {name: {await text(client, f"{name}__pid") for client in (old, new, old)} for name in servers}
    assert {name: len(pids_of_server) for name, pids_of_server in pids.items()} == {"free": 2, "pinned": 1, "own": 1}


async def test_a_program_that_can_run_only_once_keeps_one_session(tmp_path: Path) -> None:
    """The second process ends at once, as those do that lock a file; calls go on over the first."""
    script = tmp_path / "once.py"
    lock = tmp_path / "lock"
    script.write_text(
        f"import os, sys\nos.close(os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL))\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    entry = fake("--era", "dual")
    entry["args"] = [str(script), *entry["args"]]
    async with (
        network_hub(tmp_path, {"up": entry}) as (_, base),
        sdk(f"{base}/mcp", "handshake") as old,
        sdk(f"{base}/mcp", "modern") as new,
    ):
        assert len({await text(client, "up__pid") for client in (old, new, old)}) == 1
