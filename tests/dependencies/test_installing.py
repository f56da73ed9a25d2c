"""What is installed from the locks is what they name, whatever an index has got since."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.dependencies.environments import PEERS, ROOT, WHEELS, Environment, Maker
from tests.dependencies.index import Index, indexing, package, wheel
from tests.dependencies.test_locks_and_floors import locked
from tests.fakes.client import PATIENCE

INSTALL = '. scripts/common.sh; install_lock "$1" "$2"'
PINNED = ("app-1.0-py3-none-any.whl", "json_repair-1.0-py3-none-any.whl", "schema_helper-1.0-py3-none-any.whl")


@pytest.fixture
def target(maker: Maker) -> Iterator[Environment]:
    environment = maker.empty("target")
    yield environment
    shutil.rmtree(environment.directory)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Two releases of a package, of what it needs an extra of, and of what that extra needs."""
    wheels = []
    for version in ("1.0", "2.0"):
        wheels.append(wheel(tmp_path, "app", version, ["json_repair[schema]>=1.0"]))
        wheels.append(wheel(tmp_path, "json-repair", version, extras={"schema": "schema-helper>=1.0"}))
        wheels.append(wheel(tmp_path, "schema-helper", version))
    with indexing(wheels) as running:
        yield running


def lock_of(directory: Path, files: tuple[str, ...]) -> Path:
    """A lock, as scripts/lock writes it, of these wheels: extras are not named."""
    path = directory / "made.lock"
    lines = []
    for file in files:
        name, version = package(Path(file)), file.split("-")[1]
        digest = hashlib.sha256((directory / file).read_bytes()).hexdigest()
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}\n")
    path.write_text("".join(lines))
    return path


