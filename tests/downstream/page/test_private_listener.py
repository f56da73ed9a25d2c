"""The loopback listener for the page alone, its end, and hubs that go away or come back under an open page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from mcp_hub.downstream.page import private_listener
from mcp_hub.errors import HubError
from tests.downstream.network.visitor import network_hub
from tests.downstream.page.opened import OpenPage, ServedHub, served_hub
from tests.fakes.client import PATIENCE, fake

pytestmark = pytest.mark.anyio


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the listener check constantly whether it is used; a call of the result ends it once it is unused."""
    monkeypatch.setattr(private_listener, "LOOK", 0.01)
    monkeypatch.setattr(private_listener, "UNUSED_FOR", float("inf"))
    return lambda: monkeypatch.setattr(private_listener, "UNUSED_FOR", 0.0)


async def private_link(served: ServedHub) -> tuple[str, str]:
    """The base URL and the secret of a link to a page that the hub's own listener does not show."""
    served.access.base = lambda: None
    base, _, secret = (await served.access.link()).partition("/ui#s=")
    assert base != served.base
    return base, secret


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.01)


async def refuses(base: str) -> bool:
    async with httpx2.AsyncClient(base_url=base) as http:
        try:
            await http.get("/ui")
        except httpx2.TransportError:
            return True
    return False


async def test_the_listener_lives_as_long_as_its_page(tmp_path: Path, impatient: Callable[[], None]) -> None:
    async with served_hub(tmp_path, {"up": fake()}) as served:
        base, secret = await private_link(served)
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
            page = OpenPage(http, base)
            assert (await http.get("/mcp")).status_code == 404  # it waits for its link to be used
            assert (await page.begin(secret=secret)).status_code == 200
            async with page.events() as events:
                served.access.page.feed.take({"event": "call", "id": "x"}, None)
                await events.next("calls")
                impatient()
                assert not await refuses(base)
        await until(lambda: refuses(base))
        new_base, _ = await private_link(served)
        assert not await refuses(new_base)


async def test_a_private_listener_closes_once_no_link_is_waiting(tmp_path: Path, impatient: Callable[[], None]) -> None:
    async with served_hub(tmp_path, {}) as served:
        base, secret = await private_link(served)
        impatient()
        assert not await refuses(base)
        assert served.access.page.links.redeem(secret)
        await until(lambda: refuses(base))


async def test_two_links_share_one_listener(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served:
        first, second = await private_link(served), await private_link(served)
        assert first[0] == second[0]
        assert first[1] != second[1]


async def test_a_restarted_hub_on_the_same_port_rejects_earlier_page_sessions(tmp_path: Path) -> None:
    async with served_hub(tmp_path / "one", {}) as served, served.looking() as page:
        headers, port = page.headers, served.port
        last = (await page.found("state"))["last_event_id"]
    async with (
        served_hub(tmp_path / "two", {}, {"port": port}) as restarted,
        httpx2.AsyncClient(base_url=restarted.base) as http,
    ):
        answer = await http.get("/ui/api/events", headers={**headers, "last-event-id": last})
        assert answer.status_code == 401
        assert "mcp-hub open" in answer.json()["error"]["cure"]


async def test_the_stream_of_a_hub_that_is_killed_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(tmp_path / "run"))
    from mcp_hub.hub.hub_status import ask_hub

    async with network_hub(tmp_path / "hub", {"up": fake()}, {}) as (process, base):
        (answer,) = await asyncio.to_thread(lambda: list(ask_hub(process.process.pid, {"ask": "page"})))
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
            page = OpenPage(http, base)
            await page.begin(secret=answer["url"].partition("#s=")[2])
            async with page.events() as events:
                process.process.kill()
                with pytest.raises(httpx2.TransportError):
                    await events.rest()


async def test_a_page_with_five_thousand_tools_does_not_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process fails its test if a callback keeps its loop."""
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(tmp_path / "run"))
    from mcp_hub.hub.hub_status import ask_hub

    async with network_hub(tmp_path / "hub", {"up": fake("--tools", "5000")}, {}) as (process, base):
        (answer,) = await asyncio.to_thread(lambda: list(ask_hub(process.process.pid, {"ask": "page"})))
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
            page = OpenPage(http, base)
            await page.begin(secret=answer["url"].partition("#s=")[2])
            async with page.events():
                for _ in range(3):
                    (row,) = (await page.found("state"))["servers"]
                    assert row["tools"] >= 5000
                    assert row["tokens"] > 5000


async def test_a_page_whose_listener_cannot_start_is_an_error_and_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> asyncio.Server:
        raise OSError("no more sockets")

    async with served_hub(tmp_path, {}) as served, asyncio.timeout(PATIENCE):
        served.access.base = lambda: None
        monkeypatch.setattr(asyncio.get_running_loop(), "create_server", refuse)
        with pytest.raises(HubError, match="the page cannot be served: no more sockets"):
            await served.access.link()
