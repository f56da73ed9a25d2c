"""`builtin: files`: what may be done below the roots."""

import os
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_hub.servers.builtin import regular_files
from tests.fakes.client import PATIENCE, hub
from tests.servers.builtins.file_tree import Tree, refusal


def names(listed: object) -> list[str]:
    structured = listed.structured  # type: ignore[attr-defined]
    return [entry["name"] for entry in structured["entries"]]


def test_files_are_read_written_edited_listed_and_deleted(tree: Tree) -> None:
    files = tree.files
    assert files.read("/workspace/notes.txt", None) == "one\ntwo\nthree\n"
    assert files.read("/workspace/notes.txt", [-2, -1]) == "two\nthree\n"
    files.write("/workspace/new/folder/a.txt", "x\r\n")
    assert (tree.work / "new/folder/a.txt").read_bytes() == b"x\r\n"
    files.edit("//workspace/./notes.txt", "two", "2", replace_all=False)
    assert (tree.work / "notes.txt").read_text() == "one\n2\nthree\n"
    assert names(files.listing("/workspace")) == ["new", "notes.txt", "sub"]
    files.delete("/workspace/notes.txt")
    assert names(files.listing("/workspace/")) == ["new", "sub"]


def test_each_root_mode_allows_only_its_operations(tree: Tree) -> None:
    files = tree.files
    assert names(files.listing("/")) == ["/userinput/", "/workspace/"]
    assert files.read("/userinput/given.txt", None) == "given\n"
    files.write("/internal/state.txt", "s")
    assert files.read("/internal/state.txt", None) == "s"
    refused = [
        refusal(files.write, "/userinput/new.txt", "x"),
        refusal(files.edit, "/userinput/given.txt", "given", "x", replace_all=False),
        refusal(files.delete, "/userinput/given.txt"),
        refusal(files.listing, "/internal/"),
        refusal(files.delete, "/internal/state.txt"),
        refusal(files.read, "/elsewhere/a", None),
        refusal(files.read, "/workspace-2/a", None),
        refusal(files.read, "/etc/hostname", None),
    ]
    assert set(refused) == {"permission_denied"}
    assert "/internal/" not in files.listing("/").content[0]["text"]
    assert [path.name for path in tree.user.iterdir()] == ["given.txt"]
    assert (tree.internal / "state.txt").exists()


def test_an_edit_replaces_one_occurrence_unless_all_are_requested(tree: Tree) -> None:
    files, file = tree.files, tree.work / "notes.txt"
    file.write_text("a b a\n")
    assert refusal(files.edit, "/workspace/notes.txt", "a", "x", replace_all=False) == "invalid_parameters"
    assert refusal(files.edit, "/workspace/notes.txt", "z", "x", replace_all=True) == "invalid_parameters"
    assert refusal(files.edit, "/workspace/notes.txt", "", "x", replace_all=True) == "invalid_parameters"
    assert file.read_text() == "a b a\n"
    files.edit("/workspace/notes.txt", "a", "x", replace_all=True)
    assert file.read_text() == "x b x\n"


def test_file_sizes_are_bounded_and_no_partial_file_is_left(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_files, "MAX_BYTES", 100)
    files = tree.files
    (tree.work / "large.txt").write_text("x" * 101)
    assert refusal(files.read, "/workspace/large.txt", None) == "result_too_large"
    assert refusal(files.write, "/workspace/notes.txt", "x" * 101) == "result_too_large"
    (tree.work / "binary").write_bytes(b"\xff")
    assert refusal(files.read, "/workspace/binary", None) == "tool_error"
    assert refusal(files.write, "/workspace/a.txt", "\ud800") == "invalid_parameters"
    assert refusal(files.read, "/workspace/none.txt", None) == "tool_error"
    assert refusal(files.read, "/workspace/notes.txt/x", None) == "tool_error"
    assert refusal(files.write, "/workspace/" + "x" * 300, "x") == "tool_error"
    assert names(files.listing("/workspace/")) == ["binary", "large.txt", "notes.txt", "sub"]


