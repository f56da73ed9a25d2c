"""The command line as a person uses it: what it prints, what it says of mistakes, how it exits."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.cli import COMMANDS
from tests.fakes.client import HUB, PATIENCE, fake, write_config


def run(*arguments: str, cwd: Path | None = None, input: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "160", **environ}
    env.pop("MCP_HUB_CONFIG", None)
    return subprocess.run(
        [*HUB, *arguments], capture_output=True, text=True, timeout=PATIENCE * 2, cwd=cwd, env=env, input=input
    )


SERVERS = {"good": fake(), "modern": fake("--era", "modern"), "dead": {"command": "no-such-command"}}


def test_check_prints_a_table_with_the_cause_of_every_failure(tmp_path: Path) -> None:
    done = run("check", "--config", str(write_config(tmp_path, SERVERS)))
    assert done.returncode == 0
    assert re.search(r"good +ok +2025-11-25 +stdio +15", done.stdout)
    assert re.search(r"modern +ok +2026-07-28 +stdio +15", done.stdout)
    assert re.search(r"dead +FAILED", done.stdout)
    assert re.search(r"^dead: the command 'no-such-command' was not found: .* Looked in /", done.stdout, re.MULTILINE)


def test_check_ends_with_the_number_of_working_servers(tmp_path: Path) -> None:
    servers = {**SERVERS, "off": fake(enabled=False), "other": {"command": "another-missing-command"}}
    done = run("check", "--config", str(write_config(tmp_path, servers)))
    assert done.stdout.splitlines()[-1] == "2 of 4 servers work"
    assert done.returncode == 0
    strict = run("check", "--strict", "--config", str(write_config(tmp_path, servers)))
    assert (strict.returncode, strict.stdout.splitlines()[-1]) == (1, "2 of 4 servers work")
    facts = json.loads(run("check", "--json", "--config", str(write_config(tmp_path, servers))).stdout)
    assert (facts["working"], facts["of"]) == (2, 4)


def test_every_command_merges_several_files_into_one_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    team = write_config(tmp_path, {"up": fake(), "other": {"command": "no-such-command"}})
    mine = write_config(tmp_path / "mine", {"other": fake()}, tool_sets={"few": ["up/echo", "other/add"]})
    files = ["--config", str(team), "--config", str(mine)]
    done = run("check", *files)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 of 2 servers work")
    replaced = rf"^warning: {mine}:\d+: servers.other: replaces {team}:\d+: servers.other \[HUB-132\]$"
    assert re.search(replaced, done.stderr, re.MULTILINE)
    assert run("call", "other__add", "a=1", "b=2", *files).stdout == "3\n"
    tools = run("tools", "--tool-set", "few", *files).stdout
    assert [line.split()[0] for line in tools.splitlines()] == ["up__echo", "other__add"]
    assert run("pin", *files).returncode == 0
    assert run("remove", "up", *files).returncode == 2  # which of them it should change is not certain
    assert run("status", *files).stdout == f"no hub is running with {team} and {mine}\n"


def test_check_fails_if_no_server_works(tmp_path: Path) -> None:
    done = run("check", "--config", str(write_config(tmp_path, {"dead": {"command": "no-such-command"}})))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 of 1 server works")
    good = run("check", "--strict", "--config", str(write_config(tmp_path, {"up": fake()})))
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "1 of 1 server works")


def test_check_says_each_reason_once(tmp_path: Path) -> None:
    servers = {
        **SERVERS,
        "keyed": fake(env={"KEY": "${MCP_HUB_TEST_UNSET}"}),
        "bare": {"url": "http://127.0.0.1:9/mcp"},
    }
    done = run("check", "--config", str(write_config(tmp_path, servers)))
    for reason in ("the command 'no-such-command' was not found", "MCP_HUB_TEST_UNSET", "Connection refused"):
        assert (done.stdout + done.stderr).count(reason) == 1, reason


def test_check_counts_the_tools_that_callers_get(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()}, blacklist=[["up", "echo"], ["up", "add"]])
    assert re.search(r"up +ok +2025-11-25 +stdio +13 of 15", run("check", "--config", str(config)).stdout)


def test_check_as_json_has_the_same_facts(tmp_path: Path) -> None:
    done = run("check", "--json", "--config", str(write_config(tmp_path, SERVERS)))
    facts = {fact["server"]: fact for fact in json.loads(done.stdout)["servers"]}
    assert (facts["good"]["state"], facts["good"]["era"], facts["good"]["tools"]) == ("ready", "handshake", 15)
    assert facts["dead"]["problem"].startswith("the command 'no-such-command' was not found")


def test_check_fails_where_a_required_server_does_and_names_it(tmp_path: Path) -> None:
    """Check 26."""
    servers = {"good": fake(required=True), "dead": {"command": "no-such-command", "required": True}}
    done = run("check", "--config", str(write_config(tmp_path, servers)))
    assert done.returncode == 1
    assert "failed: required and not available: dead [HUB-512]\n" in done.stdout


def test_check_ignores_a_required_server_that_the_user_has_disabled(tmp_path: Path) -> None:
    servers = {"off": fake(required=True, enabled=False)}
    assert run("check", "--config", str(write_config(tmp_path, servers))).returncode == 0


def test_check_names_the_variable_that_is_not_set(tmp_path: Path) -> None:
    servers = {"keyed": fake(env={"KEY": "${MCP_HUB_TEST_UNSET}"})}
    done = run("check", "--config", str(write_config(tmp_path, servers)))
    assert "MCP_HUB_TEST_UNSET" in done.stdout
    assert re.search(r"keyed +disabled", done.stdout)


def test_check_fails_on_equal_names_where_the_configuration_forbids_them(tmp_path: Path) -> None:
    servers = {"a": fake(namespace=""), "b": fake(namespace="")}
    done = run("check", "--config", str(write_config(tmp_path, servers, on_conflict="raise")))
    assert done.returncode == 1
    assert "error: b: tool echo: 'a' has the same name" in done.stdout
    assert run("check", "--config", str(write_config(tmp_path, servers))).returncode == 0


def test_a_bad_file_is_refused_with_every_finding_and_its_line(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text(
        "servers:\n  a:\n    command: [1, 2]\n    url: http://x/\n  b:\n    lazy: perhaps\n    command: x\n"
        "on_conflict: fight\n"
    )
    path.chmod(0o600)
    for command in ("check", "tools", "serve"):
        done = run(command, "--config", str(path))
        assert done.returncode == 2
        assert done.stdout == ""
        assert re.search(r"servers\.yaml:\d+: servers\.a", done.stderr)
        assert re.search(r"servers\.yaml:6: servers\.b: is switched off: lazy", done.stderr)
        assert re.search(r"servers\.yaml:8: on_conflict", done.stderr)


def test_a_missing_file_is_reported_with_the_searched_paths_and_how_to_create_one(tmp_path: Path) -> None:
    done = run("check", cwd=tmp_path, HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "servers.yaml" in done.stderr


def test_tools_are_listed_with_the_first_line_of_their_description(tmp_path: Path) -> None:
    done = run("tools", "--config", str(write_config(tmp_path, SERVERS)))
    assert done.returncode == 0
    assert re.search(r"^good__echo +echo of fake$", done.stdout, re.MULTILINE)
    assert re.search(r"^dead: unavailable: the command", done.stderr, re.MULTILINE)


def test_tools_as_json_are_the_whole_definitions(tmp_path: Path) -> None:
    done = run("tools", "--json", "--config", str(write_config(tmp_path, {"up": fake()})))
    tools = json.loads(done.stdout)
    assert tools[0]["name"] == "up__echo"
    assert tools[0]["futureField"] == {"x": 10**25}


def test_call_prints_the_text_of_the_result(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"up": fake()}))
    done = run("call", "up__add", "--args", '{"a": 1, "b": 2}', "--config", config)
    assert (done.returncode, done.stdout) == (0, "3\n")
    raw_result = run("call", "up__add", "--args", '{"a": 1, "b": 2}', "--json", "--config", config)
    assert json.loads(raw_result.stdout)["futureTop"] == {"n": 10**25}


def test_call_of_a_failing_tool_exits_1_with_the_error_on_stderr(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"up": fake()}))
    failed = run("call", "up__fail", "--config", config)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "error -32050: no" in failed.stderr
    crashed = run("call", "up__crash", "--config", config)
    assert crashed.returncode == 1
    assert "status 7" in crashed.stderr


@pytest.mark.parametrize(
    "words",
    [
        ['{"a": 1, "b": 2}'],
        ["a=1", "b=2"],
        ["@numbers.json"],
        ["-"],
        ['{"a": 1, "b": 99}', "b=2"],
        ["--args", '{"a": 1}', "b=2"],
    ],
)
def test_call_accepts_arguments_as_json_pairs_file_and_stdin(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "numbers.json").write_text('{"a": 1, "b": 2}')
    config = ["--config", str(write_config(tmp_path, {"up": fake()}))]
    for name in (["up__add"], ["up", "add"]):
        done = run("call", *name, *words, *config, cwd=tmp_path, input='{"a": 1, "b": 2}')
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_call_converts_the_text_of_an_argument_to_its_schema_type(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "kinds.py").write_text(
        "from mcp_hub import tool\n@tool\n"
        "def kinds(text: str, number: float, yes: bool, many: list[int], free) -> str:\n"
        "    return repr((text, number, yes, many, free))\n"
    )
    config = str(write_config(tmp_path, {"local": {"tools_dir": str(tools)}}))
    arguments = ["text=12", "number=1.5", "yes=true", "many=[1, 2]", "free=a=b"]
    done = run("call", "local__kinds", *arguments, "--config", config)
    assert (done.returncode, done.stdout) == (0, "('12', 1.5, True, [1, 2], 'a=b')\n"), done.stderr


def test_the_progress_of_a_call_is_shown(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"up": fake()}))
    done = run("call", "up__count", "steps=3", "pause=0.2", "--config", config)
    assert (done.returncode, done.stderr) == (0, "progress 1 of 3\nprogress 2 of 3\nprogress 3 of 3\n")
    flood = run("call", "up__count", "steps=2000", "--config", config)
    assert flood.stdout == done.stdout
    assert 1 <= flood.stderr.count("progress") < 500


@pytest.mark.parametrize("name", [["dead", "echo"], ["dead__echo"]])
def test_a_call_to_a_dead_server_exits_1_and_prints_only_the_reason(tmp_path: Path, name: list[str]) -> None:
    done = run("call", *name, "--config", str(write_config(tmp_path, SERVERS)))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("dead is not available: the command 'no-such-command' was not found")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_accepts_v_and_documents_its_exit_codes(command: str) -> None:
    done = run("help", command)
    assert done.returncode == 0
    assert "-v, --verbose" in done.stdout
    assert re.search(rf"^(?:examples?|to use it):\n.*\bmcp-hub {command}\b", done.stdout, re.MULTILINE)
    assert re.search(r"exit codes:\n +0  done\n +1 .*\n +2 .*\n +3 .*confirmation.*\n +4 .*stale.*\n", done.stdout)
    assert done.stdout == run(command, "--help").stdout


def test_help_names_the_first_commands_to_run() -> None:
    done = run("help")
    assert done.returncode == 0
    assert re.search(r"Start here:\n +mcp-hub .*\n +mcp-hub setup ", done.stdout)
    assert run("--help").stdout == done.stdout


@pytest.mark.parametrize("command", ["check", "tools", "call", "status", "pin", "browser"])
def test_every_command_that_prints_facts_documents_a_json_option(command: str) -> None:
    assert "--json" in run("help", command).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["call", "up__echo", "--jsn"], "unrecognized arguments: --jsn (did you mean --json?)"),
        (["tools", "--strict"], "unrecognized arguments: --strict"),
        (["add", "npx", "-y", "notes"], "unrecognized arguments: -y; `mcp-hub add --help` has examples"),
    ],
)
def test_an_unknown_option_shows_the_usage_of_its_command(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"usage: mcp-hub {arguments[0]} ")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["call", "up__ecko"], "did you mean up__echo"),
        (["call", "pu__echo"], "did you mean up__echo"),
        (["call", "zzz"], "`mcp-hub tools` lists them all"),
        (["call", "up__echo", "--args", "{oops"], "--args is not JSON"),
        (["call", "up__echo", "--args", "[1]"], "must be a JSON object"),
        (["call", "up__echo", "{oops"], "the argument is not JSON"),
        (["call", "up__echo", "[1]"], "must be a JSON object"),
        (["call", "up__echo", "@no-such.json"], "cannot read no-such.json: No such file"),
        (["call", "up__echo", "text=a", "words"], "write key=value, a JSON object, @FILE or -"),
        (["call", "elsewhere", "echo"], "there is no server 'elsewhere'; there are: up"),
        (["call", "up", "ecko"], "did you mean up__echo"),
        (["serve", "--port", "80"], "--host, --port, --public-host and --workers need --sse or --http"),
        (["serve", "--http", "--host", "0.0.0.0"], "token"),
        (["serve", "--http", "--port", "99999"], "--port"),
        (["serve", "--http", "--sse"], "not allowed with"),
        (["--json", "check"], "mcp-hub check --json"),
        (["--config", "servers.yaml", "tools"], "write options behind the command: mcp-hub COMMAND --config"),
        (["-v", "check"], "write options behind the command: mcp-hub check -v"),
        (["call"], "the following arguments are required: NAME\n"),
        (["nonsense"], "there is no command 'nonsense'; `mcp-hub help` lists them all"),
        (["chek"], "there is no command 'chek'; did you mean check?"),
        (["help", "loggin"], "did you mean login?"),
        (["start"], "there is no command 'start'; did you mean serve?"),
        (["list"], "did you mean check?"),
        (["version"], "did you mean --version?"),
    ],
)
def test_bad_input_exits_2_with_advice(tmp_path: Path, arguments: list[str], said: str) -> None:
    config = (
        ["--config", str(write_config(tmp_path, {"up": fake()}))]
        if arguments[0] in ("call", "serve") and arguments[1:]
        else []
    )
    done = run(*arguments, *config, MCP_HUB_TOKEN="") if "0.0.0.0" not in arguments else run(*arguments, *config)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_token_that_is_too_short_is_refused(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {}))
    done = run("serve", "--http", "--host", "0.0.0.0", "--config", config, MCP_HUB_TOKEN="short")
    assert done.returncode == 2
    assert "32" in done.stderr
    assert "short" not in done.stderr.replace("shorter", "")


def test_a_port_in_use_exits_1_and_names_the_port_without_a_traceback(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        done = run("serve", "--http", "--port", port, "--config", str(write_config(tmp_path, {})))
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["check", "tools", "call"])
def test_no_text_of_an_upstream_controls_the_terminal(tmp_path: Path, command: str) -> None:
    hostile: dict[str, Any] = {
        "up": fake("--name", "\x1b]8;;http://x\x07link\x1b[2J\u202e"),
        "dying": fake("--die", "\x1b[31mred"),
    }
    arguments = ["up__echo", "--args", '{"text": "\\u001b[31mred"}'] if command == "call" else []
    done = run(command, *arguments, "--config", str(write_config(tmp_path, hostile)))
    assert "\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout + done.stderr


def test_check_names_the_file_of_local_tools_that_fails_to_import(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "good.py").write_text("from mcp_hub import tool\n@tool\ndef fine() -> str:\n    return 'fine'\n")
    (tools / "broken.py").write_text("\nimport no_such_module_anywhere\n")
    done = run("check", "--config", str(write_config(tmp_path, {"local": {"tools_dir": str(tools)}})))
    assert done.returncode == 1
    assert re.search(r"local +ok", done.stdout)
    assert "broken.py:2: does not import: ModuleNotFoundError" in done.stdout


def test_the_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, "mcp-hub 0.1.0\n")


def test_check_counts_what_was_mended_and_names_what_is_left_out(tmp_path: Path) -> None:
    lists = tmp_path / "lists.json"
    contradiction = {"name": "no", "inputSchema": {"type": "string"}}
    lists.write_text(json.dumps({"tools": [{"name": "bare"}, contradiction], "prompts": [{"title": "P"}]}))
    config = write_config(tmp_path, {"up": fake("--lists", str(lists))})
    facts = json.loads(run("check", "--json", "--config", str(config)).stdout)
    (server,) = facts["servers"]
    assert (server["mended"], server["exposed_tools"], server["tools"]) == (2, 1, 2)
    (finding,) = facts["findings"]
    assert (finding["name"], finding["code"]) == ("no", codes.ITEM_LEFT_OUT)
    assert "up: 2 items" in run("check", "--config", str(config)).stdout
