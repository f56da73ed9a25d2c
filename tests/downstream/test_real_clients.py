"""The client of the Python SDK, in both eras and over both transports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from mcp_hub.protocol import era
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.scripted import Served, serving

pytestmark = pytest.mark.anyio

Connect = Callable[[Served], Any]

CLIENTS: dict[str, tuple[Connect, str]] = {
    "http, auto": (lambda served: Client(streamable_http_client(f"{served.url}/mcp"), mode="auto"), era.LATEST_MODERN),
    "http, modern": (
        lambda served: Client(streamable_http_client(f"{served.url}/mcp"), mode=era.LATEST_MODERN),
        era.LATEST_MODERN,
    ),
    "http, legacy": (
        lambda served: Client(streamable_http_client(f"{served.url}/mcp"), mode="legacy"),
        era.LATEST_HANDSHAKE,
    ),
    "http, trailing slash": (
        lambda served: Client(streamable_http_client(f"{served.url}/mcp/"), mode="legacy"),
        era.LATEST_HANDSHAKE,
    ),
    "sse, auto": (lambda served: Client(sse_client(f"{served.url}/sse"), mode="auto"), era.LATEST_MODERN),
    "sse, legacy": (lambda served: Client(sse_client(f"{served.url}/sse"), mode="legacy"), era.LATEST_HANDSHAKE),
}


@contextlib.asynccontextmanager
async def client_of(kind: str, served: Served) -> AsyncIterator[Client]:
    connect, version = CLIENTS[kind]
    async with asyncio.timeout(HANG_BOUND), connect(served) as client:
        assert client.protocol_version == version
        yield client


@pytest.mark.parametrize("kind", CLIENTS)
async def test_the_sdk_lists_and_calls(kind: str) -> None:
    async with serving() as served, client_of(kind, served) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]
        result = await client.call_tool("echo", {"text": "grüße"})
        assert result.content[0].model_dump()["text"] == "grüße"


@pytest.mark.parametrize("kind", CLIENTS)
async def test_the_sdk_gets_the_progress_of_its_call(kind: str) -> None:
    steps: list[float] = []
    arrived = asyncio.Event()

    async def progressed(progress: float, total: float | None, text: str | None) -> None:
        steps.append(progress)
        if len(steps) == 3:
            arrived.set()

    async with serving() as served, client_of(kind, served) as client:
        result = await client.call_tool("progress", {"steps": 3, "text": "done"}, progress_callback=progressed)
        assert result.content[0].model_dump()["text"] == "done"
        await asyncio.wait_for(arrived.wait(), HANG_BOUND)
        assert steps == [0, 1, 2]


@pytest.mark.parametrize("kind", ["http, auto", "http, legacy", "sse, legacy"])
async def test_a_call_cancelled_in_the_sdk_is_cancelled_at_the_hub(kind: str) -> None:
    async with serving() as served, client_of(kind, served) as client:
        call = asyncio.create_task(client.call_tool("hang", {}))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        call.cancel()
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
        await asyncio.wait({call})
        assert (await client.call_tool("echo", {"text": "still there"})).content


async def test_the_sdk_is_notified_of_a_changed_list() -> None:
    notified = asyncio.Event()

    async def listen(message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            notified.set()

    async with serving() as served, asyncio.timeout(HANG_BOUND):
        transport = streamable_http_client(f"{served.url}/mcp")
        async with Client(transport, mode="legacy", message_handler=listen) as client:
            await client.list_tools()
            served.dispatcher.joined[0].notify({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await notified.wait()
        assert served.dispatcher.left == served.dispatcher.joined  # it ends its session with DELETE


async def test_many_clients_with_the_same_ids_get_their_own_answers() -> None:
    async def call_repeatedly(served: Served, kind: str, number: int) -> None:
        async with client_of(kind, served) as client:
            for turn in range(5):
                text = f"{kind} {number} {turn}"
                assert (await client.call_tool("echo", {"text": text})).content[0].model_dump()["text"] == text

    async with serving() as served:
        await asyncio.gather(*(call_repeatedly(served, kind, number) for kind in CLIENTS for number in range(3)))
