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


def run_hub(*arguments: str, code: int = 0, **environ: str) -> str:
    process = subprocess.run(
        [*HUB, *arguments], capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **environ}, check=False
    )
    assert process.returncode == code, process.stdout + process.stderr
    return process.stdout if code == 0 else process.stderr


def costs(*arguments: str, **environ: str) -> Json:
    facts: Json = json.loads(run_hub("tokens", "--json", *arguments, **environ))
    return facts


def test_token_costs_of_servers_and_exposure_modes_are_sums_over_their_tools(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, 150, 100), "b": fake()}))
    definitions = json.loads(run_hub("tools", "--json", "--config", config))
    facts = costs("--config", config)
    by_tool = {tool["tool"]: tool["tokens"] for tool in facts["tools"]}
    assert by_tool == {
        definition["name"]: estimate_tool_tokens({key: definition[key] for key in definition if key != "source"})
        for definition in definitions
    }
    assert sum(server["tokens"] for server in facts["servers"]) == sum(by_tool.values())
    everything, search, code = facts["ways"]
    assert (everything["way"], search["way"], code["way"]) == ("all", "search", "code")
    assert (code["tools"], code["each_search"]) == (0, search["each_search"])
    assert search["tokens"] < code["tokens"] < everything["tokens"]  # programs take more to describe than calls
    assert everything["tokens"] == sum(by_tool.values())
    assert search["tools"] == 0  # those of the hub are not of servers
    assert search["searches"] == (everything["tokens"] - search["tokens"]) // search["each_search"] > 5
    assert [tool["tokens"] for tool in facts["tools"]] == sorted(by_tool.values(), reverse=True)
    assert facts["records"] is None
    assert json.loads(run_hub("check", "--json", "--config", config))["tokens"] == facts
    text = run_hub("tokens", "--config", config)
    assert f"{everything['tokens']:,}" in text
    assert f"up to {search['searches']} searches" in text


def test_tokens_accepts_a_client_name_and_refuses_an_unknown_one(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, 150, 100)}))
    listed = {name: costs("--config", config, "--client", name)["client"] for name in ("cursor", "claude-code")}
    assert (listed["cursor"]["tools"], listed["cursor"]["of"]) == (0, 150)
    assert listed["cursor"]["why"] == "it takes at most 40; hub_search finds the rest"
    assert listed["claude-code"]["tools"] == 150
    assert listed["cursor"]["tokens"] * 10 < listed["claude-code"]["tokens"]
    # The name is checked before the configuration is read and its servers are started.
    assert "cursor" in run_hub("tokens", "--config", "no-such-file", "--client", "cursr", code=2)


def test_uncalled_tools_are_determined_from_the_call_log(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    config = str(write_config(tmp_path, {"a": fake()}, call_log={"file": str(log), "stderr": False}))
    run_hub("call", "--config", config, "a__echo", "text=hi")
    facts = costs("--config", config)
    calls = {tool["tool"]: tool["calls"] for tool in facts["tools"]}
    assert calls.pop("a__echo") == 1
    assert set(calls.values()) == {0}
    assert facts["servers"][0]["never_called"] == len(calls)
    assert facts["records"]["from"] == [str(log)]
    text = run_hub("tokens", "--config", config)
    assert f"{len(calls)} tools" in text
    assert f"were never called since {facts['records']['since']}" in text


async def test_without_a_call_log_tokens_asks_the_running_hubs(tmp_path: Path) -> None:
    environ = {"MCP_HUB_RUNTIME_DIR": str(tmp_path / "run")}
    async with hub(tmp_path, {"a": fake()}, env=environ) as client:
        await client.text("a__echo", {"text": "hi"})
        config = (
            str(tmp_path / "servers.yaml") if (tmp_path / "servers.yaml").exists() else str(tmp_path / "servers.json")
        )
        facts = costs("--config", config, **environ)
    assert {tool["tool"]: tool["calls"] for tool in facts["tools"]}["a__echo"] == 1
    assert facts["records"]["from"] == [f"the hub {client.process.pid}"]


def test_tokens_lists_groups_as_an_exposure_mode(tmp_path: Path) -> None:
    groups = {"rare": {"description": "d", "servers": ["a"], "active": False}}
    config = str(write_config(tmp_path, {"a": many(tmp_path, 50, 50), "b": fake()}, groups=groups))
    facts = costs("--config", config)
    modes = {mode["way"]: mode["tokens"] for mode in facts["ways"]}
    (group,) = facts["groups"]
    assert (group["group"], group["tools"], group["active"]) == ("rare", 50, False)
    assert modes["groups"] < modes["all"]
    assert group["tokens"] == {server["server"]: server["tokens"] for server in facts["servers"]}["a"]


def test_torn_refused_and_foreign_lines_of_the_call_log_are_not_counted(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    line = {"event": "call", "time": "2026-01-02T00:00:00Z", "method": "tools/call", "upstream": "a", "tool": "t"}
    lines = [
        {**line, "verdict": "ok"}, {**line, "verdict": "tool_error"}, {**line, "verdict": "refused"},
        {**line, "method": "prompts/get", "verdict": "ok"}, {"a": 1},
        {"event": "refused", "time": "2025-01-01T00:00:00Z"},
    ]  # fmt: skip
    log.write_text("".join(json.dumps(record) + "\n" for record in lines) + '{"event": "call", "ti')
    (tmp_path / "calls.jsonl.1").write_text(json.dumps({**line, "time": "2026-01-01T00:00:00Z", "verdict": "ok"}))
    config = CALL_LOG.changed(Config(), CallLogSettings(file=log))
    calls = count_calls(config)
    assert calls.counts == {("a", "t"): 3}
    assert calls.since == "2026-01-01T00:00:00Z"
