"""The hub's own files, hubs that run, PATH and the browser: each fault is told with the code of its cure."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.diagnosis.installation import own_command
from mcp_hub.hub.hub_status import running_hubs
from tests.diagnosis.looking import configured, findings, reported_codes, script
from tests.fakes.client import HUB, PATIENCE, fake, spawned

pytestmark = pytest.mark.anyio


def test_a_cache_that_is_open_to_others_is_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o755)
    (tmp_path / "cache").chmod(0o755)
    config = configured(tmp_path, {}, cache_dir="cache")
    assert codes.STATE_NOT_PRIVATE in reported_codes(config)
    reported_codes(config, "--fix", "--yes")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert codes.STATE_NOT_PRIVATE not in reported_codes(config)


@pytest.mark.parametrize("root", [{"cache_dir": "file/cache"}, {"state_file": "file/state"}, {"token_dir": "file"}])
def test_a_state_path_that_cannot_be_written_is_diagnosed(tmp_path: Path, root: dict[str, Any]) -> None:
    (tmp_path / "file").write_text("")
    assert codes.STATE_NOT_WRITABLE in reported_codes(configured(tmp_path, {}, **root))


@contextlib.contextmanager
def posing(path: Path, answer: bytes) -> Iterator[None]:
    """Listens as a hub does, and answers every status request alike; with b"" it never answers."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    stack.enter_context(accepted)
                    if answer:
                        accepted.recv(4096)
                        accepted.sendall(answer)
                        accepted.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # a close alone does not end `accept`
            thread.join(PATIENCE)


def test_a_hub_that_does_not_answer_is_diagnosed(tmp_path: Path, run_dir: Path) -> None:
    with posing(run_dir / "4711.sock", b""):
        results = findings(configured(tmp_path, {}))
    assert [finding["about"] for finding in results if finding["code"] == codes.HUB_SILENT] == ["hub 4711"]


def test_a_hub_of_another_version_is_diagnosed(tmp_path: Path, run_dir: Path) -> None:
    facts = {"pid": 4711, "version": "0.0.1", "config": "/x", "serving": ["stdio"], "servers": []}
    with posing(run_dir / "4711.sock", json.dumps(facts).encode()):
        assert codes.HUB_OUTDATED in reported_codes(configured(tmp_path, {}))


async def until_found(config: Path, code: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while code not in await asyncio.to_thread(reported_codes, config):
            await asyncio.sleep(0)


async def test_a_running_hub_with_an_outdated_configuration_is_diagnosed(tmp_path: Path, run_dir: Path) -> None:
    config = configured(tmp_path, {"up": fake()})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        config.write_text("{")
        await until_found(config, codes.FILE_NOT_IN_FORCE)


async def test_a_server_of_a_running_hub_that_does_not_answer_pings_is_diagnosed(tmp_path: Path, run_dir: Path) -> None:
    switch = tmp_path / "hang"
    config = configured(tmp_path, {"up": fake("--hang-if", str(switch), health={"ping": "1s"})})
    other_config = configured(tmp_path / "run", {})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        await client.request("tools/list")
        switch.touch()
        await until_found(other_config, codes.PING_UNANSWERED)


async def test_a_socket_of_a_hub_that_was_killed_is_diagnosed(tmp_path: Path, run_dir: Path) -> None:
    config = configured(tmp_path, {})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        async with asyncio.timeout(PATIENCE):
            while not (hubs := list(running_hubs())):
                await asyncio.sleep(0)
        os.kill(hubs[0]["pid"], signal.SIGKILL)
        await client.process.wait()
    (socket_path,) = run_dir.glob("*.sock")
    assert codes.SOCKET_LEFT_OVER in await asyncio.to_thread(reported_codes, config)
    assert socket_path.exists()
    await asyncio.to_thread(reported_codes, config, "--fix", "--yes")
    assert not socket_path.exists()


def test_a_command_that_is_not_on_path_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path, {})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert codes.NOT_ON_PATH in reported_codes(config)
    script(tmp_path, "mcp-hub", "#!/usr/bin/env node\n")
    assert codes.OTHER_ON_PATH in reported_codes(config)
    monkeypatch.setenv("PATH", f"{own_command().parent}{os.pathsep}{tmp_path}")
    assert not {codes.NOT_ON_PATH, codes.OTHER_ON_PATH} & reported_codes(config)
    script(tmp_path, "mcp-hub", f"#!{sys.executable}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not {codes.NOT_ON_PATH, codes.OTHER_ON_PATH} & reported_codes(config)


def test_a_browser_that_is_missing_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_HUB_CHROMIUM", str(tmp_path / "no-such-browser"))
    assert codes.BROWSER_MISSING in reported_codes(configured(tmp_path, {"web": {"builtin": "browser"}}))


def test_a_browser_without_its_sandbox_is_diagnosed(tmp_path: Path) -> None:
    is_reported = codes.BROWSER_WITHOUT_SANDBOX in reported_codes(configured(tmp_path, {"web": {"builtin": "browser"}}))
    assert is_reported is (os.getuid() == 0)
