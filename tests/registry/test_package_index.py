"""The newest versions by the indexes of npm and PyPI, at the addresses that npx and uvx are set to."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.registry import RegistryError
from mcp_hub.registry.package_index import PackageIndex, is_final, is_newer, order_of
from tests.loops import anyio_backend  # noqa: F401
from tests.registry.loopback import Loopback, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with serving() as running:
        yield running


def packument(name: str, *versions: str, latest: str | None = None) -> bytes:
    tags = {"latest": latest or versions[-1]}
    return json.dumps({"name": name, "dist-tags": tags, "versions": {version: {} for version in versions}}).encode()


def simple(*names: str | dict[str, Any]) -> bytes:
    files = [{"filename": name, "yanked": False} if isinstance(name, str) else name for name in names]
    return json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()


async def test_the_latest_npm_version_is_that_of_the_latest_tag(loopback: Loopback, tmp_path: Path) -> None:
    loopback.paths["/@scope%2Fname"] = packument("@scope/name", "1.0.0", "2.0.0", "3.0.0-beta.1", latest="2.0.0")
    index = PackageIndex({"NPM_CONFIG_REGISTRY": loopback.base}, tmp_path)
    assert await index.newest("npm", "@scope/name") == "2.0.0"


async def test_the_npm_registry_is_read_from_npmrc(loopback: Loopback, tmp_path: Path) -> None:
    loopback.paths["/all/name"] = packument("name", "1.0.0")
    loopback.paths["/scoped/@mine%2Fname"] = packument("@mine/name", "2.0.0")
    (tmp_path / ".npmrc").write_text(
        f"; mine\nregistry={loopback.base}/all/\n@mine:registry = {loopback.base}/scoped\n"
    )
    index = PackageIndex({}, tmp_path)
    assert await index.newest("npm", "name") == "1.0.0"
    assert await index.newest("npm", "@mine/name") == "2.0.0"


async def test_the_newest_pypi_version_is_final_and_not_yanked(loopback: Loopback, tmp_path: Path) -> None:
    loopback.paths["/simple/my-server/"] = simple(
        "my_server-1.9.0-py3-none-any.whl",
        "my_server-1.10.0.tar.gz",
        "my-server-2.0.0rc1.tar.gz",
        {"filename": "my_server-1.11.0-py3-none-any.whl", "yanked": "broken"},
        "my_server-1.10.0.post1-cp311-cp311-manylinux_2_17_x86_64.whl",
        "something else",
    )
    index = PackageIndex({"UV_DEFAULT_INDEX": f"{loopback.base}/simple"}, tmp_path)
    assert await index.newest("pypi", "My_Server[extra]") == "1.10.0.post1"


async def test_the_package_index_is_read_from_uv_toml(loopback: Loopback, tmp_path: Path) -> None:
    loopback.paths["/mine/name/"] = simple("name-1.0.tar.gz")
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/uv.toml").write_text(f'[[index]]\nurl = "{loopback.base}/mine"\ndefault = true\n')
    index = PackageIndex({"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)
    assert await index.newest("pypi", "name") == "1.0"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("npm", b"{}"),
        ("npm", b'{"dist-tags": {"latest": "9.9.9"}, "versions": {"1.0.0": {}}}'),
        ("npm", b'{"dist-tags": {"latest": "1.0.0;id"}, "versions": {"1.0.0;id": {}}}'),
        ("npm", b"[]"),
        ("pypi", b"<html></html>"),
        ("pypi", b'{"files": []}'),
        ("pypi", b'{"files": [{"filename": "name-2.0b1.tar.gz"}]}'),
        ("pypi", b'{"files": [1, {"filename": 2}]}'),
    ],
)
async def test_an_invalid_response_of_a_package_index_is_refused(
    loopback: Loopback, tmp_path: Path, kind: str, body: bytes
) -> None:
    loopback.paths["/name"] = loopback.paths["/name/"] = body
    index = PackageIndex({"npm_config_registry": loopback.base, "UV_INDEX_URL": loopback.base}, tmp_path)
    with pytest.raises(RegistryError):
        await index.newest(kind, "name")


async def test_a_missing_package_is_reported_by_name(loopback: Loopback, tmp_path: Path) -> None:
    index = PackageIndex({"npm_config_registry": loopback.base, "UV_INDEX_URL": loopback.base}, tmp_path)
    for kind in ("npm", "pypi"):
        with pytest.raises(RegistryError, match="has no package 'name'"):
            await index.newest(kind, "name")
    with pytest.raises(RegistryError):
        await index.newest("oci", "name")


def test_versions_are_ordered_as_npm_and_pypi_order_them() -> None:
    for versions in (
        [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.10.0",
            "2.0",
        ],
        ["1.0a1", "1.0b1", "1.0rc1", "1.0", "1.0.post1", "1.0.1", "2025.4.25", "2026.8.31", "2026.10.19", "1!0.5"],
    ):
        assert sorted(reversed(versions), key=order_of) == versions
    assert not is_newer("1.0", "1.0.0")
    assert is_newer("v1.1", "1.0.9")
    assert [version for version in ("1.0", "1.0-beta", "1.0rc1", "1.0.post2", "1.0+build") if is_final(version)] == [
        "1.0",
        "1.0.post2",
        "1.0+build",
    ]
