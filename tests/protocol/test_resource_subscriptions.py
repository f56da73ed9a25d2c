"""Updates of resources reach all subscribers through one upstream subscription, also after a reconnect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream import subscriptions
from mcp_hub.upstream import session as sessions
from tests.downstream.page.opened import served_hub
from tests.fakes.client import PATIENCE, RpcError, StdioClient, hub
from tests.fakes.network import network_hub, sdk
from tests.fakes.processes import below
from tests.replicas.raw_client import raw
from tests.upstream.asking.test_servers_ask_handshake_clients import ASKING, asking

pytestmark = pytest.mark.anyio

ERAS = ("handshake", "modern")


def updates(client: StdioClient) -> list[dict[str, Any]]:
    return [n["params"] for n in client.notifications if n["method"] == "notifications/resources/updated"]


def logged(path: Path, start: str) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith(start)] if path.exists() else []


async def touched(client: StdioClient, uri: str) -> None:
    assert await client.text("a__touch", {"uri": uri}) == "touched"


async def test_the_hub_declares_subscriptions(tmp_path: Path) -> None:
    async with hub(tmp_path, {}, handshake=False) as client:
        assert (await client.initialize())["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}


@pytest.mark.parametrize("era", ERAS)
async def test_a_handshake_client_gets_updates_until_it_unsubscribes(tmp_path: Path, era: str) -> None:
    log = tmp_path / "log"
    async with hub(tmp_path, {"a": asking("--era", era, "--log", str(log))}) as client:
        await client.request("resources/subscribe", {"uri": "x:one"})
        if era == "modern":
            async with asyncio.timeout(PATIENCE):
                while not logged(log, 'listen ["x:one"]'):
                    await client.text("a__echo", {"text": "x"})
        await touched(client, "x:two")
        await touched(client, "x:one")
        await touched(client, "x:one/part")
        assert [update["uri"] for update in updates(client)] == ["x:one", "x:one/part"]
        assert updates(client)[0]["future"] == 1
        await client.request("resources/unsubscribe", {"uri": "x:one"})
        await touched(client, "x:one")
        assert len(updates(client)) == 2
        if era == "handshake":
            assert logged(log, "resources/") == ["resources/subscribe x:one", "resources/unsubscribe x:one"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_modern_client_gets_updates_on_its_subscription_stream(tmp_path: Path, era: str) -> None:
    log = tmp_path / "log"
    async with hub(tmp_path, {"a": asking("--era", era, "--log", str(log))}, modern=True) as client:
        filters = {"resourceSubscriptions": ["x:one", "x:none"], "toolsListChanged": True}
        client.start("subscriptions/listen", {"notifications": filters}, "it")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["x:one"]}
        if era == "modern":
            async with asyncio.timeout(PATIENCE):
                while not logged(log, 'listen ["x:one"]'):
                    await client.text("a__echo", {"text": "x"})
        await touched(client, "x:one")
        (update,) = updates(client)
        assert (update["uri"], update["_meta"]) == ("x:one", {"io.modelcontextprotocol/subscriptionId": "it"})
        client.notify("notifications/cancelled", {"requestId": "it"})
        if era == "handshake":
            async with asyncio.timeout(PATIENCE):
                while not logged(log, "resources/unsubscribe x:one"):
                    await client.text("a__echo", {"text": "x"})


@pytest.mark.parametrize("mute", ["resources/subscribe", "resources/subscribe x:one"])
async def test_resources_that_are_never_answered_for_hold_nothing_else_back(tmp_path: Path, mute: str) -> None:
    servers = {"mute": asking("--mute", mute, deadlines={"call": "10m"}), "a": asking(disable_resources=["x:one"])}
    async with hub(tmp_path, servers, modern=True) as client:
        watched = ["x:one", "mcp-hub://a/x:two"] if mute == "resources/subscribe" else ["x:one", "x:two"]
        filters = {"resourceSubscriptions": watched, "toolsListChanged": True}
        client.start("subscriptions/listen", {"notifications": filters}, "it")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        honoured = {"toolsListChanged": True, "resourceSubscriptions": watched[1:]}
        assert acknowledged["params"]["notifications"] == honoured
        server = "a" if mute == "resources/subscribe" else "mute"
        assert await client.text(f"{server}__touch", {"uri": "x:two"}) == "touched"
        assert [update["uri"] for update in updates(client)] == watched[1:]


async def test_a_server_that_never_ends_a_subscription_does_not_hold_back_the_answer(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deadlines = {"list": "10m", "call": "10m"}
    servers = {"a": asking("--mute", "resources/unsubscribe", "--log", str(log), deadlines=deadlines)}
    async with served_hub(tmp_path / "hub", servers) as served, served.calling() as client:
        async with asyncio.timeout(PATIENCE):
            for method in ("resources/subscribe", "resources/unsubscribe"):
                assert "result" in await client.ask(method, {"uri": "x:one"})
            while logged(log, "mute") != ["mute resources/unsubscribe"]:
                await asyncio.sleep(0.01)


async def test_a_server_that_never_sets_its_log_level_does_not_hold_back_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SIDE_WAIT", PATIENCE * 2)
    log = tmp_path / "log"
    servers = {"mute": asking("--mute", "logging/setLevel", "--log", str(log)), "a": asking()}
    async with served_hub(tmp_path / "hub", servers) as served, served.calling() as client:
        async with asyncio.timeout(PATIENCE):
            assert "result" in await client.ask("logging/setLevel", {"level": "debug"})
        assert logged(log, "mute") == ["mute logging/setLevel"]


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_several_clients_share_one_subscription(tmp_path: Path) -> None:
    log = tmp_path / "log"
    notified_uris: dict[str, list[str]] = {"one": [], "two": []}

    def hearing(name: str) -> Any:
        async def hear(message: Any) -> None:
            if "resources/updated" in str(getattr(message, "method", "")):
                notified_uris[name].append(str(message.params.uri))

        return {"message_handler": hear}

    async with network_hub(tmp_path / "hub", {"a": asking("--log", str(log))}) as (_, base):
        async with sdk(base + "/sse", "handshake", **hearing("one")) as first:
            async with sdk(base + "/mcp", "handshake", **hearing("two")) as second:
                await first.session.subscribe_resource("x:one")
                await second.session.subscribe_resource("x:one")
                async with asyncio.timeout(PATIENCE):
                    while not (notified_uris["one"] and notified_uris["two"]):
                        await first.call_tool("a__touch", {"uri": "x:one"})
            assert logged(log, "resources/subscribe") == ["resources/subscribe x:one"]
            assert logged(log, "resources/unsubscribe") == []
            await first.session.unsubscribe_resource("x:one")
        assert logged(log, "resources/unsubscribe") == ["resources/unsubscribe x:one"]


async def test_a_client_that_subscribes_during_anothers_unsubscription_stays_subscribed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    servers = {"a": asking("--hold", "--log", str(log))}
    async with network_hub(tmp_path / "hub", servers) as (_, base), raw(base) as leaving, raw(base) as staying:
        for client in (leaving, staying):
            await client.begin()
        for uri in ("x:one", "x:two"):
            await leaving.request("resources/subscribe", {"uri": uri})
        await leaving.end()
        async with asyncio.timeout(PATIENCE):
            while not (unsubscriptions := logged(log, "resources/unsubscribe")):
                await asyncio.sleep(0.01)
        remaining_uri = "x:two" if unsubscriptions[0].endswith("x:one") else "x:one"
        await staying.request("resources/subscribe", {"uri": remaining_uri})
        assert "result" in await staying.call("a__echo", {"text": "x"})
        assert logged(log, "resources/unsubscribe") == unsubscriptions


async def lost_and_subscribed_again(client: StdioClient, log: Path) -> None:
    """Kills the server, and calls it until the hub has subscribed once more."""
    for process in below(client.process.pid, ASKING):
        process.kill()
    await client.until(lambda: b"a was lost" in client.stderr)
    async with asyncio.timeout(PATIENCE):
        while len(logged(log, "resources/subscribe")) < 2:
            await client.text("a__echo", {"text": "x"})


async def test_a_subscription_is_restored_after_the_server_was_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with hub(tmp_path, {"a": asking("--log", str(log))}) as client:
        await client.request("resources/subscribe", {"uri": "x:one"})
        await lost_and_subscribed_again(client, log)
        await touched(client, "x:one")
        assert [update["uri"] for update in updates(client)] == ["x:one"]


async def test_log_messages_still_reach_the_subscriber_after_its_server_was_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with hub(tmp_path, {"a": asking("--log", str(log))}) as client:
        await client.request("logging/setLevel", {"level": "debug"})
        await client.request("resources/subscribe", {"uri": "x:one"})
        await lost_and_subscribed_again(client, log)
        assert await client.text("a__log") == "logged"
        assert [n["params"]["logger"] for n in client.notifications if n["method"] == "notifications/message"] == ["x"]


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a_subscription_does_not_end_with_the_session_of_a_single_call(tmp_path: Path) -> None:
    updated = asyncio.Event()

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            updated.set()

    servers = {"a": {**asking(), "session": "call"}}
    async with (
        network_hub(tmp_path / "hub", servers) as (_, base),
        sdk(base + "/mcp", "handshake", message_handler=hear) as client,
        asyncio.timeout(PATIENCE),
    ):
        await client.session.subscribe_resource("x:one")
        await client.call_tool("a__touch", {"uri": "x:one"})
        await updated.wait()


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_an_idle_session_is_kept_while_its_client_is_subscribed(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"a": {**asking(), "session": "client", "idle": "1s"}}) as (process, base):

        def servers() -> set[int]:
            return {server_process.pid for server_process in below(process.process.pid, ASKING)}

        async with (
            sdk(base + "/mcp", "handshake") as subscribed,
            sdk(base + "/mcp", "handshake") as idle,
            asyncio.timeout(PATIENCE),
        ):
            await subscribed.session.subscribe_resource("x:one")
            subscribed_pids = servers()
            await idle.call_tool("a__echo", {"text": "x"})
            idle_pids = servers() - subscribed_pids
            assert idle_pids
            while servers() & idle_pids:
                await asyncio.sleep(0.01)
            assert servers() == subscribed_pids


async def test_a_subscriber_is_not_told_of_parts_that_are_refused_to_it(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": asking(disable_resources=["x:one/secret"])}) as client:
        await client.request("resources/subscribe", {"uri": "x:one"})
        for uri in ("x:one/secret", "x:one/part"):
            await touched(client, uri)
        assert [update["uri"] for update in updates(client)] == ["x:one/part"]


async def test_subscribing_to_a_missing_or_refused_resource_is_refused(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": asking(disable_resources=["x:two"])}) as client:
        for uri in ("x:none", "x:two"):
            with pytest.raises(RpcError) as refused:
                await client.request("resources/subscribe", {"uri": uri})
            assert refused.value.error == {"code": -32002, "message": f"Unknown resource: {uri}", "data": {"uri": uri}}


async def test_the_resources_that_one_session_watches_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_WATCHED", 1)
    async with served_hub(tmp_path, {"a": asking()}) as served, served.calling() as client, served.calling() as other:
        assert "result" in await client.ask("resources/subscribe", {"uri": "x:one"})
        assert "result" in await client.ask("resources/subscribe", {"uri": "x:one"})
        assert (await client.ask("resources/subscribe", {"uri": "x:two"}))["error"]["code"] == -32602
        assert "result" in await other.ask("resources/subscribe", {"uri": "x:two"})
        assert "result" in await client.ask("resources/unsubscribe", {"uri": "x:one"})
        assert "result" in await client.ask("resources/subscribe", {"uri": "x:two"})
