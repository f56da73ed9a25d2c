"""`mcp-hub doctor` as a person uses it: what it prints, how it exits, what it repairs."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.cli import main
from tests.diagnosis.looking import configured, said, script, written
from tests.fakes.client import PATIENCE, fake


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without client programs, where nothing is wrong."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    xdg = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    for name in (*xdg, "CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return path


def test_doctor_exits_0_if_it_finds_no_problem(tmp_path: Path) -> None:
    done = said("doctor", "--config", str(configured(tmp_path, {"up": fake()})))
    assert (done.code, done.codes) == (0, set()), done.out
    assert done.out.splitlines()[-1] == "All is well."
    assert re.search(r"^  ok +up +15 tools, connected in", done.out, re.MULTILINE)


def test_doctor_prints_a_section_for_each_part_and_a_closing_line(tmp_path: Path) -> None:
    done = said("doctor", "--config", str(configured(tmp_path, {"dead": {"command": "no-such-command"}})))
    titles = [line for line in done.out.splitlines() if line and not line.startswith(" ")]
    assert titles[:-1] == [
        "Installation", "Configuration", "Programs", "Servers", "Sign-ins", "Listening", "Files of the hub", "Clients",
        "Hubs that run",
    ]  # fmt: skip
    assert titles[-1] == "1 problem, 0 warnings. mcp-hub explain HUB-201 says what to do about the first one."
    assert done.code == 1


def test_doctor_exits_0_with_warnings_only(tmp_path: Path) -> None:
    done = said("doctor", "--config", str(configured(tmp_path, {"up": {**fake(), "comand": "x"}})))
    assert (done.code, done.codes) == (0, {"HUB-111"})


def test_doctor_continues_after_an_unusable_configuration(tmp_path: Path) -> None:
    done = said("doctor", "--config", str(written(tmp_path, "servers: [")))
    assert (done.code, done.codes) == (1, {"HUB-106"})
    assert "Clients" in done.out
    assert "Hubs that run" in done.out


def test_check_and_doctor_have_the_same_facts(tmp_path: Path) -> None:
    servers = {"good": fake(), "dead": {"command": "no-such"}, "keyed": fake(env={"KEY": "${MCP_HUB_TEST_UNSET}"})}
    config = str(configured(tmp_path, servers))
    checked = json.loads(said("check", "--json", "--config", config).out)["servers"]
    facts = json.loads(said("doctor", "--json", "--config", config).out)
    server_findings = next(section["findings"] for section in facts["sections"] if section["title"] == "Servers")
    assert {fact["server"]: fact["code"] for fact in checked} == {
        finding["about"]: finding["code"] for finding in server_findings
    }
    assert (facts["failed"], facts["warned"]) == (1, 1)


def test_doctor_prints_no_secret_and_no_hidden_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_HUB_TEST_KEY", "canary-4711-value")
    servers = {
        "dying": fake("--die", "no \x1b[31mkey", "--leak", "TOKEN", env={"TOKEN": "${MCP_HUB_TEST_KEY}"}),
        "odd\x1b]8;;x\x07": {"command": "no\x1b[2Jsuch", "args": ["--token", "canary-4711-value"]},
        "web": {"url": "http://127.0.0.1:9/mcp?key=canary-4711-value"},
    }
    for form in ([], ["--json"]):
        done = said("doctor", "--config", str(configured(tmp_path, servers)), *form)
        assert "canary" not in done.out + done.err
        assert not re.search("[\x1b\x07]", done.out + done.err)


@pytest.mark.parametrize("arguments", [["--yes"], ["--confirm", "0123"]])
def test_doctor_accepts_a_confirmation_only_with_repair(tmp_path: Path, arguments: list[str]) -> None:
    done = said("doctor", "--config", str(configured(tmp_path, {})), *arguments)
    assert (done.code, done.out) == (2, "")
    assert "--fix" in done.err


def test_doctor_without_repairs_asks_for_no_confirmation(tmp_path: Path) -> None:
    done = said("doctor", "--config", str(configured(tmp_path, {})), "--fix")
    assert done.code == 0
    assert "nothing that --fix can repair" in done.err


def test_a_repair_is_confirmed_by_the_token_of_its_preview(tmp_path: Path) -> None:
    config = configured(tmp_path, {})
    config.chmod(0o666)
    preview = said("doctor", "--config", str(config), "--fix")
    assert preview.code == 3
    assert f"chmod 0644 {config}" in preview.out
    assert f"To go back: chmod 0666 {config}" in preview.out
    assert said("doctor", "--config", str(config), "--fix", "--confirm", "0" * 16).code == 4
    assert config.stat().st_mode & 0o777 == 0o666
    token = re.search(r"--confirm (\w{16})", preview.err)
    assert token is not None
    assert said("doctor", "--config", str(config), "--fix", "--confirm", token[1]).code == 0
    assert config.stat().st_mode & 0o777 == 0o644


def test_doctor_gives_up_on_a_program_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.diagnosis.probes.ANSWER_WAIT", 0.5)
    (tmp_path / "bin").mkdir()
    for name in ("npx", "node"):
        script(tmp_path / "bin", name, "#!/bin/sh\nwhile :; do read line || sleep 100; done\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    entry = {"command": "npx", "args": ["server@1.0.0"], "deadlines": {"connect": "1s"}}
    done = said("doctor", "--config", str(configured(tmp_path, {"a": entry})))
    assert "HUB-207" in done.codes


@pytest.mark.parametrize("configuration", [None, {}, {"a": {"command": "npx", "args": ["server@1.0.0"]}}])
def test_doctor_reports_launchers_and_node_whether_used_or_not(
    tmp_path: Path, home: Path, configuration: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", "npx", "#!/bin/sh\nexit 1\n")
    script(tmp_path / "bin", "node", "#!/bin/sh\necho v22.19.0\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.chdir(home)
    named = () if configuration is None else ("--config", str(configured(tmp_path, configuration)))
    facts = json.loads(said("doctor", "--json", *named).out)
    (program_findings,) = [section["findings"] for section in facts["sections"] if section["title"] == "Programs"]
    texts = {finding["about"]: finding["text"] for finding in reversed(program_findings)}
    assert texts["npx"] == f"{tmp_path}/bin/npx, {'Node v22.19.0' if configuration else 'used by no server'}"
    assert {"uvx", "docker"} <= texts.keys()
    assert [finding["level"] for finding in program_findings if finding["about"] != "npx"] == ["ok", "ok"]


def test_doctor_warns_of_a_node_that_is_too_old_for_most_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", "npx", "#!/bin/sh\nexit 1\n")
    script(tmp_path / "bin", "node", "#!/bin/sh\necho v14.21.3\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    config = configured(tmp_path, {"a": {"command": "npx", "args": ["server@1.0.0"]}})
    assert "HUB-214" in said("doctor", "--config", str(config)).codes


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_of_doctor_fit_the_terminal(tmp_path: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    servers = {"dead": {"command": "no-such-command"}, "keyed": {**fake(), "env": {"KEY": "${MCP_HUB_TEST_UNSET}"}}}
    done = said("doctor", "--config", str(configured(tmp_path, servers)))
    for line in done.out.splitlines():
        longest = max((len(word) for word in line.split()), default=0)  # a path is not broken
        assert len(line) <= max(columns, longest + 40), line
    assert any(len(line) > 60 for line in done.out.splitlines())


@pytest.mark.parametrize(("plain", "coloured"), [({"NO_COLOR": "1"}, False), ({}, True)])
def test_doctor_prints_colours_at_a_terminal_unless_disabled(
    tmp_path: Path, plain: dict[str, str], coloured: bool
) -> None:
    config = str(configured(tmp_path, {"up": fake()}))
    controller, terminal = pty.openpty()
    env = {**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, "TERM": "xterm", **plain}
    argv = [sys.executable, "-m", "mcp_hub", "doctor", "--config", config]
    done = subprocess.run(
        argv, stdin=terminal, stdout=terminal, stderr=terminal, env=env, timeout=PATIENCE, check=False
    )
    os.close(terminal)
    output = b""
    try:
        while chunk := os.read(controller, 65536):
            output += chunk
    except OSError:
        pass  # the end of a terminal that nobody has open
    os.close(controller)
    assert done.returncode == 0
    assert (b"\x1b[32m" in output) is coloured
    assert b"All is well." in output


def test_the_help_of_doctor_and_explain_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("doctor", "explain"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert re.search(rf"examples:\n +mcp-hub {command} ", capsys.readouterr().out)
