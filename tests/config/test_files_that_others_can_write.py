"""Whoever can write a file of the hub's, or put another one in its place, could execute anything as its user."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcp_hub.config import LoadedConfig
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import config_of, read_config
from mcp_hub.security.private_files import WritableByOthers, refuse_open_directory
from tests.fakes.client import HUB, PATIENCE, fake, hub, write_config
from tests.hub.reload.test_going_over_to_another_configuration import REFUSED, heard

pytestmark = pytest.mark.anyio

TOOL = "from mcp_hub import tool\n\n@tool\ndef {0}() -> str:\n    'Say it.'\n    return '{0}'\n"
ENTRY = {"servers": {"a": {"command": "true"}}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    (directory / "servers.json").write_text(json.dumps(ENTRY))
    return directory


def test_a_configuration_in_a_directory_that_others_can_write_is_refused(home: Path) -> None:
    config = home / "servers.json"
    assert read_config(config).warnings == ()
    home.chmod(0o777)
    with pytest.raises(ConfigError, match=rf"{home}: every user of this machine can write .* chmod o-w "):
        read_config(config)
    home.chmod(0o1777)  # as /tmp: nobody can replace what is another's
    assert read_config(config).config.servers
    home.chmod(0o775)
    assert "written by its group" in read_config(config).warnings[0]


def test_a_directory_on_a_read_only_file_system_is_accepted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a volume of a container is, whose mode says 0777."""
    home.chmod(0o777)
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda directory: read_only)
    assert read_config(home / "servers.json").config.servers


def test_directories_above_and_targets_of_links_are_checked_too(home: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="every user of this machine"):
        read_config(home / "servers.json")
    tmp_path.chmod(0o700)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    (open_to_all / "linked.json").write_text(json.dumps(ENTRY))
    open_to_all.chmod(0o777)
    (home / "link.json").symlink_to(open_to_all / "linked.json")
    with pytest.raises(ConfigError, match=str(open_to_all)):
        read_config(home / "link.json")
    (tmp_path / "folder").symlink_to(open_to_all)
    with pytest.raises(WritableByOthers, match="chmod o-w"):
        refuse_open_directory(tmp_path / "folder")


def test_a_directory_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(home, 12345, -1)
    else:  # who cannot give it away is somebody else
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="another user"):
        read_config(home / "servers.json")


FILES: dict[str, tuple[str, Callable[[LoadedConfig], bool]]] = {
    "tools/native/weather.json": (
        json.dumps({"name": "weather", "description": "d", "api_url": "https://api.example.com/x"}),
        lambda loaded: any(server.native is not None for server in loaded.config.servers),
    ),
    "tools/mcp/more.json": (
        json.dumps({"command": "true"}),
        lambda loaded: any(server.id == "more" for server in loaded.config.servers),
    ),
    "configs/tool_sets/some.json": (
        json.dumps({"tools": ["a/x"]}),
        lambda loaded: bool(loaded.config.tool_sets),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_discovered_file_that_others_can_write_is_left_out_alone(home: Path, name: str) -> None:
    text, counts = FILES[name]
    file = home / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    config = home / "servers.json"
    assert counts(read_config(config))
    for path, mode, back in ((file, 0o666, 0o644), (file.parent, 0o777, 0o755)):
        path.chmod(mode)
        loaded = read_config(config)
        assert not counts(loaded)
        assert "chmod" in loaded.left_out[0]
        assert [server.id for server in loaded.config.servers] == ["a"]
        path.chmod(back)
    assert counts(read_config(config))


def test_an_env_file_or_secret_file_that_others_can_write_disables_its_entry(home: Path) -> None:
    (home / "env").write_text("A=1\n")
    (home / "value").write_text("v")
    entries = {"env": {"command": "true", "env_file": str(home / "env")}}
    entries["value"] = {"command": "true", "args": [f"${{file:{home / 'value'}}}"]}  # type: ignore[dict-item]
    assert all(server.enabled for server in config_of({"servers": entries}).servers)
    for name in ("env", "value"):
        (home / name).chmod(0o666)
    for server in config_of({"servers": entries}).servers:
        assert not server.enabled
        assert "chmod 600" in (server.disabled_reason or "")


def test_a_skill_that_others_can_write_is_left_out(home: Path) -> None:
    skill = home / "skills" / "pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: Reads.\n---\n")
    config = write_config(home, {"a": fake()}, skills=["skills"])
    assert any(server.skills for server in read_config(config).config.servers)
    skill.chmod(0o777)
    loaded = read_config(config)
    assert not any(server.skills for server in loaded.config.servers)
    assert "chmod" in loaded.left_out[0]


async def test_a_file_of_a_skill_that_others_can_write_is_not_read(home: Path) -> None:
    skill = home / "skills" / "pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: Reads.\n---\n")
    (skill / "fill.py").write_text("mine")
    async with hub(home, {"a": fake()}, skills=["skills"]) as client:
        read = await client.request("resources/read", {"uri": "skill://pdf/fill.py"})
        assert read["contents"][0]["text"] == "mine"
        (skill / "fill.py").chmod(0o666)
        with pytest.raises(Exception, match="-32"):
            await client.request("resources/read", {"uri": "skill://pdf/fill.py"})


