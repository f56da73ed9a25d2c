"""The official suite finds the skills of servers and those of the hub as SEP-2640 has them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.config.discovery.test_skills import skill
from tests.conformance.fronts import hub
from tests.conformance.suite import SUITE, run
from tests.peers.programs import HERE

pytestmark = pytest.mark.anyio

SCENARIOS: Final = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest")
SERVER: Final = str(HERE / "servers" / "skill_server.py")


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_hubs_own_skills_pass_the_suite_without_a_warning(tmp_path: Path, scenario: str) -> None:
    skill(tmp_path / "own/pdf", "pdf", "Fill in forms.\nversion: 1.10\nwhen: 2026-01-02", references__forms_md="x")
    async with hub(tmp_path, {}, skills=["own"], list_wait=20) as url:
        report = await run(SUITE, "server", "--url", url, "--scenario", scenario, results=tmp_path / "results")
    assert (report.failed, report.warned, len(report.passed)) == ({}, {}, 1), report.printed


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_skills_of_servers_pass_the_suite_also_with_equal_names(tmp_path: Path, scenario: str) -> None:
    servers: dict[str, Any] = {}
    for name in "ab":
        skill(tmp_path / name / "pdf", "pdf", f"Of {name}.", references__forms_md=name)
        servers[name] = {"command": sys.executable, "args": [SERVER, str(tmp_path / name)]}
    async with hub(tmp_path, servers, on_conflict="rename", list_wait=20) as url:
        report = await run(SUITE, "server", "--url", url, "--scenario", scenario, results=tmp_path / "results")
    assert (report.failed, len(report.passed)) == ({}, 1), report.printed
