"""Configurations that cannot be used, or not as they are: each is told with the code of its cure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from tests.diagnosis.looking import checked, configured, reported_codes, said, written
from tests.fakes.client import fake

TRUE = {"command": "true"}


def test_a_machine_without_any_configuration_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_HUB_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = said("serve")
    assert (done.code, done.codes) == (2, {codes.NO_CONFIGURATION})
    assert codes.NO_CONFIGURATION in reported_codes(None)


def test_a_configuration_of_a_directory_that_is_not_trusted_is_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_HUB_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "servers.yaml").write_text("servers: {a: {command: x}}")
    done = said("serve")
    assert (done.code, done.codes) == (2, {codes.NOT_TRUSTED})
    assert codes.NOT_TRUSTED in reported_codes(None)


def test_a_configuration_that_is_missing_is_diagnosed(tmp_path: Path) -> None:
    done = said("serve", "--config", str(tmp_path / "other.yaml"))
    assert (done.code, done.codes) == (2, {codes.FILE_MISSING})


def test_a_configuration_that_cannot_be_read_is_diagnosed(tmp_path: Path) -> None:
    assert said("serve", "--config", str(tmp_path)).codes == {codes.FILE_UNREADABLE}


@pytest.mark.parametrize(
    ("content", "name", "code"),
    [
        ("servers: [", "servers.yaml", codes.FILE_BROKEN),
        ('{"servers": {"a": }', "servers.json", codes.FILE_BROKEN),
        ("[servers.a\ncommand = 1", "servers.toml", codes.FILE_BROKEN),
        ("", "servers.yaml", codes.FILE_EMPTY),
        ("# nothing yet\n", "servers.yaml", codes.FILE_EMPTY),
        (b"servers: {a: {command: caf\xe9}}", "servers.yaml", codes.FILE_ENCODING),
        ("#" * (1024 * 1024 + 1), "servers.yaml", codes.FILE_TOO_LARGE),
        ("servers: " + "[" * 500 + "]" * 500, "servers.yaml", codes.FILE_TOO_LARGE),
        ("[" * 100_000, "servers.json", codes.FILE_TOO_LARGE),
        ("servers: {a: {command: x}}\non_conflict: fight", "servers.yaml", codes.VALUE_WRONG),
    ],
)  # fmt: skip
def test_a_refused_file_exits_2_with_one_code(tmp_path: Path, content: str | bytes, name: str, code: str) -> None:
    path = written(tmp_path, content, name)
    done = said("check", "--config", str(path))
    assert (done.code, done.out, done.codes) == (2, "", {code})
    assert code in reported_codes(path)


def test_each_line_of_a_refusal_has_its_own_code(tmp_path: Path) -> None:
    path = written(tmp_path, "servers:\n  b:\n    command: x\n    disable_tools: 5\n    comand: y\n")
    lines = said("check", "--config", str(path)).err.splitlines()
    assert [line for line in lines if line.endswith(f"[{codes.KEY_UNKNOWN}]") and "comand" in line]
    assert [line for line in lines if line.endswith(f"[{codes.VALUE_WRONG}]") and "servers.b.disable_tools" in line]


def test_a_fault_of_one_entry_is_diagnosed_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "servers:\n  a:\n    command: x\n    lazy: perhaps\n")
    assert codes.VALUE_WRONG in checked(path)
    assert codes.VALUE_WRONG in reported_codes(path)


def test_a_configuration_that_others_can_write_is_diagnosed_and_repaired(tmp_path: Path) -> None:
    path = configured(tmp_path, {"a": fake()})
    path.chmod(0o666)
    done = said("serve", "--config", str(path))
    assert (done.code, done.codes) == (2, {codes.OPEN_TO_OTHERS})
    preview = said("doctor", "--config", str(path), "--fix")
    assert preview.code == 3
    assert f"chmod 0644 {path}" in preview.out
    assert path.stat().st_mode & 0o777 == 0o666
    assert said("doctor", "--config", str(path), "--fix", "--yes").code in (0, 1)
    assert path.stat().st_mode & 0o777 == 0o644
    assert codes.OPEN_TO_OTHERS not in reported_codes(path)


def test_a_file_of_another_user_is_diagnosed(tmp_path: Path) -> None:
    if os.getuid() == 0:
        path = configured(tmp_path, {"a": TRUE})
        os.chown(path, 12345, -1)
    else:
        path = Path("/") / "etc" / "hostname"  # it is root's, which is trusted, so nothing can be shown here
        assert path.stat().st_uid == 0
        return
    assert said("serve", "--config", str(path)).codes == {codes.WRONG_OWNER}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({**TRUE, "comand": "x"}, codes.KEY_UNKNOWN),
        ({**TRUE, "env": {"KEY": "${MCP_HUB_TEST_UNSET}"}}, codes.VARIABLE_UNSET),
        ({**TRUE, "env": {"KEY": "${cmd:date}"}}, codes.VARIABLE_MALFORMED),
        ({**TRUE, "env": {"KEY": "${open"}}, codes.VARIABLE_MALFORMED),
        ({**TRUE, "env": {"KEY": "${file:no-such-file}"}}, codes.VALUE_FILE_UNREADABLE),
        ({**TRUE, "envFile": "no-such.env"}, codes.VALUE_FILE_UNREADABLE),
        ({**TRUE, "sandboxEnabled": True}, codes.RESTRICTION_FOREIGN),
        ({**TRUE, "type": "ws"}, codes.TRANSPORT_FOREIGN),
        ({"tools_dir": "no-such-directory"}, codes.DIRECTORY_MISSING),
        ({"builtin": "files", "roots": {"/a/": "no-such-directory"}}, codes.DIRECTORY_MISSING),
        ({**TRUE, "env": {"API_KEY": "sk-1234567890abcdefghijklmn"}}, codes.SECRET_IN_PLAIN),
        ({"command": "npx", "args": ["-y", "some-server"], "env": {"PATH": "/nowhere"}}, codes.PACKAGE_UNPINNED),
    ],
)
def test_an_entry_with_a_warning_is_diagnosed(
    tmp_path: Path, entry: dict[str, Any], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MCP_HUB_TEST_UNSET", raising=False)
    path = configured(tmp_path, {"a": entry})
    assert code in checked(path)
    assert code in reported_codes(path)


@pytest.mark.parametrize(
    ("backend", "code"),
    [
        ("keyring.backends.fail.Keyring", codes.KEYRING_UNUSABLE),
        ("keyring.backends.null.Keyring", codes.KEYRING_ENTRY_MISSING),
    ],
)
def test_a_keyring_without_the_secret_is_diagnosed(
    tmp_path: Path, backend: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
    assert code in checked(configured(tmp_path, {"a": {**TRUE, "env": {"KEY": "${keyring:service/user}"}}}))


def test_an_extra_that_is_not_installed_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "playwright", None)
    assert codes.EXTRA_MISSING in checked(configured(tmp_path, {"a": {"builtin": "browser"}}))


@pytest.mark.parametrize("options", [["--profile", "nobody"], ["--tool-set", "nothing"], ["--group", "none"]])
def test_an_option_that_names_an_unknown_item_is_diagnosed(tmp_path: Path, options: list[str]) -> None:
    done = said("tools", "--config", str(configured(tmp_path, {"a": TRUE})), *options)
    assert (done.code, done.codes) == (2, {codes.NAME_UNKNOWN})


def test_an_error_in_a_discovered_file_is_diagnosed(tmp_path: Path) -> None:
    path = configured(tmp_path, {"a": fake()})
    (tmp_path / "configs" / "tool_sets").mkdir(parents=True)
    written(tmp_path / "configs" / "tool_sets", "tools: 5", "some.yaml")
    done = said("check", "--config", str(path))
    assert done.code == 1
    assert codes.FILE_LEFT_OUT in done.codes
    assert codes.FILE_LEFT_OUT in reported_codes(path)


def test_a_file_of_local_tools_that_does_not_import_is_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "broken.py").write_text("import no_such_module_anywhere\n")
    path = configured(tmp_path, {"local": {"tools_dir": "own"}})
    assert codes.LOCAL_TOOLS_BROKEN in checked(path)
    assert codes.LOCAL_TOOLS_BROKEN in reported_codes(path)


def test_a_group_member_that_does_not_exist_is_diagnosed(tmp_path: Path) -> None:
    path = configured(tmp_path, {"up": fake()}, groups={"writing": {"tools": ["up__nothing"]}})
    assert codes.MEMBER_UNKNOWN in checked(path)
    assert codes.MEMBER_UNKNOWN in reported_codes(path)


def test_a_tool_to_confirm_that_does_not_exist_is_diagnosed(tmp_path: Path) -> None:
    entry = fake(confirm=["up/echo", "destructive", "eco"])
    careful = {"tools": ["*"], "confirm": ["up__add", "up__ad"]}
    path = configured(tmp_path, {"up": entry, "b": fake()}, confirm=["distructive"], profiles={"careful": careful})
    text = said("check", "--config", str(path)).out
    assert f"confirm: no server has distructive [{codes.MEMBER_UNKNOWN}]" in text
    assert f"servers.up.confirm: no server has eco; did you mean echo? [{codes.MEMBER_UNKNOWN}]" in text
    assert f"profiles.careful.confirm: no server has up__ad; did you mean up__add? [{codes.MEMBER_UNKNOWN}]" in text


def test_a_guarded_or_scraping_tool_that_does_not_exist_is_diagnosed(tmp_path: Path) -> None:
    rules = {"guard": {"tools": ["scrape", "up__echo", "up__eco"]}, "fallback": {"tools": ["up/pge"]}}
    path = configured(tmp_path, {"up": fake()}, **rules)
    text = said("check", "--config", str(path)).out
    assert f"guard.tools: no server has up__eco; did you mean up__echo? [{codes.MEMBER_UNKNOWN}]" in text
    assert f"fallback.tools: no server has up/pge [{codes.MEMBER_UNKNOWN}]" in text


def test_a_damaged_pins_file_is_diagnosed(tmp_path: Path) -> None:
    path = configured(tmp_path, {"up": fake()}, pins="warn")
    (tmp_path / "servers.pins.json").write_text("{")
    assert said("check", "--config", str(path)).codes == {codes.PINS_UNREADABLE}


def test_a_hub_that_serves_itself_is_diagnosed(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    configured(tmp_path, {"hub": {"command": "mcp-hub", "args": ["serve", "--config", str(path)]}})
    assert codes.SERVES_ITSELF in checked(path)


def test_too_many_hubs_in_a_row_are_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_HUB_ABOVE", f"{'0' * 32}:{','.join(['1' * 16, '2' * 16, '3' * 16, '4' * 16])}")
    assert said("check", "--config", str(configured(tmp_path, {"a": TRUE}))).codes == {codes.TOO_MANY_HUBS}


def test_a_server_with_machine_access_on_a_network_hub_is_diagnosed(tmp_path: Path) -> None:
    path = configured(tmp_path, {"sh": {"builtin": "shell"}}, listen={"port": 0})
    assert said("serve", "--http", "--config", str(path)).codes == {codes.MACHINE_OVER_NETWORK}
    assert codes.MACHINE_OVER_NETWORK in reported_codes(path)


def test_a_server_name_in_two_files_is_diagnosed(tmp_path: Path) -> None:
    path = configured(tmp_path, {"a": fake()}, tool_sets={"same": ["a__echo"]})
    (tmp_path / "configs" / "tool_sets").mkdir(parents=True)
    written(tmp_path / "configs" / "tool_sets", "tools: [a__echo]", "same.yaml")
    assert codes.DUPLICATE in checked(path)
    assert codes.DUPLICATE in reported_codes(path)


def test_a_server_that_can_write_the_configuration_is_diagnosed(tmp_path: Path) -> None:
    path = configured(tmp_path, {"a": {"builtin": "files", "roots": {"/workspace/": str(tmp_path)}}})
    assert codes.OWN_FILE_WRITABLE in checked(path)
    assert codes.OWN_FILE_WRITABLE in reported_codes(path)


def test_a_file_that_overrides_another_is_diagnosed(tmp_path: Path) -> None:
    path, overlay = configured(tmp_path, {"a": TRUE}), written(tmp_path, "servers: {a: {command: other}}", "over.yaml")
    assert codes.FILE_OVERLAID in checked(path, "--config", str(overlay))
    assert codes.FILE_OVERLAID in reported_codes(path, "--config", str(overlay))
