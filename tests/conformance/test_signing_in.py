"""The official conformance suite finds nothing wrong with how the hub signs in to its servers.

All scenarios of authorization of both revisions and the older ones still served, and those of client credentials.
Proof of possession (DPoP), workload identities and enterprise-managed authorization are not supported.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.driver import drive
from tests.conformance.suite import Report, run_clients

pytestmark = pytest.mark.anyio

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
EXTENSIONS: Final = ("client-credentials-jwt", "client-credentials-basic")
ROUNDS: Final = {
    ("auth", "2025-11-25", "handshake"): BOTH,
    ("all", "2026-07-28", "modern"): (*BOTH, *NEW),
    ("backcompat", "2025-03-26", "modern"): OLD,
    ("extensions", None, "modern"): EXTENSIONS,
}
"""The suite's set of scenarios, the revision and the era of the client of one run -> its scenarios."""


@pytest.fixture(scope="module")
def reports() -> dict[tuple[str, str | None, str], Report]:
    """What the suite has found in each of `ROUNDS`."""
    return {}


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in ROUNDS.items() for name in names])
async def test_the_hub_passes_the_suite_for_authorization(
    tmp_path: Path, reports: dict[tuple[str, str | None, str], Report], of: tuple[str, str | None, str], name: str
) -> None:
    scenario = f"auth/{name}"
    if of not in reports:
        scenarios, revision, era = of
        scenario_names = {f"auth/{item}" for item in ROUNDS[of]}
        arguments = ["--suite", scenarios, *(["--spec-version", revision] if revision is not None else [])]
        reports[of] = await run_clients(partial(drive, era), scenario_names, *arguments, results=tmp_path)
    report = reports[of]
    assert scenario not in report.failed, report.printed
    assert scenario not in report.warned, report.printed
    assert scenario in report.passed, report.printed
