"""systemd's own program opens the sockets, and the hub that it starts with the first client serves them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import httpx2
import pytest

from tests.fakes.client import HUB, PATIENCE, fake, free_port, spawned, write_config

pytestmark = pytest.mark.anyio

ACTIVATE = "systemd-socket-activate"


async def test_the_first_client_starts_the_hub_by_socket_activation_on_both_sockets(tmp_path: Path) -> None:
    assert shutil.which(ACTIVATE), "run scripts/peers"
    config = write_config(tmp_path, {"up": fake()}, listen={"host": "192.0.2.1", "port": 1})
    port, path = free_port(), tmp_path / "hub.sock"
    argv = [ACTIVATE, "-l", f"127.0.0.1:{port}", "-l", str(path), "--fdname=web:local"]
    async with spawned([*argv, *HUB, "serve", "--http", "--config", str(config)]) as hub:
        await hub.until(lambda: hub.stderr.count(b"Listening on") == 2)
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            # The connection waits in the queue of the socket until the hub, which it starts, has taken it over.
            assert (await http.get(f"http://127.0.0.1:{port}/healthz")).json() == {"status": "ok"}
        reader, writer = await asyncio.open_unix_connection(path)
        async with asyncio.timeout(PATIENCE):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
        writer.close()
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"status": "ok"}
        hub.process.terminate()
        assert await hub.exited() == 0
    assert path.is_socket()
