"""`mcp-hub setup` as a person runs it: several clients, none, twice, and back again."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_hub.cli import FAILED, OK, STALE, UNCONFIRMED
from tests.cli.person import Person
from tests.cli.test_while_it_runs import interruptible, read_terminal, wait_for_exit
from tests.fakes.client import FAKE, HUB, PATIENCE

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


@pytest.fixture
def started(person: Person) -> Path:
    """A file that gets a line whenever a server of these clients starts."""
    return person.home / "started"


@pytest.fixture
def before(person: Person, started: Path) -> dict[Path, bytes]:
    """The files of three clients; two of them have one server in common."""
    script = f"echo x >> {shlex.quote(str(started))}; exec {shlex.join([sys.executable, FAKE])}"
    clock = {"command": "/bin/sh", "args": ["-c", script]}
    keyed = {"type": "stdio", **clock, "env": {"API_TOKEN": SECRET}}
    files = {
        person.home / ".config/Claude/claude_desktop_config.json": json.dumps({"mcpServers": {"time": clock}}),
        person.home / ".cursor/mcp.json": json.dumps({"mcpServers": {"clock": clock}, "other": {}}),
        person.home / ".config/Code/User/mcp.json": "{\n\t// mine\n\t\"servers\": {\"keyed\": "
        + json.dumps(keyed) + ",},\n}\n",
    }  # fmt: skip
    for path, text in files.items():
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return {path: path.read_bytes() for path in files}


def now(before: dict[Path, bytes]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in before}


def test_setup_shows_every_command_and_changes_nothing_before_confirmation(
    person: Person, before: dict[Path, bytes], started: Path
) -> None:
    assert person.run("setup") == UNCONFIRMED
    assert re.search(r"^time +new, from Claude Desktop, Cursor \(clock\)$", person.out, re.MULTILINE)
    assert person.out.count(f"exec {sys.executable}") >= 2
    assert SECRET not in person.out + person.err
    assert not person.config.exists()
    assert now(before) == before
    assert not started.exists()
    token = re.search(r"--confirm (\w+)", person.err)
    assert token is not None
    assert person.run("setup", "--confirm", "0" * 16) == STALE
    assert not started.exists()
    assert person.run("setup", "--confirm", token[1]) == OK
    assert person.config.exists()


def test_a_confirmed_setup_works_in_every_client_and_one_undo_reverts_it(
    person: Person, before: dict[Path, bytes]
) -> None:
    assert person.run("setup", "--yes") == OK
    assert re.search(r"^time +works: 15 tools$", person.out, re.MULTILINE)
    assert stat.S_IMODE(person.config.stat().st_mode) == 0o600
    assert SECRET not in person.config.read_text()
    assert all(path.read_bytes() != content for path, content in before.items())
    hub = json.loads((person.home / ".cursor/mcp.json").read_text())["mcpServers"]["hub"]
    assert hub["args"] == ["serve", "--config", str(person.config)]
    served = subprocess.run(
        [hub["command"], "check", *hub["args"][1:]],
        cwd="/",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert served.returncode == 0, served.stdout + served.stderr
    assert b"2 of 2 servers work" in served.stdout
    assert person.run("tools") == OK
    assert {"time__echo", "keyed__echo"} <= {line.split()[0] for line in person.out.splitlines()}
    assert person.run("undo", "--yes") == OK
    assert now(before) == before
    assert not person.config.exists()
    assert not [path for path in person.home.rglob("*") if path.is_file() and "API_TOKEN" in path.name]


def test_a_second_setup_changes_nothing_and_starts_no_server(
    person: Person, before: dict[Path, bytes], started: Path
) -> None:
    assert person.run("setup", "--yes") == OK
    done, config, starts = now(before), person.config.read_bytes(), started.read_text()
    assert person.run("setup") == OK
    assert "nothing was changed" in person.out
    assert (now(before), person.config.read_bytes(), started.read_text()) == (done, config, starts)


def test_setup_disables_original_entries_only_on_request_and_undo_restores_them(
    person: Person, before: dict[Path, bytes]
) -> None:
    assert person.run("setup", "--yes") == OK
    cursor = person.home / ".cursor/mcp.json"
    first = now(before)
    assert {*json.loads(first[cursor])["mcpServers"]} == {"clock", "hub"}
    assert person.run("setup", "--switch-off", "--yes") == OK
    assert {*json.loads(cursor.read_bytes())["mcpServers"]} == {"hub"}
    assert "Switched off in Cursor: clock" in person.out
    assert person.run("undo", "--yes") == OK
    assert now(before) == first
    assert person.run("undo", "--yes") == OK
    assert now(before) == before


def test_one_undo_takes_the_hub_out_of_every_client_also_of_one_that_was_edited_since(
    person: Person, before: dict[Path, bytes]
) -> None:
    cursor = person.home / ".cursor/mcp.json"
    assert person.run("setup", "--switch-off", "--yes") == OK
    tree = json.loads(cursor.read_bytes())
    tree["mcpServers"]["mine"] = {"command": "my-server"}
    cursor.write_text(json.dumps(tree, indent=2))
    assert person.run("undo", "--yes") == OK
    assert f"{cursor} was edited since: undo takes out hub and puts back clock" in person.out
    tree = json.loads(cursor.read_bytes())
    assert tree == json.loads(before[cursor]) | {"mcpServers": {**tree["mcpServers"]}}
    assert {*tree["mcpServers"]} == {"clock", "mine"}
    others = [path for path in before if path != cursor]
    assert [path.read_bytes() for path in others] == [before[path] for path in others]
    assert not person.config.exists()
    journal = person.home / ".local/state/mcp-hub/journal"
    assert not [path for path in journal.iterdir() if b'"edits":[{' in path.read_bytes()]


def test_uninstall_of_all_clients_takes_the_hub_out_and_forgets_their_files(
    person: Person, before: dict[Path, bytes]
) -> None:
    assert person.run("setup", "--switch-off", "--yes") == OK
    assert person.run("uninstall", "--all", "--yes") == OK
    assert now(before) == before
    assert person.run("uninstall", "--all") == OK
    assert "no client of this machine has the hub" in person.out
    assert person.run("undo", "--list") == OK
    assert str(person.config) in person.out
    assert not any(str(path) in person.out for path in before)


@pytest.mark.parametrize(("answer", "stays"), [("", False), ("n", True)])
def test_a_person_at_a_terminal_is_asked_whether_clients_keep_their_entries(
    person: Person, before: dict[Path, bytes], answer: str, stays: bool
) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(HUB[0], [*HUB, "setup", "cursor"])
    try:
        read_terminal(terminal, b"[Y/n]")
        os.write(terminal, answer.encode() + b"\n")
        read_terminal(terminal, b"[y/N]")
        os.write(terminal, b"y\n")
        read_terminal(terminal, b"takes all of this back")
    finally:
        wait_for_exit(child)
        os.close(terminal)
    cursor = person.home / ".cursor/mcp.json"
    assert {*json.loads(cursor.read_bytes())["mcpServers"]} == ({"clock", "hub"} if stays else {"hub"})
    assert person.run("undo", "--yes") == OK
    assert now(before) == before


def test_what_is_off_in_a_client_stays_off_there_and_comes_to_the_others(
    person: Person, before: dict[Path, bytes]
) -> None:
    windsurf = person.home / ".codeium/windsurf/mcp_config.json"
    windsurf.parent.mkdir(parents=True)
    clock = json.loads(before[person.home / ".cursor/mcp.json"])["mcpServers"]["clock"]
    windsurf.write_text(json.dumps({"mcpServers": {"clock": {**clock, "disabled": True}}}))
    assert person.run("setup", "--yes") == OK
    assert "note: Windsurf gets keyed, as it has switched off time" in person.out
    hub = json.loads(windsurf.read_bytes())["mcpServers"]["hub"]
    assert hub["args"] == ["serve", "--config", str(person.config), "--profile", "windsurf"]
    assert person.run("tools", "--json", *hub["args"][1:]) == OK
    assert {tool["name"].partition("__")[0] for tool in json.loads(person.out)} == {"keyed"}
    assert "--profile" not in (person.home / ".cursor/mcp.json").read_text()
    done = windsurf.read_bytes(), person.config.read_bytes()
    assert person.run("setup", "--yes") == OK
    assert (windsurf.read_bytes(), person.config.read_bytes()) == done
    assert person.run("add", "later", "--yes", "--", sys.executable, FAKE) == OK
    missing = "Windsurf has the profile windsurf, which does not have all of later"
    assert f"{missing}: write later/* into profiles.windsurf.tools" in person.out
    assert "Cursor has the profile" not in person.out
    (person.home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"new": {**clock, "env": {"A": "b"}}}}))
    assert person.run("setup", "--yes") == OK
    assert "note: Windsurf gets what is new when profiles.windsurf.tools names it" in person.out


def test_a_person_says_which_servers_a_client_gets(person: Person, before: dict[Path, bytes]) -> None:
    assert person.run("setup", "--only", "cursor=nothing", "--yes") == 2
    assert "servers are: time, keyed" in person.err
    assert person.run("setup", "--only", "cursor=keyed", "--yes") == OK
    hub = json.loads((person.home / ".cursor/mcp.json").read_bytes())["mcpServers"]["hub"]
    assert hub["args"][-2:] == ["--profile", "cursor"]
    assert person.run("tools", "--json", *hub["args"][1:]) == OK
    assert {tool["name"].partition("__")[0] for tool in json.loads(person.out)} == {"keyed"}
    assert person.run("undo", "--yes") == OK
    assert now(before) == before


def test_setup_keeps_an_original_entry_that_fails_behind_the_hub_enabled(
    person: Person, before: dict[Path, bytes]
) -> None:
    cursor = person.home / ".cursor/mcp.json"
    entries = json.loads(before[cursor])["mcpServers"] | {"gone": {"command": "no-such-program"}}
    cursor.write_text(json.dumps({"mcpServers": entries}))
    assert person.run("setup", "--switch-off", "--yes") == OK
    assert "\n  needs  no-such-program, which was not found on this machine\n" in person.out
    assert re.search(r"^gone +failed: .*was not found", person.out, re.MULTILINE)
    assert {*json.loads(cursor.read_bytes())["mcpServers"]} == {"gone", "hub"}


def test_setup_leaves_client_files_unchanged_if_no_server_works(person: Person) -> None:
    cursor = person.home / ".cursor/mcp.json"
    cursor.parent.mkdir()
    cursor.write_text('{"mcpServers": {"gone": {"command": "no-such-program"}}}')
    content = cursor.read_bytes()
    assert person.run("setup", "--yes") == FAILED
    assert "the clients were left as they are" in person.out
    assert cursor.read_bytes() == content
    assert person.run("undo", "--yes") == OK
    assert not person.config.exists()


def test_setup_skips_a_client_file_changed_meanwhile_and_a_second_run_completes(
    person: Person, before: dict[Path, bytes]
) -> None:
    cursor = person.home / ".cursor/mcp.json"
    script = f"echo >> {shlex.quote(str(cursor))}; exec {shlex.join([sys.executable, FAKE])}"
    cursor.write_text(json.dumps({"mcpServers": {"clock": {"command": "/bin/sh", "args": ["-c", script]}}}))
    files = now(before) | {cursor: cursor.read_bytes() + b"\n"}
    assert person.run("setup", "--yes") == STALE
    assert f"{cursor} changed after the preview" in person.err
    assert f"{person.config} is written, and no client was changed: mcp-hub setup goes on from there" in person.err
    assert now(files) == files
    assert person.run("setup", "--yes") == OK
    assert all(b"mcp-hub" in path.read_bytes() for path in files)
    for _ in range(2):
        assert person.run("undo", "--yes") == OK
    assert now(files) == files
    assert not person.config.exists()


def test_an_interrupted_setup_reports_its_completed_steps_and_can_be_undone(
    person: Person, before: dict[Path, bytes], started: Path
) -> None:
    os.mkfifo(started)
    descriptor = os.open(started, os.O_RDWR | os.O_NONBLOCK)
    cursor = person.home / ".cursor/mcp.json"
    script = f"echo x >> {shlex.quote(str(started))}; exec sleep 1000"
    cursor.write_text(json.dumps({"mcpServers": {"clock": {"command": "/bin/sh", "args": ["-c", script]}}}))
    content = cursor.read_bytes()
    argv, pipe = [*HUB, "setup", "cursor", "--yes"], subprocess.PIPE
    process = interruptible(argv, stdout=pipe, stderr=pipe, text=True)
    try:
        assert select.select([descriptor], [], [], PATIENCE)[0], "no server was started"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        os.close(descriptor)
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "no client was changed: mcp-hub setup goes on from there, mcp-hub undo takes it back" in err
    assert cursor.read_bytes() == content
    assert person.run("undo", "--yes") == OK
    assert not person.config.exists()


def test_setup_lists_project_files_and_changes_only_named_ones(person: Person, started: Path) -> None:
    script = f"echo x >> {shlex.quote(str(started))}; exec {shlex.join([sys.executable, FAKE])}"
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"proj": {"command": "/bin/sh", "args": ["-c", script]}}}))
    content = Path(".mcp.json").read_bytes()
    assert person.run("setup", "--yes", "--json") == OK
    assert any(".mcp.json" in note and "proj" in note for note in json.loads(person.out)["left_out"])
    assert not started.exists()
    assert "proj" not in person.config.read_text()
    assert person.run("setup", "--yes", ".mcp.json") == OK
    assert "proj:" in person.config.read_text()
    assert started.exists()
    assert Path(".mcp.json").read_bytes() == content


def test_in_the_home_directory_client_files_do_not_count_as_project_files(
    person: Person, before: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(person.home)
    for command in ("setup", "import"):
        assert person.run(command, "--json") == UNCONFIRMED
        assert not any("this directory" in note for note in json.loads(person.out)["left_out"])


def test_setup_without_clients_writes_a_first_file_that_works(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.cli.setup.has_program", lambda name: False)
    assert person.run("setup", "--yes") == OK
    assert re.search(r"^local +works: 1 tool$", person.out, re.MULTILINE)
    assert person.run("call", "local__now") == OK
    assert person.run("check", "--strict") == OK
    assert person.run("setup", "--yes") == OK
    assert "nothing was changed" in person.out
    assert person.run("undo", "--yes") == OK
    assert not person.config.exists()
    assert not (person.config.parent / "tools/example.py").exists()


def test_setup_prints_one_json_value_with_the_plan_and_the_outcome(person: Person, before: dict[Path, bytes]) -> None:
    assert person.run("setup", "--json") == UNCONFIRMED
    plan = json.loads(person.out)
    assert plan["done"] is False
    assert [server["name"] for server in plan["servers"]] == ["time", "keyed"]
    assert {client["client"] for client in plan["clients"]} == {"claude-desktop", "vscode", "cursor"}
    assert SECRET not in person.out
    assert person.run("setup", "--json", "--confirm", plan["token"]) == OK
    done = json.loads(person.out)
    assert done["done"] is True
    assert [(server["server"], server["problem"]) for server in done["checked"]] == [("time", None), ("keyed", None)]


def test_an_invalid_client_file_is_named_and_the_others_are_set_up(person: Person, before: dict[Path, bytes]) -> None:
    cursor = person.home / ".cursor/mcp.json"
    cursor.write_text('{"mcpServers": ')
    assert person.run("setup", "--yes") == OK
    assert re.search(r"^note: Cursor: .*mcp\.json", person.out, re.MULTILINE)
    assert cursor.read_text() == '{"mcpServers": '
    assert "hub" in (person.home / ".config/Claude/claude_desktop_config.json").read_text()
