"""Clients of the handshake era whose connection is lost come back with `Last-Event-ID`: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream import event_stream, handshake_session, responses
from mcp_hub.downstream.event_stream import MAX_KEPT, MAX_KEPT_BYTES, RETRY, EventLog
from mcp_hub.downstream.handshake_session import MAX_STREAMS, RetentionBudget, SessionStreams
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import Connection, call, connected, fetch, initialized, request
from tests.downstream.scripted import Served, serving
from tests.fakes.client import PATIENCE, fake
from tests.fakes.network import network_hub, sdk

pytestmark = pytest.mark.anyio

Lines = list[tuple[str, str]]


async def interrupted_call(served: Served, session: Lines, name: str = "then-wait", request_id: Any = 1) -> str:
    """The id of the last event of a call whose connection was lost after its first message."""
    async with connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", session, call(name, request_id=request_id)))
        await connection.head()
        assert (await connection.event())[1]["method"] == "notifications/progress"
        return connection.last_id


@contextlib.asynccontextmanager
async def resumed_stream(served: Served, session: Lines, last: str) -> AsyncIterator[Connection]:
    """A connection on which the stream goes on."""
    async with connected(served) as connection:
        connection.send(request(served, "GET", "/mcp", [*session, ("Last-Event-ID", last)]))
        assert (await connection.head()).status == 200
        yield connection


async def test_a_resumed_stream_delivers_the_response_and_ends() -> None:
    async with serving() as served:
        session = await initialized(served)
        last = await interrupted_call(served, session)
        served.dispatcher.release.set()
        async with resumed_stream(served, session, last) as connection:
            assert "result" in (await connection.event())[1]
            assert await connection.event() == ("end", None)
        assert not served.dispatcher.cancelled.is_set()


async def test_a_response_after_the_resumption_is_sent_on_the_resumed_stream() -> None:
    async with serving() as served:
        session = await initialized(served)
        async with resumed_stream(served, session, await interrupted_call(served, session)) as connection:
            served.dispatcher.release.set()
            assert "result" in (await connection.event())[1]


@pytest.mark.parametrize("answered", [False, True])
async def test_a_stream_can_be_resumed_while_its_old_connection_looks_open(answered: bool) -> None:
    async with serving() as served, connected(served) as old_connection:
        session = await initialized(served)
        old_connection.send(request(served, "POST", "/mcp", session, call("then-wait")))
        await old_connection.head()
        assert (await old_connection.event())[1]["method"] == "notifications/progress"
        if answered:
            served.dispatcher.release.set()
            assert "result" in (await old_connection.event())[1]
        number = old_connection.last_id.partition("-")[0]
        async with resumed_stream(served, session, f"{number}-1") as connection:
            served.dispatcher.release.set()
            assert "result" in (await connection.event())[1]
            assert await connection.event() == ("end", None)
        assert not served.dispatcher.cancelled.is_set()


@pytest.mark.parametrize("last", ["1-99", "1-", "01-7", "2-0"])
async def test_a_bad_event_id_leaves_the_response_alone(last: str) -> None:
    async with serving() as served, connected(served) as healthy:
        session = await initialized(served)
        healthy.send(request(served, "POST", "/mcp", session, call("then-wait")))
        await healthy.head()
        assert (await healthy.event())[1]["method"] == "notifications/progress"
        assert (await fetch(served, "GET", "/mcp", [*session, ("Last-Event-ID", last)])).status == 400
        served.dispatcher.release.set()
        assert "result" in (await healthy.event())[1]


async def test_undelivered_events_are_replayed_in_order() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(request(served, "POST", "/mcp", session, call("progress", {"steps": 5})))
        await connection.head()
        first = (await connection.event())[1]["params"]["progress"]
        last_id = connection.last_id
        messages = [(await connection.event())[1] for _ in range(5)]
        for _ in range(2):  # as often as it likes
            async with resumed_stream(served, session, last_id) as resumed:
                assert [(await resumed.event())[1] for _ in range(5)] == messages
                assert await resumed.event() == ("end", None)
        assert [first, *(message["params"]["progress"] for message in messages[:4])] == [0, 1, 2, 3, 4]


async def test_the_later_of_two_resumptions_takes_over_the_stream() -> None:
    async with serving() as served:
        session = await initialized(served)
        last = await interrupted_call(served, session)
        async with resumed_stream(served, session, last) as older, resumed_stream(served, session, last) as newer:
            assert await older.event() == ("end", None)
            served.dispatcher.release.set()
            assert "result" in (await newer.event())[1]


async def test_equal_event_ids_of_two_sessions_resume_their_own_streams() -> None:
    async with serving() as served:
        first, second = await initialized(served), await initialized(served)
        ids = [await interrupted_call(served, session) for session in (first, second)]
        assert ids[0] == ids[1]
        served.dispatcher.release.set()
        for session in (first, second):
            async with resumed_stream(served, session, ids[0]) as connection:
                assert "result" in (await connection.event())[1]
        stranger = await initialized(served)
        assert (await fetch(served, "GET", "/mcp", [*stranger, ("Last-Event-ID", ids[0])])).status == 400


@pytest.mark.parametrize("last", ["", "x", "1", "9-1", "1-99", "-1-1", "1-1-1", "0-7", "1" * 5000 + "-1", "1-²"])
async def test_resuming_from_an_unknown_event_is_refused(last: str) -> None:
    async with serving() as served:
        session = await initialized(served)
        await interrupted_call(served, session)
        lines = [*session, ("Last-Event-ID", last.encode().decode("latin-1"))]
        answer = await fetch(served, "GET", "/mcp", lines)
        assert (answer.status, answer.json["error"]["code"]) == (400, -32600)


async def test_a_call_that_is_not_resumed_in_time_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionStreams.keep, "__defaults__", (0.01,))
    async with serving() as served:
        session = await initialized(served)
        last = await interrupted_call(served, session)
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
        assert (await fetch(served, "GET", "/mcp", [*session, ("Last-Event-ID", last)])).status == 400


async def test_closing_a_session_discards_its_resumable_streams() -> None:
    async with serving() as served:
        session = await initialized(served)
        await interrupted_call(served, session)
        assert (await fetch(served, "DELETE", "/mcp", session)).status == 204
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)


async def test_a_silent_call_gets_a_stream_with_an_event_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responses, "PRIME_AFTER", 0.01)
    async with serving() as served:
        session = await initialized(served)
        async with connected(served) as connection:
            connection.send(request(served, "POST", "/mcp", session, call("wait")))
            assert (await connection.head()).headers["content-type"] == "text/event-stream"
            data = await connection.chunk()
            assert data == b"id: 1-0\nretry: %d\ndata: \n\n" % RETRY
        async with resumed_stream(served, session, "1-0") as connection:
            served.dispatcher.release.set()
            assert "result" in (await connection.event())[1]


async def test_clients_of_earlier_revisions_get_no_priming_event() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served, version="2025-06-18")
        connection.send(request(served, "POST", "/mcp", session, call("progress", {"steps": 1})))
        await connection.head()
        assert (await connection.chunk()).startswith(b"id: 1-1\ndata: {")


async def test_a_call_is_cancelled_if_its_client_has_no_event_id_to_come_back_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE", 0.01)
    async with serving() as served:
        session = await initialized(served, version="2025-06-18")
        async with connected(served) as connection:
            connection.send(request(served, "POST", "/mcp", session, call("wait")))
            await connection.head()
            assert await connection.event() == ("comment", None)
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)


async def test_a_client_of_an_earlier_revision_comes_back_with_the_id_of_a_message() -> None:
    async with serving() as served:
        session = await initialized(served, version="2025-06-18")
        async with resumed_stream(served, session, await interrupted_call(served, session)) as connection:
            served.dispatcher.release.set()
            assert "result" in (await connection.event())[1]


async def test_unsolicited_messages_wait_for_the_resumption_of_the_standing_stream() -> None:
    async with serving() as served:
        session = await initialized(served)
        notify = served.dispatcher.joined[0].notify
        changed = [{"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"} for kind in ("tools", "prompts")]
        async with connected(served) as standing:
            standing.send(request(served, "GET", "/mcp", session))
            await standing.head()
            notify(changed[0])
            assert (await standing.event())[1] == changed[0]
            last_id = standing.last_id
        notify(changed[1])
        async with resumed_stream(served, session, last_id) as standing:
            assert (await standing.event())[1] == changed[1]
        async with resumed_stream(served, session, "0-0") as standing:
            assert [(await standing.event())[1] for _ in range(2)] == changed


async def test_a_non_stream_response_is_not_kept_for_resumption() -> None:
    async with serving() as served:
        session = await initialized(served)
        for number in range(3):
            answer = await fetch(served, "POST", "/mcp", session, call("echo", {"text": "x"}, number))
            assert answer.headers["content-type"] == "application/json"
        (server_session,) = served.app.streamable.handshake.sessions._sessions.values()
        assert (
            len(server_session.streams._logs)
            == len(server_session.streams._given_up)
            == len(server_session.streams._timers)
            == 0
        )


async def test_a_finished_call_is_removed_from_the_calls_waiting_for_resumption() -> None:
    async with serving() as served:
        session = await initialized(served)
        await interrupted_call(served, session)
        (server_session,) = served.app.streamable.handshake.sessions._sessions.values()
        async with asyncio.timeout(HANG_BOUND):
            while not server_session.streams._given_up:
                await asyncio.sleep(0)
            served.dispatcher.release.set()
            while not [log for log in server_session.streams._logs.values() if log.done]:
                await asyncio.sleep(0)
        assert server_session.streams._given_up == {}


async def answer_on_a_stream(served: Served, session: Lines, request_id: int, size: int = 0) -> str:
    """Makes a call whose answer of `size` bytes ends its stream; returns the id of the event before the answer."""
    async with connected(served) as connection:
        body = call("progress", {"steps": 1, "text": "x" * size}, request_id)
        connection.send(request(served, "POST", "/mcp", session, body))
        await connection.head()
        assert (await connection.event())[1]["method"] == "notifications/progress"
        last = connection.last_id
        assert "result" in (await connection.event())[1]
        assert await connection.event() == ("end", None)
        return last


async def test_a_running_call_outlasts_the_finished_streams_of_its_session() -> None:
    async with serving() as served:
        session = await initialized(served)
        last = await interrupted_call(served, session, request_id="running")
        finished = [await answer_on_a_stream(served, session, number) for number in range(MAX_STREAMS + 1)]
        assert not served.dispatcher.cancelled.is_set()
        oldest = await fetch(served, "GET", "/mcp", [*session, ("Last-Event-ID", finished[0])])
        assert oldest.status == 400, "the oldest finished stream made room"
        async with resumed_stream(served, session, last) as connection:
            served.dispatcher.release.set()
            assert "result" in (await connection.event())[1]
        async with resumed_stream(served, session, finished[2]) as connection:
            assert "result" in (await connection.event())[1]


async def test_large_answers_of_one_client_drop_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_session, "MAX_TOTAL", 100_000)
    async with serving() as served:
        session, other = await initialized(served), await initialized(served)
        last = await interrupted_call(served, session, request_id="running")
        finished = await answer_on_a_stream(served, session, 1, 1_000)
        large = [await answer_on_a_stream(served, other, number, 30_000) for number in range(10)]
        async with resumed_stream(served, session, finished) as connection:
            assert "result" in (await connection.event())[1]
        async with resumed_stream(served, session, last) as connection:
            served.dispatcher.release.set()
            assert "result" in (await connection.event())[1]
        statuses = [
            (await fetch(served, "GET", "/mcp", [*other, ("Last-Event-ID", last)])).status for last in large[:7]
        ]
        assert statuses == [400] * 7
        async with resumed_stream(served, other, large[9]) as connection:
            assert "result" in (await connection.event())[1]


async def test_the_events_kept_for_resumption_are_bounded() -> None:
    given_up: list[int] = []
    streams = SessionStreams(RetentionBudget())
    for number in range(MAX_STREAMS + 3):
        streams.keep(streams.new(), lambda number=number: given_up.append(number))
    assert given_up == []
    log = EventLog(1)
    for step in range(MAX_KEPT + 10):
        log.put({"step": step})
        log.take_event()
    assert not log.rewind(5)
    assert log.rewind(10)
    assert len(log) == MAX_KEPT
    streams.close()
    assert len(given_up) == MAX_STREAMS + 3


def test_a_stream_is_resumed_again_after_a_resumption_that_wrote_nothing() -> None:
    log = EventLog(1)
    for step in range(3):
        log.put({"step": step})
        log.take_event()
    assert log.rewind(0)
    assert log.rewind(0)
    assert len(log) == 3
    assert log.rewind(2)
    assert len(log) == 1
    assert log.rewind(0)
    assert [b'"step":%d' % step in (log.take_event() or b"") for step in range(3)] == [True] * 3


async def test_a_response_that_lost_its_stream_to_a_newer_one_takes_no_more_events() -> None:
    async with serving() as served, connected(served) as older:
        session = await initialized(served)
        caller = served.dispatcher.joined[0]
        older.send(request(served, "GET", "/mcp", session))
        await older.head()
        head = {"jsonrpc": "2.0", "method": "notifications/x"}
        notifications: list[dict[str, Any]] = [{**head, "params": {"n": n, "pad": "x" * 30_000}} for n in range(30)]
        for notification in notifications:
            caller.notify(notification)
        for notification in notifications:
            assert (await older.event())[1] == notification
        async with resumed_stream(served, session, "0-0") as newer:
            for notification in notifications:
                assert (await newer.event())[1]["params"]["n"] == notification["params"]["n"]
            assert await older.event() == ("end", None)


def finished(streams: SessionStreams, size: int) -> EventLog:
    """A finished stream of so many bytes, which is kept."""
    log = streams.new()
    log.put(b"x" * size)
    log.done = True
    streams.keep(log, None)
    return log


def is_kept(streams: SessionStreams, log: EventLog) -> bool:
    return streams.resume(f"{log.number}-0") is log


async def test_above_the_total_bound_the_principal_with_most_gives_up_its_oldest_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake_session, "MAX_TOTAL", 100)
    total = RetentionBudget()
    alone, first, second = (SessionStreams(total, principal=name) for name in ("alice", "bob", "bob"))
    oldest = finished(alone, 40)
    of_bob = [finished(first, 20), finished(second, 30)]
    running = first.new()
    first.keep(running, lambda: None)
    running.put(b"x" * 500)
    newest = finished(first, 30)  # bob's 80 bytes are most, and 50 of them are of this session
    assert [is_kept(first, of_bob[0]), is_kept(second, of_bob[1])] == [False, True]
    assert is_kept(alone, oldest)
    assert is_kept(first, newest)
    assert is_kept(first, running)


async def test_a_stream_that_is_read_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_session, "MAX_TOTAL", 100)
    streams = SessionStreams(RetentionBudget())
    log = finished(streams, 60)
    log.reader = object()
    streams.begin_reading(log)
    others = [finished(streams, 60) for _ in range(MAX_STREAMS)]
    assert [is_kept(streams, other) for other in (others[-2], others[-1], log)] == [False, True, True]
    log.reader = None
    streams.end_reading(log)
    assert [is_kept(streams, other) for other in (others[-1], log)] == [False, True]


async def test_notifications_for_a_client_that_is_not_there_are_bounded() -> None:
    streams = SessionStreams(RetentionBudget())
    log = streams.new()
    streams.keep(log, lambda: None)
    for _ in range(5):
        log.put({"method": "notifications/progress", "params": {"text": "x" * (MAX_KEPT_BYTES // 2)}})
    assert (len(log), log.dropped) == (2, 3)
    log.put({"id": 1, "result": {}})
    assert len(log) == 3
    streams.close()


@contextlib.asynccontextmanager
async def relay(port: int) -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """A port that leads to another one, and the connections through it, to be cut."""
    writers: list[asyncio.StreamWriter] = []

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def connected_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        await asyncio.gather(copy(reader, target_writer), copy(target_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(connected_to, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], writers
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def test_an_sdk_client_whose_connections_are_cut_gets_all_progress_and_its_answer(tmp_path: Path) -> None:
    steps: list[float] = []
    async with (
        network_hub(tmp_path, {"up": fake()}) as (_, base),
        relay(int(base.rpartition(":")[2])) as (port, connections),
        sdk(f"http://127.0.0.1:{port}/mcp", "handshake") as client,
    ):

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)
            if progress == 2:
                for writer in connections:
                    writer.transport.abort()

        async with asyncio.timeout(PATIENCE):
            result = await client.call_tool("up__count", {"steps": 6, "pause": 0.05}, progress_callback=progressed)
        assert not result.is_error
    assert steps == sorted(set(steps))
    assert len(steps) == 6
