"""The event stream of the live page: what it tells, what it resumes, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream.page import update_stream
from mcp_hub.downstream.page.feed import MAX_CALLS
from mcp_hub.downstream.page.runs import MAX_RUNS
from mcp_hub.downstream.page.update_stream import MAX_EVENT_CALLS, MAX_STREAMS
from mcp_hub.security import ANONYMOUS, Principal
from mcp_hub.transport.background import BACKGROUND
from tests.downstream.network.visitor import TOKENS
from tests.downstream.page.acting import running
from tests.downstream.page.opened import served_hub
from tests.fakes.client import PATIENCE, fake, write_config

pytestmark = pytest.mark.anyio

PRINCIPALS = {"alice": {"token": TOKENS["alice"], "profile": "adding"}, "bob": TOKENS["bob"]}
PROFILES = {"adding": {"tools": ["a/add"]}}


async def test_calls_and_server_changes_are_sent_as_events_at_once(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"up": fake(), "idle": fake()}) as served,
        served.looking() as page,
        page.events() as events,
        served.calling() as client,
    ):
        await client.text("up__echo", {"text": "x"})
        (call,) = await events.next("calls")
        assert (call["name"], call["server"], call["verdict"]) == ("up__echo", "up", "ok")
        while not [row for row in await events.next("servers") if row["server"] == "up" and row["calls"] == 1]:
            pass


async def test_many_calls_are_batched_into_few_events(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page, page.events() as events:
        feed = served.access.page.feed
        for number in range(1000):
            feed.take({"event": "call", "id": str(number), "verdict": "ok"}, ANONYMOUS)
        ids: list[str] = []
        while len(ids) < 1000:
            rows = await events.next("calls")
            assert len(rows) <= MAX_EVENT_CALLS
            ids += [row["id"] for row in rows]
        assert ids == [str(number) for number in range(1000)]
        assert len(events.seen) <= 1000 // MAX_EVENT_CALLS + 4


async def test_background_loops_that_were_begun_again_are_counted_for_admins_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = {"principals": {"alice": TOKENS["alice"]}}
    async with (
        served_hub(tmp_path, {}, listen) as served,
        served.looking() as page,
        page.events() as events,
        served.looking(token=TOKENS["alice"]) as alice,
        alice.events() as others,
    ):
        before = (await page.found("state"))["background"]["restarts"]
        for name, value in (("restarts", before + 2), ("last_error", "pins: OSError")):
            monkeypatch.setattr(BACKGROUND, name, value)
        expected = {"restarts": before + 2, "last_error": "pins: OSError"}
        assert await events.next("background") == expected
        assert (await page.found("state"))["background"] == expected
        assert (await alice.found("state"))["background"] is None
        served.access.page.feed.take({"event": "call", "id": "x"}, Principal("alice"))
        await others.next("calls")
        assert "background" not in others.seen


async def test_a_lost_stream_resumes_after_the_last_event_id(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        feed = served.access.page.feed
        last = (await page.found("state"))["last_event_id"]
        feed.take({"event": "call", "id": "meanwhile"}, ANONYMOUS)
        async with page.events(last) as events:
            assert [row["id"] for row in await events.next("calls")] == ["meanwhile"]
            last = events.id
        feed.take({"event": "call", "id": "later"}, ANONYMOUS)
        async with page.events(last) as events:
            assert [row["id"] for row in await events.next("calls")] == ["later"]


@pytest.mark.parametrize("last", ["", "x", "other-5", "-1", "9" * 400, "%00"])
async def test_an_event_id_of_another_hub_run_starts_a_fresh_stream(tmp_path: Path, last: str) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        feed = served.access.page.feed
        feed.take({"event": "call", "id": "before"}, ANONYMOUS)
        async with page.events(last) as events:
            feed.take({"event": "call", "id": "after"}, ANONYMOUS)
            assert [row["id"] for row in await events.next("calls")] == ["after"]


async def test_events_dropped_under_load_are_counted(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        feed = served.access.page.feed
        last = feed.event_id(0)
        for number in range(MAX_CALLS + 7):
            feed.take({"event": "call", "id": str(number)}, ANONYMOUS)
        async with page.events(last) as events:
            assert await events.next("dropped") == {"count": 7}
            assert (await events.next("calls"))[0]["id"] == "7"


async def test_a_caller_receives_only_events_of_its_own_calls(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {}, {"principals": PRINCIPALS}, profiles=PROFILES) as served,
        served.looking(token=TOKENS["alice"]) as alice,
        alice.events() as events,
    ):
        feed = served.access.page.feed
        for id, principal in (("foreign", "bob"), ("own", "alice"), ("also-foreign", "")):
            feed.take({"event": "call", "id": id}, Principal(principal))
        feed.take({"event": "refused", "cause": "host", "said": "secret.example"}, None)
        feed.take({"event": "call", "id": "last"}, Principal("alice"))
        ids: list[str] = []
        while "last" not in ids:
            ids += [row["id"] for row in await events.next("calls")]
        assert ids == ["own", "last"]


async def test_a_reload_is_sent_to_an_open_page(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake()}) as served, served.looking() as page, page.events() as events:
        write_config(tmp_path, {"up": fake(), "second": fake()}, listen={"port": 0})
        assert await served.reloader.reload()
        configuration = await events.next("configuration")
        assert configuration["generation"] == 2
        state = await page.found("state")
        assert "started second" in state["configuration"]["reloads"][0]["changed"]


async def test_a_page_receives_an_event_when_the_hub_stops(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page, page.events() as events:
        served.stop.set()
        assert await events.next("bye") == {"reason": "the hub is stopping"}
        await events.rest()


async def test_a_stream_ends_with_its_session(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {}) as served,
        served.looking() as page,
        served.looking() as second_page,
        page.events() as events,
    ):
        headers = {**page.headers, "origin": served.base}
        assert (await second_page.http.delete("/ui/api/session", headers=headers)).status_code == 200
        assert await events.next("bye") == {"reason": "the session has ended"}


async def test_a_stream_ends_with_the_token_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_stream, "HEARTBEAT", 0.0)
    async with (
        served_hub(tmp_path, {}, {"principals": PRINCIPALS}, profiles=PROFILES) as served,
        served.looking(token=TOKENS["alice"]) as page,
        page.events() as events,
    ):
        served.app.take(Listen(port=served.port, principals={"bob": {"token": TOKENS["bob"]}}))  # type: ignore[dict-item]
        assert await events.next("bye") == {"reason": "the session has ended"}


async def test_a_busy_stream_ends_with_the_token_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_stream, "HEARTBEAT", 0.0)
    async with (
        served_hub(tmp_path, {}, {"principals": PRINCIPALS}, profiles=PROFILES) as served,
        served.looking(token=TOKENS["alice"]) as page,
        page.events() as events,
    ):
        served.app.take(Listen(port=served.port, principals={"bob": {"token": TOKENS["bob"]}}))  # type: ignore[dict-item]
        for number in range(20):
            served.access.page.feed.take({"event": "call", "id": str(number)}, Principal("alice"))
            event = await events.next("calls", "bye")
            if isinstance(event, dict):
                break
        assert event == {"reason": "the session has ended"}


async def test_open_streams_of_one_page_are_limited_and_closed_ones_are_not_counted(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        opened = [page.events() for _ in range(MAX_STREAMS)]
        for stream in opened:
            await stream.__aenter__()
        answer = await page.get("events", accept="text/event-stream")
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "streams"
        for stream in opened:
            await stream.__aexit__(None, None, None)
        (session,) = served.access.page.sessions
        async with asyncio.timeout(PATIENCE):
            while session.streams:
                await asyncio.sleep(0)
        async with page.events():
            assert session.streams == 1


async def test_running_tools_leave_room_for_the_event_stream(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"a": fake()}) as served,
        served.looking() as page,
        contextlib.AsyncExitStack() as open_runs,
    ):
        for _ in range(MAX_RUNS):
            await open_runs.enter_async_context(running(page, "a__sleep", {"seconds": 60}))
        async with page.events():
            (session,) = served.access.page.sessions
            assert (session.runs, session.streams) == (MAX_RUNS, 1)


async def test_the_event_stream_refuses_an_accept_header_without_event_streams(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        assert (await page.get("events", accept="application/json")).status_code == 406
