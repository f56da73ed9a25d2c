"""Log messages of servers: to the client whose call it is, from the level it wants, as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.asking.test_servers_ask_handshake_clients import asking
from tests.fakes.client import PATIENCE, RpcError, StdioClient, hub
from tests.hub.test_over_a_network import network_hub, sdk

pytestmark = pytest.mark.anyio

ERAS = ("handshake", "modern")
SAID = {"level": "info", "logger": "x", "data": {"future": 10**25}, "future": 1}


def messages(client: StdioClient) -> list[dict[str, Any]]:
    return [n["params"] for n in client.notifications if n["method"] == "notifications/message"]


async def test_the_hub_declares_logging(tmp_path: Path) -> None:
    async with hub(tmp_path, {}, handshake=False) as client:
        assert (await client.initialize())["capabilities"]["logging"] == {}


@pytest.mark.parametrize("era", ERAS)
async def test_a_message_reaches_a_handshake_client_as_it_is_before_the_answer(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"a": asking("--era", era)}) as client:
        await client.request("logging/setLevel", {"level": "info"})
        assert await client.text("a__level") == "info"
        await client.text("a__log")
        assert messages(client) == [SAID]


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_below_the_level_is_not_passed_on(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"a": asking("--era", era)}) as client:
        await client.request("logging/setLevel", {"level": "warning"})
        for level in ("debug", "notice", "warning", "emergency"):
            await client.text("a__log", {"level": level})
        assert [message["level"] for message in messages(client)] == ["warning", "emergency"]


async def test_a_message_outside_of_a_call_reaches_the_client_too(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": asking()}) as client:
        await client.text("a__log_late")
        await client.notified("notifications/message")
        assert messages(client) == [SAID]


@pytest.mark.parametrize("level", ["loud", None, 3])
async def test_a_level_there_is_not_is_refused(tmp_path: Path, level: Any) -> None:
    async with hub(tmp_path, {}) as client:
        with pytest.raises(RpcError) as refused:
            await client.request("logging/setLevel", {"level": level})
        assert refused.value.code == -32602


@pytest.mark.parametrize("era", ERAS)
async def test_a_modern_client_hears_what_its_request_asks_for(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"a": asking("--era", era)}, modern=True) as client:
        await client.text("a__log")
        assert messages(client) == []
        for level in ("debug", "error"):
            meta = {"_meta": {"io.modelcontextprotocol/logLevel": level}}
            await client.call("a__log", {"level": "notice"}, **meta)
        assert [message["level"] for message in messages(client)] == ["notice"]


async def test_clients_of_a_network_hear_what_their_own_calls_cause(tmp_path: Path) -> None:
    heard: dict[str, list[str]] = {"one": [], "two": []}

    def hearing(name: str) -> Any:
        async def hear(params: Any) -> None:
            heard[name].append(params.level)

        return {"logging_callback": hear}

    async with (
        network_hub(tmp_path / "hub", {"a": asking()}) as (_, base),
        sdk(base + "/mcp", "handshake", **hearing("one")) as one,
        sdk(base + "/sse", "handshake", **hearing("two")) as two,
    ):
        async with asyncio.timeout(PATIENCE):
            await one.call_tool("a__log", {"level": "info"})
            await two.call_tool("a__log", {"level": "error"})
            await one.call_tool("a__echo", {"text": "x"})
            while not (heard["one"] and heard["two"]):
                await two.call_tool("a__echo", {"text": "x"})
    assert heard == {"one": ["info"], "two": ["error"]}
