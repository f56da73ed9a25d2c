"""Files that are edited: how they are written, what is refused, and what a diff shows."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_hub.editing import EditRefused
from mcp_hub.editing.edit import Edit, FileEditor, StaleEdit, read_bytes
from mcp_hub.editing.journal import Journal
from mcp_hub.editing.server_file import ServerFile
from tests.fakes.client import PATIENCE

ENTRY = {"command": "/opt/hub/mcp-hub", "args": ["serve"]}


def edit_of(path: Path) -> Edit:
    editor = FileEditor.open(path)
    editor.insert(("mcpServers", "mcp-hub"), ENTRY)
    return editor.edit()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "state" / "journal")


def test_an_edit_keeps_the_files_mode_and_its_symbolic_link(tmp_path: Path, journal: Journal) -> None:
    real = tmp_path / "dot files" / "größe.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "mcp.json"
    link.symlink_to(real)
    journal.perform("install", [edit_of(link)])
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert '"mcp-hub"' in real.read_text()
    assert sorted(path.name for path in real.parent.iterdir()) == ["größe.json"]


def test_an_interrupted_write_leaves_no_file_changed(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        path.write_text("{}")
    edits = [edit_of(path) for path in paths]
    sync = os.fsync

    def interrupted(descriptor: int) -> None:
        sync(descriptor)
        if "mcp-hub" in paths[1].read_text():  # it is complete, and only its directory is not written yet
            monkeypatch.undo()
            raise KeyboardInterrupt  # as the handler of SIGINT does, which is not installed in the background

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.perform("install", edits)
    assert [path.read_text() for path in paths] == ["{}", "{}"]
    assert journal.runs() == []


@pytest.mark.parametrize("name", ["mcp.json", "mcp.toml", "mcp.yaml"])
def test_a_text_that_no_file_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    editor = FileEditor(tmp_path / name, None)
    with pytest.raises(EditRefused, match=re.escape(name)):
        editor.insert(("servers", "a"), {"command": "x\udcff"})


def test_an_entry_with_several_switches_is_switched_by_all_of_them(tmp_path: Path) -> None:
    entry = {"command": "x", "isActive": True, "disabled": True}
    file = ServerFile(tmp_path / "mcp.json", json.dumps({"mcpServers": {"a": entry}}).encode())
    file.switch("a", on=True)
    assert file.entry("a").values == {"command": "x", "isActive": True, "disabled": False}
    file.switch("a", on=False)
    assert file.entry("a").values == {"command": "x", "isActive": False, "disabled": True}


def test_a_new_file_is_private(tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "new" / "mcp.json"
    journal.perform("install", [edit_of(path)])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_changed_after_the_preview_is_not_written(tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    edit = edit_of(path)
    path.write_text('{"a": 1}')
    with pytest.raises(StaleEdit, match="changed after the preview"):
        journal.perform("install", [edit])
    assert (path.read_text(), journal.runs()) == ('{"a": 1}', [])


def test_no_change_is_lost_if_several_commands_edit_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b"")

    def append() -> int:
        written = 0
        for _ in range(150):
            before = read_bytes(path)
            assert before is not None
            with suppress(StaleEdit):
                Edit(path, before, before + b"x").apply()
                written += 1
        return written

    with ThreadPoolExecutor(4) as commands:
        written = sum(future.result(PATIENCE) for future in [commands.submit(append) for _ in range(4)])
    assert len(path.read_bytes()) == written
    assert [entry.name for entry in tmp_path.iterdir()] == ["mcp.json"]


def test_all_files_of_a_run_are_written_or_none(tmp_path: Path, journal: Journal) -> None:
    first, second = tmp_path / "a.json", tmp_path / "gone" / "b.json"
    first.write_text("{}")
    (tmp_path / "gone").write_text("a file where a directory should be")
    with pytest.raises(EditRefused, match="gone"):
        journal.perform("install", [edit_of(first), Edit(second, None, b"{}")])
    assert (first.read_text(), journal.runs()) == ("{}", [])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "is not valid JSON"),
        (b'{"mcpServers": {"a": {}, "a": {}}}', "already given in line 1"),
        (b'{"mcpServers": []}', "is not an object"),
        (b"[]", "is not an object"),
        (b"\xff\xfe{\0}\0", "not UTF-8"),
        (b'{"a": "' + b"x" * 1024 * 1024 + b'"}', "larger than 1,048,576 bytes"),
        (b"[" * 5000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_with_its_name(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content)
    with pytest.raises(EditRefused, match=says) as refused:
        edit_of(path)
    assert str(path) in str(refused.value)
    assert path.read_bytes() == content


def test_a_read_only_file_is_left_alone(tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    path.chmod(0o444)
    with pytest.raises(EditRefused, match="is read-only"):
        journal.perform("install", [edit_of(path)])


def test_a_file_with_several_hard_links_is_left_alone(tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    os.link(path, tmp_path / "other.json")
    with pytest.raises(EditRefused, match="2 hard links"):
        journal.perform("install", [edit_of(path)])


def test_editing_something_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mcp.json")
    with pytest.raises(EditRefused, match="is not a file"):
        edit_of(tmp_path / "mcp.json")


def test_a_diff_shows_no_secret_and_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        '{"mcpServers": {\n"a": {"env": {"ANY": "correct horse battery"}},\n'
        '"b": {"headers": {"X-Any": "Bearer tr0ub4dor"}, "args": ["--token", "hunter2222"]},\n'
        '"\x9b31m": {"url": "https://me:passw0rd1@h.example/"}\n}}'
    )
    diff = "\n".join(edit_of(path).diff())
    for secret in ("correct horse", "tr0ub4dor", "hunter2222", "passw0rd1", "\x9b"):
        assert secret not in diff
    assert '+"mcp-hub"' in diff.replace(" ", "")


def test_a_server_whose_name_sounds_like_a_secret_is_shown_in_a_diff(tmp_path: Path) -> None:
    text = '{"servers": {"dsn": {"command": "x", "env": {"KEYS": ["a"]}}}}'
    assert Edit(tmp_path / "mcp.json", None, text.encode()).diff()[-1] == "+" + text


@pytest.mark.parametrize("value", ["${SSH_AUTH_SOCK}", "${GITHUB_TOKEN}", "Bearer ${GITHUB_TOKEN}", "${file:/a/b}"])
@pytest.mark.parametrize("line", ["  SSH_AUTH_SOCK: {}", '  "TOKEN": "{}"'])
def test_a_diff_shows_which_variable_or_file_a_secret_comes_from(tmp_path: Path, line: str, value: str) -> None:
    line = line.format(value)
    text = "\n".join(Edit(tmp_path / "servers.yaml", None, line.encode()).diff())
    assert f"+{line}" in text


@pytest.mark.parametrize("value", ["${TOKEN:-hunter22}", "${hunter22", "${TOKEN}hunter22", "$-hunter22!"])
def test_a_diff_hides_a_secret_beside_a_reference(tmp_path: Path, value: str) -> None:
    entry = f"servers:\n  a:\n    command: x\n    env:\n      PASSWORD: {value}"
    text = "\n".join(Edit(tmp_path / "servers.yaml", None, entry.encode()).diff())
    assert "hunter22" not in text


def test_the_journal_is_private_and_outside_of_git_work_trees(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    with pytest.raises(EditRefused, match="is in the Git work tree"):
        Journal(tmp_path / "tree" / "state").perform("install", [edit_of(path)])
    assert not path.exists()
    Journal(tmp_path / "state" / "journal").perform("install", [edit_of(path)])
    (file,) = (tmp_path / "state" / "journal").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_the_journal_keeps_a_hundred_runs(tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "count"
    for number in range(103):
        journal.perform(f"run {number}", [Edit(path, path.read_bytes() if number else None, str(number).encode())])
    runs = journal.runs()
    assert (len(runs), runs[0].command, runs[-1].command) == (100, "run 102", "run 3")


def test_a_disk_error_never_leaves_a_partially_written_file(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    edit = edit_of(path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EditRefused, match="No space left on device"):
        journal.perform("install", [edit])
    assert (path.read_text(), [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")]) == ("{}", [])
