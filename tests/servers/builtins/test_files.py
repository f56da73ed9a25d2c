"""`builtin: files`: what may be done below the roots, and that there is no way out of them."""

import os
import shutil
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcp_hub.servers.builtin import regular_files
from mcp_hub.servers.builtin.files import Files, Roots
from mcp_hub.servers.local.tool_results import ToolRefused
from tests.fakes.client import PATIENCE, hub
from tests.tiers import EXAMPLES

SECRET = "what is outside"


class Tree:
    """Three roots of the usual names in one directory, and beside them what nobody may reach."""

    def __init__(self, directory: Path) -> None:
        self.outside = directory / "outside"
        self.user, self.work, self.internal = (directory / name for name in ("user", "work", "internal"))
        for folder in (self.outside, self.user, self.work, self.internal):
            folder.mkdir(parents=True)
        (self.outside / "secret.txt").write_text(SECRET)
        (self.user / "given.txt").write_text("given\n")
        (self.work / "notes.txt").write_text("one\ntwo\nthree\n")
        (self.work / "sub").mkdir()
        (self.work / "sub" / "deep.txt").write_text("deep\n")
        roots = (
            ("/userinput/", self.user, "ro"),
            ("/workspace/", self.work, "rw"),
            ("/internal/", self.internal, "hidden"),
        )
        self.files = Files(Roots([(at, str(path), mode) for at, path, mode in roots]))

    def untouched(self) -> bool:
        """Whether everything outside is as it was."""
        return [path.name for path in self.outside.iterdir()] == ["secret.txt"] and (
            self.outside / "secret.txt"
        ).read_text() == SECRET


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def refusal(act: object, *arguments: object, **named: object) -> str:
    """The code of what is refused."""
    with pytest.raises(ToolRefused) as caught:
        act(*arguments, **named)  # type: ignore[operator]
    assert SECRET not in caught.value.message
    return caught.value.code


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


def test_symbolic_links_are_never_followed(tree: Tree) -> None:
    files = tree.files
    (tree.work / "out").symlink_to(tree.outside)
    (tree.work / "inside").symlink_to("sub")
    (tree.work / "file").symlink_to(tree.outside / "secret.txt")
    (tree.work / "dangling").symlink_to(tree.outside / "new.txt")
    codes = {
        refusal(act, path, *arguments, **options)
        for path in (
            "/workspace/out/secret.txt",
            "/workspace/inside/deep.txt",
            "/workspace/file",
            "/workspace/dangling",
        )
        for act, arguments, options in (
            (files.read, (None,), {}),
            (files.write, ("x",), {}),
            (files.edit, (SECRET, "x"), {"replace_all": False}),
        )
    }
    assert codes == {"permission_denied"}
    assert refusal(files.listing, "/workspace/out") == "permission_denied"
    assert refusal(files.delete, "/workspace/out/secret.txt") == "permission_denied"
    files.delete("/workspace/file")
    assert not os.path.lexists(tree.work / "file")
    assert tree.untouched()


def test_a_hard_link_to_an_outside_file_is_neither_read_nor_changed(tree: Tree) -> None:
    files, link = tree.files, tree.work / "hard.txt"
    link.hardlink_to(tree.outside / "secret.txt")
    assert refusal(files.read, "/workspace/hard.txt", None) == "permission_denied"
    assert refusal(files.edit, "/workspace/hard.txt", SECRET, "x", replace_all=False) == "permission_denied"
    files.write("/workspace/hard.txt", "mine")
    assert link.read_text() == "mine"
    assert tree.untouched()


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "directory"])
def test_pipes_and_devices_are_refused_without_blocking(tree: Tree, kind: str) -> None:
    files, path = tree.files, tree.work / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        files = Files(Roots([("/workspace/", "/dev", "rw")]))
        path = Path("/dev/null")
    else:
        import socket

        short = Path(os.path.relpath(path))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(short) if len(str(short)) < 100 else str(path))
    at = f"/workspace/{path.name}"
    assert refusal(files.read, at, None) == "tool_error"
    assert refusal(files.write, at, "x") == "tool_error"
    assert refusal(files.delete, at) == "tool_error"
    assert path.exists()


@pytest.mark.parametrize("becomes", ["a link", "a pipe"])
def test_a_file_replaced_after_its_check_is_detected(tree: Tree, monkeypatch: pytest.MonkeyPatch, becomes: str) -> None:
    stat_regular = regular_files.stat_regular

    def exchanged(name: str, directory: int | None = None) -> os.stat_result | None:
        status = stat_regular(name, directory)
        (tree.work / "notes.txt").unlink()
        if becomes == "a link":
            (tree.work / "notes.txt").symlink_to(tree.outside / "secret.txt")
        else:
            os.mkfifo(tree.work / "notes.txt")
        return status

    monkeypatch.setattr(regular_files, "stat_regular", exchanged)
    code = refusal(tree.files.read, "/workspace/notes.txt", None)
    assert code == ("permission_denied" if becomes == "a link" else "tool_error")


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


