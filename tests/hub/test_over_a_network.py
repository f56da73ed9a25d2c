"""The hub on a network, and a hub in front of a hub: every transport and era on both sides."""

import asyncio
import contextlib
import json
from pathlib import Path

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.fakes.client import PATIENCE, fake, free_port, hub
from tests.fakes.network import network_hub, sdk, text
from tests.replicas.raw_client import raw
from tests.transport.scripted_http import Reply, Request, scripted

pytestmark = pytest.mark.anyio

ERAS = ("handshake", "modern")


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("upstream_era", ERAS)
@pytest.mark.parametrize("link", ["http", "sse", "auto"])
async def test_every_transport_and_era_passes_lists_calls_and_progress(
    tmp_path: Path, path: str, client_era: str, upstream_era: str, link: str
) -> None:
    inner = {"up": fake("--era", upstream_era)}
    async with network_hub(tmp_path / "inner", inner) as (_, inner_base):
        entry = {"url": inner_base + ("/sse" if link == "sse" else "/mcp"), "transport": link, "namespace": "in"}
        if link != "sse":
            entry["era"] = upstream_era
        async with (
            network_hub(tmp_path / "outer", {"inner": entry}) as (_, base),
            sdk(base + path, client_era) as client,
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert "in__up__echo" in names
            assert await text(client, "in__up__echo", {"text": "grüß"}) == "grüß"
            resources = await client.read_resource("fake://fake/item/7")
            assert resources.contents[0].text == "text of fake://fake/item/7"  # type: ignore[union-attr]
            values: list[float] = []

            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                values.append(progress)

            await text(client, "in__up__count", {"steps": 5}, progress_callback=progressed)
            assert values == [1, 2, 3, 4, 5]


async def test_one_hub_lists_tools_of_every_transport_with_their_whole_schemas(tmp_path: Path) -> None:
    """Check 1."""
    async with network_hub(tmp_path / "inner", {"up": fake()}) as (_, base):
        servers = {
            "local": fake(),
            "web": {"url": base + "/mcp", "transport": "http", "namespace": "web"},
            "old": {"url": base + "/sse", "transport": "sse", "namespace": "old"},
        }
        async with hub(tmp_path, servers) as client:
            listed = (await client.request("tools/list"))["tools"]
    schemas = {tool["name"]: tool["inputSchema"] for tool in listed}
    assert len(schemas) == len(listed)
    names = {name.removeprefix("local__") for name in schemas if name.startswith("local__")}
    assert set(schemas) == {f"{prefix}{name}" for prefix in ("local__", "web__up__", "old__up__") for name in names}
    for name in names:
        assert schemas[f"local__{name}"] == schemas[f"web__up__{name}"] == schemas[f"old__up__{name}"]
    assert set(schemas["local__add"]["properties"]) == {"a", "b"}


@pytest.mark.parametrize("era", ERAS)
async def test_calls_reconnect_to_a_restarted_upstream(tmp_path: Path, era: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    entry = {"url": url, "transport": "http", "namespace": "", "era": era, "breaker": "off"}
    inner = {"up": fake()}
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(contextlib.AsyncExitStack())
        await first.enter_async_context(network_hub(tmp_path / "inner", inner, port))
        outer = await stack.enter_async_context(hub(tmp_path, {"inner": entry}))
        before = await outer.text("up__pid")
        await first.aclose()
        await stack.enter_async_context(network_hub(tmp_path / "inner", inner, port))
        async with asyncio.timeout(PATIENCE):  # one or two may be told that it is away, if it took its time
            while (after := await outer.call("up__pid")).get("isError"):
                assert after["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert after["content"][0]["text"] != before


@pytest.mark.parametrize("era", ERAS)
async def test_an_unreachable_upstream_fails_its_own_calls_only(tmp_path: Path, era: str) -> None:
    port = free_port()
    servers = {
        "gone": {"url": f"http://127.0.0.1:{port}/mcp", "transport": "http", "namespace": "", "era": era},
        "good": fake(),
    }
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(contextlib.AsyncExitStack())
        await first.enter_async_context(network_hub(tmp_path / "inner", {"up": fake()}, port))
        outer = await stack.enter_async_context(hub(tmp_path, servers))
        assert "up__echo" in await outer.tool_names()
        await first.aclose()
        result = await outer.call("up__echo", {"text": "x"})
        assert result["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert await outer.text("good__echo", {"text": "x"}) == "x"


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_abandoned_by_its_client_is_cancelled_upstream(tmp_path: Path, path: str, era: str) -> None:
    record = tmp_path / "record"
    servers = {"up": fake("--record", str(record)), "other": fake()}
    async with network_hub(tmp_path / "hub", servers) as (_, base), sdk(base + path, era) as client:
        call = asyncio.ensure_future(client.call_tool("up__sleep", {"seconds": 60}))
        async with asyncio.timeout(PATIENCE):
            while b'"sleep"' not in record.read_bytes():
                await text(client, "other__echo")
            call.cancel()
            while b"notifications/cancelled" not in record.read_bytes():
                await text(client, "other__echo")
        with contextlib.suppress(asyncio.CancelledError):
            await call


async def test_with_session_client_every_caller_has_a_process_of_its_own(tmp_path: Path) -> None:
    servers = {"own": fake(session="client"), "shared": fake()}
    async with (
        network_hub(tmp_path / "hub", servers) as (_, base),
        sdk(base + "/mcp", "handshake") as one,
        sdk(base + "/sse", "handshake") as two,
        sdk(base + "/mcp", "modern") as three,
        sdk(base + "/mcp", "modern") as four,
    ):
        pids = [await text(client, "own__pid") for client in (one, two, three, four, one, two)]
        shared = {await text(client, "shared__pid") for client in (one, two, three, four)}
    assert pids[0] == pids[4]
    assert pids[1] == pids[5]
    assert pids[2] == pids[3], "anonymous modern callers are one caller"
    assert len(set(pids)) == 3
    assert len(shared) == 1


async def test_modern_clients_with_one_token_share_a_process_and_sessions_do_not(tmp_path: Path) -> None:
    tokens = {name: name * 32 for name in ("one", "two")}
    principals = {name: {"token": token} for name, token in tokens.items()}
    async with (
        network_hub(tmp_path / "hub", {"own": fake(session="client")}, listen={"principals": principals}) as (_, base),
        contextlib.AsyncExitStack() as clients,
    ):

        async def pid(token: str, mode: str) -> str:
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {tokens[token]}"})
            transport = streamable_http_client(base + "/mcp", http_client=await clients.enter_async_context(http))
            return await text(await clients.enter_async_context(Client(transport, mode=mode)), "own__pid")

        sessions = [await pid(token, "legacy") for token in ("one", "one", "two")]
        modern = [await pid(token, "auto") for token in ("one", "one", "two")]
    assert modern[0] == modern[1]
    assert len({*sessions, *modern}) == 5


async def test_a_callers_own_process_ends_with_its_session(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"own": fake(session="client")}) as (_, base):
        async with sdk(base + "/mcp", "handshake") as client:
            pid = await text(client, "own__pid")
            assert Path(f"/proc/{pid}").exists()
        async with asyncio.timeout(PATIENCE), sdk(base + "/mcp", "modern") as another:
            while Path(f"/proc/{pid}").exists():
                await another.list_tools()


async def test_a_callers_own_session_ends_even_if_the_caller_leaves_while_it_is_opened(tmp_path: Path) -> None:
    """The server never begins the standing stream, for which a new session waits a second."""
    opened: list[str] = []
    streams = asyncio.Queue[str]()
    deleted = asyncio.Queue[str]()

    async def script(request: Request, reply: Reply) -> None:
        session = request.headers.get("mcp-session-id", "")
        if request.method == "GET":
            streams.put_nowait(session)
            await reply.gone()
        elif request.method == "DELETE":
            deleted.put_nowait(session)
            await reply.full(200)
        elif request.message["method"] == "initialize":
            opened.append(f"s{len(opened)}")
            info = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            await reply.result(request, result, Mcp_Session_Id=opened[-1])
        elif request.message["method"] == "tools/list":
            await reply.result(request, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        else:
            await reply.full(202)

    async with scripted(script) as server, asyncio.timeout(PATIENCE):
        entry = {"url": server.url, "transport": "http", "era": "handshake", "session": "client"}
        async with network_hub(tmp_path / "hub", {"a": entry}) as (_, base), raw(base) as client:
            await client.begin()
            assert await streams.get() == "s0"  # that of the lists
            call_task = asyncio.ensure_future(client.call("a__t"))
            assert await streams.get() == "s1"
            await client.end()
            assert await deleted.get() == "s1"
            call_task.cancel()


async def test_a_callers_own_process_that_crashes_is_replaced_for_its_next_call(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path / "hub", {"own": fake(session="client")}) as (_, base),
        sdk(base + "/mcp", "handshake") as client,
    ):
        first = await text(client, "own__pid")
        crashed = await client.call_tool("own__crash", {})
        assert crashed.is_error
        assert await text(client, "own__pid") != first


async def test_the_number_of_per_caller_sessions_is_bounded(tmp_path: Path) -> None:
    servers = {"own": fake(session="client", max_sessions=1)}
    async with (
        network_hub(tmp_path / "hub", servers) as (_, base),
        sdk(base + "/mcp", "handshake") as one,
        sdk(base + "/mcp", "handshake") as two,
    ):
        await text(one, "own__pid")
        refused = await two.call_tool("own__pid", {})
        assert refused.meta is not None
        assert refused.meta["mcp-hub/error"]["code"] == "overloaded"


async def test_with_session_call_every_call_has_a_process_of_its_own(tmp_path: Path) -> None:
    async with hub(tmp_path, {"each": fake(session="call")}) as client:
        pids = await asyncio.gather(*(client.text("each__pid") for _ in range(4)))
        assert len(set(pids)) == 4
        for pid in pids:
            assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("era", ERAS)
async def test_no_header_of_a_caller_reaches_an_upstream(tmp_path: Path, era: str) -> None:
    async with network_hub(tmp_path / "hub", {"up": fake()}) as (_, base):
        canary = {"Authorization": "Bearer canary-1", "Cookie": "canary-2", "X-Api-Key": "canary-3"}
        async with httpx2.AsyncClient(headers=canary, timeout=PATIENCE) as http:
            transport = streamable_http_client(base + "/mcp", http_client=http)
            async with Client(transport, mode="legacy" if era == "handshake" else "auto") as client:
                received = await text(client, "up__meta") + await text(client, "up__environ")
    assert "canary" not in received
    json.loads(received[: received.index("}") + 1])
