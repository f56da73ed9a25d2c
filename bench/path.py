"""Traces one warm request through the hub: lists every function of `mcp_hub/` that runs until its answer is written.

A step is one call event of `sys.setprofile` in a file of the package, on the loop's thread, from the first byte read to
the last byte written; a coroutine that resumes is one too. The hub has default rules and one server over stdio, and
records its calls.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any, Final

import mcp_hub

PACKAGE: Final = str(Path(mcp_hub.__file__).parent) + os.sep
FAKE: Final = Path(__file__).parents[1] / "tests" / "fakes" / "upstream.py"
MARK: Final = "the-way-of-this-request"
"""The id of the request that is traced."""
TRIES: Final = 5
WARM: Final = 5
TRACE: Final = "MCP_HUB_PATH_TRACE"
DEADLINE: Final = 60.0
VERSION: Final = "2025-11-25"


@dataclass(frozen=True)
class Step:
    """One function call on the path of a request; `file` is relative to the package."""

    file: str
    function: str


# --- in the hub's process ----------------------------------------------------------------------------------------


def trace(file: str) -> None:
    """Profiles this thread, and writes the steps of the marked request to `file` once its answer is written."""
    steps: list[list[str]] | None = None
    mark = MARK.encode()

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal steps
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            if steps is None and code.co_name == "data_received" and mark in bytes(frame.f_locals["data"]):
                steps = []
            if steps is not None:
                steps.append([code.co_filename.removeprefix(PACKAGE), code.co_qualname])
        elif steps is not None and event == "c_call" and arg.__name__ in ("write", "send", "sendmsg", "writelines"):
            data = frame.f_locals.get("data", b"")
            if isinstance(data, bytes | bytearray | memoryview) and mark in bytes(data) and b'"result"' in bytes(data):
                complete, steps = steps, None
                Path(file).write_text(json.dumps(complete))

    sys.setprofile(profile)


def child(argv: Sequence[str]) -> int:
    """Runs `mcp-hub` on asyncio's own loop, whose writes a profiler can see."""
    import asyncio

    import uvloop

    from mcp_hub.cli import main

    uvloop.run = asyncio.run
    trace(os.environ[TRACE])
    return main(argv)


# --- its client --------------------------------------------------------------------------------------------------


@contextmanager
def hub(directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a hub with the fake server behind it and a log of its calls."""
    config = directory / "servers.json"
    entry = {"command": sys.executable, "args": [str(FAKE)]}
    config.write_text(json.dumps({"mcpServers": {"up": entry}, "call_log": str(directory / "calls.jsonl")}))
    command = [sys.executable, "-m", "bench.path", "--child", "serve", "--config", str(config), *options]
    environment = {**os.environ, TRACE: str(directory / "steps.json")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


def steps_in(directory: Path) -> list[Step]:
    """Reads the steps that the hub has written."""
    return [Step(*fields) for fields in json.loads((directory / "steps.json").read_text())]


def shortest_trace(ask: Callable[[], None], directory: Path) -> list[Step]:
    """Returns the steps of the request that had the fewest: other work on the machine adds some."""
    traces = []
    for _ in range(TRIES):
        ask()
        traces.append(steps_in(directory))
    return min(traces, key=len)


def message(method: str, id: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


HELLO: Final = message(
    "initialize", "hello", protocolVersion=VERSION, capabilities={}, clientInfo={"name": "path", "version": "1"}
)
READY: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(id: str) -> dict[str, Any]:
    return message("tools/call", id, name="up__echo", arguments={"text": "hello"})


def listing(id: str) -> dict[str, Any]:
    return message("tools/list", id)


def over_stdio(request: Callable[[str], dict[str, Any]]) -> list[Step]:
    """Traces a request of a client over stdio."""
    with tempfile.TemporaryDirectory() as name, hub(Path(name)) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def exchange(payload: dict[str, Any]) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(payload).encode() + b"\n")
            process.stdin.flush()
            while json.loads(process.stdout.readline()).get("id") != payload["id"]:
                pass

        exchange(HELLO)
        process.stdin.write(json.dumps(READY).encode() + b"\n")
        for number in range(WARM):
            exchange(request(str(number)))
        return shortest_trace(lambda: exchange(request(MARK)), Path(name))


def over_http(request: Callable[[str], dict[str, Any]]) -> list[Step]:
    """Traces a request of a client over streamable HTTP, in a session and on a connection that it has used before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name, hub(Path(name), "--http", "--port", str(port)):
        connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        until = threading.Event()
        for _ in range(int(DEADLINE * 10)):
            try:
                connection.connect()
                break
            except ConnectionRefusedError:
                until.wait(0.1)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

        def exchange(payload: dict[str, Any]) -> None:
            connection.request("POST", "/mcp", json.dumps(payload), headers)
            answer = connection.getresponse()
            answer.read()
            headers.setdefault("Mcp-Session-Id", answer.getheader("Mcp-Session-Id") or "")
            headers["MCP-Protocol-Version"] = VERSION

        exchange(HELLO)
        exchange(READY)
        for number in range(WARM):
            exchange(request(str(number)))
        return shortest_trace(lambda: exchange(request(MARK)), Path(name))


SCENARIOS: Final = {
    "tools/call over stdio": (over_stdio, call),
    "tools/call over HTTP": (over_http, call),
    "tools/list over HTTP": (over_http, listing),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/path", description=__doc__)
    parser.add_argument("--steps", action="store_true", help="print every step, not only how many there are")
    options = parser.parse_args()
    for name, (trace_request, request) in SCENARIOS.items():
        steps = trace_request(request)
        print(f"{name}: {len(steps)} frames in {len({step.file for step in steps})} files")
        if options.steps:
            for step in steps:
                print(f"    {step.file:44} {step.function}")
    return 0


if __name__ == "__main__":
    sys.exit(child(sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main())
