"""Variables: what is expanded, and that nothing unresolved is ever in a server that is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.config.written import only, plain, read, refused, servers

ENVIRON = {"NAME": "value", "EMPTY": "", "NESTED": "${NAME}", "ProgramFiles(x86)": "C:/x86"}


def expanded(tmp_path: Path, text: str) -> str:
    (arg,) = only(tmp_path, f"servers: {{a: {{command: x, args: ['{text}']}}}}", environ=ENVIRON).args
    return arg


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${NAME}", "value"),
        ("a${NAME}b${NAME}", "avaluebvalue"),
        ("${EMPTY}", ""),
        ("${NAME:-default}", "value"),
        ("${UNSET:-default}", "default"),
        ("${UNSET:-}", ""),
        ("${UNSET:-https://x:1/}", "https://x:1/"),
        ("${EMPTY:-default}", "default"),
        ("${env:NAME}", "value"),
        ("${env:UNSET:-default}", "default"),
        ("${env:ProgramFiles(x86)}", "C:/x86"),
        ("{env:NAME}", "value"),
        ("{file:x}", "{file:x}"),
        ("${pathSeparator}${/}", os.sep * 2),
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$${NAME}"),
        ("${NESTED}", "${NAME}"),
        ("$NAME", "$NAME"),
        ("{NAME} $ } {", "{NAME} $ } {"),
    ],
)
def test_a_variable_is_replaced_once(tmp_path: Path, text: str, value: str) -> None:
    assert expanded(tmp_path, text) == value


def test_home_and_workspace_variables_are_expanded(tmp_path: Path) -> None:
    assert expanded(tmp_path, "${userHome}") == str(tmp_path / "home")
    assert expanded(tmp_path, "${workspaceFolder}") == str(tmp_path)
    assert expanded(tmp_path, "${workspaceFolderBasename}") == tmp_path.name


def test_an_unset_variable_disables_only_its_server(tmp_path: Path) -> None:
    text = """\
    servers:
      a: {url: "https://x.example/mcp", headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}, timeout: "${WAIT}"}
      b: {command: x}
    """
    loaded = read(tmp_path, text)
    a, b = loaded.config.servers
    assert b.enabled
    assert not a.enabled
    assert a.disabled_reason == (
        "the environment variable GITHUB_TOKEN is not set (headers.Authorization); "
        "the environment variable WAIT is not set (timeout)"
    )
    assert loaded.warnings == (f"servers.yaml:2: servers.a: is switched off: {a.disabled_reason}",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${UNSET}", "UNSET is not set"),
        ("{env:UNSET}", "UNSET is not set"),
        ("${cmd:cat secret}", "'${cmd:...}' is not supported"),
        ("${input:key}", "'${input:...}' is not supported"),
        ("${keyring:key}", "names a service and a user"),
        ("${vault:a/b}", "'${vault:...}' is not supported"),
        ("${NAME:?message}", "'${NAME:...}' is not supported"),
        ("${}", "without the name of a variable"),
        ("${X-HEADER}", "without the name of a variable"),
        ("${env:}", "without the name of a variable"),
        ("a${NAME", "without its '}'"),
        ("${UNSET:-${NAME}}", "braces inside"),
        ("${file:nope}", "cannot be read: No such file or directory"),
        ("${file:.}", "is not a file"),
        ("${file:large}", "is larger than 65,536 bytes"),
        ("${file:binary}", "is not UTF-8 text"),
    ],
)
def test_a_variable_without_a_value_disables_the_server_with_a_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "large").write_text("x" * (64 * 1024 + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    server = only(tmp_path, f"servers: {{a: {{command: x, env: {{K: '{text}'}}}}}}", environ=ENVIRON)
    assert not server.enabled
    assert reason in (server.disabled_reason or "")
    assert (server.disabled_reason or "").endswith("(env.K)")


@pytest.mark.parametrize("key", ["command", "url", "cwd", "namespace", "enabled", "session", "max_frame", "tools_dir"])
def test_a_variable_without_a_value_is_never_also_an_error(tmp_path: Path, key: str) -> None:
    target = "" if key in ("command", "url", "tools_dir") else "command: x, "
    server = only(tmp_path, f"servers: {{a: {{{target}{key}: '${{UNSET}}'}}}}")
    assert server.disabled_reason == f"the environment variable UNSET is not set ({key})"


def test_a_file_reference_is_replaced_by_the_contents_without_the_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xef\xbb\xbfs3cret \r\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/token").write_text("one\ntwo\n\n")
    assert expanded(tmp_path, "${file:token}") == "s3cret "
    assert expanded(tmp_path, f"${{file:{tmp_path}/token}}") == "s3cret "
    assert expanded(tmp_path, "${file:~/token}") == "one\ntwo\n"


def test_variables_in_keys_and_comments_are_not_expanded(tmp_path: Path) -> None:
    text = "servers: {a: {command: x, description: 'uses ${UNSET}', _note: '${UNSET}', env: {'${UNSET}': v}}}"
    server = only(tmp_path, text)
    assert server.enabled
    assert plain(server.env) == {"${UNSET}": "v"}


def test_a_bare_variable_is_not_expanded_and_causes_a_warning(tmp_path: Path) -> None:
    loaded = read(tmp_path, "servers: {a: {command: x, env: {K: $NAME}}}", environ=ENVIRON)
    assert plain(loaded.config.servers[0].env) == {"K": "$NAME"}
    assert loaded.warnings == (
        "servers.yaml:1: servers.a.env.K: a bare $NAME is passed on as it is; write ${NAME} for the variable's value",
    )


def test_line_ends_around_a_secret_are_removed_in_headers(tmp_path: Path) -> None:
    text = "servers: {a: {url: 'https://x.example', api_key: '${KEY}', headers: {X: '${KEY}'}}}"
    server = only(tmp_path, text, environ={"KEY": " k\n"})
    assert plain(server.headers) == {"X": "k", "Authorization": "Bearer k"}


def test_an_env_file_sets_the_variables_of_its_entry(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# comment\n\n"
        "PLAIN=a b # comment\n"
        "export EXPORTED = x\n"
        "SINGLE='${NAME} #1'\n"
        'DOUBLE="${NAME}\\n\\"q\\" #2"   # comment\n'
        "HASH=a#b\nNOTHING=\nOVER=file\nURL=http://x/?a=b\r\n"
        'LINES="one\ntwo"'
    )
    server = only(tmp_path, "servers: {a: {command: x, env_file: .env, env: {OVER: entry}}}", environ=ENVIRON)
    assert plain(server.env) == {
        "PLAIN": "a b",
        "EXPORTED": "x",
        "SINGLE": "${NAME} #1",
        "DOUBLE": 'value\n"q" #2',
        "HASH": "a#b",
        "NOTHING": "",
        "OVER": "entry",
        "URL": "http://x/?a=b",
        "LINES": "one\ntwo",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        ("A=1\nwhat is this\n", "line 2 is not NAME=value"),
        ("A=${UNSET}\n", "the environment variable UNSET is not set"),
        ('A="unclosed\n', "line 1 is not NAME=value"),
    ],
)
def test_an_env_file_that_cannot_be_used_disables_its_server(tmp_path: Path, content: str | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "e.env").write_text(content)
    server = only(tmp_path, "servers: {a: {command: x, envFile: e.env}}")
    assert server.disabled_reason == f"e.env {reason} (envFile)"


def test_no_message_quotes_a_value(tmp_path: Path) -> None:
    canary = "canary-7f3a"
    text = """\
    servers:
      a: {command: x, timeout: "${C}", max_frame: "${C}", session: "${C}", type: "${C}", lazy: "${C}", era: "${C}"}
      b: {url: "${C}", headers: {A: "canary-7f3a\\n2"}, api_key: canary-7f3a, args: canary-7f3a, env: canary-7f3a}
      c: {command: x, env: [canary-7f3a], cwd: [canary-7f3a], tools_dir: {canary: canary-7f3a}}
    listen: {port: canary-7f3a, token: [canary-7f3a]}
    on_conflict: canary-7f3a
    """
    lines = refused(tmp_path, text, environ={"C": canary})
    assert len("; ".join(lines).split("; ")) > 12
    assert canary not in "\n".join(lines)


def test_each_server_sees_only_its_own_values(tmp_path: Path) -> None:
    entries = servers(tmp_path, "servers: {a: {command: x, env: {A: '${NAME}'}}, b: {command: x}}", environ=ENVIRON)
    assert plain(entries["b"].env) == {}
