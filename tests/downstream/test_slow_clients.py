"""Clients that trickle, flood or do not read cost themselves only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from mcp_hub.config.listen import UnreadLimits
from mcp_hub.config.models import Listen
from mcp_hub.downstream.event_stream import MAX_BYTES, MAX_WAITING, Outbox
from mcp_hub.errors import ProtocolError
from mcp_hub.policy import quotas
from mcp_hub.protocol.era import CANCELLED
from mcp_hub.transport.http1 import exchange, send_buffer, server_connection
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import (
    BOTH,
    ENVELOPE,
    Connection,
    call,
    connected,
    fetch,
    initialized,
    message,
    modern,
    request,
)
from tests.downstream.scripted import Served, progress, serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def slow_reader(served: Served) -> AsyncIterator[Connection]:
    """A connection whose client has little room for what it does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", served.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


FLOOD = {"steps": 2000, "size": 20_000, "text": "the answer"}


def test_a_full_send_buffer_drops_notifications_and_keeps_responses() -> None:
    outbox = Outbox()
    for step in range(MAX_WAITING + 10):
        outbox.put(progress(step))
    outbox.put({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (len(outbox), outbox.dropped) == (MAX_WAITING + 1, 10)
    large = Outbox()
    for step in range(3):
        large.put(progress(step, "x" * MAX_BYTES))
    assert (len(large), large.dropped) == (1, 2)


async def test_a_flood_of_progress_is_reduced_and_its_response_kept() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await initialized(served), call("progress", FLOOD)))
        await connection.head()
        steps = 0
        while "result" not in (answer := (await connection.event())[1]):
            steps += 1
        assert 0 < steps <= MAX_WAITING
        assert answer["result"]["content"][0]["text"] == "the answer"


def test_the_cancellation_of_a_question_is_kept_though_the_stream_is_full() -> None:
    outbox = Outbox()
    question = {"jsonrpc": "2.0", "id": "hub-1", "method": "roots/list"}
    outbox.put(question)
    for step in range(MAX_WAITING):
        outbox.put(progress(step))
    with pytest.raises(ProtocolError):
        outbox.put({**question, "id": "hub-2"})
    outbox.put({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": "hub-1"}})
    waiting = [json.loads(data) for data in iter(outbox.take, None)]
    assert [message.get("id") for message in waiting if "id" in message] == ["hub-1"]
    assert waiting[-1]["method"] == CANCELLED


async def test_a_question_for_a_full_stream_is_refused_and_asked_again_when_it_is_read() -> None:
    async with serving() as served:
        session = await initialized(served)
        async with connected(served) as connection:
            connection.send(request(served, "POST", "/mcp", session, call("ask", {"steps": MAX_WAITING + 1})))
            await connection.head()
            while "result" not in (answer := (await connection.event())[1]):
                assert answer["method"] == "notifications/progress"
            assert answer["result"]["content"][0]["text"] == "refused: -32600"
        async with connected(served) as connection:
            connection.send(request(served, "POST", "/mcp", session, call("ask", {"steps": 1})))
            await connection.head()
            assert "method" in (await connection.event())[1]
            question = (await connection.event())[1]
            result = json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}).encode()
            assert (await fetch(served, "POST", "/mcp", session, result)).status == 202
            assert (await connection.event())[1]["result"]["content"][0]["text"] == '{"roots": []}'


async def test_a_client_that_accepts_no_stream_is_not_asked() -> None:
    async with serving() as served:
        session = [line for line in await initialized(served) if line[0] != "Accept"]
        answer = await fetch(served, "POST", "/mcp", [*session, ("Accept", "application/json")], call("ask"))
        assert answer.json["result"]["content"][0]["text"] == "refused: -32600"


