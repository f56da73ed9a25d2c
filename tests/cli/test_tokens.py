"""`mcp-hub tokens`: what tools cost, where a search breaks even, and what nobody calls."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog.token_estimate import estimate_tool_tokens
from mcp_hub.config.models import Config
from mcp_hub.diagnosis.token_costs import count_calls
from mcp_hub.policy.trace import CALL_LOG, CallLogSettings
from tests.fakes.client import HUB, PATIENCE, fake, hub, write_config
from tests.hub.exposure.listing import many

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


def done(*words: str, code: int = 0, **environ: str) -> str:
    ended = subprocess.run(
        [*HUB, *words], capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **environ}, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def costs(*words: str, **environ: str) -> Json:
    found: Json = json.loads(done("tokens", "--json", *words, **environ))
    return found


def test_token_costs_of_servers_and_exposure_modes_are_sums_over_their_tools(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, 150, 100), "b": fake()}))
    definitions = json.loads(done("tools", "--json", "--config", config))
    found = costs("--config", config)
    by_tool = {one["tool"]: one["tokens"] for one in found["tools"]}
    assert by_tool == {
        one["name"]: estimate_tool_tokens({key: one[key] for key in one if key != "source"}) for one in definitions
    }
    assert sum(one["tokens"] for one in found["servers"]) == sum(by_tool.values())
    everything, search, code = found["ways"]
    assert (everything["way"], search["way"], code["way"]) == ("all", "search", "code")
    assert (code["tools"], code["each_search"]) == (2, search["each_search"])
    assert search["tokens"] < code["tokens"] < everything["tokens"]  # programs take more to describe than calls
    assert everything["tokens"] == sum(by_tool.values())
    assert search["tools"] == 2
    assert search["searches"] == (everything["tokens"] - search["tokens"]) // search["each_search"] > 5
    assert [one["tokens"] for one in found["tools"]] == sorted(by_tool.values(), reverse=True)
    assert found["records"] is None
    assert json.loads(done("check", "--json", "--config", config))["tokens"] == found
    text = done("tokens", "--config", config)
    assert f"{everything['tokens']:,}" in text
    assert f"up to {search['searches']} searches" in text


def test_tokens_accepts_a_client_name_and_refuses_an_unknown_one(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, 150, 100)}))
    listed = {name: costs("--config", config, "--client", name)["client"] for name in ("cursor", "claude-code")}
    assert (listed["cursor"]["tools"], listed["cursor"]["of"]) == (2, 150)
    assert listed["cursor"]["why"] == "it takes at most 40"
    assert listed["claude-code"]["tools"] == 150
    assert listed["cursor"]["tokens"] * 10 < listed["claude-code"]["tokens"]
    # The name is checked before the configuration is read and its servers are started.
    assert "cursor" in done("tokens", "--config", "no-such-file", "--client", "cursr", code=2)


def test_uncalled_tools_are_determined_from_the_call_log(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    config = str(write_config(tmp_path, {"a": fake()}, call_log={"file": str(log), "stderr": False}))
    done("call", "--config", config, "a__echo", "text=hi")
    found = costs("--config", config)
    calls = {one["tool"]: one["calls"] for one in found["tools"]}
    assert calls.pop("a__echo") == 1
    assert set(calls.values()) == {0}
    assert found["servers"][0]["never_called"] == len(calls)
    assert found["records"]["from"] == [str(log)]
    text = done("tokens", "--config", config)
    assert f"{len(calls)} tools" in text
    assert f"were never called since {found['records']['since']}" in text


async def test_without_a_call_log_tokens_asks_the_running_hubs(tmp_path: Path) -> None:
    place = {"MCP_HUB_RUNTIME_DIR": str(tmp_path / "run")}
    async with hub(tmp_path, {"a": fake()}, env=place) as client:
        await client.text("a__echo", {"text": "hi"})
        config = (
            str(tmp_path / "servers.yaml") if (tmp_path / "servers.yaml").exists() else str(tmp_path / "servers.json")
        )
        found = costs("--config", config, **place)
    assert {one["tool"]: one["calls"] for one in found["tools"]}["a__echo"] == 1
    assert found["records"]["from"] == [f"the hub {client.process.pid}"]


def test_tokens_lists_groups_as_an_exposure_mode(tmp_path: Path) -> None:
    groups = {"rare": {"description": "d", "servers": ["a"], "active": False}}
    config = str(write_config(tmp_path, {"a": many(tmp_path, 50, 50), "b": fake()}, groups=groups))
    found = costs("--config", config)
    ways = {one["way"]: one["tokens"] for one in found["ways"]}
    (group,) = found["groups"]
    assert (group["group"], group["tools"], group["active"]) == ("rare", 50, False)
    assert ways["groups"] < ways["all"]
    assert group["tokens"] == {one["server"]: one["tokens"] for one in found["servers"]}["a"]


def test_torn_refused_and_foreign_lines_of_the_call_log_are_not_counted(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    line = {"event": "call", "time": "2026-01-02T00:00:00Z", "method": "tools/call", "upstream": "a", "tool": "t"}
    lines = [
        {**line, "verdict": "ok"}, {**line, "verdict": "tool_error"}, {**line, "verdict": "refused"},
        {**line, "method": "prompts/get", "verdict": "ok"}, {"a": 1},
        {"event": "refused", "time": "2025-01-01T00:00:00Z"},
    ]  # fmt: skip
    log.write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"event": "call", "ti')
    (tmp_path / "calls.jsonl.1").write_text(json.dumps({**line, "time": "2026-01-01T00:00:00Z", "verdict": "ok"}))
    config = CALL_LOG.changed(Config(), CallLogSettings(file=log))
    found = count_calls(config)
    assert found.counts == {("a", "t"): 3}
    assert found.since == "2026-01-01T00:00:00Z"
