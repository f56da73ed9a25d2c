"""The official conformance suite, run from its npm packages; scripts/peers installs them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.peers.catalogue import NODE, PEERS, installed

_MODULES: Final = PEERS / "node" / "node_modules"
SUITE: Final = _MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
"""0.2, which knows what each revision requires and checks every message against the specification's schema."""
SUITE_01: Final = _MODULES / "conformance-0.1" / "dist" / "index.js"
"""0.1, of the revision 2025-11-25 alone."""
REVISIONS: Final = ("2025-11-25", "2026-07-28")
_STAMP: Final = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
RUN_BOUND: Final = 180.0
"""Seconds for one run; it takes 2 to 15."""


@dataclass(frozen=True)
class Report:
    """What one run found: the names of the scenarios that have passed, and the failed checks of the others."""

    passed: frozenset[str]
    failed: dict[str, tuple[str, ...]]
    printed: str
    warned: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What it only advises against, by scenario."""

    def only(self, *prefixes: str) -> dict[str, tuple[str, ...]]:
        """The failures of scenarios whose names begin like this."""
        return {name: checks for name, checks in self.failed.items() if name.startswith(prefixes)}

    def without(self, *prefixes: str) -> dict[str, tuple[str, ...]]:
        """The failures of all others."""
        return {name: checks for name, checks in self.failed.items() if not name.startswith(prefixes)}


async def run(suite: Path, *arguments: str, results: Path) -> Report:
    """Run the suite and read its results, one directory a scenario, in `results`."""
    command = [installed(NODE), installed(suite), *arguments, "-o", str(results)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(RUN_BOUND):
            printed, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return _report(results, printed.decode(errors="replace"))


def _report(results: Path, printed: str) -> Report:
    passed, failed, warned = set(), {}, {}
    for file in sorted(results.rglob("checks.json")):
        scenario = _scenario(file.relative_to(results).parent)
        checks = json.loads(file.read_text())
        bad = tuple(f"{c['id']}: {c.get('errorMessage')}" for c in checks if c["status"] == "FAILURE")
        if advice := tuple(check["id"] for check in checks if check["status"] == "WARNING"):
            warned[scenario] = advice
        if bad:
            failed[scenario] = bad
        elif any(check["status"] == "SUCCESS" for check in checks):
            passed.add(scenario)
    return Report(frozenset(passed), failed, printed, warned)


def _scenario(directory: Path) -> str:
    """`server-NAME-2026-11-20T10-00-00-000Z` or `NAME-2026-...` -> NAME."""
    return _STAMP.sub("", directory.as_posix().removeprefix("server-"))
