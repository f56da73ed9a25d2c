"""How the hub detects dead connections and changed lists, and what clients see of both."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.client import PATIENCE, StdioClient, fake, hub, write_config
from tests.fakes.network import network_hub, sdk, text
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"


async def listed(client: StdioClient, name: str, expected: bool) -> None:
    """Wait, from one change of the lists to the next, until a tool is listed or is not."""
    count = sum(1 for n in client.notifications if n["method"] == CHANGED)
    while (name in await client.tool_names()) is not expected:
        count += 1
        await client.notified(CHANGED, count)


async def test_an_upstream_that_stops_answering_pings_is_restarted_without_affecting_others(
    tmp_path: Path,
) -> None:
    servers = {"up": fake(health={"ping": "200ms"}), "good": fake(health={"ping": "200ms"})}
    async with hub(tmp_path, servers) as client:
        pid, good_pid = int(await client.text("up__pid")), await client.text("good__pid")
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            await client.until(lambda: b"up was lost: it did not answer 2 pings in a row" in client.stderr)
        assert await client.text("up__pid") != str(pid)
        assert await client.text("good__pid") == good_pid


@pytest.mark.parametrize(
    ("entry", "eras"),
    [
        (fake(session="client", health={"ping": "200ms"}), ("handshake", "handshake")),
        (fake("--era", "dual", health={"ping": "200ms"}), ("modern", "handshake")),
        (fake("--era", "dual", health={"ping": "200ms"}), ("handshake", "modern")),
    ],
    ids=["of a client", "of the handshake era", "of the modern era"],
)
async def test_a_further_session_that_stops_answering_pings_is_replaced(
    tmp_path: Path, entry: dict[str, object], eras: tuple[str, str]
) -> None:
    async with (
        network_hub(tmp_path / "hub", {"up": entry}) as (_, base),
        sdk(base + "/mcp", eras[0]) as first,
        sdk(base + "/mcp", eras[1]) as second,
    ):
        pids = [await text(client, "up__pid") for client in (first, second)]
        assert pids[0] != pids[1]
        os.kill(int(pids[1]), signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            while psutil.pid_exists(int(pids[1])):
                await second.list_tools()
        assert await text(second, "up__pid") not in pids
        assert await text(first, "up__pid") == pids[0]


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # of the handshake era
async def test_subscriptions_of_a_clients_own_session_are_sent_once_and_again_when_it_is_replaced(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    entry = asking("--log", str(log), session="client", health={"ping": "200ms"})
    async with (
        network_hub(tmp_path / "hub", {"a": entry}) as (process, base),
        sdk(base + "/mcp", "handshake") as client,
    ):
        await client.list_tools()
        before = {child.pid for child in psutil.Process(process.process.pid).children()}
        await client.subscribe_resource("x:one")
        assert await text(client, "a__echo", {"text": "x"}) == "x"
        assert log.read_text().count("resources/subscribe x:one") == 1
        (own,) = {child.pid for child in psutil.Process(process.process.pid).children()} - before
        os.kill(own, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            while log.read_text().count("resources/subscribe x:one") == 1:
                await client.list_tools()
        assert await text(client, "a__echo", {"text": "x"}) == "x"
        assert log.read_text().count("resources/subscribe x:one") == 2


async def test_a_busy_upstream_is_not_pinged(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with hub(tmp_path, {"up": fake("--record", str(record), health={"ping": "100ms"})}) as client:
        pid = await client.text("up__pid")
        before = record.read_text().count('"ping"')
        slow = client.start("tools/call", {"name": "up__sleep", "arguments": {"seconds": 1.5}})
        await slow
        assert record.read_text().count('"ping"') <= before + 1  # a ping may have been on its way
        async with asyncio.timeout(PATIENCE):
            while record.read_text().count('"ping"') <= before + 1:
                await asyncio.sleep(0)
        assert await client.text("up__pid") == pid


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_tools_of_an_upstream_that_stays_down_are_unlisted_and_calls_report_why(tmp_path: Path, era: str) -> None:
    dead = tmp_path / "dead"
    servers = {
        "up": fake("--era", era, "--die-if", str(dead), health={"unlist_after": "300ms"}),
        "good": fake(),
    }
    async with hub(tmp_path, servers) as client:
        assert "up__pid" in await client.tool_names()
        pid = int(await client.text("up__pid"))
        dead.touch()
        os.kill(pid, signal.SIGKILL)
        await listed(client, "up__pid", False)
        assert "good__pid" in await client.tool_names()
        refused = await client.call("up__pid")
        assert refused["isError"] is True
        assert refused["_meta"]["mcp-hub/error"]["code"] in ("server_unavailable", "circuit_open")
        assert "not now" in refused["content"][0]["text"]
        dead.unlink()
        await listed(client, "up__pid", True)
        assert await client.text("up__echo", {"text": "back"}) == "back"


async def test_tools_of_an_upstream_that_recovers_quickly_stay_listed(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        names = await client.tool_names()
        os.kill(int(await client.text("up__pid")), signal.SIGKILL)
        await client.until(lambda: b"up was lost" in client.stderr)
        assert await client.tool_names() == names
        await client.text("up__pid")
        assert not [n for n in client.notifications if n["method"] == CHANGED]


async def test_lists_of_servers_without_change_notifications_are_polled(tmp_path: Path) -> None:
    trigger = tmp_path / "more"
    async with hub(tmp_path, {"up": fake("--more-if", str(trigger), health={"relist": "200ms"})}) as client:
        assert "up__late" not in await client.tool_names()
        trigger.touch()
        await listed(client, "up__late", True)


def lists(path: Path, *names: str, fault: str | None = None) -> None:
    """Writes the tools that the fake lists from now on, and how it fails to."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("changed", "pid", "echo", *names)]
    path.with_suffix(".new").write_text(json.dumps({"tools": tools, "fault": fault}))
    path.with_suffix(".new").replace(path)


