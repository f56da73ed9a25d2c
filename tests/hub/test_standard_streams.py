"""Standard input and output may be anything: what is asked is answered, and nothing but answers is written."""

import asyncio
import json
import os
import pty
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB_BY_EXEC, PATIENCE, fake, write_config

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
REQUESTS = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "up__echo", "arguments": {"text": "hello"}}},
]  # fmt: skip
INPUT = b"".join(json.dumps(message).encode() + b"\n" for message in REQUESTS)


def serve(directory: Path) -> list[str]:
    config = write_config(directory, {"up": fake(), "noisy": fake("--noise", "20")})
    return [*HUB_BY_EXEC, "serve", "--config", str(config)]


def check(output: bytes) -> None:
    answers: dict[Any, Any] = {}
    for line in output.splitlines():
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        if "id" in message:
            answers[message["id"]] = message
    assert set(answers) == {1, 2, 3}
    assert answers[3]["result"]["content"][0]["text"] == "hello"
    assert "up__echo" in [tool["name"] for tool in answers[2]["result"]["tools"]]


def test_stdin_may_be_a_file_and_stdout_another(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(INPUT)
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        completed = subprocess.run(
            serve(tmp_path), stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=PATIENCE
        )
    assert completed.returncode == 0
    check((tmp_path / "out").read_bytes())


def test_a_last_line_without_a_newline_is_served(tmp_path: Path) -> None:
    completed = subprocess.run(serve(tmp_path), input=INPUT.rstrip(b"\n"), capture_output=True, timeout=PATIENCE)
    check(completed.stdout)


def test_an_empty_stdin_ends_the_hub(tmp_path: Path) -> None:
    completed = subprocess.run(serve(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    assert (completed.returncode, completed.stdout) == (0, b"")


def test_stdout_and_stderr_may_be_the_same_pipe(tmp_path: Path) -> None:
    completed = subprocess.run(
        serve(tmp_path), input=INPUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE
    )
    check(b"\n".join(line for line in completed.stdout.splitlines() if line.startswith(b"{")))


def test_stdin_and_stdout_may_be_one_socket(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(serve(tmp_path), stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
        theirs.close()
        ours.settimeout(PATIENCE)
        ours.sendall(INPUT)
        ours.shutdown(socket.SHUT_WR)
        output = b""
        while chunk := ours.recv(65536):
            output += chunk
        assert process.wait(PATIENCE) == 0
    check(output)


def test_stdin_may_be_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(serve(tmp_path), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    os.close(theirs)
    try:
        assert process.stdout is not None
        os.write(ours, INPUT)
        lines = []
        while sum(b'"id"' in line for line in lines) < 3:
            lines.append(process.stdout.readline())
        os.write(ours, b"\x04")
        assert process.wait(PATIENCE) == 0
        process.stdout.close()
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    check(b"".join(lines))


def test_output_of_the_hubs_own_code_never_reaches_the_protocol_stream(tmp_path: Path) -> None:
    program = (
        "import atexit, os, sys\n"
        "from mcp_hub.transport import standard_streams\n"
        "claim = standard_streams.claim\n"
        "def noisy():\n"
        "    descriptors = claim()\n"
        "    print('printed'); sys.stdout.flush(); os.write(1, b'written\\n'); os.system('echo from a shell')\n"
        "    assert sys.stdin.read() == ''\n"
        "    return descriptors\n"
        "standard_streams.claim = noisy\n"
        "from mcp_hub.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, *serve(tmp_path)[len(HUB_BY_EXEC) :]]
    completed = subprocess.run(command, input=INPUT, capture_output=True, timeout=PATIENCE)
    check(completed.stdout)
    assert {b"printed", b"written", b"from a shell"} <= set(completed.stderr.splitlines())


@pytest.mark.anyio
async def test_a_client_that_reads_nothing_for_a_while_still_gets_every_answer(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *serve(tmp_path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, limit=2**27,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    big = {"name": "up__big", "arguments": {"bytes": 2**20}}
    for number in range(40):
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": big}
        process.stdin.write(json.dumps(request).encode() + b"\n")
    async with asyncio.timeout(PATIENCE):
        ids = [json.loads(await process.stdout.readline())["id"] for _ in range(40)]
        process.stdin.close()
        assert await process.wait() == 0
    assert sorted(ids) == list(range(40))


def test_requests_that_wait_for_a_starting_server_are_answered_before_shutdown(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"silent": fake("--silent")}, list_wait=60)
    command = [*HUB_BY_EXEC, "serve", "--config", str(config)]
    completed = subprocess.run(command, input=INPUT, capture_output=True, timeout=PATIENCE)
    answers = {message["id"]: message for message in map(json.loads, completed.stdout.splitlines())}
    assert answers[2]["result"]["tools"] == []
    assert answers[3]["error"]["code"] == -32602


def call_of_big(number: int, size: int) -> bytes:
    params = {"name": "up__big", "arguments": {"bytes": size}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode() + b"\n"


def test_unread_output_of_a_client_is_bounded(tmp_path: Path) -> None:
    """Ten results of 8 MB for a client that reads none before the last call has ended: three fit."""
    config = write_config(tmp_path, {"up": fake()}, unread={"caller": "24MB"}, call_log=str(tmp_path / "calls"))
    pipe = subprocess.PIPE
    with subprocess.Popen([*HUB_BY_EXEC, "serve", "--config", str(config)], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(INPUT + b"".join(call_of_big(number, 8_000_000) for number in range(10, 20)))
        process.stdin.flush()
        end = time.monotonic() + PATIENCE
        while len(recorded(tmp_path / "calls")) < 11:
            assert time.monotonic() < end
            time.sleep(0.02)
        messages = [json.loads(process.stdout.readline()) for _ in range(13)]
        process.stdin.close()
    codes = [code_of(message) for message in messages if message["id"] >= 10]
    assert sorted(codes) == ["None"] * 3 + ["overloaded"] * 7


def test_a_reading_client_gets_more_than_the_bound_on_unread_output(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()}, unread={"caller": "64MB"})
    requests = INPUT + b"".join(call_of_big(number, 30_000_000) for number in range(10, 16))
    pipe = subprocess.PIPE
    with subprocess.Popen([*HUB_BY_EXEC, "serve", "--config", str(config)], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(requests)
        process.stdin.flush()
        messages = [json.loads(process.stdout.readline()) for _ in range(9)]
        process.stdin.close()
    assert [code_of(message) for message in messages if message["id"] >= 10] == ["None"] * 6


def recorded(calls: Path) -> list[bytes]:
    return calls.read_bytes().splitlines() if calls.exists() else []


def code_of(message: dict[str, Any]) -> str:
    """The code of a result that is an error."""
    return str(message["result"].get("_meta", {}).get("mcp-hub/error", {}).get("code"))


ENDLESS = """
from mcp_hub import tool

@tool
def endless():
    while True:
        yield "again " * 500
"""


def test_a_client_that_reads_progress_slowly_can_cancel_the_call(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "endless.py").write_text(ENDLESS)
    config = write_config(tmp_path, {"local": {"tools_dir": "tools"}})
    params = {"name": "local__endless", "arguments": {}, "_meta": {"progressToken": "t"}}
    pipe = subprocess.PIPE
    with subprocess.Popen([*HUB_BY_EXEC, "serve", "--config", str(config)], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(message: dict[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()

        def read(until: int) -> int:
            """The bytes read slowly until the answer with this id, at most 24 MiB."""
            assert process.stdout is not None
            size = 0
            while size < 24 * 2**20:
                line = process.stdout.readline()
                size += len(line)
                messages = [json.loads(line) for _ in range(30)]  # which takes a while
                if messages[0].get("id") == until:
                    break
            return size

        process.stdin.write(INPUT.replace(b"up__echo", b"local__none"))
        send({"id": "endless", "method": "tools/call", "params": params})
        assert read(-1) >= 24 * 2**20  # more is told than is read
        send({"method": "notifications/cancelled", "params": {"requestId": "endless"}})
        send({"id": 9, "method": "ping"})
        assert read(9) < 24 * 2**20
        process.stdin.close()
