"""What a child sees of the hub's environment, and where its command is looked for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mcp_hub import codes
from mcp_hub.config.commands import CommandNotFound, child_environment, find_command
from mcp_hub.config.models import Server
from mcp_hub.errors import HubError


def server(**env: str) -> Server:
    return Server.model_validate({"id": "a", "transport": "stdio", "command": "x", "namespace": "a", "env": env})


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_child_gets_base_variables_and_those_of_its_entry(tmp_path: Path) -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "XDG_RUNTIME_DIR": "/run",
        "GITHUB_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "MCP_HUB_CONFIG": "x",
        "TERM": "() { echo; }",
        "HTTPS_PROXY": "http://user:secret@proxy:1",
        "http_proxy": "http://proxy:1",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
    }
    variables = child_environment(server(OWN="1", HOME="/mine"), environ, tmp_path, windows=False)
    assert variables.pop("PATH").split(":")[0] == "/bin"
    assert variables == {
        "HOME": "/mine",
        "LC_ALL": "C",
        "XDG_RUNTIME_DIR": "/run",
        "http_proxy": "http://proxy:1",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
        "OWN": "1",
    }


def test_usual_directories_are_appended_to_path_without_reordering_it(tmp_path: Path) -> None:
    usual = [".local/bin", ".cargo/bin", ".bun/bin", ".deno/bin", ".volta/bin", ".pyenv/shims", ".asdf/shims"]
    usual += [".local/share/mise/shims", ".npm-global/bin", "Library/pnpm"]
    usual += [f".nvm/versions/node/{version}/bin" for version in ("v9.11.2", "v22.1.0", "v22.10.0")]
    for directory in usual:
        (tmp_path / directory).mkdir(parents=True)
    first = str(tmp_path / ".cargo/bin")
    path = child_environment(server(), {"PATH": f"{first}:/nope:/bin"}, tmp_path, windows=False)["PATH"].split(":")
    assert path[:3] == [first, "/nope", "/bin"]
    assert path.count(first) == 1
    added = [directory for directory in path[3:] if directory.startswith(str(tmp_path))]
    expected = [
        directory
        for directory in usual
        if "cargo" not in directory and "v9" not in directory and "v22.1.0" not in directory
    ]
    assert sorted(added) == sorted(str(tmp_path / directory) for directory in expected)
    assert all(Path(directory).is_dir() for directory in path[3:])


def test_the_path_of_an_entry_takes_precedence(tmp_path: Path) -> None:
    variables = child_environment(server(PATH="/own"), {"PATH": "/hub"}, tmp_path, windows=False)
    assert variables["PATH"].split(":")[0] == "/own"
    assert "/hub" not in variables["PATH"].split(":")


def test_environment_variable_names_are_case_insensitive_on_windows(tmp_path: Path) -> None:
    environ = {"Path": "C:\\Windows", "SystemRoot": "C:\\Windows", "AppData": str(tmp_path), "Secret": "s"}
    (tmp_path / "npm").mkdir()
    variables = child_environment(server(path="D:\\own"), environ, tmp_path / "home", windows=True)
    assert variables == {"PATH": f"D:\\own;{tmp_path}/npm", "SYSTEMROOT": "C:\\Windows", "APPDATA": str(tmp_path)}


def test_a_command_is_found_in_the_directories_of_the_path(tmp_path: Path) -> None:
    tool = executable(tmp_path / "bin/tool")
    assert find_command("tool", f"/nope{os.pathsep}{tmp_path}/bin", None) == str(tool)


def test_a_command_with_a_slash_is_relative_to_its_directory(tmp_path: Path) -> None:
    tool = executable(tmp_path / "bin/tool")
    assert find_command("bin/tool", "", tmp_path) == str(tool)
    assert find_command(str(tool), "", None) == str(tool)


def test_relative_directories_of_the_path_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "tool")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandNotFound):
        find_command("tool", f".{os.pathsep}{os.pathsep}bin", tmp_path)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("npx", "install Node.js"),
        ("uvx", "install uv"),
        ("npx -y server", "it holds spaces"),
        ("mine", "write its whole path"),
        ("", "write its whole path"),
    ],
)
def test_the_error_for_a_missing_command_lists_the_searched_directories(
    tmp_path: Path, command: str, hint: str
) -> None:
    path = f"{tmp_path}/one{os.pathsep}{tmp_path}/two{os.pathsep}{tmp_path}/one"
    with pytest.raises(CommandNotFound) as caught:
        find_command(command, path, None)
    assert isinstance(caught.value, HubError)
    assert caught.value.command == command
    assert caught.value.looked_in == (f"{tmp_path}/one", f"{tmp_path}/two")
    assert f"'{command}'" in str(caught.value)
    assert hint in str(caught.value)
    assert f"{tmp_path}/one, {tmp_path}/two" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("python3 /srv/server.py", "it holds spaces"),
        ("/bin/sh /srv/server.sh", "it holds spaces"),
        ("/srv/My App/server", "there is no such file"),
    ],
)
def test_a_command_line_is_told_from_a_path_with_spaces(command: str, hint: str) -> None:
    with pytest.raises(CommandNotFound, match=hint):
        find_command(command, "", None)


def test_a_non_executable_command_has_its_own_error_message(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("")
    with pytest.raises(CommandNotFound, match="the file is not executable"):
        find_command("./tool", "", tmp_path)
    with pytest.raises(CommandNotFound, match="there is no such file"):
        find_command("./other", "", tmp_path)


def close(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses to look at anything in a directory, as systems do for a user who may not enter it; root always may."""
    original_stat = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if directory in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return original_stat(path, **options)

    monkeypatch.setattr(Path, "stat", stat)


def test_a_command_in_a_closed_directory_has_its_own_error_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(tmp_path / "home", monkeypatch)
    with pytest.raises(CommandNotFound, match="may not enter the directory") as caught:
        find_command(f"{tmp_path}/home/bin/tool", "", None)
    assert caught.value.hub_code == codes.PROGRAM_NOT_EXECUTABLE


def test_usual_directories_in_a_closed_home_are_left_out_of_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(tmp_path / "home", monkeypatch)
    variables = child_environment(server(), {"PATH": "/bin"}, tmp_path / "home", windows=False)
    assert str(tmp_path) not in variables["PATH"]


def test_command_lookup_on_windows_adds_the_program_suffix(tmp_path: Path) -> None:
    for name in ("tool.cmd", "both.cmd", "both.exe", "tool", "notes.txt"):
        executable(tmp_path / "bin" / name)
    path = f"/nope;{tmp_path}/bin"
    assert find_command("tool", path, None, windows=True) == f"{tmp_path}/bin/tool.cmd"
    assert find_command("both", path, None, windows=True) == f"{tmp_path}/bin/both.exe"
    assert find_command("both.cmd", path, None, windows=True) == f"{tmp_path}/bin/both.cmd"
    assert find_command("bin/tool", "", tmp_path, windows=True) == f"{tmp_path}/bin/tool.cmd"
    with pytest.raises(CommandNotFound, match="not executable"):
        find_command(f"{tmp_path}/bin/notes.txt", "", None, windows=True)


def test_command_lookup_on_windows_skips_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "tool.exe")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandNotFound):
        find_command("tool", ".;bin;/nope", None, windows=True)
