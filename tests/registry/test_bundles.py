"""MCP bundles: what is unpacked, and what is not."""

import hashlib
import io
import json
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


def _link() -> zipfile.ZipInfo:
    member = zipfile.ZipInfo("link")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


@pytest.mark.parametrize(
    "members",
    [
        [("../outside", "x")],
        [("/outside", "x")],
        [("a/../../outside", "x")],
        [("a\\..\\outside", "x")],
        [("C:/outside", "x")],
        [(_link(), "/etc/passwd")],
        [("a\x1bb", "x")],
        [("same", "x"), ("same", "y")],
    ],
    ids=["up", "absolute", "inner", "backslash", "drive", "link", "control", "twice"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
async def test_a_bundle_with_a_path_outside_of_it_is_refused(
    loopback: Loopback, tmp_path: Path, members: list[Any]
) -> None:
    package = published(loopback, packed(*members, server=SERVER, user_config=USER_CONFIG))
    with pytest.raises(RegistryError):
        await BundleStore(tmp_path / "bundles").get(package, tmp_path)
    assert [*tmp_path.rglob("*")] in ([], [tmp_path / "bundles"])


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
