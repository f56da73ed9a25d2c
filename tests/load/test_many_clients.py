"""A thousand clients with equal ids call at once: each gets its own answers, and calls beyond a limit an error."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_hub.transport.http1.listening_sockets import connections_possible
from tests.fakes.client import fake
from tests.fakes.network import network_hub
from tests.load.clients import PATIENCE, Era, calling, closed, opened
from tests.load.slow import slow_clients

pytestmark = pytest.mark.anyio

CLIENTS = 1000
CALLS = 5


@pytest.fixture(autouse=True, scope="module")
def descriptors() -> None:
    """This process has as many sockets as the hub; many systems give it fewer until it asks."""
    assert connections_possible() >= CLIENTS


@contextlib.asynccontextmanager
async def listening(directory: Path, **entries: dict) -> AsyncIterator[int]:
    """Starts a hub, and yields its port."""
    async with network_hub(directory, {"up": fake(), **entries}) as (_, base):
        yield int(base.rpartition(":")[2])


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_thousand_clients_with_equal_ids_get_their_own_answers(tmp_path: Path, era: Era) -> None:
    async with listening(tmp_path) as port:
        clients = await opened(port, era, CLIENTS)
        tally = await calling(clients, CALLS, "up__echo")
        assert tally.outcomes == {"own": CLIENTS * CALLS}
        await closed(clients)


async def test_calls_beyond_the_limit_get_an_error_code_and_none_is_lost(tmp_path: Path) -> None:
    async with listening(tmp_path, tight=fake(limits={"at_once": 2, "waiting": 8})) as port:
        clients = await opened(port, "handshake", 200)
        tally = await calling(clients, 1, "tight__echo")
        assert set(tally.outcomes) <= {"own", "overloaded"}
        assert tally.outcomes.total() == 200
        assert tally.outcomes["own"] >= 10
        await closed(clients)


async def test_requests_beyond_the_slots_are_refused_while_others_hang(tmp_path: Path) -> None:
    record = tmp_path / "record"
    entry = fake("--record", str(record), limits={"at_once": 2, "waiting": 0})
    async with listening(tmp_path, full=entry) as port:
        clients = await opened(port, "handshake", 200)
        hanging = asyncio.create_task(calling(clients[:2], 1, "full__sleep", seconds=600))
        async with asyncio.timeout(PATIENCE):
            while record.read_bytes().count(b'"sleep"') < 2:
                await clients[2].post("ping", None, 1)
        assert (await calling(clients[2:], 1, "full__echo")).outcomes == {"overloaded": 198}
        assert (await calling(clients[2:], 1, "up__echo")).outcomes == {"own": 198}
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        await closed(clients)


async def test_a_client_with_many_waiting_calls_does_not_delay_others_until_all_are_done(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with listening(tmp_path, narrow=fake("--record", str(record), limits={"at_once": 1})) as port:
        greedy, (holder, modest) = await opened(port, "handshake", 200), await opened(port, "handshake", 2)
        holder.send("tools/call", {"name": "narrow__sleep", "arguments": {"seconds": 600}}, 1)
        async with asyncio.timeout(PATIENCE):
            while b'"sleep"' not in record.read_bytes():
                await modest.post("ping", None, 1)
        for request_id, client in enumerate(greedy):  # one session on many connections: one caller
            client.session = greedy[0].session
            client.send("tools/call", {"name": "narrow__echo", "arguments": {"text": "greedy"}}, request_id)
        modest.send("tools/call", {"name": "narrow__echo", "arguments": {"text": "modest"}}, 1)
        await holder.close()  # its call is cancelled: the waiting calls run one after the other
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(client.answer() for client in (*greedy, modest)))
        assert all("result" in answer for _, answer in answers)
        carried_out = re.findall(rb'"(greedy|modest)"', record.read_bytes())
        assert carried_out.count(b"greedy") == 200
        assert carried_out.index(b"modest") < 100
        await closed([*greedy, modest])


async def test_slow_clients_of_every_kind_do_not_block_other_clients(tmp_path: Path) -> None:
    async with listening(tmp_path) as port, slow_clients(port, 200, "up__big"):
        clients = await opened(port, "handshake", 50)
        assert (await calling(clients, CALLS, "up__echo")).outcomes == {"own": 50 * CALLS}
        await closed(clients)


async def test_a_hanging_server_does_not_block_calls_to_other_servers(tmp_path: Path) -> None:
    async with listening(tmp_path, slow=fake()) as port:
        waiting, clients = await opened(port, "handshake", 100), await opened(port, "modern", 50)
        hanging = asyncio.create_task(calling(waiting, 1, "slow__sleep", seconds=600))
        assert (await calling(clients, CALLS, "up__echo")).outcomes == {"own": 50 * CALLS}
        hanging.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(hanging, return_exceptions=True)
        await closed([*waiting, *clients])
