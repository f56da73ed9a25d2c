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


def test_undo_takes_only_its_own_out_of_files_that_were_edited_since(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "b.json"
    plan = Plan((*changed(file, b'{"a": 1}').edits, *changed(other, b"{}").edits))
    carry_out(plan, options("--yes"), ["mcp-hub", "test"])
    file.write_bytes(b'{"a": 1, "mine": 2}')
    assert main(["undo", "--yes"]) == OK
    assert "was edited since" in capsys.readouterr().out
    assert (json.loads(file.read_bytes()), other.exists()) == ({"mine": 2}, False)


def test_what_was_changed_since_stays_and_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    carry_out(changed(file, b'{"a": 1, "b": {"command": "x"}}'), options("--yes"), ["mcp-hub", "test"])
    file.write_bytes(b'{"a": 5, "b": {"command": "y"}}')
    assert main(["undo", "--yes"]) == OK
    out = capsys.readouterr().out
    assert file.read_bytes() == b'{"a": 5, "b": {"command": "y"}}'
    assert "a was changed since" in out
    assert "b was changed since" in out


def test_an_entry_that_was_renamed_since_goes_unless_it_was_changed(file: Path) -> None:
    entries = {"hub": {"command": "x", "args": ["serve"]}, "other": {"command": "y"}}
    carry_out(changed(file, json.dumps(entries).encode()), options("--yes"), ["mcp-hub", "test"])
    file.write_text(json.dumps({"my hub": entries["hub"], "copy": {"command": "y", "args": ["z"]}}))
    assert main(["undo", "--yes"]) == OK
    assert json.loads(file.read_bytes()) == {"copy": {"command": "y", "args": ["z"]}}


def test_a_file_that_is_broken_now_can_be_undone_when_it_is_mended(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "b.json"
    plan = Plan((*changed(file, b'{"a": 1}').edits, *changed(other, b"{}").edits))
    carry_out(plan, options("--yes"), ["mcp-hub", "test"])
    file.write_bytes(b'{"a": 1, ')
    assert (main(["undo", "--yes"]), other.exists()) == (1, False)
    file.write_bytes(b'{"a": 1, "mine": 2}')
    assert (main(["undo", "--yes"]), json.loads(file.read_bytes())) == (OK, {"mine": 2})
    assert main(["undo", "--yes"]) == 1


def test_a_run_is_undone_by_its_number_and_later_ones_stay(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for after in (b'{"a": 1}', b'{"a": 1, "b": 2}', b'{"a": 1, "b": 2, "c": 3}'):
        carry_out(changed(file, after), options("--yes"), ["mcp-hub", "write"])
    capsys.readouterr()
    main(["undo", "--list", "--json"])
    numbers = [run["number"] for run in json.loads(capsys.readouterr().out)]
    assert (main(["undo", str(numbers[1]), "--yes"]), file.read_bytes()) == (OK, b'{"a": 1, "c": 3}')
    assert main(["undo", str(numbers[1]), "--yes"]) == 1
    assert (main(["undo", str(numbers[2]), "--yes"]), json.loads(file.read_bytes())) == (OK, {"c": 3})
    assert (main(["undo", "--yes"]), json.loads(file.read_bytes())) == (OK, {})


def test_no_secret_stays_in_the_journal_after_undo(tmp_path: Path, file: Path) -> None:
    secret = Edit(tmp_path / "key", None, b"s3cret-value", secret=True)
    plan = Plan((Edit(file, b"{\r\n}", b'{"token": "s3cret-value"}'), secret))
    carry_out(plan, options("--yes"), ["mcp-hub", "test"])
    journal = tmp_path / "state/mcp-hub/journal"
    assert any(b"czNjcmV0" in path.read_bytes() for path in journal.iterdir())  # contents are base64
    assert main(["undo", "--yes"]) == OK
    assert all(b"czNjcmV0" not in path.read_bytes() for path in journal.iterdir())
    assert list(tmp_path.glob("key")) == []


def test_a_secret_stays_where_an_entry_that_stays_refers_to_it(tmp_path: Path, file: Path) -> None:
    key = tmp_path / "key"
    entry = f'{{"s": {{"command": "x", "env": {{"K": "${{file:{key}}}"}}}}}}'.encode()
    plan = Plan((Edit(key, None, b"s3cret-value", secret=True), *changed(file, entry).edits))
    carry_out(plan, options("--yes"), ["mcp-hub", "test"])
    file.write_bytes(entry.replace(b'"x"', b'"y"'))
    assert main(["undo", "--yes"]) == OK
    assert (key.read_bytes(), file.read_bytes()) == (b"s3cret-value", entry.replace(b'"x"', b'"y"'))


def test_a_secret_stays_until_the_broken_file_that_may_refer_to_it_is_mended(tmp_path: Path, file: Path) -> None:
    key = tmp_path / "key"
    entry = f'{{"s": {{"command": "x", "env": {{"K": "${{file:{key}}}"}}}}}}'.encode()
    plan = Plan((Edit(key, None, b"s3cret-value", secret=True), *changed(file, entry).edits))
    carry_out(plan, options("--yes"), ["mcp-hub", "test"])
    file.write_bytes(entry + b",")
    assert (main(["undo", "--yes"]), key.exists()) == (1, True)
    file.write_bytes(entry)
    assert (main(["undo", "--yes"]), key.exists(), file.read_bytes()) == (OK, False, b"{\r\n}")


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
    (restored,) = Journal.of_user().undo(msgspec.structs.replace(run, edits=twice)).edits
    assert (restored.before, restored.after) == (b"2", b"{\r\n}")


@pytest.mark.parametrize("meanwhile", ["add", "undo"])
def test_what_a_command_writes_later_belongs_to_its_own_run(tmp_path: Path, file: Path, meanwhile: str) -> None:
    journal, later, other = Journal.of_user(), tmp_path / "b.json", tmp_path / "c.json"
    journal.perform("mcp-hub setup", changed(file, b"{}").edits)
    if meanwhile == "undo":
        assert main(["undo", "--yes"]) == OK
    else:
        Journal.of_user().perform("mcp-hub add", changed(other, b"{}").edits)
    journal.extend(changed(later, b"{}").edits)
    assert later.exists()
    if meanwhile == "add":
        assert (main(["undo", "--yes"]), other.exists(), later.exists()) == (OK, False, True)
    assert (main(["undo", "--yes"]), later.exists(), file.read_bytes()) == (OK, False, b"{\r\n}")


def test_a_secret_file_is_not_shown(tmp_path: Path) -> None:
    plan = Plan((Edit(tmp_path / "key", None, b"s3cret-value", secret=True),))
    assert "s3cret" not in "\n".join(plan.lines())
    assert carry_out(plan, options("--yes"), ["mcp-hub", "test"]) == OK
    (run,) = Journal.of_user().runs()
    lines = [line for edit in Journal.of_user().undo(run).edits for line in edit.diff()]
    assert "s3cret" not in "\n".join(lines)
    assert "12 bytes" in lines[-1]
