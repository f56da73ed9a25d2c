"""The official conformance suite, run from its npm packages; scripts/peers installs them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.peers.programs import NODE, PEERS, installed

_MODULES: Final = PEERS / "node" / "node_modules"
SUITE: Final = _MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
"""0.2, which knows what each revision requires and checks every message against the specification's schema."""
SUITE_01: Final = _MODULES / "conformance-0.1" / "dist" / "index.js"
"""0.1, of the revision 2025-11-25 alone."""
REVISIONS: Final = ("2025-11-25", "2026-07-28")
_SCENARIOS: Final = re.compile(r"Running .* suite \((\d+) scenarios\)")
_STAMP: Final = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
RUN_BOUND: Final = 600.0
"""Seconds for one run; it takes 2 to 30."""
CLIENT_BOUND: Final = 240_000
"""Milliseconds the suite gives one client; it waits for its place."""
MAX_LINE: Final = 2**24
"""Bytes of one line that the suite prints."""
AT_ONCE: Final = 4
"""Clients at work; more only wait for each other."""
MESSENGER: Final = Path(__file__).with_name("messenger.py")

Json = dict[str, Any]
Drive = Callable[[str, Mapping[str, str]], Awaitable[None]]


@dataclass(frozen=True)
class Report:
    """What one run found: the names of the scenarios that have passed, and the failed checks of the others."""

    passed: frozenset[str]
    failed: dict[str, tuple[str, ...]]
    printed: str
    warned: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What it only advises against, by scenario."""

    def about(self, scenarios: Collection[str]) -> Report:
        """The same of these scenarios alone."""
        failed, warned = (
            {name: findings[name] for name in findings if name in scenarios} for findings in (self.failed, self.warned)
        )
        return replace(self, passed=self.passed & frozenset(scenarios), failed=failed, warned=warned)

    def only(self, *prefixes: str) -> dict[str, tuple[str, ...]]:
        """The failures of scenarios whose names begin like this."""
        return {name: checks for name, checks in self.failed.items() if name.startswith(prefixes)}

    def without(self, *prefixes: str) -> dict[str, tuple[str, ...]]:
        """The failures of all others."""
        return {name: checks for name, checks in self.failed.items() if not name.startswith(prefixes)}


async def run_clients(drive: Drive, scenarios: Collection[str], *arguments: str, results: Path) -> Report:
    """Run scenarios for clients in one process of the suite, and read the results of those that are wanted.

    `drive` is the client; it is called for each of them with the address of its server and what the suite says.
    """
    slots, clients = asyncio.Semaphore(AT_ONCE), set[asyncio.Task[None]]()
    all_started, all_done = asyncio.Event(), asyncio.Event()
    unstarted_count, unfinished = 0, set(scenarios)

    def on_line(line: str) -> None:
        if match := _SCENARIOS.match(line):
            change_unstarted(int(match[1]))

    def change_unstarted(count: int) -> None:
        nonlocal unstarted_count
        unstarted_count += count
        if unstarted_count == 0:
            all_started.set()

    async def be_client(order: Json) -> None:
        scenario = order["environ"]["MCP_CONFORMANCE_SCENARIO"]
        change_unstarted(-1)
        if scenario not in scenarios:
            await all_done.wait()
            raise LookupError("this scenario is not wanted")
        await all_started.wait()  # while it starts others, and while it reports, the suite is slow to answer
        try:
            async with slots:
                await drive(order["url"], order["environ"])
        finally:
            unfinished.discard(scenario)
            if not unfinished:
                all_done.set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(client := asyncio.create_task(be_client(json.loads(await reader.readline()))))
        await asyncio.wait({client})
        if not client.cancelled() and (error := client.exception()) is not None:
            writer.write("".join(traceback.format_exception(error)).encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        command = f"{sys.executable} -I -S {MESSENGER} {port}"
        report = await run(
            SUITE,
            *("client", "--timeout", str(CLIENT_BOUND), "--command", command),
            *arguments,
            results=results,
            on_line=on_line,
        )
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return report.about(scenarios)


async def run(
    suite: Path, *arguments: str, results: Path, on_line: Callable[[str], None] = lambda line: None
) -> Report:
    """Run the suite, give each line it prints to `on_line`, and read `results`, which has one directory a scenario."""
    command = [installed(NODE), installed(suite), *arguments, "-o", str(results)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=MAX_LINE,
    )
    printed: list[str] = []
    assert process.stdout is not None
    try:
        async with asyncio.timeout(RUN_BOUND):
            async for line in process.stdout:
                printed.append(line.decode(errors="replace"))
                on_line(printed[-1])
            await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return _report(results, "".join(printed))


def _report(results: Path, printed: str) -> Report:
    passed, failed, warned = set(), {}, {}
    for file in sorted(results.rglob("checks.json")):
        scenario = _scenario(file.relative_to(results).parent)
        checks = json.loads(file.read_text())
        failures = tuple(f"{c['id']}: {c.get('errorMessage')}" for c in checks if c["status"] == "FAILURE")
        if advice := tuple(check["id"] for check in checks if check["status"] == "WARNING"):
            warned[scenario] = advice
        if failures:
            failed[scenario] = failures
        elif any(check["status"] == "SUCCESS" for check in checks):
            passed.add(scenario)
    return Report(frozenset(passed), failed, printed, warned)


def _scenario(directory: Path) -> str:
    """`server-NAME-2026-11-20T10-00-00-000Z` or `NAME-2026-...` -> NAME."""
    return _STAMP.sub("", directory.as_posix().removeprefix("server-"))
