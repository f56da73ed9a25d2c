"""A hub on a port of this machine: with the right token, a wrong one and none, and restarted while a call runs."""

from __future__ import annotations

import contextlib
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.client import PATIENCE, free_port
from tests.real.client_programs import Json
from tests.real.conftest import Report
from tests.real.scripted_provider import Call
from tests.real.turns import BEHIND, HUB, User, recorded, scripted, write_hub

TOKEN = "right-" + "t" * 40
ENDED = 20.0


@contextlib.contextmanager
def served(config: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A hub that has its port."""
    command = [HUB, "serve", "--http", "--port", str(port), "--config", str(config)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while not _is_up(port):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(ENDED)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=ENDED):
            return True
    except OSError:
        return False


def entry(port: int, token: str | None = TOKEN) -> Json:
    headers = {} if token is None else {"headers": {"Authorization": f"Bearer {token}"}}
    return {"url": f"http://127.0.0.1:{port}/mcp", **headers}


@pytest.mark.parametrize(("token", "is_right"), [(TOKEN, True), ("wrong-" + "t" * 40, False), (None, False)])
def test_a_hub_on_a_port_serves_those_with_its_token(
    user: Callable[[str], User], report: Report, tmp_path: Path, token: str | None, is_right: bool
) -> None:
    config, port = tmp_path / "hub.json", free_port()
    write_hub(config, {"network": scripted()}, cache_dir=str(tmp_path / "cache"), listen={"token": TOKEN})
    with served(config, port):
        user(BEHIND).has({"hub": entry(port, token)})
        turn = user(BEHIND).turn(Call("network__echo", {"text": "through a port"}))
    called = "through a port" in "".join(turn.results)
    kind = "the right token" if is_right else "a wrong token" if token else "no token"
    report(f"over HTTP with {kind}: is called", "-", called)
    assert called == is_right
    assert bool(turn.mcp_tools(["hub"])) == is_right
    assert turn.code is not None


def test_a_hub_that_is_restarted_in_a_call_serves_the_next_call(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    config, port, record = tmp_path / "hub.json", free_port(), tmp_path / "record"
    servers = {"network": scripted("--record", str(record))}
    write_hub(config, servers, cache_dir=str(tmp_path / "cache"), listen={"token": TOKEN})
    user(BEHIND).has({"hub": entry(port)})
    steps = [Call("network__sleep", {"seconds": 600}), Call("network__echo", {"text": "after all"}, thinks=1)]
    with ThreadPoolExecutor(1) as thread:
        with served(config, port) as hub:
            turn = thread.submit(user(BEHIND).turn, *steps)
            recorded(record, b'"tools/call"', turn.done)
            hub.kill()
            hub.wait()
        with served(config, port):
            results = turn.result().results
    report("a hub is restarted in a call: the next call is answered", "-", "after all" in "".join(results))
    assert "after all" in results[-1]