async def test_a_client_that_does_not_read_does_not_delay_others() -> None:
    async with serving() as served, slow_reader(served) as deaf:
        session = await initialized(served)
        deaf.send(request(served, "POST", "/mcp", session, call("progress", FLOOD)))
        await asyncio.wait_for(deaf.reader.readexactly(1), HANG_BOUND)
        answers = await asyncio.gather(
            *(fetch(served, "POST", "/mcp", session, call("echo", {}, number)) for number in range(20))
        )
        assert {answer.status for answer in answers} == {200}


async def test_a_client_that_never_reads_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "STALLED_AFTER", 0.05)
    given_up = asyncio.Event()
    give_up = exchange.HttpReply.give_up
    monkeypatch.setattr(exchange.HttpReply, "give_up", lambda reply: (give_up(reply), given_up.set()))
    async with serving() as served, slow_reader(served) as deaf:
        deaf.send(request(served, "POST", "/mcp", await initialized(served), call("progress", FLOOD)))
        await deaf.head()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.wait_for(given_up.wait(), HANG_BOUND)
        deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await deaf.ended()


async def test_a_connection_whose_complete_response_is_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_buffer, "UNREAD_DEADLINE", 0.05)
    async with serving() as served, slow_reader(served) as deaf:
        large = call("echo", {"text": "x" * 1_000_000, "repeated": 32})  # more than the buffers of any system take
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        deaf.send(request(served, "POST", "/mcp", await initialized(served), large))
        async with asyncio.timeout(HANG_BOUND):
            while not deaf.writer.transport.is_closing():
                deaf.send(b"\r\n")  # what arrives at a dropped connection is how its client learns of it
                await asyncio.sleep(0)
        assert await served_on(served)


async def test_an_sse_client_that_does_not_read_is_refused_further_requests() -> None:
    async with serving() as served, slow_reader(served) as deaf:
        session = await initialized(served)
        deaf.send(request(served, "GET", "/sse", [("Accept", "text/event-stream")]))
        await deaf.head()
        _, endpoint = await deaf.event()
        statuses = []
        async with asyncio.timeout(HANG_BOUND):
            while 503 not in statuses:
                answer = await fetch(
                    served, "POST", endpoint, BOTH[:1], call("progress", {"steps": 100, "size": 100_000})
                )
                statuses.append(answer.status)
        assert set(statuses) == {202, 503}
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 200


LARGE = {"text": "x" * 1000, "repeated": 16_000}
"""An answer of 16 MB: more than the buffers of any system take."""
ROOM = UnreadLimits(caller=24_000_000, total=64_000_000)
"""Room for one such answer of a caller, and for several of all callers."""


async def large_request(served: Served, era: str, name: str = "echo", **fields: object) -> bytes:
    """A request for a large answer, of a client of its own in the handshake era and of the anonymous one else."""
    params = {"name": name, "arguments": LARGE, **fields}
    if era == "modern":
        if "_meta" in fields:
            params["_meta"] = {**ENVELOPE, **fields["_meta"]}  # type: ignore[dict-item]
        lines, body = modern("tools/call", params)
        return request(served, "POST", "/mcp", lines, body)
    return request(served, "POST", "/mcp", await initialized(served), message("tools/call", params))


async def unread(served: Served, at_least: int) -> None:
    """Waits until at least `at_least` bytes are unread."""
    async with asyncio.timeout(HANG_BOUND):
        while served.dispatcher.backlog.waiting < at_least:
            await asyncio.sleep(0)


def code(answer: dict[str, object]) -> object:
    """The code of the error in a result, or None if it is no error."""
    result = answer["result"]
    assert isinstance(result, dict)
    return result["_meta"]["mcp-hub/error"]["code"] if result.get("isError") else None


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_unread_output_of_one_client_is_bounded(era: str, streamed: bool) -> None:
    name, fields = ("progress", {"_meta": {"progressToken": "t"}}) if streamed else ("echo", {})
    async with (
        serving() as served,
        slow_reader(served) as deaf,
        slow_reader(served) as second,
        connected(served) as third,
    ):
        served.dispatcher.unread = ROOM
        data = await large_request(served, era, name, **fields)
        deaf.send(data)
        await deaf.head()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await unread(served, 8_000_000)
        second.send(data)
        body = (await second.response()).body  # JSON where it was not begun, else the last event
        answer = json.loads(body.rpartition(b"data: ")[2])
        assert code(answer) == "overloaded"
        assert answer["result"].get("resultType") == ("complete" if era == "modern" else None)
        third.send(await large_request(served, "handshake"))  # another client, for whom nothing waits
        assert len((await third.response()).body) > 16_000_000
        assert deaf.writer.transport.is_closing() is False


