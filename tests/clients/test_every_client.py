"""Every client of the table on every system: found, read, imported, given the hub, and restored."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mcp_hub.clients import Client, Machine, System, entry_of
from mcp_hub.clients.detection import FILTER_KEYS, find_client_files, read_client_file
from mcp_hub.clients.imports import plan_import
from mcp_hub.clients.installs import ENTRY, plan_install, plan_uninstall
from mcp_hub.clients.table import BY_ID, CLIENTS
from mcp_hub.config.dialect import FILTERS
from mcp_hub.editing import EditRefused, parse
from mcp_hub.editing.edit import FileEditor
from mcp_hub.editing.journal import Journal
from mcp_hub.editing.secret_store import SecretStore
from mcp_hub.editing.server_file import ServerFile
from tests.clients.documented import FILES, PATHS, Documented
from tests.clients.forms import FORMS
from tests.editing.written import TEXTS

SYSTEMS: list[System] = ["linux", "macos", "windows"]
ALL: list[tuple[Client, Documented]] = [
    *((client, FILES[client.id]) for client in CLIENTS),
    *((BY_ID[form.client], form.file) for form in FORMS),
]
every_form = pytest.mark.parametrize(("client", "documented"), ALL, ids=lambda value: getattr(value, "id", None))
EVERYWHERE = [(client, system) for client in CLIENTS for system in SYSTEMS]
COMMAND = ("/opt/the hub/bin/mcp-hub", "serve", "--config", "/home/me/größe/servers.yaml")
everywhere = pytest.mark.parametrize(("client", "system"), EVERYWHERE, ids=lambda value: getattr(value, "id", value))


def machine_of(home: Path, system: System) -> Machine:
    home.mkdir(parents=True, exist_ok=True)
    environ = {"EXTERNAL_API_KEY": "x", "DB_CONNECTION_STRING": "y", "PATH": ""}
    if system == "windows":
        environ |= {"APPDATA": str(home / "AppData/Roaming"), "LOCALAPPDATA": str(home / "AppData/Local")}
    return Machine(system, home, environ)


def write_client_file(home: Path, client: Client, system: System, text: str | None = None) -> Path:
    path = home / PATHS[system][client.id]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((FILES[client.id].text if text is None else text).encode())
    path.chmod(0o600)
    return path


@everywhere
def test_a_client_is_found_by_its_file_and_its_servers_are_read(tmp_path: Path, client: Client, system: System) -> None:
    home = tmp_path / "höme dir"
    machine = machine_of(home, system)
    assert find_client_files(machine) == []
    path = write_client_file(home, client, system)
    client_file = {file.path: file for file in find_client_files(machine)}[path]
    assert (client_file.client, client_file.problem) == (client, None)
    assert {entry.id: " ".join(entry.command_line) for entry in client_file.servers} == FILES[client.id].runs
    assert not [entry.id for entry in client_file.servers if entry.server is None]


@every_form
def test_every_file_format_of_a_client_is_read_gets_the_hub_and_is_restored(
    tmp_path: Path, client: Client, documented: Documented
) -> None:
    machine, journal = machine_of(tmp_path, "linux"), Journal(tmp_path / "journal")
    path = write_client_file(tmp_path, client, "linux", documented.text)
    file = read_client_file(path, machine, client)
    assert file.problem is None
    assert {
        entry.id: " ".join(entry.command_line) for entry in file.servers if entry.command_line != ("",)
    } == documented.runs
    assert not [entry.id for entry in file.servers if entry.server is None]
    journal.perform("install", [plan_install(client, machine, COMMAND, file.servers).edit])
    journal.perform("uninstall", [plan_uninstall(client, machine, journal).edit])
    assert path.read_bytes() == documented.text.encode()


@every_form
def test_an_imported_server_has_the_same_identity_and_settings(
    tmp_path: Path, client: Client, documented: Documented
) -> None:
    machine = machine_of(tmp_path / "home", "linux")
    file = read_client_file(write_client_file(tmp_path / "home", client, "linux", documented.text), machine, client)
    target = tmp_path / "servers.yaml"
    plan = plan_import([file], ServerFile.open(target), SecretStore(tmp_path / "secrets", in_keyring=False), machine)
    Journal(tmp_path / "journal").perform("import", plan.edits)
    assert target.stat().st_mode & 0o777 == 0o600
    imported = {entry.id: entry for entry in read_client_file(target, machine).servers}
    assert imported.keys() == documented.runs.keys()
    for entry in (entry for entry in file.servers if entry.id in imported):
        assert imported[entry.id].identity == entry.identity
        assert entry.server is not None
        assert _facts(imported[entry.id].server) == _facts(entry.server)


def _facts(server: Any) -> dict[str, Any]:
    """What the hub reads in an entry, but for what is said of one that is off."""
    facts = {name: getattr(server, name) for name in type(server).model_fields}
    # Names that are allowed and refused too are written as refused only.
    allowed = facts["filters"].get("tools")
    if allowed is not None and allowed.allow is not None:
        facts["filters"] = {**facts["filters"], "tools": sorted(set(allowed.allow) - set(allowed.deny))}
    return facts if server.enabled else {"id": server.id, "enabled": False}


@everywhere
def test_install_and_uninstall_restore_the_documented_client_file(
    tmp_path: Path, client: Client, system: System
) -> None:
    home, journal = tmp_path / "home", Journal(tmp_path / "journal")
    machine, path = machine_of(home, system), write_client_file(tmp_path / "home", client, system)
    journal.perform("install", [plan_install(client, machine, COMMAND).edit])
    (hub,) = read_client_file(path, machine, client).hubs
    assert (hub.id, hub.command_line) == (ENTRY, COMMAND)
    assert plan_install(client, machine, COMMAND).edit.changes is False
    # Somebody edits the file in the meantime: the rest has to come back all the same.
    comment = b"\n" if path.suffix in (".json", ".jsonc") else b"# later\n"
    path.write_bytes(path.read_bytes() + comment)
    journal.perform("uninstall", [plan_uninstall(client, machine, journal).edit])
    assert path.read_bytes() == FILES[client.id].text.encode() + comment


@everywhere
def test_install_creates_a_missing_client_file_and_uninstall_removes_it(
    tmp_path: Path, client: Client, system: System
) -> None:
    home, journal = tmp_path / "home", Journal(tmp_path / "journal")
    machine = machine_of(home, system)
    for path in [path for mark in client.marks for path in machine.paths(mark) if path.suffix != ".json"][-1:]:
        path.mkdir(parents=True)
    file = machine.file_of(client)
    assert file is not None
    journal.perform("install", [plan_install(client, machine, COMMAND).edit])
    assert [entry.command_line for entry in read_client_file(file, machine, client).hubs] == [COMMAND]
    journal.perform("uninstall", [plan_uninstall(client, machine, journal).edit])
    assert not file.exists()


def bare(client: Client) -> list[str]:
    """Files of a client that has no servers, or none any more."""
    root, empty = client.root[0], "[]" if client.listed else "{}"
    return {
        "json": ["", "\ufeff", "// nothing yet\n", "/* c */", "{}", "\ufeff{}\r\n", f'{{"{root}": {empty},}}'],
        "yaml": [
            "",
            "\ufeff",
            "# nothing yet\n",
            "---\n",
            "{}\n",
            f"{root}: {empty}\n",
            f"{root}:\n",
            f"a: 1\n{root}: {empty}",
        ],
        "toml": ["", "\ufeff", "# nothing yet\n", f"[{root}]\n", f"a = 1\r\n\r\n[{root}]\r\n"],
    }[client.syntax]


@pytest.mark.parametrize(
    ("client", "text"),
    [(client, text) for client in CLIENTS for text in bare(client)],
    ids=lambda value: getattr(value, "id", None),
)
def test_a_client_file_without_servers_gets_the_hub_and_is_restored(tmp_path: Path, client: Client, text: str) -> None:
    machine, journal = machine_of(tmp_path, "linux"), Journal(tmp_path / "journal")
    path = write_client_file(tmp_path, client, "linux", text)
    journal.perform("install", [plan_install(client, machine, COMMAND).edit])
    assert [entry.command_line for entry in read_client_file(path, machine, client).hubs] == [COMMAND]
    journal.perform("uninstall", [plan_uninstall(client, machine, journal).edit])
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize("id", ["cursor", "codex"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_install_and_uninstall_leave_the_bytes_of_any_file(tmp_path: Path, id: str, data: st.DataObject) -> None:
    client, machine = BY_ID[id], machine_of(tmp_path, "linux")
    journal = Journal(Path(tempfile.mkdtemp(dir=tmp_path)))
    text = data.draw(TEXTS[client.syntax](str(client.root[0]), 0))
    path = write_client_file(tmp_path, client, "linux", text)
    try:
        parse(text, client.syntax)
    except EditRefused:
        assume(False)
    journal.perform("install", [plan_install(client, machine, COMMAND).edit])
    assert [entry.command_line for entry in read_client_file(path, machine, client).hubs] == [COMMAND]
    journal.perform("uninstall", [plan_uninstall(client, machine, journal).edit])
    assert path.read_bytes() == text.encode()


def test_the_packaged_claude_desktop_on_windows_has_precedence(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, "windows")
    write_client_file(tmp_path, BY_ID["claude-desktop"], "windows")
    packaged = tmp_path / "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
    packaged.mkdir(parents=True)
    assert machine.file_of(BY_ID["claude-desktop"]) == tmp_path / PATHS["windows"]["claude-desktop"]
    (packaged / "claude_desktop_config.json").write_text("{}")
    assert machine.file_of(BY_ID["claude-desktop"]) == packaged / "claude_desktop_config.json"


@pytest.mark.parametrize(
    ("client", "variable", "name"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("copilot", "COPILOT_HOME", "mcp-config.json"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("goose", "GOOSE_PATH_ROOT", "config/config.yaml"),
        ("continue", "CONTINUE_GLOBAL_DIR", "config.yaml"),
        ("cline", "CLINE_DIR", "data/settings/cline_mcp_settings.json"),
        ("cline", "CLINE_DATA_DIR", "settings/cline_mcp_settings.json"),
        ("zed", "FLATPAK_XDG_CONFIG_HOME", "zed/settings.json"),
        ("zed", "XDG_CONFIG_HOME", "zed/settings.json"),
    ],
)
def test_an_environment_variable_changes_the_directory_of_a_client(
    tmp_path: Path, client: str, variable: str, name: str
) -> None:
    write_client_file(tmp_path / "home", BY_ID[client], "linux")
    moved = tmp_path / "moved" / name
    moved.parent.mkdir(parents=True)
    moved.write_text("")
    machine = Machine("linux", tmp_path / "home", {variable: str(tmp_path / "moved")})
    assert machine.file_of(BY_ID[client]) == moved


def test_an_older_cline_has_its_servers_in_the_storage_of_vs_code(tmp_path: Path) -> None:
    machine, client = machine_of(tmp_path, "macos"), BY_ID["cline"]
    support = tmp_path / "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev"
    older = support / "settings/cline_mcp_settings.json"
    older.parent.mkdir(parents=True)
    assert machine.file_of(client) == older
    older.write_text("{}")
    newer = write_client_file(tmp_path, client, "macos")
    assert machine.file_of(client) == newer  # a newer one has taken over what the older one had


def test_zed_on_macos_does_not_look_at_xdg(tmp_path: Path) -> None:
    (tmp_path / ".config/zed").mkdir(parents=True)
    machine = Machine("macos", tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "elsewhere")})
    assert machine.file_of(BY_ID["zed"]) == tmp_path / ".config/zed/settings.json"


def test_servers_of_opencode_2_are_one_key_deeper_in_its_file(tmp_path: Path) -> None:
    client, machine, journal = BY_ID["opencode"], machine_of(tmp_path, "linux"), Journal(tmp_path / "journal")
    path = write_client_file(tmp_path, client, "linux")
    path.write_text('{"mcp": {"servers": {"a": {"type": "local", "command": ["npx", "-y", "a"]}}}}')
    servers = read_client_file(path, machine).servers
    assert [entry.command_line for entry in servers] == [("npx", "-y", "a")]
    journal.perform("install", [plan_install(client, machine, COMMAND, servers).edit])
    tree = parse(path.read_text(), "json").tree["mcp"]["servers"]
    assert tree["a"]["disabled"] is True
    assert tree["hub"] == {"type": "local", "command": list(COMMAND)}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.id)
def test_original_entries_are_disabled_or_removed_and_restored(tmp_path: Path, client: Client) -> None:
    machine, journal = machine_of(tmp_path, "linux"), Journal(tmp_path / "journal")
    path = write_client_file(tmp_path, client, "linux")
    before = read_client_file(path, machine, client).servers
    served = {entry.id for entry in before if entry.server is not None and entry.server.enabled}
    install_plan = plan_install(client, machine, COMMAND, before)
    assert set(install_plan.switched_off) == served
    journal.perform("install", [install_plan.edit])
    installed = {entry.id: entry for entry in read_client_file(path, machine, client).servers}
    for id in served:
        assert id not in installed if client.off is None else not installed[id].on
    path.write_bytes(path.read_bytes() + b"\n")
    uninstall_plan = plan_uninstall(client, machine, journal)
    assert set(uninstall_plan.restored) == served
    journal.perform("uninstall", [uninstall_plan.edit])
    restored = {entry.id: entry for entry in read_client_file(path, machine, client).servers}
    assert {id: (entry.identity, entry.on) for id, entry in restored.items()} == {
        entry.id: (entry.identity, entry.on) for entry in before
    }


@every_form
@pytest.mark.parametrize("switch_off", [True, False])
def test_undo_takes_only_the_hub_out_of_a_client_file_that_was_edited_since(
    tmp_path: Path, client: Client, documented: Documented, switch_off: bool
) -> None:
    machine, journal = machine_of(tmp_path, "linux"), Journal(tmp_path / "journal")
    path = write_client_file(tmp_path, client, "linux", documented.text)
    before = read_client_file(path, machine, client).servers
    journal.perform("install", [plan_install(client, machine, COMMAND, before if switch_off else None).edit])
    editor = FileEditor.open(path, client.syntax)
    (added,) = [server.entry.at for server in read_client_file(path, machine, client).servers if server.id == ENTRY]
    mine = {**entry_of(client, "mine", "my-server", ()), "name": "mine"}
    editor.insert((*added[:-1], added[-1] + 1 if isinstance(added[-1], int) else "mine"), mine)
    editor.insert((*added, "alwaysAllow"), True)  # which a client adds to the entry of the hub
    path.write_bytes(editor.text.encode() + b"\n")
    run = journal.runs()[0]
    undoing = journal.undo(run)
    assert not undoing.left
    journal.take_back(run, undoing)
    now = {entry.id: (entry.identity, entry.on) for entry in read_client_file(path, machine, client).servers}
    assert now.pop("mine")
    assert now == {entry.id: (entry.identity, entry.on) for entry in before}


def test_undo_finds_the_hub_in_a_list_with_items_that_have_no_name(tmp_path: Path) -> None:
    client, machine, journal = BY_ID["continue"], machine_of(tmp_path, "linux"), Journal(tmp_path / "journal")
    text = "mcpServers:\n  - uses: a/b\n  - name: a\n    command: x\n    args: [1, 2]\n  - uses: c/d\n"
    path = write_client_file(tmp_path, client, "linux", text)
    before = read_client_file(path, machine, client).servers
    journal.perform("install", [plan_install(client, machine, COMMAND, before).edit])
    path.write_text(path.read_text().replace("  - uses: a/b\n", "  - uses: e/f\n  - uses: a/b\n"))
    run = journal.runs()[0]
    journal.take_back(run, journal.undo(run))
    entries = parse(path.read_text(), "yaml").tree["mcpServers"]
    assert [entry.get("uses") or entry["name"] for entry in entries] == ["e/f", "a/b", "c/d", "a"]


def test_a_name_that_exists_again_is_not_overwritten(tmp_path: Path) -> None:
    client, machine, journal = BY_ID["cursor"], machine_of(tmp_path, "linux"), Journal(tmp_path / "journal")
    path = write_client_file(
        tmp_path, client, "linux", '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}'
    )
    before = read_client_file(path, machine, client).servers
    journal.perform("install", [plan_install(client, machine, COMMAND, before).edit])
    path.write_text(path.read_text().replace('"hub": {', '"a": {"command": "another"}, "hub": {'))
    run = journal.runs()[0]
    undoing = journal.undo(run)
    assert any("another mcpServers.a" in note for note in undoing.notes)
    journal.take_back(run, undoing)
    entries = {entry.id: entry.command_line for entry in read_client_file(path, machine, client).servers}
    assert entries == {"a": ("another",), "b": ("y",)}


def test_every_tool_filter_of_a_client_maps_to_a_key_of_the_hub() -> None:
    assert set(FILTER_KEYS) == set(FILTERS.values())
