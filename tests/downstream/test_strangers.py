"""Connections that nobody was let in on: they count from their first moment, end in time and give way to others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream.refusal_log import RefusalLog
from mcp_hub.transport.http1 import listener, listening_sockets, server_connection
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest
from mcp_hub.transport.http1.listener import NEWCOMER, SHARE, ConnectionSlots
from mcp_hub.transport.http1.tls_server import TlsHandshake
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.network.test_tls import certificate
from tests.downstream.raw_http import BOTH, Connection, call, connected, initialized, message, request
from tests.downstream.scripted import Served, serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio

TOKEN = "t" * 32
BEARER = [("Authorization", f"Bearer {TOKEN}")]
PLACES = 200


@pytest.fixture(params=["plain", "TLS"])
def listen(request: pytest.FixtureRequest, tmp_path: Path) -> Listen:
    tls = certificate(tmp_path) if request.param == "TLS" else None
    return Listen.model_validate({"port": 0, "token": TOKEN, "tls": tls})


@contextlib.asynccontextmanager
async def visiting(served: Served, listen: Listen) -> AsyncIterator[Connection]:
    """A connection that speaks TLS where the listener does."""
    context = None
    if listen.tls is not None:
        context = ssl.create_default_context(cafile=listen.tls.cert)
    async with asyncio.timeout(HANG_BOUND):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


async def status(connection: Connection, served: Served, token: bool = True) -> int:
    lines = [*BOTH, *(BEARER if token else [])]
    connection.send(request(served, "POST", "/mcp", lines, message("initialize", {})))
    return (await connection.response()).status


@contextlib.asynccontextmanager
async def silent(served: Served, count: int) -> AsyncIterator[list[Connection]]:
    """Opens `count` connections that never send anything."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(served)) for _ in range(count)]


