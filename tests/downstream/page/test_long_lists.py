"""However many clients, servers and tools a hub has, the page gets a bounded part of them, and then the changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream import Connection
from mcp_hub.downstream.page import client_rows, server_rows, update_stream
from mcp_hub.downstream.page.endpoints import MAX_WINDOW
from mcp_hub.downstream.page.feed import MAX_ROWS_BYTES
from mcp_hub.protocol.era import MAX_DECLARED
from mcp_hub.protocol.frames import encode
from mcp_hub.security import ANONYMOUS
from mcp_hub.security.callers import Caller
from tests.downstream.page.acting import post
from tests.downstream.page.opened import Events, OpenPage, ServedHub, served_hub
from tests.fakes.client import PATIENCE, fake

pytestmark = pytest.mark.anyio

SESSIONS = 400


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_rows, "EVERY", 0.0)
    monkeypatch.setattr(update_stream, "CLIENTS_EVERY", 0.0)


def connect(served: ServedHub, number: int, capabilities: dict[str, Any]) -> list[Connection]:
    """Clients with sessions, as a transport makes them."""
    dispatcher = served.dispatcher
    connections = [Connection(Caller(), lambda message: None) for _ in range(number)]
    for at, connection in enumerate(connections):
        info = {"name": f"client {at}" + "n" * 10_000, "version": "n", "icons": [{"src": "x" * 100_000}]}
        connection.declare("2025-11-25", capabilities, info)
        dispatcher.join(connection)
    return connections


async def counted(events: Events, number: int) -> int:
    """The bytes of the stream until it says that there are so many clients."""
    size = 0
    while (said := await events.next("clients", "servers", "calls", "catalog")) != {"count": number}:
        size += len(encode(said))
    return size


async def called(events: Events) -> dict[str, Any]:
    """The row of `up` after its first call; no other server has changed meanwhile."""
    while True:
        (row,) = await events.next("servers")
        assert row["server"] == "up"
        if row["calls"] == 1:
            return dict(row)


async def window(page: OpenPage, path: str, **query: Any) -> dict[str, Any]:
    return await page.found(f"{path}?" + "&".join(f"{name}={value}" for name, value in query.items()))


async def test_sessions_that_declare_much_cost_the_page_and_the_hub_little(tmp_path: Path) -> None:
    declared = {"experimental": {"x": "x" * (MAX_DECLARED - 200)}}
    async with (
        served_hub(tmp_path, {"up": fake()}) as served,
        served.calling() as client,
        served.looking() as page,
        page.events() as events,
    ):
        for at in range(SESSIONS):
            client.session = {}
            info = {"name": f"client {at}", "version": "1", "icons": [{"src": "x" * 10_000}]}
            greeting = {"protocolVersion": "2025-11-25", "capabilities": declared, "clientInfo": info}
            answer = await client.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting})
            assert answer.status_code == 200
        assert await counted(events, SESSIONS + 1) < 64 * 1024
        kept = [encode(connection.envelope) for connection in served.dispatcher.connections]
        assert sum(map(len, kept)) < SESSIONS * (MAX_DECLARED + 1024)
        assert len((await page.get("state")).content) < 8 * 1024
        first = await window(page, "clients")
        assert (len(first["rows"]), first["matching"], first["total"]) == (MAX_WINDOW, SESSIONS + 1, SESSIONS + 1)
        assert len(encode(first)) < MAX_WINDOW * 512
        details = await page.found(f"clients/{first['rows'][-1]['id']}")
        assert details["declared"].keys() == declared.keys()


async def test_what_the_page_gets_is_bounded_whatever_the_hub_has(tmp_path: Path) -> None:
    servers = {f"s{number}": fake(enabled=False) for number in range(200)}
    servers["dead"] = {"command": "no-such-command-" + "x" * 2000}
    async with (
        served_hub(tmp_path, {"up": fake("--tools", "5000"), **servers}) as served,
        served.looking() as page,
        page.events() as events,
        asyncio.timeout(PATIENCE),
    ):
        connect(served, 10_000, {})
        feed = served.access.page.feed
        for number in range(1000):
            feed.take({"event": "call", "id": str(number), "name": "\u202e" * 4000, "client": "y" * 4000}, ANONYMOUS)
        last_call = last_count = None
        while (last_call, last_count) != ("999", 10_001):
            said = await events.next("clients", "calls")
            assert len(encode(said)) < MAX_ROWS_BYTES * 3 // 2
            if isinstance(said, list):
                last_call = said[-1]["id"]
            else:
                last_count = said["count"]
        assert len((await page.get("state")).content) < MAX_ROWS_BYTES
        for path in ("clients", "tools", "calls?limit=500"):
            assert len((await page.get(path)).content) < MAX_ROWS_BYTES * 3 // 2, path


async def test_a_list_is_filtered_sorted_and_cut_in_the_hub(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake("--tools", "40")}) as served, served.looking() as page:
        connections = connect(served, 12, {})
        names = [row["name"][:9] for row in (await window(page, "clients", first=9, count=2))["rows"]]
        assert names == ["client 9n", "client 10"]
        found = await window(page, "clients", text="CLIENT%201", sort="name", down=1)
        assert [row["name"][:9] for row in found["rows"]] == ["client 11", "client 10", "client 1n"]
        assert (found["matching"], found["total"]) == (3, 12)
        served.dispatcher.leave(connections[0])
        async with asyncio.timeout(PATIENCE):
            assert (await window(page, "clients", first=999999999999, count="x"))["total"] == 11
        tools = await window(page, "tools", text="up__t", sort="tokens", first=38)
        assert (len(tools["rows"]), tools["matching"] >= 40) == (tools["matching"] - 38, True)
        assert (await window(page, "tools", server="none"))["rows"] == []
        for member in ("read_only", "destructive", "hidden_by", "title", "line"):
            await window(page, "tools", sort=member)  # some tools have no value, some a number


async def test_an_event_has_only_the_servers_that_have_changed_and_the_details_are_asked_for(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"up": fake(), "idle": fake()}) as served,
        served.looking() as page,
        served.calling() as client,
        page.events() as events,
    ):
        before = await page.found("servers/up")
        await client.call("up__stderr", {"text": "the disk is full"})
        row = await called(events)
        assert row["version"] != before["version"]
        assert not {"stderr", "cure", "pid"} & row.keys()
        async with asyncio.timeout(PATIENCE):
            while "the disk is full" not in (await page.found("servers/up"))["stderr"]:
                await asyncio.sleep(0)
        assert (await page.get("servers/none")).status_code == 404


async def test_a_row_that_is_made_anew_without_a_change_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_rows, "MAX_ROWS", 1)
    servers = {f"s{number}": fake(enabled=False) for number in range(3)}
    async with (
        served_hub(tmp_path, {"up": fake(), **servers}) as served,
        served.calling() as client,
        served.looking() as page,
        page.events() as events,
    ):
        await client.text("up__echo", {"text": "x"})
        await called(events)


async def test_a_waiting_call_is_sent_when_it_begins_to_wait_and_when_it_ends(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"up": fake(confirm="echo")}) as served,
        served.calling() as client,
        served.looking() as page,
        page.events() as events,
    ):
        call = asyncio.create_task(client.call("up__echo", {"text": "x"}))
        (waiting,) = await events.next("confirmations")
        assert (await post(page, "confirm", {"id": waiting["id"], "answer": "once"})).status_code == 200
        assert await events.next("confirmations") == []
        assert "result" in await call
        await client.text("up__add", {"a": 1, "b": 2})
        while not [row for row in await events.next("calls") if row["name"] == "up__add"]:
            pass
        assert events.seen.count("confirmations") == 2
