"""Which variables of the hub the processes of servers inherit."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.config.commands import child_environment
from mcp_hub.config.inherited import INHERITED, inherited, inherited_row, withheld
from mcp_hub.config.models import Server

LOCATIONS = {
    "DISPLAY": ":7",
    "WAYLAND_DISPLAY": "wayland-7",
    "XAUTHORITY": "/home/me@work/.Xauthority",
    "JAVA_HOME": "/opt/java",
    "NVM_DIR": "/opt/nvm",
    "GOPATH": "/home/me@work/go",
    "CARGO_HOME": "/opt/cargo",
    "npm_config_registry": "https://npm.example/",
    "NPM_CONFIG_CACHE": "/cache",
    "UV_DEFAULT_INDEX": "https://pypi.example/simple",
    "PIP_INDEX_URL": "https://pypi.example/simple",
    "LC_CTYPE": "de_DE.UTF-8@euro",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
}
CAPABILITIES = {
    "SSH_AUTH_SOCK": "/run/agent",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
    "DOCKER_HOST": "ssh://me@build.example",
    "DOCKER_CONTEXT": "colima",
    "KUBECONFIG": "/home/me/.kube/config",
    "AWS_PROFILE": "dev@example.com",
}
SECRETS = {
    "GITHUB_TOKEN": "t",
    "MY_SETTING": "unknown to the table",
    "UV_PUBLISH_TOKEN": "t",
    "UV_INDEX_WORK_PASSWORD": "p",
    "UV_EXTRA_INDEX_URL": "https://a.example https://me:pw@b.example/simple",
    "PIP_EXTRA_INDEX_URL": "https://glpat-token@b.example/simple",
    "npm_config__auth": "bWU6cHc=",
    "npm_config_//npm.example/:_authToken": "t",
    "DOCKER_AUTH_CONFIG": '{"auths": {}}',
    "DOCKER_PASSWORD": "p",
    "HTTPS_PROXY": "me:pw@proxy.example:8080",
    "GOPROXY": "https://me:pw@go.example",
    "JDK_HOME": "() { echo; }",
    "MCP_HUB_TOKEN": "t",
    "LC_WORK": "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
    "XDG_PROXY": "https://me:password@b.example",
    "PWD": "/",
}


def starts(command: str, *args: str) -> Server:
    return Server.model_validate({"id": "a", "transport": "stdio", "command": command, "args": args, "namespace": "a"})


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize(
    ("server", "names"),
    [
        (starts("npx", "-y", "server"), ()),
        (starts("/opt/bin/docker", "run", "-i", "image"), ("DOCKER", "SSH", "DBUS")),
        (starts("C:\\docker.exe", "run", "image"), ("DOCKER", "SSH", "DBUS")),
        (starts("env", "A=1", "podman", "run", "image"), ("DOCKER", "SSH", "DBUS")),
        (starts("kubectl", "exec", "-i", "pod"), ("KUBE", "AWS")),
        (starts("ssh", "host", "server"), ("SSH",)),
        (starts("python3", "docker"), ()),
    ],
)
def test_locations_pass_to_all_capabilities_to_programs_that_need_them_and_secrets_to_none(
    server: Server, names: tuple[str, ...], windows: bool
) -> None:
    environ = LOCATIONS | CAPABILITIES | SECRETS
    expected = LOCATIONS | {name: value for name, value in CAPABILITIES.items() if name.startswith(names or "-")}
    if windows:
        expected.pop("LC_CTYPE")
    assert inherited(server, environ, windows=windows) == expected


def test_the_state_of_a_terminal_or_desktop_is_not_named_as_missing() -> None:
    names = (
        "COLUMNS LINES TERM_SESSION_ID ITERM_PROFILE ITERM_SESSION_ID SECURITYSESSIONID XPC_FLAGS COLORFGBG"
        " XDG_SESSION_TYPE XDG_SESSION_CLASS XDG_SESSION_DESKTOP"
        " KDE_SESSION_UID KDE_FULL_SESSION GNOME_DESKTOP_SESSION_ID"
    )
    state = dict.fromkeys(names.split(), "x")
    assert list(withheld(starts("npx", "server"), {**state, "MY_SETTING": "s"})) == ["MY_SETTING"]


def test_every_variable_has_one_row_and_a_reason() -> None:
    for other in ("windows", "posix"):
        names = [name for row in INHERITED if row.passing != other for name in row.names.split()]
        assert len(names) == len(set(names))
    assert all(row.reason and bool(row.programs) == (row.passing == "programs") for row in INHERITED)


def test_windows_has_its_own_base_and_ignores_the_case_of_names() -> None:
    for name in ("SystemRoot", "APPDATA", "ProgramFiles(x86)", "Java_Home", "Path"):
        row = inherited_row(name, windows=True)
        assert row is not None
        assert row.passing in ("windows", "always")
    assert inherited_row("SystemRoot", windows=False) is None
    assert inherited_row("HOME", windows=True) is None


def test_an_own_variable_wins_over_an_inherited_one(tmp_path: Path) -> None:
    server = Server.model_validate(
        {"id": "a", "transport": "stdio", "command": "x", "namespace": "a", "env": {"DISPLAY": ":1", "MY_SETTING": "s"}}
    )
    environment = child_environment(server, LOCATIONS | SECRETS, tmp_path, windows=False)
    assert (environment["DISPLAY"], environment["MY_SETTING"]) == (":1", "s")
