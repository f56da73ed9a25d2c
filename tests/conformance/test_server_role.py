"""The official conformance suite finds in the hub what it finds in the server behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.fronts import entry, fixture, hub
from tests.conformance.suite import AT_ONCE, REVISIONS, SUITE, SUITE_01, Report, run
from tests.peers.catalogue import REAL_SERVERS, Place
from tests.tiers import EVERY_CELL

pytestmark = pytest.mark.anyio

ACROSS: Final = ("handshake", "2026-07-28")
"""Tried with CROSSING: the rounds and the names of questions are the hub's here, and tasks are modern only."""
CROSSING: Final = (
    "server-stateless", "completion-complete", "tools-list", "tools-call-mixed-content", "tools-call-error",
    "tools-call-with-progress", "server-sse-multiple-streams", "resources-list", "resources-read-text",
    "resources-read-binary", "resources-templates-read", "sep-2164-resource-not-found", "prompts-list",
    "prompts-get-with-args", "prompts-get-embedded-resource", "dns-rebinding-protection", "caching",
    "http-header-validation", "http-custom-header-server-validation", "json-schema-2020-12",
)  # fmt: skip
NOT_OF_THE_FIXTURE: Final = ("http-header-validation", "tasks-request-headers")
"""The HTTP library of the fixture leaves the white space at a header's end, and knows no headers of the extension."""


@dataclass(frozen=True)
class Front:
    """A hub with the fixture server behind it, and perhaps others."""

    transport: str
    era: str
    beside: bool = False
    own: bool = False
    """Whether each client has a session of its own with the fixture."""
    plain: bool = False
    """Whether the entry says nothing but where the fixture is, which then has one era alone (`both`: both)."""

    def __str__(self) -> str:
        suffix = "-with-a-plain-entry" if self.plain else "-beside-two-others" if self.beside else ""
        return f"{self.era}-over-{self.transport}{suffix}"

    @property
    def expected_failures(self) -> tuple[str, ...]:
        """The scenarios that fail."""
        shared = self.transport == "stdio" or (self.transport, self.era) == ("sse", "modern")
        return (LOGGING,) if shared and not self.own else ()

    @contextlib.asynccontextmanager
    async def running(self, tmp: Path) -> AsyncIterator[str]:
        """Its address."""
        if self.plain:
            eras = {} if self.era == "both" else {"ERA": self.era}
            async with fixture(tmp, env=eras) as url, hub(tmp, plain(url), list_wait=20) as front:
                yield front
            return
        keys: dict[str, Any] = {"namespace": "", "era": self.era}
        if self.own or (self.era, self.transport) == ("handshake", "sse"):
            keys["session"] = "client"
        async with entry(tmp, self.transport, **keys) as server, entry(tmp, "stdio") as twin:
            everything = REAL_SERVERS["everything_stdio"].entry(Place(tmp, {}))
            extra_servers = {"everything": everything, "twin": twin} if self.beside else {}
            async with hub(tmp, {"fixture": server, **extra_servers}, list_wait=20) as url:
                yield url


def plain(url: str) -> dict[str, Any]:
    """The fixture by its URL alone; the suite calls its tools by the names that it gave them."""
    return {"fixture": {"url": url, "namespace": ""}}


LOGGING: Final = "tools-call-with-logging"
"""Fails where clients share a session on which messages have no stream of a call: they belong to nobody for certain."""
OLDER: Final = "0.1"
"""The suite SUITE_01 among the revisions."""
FRONTS: Final = [
    *(Front(transport, era) for transport in ("stdio", "http", "sse") for era in ("handshake", "modern")),
    Front("http", "modern", beside=True),
    Front("stdio", "handshake", beside=True),
]
PAIRWISE: Final = {
    "2025-11-25": ("handshake-over-stdio-beside-two-others", "handshake-over-http", "handshake-over-sse",
                   "modern-over-http-beside-two-others"),
    "2026-07-28": ("modern-over-stdio", "modern-over-http-beside-two-others", "modern-over-sse"),
    OLDER: ("handshake-over-stdio-beside-two-others", "modern-over-http-beside-two-others"),
}  # fmt: skip
"""The fronts of each suite: every pair of transport, era and revision is in one; the older one meets each era once."""


