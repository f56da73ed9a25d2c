"""Ask the index which extras install from wheels alone, for systems and Pythons that are not at hand.

    scripts/wheels                               every extra, system and Python; prints the table of docs/install.md
    scripts/wheels web 3.14 x86_64-apple-darwin  only these

A cell says for which Pythons the versions of requirements.lock have wheels, and where only other versions have.
What has none is said below, with the package. The exit code is 1 if the base lacks a wheel anywhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".venv/bin/uv"
SYSTEMS = {
    "x86_64-manylinux_2_28": "Linux, x86-64",
    "aarch64-manylinux_2_28": "Linux, ARM",
    "x86_64-unknown-linux-musl": "musl, x86-64",
    "aarch64-unknown-linux-musl": "musl, ARM",
    "aarch64-apple-darwin": "macOS 14, ARM",
    "x86_64-apple-darwin": "macOS 14, Intel",
    "x86_64-pc-windows-msvc": "Windows, x86-64",
    "aarch64-pc-windows-msvc": "Windows, ARM",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NO_EXTRA = "base"
CACHE = tempfile.TemporaryDirectory(prefix="mcp-hub-wheels-")
"""What the index has said, for this run; UV_CACHE_DIR names another place."""
_NAMED = re.compile(r"(?:required|available) for `([^`]+)`|wheels for `([^`]+)`|([\w.-]+)(?:\{[^}]*\})?[=<>]\S* has no")
"""The package that the resolver calls the reason."""
AT_ONCE = 6
"""Resolvers; they mostly wait for the index."""


def extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [NO_EXTRA, *(name for name in project["optional-dependencies"] if name != "test")]


def resolved(extra: str, system: str, python: str, *options: str) -> str | None:
    """Returns None if everything has a wheel, else the package that has none."""
    argv = [UV, "pip", "compile", "--quiet", "--only-binary", ":all:", "--no-config", "--default-index",
            "https://pypi.org/simple", "--python-platform", system, "--python-version", python, *options]  # fmt: skip
    argv += [] if extra == NO_EXTRA else ["--extra", extra]
    env = {"UV_CACHE_DIR": CACHE.name, **os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0", "UV_PYTHON": sys.executable}

    def ended(*more: str) -> subprocess.CompletedProcess[str]:
        words = [*argv, *more, "pyproject.toml"]
        return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)

    answer = ended("--offline")  # what this run has asked for before is not asked for again
    if answer.returncode != 0 and "network was disabled" in answer.stderr:
        answer = ended()
    if answer.returncode == 0:
        return None
    named = _NAMED.search(answer.stderr)
    return next(filter(None, named.groups())) if named else answer.stderr.strip().splitlines()[-1][:200]


def found(extra: str, system: str, python: str) -> tuple[str, str | None]:
    """Returns how an extra installs: `locked`, `other` or `none`, and the package that stands in the way."""
    locked = resolved(extra, system, python, "--constraints", "requirements.lock")
    if locked is None:
        return "locked", None
    other = resolved(extra, system, python)
    return ("other", locked) if other is None else ("none", other)


def cell(ways: dict[str, str]) -> str:
    """Returns the Pythons of a cell: all, some, `*` behind those that need other versions, or a dash."""
    words = [python + "*" * (way == "other") for python, way in ways.items() if way != "none"]
    if len(words) == len(PYTHONS) and len({way for way in ways.values()}) == 1:
        return "yes" + "*" * words[0].endswith("*")
    return ", ".join(words) or "—"


def main(words: list[str]) -> int:
    """Prints a row for each extra as soon as it is known, then what stands in the way."""
    names = [word for word in words if word in extras()] or extras()
    systems = [word for word in words if word in SYSTEMS] or list(SYSTEMS)
    pythons = [word for word in words if word in PYTHONS] or list(PYTHONS)
    if unknown := set(words) - {*names, *systems, *pythons}:
        print(f"wheels: unknown: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    print("| extra |", " | ".join(SYSTEMS[one] for one in systems), "|\n|---|" + "---|" * len(systems))
    reasons, base_lacks = [], False
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for extra in names:
            asked = [(system, python) for system in systems for python in pythons]
            ways_of = pool.map(found, repeat(extra), *zip(*asked, strict=True))
            answers = dict(zip(asked, ways_of, strict=True))
            ways = [{python: answers[system, python][0] for python in pythons} for system in systems]
            print(f"| `{extra}` |", " | ".join(map(cell, ways)), "|", flush=True)
            for (system, python), (way, package) in answers.items():
                if package is not None:
                    what = "wheels in other versions only" if way == "other" else "no wheel"
                    reasons.append(f"{extra}, {SYSTEMS[system]}, {python}: {package} has {what}")
            base_lacks |= extra == NO_EXTRA and any(way == "none" for way, _ in answers.values())
    print("", *reasons, sep="\n")
    return int(base_lacks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
