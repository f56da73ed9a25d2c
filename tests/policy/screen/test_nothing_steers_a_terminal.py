"""Whatever a server says, and wherever it says it, no escape and no hidden character of its reaches output or logs."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_commands import run
from tests.fakes.client import RpcError, fake, hub, write_config
from tests.policy.screen.corpus import tool

HOSTILE = (
    '\x1b]8;;https://x.example\x07click\x1b]8;;\x07\x1b[2J\u202egnp.exe\u200b\U000e0041\x9b31m\n{"event":"call"}\r\x85'
)
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
LISTS = {
    "tools": [
        tool(HOSTILE, name="plain", title=HOSTILE, annotations={"title": HOSTILE}),
        tool("x", name=f"named{HOSTILE}"),
        {"name": "schema", "inputSchema": {"type": "object", "properties": {HOSTILE: {"description": HOSTILE}}}},
        {"name": f"broken{HOSTILE}", "inputSchema": "none"},
        *(tool("Does it.", name=name) for name in ("crash", "stderr", "fail")),
    ],
    "prompts": [{"name": f"p{HOSTILE}", "description": HOSTILE}],
    "resources": [{"uri": f"x://{HOSTILE}", "name": HOSTILE, "description": HOSTILE}],
    "instructions": HOSTILE,
}  # fmt: skip


def servers(directory: Path) -> dict[str, Any]:
    lists = directory / "lists.json"
    lists.write_text(json.dumps(LISTS))
    dying = fake("--die", HOSTILE)
    return {"a": fake("--lists", str(lists)), "dying": dying}


def assert_plain(text: str) -> None:
    assert STEERING.search(text) is None, text


@pytest.mark.parametrize(
    "command",
    [
        ["check"], ["check", "--json"], ["check", "-vv"], ["tools"], ["tools", "--json"], ["pin"], ["pin", "--diff"],
        ["call", "a__plain"], ["call", "a__plain", "--explain"], ["call", "a__plain", "--explain", "--json"],
        ["call", "a__fail"], ["call", "a__stderr", "--args", json.dumps({"text": HOSTILE})],
        ["call", f"a__named{HOSTILE}", "--explain"], ["call", "a", f"named{HOSTILE}", "--explain"],
        ["call", "a__plain", "--args", json.dumps({"text": HOSTILE}), "--explain"],
    ],
)  # fmt: skip
def test_no_command_prints_control_sequences_of_a_server(tmp_path: Path, command: list[str]) -> None:
    for mode in ("enforce", "warn") if command == ["check"] else ("off",):
        done = run(*command, "--config", str(write_config(tmp_path, servers(tmp_path), pins=mode)))
        assert_plain(done.stdout + done.stderr)
        assert done.stdout or done.stderr


def test_pins_are_shown_without_control_sequences(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, servers(tmp_path)))
    assert run("pin", "--config", config).returncode == 1  # `dying` is not there
    for option in ("--show", "--diff"):
        done = run("pin", option, "--config", config)
        assert done.stdout or "dying: unavailable" in done.stderr
        assert_plain(done.stdout + done.stderr)


@pytest.mark.anyio
async def test_log_lines_and_records_are_single_lines_without_control_sequences(tmp_path: Path) -> None:
    """T22: a line end in the name of a tool makes no second record."""
    calls = tmp_path / "calls.jsonl"
    root = {"call_log": {"file": str(calls)}, "list_wait": 20}
    names = ["a__plain", f"a__named{HOSTILE}", HOSTILE, "a__crash", f"a__x\n{json.dumps({'event': 'call'})}"]
    async with hub(tmp_path, servers(tmp_path), **root) as client:
        await client.tool_names()
        for name in names:
            with contextlib.suppress(RpcError):
                await client.call(name, {"text": HOSTILE})
        await client.until(lambda: client.stderr.count(b'"event":"call"') >= len(names))
        await client.until(lambda: b"kept back" in client.stderr)
    stderr = client.stderr.decode()
    for text in (stderr, calls.read_text()):
        assert_plain(text)
    records = [json.loads(line) for line in calls.read_text().splitlines()]
    assert [record["event"] for record in records] == ["call"] * len(names)
    verdicts = [record["verdict"] for record in records]
    assert verdicts == ["ok", "refused", "refused", "error", "refused"]
    lines = stderr.splitlines()
    assert all(line.startswith(("mcp-hub: ", '{"event":"call"')) for line in lines)
    assert len([line for line in lines if line.startswith("{")]) == len(names)