def fronts(suite: str) -> list[Front]:
    """The fronts to run a suite on: those of PAIRWISE, or all with MCP_HUB_EVERY_CELL=1."""
    chosen = [front for front in FRONTS if EVERY_CELL or str(front) in PAIRWISE[suite]]
    return [front for front in chosen if (front.era, suite) != ACROSS]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_fixture_passes_the_suite_without_the_hub(tmp_path: Path, revision: str) -> None:
    async with fixture(tmp_path) as url:
        report = await run(SUITE, "server", "--url", url, "--requirements", revision, results=tmp_path / "results")
    assert report.without(*NOT_OF_THE_FIXTURE) == {}, report.printed
    assert len(report.passed) >= 30


async def reports(tmp: Path, fronts: Sequence[Front], suite: Path, *arguments: str) -> dict[str, Report]:
    """The reports of one suite on several fronts, some at once: half of a run is waiting."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def report(front: Front) -> Report:
        directory = tmp / str(front)
        directory.mkdir()
        async with slots, front.running(directory) as url:
            return await run(suite, "server", "--url", url, *arguments, results=directory / "results")

    return dict(zip(map(str, fronts), await asyncio.gather(*map(report, fronts)), strict=True))


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_hub_in_front_of_the_fixture_passes_the_suite(tmp_path: Path, revision: str) -> None:
    chosen = fronts(revision)
    reports_by_front = await reports(tmp_path, chosen, SUITE, "--requirements", revision)
    for front in chosen:
        report = reports_by_front[str(front)]
        assert (str(front), report.without(*front.expected_failures)) == (str(front), {}), report.printed
        assert len(report.passed) >= 30


ASKING: Final = {
    "2025-11-25": (
        "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums",
    ),
    "2026-07-28": ("input-required-result-basic-elicitation", "input-required-result-basic-sampling"),
}  # fmt: skip
"""What a client of each revision is asked by a server of any era."""
IN_ROUNDS: Final = "input-required-result-"
NAMED_BY_THE_SERVER: Final = {"basic-elicitation", "multiple-input-requests", "tampered-state"}
"""Scenarios that want the names and states of a modern server: before one of the handshake era they are the hub's."""


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("era", ["both", "handshake", "modern"])
async def test_the_suite_for_server_requests_passes_with_a_minimal_entry(
    tmp_path: Path, era: str, revision: str
) -> None:
    results = tmp_path / "results"
    async with Front("http", era, plain=True).running(tmp_path) as url:
        options = ["--suite", "all", "--spec-version", revision]
        report = await run(SUITE, "server", "--url", url, *options, results=results)
    expected_failures = {f"{IN_ROUNDS}{name}" for name in NAMED_BY_THE_SERVER if (era, revision) == ACROSS}
    asked_report = report.about(set(ASKING[revision]) - expected_failures)
    assert (asked_report.failed, asked_report.passed) == ({}, set(ASKING[revision]) - expected_failures), report.printed
    assert set(report.only(IN_ROUNDS)) == expected_failures, report.printed


@pytest.mark.parametrize(
    "front",
    [Front(*variant, own=True) for variant in (("stdio", "handshake"), ("stdio", "modern"), ("sse", "modern"))],
    ids=str,
)
async def test_log_messages_pass_if_each_client_has_its_own_session(tmp_path: Path, front: Front) -> None:
    async with front.running(tmp_path) as url:
        options = ["--scenario", LOGGING, "--spec-version", "2025-11-25"]
        report = await run(SUITE, "server", "--url", url, *options, results=tmp_path / "results")
    assert (report.failed, report.passed) == ({}, {LOGGING}), report.printed


async def test_the_modern_suite_passes_in_front_of_a_handshake_server(tmp_path: Path) -> None:
    options = ["--suite", "all", "--spec-version", "2026-07-28"]
    # With a session of its own: a server that all share is told more than each client has declared.
    async with Front("http", "handshake", own=True).running(tmp_path) as url:
        report = await run(SUITE, "server", "--url", url, *options, results=tmp_path / "results")
    report = report.about(CROSSING)
    assert (report.failed, report.passed) == ({}, set(CROSSING)), report.printed


async def test_the_fixture_passes_the_handshake_suite_without_the_hub(tmp_path: Path) -> None:
    async with fixture(tmp_path) as url:
        report = await run(SUITE_01, "server", "--url", url, "--suite", "all", results=tmp_path / "results")
    assert report.failed == {}, report.printed
    assert len(report.passed) >= 30


async def test_the_hub_in_front_of_the_fixture_passes_the_handshake_suite(tmp_path: Path) -> None:
    chosen = fronts(OLDER)
    reports_by_front = await reports(tmp_path, chosen, SUITE_01, "--suite", "all")
    for front in chosen:
        report = reports_by_front[str(front)]
        assert (str(front), report.without(*front.expected_failures)) == (str(front), {}), report.printed
        assert len(report.passed) >= 30
