"""What comes out of a command fits the terminal, the pipe or the parser it goes to, whatever a server has said."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import registry
from tests.cli.test_commands import run
from tests.fakes.client import HUB, PATIENCE, fake, write_config

SEED = Path(registry.__file__).with_name("seed.json")
HIDDEN = "\x1b[31m \x9b2J \u202e \x7f \ud800"


def config(directory: Path, servers: dict[str, Any], **root: Any) -> list[str]:
    return ["--config", str(write_config(directory, servers, **root))]


def answering(**result: Any) -> dict[str, Any]:
    return {"up": fake("--result", json.dumps(result))}


def called(directory: Path, servers: dict[str, Any], *options: str, **environ: Any) -> subprocess.CompletedProcess[str]:
    return run("call", "up__echo", *options, *config(directory, servers), **environ)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_output_is_complete_and_escapes_control_characters(tmp_path: Path, encoding: str) -> None:
    text = f"{HIDDEN} grüße\n{'…' * 3}"
    arguments = ["--args", json.dumps({"text": text}), "--json"]
    done = called(tmp_path, {"up": fake()}, *arguments, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert not re.search("[\x1b\x9b\u202e\x7f]", done.stdout)
    assert json.loads(done.stdout)["content"][0]["text"] == text
    assert ("grüße" in done.stdout) is (encoding == "utf-8")


@pytest.mark.parametrize("options", [["tools", "--json"], ["check", "--json"], ["tools"], ["check"]])
def test_no_hidden_character_of_a_server_is_printed(tmp_path: Path, options: list[str]) -> None:
    servers = {"up": fake("--name", HIDDEN[:-2]), "dying": fake("--die", HIDDEN[:-2])}
    done = run(*options, *config(tmp_path, servers))
    assert done.returncode == 0
    assert not re.search("[\x1b\x9b\u202e\x7f]", done.stdout + done.stderr)
    if "--json" in options:
        assert json.loads(done.stdout)


def test_characters_that_stdout_cannot_encode_are_escaped(tmp_path: Path) -> None:
    done = called(tmp_path, {"up": fake()}, "--args", '{"text": "é…"}', PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, "\\xe9\\u2026\n")


@pytest.mark.parametrize(
    ("result", "printed"),
    [
        ({"content": [], "structuredContent": {"n": [1]}}, '{\n  "n": [\n    1\n  ]\n}\n'),
        ({"structuredContent": {}}, "{}\n"),
        ({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}, "[image, 4 base64 characters]\n"),
        ({"content": [{"type": "image", "data": 5}, 7, {"type": ["odd"]}]}, "[image]\n[['odd']]\n"),
        ({"content": [{"type": "resource_link", "uri": "x://y\x1b", "name": "y"}]}, "[resource_link x://y\\x1b]\n"),
        ({"content": [{"type": "text", "text": "a\r\nb\x1b"}, {"type": "text", "text": 5}]}, "a\nb\\x1b\n[text]\n"),
        ({"content": "text"}, "\n"),
        ({}, "\n"),
    ],
)  # fmt: skip
def test_every_content_type_of_a_result_is_printed_readably(
    tmp_path: Path, result: dict[str, Any], printed: str
) -> None:
    done = called(tmp_path, answering(**result))
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_an_error_result_is_on_stderr_and_exits_1(tmp_path: Path) -> None:
    done = called(tmp_path, answering(content=[{"type": "text", "text": "no such file"}], isError=True))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no such file\n")


def test_a_deeply_nested_result_is_printed(tmp_path: Path) -> None:
    deep = json.loads("[" * 600 + "]" * 600)
    arguments = ["--args", json.dumps({"text": deep}), "--json"]
    done = called(tmp_path, {"up": fake()}, *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["content"][0]["text"] == deep


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', "[" * 100_000, "", "nothing"])
def test_arguments_that_are_not_valid_json_are_refused(tmp_path: Path, text: str) -> None:
    done = called(tmp_path, {"up": fake()}, "--args", text)
    assert done.returncode == 2
    assert done.stderr.startswith("--args is ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [0, 2000])
def test_a_closed_pipe_causes_no_error_message(tmp_path: Path, number: int) -> None:
    argv = [*HUB, "tools", "--json", *config(tmp_path, {"up": fake("--tools", str(number))})]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, timeout=PATIENCE * 2)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_tools_command_lists_current_tools_and_not_cached_ones(tmp_path: Path) -> None:
    flag = tmp_path / "more"
    servers = {"up": fake("--more-if", str(flag)), "lazy": fake("--more-if", str(flag), lazy=True)}
    before = run("tools", *config(tmp_path, servers)).stdout
    assert "late" not in before
    flag.touch()
    after = run("tools", *config(tmp_path, servers)).stdout
    assert re.findall(r"^(\w+__late) ", after, re.MULTILINE) == ["up__late", "lazy__late"]


def test_a_tool_that_is_newer_than_the_cache_can_be_called(tmp_path: Path) -> None:
    flag = tmp_path / "more"
    where = config(tmp_path, {"up": fake("--more-if", str(flag))})
    assert run("call", "up__late", *where).returncode == 2
    flag.touch()
    done = run("call", "up__late", *where)
    assert (done.returncode, done.stdout) == (0, "called late\n")


def test_the_list_of_tools_is_printed_in_columns(tmp_path: Path) -> None:
    done = run("tools", *config(tmp_path, {"up": fake()}))
    lines = done.stdout.splitlines()
    assert len({line.index(" of fake") - len(line.split()[1]) for line in lines}) == 1


def test_an_empty_list_of_tools_is_reported(tmp_path: Path) -> None:
    done = run("tools", *config(tmp_path, {}))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("no tools")
    assert run("tools", "--json", *config(tmp_path, {})).stdout == "[]\n"
    assert run("check", *config(tmp_path, {})).stdout == "no servers are configured\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("echo", "did you mean good__echo or other__echo?\n"),
        ("good__ehco", "did you mean good__echo"),
        ("dead__echo", "dead is not available: the command 'no-such-command' was not found"),
        ("off__echo", "off is not available: it is switched off in the configuration\n"),
        ("keyed__echo", "MCP_HUB_TEST_UNSET"),
        ("a\x1b\u202eb", "there is no tool 'a\\\\x1b\\\\u202eb'"),
    ],
)
def test_the_error_for_an_unknown_tool_names_similar_tools_and_unavailable_servers(
    tmp_path: Path, name: str, said: str
) -> None:
    servers = {
        "good": fake(),
        "other": fake(),
        "dead": {"command": "no-such-command"},
        "off": fake(enabled=False),
        "keyed": fake(env={"KEY": "${MCP_HUB_TEST_UNSET}"}),
    }
    done = run("call", name, *config(tmp_path, servers))
    absent = name.startswith(("dead", "off", "keyed"))
    assert (done.returncode, done.stdout) == (1 if absent else 2, "")
    assert said in done.stderr
    assert ("not available" in done.stderr) is absent


def test_a_missing_required_server_is_named_in_json_output(tmp_path: Path) -> None:
    servers = {"good": fake(), "dead": {"command": "no-such-command", "required": True}}
    done = run("check", "--json", *config(tmp_path, servers))
    assert done.returncode == 1
    facts = json.loads(done.stdout)
    assert facts["failed"] == ["dead"]
    assert {fact["server"]: fact["state"] for fact in facts["servers"]}["good"] == "ready"


def test_the_message_of_a_command_that_is_not_found_is_one_line(tmp_path: Path) -> None:
    done = run("check", *config(tmp_path, {"dead": {"command": "no-such-command"}}))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("dead: ")]
    assert "\\x0a" not in line
    assert ", /" in line.split("Looked in ", 1)[1]


def test_for_a_known_server_that_is_not_installed_check_suggests_a_launcher_command(tmp_path: Path) -> None:
    """The packages are those of the bundled list of servers."""
    listed = json.loads(SEED.read_text())["servers"]
    packages = [package for listing in listed for package in listing["server"].get("packages", ())[:1]]
    kinds = {
        package["identifier"]: package["registryType"] for package in packages if "server-" in package["identifier"]
    }
    assert len(kinds) >= 8
    servers = {f"s{number}": {"command": f"mcp-{name[name.index('server-') :]}"} for number, name in enumerate(kinds)}
    lines = run("check", *config(tmp_path, servers), PATH="/nowhere", HOME=str(tmp_path)).stdout.splitlines()
    for number, (name, kind) in enumerate(kinds.items()):
        (line,) = [line for line in lines if line.startswith(f"s{number}: ")]
        runs = f"command: uvx, args: [{name}]" if kind == "pypi" else f'command: npx, args: [-y, "{name}"]'
        assert f"was not found: install it, or try {runs}. Looked in " in line


@pytest.mark.parametrize("named", ["--config", "MCP_HUB_CONFIG"])
@pytest.mark.parametrize("made", [None, "directory", "binary"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, named: str, made: str | None) -> None:
    path = tmp_path / "hub.yaml"
    if made == "directory":
        path.mkdir()
    elif made == "binary":
        path.write_bytes(b"\xff\xfe\x00\x1b[31m")
        path.chmod(0o600)
    options = ["--config", str(path)] if named == "--config" else []
    environ = {**os.environ, **({} if options else {"MCP_HUB_CONFIG": str(path)})}
    done = subprocess.run(
        [*HUB, "check", *options], capture_output=True, text=True, timeout=PATIENCE * 2, env=environ, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "hub.yaml" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("command", ["serve", "check", "tools", "call"])
def test_every_command_has_help(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert "--config" in done.stdout
