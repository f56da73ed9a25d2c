"""What the hub and its tests are built on: exact versions with hashes, none of them below a version that was mended."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = (
    "requirements.lock",
    "requirements-test.lock",
    "requirements-build.lock",
    "requirements-fuzz.lock",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests/peers/python").glob("*.lock"))),
)

FLOORS = {
    "aiohttp": ("3.13.4", "CVE-2026-22815, CVE-2026-34516, CVE-2026-34525: unbounded headers, several Host headers"),
    "cryptography": ("46.0.5", "CVE-2026-26007: points of a small subgroup"),
    "fastmcp": ("3.2.0", "CVE-2026-32871: paths that leave the prefix of an API"),
    "h11": ("0.16.0", "CVE-2025-43859: chunks read leniently"),
    "httpx2": ("2.12.0", "GHSA-f2fp-rgf2-35cp: quadratic work on event streams"),
    "mcp": ("2.3.0", "the line the peers of the tests are on; CVE-2026-52870 and others are of 1.x"),
    "pdfminer-six": ("20251230", "CVE-2025-64512, CVE-2025-70559: a PDF that has pickles loaded"),
    "python-multipart": ("0.0.26", "CVE-2026-24486, CVE-2026-40347: names of files, endless preambles"),
    "starlette": ("1.0.1", "CVE-2026-48710: a Host header that changes the path"),
    "urllib3": ("2.7.0", "CVE-2026-21441, CVE-2026-44432: decompression without a bound"),
}
"""Package -> (the first version that may be used, why)."""
OTHER_LINES = {
    (f"tests/peers/python/{name}.lock", "mcp"): "1.28.1"
    for name in ("mcp1", "servers1", "agentscope1", "agentscope1_newest", "agentscope2", "agently40", "langchain")
}
"""A peer of an older line has the floor of that line."""
NPM_FLOORS = {
    "@modelcontextprotocol/sdk": ("1.26.0", "CVE-2026-25536: answers of other clients"),
    "@modelcontextprotocol/inspector": ("0.14.1", "CVE-2025-49596: a proxy that starts commands for anybody"),
}


def number(text: str) -> tuple[int, ...]:
    """A version as its numbers; whatever comes behind them makes no older one of it here."""
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", text)[0].split(".")))  # type: ignore[index]


def locked(lock: str) -> Iterator[tuple[str, str, int]]:
    """(package, version, number of hashes)."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            match = re.fullmatch(r"([a-z0-9-]+)==([\w.+!]+)(?: ;[^#]*?)?((?:\s+--hash=sha256:[0-9a-f]{64})*)\s*", line)
            assert match, f"{lock}: {line[:80]}"
            yield match[1], match[2], match[3].count("--hash=")


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_has_one_version_and_its_hashes(lock: str) -> None:
    packages = list(locked(lock))
    assert packages
    assert [package for package, _, hashes in packages if hashes == 0] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_no_locked_version_is_below_its_minimum_version(lock: str) -> None:
    below = {
        package: f"{pinned} < {floor}: {FLOORS[package][1]}"
        for package, pinned, _ in locked(lock)
        if package in FLOORS and number(pinned) < number(floor := OTHER_LINES.get((lock, package), FLOORS[package][0]))
    }
    assert below == {}


@pytest.mark.parametrize("package", FLOORS)
def test_no_installed_version_is_below_its_minimum_version(package: str) -> None:
    floor, why = FLOORS[package]
    try:
        installed_version = version(package)
    except PackageNotFoundError:
        pytest.fail(f"{package} is in no lock any more: take its floor away")
    assert number(installed_version) >= number(floor), why


def test_every_package_with_a_minimum_version_is_locked() -> None:
    assert set(FLOORS) <= {package for lock in LOCKS for package, _, _ in locked(lock)}


@pytest.mark.parametrize("name", ["node", "node_runtime", "client_programs", "apps"])
def test_npm_packages_of_the_tests_are_locked_with_hashes_from_the_registry(name: str) -> None:
    lock = json.loads((ROOT / "tests/peers" / name / "package-lock.json").read_text())
    packages = {path: entry for path, entry in lock["packages"].items() if path and not entry.get("link")}
    assert packages
    for path, entry in packages.items():
        assert entry["integrity"].startswith("sha512-"), path
        assert entry.get("resolved", "https://registry.npmjs.org/").startswith("https://registry.npmjs.org/"), path
        package = path.rpartition("node_modules/")[2]
        if package in NPM_FLOORS:
            floor, why = NPM_FLOORS[package]
            assert number(entry["version"]) >= number(floor), f"{path}: {why}"
    own = json.loads((ROOT / "tests/peers" / name / "package.json").read_text())
    assert all(re.fullmatch(r"(npm:@?[\w./-]+@)?\d+\.\d+\.\d+\S*", spec) for spec in own["dependencies"].values())


def test_the_lock_check_passes_and_detects_a_missing_hash(tmp_path: Path) -> None:
    files = [*LOCKS, "scripts/lock", "scripts/common.sh", "pyproject.toml", "requirements.constraints"]
    files += [lock.removesuffix(".lock") + ".in" for lock in LOCKS if lock.startswith("tests/")]
    for name in files:
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    lock = tmp_path / "requirements.lock"

    def check() -> int:
        return subprocess.run(["bash", "scripts/lock", "--check"], cwd=tmp_path, timeout=60).returncode

    fits = check()  # 1 where the dependencies were changed and the locks are renewed later
    text = lock.read_text()
    lock.write_text(re.sub(r"( \\\n    --hash=sha256:[0-9a-f]{64})+", "", text, count=1))
    assert check() == 1
    lock.write_text(text)
    assert check() == fits
    lock.write_text(text.replace("# inputs: ", "# inputs: 0", 1))
    assert check() == 1