def tools(home: Path) -> Path:
    directory = home / "functions"
    (directory / "builtin").mkdir(parents=True)
    (directory / "helping").mkdir()
    (directory / "good.py").write_text(TOOL.format("good"))
    (directory / "bad.py").write_text(TOOL.format("bad"))
    (directory / "uses.py").write_text("import bad\n" + TOOL.format("uses"))
    (directory / "helping" / "__init__.py").write_text("")
    (directory / "helping" / "inner.py").write_text("")
    (directory / "helped.py").write_text("import helping.inner\n" + TOOL.format("helped"))
    (directory / "builtin" / "more.py").write_text(TOOL.format("more"))
    return directory


def listed(config: Path) -> tuple[list[str], str]:
    """The tools that the hub has, and what `check` says."""
    processes = [
        subprocess.run([*HUB, *arguments, "--config", str(config)], capture_output=True, timeout=PATIENCE)
        for arguments in (["tools", "--json"], ["check"])
    ]
    checked = processes[1].stdout + processes[1].stderr
    return sorted(tool["name"] for tool in json.loads(processes[0].stdout)), checked.decode()


def test_a_python_file_that_others_can_write_is_not_imported(home: Path) -> None:
    directory = tools(home)
    config = write_config(home, {}, tools_dir=str(directory))
    assert listed(config)[0] == [f"local__{name}" for name in ("bad", "good", "helped", "more", "uses")]
    (directory / "bad.py").chmod(0o666)
    (directory / "helping" / "inner.py").chmod(0o666)
    (directory / "builtin").chmod(0o777)
    names, output = listed(config)
    assert names == ["local__good"]
    assert "chmod 600" in output
    (directory / "builtin").chmod(0o755)
    (directory / "bad.py").chmod(0o644)
    (directory / "__pycache__").chmod(0o777)  # somebody could put a compiled file there
    assert "local__bad" not in listed(config)[0]


def test_a_directory_of_tools_that_others_can_write_is_not_used(home: Path) -> None:
    directory = tools(home)
    directory.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod o-w"):
        read_config(write_config(home, {}, tools_dir=str(directory)))
    config = write_config(home, {"mine": {"tools_dir": str(directory)}})
    (server,) = read_config(config).config.servers
    assert not server.enabled
    assert "chmod o-w" in (server.disabled_reason or "")
    directory.chmod(0o775)
    assert "written by its group" in read_config(config).warnings[0]


STEP = "import helper\n\ndef same(call, result): return helper.value\n"


async def test_a_module_of_post_processing_that_others_can_write_is_not_imported(home: Path) -> None:
    (home / "steps.py").write_text(STEP)
    (home / "helper.py").write_text("value = 'changed'\n")
    servers = {"a": fake(tools={"echo": {"postprocess": "steps:same"}})}
    async with hub(home, servers) as client:
        assert await client.text("a__echo", {"text": "x"}) == "changed"
    for name in ("helper.py", "steps.py"):
        (home / name).chmod(0o666)
        async with hub(home, servers) as client:
            withheld = await client.call("a__echo", {"text": "x"})
        assert withheld["isError"]
        assert "chmod 600" in withheld["content"][0]["text"]


async def test_a_file_that_becomes_writable_by_others_is_refused_at_its_next_load(
    home: Path,
) -> None:
    async with hub(home, {"a": fake()}) as client:
        assert "a__echo" in await client.tool_names()
        config = write_config(home, {"a": fake(), "b": fake()})
        config.chmod(0o666)
        config.write_text(config.read_text() + "\n")
        await heard(client, REFUSED)
        assert not any(name.startswith("b__") for name in await client.tool_names())
        assert await client.text("a__echo", {"text": "x"}) == "x"
