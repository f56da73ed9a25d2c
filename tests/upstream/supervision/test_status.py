"""`mcp-hub status` shows every running hub, and for each server what a person needs to repair it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.hub import hub_status
from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, hub, spawned, write_config
from tests.fakes.network import network_hub

pytestmark = pytest.mark.anyio

CANARY = "canary-4711-value"


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run"
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(path))
    return path


async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, [*HUB, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


async def status(*arguments: str) -> subprocess.CompletedProcess[str]:
    return await run("status", *arguments)


async def facts() -> list[dict[str, Any]]:
    hubs: list[dict[str, Any]] = json.loads((await status("--json")).stdout)
    return hubs


async def until(client: StdioClient, condition: Any) -> dict[str, dict[str, Any]]:
    """Returns the facts of each server, once they fulfil a condition."""
    async with asyncio.timeout(PATIENCE):
        while True:
            (only_hub,) = await facts()
            servers = {server["server"]: server for server in only_hub["servers"]}
            if condition(servers):
                return servers


async def test_status_shows_each_server_with_its_state_last_error_and_stderr(tmp_path: Path, run_dir: Path) -> None:
    dead = tmp_path / "dead"
    servers = {
        "good": fake(),
        "lost": fake("--die-if", str(dead)),
        "dying": fake("--die", "API_KEY is \x1b[31mnot set", "--leak", "TOKEN", env={"TOKEN": CANARY}),
        "hanging": fake("--silent"),
        "off": {**fake(), "enabled": False},
    }
    config = write_config(tmp_path, servers, list_wait=0.5)
    async with spawned([*HUB, "serve", "--config", str(config)], env={"MCP_HUB_RUNTIME_DIR": str(run_dir)}) as client:
        await client.initialize()
        assert await client.text("good__stderr", {"text": f"a warning \x1b[2J {CANARY}"}) == "written"
        pid = int(await client.text("lost__pid"))
        dead.touch()
        os.kill(pid, signal.SIGKILL)
        server_facts = await until(
            client, lambda servers: servers["lost"]["failures"] >= 2 and servers["dying"]["problem"] is not None
        )
        assert {id: server_facts[id]["state"] for id in ("good", "hanging", "off")} == {
            "good": "ready",
            "hanging": "connecting",
            "off": "disabled",
        }
        assert server_facts["lost"]["state"] in ("backing off", "connecting")
        assert "not now" in server_facts["lost"]["problem"]
        assert "API_KEY is \\x1b[31mnot set" in server_facts["dying"]["problem"]
        # The value is not a secret of this server.
        assert server_facts["good"]["stderr"] == ["a warning \\x1b[2J canary-4711-value"]
        assert server_facts["good"]["era"] == "handshake"
        assert server_facts["good"]["pid"] == int(await client.text("good__pid"))
        slow = client.start("tools/call", {"name": "good__sleep", "arguments": {"seconds": 60}})
        await until(client, lambda servers: servers["good"]["calls"] == 1)
        client.notify("notifications/cancelled", {"requestId": client._last_id})
        await until(client, lambda servers: servers["good"]["calls"] == 0)
        assert not slow.done()
        printed = await status()
        assert printed.returncode == 0
        assert "not now" in printed.stdout
        assert "\x1b" not in printed.stdout
        assert CANARY not in json.dumps(server_facts["dying"])
    after_exit = await status()
    assert (after_exit.returncode, after_exit.stdout) == (1, "no hub is running\n")
    assert not list(run_dir.iterdir())


async def test_status_shows_a_refused_file_and_distinguishes_hubs_by_their_files(tmp_path: Path, run_dir: Path) -> None:
    async with (
        network_hub(tmp_path / "one", {"a": fake()}, watch=False) as (process, base),
        network_hub(tmp_path / "two", {"b": fake()}, watch=False),
    ):
        first, second = await facts()
        assert first["serving"] == [base]
        assert [server["server"] for server in second["servers"]] == ["b"]
        (tmp_path / "one" / "servers.json").write_text('{"servers": 5}')
        process.process.send_signal(signal.SIGHUP)
        await process.until(lambda: b"was not loaded again" in process.stderr)
        printed = await status("--config", str(tmp_path / "one" / "servers.json"))
        assert "NOT in force" in printed.stdout
        assert "servers.json:1: servers: must be a mapping" in printed.stdout
        assert printed.stdout.count("hub ") == 1


async def test_status_and_doctor_say_that_the_pins_as_they_are_now_are_not_in_force(
    tmp_path: Path, run_dir: Path
) -> None:
    config = write_config(tmp_path, {"up": fake()}, pins="warn")
    pins = tmp_path / "servers.pins.json"
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.tool_names()
        assert (await facts())[0]["pins_problem"] is None
        pins.mkdir()
        await client.until(lambda: b"the former pins stay in force" in client.stderr)
        assert f"  the former pins stay in force: {pins}" in (await status()).stdout
        doctor = await run("doctor", "--config", str(config))
        assert re.search(rf"hub {client.process.pid} .*the former pins.*HUB-127", " ".join(doctor.stdout.split()))
        pins.rmdir()
        async with asyncio.timeout(PATIENCE):
            while (await facts())[0]["pins_problem"] is not None:
                pass


async def test_status_and_doctor_say_that_the_call_log_cannot_be_written(tmp_path: Path, run_dir: Path) -> None:
    blocked = tmp_path / "no-directory"
    blocked.write_text("")
    config = write_config(tmp_path, {"up": fake()}, call_log=str(blocked / "calls.jsonl"))
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.tool_names()
        assert (await facts())[0]["call_log_problem"] is None
        await client.text("up__echo", {"text": "x"})
        warning = f"the call log {blocked}/calls.jsonl cannot be written: "
        await client.until(lambda: warning.encode() in client.stderr)
        assert f"  {warning}" in (await status()).stdout
        doctor = await run("doctor", "--config", str(config))
        assert re.search(rf"hub {client.process.pid} .*{re.escape(warning)}", " ".join(doctor.stdout.split()))


def answer_to(path: Path, request: bytes) -> dict[str, Any]:
    """Returns the answer to a request on the socket of a hub."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(str(path))
        client.sendall(request)
        with client.makefile("rb") as answer:
            read: dict[str, Any] = json.load(answer)
    return read