async def test_a_reading_client_gets_large_responses_one_after_the_other() -> None:
    async with serving() as served, connected(served) as client:
        served.dispatcher.unread = ROOM
        for _ in range(4):
            client.send(await large_request(served, "modern", "progress", _meta={"progressToken": "t"}))
            await client.head()
            while "result" not in (answer := (await client.event())[1]):
                pass
            assert code(answer) is None
            await client.chunk()
        assert served.dispatcher.backlog.waiting == 0


async def test_above_the_total_bound_a_connection_that_does_not_read_is_dropped() -> None:
    now = 100.0
    async with (
        serving() as served,
        slow_reader(served) as deaf,
        slow_reader(served) as second_deaf,
        connected(served) as reading_client,
    ):
        served.dispatcher.unread = ROOM
        served.dispatcher.backlog.clock = lambda: now
        for client in (deaf, second_deaf):
            client.send(await large_request(served, "handshake"))
            await client.head()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await unread(served, 20_000_000)
        served.dispatcher.unread = UnreadLimits(caller=ROOM.caller, total=ROOM.caller)
        reading_client.send(await large_request(served, "handshake"))
        assert code((await reading_client.response()).json) == "overloaded"  # they may be about to read
        now += quotas.STALLED
        reading_client.send(await large_request(served, "handshake"))
        assert code((await reading_client.response()).json) is None
        deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        second_deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await deaf.ended()
        assert await second_deaf.ended()


async def test_an_sse_client_that_does_not_read_is_refused_more_large_requests() -> None:
    async with serving() as served, slow_reader(served) as deaf:
        served.dispatcher.unread = ROOM
        deaf.send(request(served, "GET", "/sse", [("Accept", "text/event-stream")]))
        await deaf.head()
        _, endpoint = await deaf.event()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(3):
            waits = {**LARGE, "text": "y" * 1000}
            answer = await fetch(served, "POST", endpoint, BOTH[:1], call("wait", waits, number))
            assert answer.status == 202
        served.dispatcher.release.set()
        await unread(served, 8_000_000)
        deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answers = [(await deaf.event())[1] for _ in range(3)]
        assert sorted(str(code(answer)) for answer in answers) == ["None", "overloaded", "overloaded"]