def test_an_edit_that_makes_a_file_too_large_is_refused_before_it_takes_memory(tree: Tree) -> None:
    (tree.work / "notes.txt").write_text("a" * 1_000_000)
    tracemalloc.start()
    try:
        code = refusal(tree.files.edit, "/workspace/notes.txt", "a", "b" * 300, replace_all=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code == "result_too_large"
    assert peak < 64 * 1024 * 1024
    assert (tree.work / "notes.txt").stat().st_size == 1_000_000


def test_an_edit_does_not_overwrite_a_file_changed_meanwhile(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    text_of = regular_files.text_of

    def changed_now(data: bytes, label: str) -> str:
        (tree.work / "notes.txt").write_text("somebody else's, and longer than before")
        return text_of(data, label)

    monkeypatch.setattr("mcp_hub.servers.builtin.files.text_of", changed_now)
    assert refusal(tree.files.edit, "/workspace/notes.txt", "two", "2", replace_all=False) == "tool_error"
    assert (tree.work / "notes.txt").read_text() == "somebody else's, and longer than before"
    assert names(tree.files.listing("/workspace/")) == ["notes.txt", "sub"]


def test_rewriting_a_file_keeps_its_permissions(tree: Tree) -> None:
    file = tree.work / "notes.txt"
    file.chmod(0o750)
    tree.files.write("/workspace/notes.txt", "x")
    assert file.stat().st_mode & 0o777 == 0o750


def test_a_private_file_is_never_readable_by_others_while_it_is_rewritten(tree: Tree) -> None:
    file, text = tree.work / "notes.txt", "x" * 8_000_000
    file.chmod(0o600)
    done = threading.Event()
    modes: set[int] = set()

    def watch() -> None:
        while not done.is_set():
            for temporary in tree.work.glob(".mcp-hub-*"):
                with suppress(FileNotFoundError):
                    modes.add(temporary.stat().st_mode & 0o777)

    watching = threading.Thread(target=watch)
    watching.start()
    before = os.umask(0o022)
    try:
        for _ in range(100):  # the watcher sees nearly every one
            tree.files.write("/workspace/notes.txt", text)
            if modes:
                break
    finally:
        os.umask(before)
        done.set()
        watching.join(PATIENCE)
    assert modes == {0o600}


def test_undecodable_and_control_character_names_are_handled_in_a_listing(tree: Tree) -> None:
    (tree.work / "a\n[FILE] forged\x1b[2J").write_text("")
    with open(os.fsencode(tree.work) + b"/\xff", "wb"):  # noqa: PTH123 - a name that Path cannot show
        pass
    listed = tree.files.listing("/workspace/")
    assert "\x1b" not in listed.content[0]["text"]
    assert "\n[FILE] forged" not in listed.content[0]["text"]
    assert listed.structured is not None
    assert listed.structured["left_out"] == 1


@pytest.mark.anyio
async def test_configured_roots_apply_through_the_hub(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree")
    roots = {"/workspace/": str(tree.work), "/userinput": {"path": str(tree.user)}, "/internal/": str(tree.internal)}
    async with hub(tmp_path, {"fs": {"builtin": "files", "roots": roots}}) as client:
        tools = ("read_text_file", "write_file", "edit_file", "delete_file", "list_directory")
        assert await client.tool_names() == [f"fs__{name}" for name in tools]
        listed = await client.call("fs__list_directory")
        assert [(entry["name"], entry["mode"]) for entry in listed["structuredContent"]["entries"]] == [
            ("/userinput/", "ro"),
            ("/workspace/", "rw"),
        ]
        assert await client.text("fs__read_text_file", {"path": "/workspace/notes.txt", "ranges": [1, 1]}) == "one\n"
        await client.text("fs__edit_file", {"path": "/workspace/notes.txt", "old_text": "one", "new_text": "1"})
        assert (tree.work / "notes.txt").read_text() == "1\ntwo\nthree\n"
        for name, arguments in (
            ("write_file", {"path": "/userinput/a", "content": "x"}),
            ("delete_file", {"path": "/internal/a"}),
            ("read_text_file", {"path": "/workspace/../outside/secret.txt"}),
        ):
            result = await client.call(f"fs__{name}", arguments)
            assert result["isError"]
            assert result["_meta"]["mcp-hub/error"]["code"] == "permission_denied"