async def test_hundreds_of_silent_connections_do_not_block_a_client(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    monkeypatch.setattr(listening_sockets, "MAX_CONNECTIONS", PLACES)
    async with serving(listen) as served, silent(served, 3 * PLACES) as strangers:
        for _ in range(5):
            async with visiting(served, listen) as client:
                assert await status(client, served) == 200
        assert await strangers[0].ended()
        assert served.app.refusals.counts["crowded"] >= 2 * PLACES


async def test_unauthenticated_connections_do_not_evict_authenticated_ones(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    monkeypatch.setattr(listening_sockets, "MAX_CONNECTIONS", 8)
    async with serving(listen) as served, visiting(served, listen) as client:
        assert await status(client, served) == 200
        async with silent(served, 40):
            assert await status(client, served) == 200


async def test_a_connection_is_refused_if_authenticated_ones_have_all_slots(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    monkeypatch.setattr(listening_sockets, "MAX_CONNECTIONS", 2)
    async with serving(listen) as served, visiting(served, listen) as first, visiting(served, listen) as second:
        assert [await status(connection, served) for connection in (first, second)] == [200, 200]
        async with connected(served) as third:
            assert await third.ended()
        assert served.app.refusals.counts == {"full": 1}
        assert served.dispatcher.refusals == [{"peer": "127.0.0.1", "cause": "full", "status": 503}]


async def test_a_refused_request_does_not_authenticate_its_connection(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    monkeypatch.setattr(listening_sockets, "MAX_CONNECTIONS", 2)
    async with serving(listen) as served, visiting(served, listen) as stranger:
        assert await status(stranger, served, token=False) == 401
        async with visiting(served, listen) as first, visiting(served, listen) as second:
            assert [await status(connection, served) for connection in (first, second)] == [200, 200]
            assert await stranger.ended()


async def test_a_connection_that_stays_silent_ends_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch, listen: Listen
) -> None:
    monkeypatch.setattr(server_connection, "HEAD_DEADLINE", 0.2)
    async with serving(listen) as served, connected(served) as stranger:
        assert await stranger.ended()
        cause = "tls" if listen.tls is not None else "head_too_slow"
        assert served.dispatcher.refusals == [{"peer": "127.0.0.1", "cause": cause, "status": None}]


async def test_a_client_that_is_silent_after_its_tls_handshake_ends_at_the_same_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server_connection, "HEAD_DEADLINE", 2.0)  # so long that a slow machine has shaken hands
    tls = certificate(tmp_path)

    def read_all(port: int) -> None:
        """Shake hands, then read without TLS, so that nothing is answered to the end of the other side."""
        context = ssl.create_default_context(cafile=tls["cert"])
        with (
            socket.create_connection(("127.0.0.1", port), HANG_BOUND) as plain,
            context.wrap_socket(plain.dup(), server_hostname="127.0.0.1"),
        ):
            while plain.recv(65536):
                pass

    async with serving(Listen.model_validate({"port": 0, "tls": tls})) as served:
        await asyncio.to_thread(read_all, served.port)
        assert served.app.refusals.counts == {"head_too_slow": 1}


async def test_a_silent_tls_handshake_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    listen = Listen.model_validate({"port": 0, "tls": certificate(tmp_path)})
    async with serving(listen, grace=0.05) as served, silent(served, 3):
        served.stop.set()
        await asyncio.wait_for(asyncio.shield(served.task), HANG_BOUND)


async def test_a_large_exchange_passes_over_tls(tmp_path: Path) -> None:
    listen = Listen.model_validate({"port": 0, "token": TOKEN, "tls": certificate(tmp_path)})
    text = "x" * 1_000_000
    async with serving(listen) as served, visiting(served, listen) as client:
        assert await status(client, served) == 200
        client.send(request(served, "POST", "/mcp", [*BOTH, *BEARER], message("initialize", {})))
        session = (await client.response()).headers["mcp-session-id"]
        lines = [*BOTH, *BEARER, ("Mcp-Session-Id", session)]
        client.send(request(served, "POST", "/mcp", lines, call("echo", {"text": text})))
        assert (await client.response()).json["result"]["content"][0]["text"] == text


async def test_many_clients_of_this_machine_are_served_at_the_same_time() -> None:
    async with serving() as served, silent(served, 300) as clients:
        lines = await initialized(served)
        for client in clients:
            client.send(request(served, "POST", "/mcp", lines, call("echo", {"text": "hi"})))
        for client in clients:
            assert (await client.response()).status == 200


# --- the bound of one address ------------------------------------------------------------------------------------


class Line:
    """A connection as `ConnectionSlots` sees it."""

    def __init__(self) -> None:
        self.dropped = False

    def shut(self) -> None:
        self.dropped = True

    abort = shut


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def acquire_slots(slots: ConnectionSlots, peers: list[str]) -> list[Line]:
    lines = [Line() for _ in peers]
    assert all(slots.acquire(line, peer) is not None for line, peer in zip(lines, peers, strict=True))
    return lines


def open_count(lines: list[Line]) -> int:
    return sum(not line.dropped for line in lines)


def test_an_address_above_its_connection_share_loses_its_own_oldest_connection() -> None:
    clock = Clock()
    slots = ConnectionSlots(100, RefusalLog(), clock=clock)
    other_lines, own_lines = (
        acquire_slots(slots, ["192.0.2.1"] * 5),
        acquire_slots(slots, ["192.0.2.7"] * (100 // SHARE)),
    )
    clock.now = NEWCOMER
    own_lines += acquire_slots(slots, ["192.0.2.7"] * 10)
    assert (open_count(other_lines), open_count(own_lines)) == (5, 100 // SHARE)
    assert [line.dropped for line in own_lines] == [True] * 10 + [False] * (100 // SHARE)


def test_a_burst_of_starting_clients_is_not_limited() -> None:
    slots = ConnectionSlots(100, RefusalLog(), clock=Clock())
    lines = acquire_slots(slots, ["192.0.2.7"] * 100)
    assert open_count(lines) == 100


def test_an_address_above_its_share_of_connections_returns_to_it() -> None:
    clock = Clock()
    slots = ConnectionSlots(100, RefusalLog(), clock=clock)
    lines = acquire_slots(slots, ["192.0.2.7"] * 100)
    for _ in range(100):
        clock.now += NEWCOMER
        lines += acquire_slots(slots, ["192.0.2.7"])
    assert open_count(lines) == 100 // SHARE


def test_addresses_of_one_ipv6_network_share_one_limit() -> None:
    clock = Clock()
    slots = ConnectionSlots(100, RefusalLog(), clock=clock)
    lines = acquire_slots(slots, [f"2001:db8::{number:x}" for number in range(100 // SHARE)])
    clock.now = NEWCOMER
    lines += acquire_slots(slots, ["2001:db8::ffff:1", "2001:db8:0:1::1"])
    assert open_count(lines) == 100 // SHARE + 1


def test_ipv4_addresses_in_the_form_of_ipv6_have_a_share_each() -> None:
    clock = Clock()
    slots = ConnectionSlots(100, RefusalLog(), clock=clock)
    lines = acquire_slots(slots, [f"::ffff:192.0.2.{number}" for number in range(100 // SHARE)])
    clock.now = NEWCOMER
    lines += acquire_slots(slots, ["::ffff:198.51.100.1"])
    assert open_count(lines) == 100 // SHARE + 1


def test_authenticated_connections_do_not_count_against_their_address_share() -> None:
    clock = Clock()
    slots = ConnectionSlots(100, RefusalLog(), clock=clock)
    authenticated = [Line() for _ in range(90)]
    for line in authenticated:
        slot = slots.acquire(line, "192.0.2.7")
        assert slot is not None
        slots.let_in(slot)
    clock.now = NEWCOMER
    assert open_count(acquire_slots(slots, ["192.0.2.7"] * 50)) == 10
    assert open_count(authenticated) == 90


def test_a_trusted_proxy_has_no_connection_share() -> None:
    clock = Clock()
    slots = ConnectionSlots(100, RefusalLog(), lambda peer: peer == "192.0.2.7", clock)
    lines = acquire_slots(slots, ["192.0.2.7"] * 90)
    clock.now = NEWCOMER
    lines += acquire_slots(slots, ["192.0.2.7"] * 10)
    assert open_count(lines) == 100


def test_a_proxied_connection_counts_against_its_forwarded_client_address() -> None:
    clock = Clock()
    slots = ConnectionSlots(100, RefusalLog(), lambda peer: peer == "192.0.2.7", clock)
    lines = [Line() for _ in range(60)]
    acquired = [slots.acquire(line, "192.0.2.7") for line in lines]
    assert None not in acquired
    clock.now = NEWCOMER
    for number, slot in enumerate(acquired):
        if slot is not None:
            slots.speaks_for(slot, "203.0.113.5" if number % 2 else f"198.51.100.{number}")
    # 30 connections of one client are more than its share of 25; the 30 others have an address each.
    assert open_count(lines[1::2]) == 100 // SHARE
    assert open_count(lines[0::2]) == 30
    for slot in acquired:
        if slot is not None:
            slots.release(slot)
    assert open_count(acquire_slots(slots, ["203.0.113.5"] * (100 // SHARE))) == 100 // SHARE


async def test_unauthenticated_clients_behind_a_proxy_count_by_forwarded_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening_sockets, "MAX_CONNECTIONS", 4 * SHARE)
    monkeypatch.setattr(listener, "NEWCOMER", 0.0)
    listen = Listen.model_validate({"port": 0, "token": TOKEN, "trusted_proxies": ["127.0.0.1"]})

    async def send_refused(connection: Connection, client: str) -> None:
        lines = [*BOTH, ("X-Forwarded-For", client)]
        connection.send(request(served, "POST", "/mcp", lines, message("initialize", {})))
        assert (await connection.response()).status == 401

    async with serving(listen) as served, contextlib.AsyncExitStack() as stack:
        same_address = [await stack.enter_async_context(connected(served)) for _ in range(6)]
        other_address = await stack.enter_async_context(connected(served))
        await send_refused(other_address, "198.51.100.1")
        for connection in same_address:
            await send_refused(connection, "203.0.113.5")
        assert served.app.refusals.counts["crowded"] == 2
        assert await same_address[0].ended()
        assert await same_address[1].ended()
        assert {record["peer"] for record in served.dispatcher.refusals if record["cause"] == "crowded"} == {
            "203.0.113.5"
        }
        # A client that is let in through the same proxy keeps its slot, and the other address has its own share.
        await send_refused(other_address, "198.51.100.1")
        other_address.send(request(served, "POST", "/mcp", [*BOTH, *BEARER], message("initialize", {})))
        assert (await other_address.response()).status == 200


async def test_a_connection_that_is_closed_before_its_handshake_begins_leaves_nothing_behind() -> None:
    shared = listener.Listener(unanswered, 1)
    pairs = [socket.socketpair() for _ in range(2)]
    for number, (accepted, _) in enumerate(pairs):  # the second one takes the place of the first one at once
        TlsHandshake(shared, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), accepted, f"192.0.2.{number}").begin()
    async with asyncio.timeout(HANG_BOUND):
        while len(shared.open) > 1:
            await asyncio.sleep(0)
    assert pairs[0][0].fileno() == -1
    pairs[1][1].close()
    async with asyncio.timeout(HANG_BOUND):
        while shared.open:
            await asyncio.sleep(0)
    pairs[0][1].close()


async def unanswered(request: HttpRequest, reply: HttpReply) -> None:
    raise AssertionError("no request comes")
