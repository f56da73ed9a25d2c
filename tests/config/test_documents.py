"""Files of each format, as editors and people write them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from tests.config.written import only, plain, servers, write

YAML = "servers:\n  a: {command: x}\n"
JSON = '{"servers": {"a": {"command": "x"}}}'
TOML = "[servers.a]\ncommand = 'x'\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.yaml", YAML),
        ("s.YML", YAML),
        ("s.yaml", JSON),
        ("s.json", JSON),
        ("s.jsonc", "// c\n" + JSON),
        ("s.json5", "{servers: {a: {command: 'x'}}}"),
        ("s.toml", TOML),
        ("s.conf", "# c\n" + YAML),
        ("s.conf", "/* c */" + JSON),
        ("s", JSON),
        ("s", "# c\n" + TOML),
        ("s", "model = 1\n" + TOML),
        ("s", "- {name: a, command: x}"),
    ],
)
def test_each_format_is_read_by_its_suffix_or_its_content(tmp_path: Path, name: str, text: str) -> None:
    assert only(tmp_path, text, name).command == "x"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("name", "text"), [("s.yaml", YAML), ("s.json", JSON), ("s.toml", TOML)])
def test_a_byte_order_mark_is_skipped(tmp_path: Path, name: str, text: str, encoding: str) -> None:
    path = write(tmp_path, "", name)
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert [server.id for server in read_config(path, {}).config.servers] == ["a"]


def test_bytes_that_are_not_utf_8_are_an_error_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(b"servers:\n  a: {command: \xff}\n")
    with pytest.raises(ConfigError, match=r"^servers\.yaml:2: this is not UTF-8 text$"):
        read_config(path, {})


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than"):
        read_config(path, {})


def test_comments_and_commas_inside_of_strings_stay(tmp_path: Path) -> None:
    text = """\
    {
      "mcpServers": { /* block
         over lines */
        "a": {
          "command": "x", // line, "with": "texts"
          "args": ["http://x", "/* no */", "// no", ",]", ",}", "\\"//",],
          "env": {"URL": "https://x/?a=[1,]",},
        },
      },
    }
    """
    server = only(tmp_path, text, "s.json")
    assert server.args == ("http://x", "/* no */", "// no", ",]", ",}", '"//')
    assert plain(server.env) == {"URL": "https://x/?a=[1,]"}


def test_yaml_keys_are_read_as_strings(tmp_path: Path) -> None:
    entries = servers(tmp_path, "servers:\n  on: {command: x}\n  1.10: {command: x}\n  null: {command: x}\n")
    assert [*entries] == ["on", "1.10", "null"]


def test_yaml_anchors_and_merge_keys_are_expanded(tmp_path: Path) -> None:
    text = """\
    x-common: &common
      command: uvx
      env: {A: 1.10}
    servers:
      a:
        <<: *common
        args: [a]
      b:
        <<: [*common, {args: [c]}]
        env: {B: yes}
    """
    entries = servers(tmp_path, text)
    assert (entries["a"].command, entries["a"].args, plain(entries["a"].env)) == ("uvx", ("a",), {"A": "1.10"})
    assert (entries["b"].command, entries["b"].args, plain(entries["b"].env)) == ("uvx", ("c",), {"B": "yes"})


def test_only_the_parser_of_the_format_is_imported(tmp_path: Path) -> None:
    path = write(tmp_path, "// comment\n" + JSON[:-1] + ",}", "s.json")
    code = (
        "import sys\n"
        "from mcp_hub.hub.composition import read_config\n"
        f"read_config({str(path)!r})\n"
        "print(sorted({'yaml', 'json5', 'tomllib', 'platformdirs'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_file_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, YAML)
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=r"every user of this machine can write .* chmod 600"):
        read_config(path, {})


def test_a_file_that_its_group_can_write_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, YAML)
    path.chmod(0o660)
    (warning,) = read_config(path, {}).warnings
    assert warning.startswith("servers.yaml: the file can be written by its group (mode 0660)")


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, YAML)
    owner = path.stat().st_uid
    if owner == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        read_config(path, {})


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "servers.yaml")
    with pytest.raises(ConfigError, match="is not a file"):
        read_config(tmp_path / "servers.yaml", {})
