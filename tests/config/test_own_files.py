"""Servers that can write the hub's own files are recognised by what they were given."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub import codes
from mcp_hub.config.own_files import writers_of
from tests.config.written import read, servers, write


@pytest.mark.parametrize(
    "entry",
    [
        "{command: npx, args: [-y, '@modelcontextprotocol/server-filesystem', '${HERE}']}",
        "{command: npx, args: [server, '${ABOVE}']}",
        "{command: npx, args: [server, /]}",
        "{command: npx, args: [server, .], cwd: '${HERE}'}",
        "{command: npx, args: [server, ../inside], cwd: '${HERE}'}",
        "{command: npx, args: [server, '--root=${HERE}']}",
        "{command: npx, args: [server, '--allow', '/nowhere,${HERE}']}",
        "{command: docker, args: [run, -v, '${HERE}:/projects', mcp/filesystem]}",
        "{command: docker, args: [run, --mount, 'type=bind,src=${HERE},dst=/projects', mcp/filesystem]}",
        "{command: npx, args: [server, '${HERE}/servers.yaml']}",
        "{command: npx, args: [server, '${ABOVE}/link']}",
        "{command: npx, args: [server], env: {ALLOWED_DIRS: '/nowhere:${HERE}'}}",
        "{command: docker, args: [run, --mount, 'type=bind,src=${HERE},dst=/projects,readonly=false', mcp/filesystem]}",
        """{command: npx, args: [server, '{"roots": ["/nowhere", "${HERE}"], "mode": "ro"}']}""",
        """{command: npx, args: [server], env: {ALLOWED_DIRS: '["${HERE}"]'}}""",
        "{command: npx, args: [server], env: {ALLOWED_DIRS: '/nowhere, ${HERE}'}}",
        "{command: sh, args: [-c, 'exec npx server /nowhere ${HERE}']}",
        "{command: npx, args: [-y, '@wonderwhy-er/desktop-commander@1.0.0']}",
        "{command: uvx, args: [mcp-shell-server]}",
        "{builtin: files, roots: {/w/: {path: '${HERE}', mode: rw}}}",
        "{builtin: files, roots: {/workspace/: '${ABOVE}'}}",
        "{builtin: shell}",
        "{builtin: code}",
        "{builtin: text_files}",
    ],
)
def test_a_server_that_was_given_a_directory_with_the_file_can_write_it(tmp_path: Path, entry: str) -> None:
    here = tmp_path / "inside"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    environ = {"HERE": str(here), "ABOVE": str(tmp_path)}
    loaded = read(here, f"servers: {{a: {entry}, b: {{command: x}}}}", environ=environ)
    assert writers_of(loaded.config.files, loaded.config.servers) == ["a"]
    (line,) = [line for line in loaded.advice if line.code == codes.OWN_FILE_WRITABLE]  # type: ignore[attr-defined]
    assert line.startswith("servers.yaml:1: servers.a: ")


@pytest.mark.parametrize(
    "entry",
    [
        "{command: npx, args: [server, '${BESIDE}']}",
        "{command: npx, args: [server, '--version=~1.2.3', '~no-such-user/x', '${BESIDE}/circle']}",
        "{command: npx, args: [server, 'read / write', notes, x=y, 'https://x.example/mcp', -p, '3']}",
        "{command: uv, args: [--directory, '${HERE}', run, server.py]}",
        "{command: docker, args: [run, -v, '${HERE}:/projects:ro', mcp/filesystem]}",
        "{command: npx, args: [server], env: {HOME: '${HERE}', PATH: '${HERE}'}}",
        "{command: npx, args: [server, '${HERE}'], enabled: false}",
        "{builtin: files, roots: {/w/: {path: '${HERE}', mode: ro}}}",
        "{builtin: text_files, policy: deny}",
        "{url: 'http://127.0.0.1:9/mcp'}",
    ],
)
def test_other_servers_are_not_suspected(tmp_path: Path, entry: str) -> None:
    here, beside = tmp_path / "inside", tmp_path / "beside"
    for directory in (here, beside, here / "notes"):
        directory.mkdir()
    (beside / "circle").symlink_to("circle")
    environ = {"HERE": str(here), "BESIDE": str(beside)}
    loaded = read(here, f"servers: {{a: {entry}}}", environ=environ)
    assert writers_of(loaded.config.files, loaded.config.servers) == []


def test_a_linked_file_is_reached_by_its_link_and_by_its_target(tmp_path: Path) -> None:
    for name in ("real", "linked"):
        (tmp_path / name).mkdir()
    target = write(tmp_path / "real", "servers: {}")
    (tmp_path / "linked" / "servers.yaml").symlink_to(target)
    for name in ("real", "linked"):
        entries = servers(tmp_path, f"servers: {{a: {{command: npx, args: [server, '{tmp_path / name}']}}}}")
        assert writers_of([tmp_path / "linked" / "servers.yaml"], entries.values()) == ["a"]


def test_each_link_on_the_way_to_a_file_counts(tmp_path: Path) -> None:
    """A server that can replace one of them decides what the hub reads."""
    for name in ("first", "second", "real"):
        (tmp_path / name).mkdir()
    target = write(tmp_path / "real", "servers: {}")
    (tmp_path / "second" / "servers.yaml").symlink_to(target)
    (tmp_path / "second" / "directory").symlink_to("../real")
    for way, link, leads_to in (
        (tmp_path / "first" / "link", "link", "../second/servers.yaml"),
        (tmp_path / "first" / "directory" / "servers.yaml", "directory", "../second/directory"),
    ):
        (tmp_path / "first" / link).symlink_to(leads_to)
        for name in ("first", "second", "real"):
            entries = servers(tmp_path, f"servers: {{a: {{command: npx, args: [server, '{tmp_path / name}']}}}}")
            assert writers_of([way], entries.values()) == ["a"], (way, name)


def test_the_roots_that_a_server_was_told_count(tmp_path: Path) -> None:
    loaded = read(tmp_path / "a project", "servers: {a: {command: x}, b: {command: x}}")
    uri = (tmp_path / "a project").as_uri()
    assert writers_of(loaded.config.files, loaded.config.servers, {"b": {uri, "https://x.example"}}) == ["b"]
    assert writers_of(loaded.config.files, loaded.config.servers, {"b": {"file://["}}) == []
