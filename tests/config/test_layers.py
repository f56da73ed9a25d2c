"""Several files of one configuration: a later one wins, and what it replaces is told with both places."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from mcp_hub.config import LoadedConfig
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from mcp_hub.policy.access import BLACKLIST
from mcp_hub.policy.trace import CALL_LOG
from tests.config.written import plain, write


def merged(directory: Path, **files: str) -> LoadedConfig:
    """Reads the files in order; `a_json` is the file `a.json`, `sub_b_yaml` is `sub/b.yaml`."""
    paths = []
    for name, text in files.items():
        *folders, stem, suffix = name.split("_")
        paths.append(write(directory, dedent(text), "/".join([*folders, f"{stem}.{suffix}"])))
    return read_config(paths[0], {"A": "1"}, directory / "home", paths[1:])


def refused(directory: Path, **files: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        merged(directory, **files)
    return str(caught.value).split("\n")


def test_files_of_different_dialects_are_merged_into_one_configuration(tmp_path: Path) -> None:
    loaded = merged(
        tmp_path,
        a_json='{"mcpServers": {"a": {"command": "a", "env": {"K": "${A}"}}}}',
        b_yaml="servers:\n  b: {command: b}\nlisten: {port: 9000}\n",
        gemini_json='{"mcpServers": {"c": {"httpUrl": "https://c.example", "timeout": 5000, "headers": {"A": "$A"}}}}',
    )
    a, b, c = loaded.config.servers
    assert (a.command, plain(a.env), b.command) == ("a", {"K": "1"}, "b")
    assert (c.deadlines.call, plain(c.headers)) == (5, {"A": "1"})
    assert loaded.config.listen.port == 9000
    assert loaded.config.path == tmp_path / "a.json"
    assert loaded.config.files == (tmp_path / "a.json", tmp_path / "b.yaml", tmp_path / "gemini.json")
    assert loaded.warnings == ()


def test_the_entry_of_a_later_file_replaces_that_of_an_earlier_one(tmp_path: Path) -> None:
    loaded = merged(
        tmp_path,
        a_json='{"mcpServers": {\n"same": {"command": "x"},\n"other": {"command": "old", "lazy": true}}}',
        b_yaml="servers:\n  same: {command: x}\n  other:\n    command: new\n",
    )
    same, other = loaded.config.servers
    assert (same.command, other.command, other.lazy) == ("x", "new", False)
    assert loaded.warnings == ("b.yaml:3: servers.other: replaces a.json:3: mcpServers.other",)


def test_an_entry_that_is_replaced_is_not_read(tmp_path: Path) -> None:
    loaded = merged(tmp_path, a_yaml="servers:\n  x: {command: [1, {}]}\n", b_yaml="servers:\n  x: {command: fine}\n")
    assert loaded.config.servers[0].command == "fine"


def test_a_root_key_of_a_later_file_replaces_that_of_an_earlier_one(tmp_path: Path) -> None:
    loaded = merged(
        tmp_path,
        a_yaml="servers: {}\nlist_wait: 5s\nlisten:\n  port: 9000\n  max_body: 1MiB\nweb: {max_bytes: 1MiB}\n",
        b_yaml="list_wait: 5s\nlisten: {port: 9001}\nscrape: {max_bytes: 2MiB}\n",
    )
    assert loaded.config.list_wait == 5
    assert (loaded.config.listen.port, loaded.config.listen.max_body) == (9001, 4 * 1024**2)
    assert loaded.config.web.max_bytes == 2 * 1024**2
    assert loaded.warnings == (
        "b.yaml:2: listen: replaces a.yaml:3: listen",
        "b.yaml:3: scrape: replaces a.yaml:6: web",
    )


def test_named_sections_of_several_files_are_merged_by_name(tmp_path: Path) -> None:
    loaded = merged(
        tmp_path,
        a_yaml="servers: {}\ntool_sets:\n  one: [x/a]\n  two: [x/b]\ngroups:\n  g: {tools: [x/a]}\n",
        b_yaml=(
            "tool_sets:\n  - {name: two, tools: [x/c]}\n  - {name: three, tools: [x/d]}\nprofiles:\n"
            "  p: {tool_sets: [one, three]}\n"
        ),
    )
    assert {tool_set.name: tool_set.tools for tool_set in loaded.config.tool_sets} == {
        "one": ("x/a",), "two": ("x/c",), "three": ("x/d",)
    }  # fmt: skip
    assert [group.name for group in loaded.config.groups] == ["g"]
    assert loaded.config.profiles[0].tool_sets == ("one", "three")
    assert loaded.warnings == ("b.yaml:2: tool_sets[0]: replaces a.yaml:4: tool_sets.two",)


def test_a_tool_refused_by_one_file_cannot_be_allowed_by_another(tmp_path: Path) -> None:
    loaded = merged(
        tmp_path,
        a_yaml="servers: {x: {command: x}}\nblacklist: [[x, a]]\n",
        b_yaml="servers: {y: {command: y}}\ntool_blacklist: [[y, b]]\n",
        c_yaml="tool_blacklist: [[x, c], [z, d]]\n",
    )
    pairs = "blacklist: [[x, a], [y, b], [x, c], [z, d]]"
    single = merged(tmp_path, d_yaml=f"servers: {{x: {{command: x}}, y: {{command: y}}}}\n{pairs}\n")
    assert BLACKLIST.of(loaded.config) == BLACKLIST.of(single.config) != ()
    (line,) = loaded.warnings
    assert line.startswith("c.yaml:1: ")


def test_defaults_of_all_files_apply_to_every_entry(tmp_path: Path) -> None:
    loaded = merged(
        tmp_path,
        a_yaml="servers:\n  a: {command: a}\ndefaults: {timeout: 5s, lazy: true}\n",
        b_yaml="servers:\n  b: {command: b, lazy: false}\ndefaults:\n  timeout: 6s\n",
    )
    assert [(server.deadlines.call, server.lazy) for server in loaded.config.servers] == [(6, True), (6, False)]
    assert loaded.warnings == ("b.yaml:4: defaults.timeout: replaces a.yaml:3: defaults.timeout",)
    assert loaded.config.defaults["deadlines"] == {"call": 6}


def test_relative_paths_are_resolved_against_their_own_file(tmp_path: Path) -> None:
    for folder in ("sub/tools", "secrets", "sub/secrets"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "secrets" / "k").write_text("first")
    (tmp_path / "sub" / "secrets" / "k").write_text("second")
    loaded = merged(
        tmp_path,
        a_yaml="servers:\n  a: {command: a, cwd: x, env: {K: '${file:secrets/k}'}}\ncache_dir: cache\n",
        sub_b_yaml=(
            "servers:\n  b: {command: b, cwd: x, env: {K: '${file:secrets/k}'}}\ntools_dir: tools\n"
            "state_file: state.json\ncall_log: {file: calls.jsonl}\n"
        ),
    )
    config = loaded.config
    a, b, local = config.servers
    assert (a.cwd, plain(a.env)) == (tmp_path / "x", {"K": "first"})
    assert (b.cwd, plain(b.env)) == (tmp_path / "sub" / "x", {"K": "second"})
    assert (config.cache_dir, config.state_file) == (tmp_path / "cache", tmp_path / "sub" / "state.json")
    assert local.tools_dir == tmp_path / "sub" / "tools"
    assert CALL_LOG.of(config).file == tmp_path / "sub" / "calls.jsonl"
    assert {tmp_path / "secrets" / "k", tmp_path / "sub" / "secrets" / "k"} <= loaded.read


def test_errors_of_all_files_are_reported_at_once_with_their_files(tmp_path: Path) -> None:
    lines = refused(
        tmp_path,
        a_yaml="servers:\n  a: {command: [1, {}]}\ntool_sets:\n  s: 7\n",
        b_yaml="servers:\n  b: {url: 7}\nlisten:\n  port: many\ntool_sets:\n  t: 8\n",
        sub_b_yaml="servers:\n  c: {lazy: perhaps, command: x}\ndefaults: {timeout: never}\n",
    )
    sub_file = tmp_path / "sub" / "b.yaml"
    assert sorted(line.split(": ")[:2] for line in lines) == sorted([
        ["a.yaml:2", "servers.a"],
        ["a.yaml:4", "tool_sets.s"],
        [f"{tmp_path / 'b.yaml'}:2", "servers.b"],
        [f"{tmp_path / 'b.yaml'}:4", "listen.port"],
        [f"{tmp_path / 'b.yaml'}:6", "tool_sets.t"],
        [f"{sub_file}:2", "servers.c"],
        [f"{sub_file}:3", "defaults.timeout"],
    ])  # fmt: skip


def test_one_of_several_files_is_enough_to_define_servers(tmp_path: Path) -> None:
    loaded = merged(tmp_path, a_yaml="listen: {port: 9000}\n", b_yaml="servers:\n  b: {command: b}\n")
    assert [server.id for server in loaded.config.servers] == ["b"]
    assert "no servers in this file" in refused(tmp_path, a_yaml="servers: {}\n", b_yaml="sevrers: {}\n")[0]
    assert "no servers in this file" in refused(tmp_path, a_yaml="listen: {port: 9000}\n")[0]


def test_a_file_given_twice_counts_once_and_too_many_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "servers:\n  a: {command: a}\n")
    assert read_config(path, {}, tmp_path, [path]).config.files == (path,)
    with pytest.raises(ConfigError, match="at most 16 files"):
        read_config(path, {}, tmp_path, [tmp_path / f"{number}.yaml" for number in range(16)])


def test_a_hub_is_recognised_by_each_of_its_files(tmp_path: Path) -> None:
    entry = "{{command: mcp-hub, args: [serve, --config, {}], cwd: {}}}"
    for named, left_out in (("b.yaml", True), ("a.yaml, --config, c.yaml", True), ("c.yaml", False)):
        (tmp_path / "c.yaml").write_text("servers: {}\n")
        text = f"servers:\n  hub: {entry.format(named, tmp_path)}\n"
        loaded = merged(tmp_path, a_yaml=text, b_yaml="servers: {}\n")
        assert loaded.config.servers[0].enabled is not left_out, named
