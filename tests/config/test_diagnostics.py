"""Everything that is wrong with a file is said at once, with its line and its key."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mcp_hub import codes
from mcp_hub.config import default_path
from mcp_hub.config.discovery import TrustedDirectories, read_executed
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import load_config, read_config
from mcp_hub.policy.access import BLACKLIST
from tests.config.written import read, refused, switched_off, write


def test_all_errors_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = """\
    servers:
      github:
        command: npx
        args: foo
      git:
        comand: uvx
        timeout: soon
    on_conflict: fight
    """
    assert refused(tmp_path, text) == [
        "servers.yaml:4: servers.github: is switched off: args: must be a list of texts",
        "servers.yaml:6: servers.git.comand is not known; did you mean 'command'?",
        "servers.yaml:7: servers.git: is switched off: timeout: not a duration; write 30, '30s', '20m' or '500ms'; "
        "needs exactly one of 'command', 'url', 'tools_dir' and 'builtin', but has none of them",
        "servers.yaml:8: on_conflict: must be one of keep_first, raise, override, rename, prefix",
    ]


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(tmp_path: Path) -> None:
    text = """\
    list_wiat: 3
    servers:
      git:
        command: uvx
        Namespaces: g
        deadlines: {conect: 3}
        qwertz: 1
    """
    assert read(tmp_path, text).warnings == (
        "servers.yaml:1: list_wiat is not known; did you mean 'list_wait'?",
        "servers.yaml:5: servers.git.Namespaces is not known; did you mean 'namespace'?",
        "servers.yaml:6: servers.git.deadlines.conect is not known; did you mean 'connect'?",
        "servers.yaml:7: servers.git.qwertz is not known and is ignored",
    )


def test_a_removed_key_is_a_warning_with_what_to_write_instead(tmp_path: Path) -> None:
    for name, root in (("servers.json", "servers"), ("mcp.json", "mcpServers")):
        (warning,) = read(tmp_path, f'{{"expose_recent": 3, "{root}": {{"a": {{"command": "x"}}}}}}', name).warnings
        assert warning.code == codes.KEY_UNKNOWN
        assert "expose_always" in warning


def test_a_misplaced_web_key_is_reported_with_its_correct_place(tmp_path: Path) -> None:
    text = """\
    servers:
      web:
        builtin: web
        allow_addresses: [127.0.0.1]
    allow_addresses: [127.0.0.1]
    defaults: {allow_addresses: [127.0.0.1]}
    guard: {allow_addresses: [127.0.0.1]}
    """
    end = ": has no effect here; write it as web.allow_addresses at the top of the file"
    assert read(tmp_path, text).warnings == (
        f"servers.yaml:4: servers.web.allow_addresses{end}",
        f"servers.yaml:5: allow_addresses{end}",
        f"servers.yaml:6: defaults.allow_addresses{end}",
        f"servers.yaml:7: guard.allow_addresses{end}",
    )


def test_an_address_rule_that_could_never_match_is_an_error(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, "servers: {}\nweb:\n  allow_addresses: ['*', 'http://127.0.0.1:8000/', 10.0.0.0/8]\n")
    assert line.startswith("servers.yaml:2: web")
    assert "'*', 'http://127.0.0.1:8000/' are no addresses" in line
    assert "write 127.0.0.1:8000" in line
    assert "10.0.0.0/8'" not in line


def test_root_keys_of_another_host_are_ignored(tmp_path: Path) -> None:
    text = '{"numStartups": 3, "projects": {}, "on_conflit": "raise", "mcpServers": {"a": {"command": "x"}}}'
    assert read(tmp_path, text, ".claude.json").warnings == (
        ".claude.json:1: on_conflit is not known; did you mean 'on_conflict'?",
    )


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("s.json", '{\n  // why\n  "servers": {\n    "a": {\n      "command": 7,\n    }\n  }\n}', 5),
        ("s.json", '{"servers": [\n{"name": "x", "command": "x"},\n{"name": "a",\n"command": 7}]}', 4),
        ("s.toml", "# why\n[servers.a]\ntype = 'stdio'\ncommand = 7", 4),
        ("s.toml", "[servers]\n\na.command = 7", 3),
        ("s.toml", "[[servers]]\nname='x'\ncommand='x'\n[[servers]]\nname='a'\ncommand=7", 6),
        ("s.yaml", "servers:\n- {name: x, command: x}\n- name: a\n  command: 7", 4),
    ],
)
def test_errors_have_their_line_in_every_format(tmp_path: Path, name: str, text: str, line: int) -> None:
    loaded = read(tmp_path, text, name)
    assert [server.disabled_reason for server in loaded.config.servers][-1] == "command: must be a text"
    (message,) = loaded.warnings
    assert message.startswith(f"{name}:{line}: servers")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "s.yaml",
            "servers:\n  a: {command: x}\n  a: {command: y}\n",
            "3: servers.a: this key is already given in line 2",
        ),
        (
            "s.json",
            '{"servers": {\n"a": {"b": 1},\n"a": {"b": 2}}}',
            "3: servers.a: this key is already given in line 2",
        ),
        ("s.json", "{servers: {a: {}, 'a': {}}}", "1: servers.a: this key is already given in line 1"),
        (
            "s.yaml",
            "servers:\n- {name: a, command: x}\n- {name: a, command: y}",
            "3: servers[1]: the name is already taken by servers[0]",
        ),
    ],
)
def test_a_duplicate_server_name_is_an_error(tmp_path: Path, name: str, text: str, line: str) -> None:
    assert f"{name}:{line}" in refused(tmp_path, text, name)


def test_a_duplicate_key_does_not_hide_the_other_errors(tmp_path: Path) -> None:
    text = "servers:\n  a:\n    command: x\n    command: y\n    args: z\n"
    assert refused(tmp_path, text) == [
        "servers.yaml:4: servers.a.command: this key is already given in line 3",
        "servers.yaml:5: servers.a: is switched off: args: must be a list of texts",
    ]


def test_a_duplicate_server_name_in_toml_is_an_error(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, "[servers.a]\ncommand='x'\n[servers.a]\ncommand='y'\n", "s.toml")
    assert line.startswith("s.toml:3: is not valid TOML: Cannot declare")


@pytest.mark.parametrize(
    ("name", "text", "start"),
    [
        ("s.yaml", "servers:\n  a: [1\n", "s.yaml:3: is not valid YAML: "),
        ("s.yaml", "servers:\n\ta: 1\n", "s.yaml:2: is not valid YAML: a tab"),
        ("s.yaml", "servers:\n  a: *secret\n", "s.yaml:2: an alias without its anchor"),
        ("s.yaml", "servers: &a\n  x: *a\n", "s.yaml:1: an alias that contains itself"),
        ("s.yaml", "servers:\n  a: !!python/name:os.system\n", "s.yaml:2: servers.a: a tag that is not supported"),
        ("s.yaml", "servers: {}\n---\nservers: {}\n", "s.yaml:2: a second document begins here"),
        ("s.yaml", "servers:\n  ? [a]\n  : b\n", "s.yaml:2: servers: a key must be a text"),
        ("s.yaml", "a: \x01", "s.yaml: holds a character that YAML does not allow"),
        ("s.json", '{"servers": {\n"a": }}', 's.json:2: is not valid JSON: Unexpected "}" at column 6'),
        (
            "s.json",
            '{"servers": {}\n"a": 1}',
            """s.json:2: is not valid JSON: Unexpected '"' at column 1; is a comma missing""",
        ),
        (
            "s.yaml",
            "servers:\n  a: {}\n b: {}\n",
            "s.yaml:3: is not valid YAML: did not find expected key (the indentation",
        ),
        (
            "s.yaml",
            'a: "C:\\Users"\n',
            "s.yaml:1: is not valid YAML: did not find expected hexdecimal number (a backslash",
        ),
        ("s.json", '{"servers": {}', "s.json:1: is not valid JSON"),
        ("s.json", '{\n"a": "C:\\Documents"}', "s.json:2: is not valid JSON: the escape \\D does not exist"),
        ("s.json", "{\n'a': 'C:\\users'}", "s.json:2: is not valid JSON: the escape \\u does not exist"),
        ("s.toml", "servers = \n", "s.toml:1: is not valid TOML: "),
        ("s.yaml", "", "s.yaml: the file is empty"),
        ("s.json", " \n", "s.json: the file is empty"),
        ("s.yaml", "# nothing\n", "s.yaml: the file holds nothing but comments"),
        ("s.yaml", "just words", "s.yaml: the file must hold keys and values"),
        ("s.json", "7", "s.json: the file must hold keys and values"),
        ("s.yaml", "servers: 7", "s.yaml:1: servers: must be a mapping of names to entries"),
        ("s.yaml", "mcpserver: {}", "s.yaml: there are no servers in this file"),
        ("s.yaml", "git: {command: x}", "s.yaml: there are no servers in this file"),
    ],
)
def test_the_error_for_an_unreadable_file_says_why(tmp_path: Path, name: str, text: str, start: str) -> None:
    lines = refused(tmp_path, text, name)
    assert lines[0].startswith(start)
    assert "secret" not in "".join(lines)


def test_a_missing_root_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    assert refused(tmp_path, "mcpserver: {}")[0].endswith("did you mean 'mcpServers' where 'mcpserver' is?")
    assert refused(tmp_path, "git: {command: x}")[-1].endswith("'git' looks like an entry: put it below 'servers:'")


def test_a_file_without_entries_is_a_warning(tmp_path: Path) -> None:
    loaded = read(tmp_path, "servers:\n")
    assert loaded.config.servers == ()
    assert loaded.warnings == ("servers.yaml:1: servers: holds no entry",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.yaml", "servers: " + "[" * 5000),
        ("s.yaml", "- " * 5000),
        ("s.yaml", "? " * 5000),
        ("s.json", "[" * 100_000),
        ("s.json", "{a:" * 3000),
        ("s.toml", "a = " + "[" * 5000),
        ("s.json", "[" * 40 + "]" * 40),
    ],
)
def test_nesting_that_is_too_deep_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (line,) = refused(tmp_path, text, name)
    assert "nested too deeply" in line


def test_a_file_whose_aliases_expand_too_far_is_refused(tmp_path: Path) -> None:
    levels = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 9))
    (line,) = refused(tmp_path, f"x0: &x0 [a]\n{levels}\nservers: {{}}\n")
    assert "expands to too many values" in line


def test_control_characters_of_a_key_are_escaped_in_messages(tmp_path: Path) -> None:
    loaded = read(tmp_path, '{"servers": {"\\u001b[2J": {"command": "x", "\\u202ekey": 1}}}', "s.json")
    assert loaded.warnings[0].isprintable()


@pytest.mark.parametrize("bad", ['"a\\u0000b"', '"a\\ud800b"'])
def test_an_env_value_with_a_nul_or_a_surrogate_is_an_error(tmp_path: Path, bad: str) -> None:
    (line,) = switched_off(tmp_path, f'{{"servers": {{"a": {{"command": "x", "env": {{"K": {bad}}}}}}}}}', "s.json")
    assert line.startswith("s.json:1: servers.a: is switched off: env.K: holds ")


def test_a_missing_file_is_reported_with_its_path_and_how_to_create_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / "servers.yaml", {})
    assert str(caught.value).startswith(f"{tmp_path}/servers.yaml: there is no such file. Create one")


def test_a_directory_as_configuration_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        read_config(tmp_path, {})


def test_warnings_go_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, "servers: {a: {command: x, comand: y}}")
    with caplog.at_level(logging.WARNING, "mcp_hub.config"):
        config = load_config(str(path), environ={}, home=tmp_path)
    assert [server.id for server in config.servers] == ["a"]
    assert caplog.messages == ["servers.yaml:1: servers.a.comand is not known; did you mean 'command'?"]


def test_the_default_configuration_path_is_searched_in_order_and_can_be_overridden(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    directory = tmp_path / "here"
    directory.mkdir()
    with pytest.raises(ConfigError) as caught:
        default_path(directory, environ)
    assert str(directory) in str(caught.value)
    assert str(tmp_path / "config/mcp-hub") in str(caught.value)
    assert "$MCP_HUB_CONFIG: not set" in str(caught.value)
    for name in ("config/mcp-hub/servers.yaml", "here/servers.toml", "here/servers.json", "here/servers.yaml"):
        path = write(tmp_path, "[servers]" if name.endswith("toml") else '{"servers": {}}', name)
        if path.parent == directory:
            TrustedDirectories.of_user(environ).add(read_executed(path))
        assert default_path(directory, environ) == path
    assert default_path(directory, {**environ, "MCP_HUB_CONFIG": "other.yaml"}) == directory / "other.yaml"


def test_a_blacklist_by_server_accepts_one_tool_or_a_list(tmp_path: Path) -> None:
    """One word was once taken for its characters."""
    text = "servers: {a: {command: x}, b: {command: x}}\nblacklist: {a: delete, b: [one, two]}\n"
    assert BLACKLIST.of(read(tmp_path, text).config) == (("a", "delete"), ("b", "one"), ("b", "two"))
    assert refused(tmp_path, "servers: {a: {command: x}}\nblacklist: {a: true}\n")


def test_a_blacklist_without_tools_refuses_nothing_and_is_reported(tmp_path: Path) -> None:
    servers = "servers: {a: {command: x}, b: {command: x}}\n"
    loaded = read(tmp_path, f"{servers}blacklist: {{a: [], b: ['*']}}\n")
    assert BLACKLIST.of(loaded.config) == (("b", "*"),)
    assert [warning.partition(": ")[2].partition(":")[0] for warning in loaded.warnings] == ["blacklist.a"]
    assert refused(tmp_path, f"{servers}blacklist: {{a: null}}\n")
