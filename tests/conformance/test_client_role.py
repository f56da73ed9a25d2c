"""The official conformance suite finds nothing wrong with the hub as a client of its servers.

All client scenarios of both revisions but those of extensions; those of authorization are in `test_signing_in.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.suite import SUITE, run

pytestmark = pytest.mark.anyio

SCENARIOS: Final = {
    "2025-11-25": (
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        "json-schema-2020-12-preservation",
    ),
    "2026-07-28": (
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ),
}


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    ("revision", "scenario"), [(revision, name) for revision, names in SCENARIOS.items() for name in names]
)
async def test_the_hub_passes_the_suite_for_clients(tmp_path: Path, revision: str, scenario: str, era: str) -> None:
    command = f"{sys.executable} -m tests.conformance.driver {era}"
    wanted = ["--scenario", scenario, "--spec-version", revision]
    report = await run(SUITE, "client", "--command", command, *wanted, results=tmp_path / "results")
    assert report.failed == {}, report.printed
    assert report.passed == {scenario}, report.printed
