"""`builtin: text_files`: the policy through the hub, the details on the tools themselves."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.security.file_access import RAW_TEXT_VARIABLE, strictest_policy
from mcp_hub.servers.builtin import Settings, regular_files
from mcp_hub.servers.builtin.text_files import tools
from mcp_hub.servers.local.tool_results import ToolResult
from tests.fakes.client import HUB, StdioClient, fake, spawned, write_config

NAMES = ("view_text_file", "write_text_file", "insert_text_file")
SENTENCE = "Blocked by policy: raw OS file access is disabled. Use FileSystem service tools instead."


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., ToolResult]]:
    """The tools as they are without any setting."""
    monkeypatch.delenv(RAW_TEXT_VARIABLE, raising=False)
    return {function.__name__: function for function in tools(Settings())}


def text(result: ToolResult) -> str:
    return str(result.content[0]["text"])


def code(result: ToolResult) -> str:
    assert result.is_error
    assert result.meta is not None
    return str(result.meta["mcp-hub/error"]["code"])


@pytest.mark.anyio
async def test_deny_blocks_warn_logs_and_allow_is_silent(tmp_path: Path) -> None:
    """Check 42: each says in its metadata that it is dangerous, and without an entry the tools are not there."""
    servers: dict[str, Any] = {mode: {"builtin": "text_files", "policy": mode} for mode in ("deny", "warn", "allow")}
    config = write_config(tmp_path, {**servers, "other": fake()})
    async with spawned([*HUB, "serve", "--config", str(config)], env={RAW_TEXT_VARIABLE: "allow"}) as client:
        await client.initialize()
        listed = [name for name in await client.tool_names() if name.split("__")[1] in NAMES]
        assert listed == [f"{mode}__{name}" for mode in servers for name in NAMES]
        for mode in servers:
            file = tmp_path / f"{mode}\nmcp-hub warning: forged.txt"
            await holds(client, mode, file)
        await client.until(lambda: client.stderr.count(b"warning: warn: ") == len(NAMES))
        assert b"warning: allow: " not in client.stderr
        assert b"warning: deny: " not in client.stderr
        assert b"\nmcp-hub warning: forged" not in client.stderr
    config = write_config(tmp_path, {"other": fake(), "off": {"builtin": "text_files", "enabled": False}})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        assert not [name for name in await client.tool_names() if name.split("__")[1] in NAMES]


async def holds(client: StdioClient, mode: str, file: Path) -> None:
    """One policy, with all three tools."""
    arguments: dict[str, dict[str, Any]] = {
        "write_text_file": {"content": "one\n"},
        "view_text_file": {},
        "insert_text_file": {"content": "two", "line_number": 2},
    }
    for name, extra_arguments in arguments.items():
        result = await client.call(f"{mode}__{name}", {"file_path": str(file), **extra_arguments})
        meta = {key: value for key, value in result["_meta"].items() if key != "mcp-hub/error"}
        assert meta == {
            "dangerous_io": True,
            "policy": mode,
            "tool": name,
            "path": str(file),
            "blocked": mode == "deny",
            "reason": "bypass_filesystem",
        }
        assert result.get("isError", False) == (mode == "deny")
        if mode == "deny":
            assert result["content"] == [{"type": "text", "text": SENTENCE}]
            assert result["_meta"]["mcp-hub/error"]["code"] == "permission_denied"
    assert file.exists() == (mode != "deny")
    assert mode == "deny" or file.read_text() == "one\ntwo\n"


@pytest.mark.anyio
async def test_the_environment_of_the_hub_makes_an_entry_stricter_and_never_less_strict(tmp_path: Path) -> None:
    entries = {
        "plain": {"builtin": "text_files"},
        "allows": {"builtin": "text_files", "policy": "allow", "env": {RAW_TEXT_VARIABLE: "allow"}},
    }
    config = write_config(tmp_path, entries)
    async with spawned([*HUB, "serve", "--config", str(config)], env={RAW_TEXT_VARIABLE: "deny"}) as client:
        await client.initialize()
        for id in entries:
            result = await client.call(f"{id}__view_text_file", {"file_path": str(config)})
            assert result["_meta"]["policy"] == "deny"
            assert result["_meta"]["blocked"]


def test_the_raw_text_policy_is_read_at_every_call(
    tmp_path: Path, raw: dict[str, Callable[..., ToolResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    outcomes = []
    for setting in ("deny", "allow", "nonsense", " DENY "):
        monkeypatch.setenv(RAW_TEXT_VARIABLE, setting)
        result = raw["write_text_file"](str(file), setting)
        assert result.meta is not None
        outcomes.append((result.meta["policy"], result.is_error))
    assert outcomes == [("deny", True), ("allow", False), ("warn", False), ("deny", True)]
    assert file.read_text() == "nonsense"


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ((), "warn"),
        ((None, None), "warn"),
        (("allow", None), "allow"),
        (("allow", "typo"), "warn"),
        (("warn", "deny"), "deny"),
        (("allow", ""), "warn"),
        (("Allow", "allow "), "allow"),
    ],
)
def test_the_stricter_of_configured_and_environment_policy_applies(said: tuple[str | None, ...], policy: str) -> None:
    assert strictest_policy(said) == policy


def test_lines_are_numbered_and_ranges_are_inclusive(tmp_path: Path, raw: dict[str, Callable[..., ToolResult]]) -> None:
    view, file = raw["view_text_file"], tmp_path / "a.txt"
    file.write_text("a\nb\nc\nd")
    assert text(view(str(file))) == f"The content of {file}:\n```\n1: a\n2: b\n3: c\n4: d```"
    assert text(view(str(file), [2, 3])) == f"The content of {file} in [2, 3] lines:\n```\n2: b\n3: c\n```"
    assert "3: c\n4: d```" in text(view(str(file), [-2, -1]))
    assert "```\n1: a\n2: b\n3: c\n4: d```" in text(view(str(file), [-100, -1]))
    assert "4: d```" in text(view(str(file), [4, 999]))
    assert "3: c\n4: d```" in text(view(str(file), [3, -1]))


@pytest.mark.parametrize("name", ["view_text_file", "write_text_file"])
@pytest.mark.parametrize("ranges", [[3, 2], [-1, -3], [1], [1, 2, 3], [], [0, 1], [5, 9], [5, -1], [-9, -8], [4, -3]])
def test_invalid_ranges_change_nothing_and_are_reported(
    tmp_path: Path, raw: dict[str, Callable[..., ToolResult]], name: str, ranges: list[int]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a\nb\nc\nd\n")
    contents = ["x"] if name == "write_text_file" else []
    result = raw[name](str(file), *contents, ranges)
    assert code(result) == "invalid_parameters"
    assert text(result).startswith("InvalidArgumentError: ")
    assert file.read_text() == "a\nb\nc\nd\n"


@pytest.mark.parametrize(
    ("before", "content", "ranges", "after"),
    [
        ("a\nb\nc\n", "B", [2, 2], "a\nB\nc\n"),
        ("a\nb\nc\n", "B\n", [2, 2], "a\nB\nc\n"),
        ("a\nb\nc", "C", [3, 3], "a\nb\nC"),
        ("a\nb\nc\n", "C", [-1, -1], "a\nb\nC\n"),
        ("a\nb\nc\n", "", [1, 2], "c\n"),
        ("a\r\nb\r\nc\r\n", "B", [2, 2], "a\r\nB\r\nc\r\n"),
        ("a\nb\nc\n", "x", [2, 99], "a\nx\n"),
    ],
)
def test_replacing_lines_leaves_the_other_lines_unchanged(
    tmp_path: Path,
    raw: dict[str, Callable[..., ToolResult]],
    before: str,
    content: str,
    ranges: list[int],
    after: str,
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(before.encode())
    result = raw["write_text_file"](str(file), content, ranges)
    assert text(result).startswith(f"Write {file} successfully. The new content snippet:\n```\n1: ")
    assert file.read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("a\nb\n", 1, "NEW\na\nb\n"),
        ("a\nb\n", 2, "a\nNEW\nb\n"),
        ("a\nb\n", 3, "a\nb\nNEW\n"),
        ("a\nb", 3, "a\nb\nNEW"),
        ("a\r\nb\r\n", 2, "a\r\nNEW\r\nb\r\n"),
        ("", 1, "NEW\n"),
    ],
)
def test_lines_are_inserted_up_to_one_after_the_last(
    tmp_path: Path, raw: dict[str, Callable[..., ToolResult]], before: str, line: int, after: str
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(before.encode())
    result = raw["insert_text_file"](str(file), "NEW", line)
    assert f"Insert content into {file} at line {line} successfully." in text(result)
    assert f"{line}: NEW" in text(result)
    assert file.read_bytes() == after.encode()


def test_an_invalid_insert_changes_nothing(tmp_path: Path, raw: dict[str, Callable[..., ToolResult]]) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a\n")
    for line in (0, -1, 3):
        result = raw["insert_text_file"](str(file), "x", line)
        assert code(result) == "invalid_parameters"
        assert text(result).startswith("InvalidArgumentsError: ")
    assert file.read_text() == "a\n"
    missing = raw["insert_text_file"](str(tmp_path / "none"), "x", 1)
    assert code(missing) == "invalid_parameters"


def test_the_result_of_a_change_shows_five_lines_before_and_after(
    tmp_path: Path, raw: dict[str, Callable[..., ToolResult]]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("".join(f"{number}\n" for number in range(1, 101)))
    excerpt = text(raw["insert_text_file"](str(file), "new", 50))
    assert "between lines 45-56 is:\n```\n45: 45\n" in excerpt
    assert excerpt.endswith("56: 55\n```")
    excerpt = text(raw["write_text_file"](str(file), "x\ny", [50, 50]))
    assert "```\n45: 45\n" in excerpt
    assert excerpt.endswith("56: 54\n```")


def test_a_new_file_ignores_ranges_and_a_path_may_begin_at_home(
    tmp_path: Path, raw: dict[str, Callable[..., ToolResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    result = raw["write_text_file"]("~/new.txt", "x", [1, 2])
    file = tmp_path / "new.txt"
    ignored = "The ranges [1, 2] is ignored because the file does not exist."
    assert text(result) == f"Create and write {file} successfully. {ignored}"
    assert result.meta is not None
    assert result.meta["path"] == str(file)
    assert text(raw["write_text_file"](str(file), "y")) == f"Overwrite {file} successfully."
    assert file.read_text() == "y"


def test_links_and_permissions_are_kept_when_writing(tmp_path: Path, raw: dict[str, Callable[..., ToolResult]]) -> None:
    file, link = tmp_path / "run.sh", tmp_path / "link"
    file.write_text("a\n")
    file.chmod(0o750)
    link.symlink_to(file)
    raw["write_text_file"](str(link), "b\n")
    assert link.is_symlink()
    assert file.read_text() == "b\n"
    assert file.stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "run.sh"]


def test_a_file_that_is_not_text_is_refused_without_blocking_or_data_loss(
    tmp_path: Path, raw: dict[str, Callable[..., ToolResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large").write_text("x" * 100)
    monkeypatch.setattr(regular_files, "MAX_BYTES", 50)
    for name in NAMES:
        arguments: list[Any] = {"view_text_file": [[1, 1]], "write_text_file": ["x", [1, 1]]}.get(name, ["x", 1])
        codes = {
            entry: code(raw[name](str(tmp_path / entry), *arguments)) for entry in (".", "pipe", "binary", "large")
        }
        assert codes == {".": "tool_error", "pipe": "tool_error", "binary": "tool_error", "large": "result_too_large"}
        for path in ("a\0b", "\ud800"):
            assert code(raw[name](path, *arguments)) == "invalid_parameters"
    assert code(raw["write_text_file"](str(tmp_path / "new"), "x" * 51)) == "result_too_large"
    assert code(raw["write_text_file"](str(tmp_path / "no" / "such"), "x")) == "tool_error"
    assert text(raw["view_text_file"](str(tmp_path / "none"))).endswith("none does not exist.")
    assert (tmp_path / "binary").read_bytes() == b"\xff\xfe\x00"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["binary", "large", "pipe"]
