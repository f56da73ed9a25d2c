"""`check` says what clients would be listed, `status` what they were listed, and why."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.clients.table import CLIENTS
from tests.fakes.client import HUB, PATIENCE, fake, hub, spawned, write_config
from tests.hub.exposure.listing import CHAT, META, many, names

pytestmark = pytest.mark.anyio

FEW = "it takes at most 40; hub_search finds the rest"


def stdout_of(*arguments: str, **environ: str) -> str:
    environment = {**os.environ, **environ}
    completed = subprocess.run(
        [*HUB, *arguments], capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def rows(*arguments: str, **environ: str) -> list[dict[str, Any]]:
    report = json.loads(stdout_of(*arguments, "--json", **environ))
    return list(report["listed_to"] if isinstance(report, dict) else report[0]["listed_to"])


def test_check_prints_what_each_client_would_be_listed_and_why(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, 150, 150)}, expose_always=["tool_001"]))
    (line,) = [
        line for line in stdout_of("check", "--config", config).splitlines() if line.startswith("listed to clients")
    ]
    assert "Claude Code, Codex 150 of 150 tools (the client shows its model few of them itself); " in line
    assert f"Cursor 1 of 150 tools ({FEW}); " in line
    assert line.endswith("any other client 150 of 150 tools (it is not known to need less)")
    by_client = {client: row["listed"] for row in rows("check", "--config", config) for client in row["clients"]}
    few = {client.name: 1 if client.calls_itself else 150 for client in CLIENTS}
    assert by_client == {**few, "Claude Code": 150, "Codex": 150, "any other client": 150}


@pytest.mark.parametrize(("root", "why"), [({}, "they are few"), ({"expose": "all"}, "'expose' is 'all'")])
def test_check_states_if_every_client_gets_the_whole_list(tmp_path: Path, root: dict[str, str], why: str) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, 5)}, **root))
    assert rows("check", "--config", config) == [
        {"clients": ["every client"], "listed": 5, "of": 5, "short": False, "why": why}
    ]


def test_check_fails_for_a_pattern_in_always_that_matches_no_tool(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, 5)}, expose_always=["tool_00?", "misspelt"]))
    completed = subprocess.run(
        [*HUB, "check", "--config", config], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert completed.returncode == 1
    assert "expose_always: no server has misspelt" in completed.stdout


async def test_status_prints_what_each_client_was_listed_and_why(tmp_path: Path) -> None:
    environ = {"MCP_HUB_RUNTIME_DIR": str(tmp_path / "run")}
    servers = {"a": many(tmp_path, 150, 150), "b": fake()}
    async with hub(tmp_path, servers, modern=True, env=environ) as client:
        for name in ("claude-code", "cursor-vscode", CHAT, "\x1b[31mred"):
            await names(client, name)
        reasons = {row["client"]: (row["listed"], row["why"]) for row in rows("status", **environ)}
        total = reasons["claude-code"][0]
        assert reasons == {
            "claude-code": (total, "the client shows its model few of them itself"),
            "cursor-vscode": (0, FEW),
            CHAT: (0, "all are more than 20,000 tokens; hub_search finds the rest"),
            "\\x1b[31mred": (total, "it is not known to need less"),
        }
        assert f"  cursor-vscode is listed 0 of {total} tools: {FEW}\n" in stdout_of("status", **environ)


async def test_status_states_if_every_client_gets_the_whole_list(tmp_path: Path) -> None:
    environ = {"MCP_HUB_RUNTIME_DIR": str(tmp_path / "run")}
    async with hub(tmp_path, {"a": many(tmp_path, 5)}, env=environ) as client:
        assert len(await names(client)) == 5
        assert "  every client is listed 5 of 5 tools: they are few\n" in stdout_of("status", **environ)


def test_commands_say_what_each_configured_client_is_listed_and_when_that_changes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    config = write_config(tmp_path, {"a": many(tmp_path, 22)})
    entry = {"command": "mcp-hub", "args": ["serve", "--config", str(config)]}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"hub": entry}}))

    def said(*arguments: str) -> str:
        return stdout_of(*arguments, "--config", str(config), HOME=str(home), XDG_CONFIG_HOME=str(home / ".config"))

    assert len(said("tools").splitlines()) == 22
    server = many(tmp_path, 30)
    command = ["--command", server["command"], *server["args"]]
    all_listed = "Cursor now is listed 22 of 22 tools: they are few"
    few = f"Cursor now is listed 0 of 52 tools: {FEW}"
    added = stdout_of("add", "b", "--yes", "--config", str(config), *command, HOME=str(home))
    assert added.splitlines()[-1] == few
    assert said("disable", "b").splitlines()[-1] == all_listed
    assert said("enable", "b").splitlines()[-1] == few
    assert [line.split()[0] for line in said("tools", "--client", "cursor").splitlines()] == META
    doctor = subprocess.run(
        [*HUB, "doctor", "--json", "--config", str(config)],
        capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "HOME": str(home)}, check=False,
    ).stdout  # fmt: skip
    assert f"Cursor 0 of 52 tools ({FEW}); any other client 52 of 52 tools" in said("check")
    listed = next(section for section in json.loads(doctor)["sections"] if section["title"] == "Lists")
    assert listed["findings"][0]["text"] == f"listed to Cursor: {FEW}"
    report = json.loads(said("check", "--json"))["listed_to"]
    assert [row["clients"] for row in report] == [["Cursor"], ["any other client"]]


def test_commands_say_of_a_client_only_what_its_own_entry_of_the_hub_serves(tmp_path: Path) -> None:
    home = tmp_path / "home"
    config = write_config(tmp_path, {"a": many(tmp_path, 22)}, profiles={"p": {"tools": ["a/tool_000", "a/tool_001"]}})
    (tmp_path / "other").mkdir()
    other = write_config(tmp_path / "other", {"a": many(tmp_path, 5)})
    for directory, arguments in (
        (".cursor", ["--config", str(config), "--profile", "p"]),
        (".codeium/windsurf", ["--config", str(other)]),
        (".kiro/settings", ["--config", str(config)]),
    ):
        (home / directory).mkdir(parents=True)
        hubs = {"mcpServers": {"hub": {"command": "mcp-hub", "args": ["serve", *arguments]}}}
        for name in ("mcp.json", "mcp_config.json"):
            (home / directory / name).write_text(json.dumps(hubs))

    def said(*arguments: str) -> str:
        return stdout_of(*arguments, "--config", str(config), HOME=str(home), XDG_CONFIG_HOME=str(home / ".config"))

    few = "they are few; its profile 'p' has no others"
    assert f"listed to clients: Cursor 2 of 2 tools ({few}); Kiro, any other client 22 of 22 tools" in said("check")
    tools = ["a__tool_000", "a__tool_001"]
    assert [line.split()[0] for line in said("tools", "--client", "cursor").splitlines()] == tools
    assert said("tokens", "--client", "cursor").startswith("Cursor is listed 2 of 2 tools")
    for arguments, expected in (
        ([], f"Cursor: listed 2 of 2 tools: {few}"),
        (["--client", "windsurf"], "note: Windsurf does not start the hub with this configuration; "
            "this is what it would be listed"),
    ):  # fmt: skip
        stderr = subprocess.run(
            [*HUB, "tools", "--config", str(config), *arguments],
            capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "HOME": str(home)}, check=False,
        ).stderr  # fmt: skip
        assert stderr.splitlines() == [expected]
    said("disable", "a")
    assert said("enable", "a").splitlines()[-2:] == [
        f"Cursor is listed 2 of 2 tools: {few}",
        "Kiro is listed 22 of 22 tools: they are few",
    ]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_tools_says_that_a_client_sees_others_than_it_prints(tmp_path: Path, count: int) -> None:
    config = str(write_config(tmp_path, {"a": many(tmp_path, count)}, expose="search"))
    completed = subprocess.run(
        [*HUB, "tools", "--config", config], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert len(completed.stdout.splitlines()) == count
    expected = f"every client: listed 0 of {count} tools: 'expose' is 'search'; hub_search finds the rest"
    assert expected in completed.stderr


async def test_what_is_said_counts_the_groups_that_are_on(tmp_path: Path) -> None:
    groups = {"few": {"description": "Two.", "tools": ["a/tool_000", "a/tool_001"]}}
    config = str(write_config(tmp_path, {"a": many(tmp_path, 5)}, groups=groups))
    (row,) = rows("check", "--config", config)
    async with spawned([*HUB, "serve", "--config", config], modern=True) as client:
        assert await names(client) == ["reset_equipped_tools", *(f"a__tool_{number:03}" for number in (2, 3, 4))]
        assert (row["listed"], row["of"]) == (3, 3)
