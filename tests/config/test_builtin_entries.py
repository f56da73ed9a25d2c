"""What entries with `builtin: text_files` and `builtin: files` say."""

from pathlib import Path

import pytest

from tests.config.written import only, read, switched_off


def test_each_root_of_the_file_server_has_the_default_mode_of_its_key(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("e")
    server = only(
        tmp_path,
        """
        servers:
          fs:
            builtin: files
            roots:
              /userinput/: a
              workspace: {path: b}
              /internal: c
              /other/place/: d
              /more/: {path: link, mode: rw}
        """.replace("workspace:", "/workspace:"),
    )
    assert [(root.at, root.path.name, root.mode) for root in server.roots] == [
        ("/userinput/", "a", "ro"),
        ("/workspace/", "b", "rw"),
        ("/internal/", "c", "hidden"),
        ("/other/place/", "d", "ro"),
        ("/more/", "e", "rw"),
    ]


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ("{builtin: files}", "needs 'roots'"),
        ("{builtin: files, roots: [/workspace/]}", "roots: "),
        ("{builtin: files, roots: {workspace: .}}", "roots.workspace: "),
        ("{builtin: files, roots: {/: .}}", "roots./: "),
        ("{builtin: files, roots: {/a/../b: .}}", "is not a valid root"),
        ("{builtin: files, roots: {/a: {path: ., mode: w}}}", "roots./a.mode: "),
        ("{builtin: files, roots: {/a: {mode: rw}}}", "roots./a: "),
        ("{builtin: files, roots: {/a: one, /a/: two}}", "roots./a/: "),
        ("{builtin: files, roots: {/a: ., /b: inner}}", "roots: "),
        ("{builtin: files, roots: {/a: inner, /b: link}}", "roots: "),
        ("{builtin: text_files, policy: sometimes}", "policy: "),
        ("{builtin: shell, policy: deny}", "policy: "),
        ("{builtin: code, roots: {/a: inner}}", "roots: "),
        ("{builtin: web, allow_over_network: true}", "allow_over_network: "),
    ],
)
def test_an_invalid_key_is_reported_with_its_place(tmp_path: Path, entry: str, where: str) -> None:
    for name in ("inner", "one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("inner")
    (line,) = switched_off(tmp_path, f"servers:\n  one: {entry}\n")
    assert where in line


def test_a_root_without_a_directory_disables_the_entry(tmp_path: Path) -> None:
    server = only(tmp_path, "servers:\n  one: {builtin: files, roots: {/workspace/: nowhere}}\n")
    assert not server.enabled
    assert server.disabled_reason is not None


def test_keys_of_a_built_in_server_in_any_other_entry_cause_only_a_warning(tmp_path: Path) -> None:
    loaded = read(
        tmp_path, "servers:\n  one: {command: x, roots: [{uri: file:///x}], policy: strict, headless: true}\n"
    )
    assert [server.enabled for server in loaded.config.servers] == [True]
    assert sum("has no effect" in warning for warning in loaded.warnings) == 3