def ran(*argv: str | Path, env: dict[str, str | None], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    return subprocess.run(
        list(map(str, argv)), env=environ, cwd=cwd, text=True, capture_output=True,
        timeout=PATIENCE * 5, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("pip", "resolves"), [("pip_oldest", False), ("pip_newest", True)])
def test_locked_versions_are_installed_even_if_newer_releases_exist(
    index: Index, tmp_path: Path, target: Environment, pip: str, resolves: bool
) -> None:
    env: dict[str, str | None] = {**index.environ(tmp_path), "PIP_PYTHON": str(target.python)}
    python, lock = Environment(PEERS / pip).python, lock_of(tmp_path, PINNED)
    # With a resolution some pips look for the extra anew, and find a newer release that has no hash.
    resolved = ran(python, "-m", "pip", "install", "--dry-run", "--require-hashes", "-r", lock, env=env)
    assert (resolved.returncode == 0) is resolves, resolved.stderr
    index.requested_files.clear()
    done = ran("bash", "-euc", INSTALL, "setup", python, lock, env=env)
    assert done.returncode == 0, done.stderr
    assert sorted(index.requested_files) == sorted(PINNED)
    installed = {
        distribution.name: distribution.version for distribution in distributions(path=[str(target.site_packages)])
    }
    assert installed == {"app": "1.0", "json-repair": "1.0", "schema-helper": "1.0"}


def test_uv_installs_the_locked_versions_where_pip_is_configured_for_no_index(index: Index, tmp_path: Path) -> None:
    venv.create(tmp_path / "environment", with_pip=True)
    environment = Environment(tmp_path / "environment")
    lock = lock_of(tmp_path, PINNED)
    env = dict.fromkeys([name for name in os.environ if name.startswith(("PIP_", "UV_"))])
    env |= {"PIP_CONFIG_FILE": os.devnull, "UV_DEFAULT_INDEX": f"{index.url}/simple/", "UV_NO_CACHE": "1"}
    done = ran("bash", "-euc", INSTALL, "setup", environment.python, lock, env=env)
    assert done.returncode == 0, done.stderr
    assert set(index.requested_files) == set(PINNED)  # uv asks for the size of a file first
    assert "pip" not in done.stderr
    installed = {
        distribution.name: distribution.version for distribution in distributions(path=[str(environment.site_packages)])
    }
    assert {name: installed[name] for name in ("app", "json-repair", "schema-helper")} == {
        "app": "1.0", "json-repair": "1.0", "schema-helper": "1.0"
    }  # fmt: skip


@pytest.mark.parametrize("pip", ["pip_oldest", "pip_newest"])
def test_an_incomplete_lock_is_an_error_and_nothing_is_resolved(
    index: Index, tmp_path: Path, target: Environment, pip: str
) -> None:
    env: dict[str, str | None] = {**index.environ(tmp_path), "PIP_PYTHON": str(target.python)}
    lock = lock_of(tmp_path, PINNED[:1])
    done = ran("bash", "-euc", INSTALL, "setup", Environment(PEERS / pip).python, lock, env=env)
    assert done.returncode == 1
    assert "do not fit together" in done.stderr
    assert index.requested_files == [PINNED[0]]


def test_setup_requests_only_locked_packages_from_the_index(tmp_path: Path) -> None:
    """scripts/setup as a new user runs it, with an index that has a newer release of every package.

    The lock is cut down to what the base needs, as the rest of it takes a minute.
    """
    assert (WHEELS / ".stamp").is_file(), "the wheels are missing: run scripts/peers"
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("scripts", "mcp_hub"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements-test.lock", "requirements-build.lock"):
        shutil.copy(ROOT / name, copy)
    base = needed(Environment(Path(sys.prefix)).site_packages, ["mcp-hub-gateway"])
    sections = re.split(r"^(?=[a-z])", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    (copy / "requirements.lock").write_text(
        "".join(section for section in sections if section.partition("==")[0] in base)
    )
    pinned = list(WHEELS.glob("*.whl"))
    newer = [wheel(tmp_path, name, "9999.0") for name in sorted({package(path) for path in pinned})]
    with indexing([*pinned, *newer]) as running:
        done = ran("scripts/setup", env={**running.environ(tmp_path), "PYTHON": sys.executable}, cwd=copy)
        assert done.returncode == 0, done.stderr
        assert re.search(r"\d MB.*\n(?:.*\n)*.*done\. Next: \.venv/bin/mcp-hub setup", done.stderr)
        assert {package(Path(file)) for file in running.requested_files} >= {*base} - {"mcp-hub-gateway"}
        assert set(running.requested_files) <= {path.name for path in pinned}
        running.requested_files.clear()
        again = ran("scripts/setup", env={**running.environ(tmp_path)}, cwd=copy)
        assert (again.returncode, again.stderr, running.requested_files) == (0, "", [])
    environment = Environment(copy / ".venv")
    assert environment.run("mcp-hub", "--version").stdout.startswith("mcp-hub ")
    shutil.rmtree(copy)


def needed(path: Path, roots: list[str]) -> dict[str, list[Requirement]]:
    """All that is needed of an environment, with the extras that are asked for: {package: requirements}."""
    installed = {canonicalize_name(distribution.name): distribution for distribution in distributions(path=[str(path)])}
    requirements: dict[str, list[Requirement]] = {}
    visited: set[tuple[str, str]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        requirements.setdefault(name, []).append(requirement)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in visited and name in installed:
                visited.add((name, extra))
                waiting += requirements_of(installed[name], extra)
    return requirements


def requirements_of(distribution: Distribution, extra: str) -> Iterator[Requirement]:
    """What it requires, or an extra of it does, on this machine."""
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None:
            if not extra:
                yield requirement
        elif requirement.marker.evaluate({**default_environment(), "extra": extra}):
            yield requirement


def roots_of(source: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in source.read_text().splitlines())
    return [line for line in lines if line]


ENVIRONMENTS = {
    "requirements.lock": (Path(sys.prefix), ["mcp-hub-gateway[all]"]),
    "requirements-test.lock": (Path(sys.prefix), ["mcp-hub-gateway[test]"]),
    "requirements-build.lock": (Path(sys.prefix), ["hatchling", "editables"]),
    **{
        str(source.with_suffix(".lock").relative_to(ROOT)): (PEERS / source.stem, roots_of(source))
        for source in sorted((ROOT / "tests/peers/python").glob("*.in"))
    },
}
"""Lock -> the environment that was made from it, and what it was made for."""


@pytest.mark.parametrize("lock", ENVIRONMENTS)
def test_a_lock_is_complete_for_the_requested_extras(lock: str) -> None:
    directory, roots = ENVIRONMENTS[lock]
    site_packages = Environment(directory).site_packages
    by_package = needed(site_packages, roots)
    versions = {name: version for name, version, _ in locked(lock)}
    missing = {name: list(map(str, requirements)) for name, requirements in by_package.items() if name not in versions}
    missing.pop("mcp-hub-gateway", None)
    assert missing == {}
    installed = {
        canonicalize_name(distribution.name): distribution.version
        for distribution in distributions(path=[str(site_packages)])
    }
    for name, requirements in by_package.items():
        for requirement in requirements:
            assert requirement.specifier.contains(installed[name], prereleases=True), requirement