def in_chunks(data: bytes) -> bytes:
    """The same request with a chunked body."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length:")]
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", chunks])


@pytest.mark.parametrize("sent_as", [bytes, in_chunks])
async def test_large_requests_of_one_client_that_run_are_bounded(sent_as: Callable[[bytes], bytes]) -> None:
    large = {"text": "x" * 3_000_000, "repeated": 0}
    async with serving() as served, connected(served) as first, connected(served) as second:
        served.dispatcher.unread = UnreadLimits(caller=4_000_000, total=64_000_000)
        session = await initialized(served)
        first.send(sent_as(request(served, "POST", "/mcp", session, call("wait", large, 1))))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        second.send(sent_as(request(served, "POST", "/mcp", session, call("echo", large, 2))))
        assert code((await second.response()).json) == "overloaded"
        served.dispatcher.release.set()
        assert code((await first.response()).json) is None
        second.send(request(served, "POST", "/mcp", session, call("echo", large, 3)))
        assert code((await second.response()).json) is None
        assert served.dispatcher.backlog.waiting == 0


@pytest.mark.parametrize("sent_as", [bytes, in_chunks])
async def test_unfinished_bodies_of_one_client_are_bounded(sent_as: Callable[[bytes], bytes]) -> None:
    async with serving(Listen(port=0, max_body=4_000_000)) as served, contextlib.AsyncExitStack() as stack:
        served.dispatcher.unread = UnreadLimits(caller=8_000_000, total=64_000_000)
        large = call("echo", {"text": "x" * 3_900_000})
        data = sent_as(request(served, "POST", "/mcp", await initialized(served), large))
        uploads = [await stack.enter_async_context(connected(served)) for _ in range(8)]
        for upload in uploads:
            upload.send(data[:-100])
        responses = [asyncio.ensure_future(upload.response()) for upload in uploads]
        async with asyncio.timeout(HANG_BOUND):
            while sum(response.done() for response in responses) < 4:
                await asyncio.sleep(0)
        assert {response.result().code for response in responses if response.done()} == {-32013}
        for upload in uploads:
            upload.send(data[-100:])
        statuses = sorted([(await response).status for response in responses])
        assert statuses[0] == 200
        assert statuses[-1] == 503
        assert (await fetch(served, "POST", "/mcp", await initialized(served), call("echo"))).status == 200


async def test_a_connection_with_slow_headers_is_closed_at_the_header_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "HEAD_DEADLINE", 0.05)
    async with serving() as served:
        for start in (b"", b"\r\n", b"POST /mcp HTTP/1.1\r\nHost: loc"):
            async with connected(served) as connection:
                connection.send(start)
                assert await connection.ended()


async def test_a_connection_waiting_for_its_response_does_not_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_connection, "HEAD_DEADLINE", 0.5)
    passed = asyncio.Event()
    async with serving() as served:
        session = await initialized(served)
        async with connected(served) as connection:
            connection.send(request(served, "POST", "/mcp", session, call("wait")))
            await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
            asyncio.get_running_loop().call_later(0.7, passed.set)
            await passed.wait()
            served.dispatcher.release.set()
            assert (await connection.response()).status == 200
            connection.send(request(served, "GET", "/healthz"))
            assert (await connection.response()).status == 200


async def test_a_slow_body_is_refused_at_the_body_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_DEADLINE", 0.05)
    async with serving() as served, connected(served) as connection:
        data = request(served, "POST", "/mcp", BOTH, message("initialize", {}))
        connection.send(data[:-5])
        assert (await connection.response()).status == 408
        assert await connection.ended()
        assert served.dispatcher.methods == []


async def test_endless_headers_do_not_stop_the_server_from_serving_others() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                connection.send(b"x" * 65536)
                await connection.writer.drain()
        assert await served_on(served)


async def test_endless_headers_are_refused_and_close_their_connection() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        answer = b""
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                connection.send(b"x" * 65536)
                await connection.writer.drain()
        with contextlib.suppress(ConnectionError):  # a reset may come before the answer is read
            async with asyncio.timeout(HANG_BOUND):
                answer = await connection.reader.read()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


async def test_long_headers_within_the_limit_are_served() -> None:
    async with serving() as served:
        assert (await fetch(served, "GET", "/healthz", [("X-Long", "x" * 30_000)])).status == 200


async def test_many_slow_bodies_delay_no_other_client() -> None:
    async with serving() as served, contextlib.AsyncExitStack() as slow:
        session = await initialized(served)
        for _ in range(50):
            connection = await slow.enter_async_context(connected(served))
            connection.send(request(served, "POST", "/mcp", session, call("echo"))[:-10])
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 200


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
async def test_invalid_http_ends_its_connection_only(data: bytes) -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(data)
        async with asyncio.timeout(HANG_BOUND):
            assert (await connection.reader.read()).startswith(b"HTTP/1.1 400")
        assert await served_on(served)


async def served_on(served: Served) -> bool:
    return (await fetch(served, "GET", "/healthz")).status == 200
