"""`builtin: files`: no name, link or exchange of files leads out of the roots."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcp_hub.servers.builtin import regular_files
from mcp_hub.servers.builtin.files import Files, Roots
from mcp_hub.servers.local.tool_results import ToolRefused
from tests.fakes.client import PATIENCE
from tests.servers.builtins.file_tree import SECRET, Tree, refusal
from tests.tiers import EXAMPLES


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