async def test_the_status_socket_is_private_and_answers_only_what_it_knows(tmp_path: Path, run_dir: Path) -> None:
    async with network_hub(tmp_path / "hub", {"a": fake()}):
        (path,) = run_dir.iterdir()
        assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for request in (
            b'{"servers": {"evil": {"command": "sh"}}}\n',
            b'{"ask": 1}\n',
            b"\xff\n",
            b"[]\n",
            b"[" * 100_000,
        ):
            answer = await asyncio.to_thread(answer_to, path, request)
            assert answer["problem"] == "this hub does not know what it was asked"
        answer = await asyncio.to_thread(answer_to, path, b'{"ask": "status"}\n')
        assert [server["server"] for server in answer["servers"]] == ["a"]


async def test_files_left_by_a_killed_hub_are_removed(tmp_path: Path, run_dir: Path) -> None:
    config = write_config(tmp_path, {"a": fake()})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        await client.text("a__pid")
        assert len(list(run_dir.iterdir())) == 1
        client.process.kill()
        await client.exited()
    assert len(list(run_dir.iterdir())) == 1
    assert await facts() == []
    assert not list(run_dir.iterdir())


async def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path, run_dir: Path) -> None:
    run_dir.mkdir(mode=0o777)
    run_dir.chmod(0o777)
    async with network_hub(tmp_path / "hub", {"a": fake()}) as (process, _):
        assert b"`mcp-hub status` finds this hub failed" in process.stderr
        assert not list(run_dir.iterdir())


async def test_a_hub_that_ends_while_hubs_are_looked_for_does_not_hide_the_others(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glob = Path.glob

    def glob_with_an_ended_hub(self: Path, pattern: str) -> list[Path]:
        return [*glob(self, pattern), self / "1.sock"]

    async def no_responses(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {}

    async with hub_status.status_server(lambda: {"pid": 4711}, no_responses):
        monkeypatch.setattr(Path, "glob", glob_with_an_ended_hub)
        hubs = await asyncio.to_thread(lambda: list(hub_status.running_hubs()))
    assert hubs == [{"pid": 4711}]


async def test_status_names_the_items_that_are_left_out(tmp_path: Path, run_dir: Path) -> None:
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "no", "inputSchema": {"type": "string"}}, {"name": "bare"}]}))
    async with hub(tmp_path, {"up": fake("--lists", str(lists))}) as client:
        assert await client.tool_names() == ["up__bare"]
        (note,) = (await until(client, lambda servers: servers["up"]["incomplete"]))["up"]["incomplete"]
    assert note.startswith("the tool no: ")
