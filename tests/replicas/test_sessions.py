"""Sessions of the handshake era, served by whichever replica a request reaches."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests import fakes
from tests.fakes.client import PATIENCE, fake
from tests.fakes.network import sdk, text
from tests.replicas.served import Cluster, cluster

pytestmark = pytest.mark.anyio
COUNTING = Path(fakes.__file__).with_name("counting.py")


def of_one_client(tmp_path: Path) -> dict[str, Any]:
    """A server with a process for each client, which says its pid."""
    args = [str(COUNTING), str(tmp_path / "log"), ""]
    return {"command": sys.executable, "args": args, "session": "client"}


async def test_a_session_is_served_by_every_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}) as served, sdk(f"{served.url}/mcp", "handshake") as client:
        for number in range(12):
            assert await text(client, "up__echo", {"text": str(number)})
            assert (await client.list_tools()).tools


async def test_what_a_server_keeps_for_one_client_is_kept_at_one_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"own": of_one_client(tmp_path)}) as served:
        async with sdk(f"{served.url}/mcp", "handshake") as one, sdk(f"{served.url}/mcp", "handshake") as other:
            pids = [{await text(client, "own__pid") for _ in range(9)} for client in (one, other)]
    assert [len(found) for found in pids] == [1, 1]
    assert pids[0] != pids[1]


async def test_sessions_outlive_the_replica_that_they_began_at(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}) as served:
        async with sdk(f"{served.url}/mcp", "handshake") as one, sdk(f"{served.url}/mcp", "handshake") as other:
            for number in (0, 1):  # one replica is left
                served.kill(number)
                for client in (one, other):
                    assert await again(client, "up__echo", {"text": "a"})


async def test_the_loss_of_an_owner_is_said_once_and_never_hidden(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"own": of_one_client(tmp_path)}) as served:
        async with sdk(f"{served.url}/mcp", "handshake") as client:
            pid = await text(client, "own__pid")
            owner = await owner_of(served, pid)
            served.kill(owner)
            with pytest.raises(MCPError) as raised:
                while await again(client, "own__pid") == pid:
                    pass
            assert raised.value.error.data["code"] == "session_restarted"
            pids = {await text(client, "own__pid") for _ in range(6)}
    assert len(pids) == 1
    assert pid not in pids


async def again(client: Any, name: str, arguments: dict[str, Any] | None = None) -> str:
    """Calls until there is an answer: a client sends again what a replica that was killed did not answer."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await text(client, name, arguments)
            except MCPError as error:
                if (error.error.data or {}).get("code") == "session_restarted":
                    raise


async def owner_of(served: Cluster, pid: str) -> int:
    """The replica that has started a process."""
    known, asked = [process.process.pid for process, _ in served.replicas], int(pid)
    while asked not in known:
        asked = int(Path(f"/proc/{asked}/stat").read_text().rpartition(")")[2].split()[1])
    return known.index(asked)
