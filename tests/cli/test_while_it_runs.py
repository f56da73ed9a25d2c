"""Commands while they run: interrupted by the user, started on a network, next to servers that do not answer."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import cli
from tests.cli.test_commands import run
from tests.fakes.client import HUB, PATIENCE, fake, spawned, write_config

pytestmark = pytest.mark.anyio


def interruptible(argv: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a command that Ctrl-C ends, even where whoever runs the tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(argv, start_new_session=True, **options)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("command", "options", "reached"),
    [
        (["check"], ["--silent"], b'"method"'),
        (["tools"], ["--silent"], b'"method"'),
        (["call", "up__sleep"], [], b'"tools/call"'),
    ],
)
def test_an_interrupted_command_exits_130_and_shows_no_traceback(
    tmp_path: Path, command: list[str], options: list[str], reached: bytes
) -> None:
    record = tmp_path / "record"
    os.mkfifo(record)
    # Opened for writing as well: it has no end while the server opens and closes it for every message.
    descriptor = os.open(record, os.O_RDWR | os.O_NONBLOCK)
    config = write_config(tmp_path, {"up": fake(*options, "--record", str(record))})
    argv, pipe = [*HUB, *command, "--config", str(config)], subprocess.PIPE
    process = interruptible(argv, stdout=pipe, stderr=pipe)
    received = b""
    try:
        while reached not in received:
            assert select.select([descriptor], [], [], PATIENCE)[0], f"the server heard only {received!r}"
            received += os.read(descriptor, 65536)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        os.close(descriptor)
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_an_interrupt_while_a_command_is_imported_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> Any:
        raise KeyboardInterrupt(name)

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert cli.main(["check"]) == 130


def test_what_is_imported_before_interrupts_are_handled_is_little() -> None:
    code = "import sys, mcp_hub.cli; print(*[name for name in sys.modules if name.startswith('mcp_hub.')])"
    argv = [sys.executable, "-c", code]
    modules = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.split()
    assert sorted(modules) == ["mcp_hub.cli", "mcp_hub.codes", "mcp_hub.errors", "mcp_hub.text", "mcp_hub.version"]


async def announced(directory: Path, servers: dict[str, Any], *options: str, **environ: str) -> str:
    config = write_config(directory, servers, list_wait="10s")
    argv = [*HUB, "serve", *options, "--port", "0", "--config", str(config)]
    async with spawned(argv, env=environ) as client:
        last = f"\n  {list(servers)[-1]}: ".encode()
        await client.until(lambda: last in client.stderr)
        client.process.send_signal(signal.SIGTERM)
        assert await client.exited() == 0
        return client.stderr.decode()


async def test_a_network_hub_prints_its_urls_and_its_servers(tmp_path: Path) -> None:
    servers = {
        "good": fake(),
        "dead": {"command": "no-such-command"},
        "dying": fake("--die", "\x1b[31mred"),
        "off": fake(enabled=False),
        "keyed": fake(env={"KEY": "${MCP_HUB_TEST_UNSET}"}),
        "last": fake("--tools", "20"),
    }
    output = await announced(tmp_path, servers, "--sse")
    for path in ("mcp", "sse"):
        assert re.search(rf"^  http://127\.0\.0\.1:\d+/{path}$", output, re.MULTILINE)
    assert re.search(r"claude mcp add --transport http hub http://127\.0\.0\.1:\d+/mcp$", output, re.MULTILINE)
    assert "Serving 50 tools, 2 resources, 2 resource templates, 2 prompts:" in output
    assert re.search(r"^  good: good__echo, .* … 7 more$", output, re.MULTILINE)
    for name, reason in (("dead", "the command 'no-such-command' was not found"), ("dying", "its last words")):
        assert output.count(reason) == 1
        assert output.index(reason) < output.index(f"\n  {name}: unavailable; the reason is above\n")
    assert re.search(r"^  off: switched off: by the configuration$", output, re.MULTILINE)
    assert re.search(r"^  keyed: switched off: .*MCP_HUB_TEST_UNSET", output, re.MULTILINE)
    assert "\x1b" not in output


async def test_the_client_configuration_that_serve_prints_has_no_token(tmp_path: Path) -> None:
    token = "0123456789abcdef" * 3
    output = await announced(tmp_path, {"up": fake()}, "--http", "--host", "0.0.0.0", MCP_HUB_TOKEN=token)
    assert token not in output
    assert '--header "Authorization: Bearer YOUR_TOKEN"' in output
    assert "/sse" not in output
    assert "http://0.0.0.0" not in output.split("Paste into a client:")[1]


async def test_the_client_configuration_that_serve_prints_has_the_public_host(tmp_path: Path) -> None:
    output = await announced(tmp_path, {"up": fake()}, "--http", "--public-host", "hub.example", MCP_HUB_TOKEN="t" * 32)
    pasted = output.split("Paste into a client:")[1].split("Serving")[0]
    assert pasted.count("https://hub.example/mcp") == 2
    assert "127.0.0.1" not in pasted
    assert re.search(r"^  http://127\.0\.0\.1:\d+/mcp$", output, re.MULTILINE)


async def test_lines_of_the_log_of_a_running_hub_have_the_local_time_and_its_zone(tmp_path: Path) -> None:
    output = await announced(tmp_path, {"dead": {"command": "no-such-command"}, "up": fake()}, "--http", TZ="UTC-5:30")
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0530"
    assert re.search(rf"^mcp-hub: {time} warning: dead is not available", output, re.MULTILINE)


def read_terminal(terminal: int, until: bytes) -> bytes:
    """Reads what a program prints on its terminal until `until` appears."""
    output = b""
    while until not in output:
        assert select.select([terminal], [], [], PATIENCE)[0], f"the terminal has shown only {output!r}"
        output += os.read(terminal, 65536)
    return output


def wait_for_exit(child: int) -> int:
    """Waits for the end of a child, and returns its exit code; one that does not end is killed."""
    pidfd = os.pidfd_open(child)
    try:
        if not select.select([pidfd], [], [], PATIENCE)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(pidfd)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


CALL = [
    {"id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/call", "params": {
        "name": "up__count", "arguments": {"steps": 10_000, "pause": 0.2}, "_meta": {"progressToken": "p"}}},
]  # fmt: skip


@pytest.mark.parametrize("calling", [False, True])
def test_serve_at_a_terminal_prints_what_it_waits_for_and_how_to_stop_it(tmp_path: Path, calling: bool) -> None:
    config = str(write_config(tmp_path, {"up": fake()}))
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.execv(HUB[0], [*HUB, "serve", "--config", config])
    try:
        greeting = read_terminal(terminal, b"Ctrl-C ends this.").decode()
        assert "mcp-hub waits for the messages of a client on stdin" in greeting
        assert f"claude mcp add hub -- mcp-hub serve --config {config}" in greeting
        for message in CALL if calling else ():
            os.write(terminal, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        if calling:
            read_terminal(terminal, b"notifications/progress")
        os.write(terminal, b"\x03")
        waits = b"1 call, then for the servers" if calling else b"the servers"
        assert b"waits some seconds for " + waits + b" to end" in read_terminal(terminal, b"at once")
    finally:
        code = wait_for_exit(child)
        os.close(terminal)
    assert code == 0


def test_the_list_of_tools_fits_the_terminal(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "wide.py").write_text(f'from mcp_hub import tool\n@tool\ndef wide() -> str:\n    """{"word " * 60}"""\n')
    config = str(write_config(tmp_path, {"local": {"tools_dir": str(tools)}}))
    assert len(run("tools", "--config", config).stdout.rstrip("\n")) > 120
    child, terminal = pty.fork()
    if child == 0:
        os.environ["COLUMNS"] = "60"
        os.execv(HUB[0], [*HUB, "tools", "--config", config])
    try:
        output = read_terminal(terminal, b"\xe2\x80\xa6\r\n").decode()
    finally:
        wait_for_exit(child)
        os.close(terminal)
    line = output[output.index("local__wide") :].splitlines()[0]
    assert 50 < len(line) <= 61


def test_the_table_of_check_never_cuts_the_name_of_a_server(tmp_path: Path) -> None:
    name = "a-server-with-quite-a-long-name"
    config = str(write_config(tmp_path, {name: {"command": "no-such-command"}}))
    child, terminal = pty.fork()
    if child == 0:
        os.environ["COLUMNS"] = "60"
        os.execv(HUB[0], [*HUB, "check", "--config", config])
    try:
        output = read_terminal(terminal, b"server works\r\n").decode()
    finally:
        wait_for_exit(child)
        os.close(terminal)
    table = output[output.index("seconds") :].partition(f"{name}: ")[0].splitlines()[1:]
    printed_name = "".join(re.match(r"[a-z-]*", line)[0] for line in table)  # type: ignore[index]
    assert printed_name == name


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_listening_on_a_foreign_address_exits_1_without_a_traceback(tmp_path: Path, host: str) -> None:
    config = str(write_config(tmp_path, {}))
    done = run("serve", "--http", "--host", host, "--port", "0", "--config", config, MCP_HUB_TOKEN="t" * 32)
    assert done.returncode == 1
    assert host in done.stderr
    assert "Traceback" not in done.stderr


def test_check_names_the_deadline_a_silent_server_missed_and_where_to_change_it(tmp_path: Path) -> None:
    servers = {"mute": fake("--silent", deadlines={"connect": "1s"}), "good": fake()}
    done = run("check", "--config", str(write_config(tmp_path, servers)))
    assert done.returncode == 0
    assert "mute: it did not answer the handshake within 1 s (setting: servers.mute.deadlines.connect)" in done.stdout
    assert re.search(r"good +ok", done.stdout)


def test_check_shows_the_first_of_many_warnings_and_every_conflict_that_is_forbidden(tmp_path: Path) -> None:
    servers = {"loop": fake("--cursor-loop", namespace=""), "same": fake(namespace="")}
    config = str(write_config(tmp_path, servers, on_conflict="raise"))
    done = run("check", "--config", config)
    assert done.returncode == 1
    assert done.stdout.count("warning: loop: tool ") == 10
    assert "warning: loop: 5 more; --json has them all\n" in done.stdout
    assert done.stdout.count("error: same: tool ") == 15
    assert run("check", "--json", "--config", config).stdout.count("listed twice") == 15