def flaky(path: Path, era: str = "handshake", **entry: Any) -> dict[str, Any]:
    lists(path)
    return fake("--lists", str(path), "--pages", "2", "--era", era, deadlines={"list": "500ms"}, **entry)


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("fault", ["error", "page", "slow"])
async def test_a_list_that_fails_once_stays_and_is_asked_again(tmp_path: Path, era: str, fault: str) -> None:
    path = tmp_path / "lists.json"
    async with hub(tmp_path, {"up": flaky(path, era)}) as client:
        names = await client.tool_names()
        lists(path, "late", fault=fault)
        await client.text("up__changed")
        await client.until(lambda: b"the list from before stays" in client.stderr)
        assert await client.tool_names() == names
        assert await client.text("up__echo", {"text": "still there"}) == "still there"
        lists(path, "late")
        await listed(client, "up__late", True)
        assert client.stderr.count(b"the list from before stays") == 1


async def test_a_list_that_fails_on_a_new_connection_stays_and_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "lists.json"
    async with hub(tmp_path, {"up": flaky(path)}) as client:
        names = await client.tool_names()
        lists(path, "late", fault="error")
        os.kill(int(await client.text("up__pid")), signal.SIGKILL)
        await client.until(lambda: b"the list from before stays" in client.stderr)
        assert await client.tool_names() == names
        assert await client.text("up__echo", {"text": "still there"}) == "still there"
        lists(path, "late")
        await listed(client, "up__late", True)


@pytest.mark.parametrize("fault", ["error", "page"])
async def test_a_list_that_fails_at_the_first_connection_is_asked_again(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "lists.json"
    entry = flaky(path)
    lists(path, fault=fault)
    async with hub(tmp_path, {"up": entry}) as client:
        assert await client.tool_names() == [f"up__{name}" for name in ("changed", "pid") if fault == "page"]
        lists(path, "late")
        await listed(client, "up__late", True)
        assert await client.tool_names() == [f"up__{name}" for name in ("changed", "pid", "echo", "late")]


async def test_a_session_with_unreadable_messages_is_replaced(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake("--gibberish")}) as client:
        pid = await client.text("up__pid")
        await client.call("up__gibberish", {"lines": 5})
        assert await client.text("up__pid") == pid
        await client.call("up__gibberish", {"lines": 40})
        await client.until(lambda: b"invalid messages" in client.stderr)
        assert await client.text("up__pid") != pid


async def test_at_most_four_upstreams_start_concurrently(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    servers = {f"s{n}": fake("--journal", str(journal), "--start-delay", "0.3") for n in range(10)}
    async with hub(tmp_path, servers, list_wait=PATIENCE) as client:
        assert len(await client.tool_names()) >= 100
    starting, maximum = set(), 0
    for line in journal.read_text().splitlines():
        event, pid = line.split()
        starting.add(pid) if event == "start" else starting.discard(pid)
        maximum = max(maximum, len(starting))
    assert maximum == 4


async def test_health_can_be_switched_off_for_a_server(tmp_path: Path) -> None:
    record = tmp_path / "record"
    servers = {"up": fake("--record", str(record), health="off"), "good": fake(health={"ping": "50ms"})}
    async with hub(tmp_path, servers) as client:
        async with asyncio.timeout(PATIENCE):
            for _ in range(200):
                await client.text("good__echo", {"text": "x"})
        assert '"ping"' not in record.read_text()


async def test_changed_health_settings_apply_without_a_new_process(tmp_path: Path) -> None:
    record = tmp_path / "record"

    def servers(health: object) -> dict[str, object]:
        return {"up": fake("--record", str(record), health=health)}

    async with hub(tmp_path, servers("off"), watch=False) as client:
        pid = await client.text("up__pid")
        write_config(tmp_path, servers({"ping": "50ms"}), watch=False)
        client.process.send_signal(signal.SIGHUP)
        await client.until(lambda: b"every server keeps its process" in client.stderr)
        async with asyncio.timeout(PATIENCE):
            while '"ping"' not in record.read_text():
                await client.request("ping")
        assert await client.text("up__pid") == pid
