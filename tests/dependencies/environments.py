"""Empty environments with the wheel of the hub in them, made by uv of what the locks name. No index is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.client import PATIENCE

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".peers"
WHEELS = PEERS / "wheels"
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
    """Makes environments below a directory; they share the unpacked files of their packages."""

    def __init__(self, directory: Path) -> None:
        assert (WHEELS / ".stamp").is_file(), "the wheels are missing: run scripts/peers"
        self._directory = directory
        self.wheel = self._built()

    def _built(self) -> Path:
        """The wheel of this tree, by the build backend that is locked."""
        target = self._directory / "wheel"
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return next(target.glob("mcp_hub_gateway-*.whl"))

    def uv(self, *words: str | Path) -> None:
        """Run uv, without a configuration and without an index."""
        done = subprocess.run(
            [str(UV), *map(str, words), "--offline", "--no-config", "--cache-dir", str(self._directory / "cache")],
            capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def empty(self, name: str) -> Environment:
        """One with nothing in it, not even pip."""
        environment = Environment(self._directory / name)
        self.uv("venv", "--python", sys.executable, environment.directory)
        return environment

    def with_extras(self, extras: str = "") -> Environment:
        """One in which somebody has run `pip install 'mcp-hub-gateway[EXTRAS]'`."""
        environment = self.empty(extras or "base")
        wanted = f"mcp-hub-gateway[{extras}] @ {self.wheel.as_uri()}"
        # Only the base is measured with its bytecode; compiling all of each extra takes longer than its test.
        sources = ("--no-index", "--find-links", WHEELS, *([] if extras else ["--compile-bytecode"]))
        self.uv("pip", "install", "--python", environment.python, *sources, wanted)
        self.uv("pip", "check", "--python", environment.python)
        return environment

    def beside(self, peer: str) -> Environment:
        """One with everything that `.peers/PEER` has, and the base of the hub."""
        source = Environment(PEERS / peer)
        assert source.python.exists(), f"{source.directory} is missing: run scripts/peers"
        environment = self.empty(peer)
        # Hard links: the packages are the same files.
        shutil.copytree(source.site_packages, environment.site_packages, copy_function=os.link, dirs_exist_ok=True)
        # All that the hub needs has to be there already: the lock of the peer holds it.
        self.uv("pip", "install", "--python", environment.python, "--no-index", "--no-deps", self.wheel)
        self.uv("pip", "check", "--python", environment.python)
        return environment
