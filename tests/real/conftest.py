"""Each scenario runs with each real client; what a model saw directly and behind the hub is printed as one table."""

from __future__ import annotations

import compileall
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mcp_hub
from tests.real.client_programs import CLIENTS, Client
from tests.real.turns import User

Report = Callable[[str, object, object], None]


@pytest.fixture(scope="session", autouse=True)
def hub_is_compiled() -> None:
    """The first start of a hub is that of an installed one, whose bytecode is there: Codex waits half a second."""
    compileall.compile_dir(str(Path(mcp_hub.__file__).parent), quiet=2)


@pytest.fixture(params=CLIENTS, ids=[client.name for client in CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.fixture
def user(client: Client, tmp_path: Path) -> Iterator[Callable[[str], User]]:
    """Makes users of the client, each with a directory of that name."""
    users: dict[str, User] = {}

    def named(name: str) -> User:
        if name not in users:
            users[name] = User(client, tmp_path / name)
        return users[name]

    yield named
    for one in users.values():
        one.close()


@pytest.fixture
def report(client: Client, record_property: Callable[[str, object], None]) -> Report:
    """Writes a cell of the table: a scenario, and what came of it directly and behind the hub."""

    def write(scenario: str, direct: object, hub: object) -> None:
        record_property("cell", (client.name, scenario, f"{direct} / {hub}"))

    return write


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for outcome in ("passed", "failed"):
        for test in terminalreporter.stats.get(outcome, ()):
            for name, value in test.user_properties:
                if name == "cell":
                    rows[value[1]][value[0]] = value[2]
    if not rows:
        return
    names = [client.name for client in CLIENTS]
    terminalreporter.section("directly / behind the hub")
    terminalreporter.write_line(f"| scenario | {' | '.join(names)} |")
    terminalreporter.write_line("|---" * (len(names) + 1) + "|")
    for scenario, cells in rows.items():
        terminalreporter.write_line(f"| {scenario} | {' | '.join(cells.get(name, '') for name in names)} |")
