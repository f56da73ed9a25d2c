"""What is released: an sdist and a wheel that anybody can build again, and that work in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mcp_hub.version import VERSION
from tests.dependencies.environments import PLAIN, ROOT, WHEELS, Environment, Maker
from tests.dependencies.index import indexing
from tests.dependencies.test_locks_and_floors import locked
from tests.fakes.client import PATIENCE, fake, spawned, write_config

pytestmark = pytest.mark.anyio

NAME = f"mcp_hub_gateway-{VERSION}"
ARTEFACTS = (f"{NAME}.tar.gz", f"{NAME}-py3-none-any.whl")
GIT_ENVIRON = {"GIT_AUTHOR_NAME": "somebody", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "somebody",
            "GIT_COMMITTER_EMAIL": "a@b.c", "GIT_CONFIG_GLOBAL": "/dev/null"}  # fmt: skip


def ran(*argv: str | Path, cwd: Path = ROOT, umask: int = -1, **env: str) -> str:
    done = subprocess.run(
        list(map(str, argv)), env={**os.environ, **env}, cwd=cwd, text=True, capture_output=True,
        timeout=PATIENCE * 5, check=False, umask=umask,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Build:
    """What was built in one clone: `output` has the hashes."""

    clone: Path
    output: str

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.clone / "dist").iterdir()}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Build, Build]]:
    """Two builds of one commit with the files of this tree, by two people on two machines as far as one can be two."""
    directory = tmp_path_factory.mktemp("builds")
    origin, results = directory / "origin", []
    origin.mkdir()
    ran("bash", "-euc", '. scripts/common.sh; copy_files "$1"', "build", origin)
    ran("git", "init", "-q", cwd=origin)
    ran("git", "add", "-A", cwd=origin)
    ran("git", "commit", "-q", "-m", "All", cwd=origin, **GIT_ENVIRON)
    people = (("one", 0o022, "UTC", "C.UTF-8"), ("a longer path/two", 0o077, "Asia/Shanghai", "C"))
    with indexing(list(WHEELS.glob("*.whl"))) as index:
        for where, umask, zone, language in people:
            clone = directory / where
            ran("git", "clone", "-q", origin, clone, umask=umask, **GIT_ENVIRON)
            env = {"TZ": zone, "LC_ALL": language, "PYTHON": sys.executable, **index.environ(directory)}
            # A file that git ignores, and one of another date, are nothing to a build.
            (clone / "mcp_hub" / "__pycache__").mkdir()
            (clone / "mcp_hub" / "__pycache__" / "old.pyc").touch()
            os.utime(clone / "README.md", (len(results), len(results)))
            results.append(Build(clone, ran("scripts/build", cwd=clone, umask=umask, **env)))
    yield results[0], results[1]
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def contents(builds: tuple[Build, Build]) -> dict[str, dict[str, bytes]]:
    """Artefact -> path in it -> bytes."""
    sdist, wheel = (builds[0].clone / "dist" / name for name in ARTEFACTS)
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        read = {member.name.removeprefix(f"{NAME}/"): archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    with zipfile.ZipFile(wheel) as packed:
        return {sdist.name: read, wheel.name: {name: packed.read(name) for name in packed.namelist()}}


def test_two_builds_of_one_commit_are_byte_identical(builds: tuple[Build, Build]) -> None:
    first, second = builds
    assert sorted(first.files) == sorted(ARTEFACTS)
    assert first.files == second.files
    assert first.output == second.output
    assert {line.split()[1] for line in first.output.splitlines()} == {*ARTEFACTS}


def test_a_build_reports_uncommitted_changes(builds: tuple[Build, Build], tmp_path: Path) -> None:
    clone = builds[1].clone
    (clone / "LICENSE").write_text("mine")
    done = subprocess.run(
        [clone / "scripts" / "build", tmp_path], env={**os.environ, "PYTHON": sys.executable}, text=True,
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "not committed" in done.stderr


@pytest.mark.parametrize("name", ARTEFACTS)
def test_an_artefact_contains_the_package_and_no_local_files(
    builds: tuple[Build, Build], contents: dict[str, dict[str, bytes]], name: str
) -> None:
    files = contents[name]
    tracked = ran("git", "ls-files", "mcp_hub", cwd=builds[0].clone).split()
    assert {path for path in files if path.startswith("mcp_hub/")} == {*tracked}
    assert {"mcp_hub/py.typed", "mcp_hub/diagnosis/codes.toml"} <= {*files}
    assert not [path for path in files if re.search(r"(^|/)(tests|__pycache__|bench)/", path)]
    machine = [str(build.clone.parent).encode() for build in builds] + [str(ROOT).encode()]
    assert not [path for path, text in files.items() if any(directory in text for directory in machine)]
    licences = [text for path, text in files.items() if path.endswith("LICENSE")]
    assert licences == [(ROOT / "LICENSE").read_bytes()]


def test_the_metadata_has_the_version_the_licence_and_every_extra(contents: dict[str, dict[str, bytes]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for name, path in zip(ARTEFACTS, ("PKG-INFO", f"{NAME}.dist-info/METADATA"), strict=True):
        metadata = message_from_bytes(contents[name][path])
        assert (metadata["Name"], metadata["Version"]) == ("mcp-hub-gateway", VERSION)
        assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
        assert {*metadata.get_all("Provides-Extra")} == {key.replace("_", "-") for key in extras}
        needed = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
        for extra, requirements in extras.items():
            named = {
                requirement.name.lower()
                for requirement in needed
                if f'extra == "{extra.replace("_", "-")}"' in str(requirement.marker)
            }
            assert named == expanded(requirements, extras)
        base = {requirement.name for requirement in needed if "extra ==" not in str(requirement.marker or "")}
        assert base == {Requirement(text).name.lower() for text in project["dependencies"]}


def expanded(requirements: list[str], extras: dict[str, list[str]]) -> set[str]:
    """The names of the packages of an extra, with those of the extras that it names."""
    names = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == "mcp-hub-gateway":
            names |= set().union(*(expanded(extras[extra], extras) for extra in requirement.extras))
        else:
            names.add(requirement.name.lower())
    return names


@pytest.fixture(scope="module", params=ARTEFACTS, ids=["sdist", "wheel"])
def environment(request: pytest.FixtureRequest, maker: Maker, builds: tuple[Build, Build]) -> Environment:
    """An empty environment into which the artefact and the files of its locks were installed."""
    target = maker.empty(f"from {request.param[-3:]}")
    offline = ("--no-index", "--find-links", WHEELS)
    locks = ("--constraints", ROOT / "requirements.lock", "--build-constraints", ROOT / "requirements-build.lock")
    artefact = builds[0].clone / "dist" / request.param
    maker.uv("pip", "install", "--python", target.python, *offline, *locks, artefact)
    maker.uv("pip", "check", "--python", target.python)
    return target


async def test_an_installed_artefact_prints_its_version_checks_serves_and_calls(
    environment: Environment, tmp_path: Path
) -> None:
    versions = {package: version for package, version, _ in locked("requirements.lock")}
    installed = {
        canonicalize_name(distribution.name): distribution.version
        for distribution in distributions(path=[str(environment.site_packages)])
    }
    assert installed.pop("mcp-hub-gateway") == VERSION
    assert installed.items() <= versions.items()
    config = write_config(tmp_path, {"up": fake()})
    for program in ("mcp-hub", "mcp-hub-gateway"):
        assert environment.run(program, "--version").stdout.strip() == f"mcp-hub {VERSION}"
    checked = environment.run("mcp-hub", "check", "--config", config)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    called = environment.run("mcp-hub", "call", "--config", config, "up__echo", "text=hello")
    assert (called.returncode, called.stdout.strip()) == (0, "hello"), called.stderr
    async with spawned([environment.hub, "serve", "--config", str(config)], env=PLAIN) as client:
        await client.initialize()
        assert await client.text("up__echo", {"text": "hello"}) == "hello"
