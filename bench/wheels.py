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
"""The cache of the index for this run; UV_CACHE_DIR names another directory."""
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

    def run(*extra_options: str) -> subprocess.CompletedProcess[str]:
        command = [*argv, *extra_options, "pyproject.toml"]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)

    answer = run("--offline")  # what this run has asked for before is not asked for again
    if answer.returncode != 0 and "network was disabled" in answer.stderr:
        answer = run()
    if answer.returncode == 0:
        return None
    match = _NAMED.search(answer.stderr)
    return next(filter(None, match.groups())) if match else answer.stderr.strip().splitlines()[-1][:200]


def install_status(extra: str, system: str, python: str) -> tuple[str, str | None]:
    """Returns how an extra installs: `locked`, `other` or `none`, and the package that stands in the way."""
    missing_locked = resolved(extra, system, python, "--constraints", "requirements.lock")
    if missing_locked is None:
        return "locked", None
    missing = resolved(extra, system, python)
    return ("other", missing_locked) if missing is None else ("none", missing)


def cell(statuses: dict[str, str]) -> str:
    """Returns the Pythons of a cell: all, some, `*` behind those that need other versions, or a dash."""
    labels = [python + "*" * (status == "other") for python, status in statuses.items() if status != "none"]
    if len(labels) == len(PYTHONS) and len({status for status in statuses.values()}) == 1:
        return "yes" + "*" * labels[0].endswith("*")
    return ", ".join(labels) or "—"


def main(argv: list[str]) -> int:
    """Prints a row for each extra as soon as it is known, then what stands in the way."""
    names = [argument for argument in argv if argument in extras()] or extras()
    systems = [argument for argument in argv if argument in SYSTEMS] or list(SYSTEMS)
    pythons = [argument for argument in argv if argument in PYTHONS] or list(PYTHONS)
    if unknown := set(argv) - {*names, *systems, *pythons}:
        print(f"wheels: unknown: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    print("| extra |", " | ".join(SYSTEMS[triple] for triple in systems), "|\n|---|" + "---|" * len(systems))
    reasons, base_lacks = [], False
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for extra in names:
            combinations = [(system, python) for system in systems for python in pythons]
            outcomes = pool.map(install_status, repeat(extra), *zip(*combinations, strict=True))
            answers = dict(zip(combinations, outcomes, strict=True))
            statuses = [{python: answers[system, python][0] for python in pythons} for system in systems]
            print(f"| `{extra}` |", " | ".join(map(cell, statuses)), "|", flush=True)
            for (system, python), (status, package) in answers.items():
                if package is not None:
                    problem = "wheels in other versions only" if status == "other" else "no wheel"
                    reasons.append(f"{extra}, {SYSTEMS[system]}, {python}: {package} has {problem}")
            base_lacks |= extra == NO_EXTRA and any(status == "none" for status, _ in answers.values())
    print("", *reasons, sep="\n")
    return int(base_lacks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
