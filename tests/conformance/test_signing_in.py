"""The official conformance suite finds nothing wrong with how the hub signs in to its servers.

All scenarios of authorization of both revisions and the older ones still served, and those of client credentials.
Proof of possession (DPoP), workload identities and enterprise-managed authorization are not supported.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.suite import SUITE, run

pytestmark = pytest.mark.anyio

TIMEOUT: Final = "120000"
"""Milliseconds the suite gives one client: three processes, each of which imports the SDK."""
BOTH: Final = (
    "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd", "scope-from-www-authenticate",
    "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
    "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration",
)  # fmt: skip
NEW: Final = (
    "resource-mismatch", "offline-access-scope", "offline-access-not-supported", "authorization-server-migration",
    "iss-supported", "iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected",
    "iss-normalized", "metadata-issuer-mismatch",
)  # fmt: skip
OLD: Final = ("2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback")
SCENARIOS: Final = (
    *((name, "2025-11-25", "handshake") for name in BOTH),
    *((name, "2026-07-28", "modern") for name in (*BOTH, *NEW)),
    *((name, "2025-03-26", "modern") for name in OLD),
    *((name, None, "modern") for name in ("client-credentials-jwt", "client-credentials-basic")),
)


@pytest.mark.parametrize(("name", "revision", "era"), SCENARIOS)
async def test_the_hub_passes_the_suite_for_authorization(
    tmp_path: Path, name: str, revision: str | None, era: str
) -> None:
    scenario = f"auth/{name}"
    wanted = ["--scenario", scenario, *(["--spec-version", revision] if revision is not None else [])]
    command = f"{sys.executable} -m tests.conformance.driver {era}"
    report = await run(
        SUITE, "client", "--timeout", TIMEOUT, "--command", command, *wanted, results=tmp_path / "results"
    )
    assert (report.failed, report.warned) == ({}, {}), report.printed
    assert report.passed == {scenario}, report.printed
