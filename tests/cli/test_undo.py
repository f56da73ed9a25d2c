"""`mcp-hub undo` and the confirmation that all commands which edit files share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec
import pytest

from mcp_hub.cli import OK, STALE, UNCONFIRMED, main
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, carry_out, confirm
from mcp_hub.editing.edit import Edit
from mcp_hub.editing.journal import Journal


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_bytes(b"{\r\n}")
    return path


def changed(path: Path, after: bytes | None = b'{"token": "abcdefgh"}') -> Plan:
    return Plan((Edit(path, path.read_bytes() if path.exists() else None, after),))


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_confirmation_arguments(parser)
    return parser.parse_args(arguments)


def test_a_plan_is_shown_and_not_executed_without_confirmation(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = changed(file)
    assert carry_out(plan, options(), ["mcp-hub", "test"]) == UNCONFIRMED
    out, err = capsys.readouterr()
    assert (file.read_bytes(), '+{"token": ***}' in out) == (b"{\r\n}", True)
    assert f"--confirm {plan.token}" in err


def test_a_confirmation_token_is_valid_only_for_the_plan_that_was_shown(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = changed(file).token
    assert carry_out(changed(file, b"{}"), options("--confirm", token), ["mcp-hub", "test"]) == STALE
    assert file.read_bytes() == b"{\r\n}"
    file.write_bytes(b"{ }")
    assert carry_out(changed(file), options("--confirm", token), ["mcp-hub", "test"]) == STALE
    assert "out of date" in capsys.readouterr().err
    file.write_bytes(b"{\r\n}")
    assert carry_out(changed(file), options("--confirm", token), ["mcp-hub", "test"]) == OK
    assert file.read_bytes() == b'{"token": "abcdefgh"}'


def test_a_confirmation_token_is_valid_only_for_its_command_line() -> None:
    first, second = Plan(commands=(("npx", "-y", "a@1"),)), Plan(commands=(("npx", "-y", "a@2"),))
    assert confirm(second, options("--confirm", first.token)) == STALE
    assert confirm(first, options("--confirm", first.token)) == OK


def test_a_plan_prints_one_json_value_before_and_after_confirmation(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = changed(file)
    assert carry_out(plan, options("--json"), ["mcp-hub", "test"]) == UNCONFIRMED
    preview = json.loads(capsys.readouterr().out)
    assert (preview["done"], preview["token"], preview["edits"][0]["path"]) == (False, plan.token, str(file))
    assert carry_out(plan, options("--json", "--yes"), ["mcp-hub", "test"]) == OK
    assert json.loads(capsys.readouterr().out)["done"] is True


def test_undo_restores_every_byte_of_every_file(tmp_path: Path, file: Path) -> None:
    new = tmp_path / "new.json"
    plan = Plan((*changed(file).edits, *changed(new).edits))
    carry_out(plan, options("--yes"), ["mcp-hub", "test"])
    assert main(["undo"]) == UNCONFIRMED
    assert main(["undo", "--yes"]) == OK
    assert (file.read_bytes(), new.exists()) == (b"{\r\n}", False)
    assert main(["undo", "--yes"]) == 1


def test_runs_are_undone_from_the_newest_on(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for after in (b"1", b"2"):
        carry_out(changed(file, after), options("--yes"), ["mcp-hub", "write", after.decode()])
    capsys.readouterr()
    assert main(["undo", "--list", "--json"]) == OK
    assert [run["command"] for run in json.loads(capsys.readouterr().out)] == ["mcp-hub write 2", "mcp-hub write 1"]
    assert (main(["undo", "--yes"]), file.read_bytes()) == (OK, b"1")
    assert (main(["undo", "--yes"]), file.read_bytes()) == (OK, b"{\r\n}")
    capsys.readouterr()
    assert (main(["undo", "--list"]), capsys.readouterr().out) == (OK, "there is nothing to undo\n")


def test_undo_refuses_files_edited_later_and_shows_the_edits(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    carry_out(changed(file, b'{"a": 1}'), options("--yes"), ["mcp-hub", "test"])
    file.write_bytes(b'{"a": 1, "mine": 2}')
    assert main(["undo", "--yes"]) == 2
    err = capsys.readouterr().err
    assert "edited after that" in err
    assert '+{"a": 1, "mine": 2}' in err
    assert file.read_bytes() == b'{"a": 1, "mine": 2}'


def test_an_interrupted_undo_resumes_where_it_stopped(tmp_path: Path, file: Path) -> None:
    second_file = tmp_path / "b.json"
    second_file.write_bytes(b"before")
    carry_out(Plan((*changed(file).edits, *changed(second_file).edits)), options("--yes"), ["mcp-hub", "test"])
    file.write_bytes(b"{\r\n}")
    assert (main(["undo", "--yes"]), second_file.read_bytes()) == (OK, b"before")


def test_undo_restores_a_file_that_one_run_edited_twice(file: Path) -> None:
    twice = (Edit(file, b"{\r\n}", b"1"), Edit(file, b"1", b"2"))
    Journal.of_user().perform("mcp-hub test", twice[:1])
    (run,) = Journal.of_user().runs()
    twice[1].apply()
    (restored,) = Journal.of_user().undo(msgspec.structs.replace(run, edits=twice))
    assert (restored.before, restored.after) == (b"2", b"{\r\n}")


def test_a_secret_file_is_not_shown(tmp_path: Path) -> None:
    plan = Plan((Edit(tmp_path / "key", None, b"s3cret-value", secret=True),))
    assert "s3cret" not in "\n".join(plan.lines())
    assert carry_out(plan, options("--yes"), ["mcp-hub", "test"]) == OK
    (run,) = Journal.of_user().runs()
    lines = [line for edit in Journal.of_user().undo(run) for line in edit.diff()]
    assert "s3cret" not in "\n".join(lines)
    assert "12 bytes" in lines[-1]
