"""Empty environments with the wheel of the hub in them, made by uv of what the locks name. No index is asked."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.fakes.client import PATIENCE

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".peers"
WHEELS = PEERS / "wheels"
CACHE = "__pycache__"
UV = Path(sys.executable).with_name("uv")
PLAIN = {"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
"""What programs of such an environment are started with: nothing of this repository is on their path."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def hub(self) -> str:
        return str(self.directory / "bin" / "mcp-hub")

    @property
    def site_packages(self) -> Path:
        return next(self.directory.glob("lib/python*/site-packages"))

    def run(self, *argv: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A program of it to its end, away from the repository."""
        return subprocess.run(
            [str(self.directory / "bin" / argv[0]), *map(str, argv[1:])],
            env={**os.environ, **PLAIN, **(env or {})}, cwd=self.directory, text=True, capture_output=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    def installed(self, packages: Sequence[str]) -> list[str]:
        """Which of these packages can be imported there."""
        program = "import sys; from importlib.util import find_spec; print(*filter(find_spec, sys.argv[1:]))"
        return self.run("python", "-c", program, *packages).stdout.split()


class Maker:
    """Makes environments below a directory. Only the base unpacks wheels: the packages of the others are links."""

    def __init__(self, directory: Path) -> None:
        assert (WHEELS / ".stamp").is_file(), "the wheels are missing: run scripts/peers"
        self._directory = directory

    @cached_property
    def wheel(self) -> Path:
        """The wheel of this tree, by the build backend that is locked."""
        target = self._directory / "wheel"
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return next(target.glob("mcp_hub_gateway-*.whl"))

    def uv(self, *arguments: str | Path) -> str:
        """Runs uv, without a configuration and without an index; returns what it prints."""
        done = subprocess.run(
            [str(UV), *map(str, arguments), "--offline", "--no-config", "--cache-dir", str(self._directory / "cache")],
            capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stderr

    def empty(self, name: str) -> Environment:
        """One with nothing in it, not even pip."""
        environment = Environment(self._directory / name)
        self.uv("venv", "--python", sys.executable, environment.directory)
        return environment

    def base(self) -> Environment:
        """One in which somebody has run `pip install mcp-hub-gateway`."""
        environment = self.empty("base")
        self._install(environment, self.wheel, "--find-links", WHEELS, "--compile-bytecode")
        return environment

    def with_extras(self, extras: str) -> Environment:
        """One with what `pip install 'mcp-hub-gateway[EXTRAS]'` chooses of the wheels.

        The packages are links to those of this environment, which has them from the same lock, bytecode included.
        """
        environment = self.empty(extras)
        requirement = f"mcp-hub-gateway[{extras}] @ {self.wheel.as_uri()}"
        wheels = ("--no-index", "--find-links", WHEELS)
        output = self.uv("pip", "install", "--dry-run", "--python", environment.python, *wheels, requirement)
        chosen = dict(re.findall(r"^ \+ (\S+)==(\S+)$", output, re.MULTILINE))
        assert chosen, output
        site_packages = Environment(Path(sys.prefix)).site_packages
        installed = {
            canonicalize_name(distribution.name): distribution.version
            for distribution in distributions(path=[str(site_packages)])
        }
        assert chosen.items() <= installed.items(), f"{site_packages} has other packages than {chosen}"
        _link(Path(), site_packages, environment.site_packages, _owners(site_packages), {*chosen})
        self._install(environment, self.wheel, "--no-deps")
        return environment

    def _install(self, environment: Environment, wheel: Path, *options: str | Path) -> None:
        self.uv("pip", "install", "--python", environment.python, "--no-index", *options, wheel)
        self.uv("pip", "check", "--python", environment.python)

    def beside(self, peer: str) -> Environment:
        """One with everything that `.peers/PEER` has, and the base of the hub."""
        source = Environment(PEERS / peer)
        assert source.python.exists(), f"{source.directory} is missing: run scripts/peers"
        environment = self.empty(peer)
        for path in source.site_packages.iterdir():
            if path.name != CACHE and not (environment.site_packages / path.name).exists():
                _place(path, environment.site_packages)
        # All that the hub needs has to be there already: the lock of the peer holds it.
        self._install(environment, self.wheel, "--no-deps")
        return environment


@cache
def _owners(directory: Path) -> Mapping[str, set[str]]:
    """The packages in a directory that have files at each path in there."""
    owners: dict[str, set[str]] = defaultdict(set)
    for package in distributions(path=[str(directory)]):
        name = canonicalize_name(package.name)
        for file, *_ in csv.reader((package.read_text("RECORD") or "").splitlines()):
            while file:
                owners[file].add(name)
                file = file.rpartition("/")[0]
    return owners


def _place(path: Path, directory: Path) -> None:
    """Links a file or a directory; the metadata of a package gets a directory, as uv reads none that is a link."""
    if path.suffix == ".dist-info":
        shutil.copytree(path, directory / path.name, copy_function=os.link)
    else:
        (directory / path.name).symlink_to(path)


def _link(at: Path, source: Path, target: Path, owners: Mapping[str, set[str]], packages: set[str]) -> None:
    """Links what these packages have of the directory `at`; a directory of others too is made, and looked into."""
    for entry in (source / at).iterdir():
        path = at / entry.name
        owner_names = owners[path.as_posix()]
        if owner_names and owner_names <= packages:
            _place(entry, target / at)
        elif owner_names & packages and entry.name != CACHE:
            (target / path).mkdir(exist_ok=True)
            _link(path, source, target, owners, packages)