def laid(tree: Tree) -> None:
    """Links of every kind in the roots, where they are not there."""
    links = {
        tree.work / "out": str(tree.outside),
        tree.work / "up": "..",
        tree.work / "secret.txt": str(tree.outside / "secret.txt"),
        tree.work / "sub" / "back": "../out",
        tree.user / "out": str(tree.outside),
        tree.internal / "root": "/",
    }
    for link, target in links.items():
        if not os.path.lexists(link):
            link.symlink_to(target)


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("maze"))


PARTS = (
    st.sampled_from(["out/secret.txt", "up/outside/secret.txt", "sub/back/secret.txt", "../outside/secret.txt"])
    | st.sampled_from(["workspace", "userinput", "internal", "sub", "out", "up", "back", "outside", "secret.txt"])
    | st.sampled_from(["", ".", "..", "...", "~", "%2e%2e", "..%2f", "..\\", "．．", "..\n", ".. ", "..\0", "\ud800"])
    | st.sampled_from(["/", "//", "root", "proc", "self", "cwd", "$HOME", "-", "C:", "?", "*", "notes.txt"])
)
LEADS = st.sampled_from(["/", "", "//", "/workspace/", "/workspace/sub/", "/userinput/", "/internal/"])


@settings(max_examples=12 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS | st.text(max_size=4), max_size=5), lead=LEADS)
@example(parts=["..", "outside", "secret.txt"], lead="/workspace/")
@example(parts=["sub", "..", "..", "outside", "secret.txt"], lead="/internal/../workspace/")
@example(parts=["out", "secret.txt"], lead="/userinput/")
def test_no_path_escapes_the_roots(maze: Tree, parts: list[str], lead: str) -> None:
    laid(maze)
    path = lead + "/".join(parts)
    files = maze.files
    for act in (
        lambda: files.read(path, None),
        lambda: str(files.listing(path).structured),
        lambda: files.edit(path, SECRET, "escaped", replace_all=True),
        lambda: files.delete(path),
        lambda: files.write(path, "written"),
    ):
        try:
            answer = act()
        except ToolRefused as refused:
            answer = refused.message
        assert SECRET not in answer
    assert maze.untouched()
    for folder in (maze.work, maze.internal):  # what was written inside goes again
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink() and entry.name != "sub":
                shutil.rmtree(entry)


ROUNDS = 1500


@pytest.mark.parametrize("what", ["a directory", "a file"])
def test_swapping_a_directory_during_path_resolution_does_not_escape_the_root(tmp_path: Path, what: str) -> None:
    """Somebody with access to the root puts a link in the place of a directory, or of a file, and takes it back."""
    tree = Tree(tmp_path)
    swapped = tree.work / "here"
    real, link = tree.work / "real", tree.work / "link"
    if what == "a directory":
        real.mkdir()
        (real / "secret.txt").write_text("inside")
        link.symlink_to(tree.outside)
        path = "/workspace/here/secret.txt"
    else:
        real.write_text("inside")
        link.symlink_to(tree.outside / "secret.txt")
        path = "/workspace/here"
    stopped = threading.Event()

    def exchange() -> None:
        while not stopped.is_set():
            for entry in (link, real):
                try:
                    entry.rename(swapped)
                    swapped.rename(entry)
                except OSError:
                    pass

    thread = threading.Thread(target=exchange, daemon=True)
    thread.start()
    acts = (
        lambda: tree.files.read(path, None),
        lambda: str(tree.files.listing("/workspace/here").structured),
        lambda: tree.files.edit(path, SECRET, "escaped", replace_all=True),
        lambda: tree.files.write(path, "inside"),
        lambda: tree.files.delete(path) if what == "a directory" else "",
    )
    outcomes: set[str] = set()
    try:
        for number in range(ROUNDS):
            try:
                answer = acts[number % len(acts)]()
                outcomes.add("done")
            except ToolRefused as refused:
                answer = refused.message
                outcomes.add(refused.code)
            assert SECRET not in answer
            assert f"'size': {len(SECRET)}" not in answer
    finally:
        stopped.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert tree.untouched()
    assert "done" in outcomes
    assert len(outcomes) > 1, "nothing was ever exchanged while a path was walked"


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
