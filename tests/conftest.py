from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes import forks
from tests.tiers import EXAMPLES, REAL, TIERS, tier_of

# A machine may say that no bytecode is kept: then each of the thousands of starts would compile the hub again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
forks.install()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has begun this in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or no program that is started could be interrupted
settings.register_profile(
    "suite",
    max_examples=EXAMPLES,
    derandomize="MCP_HUB_EXAMPLES" not in os.environ,
    deadline=None,  # a machine that is busy elsewhere makes no example slow
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")
gc.disable()  # until everything is imported and collected: there is no garbage among it

_start = subprocess.Popen.__init__
_forbids_programs = False
"""Whether the test that runs is of the tier `fast`."""


def _checked_start(self: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
    if _forbids_programs:
        raise AssertionError("this test starts a program, which tests/tiers.py does not know of its file")
    _start(self, *args, **kwargs)


subprocess.Popen.__init__ = _checked_start  # type: ignore[method-assign]


def pytest_configure(config: pytest.Config) -> None:
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: the tier of tests/tiers.py; it is marked by its file")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves the clients of people, which only `scripts/test real` installs, to those who name them."""
    return True if collection_path == REAL and not any("tests/real" in argument for argument in config.args) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(tier_of(item.path))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _forbids_programs
    _forbids_programs = tier_of(item.path) == "fast"
    try:
        return (yield)
    finally:
        _forbids_programs = False


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def keyring_is_chosen_anew() -> Iterator[None]:
    """Undoes that `keyring` keeps the backend that the environment of the first test in this process has named."""
    yield
    if (core := sys.modules.get("keyring.core")) is not None:
        core._keyring_backend = None  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def log_is_set_up_as_before() -> Iterator[None]:
    """Undoes what a command does to the log, when a test runs it in its own process."""
    log = logging.getLogger("mcp_hub")
    before = log.level, log.propagate, log.handlers[:], logging.root.handlers[:]
    yield
    log.setLevel(before[0])
    log.propagate, log.handlers[:] = before[1:3]
    for added in [handler for handler in logging.root.handlers if handler not in before[3]]:
        logging.root.removeHandler(added)
