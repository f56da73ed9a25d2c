"""Sessions of the handshake era, served by whichever replica a request reaches."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import fakes
from tests.downstream.page.acting import ADMIN, OTHER, act
from tests.downstream.page.opened import OpenPage
from tests.fakes.client import PATIENCE, fake
from tests.fakes.network import sdk, text
from tests.replicas.raw_client import Json, RawClient, Unanswered, code_of, raw, text_of
from tests.replicas.served import Cluster, cluster

pytestmark = pytest.mark.anyio
COUNTING = Path(fakes.__file__).with_name("counting.py")


def of_one_client(tmp_path: Path) -> dict[str, Any]:
    """Returns the entry of a server with one process per client, which can report its pid."""
    args = [str(COUNTING), str(tmp_path / "log"), ""]
    return {"command": sys.executable, "args": args, "session": "client"}


async def test_a_session_is_served_by_every_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}) as served, sdk(f"{served.url}/mcp", "handshake") as client:
        for number in range(12):
            assert await text(client, "up__echo", {"text": str(number)})
            assert (await client.list_tools()).tools


async def test_per_client_server_state_is_kept_at_one_replica(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, {"own": of_one_client(tmp_path)}) as served,
        sdk(f"{served.url}/mcp", "handshake") as first,
        sdk(f"{served.url}/mcp", "handshake") as second,
    ):
        pids = [{await text(client, "own__pid") for _ in range(9)} for client in (first, second)]
    assert [len(pids_of_client) for pids_of_client in pids] == [1, 1]
    assert pids[0] != pids[1]


async def test_per_principal_server_state_of_modern_clients_is_kept_at_one_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"own": of_one_client(tmp_path)}, balanced=False) as served, raw(served.url) as client:
        call = {"name": "own__pid", "arguments": {}}
        pids = {text_of(await client.modern("tools/call", call, url)) for url in served.urls * 2}
    assert len(pids) == 1


async def test_sessions_survive_the_death_of_the_replica_that_opened_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}) as served, raw(served.url) as first, raw(served.url) as second:
        for client in (first, second):
            await client.begin()
        for number in (0, 1):  # one replica is left
            served.kill(number)
            for client in (first, second):
                for _ in range(3):
                    assert text_of(await again(client, "up__echo", {"text": "a"})) == "a"


async def test_the_loss_of_an_owner_is_reported_exactly_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"own": of_one_client(tmp_path)}) as served, raw(served.url) as client:
        await client.begin()
        pid = text_of(await client.call("own__pid"))
        served.kill(owner_of(served, pid))
        assert code_of(await again(client, "own__pid")) == "session_restarted"
        pids = {text_of(await again(client, "own__pid")) for _ in range(6)}
    assert len(pids) == 1
    assert pid not in pids


async def test_a_session_ended_by_its_client_is_unknown_at_every_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        assert text_of(await client.call("up__echo", {"text": "a"}, served.urls[1])) == "a"
        assert await client.end(served.urls[1]) == 204
        for url in served.urls:
            with pytest.raises((Unanswered, KeyError)):
                text_of(await client.call("up__echo", {"text": "a"}, url))


async def test_a_session_ended_on_the_page_is_unknown_at_every_replica(tmp_path: Path) -> None:
    listen = {"ui": True, "principals": {"boss": {"token": ADMIN, "admin": True}, "other": {"token": OTHER}}}
    async with (
        cluster(tmp_path, {"up": fake()}, balanced=False, listen=listen) as served,
        raw(served.url, OTHER) as client,
        raw(served.url, OTHER) as remains,
        httpx2.AsyncClient(base_url=served.urls[1], timeout=PATIENCE) as http,
    ):
        for visitor in (client, remains):
            await visitor.begin()
        assert text_of(await client.call("up__echo", {"text": "a"}, served.urls[1])) == "a"
        page = OpenPage(http, served.urls[1])
        await page.begin(token=ADMIN)
        (listed,) = (await page.found("clients"))["rows"]
        await act(page, "end_session", client=listed["id"])
        for url in served.urls:
            assert (await client.call("up__echo", {"text": "a"}, url))["error"]["message"] == "Session not found"
            assert text_of(await remains.call("up__echo", {"text": "a"}, url)) == "a"


async def test_a_session_belongs_to_its_principal_at_every_replica(tmp_path: Path) -> None:
    listen = {"principals": {"ann": {"token": "a" * 40}, "bob": {"token": "b" * 40}}}
    async with (
        cluster(tmp_path, {"up": fake()}, 2, balanced=False, listen=listen) as served,
        raw(served.url, "a" * 40) as ann,
        raw(served.url, "b" * 40) as bob,
    ):
        await ann.begin()
        bob.session = ann.session
        assert text_of(await ann.call("up__echo", {"text": "a"}, served.urls[1])) == "a"
        for url in served.urls:
            assert (await bob.call("up__echo", {"text": "a"}, url))["error"]["message"] == "Session not found"


async def test_a_paused_replica_drops_what_another_replica_took_over(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, {"own": of_one_client(tmp_path)}, 2, balanced=False) as served,
        raw(served.urls[0]) as client,
        raw(served.urls[1]) as second_client,
    ):
        await client.begin()
        pid = text_of(await client.call("own__pid"))
        served.signal(0, signal.SIGSTOP)
        second_client.session = client.session
        assert code_of(await again(second_client, "own__pid")) == "session_restarted"
        second_pid = text_of(await again(second_client, "own__pid"))
        served.signal(0, signal.SIGCONT)
        assert text_of(await again(client, "own__pid")) == second_pid
        await exit_of(pid)
    assert second_pid != pid


async def test_a_store_outage_longer_than_a_lease_loses_no_open_session(tmp_path: Path) -> None:
    servers = {"own": of_one_client(tmp_path), "up": fake()}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        pid = text_of(await client.call("own__pid"))
        served.store.pause()
        async with asyncio.timeout(PATIENCE):
            while code_of(await client.call("own__pid")) != "store_unavailable":
                pass
        for url in served.urls:
            assert text_of(await client.call("up__echo", {"text": "a"}, url)) == "a"
        served.store.resume()
        assert text_of(await again(client, "own__pid")) == pid
        assert text_of(await again(client, "own__pid", url=served.urls[1])) == pid


async def again(client: RawClient, name: str, arguments: Json | None = None, url: str | None = None) -> Json:
    """Calls until there is an answer, as a client repeats a call that a killed replica did not answer."""
    passing = ("store_unavailable", "server_unavailable")
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                answer = await client.call(name, arguments, url)
            except Unanswered:
                continue
            if code_of(answer) not in passing:
                return answer


def owner_of(served: Cluster, pid: str) -> int:
    """Returns the number of the replica that started a process."""
    replica_pids, ancestor = [process.process.pid for process, _ in served.replicas], int(pid)
    while ancestor not in replica_pids:
        ancestor = int(Path(f"/proc/{ancestor}/stat").read_text().rpartition(")")[2].split()[1])
    return replica_pids.index(ancestor)


async def exit_of(pid: str) -> None:
    """Waits until a process is gone."""
    async with asyncio.timeout(PATIENCE):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
