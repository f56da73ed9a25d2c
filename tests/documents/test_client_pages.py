"""The pages of clients: one for each client of the table, whose files are what the commands make of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from bench.pictures import BLOCK, ONE_SERVER
from bench.terminal import ROOT, SHOWN_HOME
from mcp_hub.cli import OK, main
from mcp_hub.clients import Client, Machine
from mcp_hub.clients.detection import read_client_file
from mcp_hub.clients.installs import hub_command
from mcp_hub.clients.table import CLIENTS
from mcp_hub.hub.composition import read_config

PAGES: Final = ROOT / "docs" / "clients"
SHOWN_HUB: Final = f"{SHOWN_HOME}/mcp-hub/.venv/bin/mcp-hub"
MOST_LINES: Final = 70
WITHOUT_HTTP: Final = {"claude-desktop"}
"""The clients whose file takes no URL."""
ADDRESS: Final = "http://127.0.0.1:8808/mcp"

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.id)


def text_of(client: Client) -> str:
    return (PAGES / f"{client.id}.md").read_text()


def blocks(client: Client) -> dict[str, str]:
    return {kind: text for kind, _, text in BLOCK.findall(text_of(client))}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "MCP_HUB_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    written(tmp_path / ".config/mcp-hub/servers.yaml", ONE_SERVER)
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def path_on_page(client: Client, home: Path) -> Path:
    """Where the page says that the file is."""
    (path,) = (path for kind, path, _ in BLOCK.findall(text_of(client)) if kind == "before")
    return home / path


def test_every_client_has_one_page_linked_from_the_overview_and_no_other_page_exists() -> None:
    overview = (PAGES.parent / "clients.md").read_text()
    linked = set(re.findall(r"\]\(clients/([\w-]+)\.md\)", overview))
    assert {client.id for client in CLIENTS} == {page.stem for page in PAGES.iterdir()} == linked


@every_client
def test_install_turns_the_pages_file_before_into_its_file_after_and_uninstall_reverts_it(
    client: Client, home: Path
) -> None:
    contents = blocks(client)
    path = written(path_on_page(client, home), contents["before"])
    assert main(["install", client.id, "--yes"]) == OK
    program = hub_command(home / ".config/mcp-hub/servers.yaml")[0]
    assert path.read_text().replace(program, SHOWN_HUB).replace(str(home), SHOWN_HOME) == contents["after"]
    assert main(["uninstall", client.id, "--yes"]) == OK
    assert path.read_text() == contents["before"]


@every_client
def test_a_client_page_names_the_path_of_the_clients_file(client: Client, home: Path) -> None:
    path = written(path_on_page(client, home), blocks(client)["before"])
    assert Machine("linux", home, {}).file_of(client) == path
    assert f"`~/{path.relative_to(home)}`" in text_of(client)


@every_client
def test_a_client_page_names_a_different_path_on_another_system(client: Client, home: Path) -> None:
    text, own = text_of(client), path_on_page(client, home)
    for system, pattern in (("macos", "~/{}"), ("windows", "%APPDATA%\\{}")):
        data = home / ("Library/Application Support" if system == "macos" else "AppData/Roaming")
        machine = Machine(system, home, {})
        paths = [path for template in client.files for path in machine.paths(template)]
        if own not in paths:
            (expected,) = paths
            base = home if system == "macos" else data
            name = str(expected.relative_to(base)).replace("/", "/" if system == "macos" else "\\")
            assert f"`{pattern.format(name)}`" in text


@every_client
def test_the_entry_over_http_reaches_the_hub(client: Client, home: Path) -> None:
    content = blocks(client).get("http")
    assert (content is None) == (client.id in WITHOUT_HTTP)
    if content is not None:
        path = written(path_on_page(client, home), content)
        (server,) = read_client_file(path, Machine("linux", home, {}), client).servers
        assert (server.id, server.command_line) == ("hub", (ADDRESS,))
        assert read_config(path, {}, home).config.servers[0].transport in ("http", "auto")


@every_client
def test_a_client_page_states_what_the_hub_knows_about_the_client(client: Client) -> None:
    text = text_of(client)
    assert text.startswith(f"# {client.name}\n\n`mcp-hub install {client.id}` puts the hub into ")
    assert len(text.splitlines()) <= MOST_LINES
    assert (f"at most {client.tool_limit} tools" in text) == (client.tool_limit is not None)
    assert ("a few of many tools itself" in text) == client.defers
    assert client.start_limit is None or f"{client.start_limit:g} s to start" in text
    assert all(f"`{name}`" in text for name in client.project_files)
    if client.off is not None:
        key, value = client.off
        assert re.search(rf"`--switch-off` writes `{key}(?:: | = ){str(value).lower()}`", text)


@every_client
def test_a_client_page_runs_the_client_or_says_that_it_was_not_at_hand(client: Client) -> None:
    own = f"; {client.program} " in text_of(client)
    assert own != (f"{client.name} itself was not at hand" in text_of(client))
