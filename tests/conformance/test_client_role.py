"""The official conformance suite finds nothing wrong with the hub as a client of its servers.

All client scenarios of both revisions but those of extensions; those of authorization are in `test_signing_in.py`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.driver import drive
from tests.conformance.suite import Report, run_clients

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
RUNS: Final = [(revision, era) for revision in SCENARIOS for era in ("handshake", "modern")]


@pytest.fixture(scope="module")
def reports() -> dict[tuple[str, str], Report]:
    """What the suite has found in a hub before its servers of a revision, with clients of an era."""
    return {}


@pytest.mark.parametrize(("of", "scenario"), [(of, name) for of in RUNS for name in SCENARIOS[of[0]]])
async def test_the_hub_passes_the_suite_for_clients(
    tmp_path: Path, reports: dict[tuple[str, str], Report], of: tuple[str, str], scenario: str
) -> None:
    revision, era = of
    if of not in reports:
        arguments = ["--suite", "all", "--spec-version", revision]
        reports[of] = await run_clients(partial(drive, era), SCENARIOS[revision], *arguments, results=tmp_path)
    report = reports[of]
    assert scenario not in report.failed, report.printed
    assert scenario in report.passed, report.printed
