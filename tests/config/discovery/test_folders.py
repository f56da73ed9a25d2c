"""The folders beside a configuration: everything in them is found, and a broken file costs only itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config import LoadedConfig
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from tests.cli.test_commands import run
from tests.config.discovery.written import function, write
from tests.fakes.client import StdioClient, fake, hub, write_config

pytestmark = pytest.mark.anyio
API = "http://127.0.0.1:9/x"


def folders(directory: Path) -> None:
    """One of each kind, names that are found twice, and a broken file of each kind."""
    tools = directory / "tools"
    write(tools, "native/a_search.yaml", f"{{name: search, description: First., api_url: '{API}'}}")
    write(tools, "native/b_search.yaml", f"{{name: search, description: Second., api_url: '{API}'}}")
    write(tools, "native/broken.yaml", "name: broken\napi_url: 5\n")
    function(tools, "builtin/one.py", "calculate")
    function(tools, "builtin/three.py", "search")
    function(tools, "builtin/two.py", "calculate")
    write(tools, "builtin/wrong.py", "import no_such_module_anywhere\n")
    write(tools, "mcp/one.json", {"mcpServers": {"up": fake(), "first": fake()}})
    write(tools, "mcp/bare.yaml", fake())
    write(tools, "mcp/broken.yaml", "servers: [")
    write(
        directory, "configs/tool_sets/data.yaml", "name: data_analysis_set\ndescription: d\ntools: [search, up/echo]\n"
    )
    write(directory, "configs/tool_sets/broken.yaml", "tools: 5\n")


def loaded(directory: Path, **root: Any) -> LoadedConfig:
    return read_config(write_config(directory, {"first": fake()}, **root), {"HOME": str(directory)})


def test_check_names_every_broken_file_and_the_others_are_loaded(tmp_path: Path) -> None:
    """Check 44."""
    folders(tmp_path)
    done = run("check", "--json", "--config", str(write_config(tmp_path, {"first": fake()})))
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert {fact["server"]: fact["state"] for fact in report["servers"]} == dict.fromkeys(
        ["first", "native", "local", "bare", "up"], "ready"
    )
    assert [line.partition(":")[0] for line in report["left_out"]] == [
        "tools/native/broken.yaml", "tools/mcp/broken.yaml", "configs/tool_sets/broken.yaml",
    ]  # fmt: skip
    assert "error: tools/native/broken.yaml:2: api_url" in done.stderr
    (local,) = (fact for fact in report["servers"] if fact["server"] == "local")
    assert "wrong.py:1" in local["incomplete"][0]


def test_duplicate_names_are_reported_with_the_one_that_is_kept(tmp_path: Path) -> None:
    """Check 44: the first is kept, the user is warned, and `--duplicates` has all of them."""
    folders(tmp_path)
    config = str(write_config(tmp_path, {"first": fake()}))
    done = run("tools", "--duplicates", "--json", "--config", config)
    found = json.loads(done.stdout)
    rows = {
        (row["what"], row["name"], row["dropped"].removeprefix(f"{tmp_path}/")): row["kept"]
        for row in found
        if "dropped" in row
    }
    builtin = tmp_path / "tools/builtin"
    assert rows == {
        ("tool", "search", "tools/native/b_search.yaml"): "tools/native/a_search.yaml",
        ("server", "first", "tools/mcp/one.json"): "servers.json",
        ("tool", "calculate", "tools/builtin/two.py"): str(builtin / "one.py"),
        ("tool", "search", "server local"): "server native",
    }
    references = {row["name"]: (row["what"], row["kept"], row["reference"]) for row in found if "dropped" not in row}
    assert references["echo"] == ("tool", "server first", "up__echo")
    assert not references.keys() & {"search", "calculate"}
    assert "tools/native/b_search.yaml" in done.stderr
    lines = run("tools", "--duplicates", "--config", config).stdout
    assert f"kept {builtin / 'one.py'}" in lines
    assert "tool echo: kept server first; the other one is up__echo\n" in lines


def test_tools_declare_their_source_and_a_tool_set_of_the_folder_selects_them(tmp_path: Path) -> None:
    """Check 45, of the folder."""
    folders(tmp_path)
    config = str(write_config(tmp_path, {"first": fake()}))
    done = run("tools", "--json", "--tool-set", "data_analysis_set", "--config", config)
    cards = {card["name"]: card for card in json.loads(done.stdout)}
    assert {name: card["source"] for name, card in cards.items()} == {"local__search": "native", "up__echo": "mcp"}
    assert cards["local__search"]["description"] == "First."
    assert cards["local__search"]["_meta"] == {"mcp-hub/source": "native"}
    assert "mcp-hub/source" not in cards["up__echo"].get("_meta", {})
    assert run("tools", "--tool-set", "nobody_has", "--config", config).returncode == 2


def test_a_member_without_a_tool_is_a_warning_in_serve_and_an_error_in_check(tmp_path: Path) -> None:
    write(tmp_path, "configs/tool_sets/s.yaml", "tools: [echo, no_such_tool]\n")
    config = str(write_config(tmp_path, {"first": fake()}))
    assert run("tools", "--tool-set", "s", "--config", config).returncode == 0
    done = run("check", "--config", config)
    assert done.returncode == 1
    assert "tool_sets.s" in done.stdout


def test_tool_sets_of_the_file_override_the_folders_and_profiles_may_use_both(tmp_path: Path) -> None:
    write(tmp_path, "configs/tool_sets/inline.yaml", "tools: [other]\n")
    write(tmp_path, "configs/tool_sets/more.yaml", "{name: more, tools: [x]}\n")
    outcome = loaded(tmp_path, tool_sets={"inline": ["mine"]}, profiles={"p": {"tool_sets": ["more", "inline"]}})
    assert {tool_set.name: tool_set.tools for tool_set in outcome.config.tool_sets} == {
        "inline": ("mine",),
        "more": ("x",),
    }
    assert [(duplicate.what, duplicate.name) for duplicate in outcome.duplicates] == [("tool set", "inline")]
    with pytest.raises(ConfigError):
        loaded(tmp_path, profiles={"p": {"tool_sets": ["nowhere"]}})


def test_python_files_next_to_the_folders_are_loaded_only_if_tools_dir_is_set(tmp_path: Path) -> None:
    """A directory `tools` of a project is likely to hold scripts; nobody asked for them to be imported."""
    function(tmp_path, "tools/plain.py", "plain")
    assert [server.id for server in loaded(tmp_path).config.servers] == ["first"]
    function(tmp_path, "tools/builtin/one.py", "one")
    assert loaded(tmp_path).config.servers[-1].tools_dir == tmp_path / "tools/builtin"
    assert loaded(tmp_path, tools_dir="tools").config.servers[-1].tools_dir == tmp_path / "tools"


@pytest.mark.parametrize(
    "content",
    [
        {"servers": {"a": fake()}, "blacklist": ["a/echo"]},
        {},
        "",
    ],
)
def test_a_file_of_servers_is_loaded_as_a_whole_or_not_at_all(tmp_path: Path, content: Any) -> None:
    write(tmp_path, "tools/mcp/a.yaml", content)
    outcome = loaded(tmp_path)
    assert [server.id for server in outcome.config.servers] == ["first"]
    assert outcome.left_out[0].startswith("tools/mcp/a.yaml")


def test_a_bad_entry_in_a_file_of_servers_leaves_the_others(tmp_path: Path) -> None:
    write(tmp_path, "tools/mcp/a.yaml", {"servers": {"a": {"command": 5}, "b": fake(), "c": {}}})
    outcome = loaded(tmp_path)
    assert [(server.id, server.enabled) for server in outcome.config.servers] == [
        ("first", True), ("a", False), ("b", True), ("c", False),
    ]  # fmt: skip
    assert sum("is switched off" in line for line in outcome.warnings) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"api_url": "http://h/{id}?x={y}"}, {"api_url": "http://{host}/x"}, {"api_url": "ftp://h/x"},
        {"api_url": "http://me:pass@h/"}, {"api_url": "http://h/../x"}, {"auth_method": "magic"},
        {"auth_method": "bearer"}, {"auth_method": "basic", "username": "me"}, {"auth_method": "none", "token": "x"},
        {"method": "FETCH"}, {"method": "GET", "parameters": {"a": {"where": "body"}}}, {"name": "a b"},
        {"parameters": {"a": {"type": "thing"}}}, {"parameters": {"a": {"where": "path"}}}, {"parameters": [5]},
        {"parameters": {"Authorization": {"where": "header"}}}, {"result": "data"}, {"headers": {"A": "b\nc"}},
        {"parameters": {"x-key": {"where": "header"}}, "api_key": "k", "api_key_header": "X-Key"}, {"timeout": "soon"},
    ],
)  # fmt: skip
def test_an_invalid_native_tool_is_reported_with_file_and_line(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write(tmp_path, "tools/native/a.json", {"name": "a", "api_url": API, **wrong})
    write(tmp_path, "tools/native/b.json", {"name": "b", "api_url": API})
    outcome = loaded(tmp_path)
    assert outcome.left_out
    assert all(line.startswith("tools/native/a.json:") for line in outcome.left_out)
    assert list(outcome.config.servers[1].tools) == ["b"]


def test_a_tool_whose_variable_is_unset_is_disabled_and_keeps_its_name(tmp_path: Path) -> None:
    write(tmp_path, "tools/native/a.yaml", {"name": "t", "api_url": API, "token": "${MCP_HUB_TEST_UNSET}"})
    write(tmp_path, "tools/native/b.yaml", {"name": "t", "api_url": "http://127.0.0.1:9/other"})
    outcome = loaded(tmp_path)
    assert outcome.left_out == ()
    assert [server.id for server in outcome.config.servers] == ["first"]
    assert [(duplicate.kept, duplicate.dropped) for duplicate in outcome.duplicates] == [
        ("tools/native/a.yaml", "tools/native/b.yaml")
    ]
    assert any("MCP_HUB_TEST_UNSET" in warning for warning in outcome.warnings)


async def test_added_changed_and_removed_files_take_effect_while_the_hub_runs(tmp_path: Path) -> None:
    async with hub(tmp_path, {"first": fake()}) as client:
        pid = await client.text("first__pid")
        first = write(tmp_path, "tools/native/one.yaml", f"api_url: {API}\n")
        await listed(client, {"local__one"})
        function(tmp_path, "tools/builtin/two.py", "two")
        await listed(client, {"local__one", "local__two"})
        write(tmp_path, "tools/mcp/three.json", fake("--tools", "1"))
        await listed(client, {"local__one", "local__two", "three__t0"})
        write(tmp_path, "tools/native/one.yaml", f"name: changed\napi_url: {API}\n")
        await listed(client, {"local__changed", "local__two", "three__t0"})
        first.unlink()
        write(tmp_path, "tools/native/broken.yaml", "api_url: [\n")
        await listed(client, {"local__two", "three__t0"})
        await client.until(lambda: b"tools/native/broken.yaml:" in client.stderr)
        assert await client.text("first__pid") == pid


async def listed(client: StdioClient, names: set[str]) -> None:
    """Wait until of the tools this is about exactly these are there."""
    while {name for name in await client.tool_names() if name.startswith(("local__", "three__t0"))} != names:
        await client.notified("notifications/tools/list_changed")
        client.notifications.clear()
