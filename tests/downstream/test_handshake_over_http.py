from __future__ import annotations

import asyncio
import json

import pytest

from mcp_hub import errors
from mcp_hub.config.models import Listen
from mcp_hub.downstream import event_stream, handshake, handshake_session
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import BOTH, call, connected, fetch, initialized, message, request
from tests.downstream.scripted import serving

pytestmark = pytest.mark.anyio

JSON_ONLY = [("Content-Type", "application/json"), ("Accept", "application/json")]


# --- sessions --------------------------------------------------------------------------------------------------


async def test_initialize_opens_a_session_that_carries_the_following_requests() -> None:
    async with serving() as served:
        session = await initialized(served)
        session_id = session[-1][1]
        assert len(session_id) >= 22
        assert all(0x21 <= ord(char) <= 0x7E for char in session_id)
        answer = await fetch(served, "POST", "/mcp", session, call("echo", {"text": "hi"}, "seven"))
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json == {"jsonrpc": "2.0", "id": "seven", "result": {"content": [{"type": "text", "text": "hi"}]}}
        assert len(served.dispatcher.joined) == 1
        assert served.dispatcher.joined[0].initialized


async def test_without_a_session_id_only_initialize_is_answered() -> None:
    async with serving() as served:
        for body in (call("echo"), message("ping"), message("notifications/initialized", request_id=None)):
            answer = await fetch(served, "POST", "/mcp", BOTH, body)
            assert (answer.status, answer.code) == (400, errors.INVALID_REQUEST)
        assert (await fetch(served, "GET", "/mcp", BOTH)).status == 400
        assert served.dispatcher.methods == []


async def test_an_unknown_session_is_answered_404() -> None:
    async with serving() as served:
        for method in ("POST", "GET", "DELETE"):
            lines = [*BOTH, ("Mcp-Session-Id", "unknown")]
            assert (await fetch(served, method, "/mcp", lines, message("ping"))).status == 404


async def test_initialize_with_the_id_of_a_session_that_is_gone_begins_a_new_one() -> None:
    async with serving() as served:
        gone = await initialized(served)
        assert (await fetch(served, "DELETE", "/mcp", gone)).status == 204
        for session in (gone, [*BOTH, ("Mcp-Session-Id", "unknown")]):
            answer = await fetch(served, "POST", "/mcp", session, message("initialize", {}))
            assert answer.status == 200
            new = [*BOTH, ("Mcp-Session-Id", answer.headers["mcp-session-id"])]
            assert new[-1] != session[-1]
            assert (await fetch(served, "POST", "/mcp", new, message("ping"))).status == 200
            assert (await fetch(served, "POST", "/mcp", session, message("ping"))).status == 404


async def test_delete_ends_a_session_with_its_calls_and_its_stream() -> None:
    async with serving() as served, connected(served) as standing, connected(served) as calling:
        session = await initialized(served)
        standing.send(request(served, "GET", "/mcp", session))
        assert (await standing.head()).status == 200
        calling.send(request(served, "POST", "/mcp", session, call("hang")))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        assert (await fetch(served, "DELETE", "/mcp", session)).status == 204
        assert await standing.event() == ("end", None)
        cancelled = await calling.response()
        assert cancelled.json["result"]["_meta"]["mcp-hub/error"]["code"] == errors.CallCancelled.code
        assert served.dispatcher.left == served.dispatcher.joined
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 404


async def test_sessions_are_bounded_and_idle_ones_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "MAX_SESSIONS", 2)
    now = 0.0
    async with serving() as served:
        served.app.streamable.handshake.sessions._clock = lambda: now
        first = await initialized(served)
        now = 1.0
        second = await initialized(served)
        refused = await fetch(served, "POST", "/mcp", BOTH, message("initialize", {}))
        assert (refused.status, refused.code) == (503, errors.Overloaded.rpc_code)
        now = handshake.IDLE_TIMEOUT + 0.5
        await initialized(served)
        assert (await fetch(served, "POST", "/mcp", first, call("echo"))).status == 404
        assert (await fetch(served, "POST", "/mcp", second, call("echo"))).status == 200


async def test_a_session_with_an_open_stream_is_not_idle() -> None:
    now = 0.0
    async with serving() as served, connected(served) as standing:
        table = served.app.streamable.handshake.sessions
        table._clock = lambda: now
        session = await initialized(served)
        standing.send(request(served, "GET", "/mcp", session))
        await standing.head()
        now = 2 * handshake.IDLE_TIMEOUT
        table.forget_idle()
        assert len(table) == 1


@pytest.mark.parametrize(("version", "status"), [("2025-06-18", 200), ("2024-11-05", 200), ("1999-01-01", 400)])
async def test_an_unknown_protocol_version_header_is_refused(version: str, status: int) -> None:
    async with serving() as served:
        session = await initialized(served)
        answer = await fetch(served, "POST", "/mcp", [*session, ("MCP-Protocol-Version", version)], call("echo"))
        assert answer.status == status
        if status == 400:
            assert answer.code == errors.UNSUPPORTED_PROTOCOL_VERSION
            assert answer.json["id"] == 1
            assert "2026-07-28" in answer.json["error"]["data"]["supported"]


async def test_notifications_and_stray_answers_are_accepted_without_a_body() -> None:
    async with serving() as served:
        session = await initialized(served)
        for body in (message("notifications/x", request_id=None), b'{"jsonrpc": "2.0", "id": 5, "result": {}}'):
            answer = await fetch(served, "POST", "/mcp", session, body)
            assert (answer.status, answer.body) == (202, b"")
        assert served.dispatcher.notifications == ["notifications/initialized", "notifications/x"]


async def test_an_error_of_a_request_is_in_the_body_of_a_200() -> None:
    async with serving() as served:
        answer = await fetch(served, "POST", "/mcp", await initialized(served), message("no/such"))
        assert (answer.status, answer.code) == (200, errors.METHOD_NOT_FOUND)


# --- bodies ----------------------------------------------------------------------------------------------------

BODIES: list[tuple[bytes, int]] = [
    (b"", errors.PARSE_ERROR),
    (b"{", errors.PARSE_ERROR),
    (b"\xff\xfe", errors.PARSE_ERROR),
    (b"[" * 100_000, errors.PARSE_ERROR),
    (b"null", errors.INVALID_REQUEST),
    (b"7", errors.INVALID_REQUEST),
    (b'"text"', errors.INVALID_REQUEST),
    (b"[]", errors.INVALID_REQUEST),
    (b"{}", errors.INVALID_REQUEST),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', errors.INVALID_REQUEST),
    (b'{"id": 1, "method": "ping"}', errors.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', errors.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', errors.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', errors.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}', errors.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', errors.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1}', errors.INVALID_REQUEST),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', errors.INVALID_REQUEST),
]


@pytest.mark.parametrize(("body", "code"), BODIES, ids=lambda value: str(value)[:40])
async def test_a_body_that_is_not_a_message_is_refused_and_the_next_one_served(body: bytes, code: int) -> None:
    async with serving() as served:
        session = await initialized(served)
        answer = await fetch(served, "POST", "/mcp", session, body)
        assert (answer.status, answer.code) == (400, code)
        assert served.dispatcher.methods == ["initialize"]
        assert (await fetch(served, "POST", "/mcp", session, message("ping"))).json["result"] == {}


async def test_a_body_above_the_limit_is_refused_with_and_without_content_length() -> None:
    async with serving(Listen(port=0, max_body=1000)) as served, connected(served) as chunked:
        session = await initialized(served)
        answer = await fetch(served, "POST", "/mcp", session, call("echo", {"text": "x" * 200_000}))
        assert (answer.status, answer.code, answer.json["id"]) == (413, errors.INVALID_REQUEST, None)
        head = request(served, "POST", "/mcp", session).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        chunked.send(head + b"200\r\n" + b" " * 0x200 + b"\r\n" + b"200\r\n" + b" " * 0x200 + b"\r\n")
        assert (await chunked.response()).status == 413
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 200


async def test_a_chunked_body_within_the_limit_is_served() -> None:
    async with serving() as served, connected(served) as chunked:
        session = await initialized(served)
        body = call("echo", {"text": "x" * 100_000})
        head = request(served, "POST", "/mcp", session).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        chunked.send(head)
        for start in range(0, len(body), 10_000):
            part = body[start : start + 10_000]
            chunked.send(b"%x\r\n%s\r\n" % (len(part), part))
        chunked.send(b"0\r\n\r\n")
        assert (await chunked.response()).status == 200


ACCEPTS: list[tuple[str | None, int]] = [
    ("application/json, text/event-stream", 200),
    ("*/*", 200),
    ("application/*", 200),
    ("application/json", 200),
    ("TEXT/event-stream;q=0.5, Application/JSON;q=0.9", 200),
    (None, 200),
    ("text/event-stream", 406),
    ("text/html", 406),
    ("application/json;q=0, */*", 406),
]


@pytest.mark.parametrize(("accept", "status"), ACCEPTS)
async def test_the_accept_header_must_allow_json(accept: str | None, status: int) -> None:
    async with serving() as served:
        lines = [BOTH[0], (await initialized(served))[-1]]
        if accept is not None:
            lines.append(("Accept", accept))
        assert (await fetch(served, "POST", "/mcp", lines, call("echo"))).status == status


async def test_methods_but_get_post_and_delete_are_not_allowed() -> None:
    async with serving() as served:
        for method in ("PUT", "PATCH", "OPTIONS"):
            answer = await fetch(served, method, "/mcp", BOTH)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, DELETE")


# --- batches ---------------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_as_an_array_in_the_revision_with_batches() -> None:
    async with serving() as served:
        session = await initialized(served, version="2025-03-26")
        parts = [
            message("ping", request_id=1),
            message("notifications/x", request_id=None),
            b'{"jsonrpc": "2.0", "id": 9, "result": {}}',
            b"7",
            message("no/such", request_id="b"),
        ]
        answer = await fetch(served, "POST", "/mcp", session, b"[" + b",".join(parts) + b"]")
        assert answer.status == 200
        assert [(reply["id"], reply.get("error", {}).get("code")) for reply in answer.json] == [
            (1, None),
            (None, errors.INVALID_REQUEST),
            ("b", errors.METHOD_NOT_FOUND),
        ]
        assert served.dispatcher.notifications[-1] == "notifications/x"


async def test_a_batch_without_requests_has_no_answer() -> None:
    async with serving() as served:
        session = await initialized(served, version="2025-03-26")
        answer = await fetch(served, "POST", "/mcp", session, b"[" + message("notifications/x", request_id=None) + b"]")
        assert (answer.status, answer.body) == (202, b"")


async def test_cancelling_one_member_of_a_batch_leaves_the_others_their_answers() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served, version="2025-03-26")
        members = [call("hang", request_id=1), call("wait", {"text": "done"}, 2)]
        connection.send(request(served, "POST", "/mcp", session, b"[" + b",".join(members) + b"]"))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        body = message("notifications/cancelled", {"requestId": 1}, None)
        assert (await fetch(served, "POST", "/mcp", session, body)).status == 202
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
        served.dispatcher.release.set()
        answer = await connection.response()
        assert answer.status == 200
        assert [(reply["id"], reply["result"]["content"][0]["text"]) for reply in answer.json] == [(2, "done")]


async def test_a_batch_whose_members_are_all_cancelled_has_no_answer() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served, version="2025-03-26")
        connection.send(request(served, "POST", "/mcp", session, b"[" + call("hang", request_id=1) + b"]"))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        body = message("notifications/cancelled", {"requestId": 1}, None)
        assert (await fetch(served, "POST", "/mcp", session, body)).status == 202
        answer = await connection.response()
        assert (answer.status, answer.body) == (202, b"")


@pytest.mark.parametrize("body", [b"[]", b"[" + message("initialize", {}) + b"]"])
async def test_an_empty_batch_and_one_that_initializes_are_refused(body: bytes) -> None:
    async with serving() as served:
        session = await initialized(served, version="2025-03-26")
        answer = await fetch(served, "POST", "/mcp", session, body)
        assert (answer.status, answer.code) == (400, errors.INVALID_REQUEST)


# --- streams ---------------------------------------------------------------------------------------------------


async def test_an_answer_with_progress_is_an_event_stream_in_order() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(request(served, "POST", "/mcp", session, call("progress", {"steps": 3, "text": "done"})))
        head = await connection.head()
        assert head.headers["content-type"] == "text/event-stream"
        assert head.headers["cache-control"] == "no-cache, no-transform"
        assert head.headers["x-accel-buffering"] == "no"
        messages = [(await connection.event())[1] for _ in range(4)]
        assert [notification["params"]["progress"] for notification in messages[:3]] == [0, 1, 2]
        assert messages[3]["result"]["content"][0]["text"] == "done"
        assert await connection.event() == ("end", None)


async def test_progress_arrives_while_the_call_still_runs() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await initialized(served), call("then-wait")))
        await connection.head()
        assert (await connection.event())[1]["method"] == "notifications/progress"
        served.dispatcher.release.set()
        assert "result" in (await connection.event())[1]


async def test_a_client_that_accepts_only_json_gets_the_response_without_progress() -> None:
    async with serving() as served:
        lines = [*JSON_ONLY, (await initialized(served))[-1]]
        answer = await fetch(served, "POST", "/mcp", lines, call("progress", {"text": "done"}))
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["result"]["content"][0]["text"] == "done"


async def test_a_slow_response_becomes_a_stream_with_keep_alive_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE", 0.01)
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", await initialized(served), call("wait")))
        assert (await connection.head()).headers["content-type"] == "text/event-stream"
        assert [(await connection.event())[0] for _ in range(3)] == ["comment"] * 3
        served.dispatcher.release.set()
        while (event := await connection.event())[0] == "comment":
            pass
        assert "result" in event[1]


async def test_a_client_that_disconnects_without_an_event_id_cancels_its_call() -> None:
    async with serving() as served:
        session = await initialized(served)
        async with connected(served) as connection:
            connection.send(request(served, "POST", "/mcp", session, call("hang")))
            await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
        await asyncio.wait_for(served.app.streamable.responder.drained(), HANG_BOUND)


async def test_a_cancelled_call_gets_no_response() -> None:
    async with serving() as served, connected(served) as connection:
        session = await initialized(served)
        connection.send(request(served, "POST", "/mcp", session, call("hang", request_id=5)))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        body = message("notifications/cancelled", {"requestId": 5}, None)
        assert (await fetch(served, "POST", "/mcp", session, body)).status == 202
        answer = await connection.response()
        assert (answer.status, answer.body) == (202, b"")


async def test_an_unexpected_error_is_a_500_without_details_and_ends_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as served:
        session = await initialized(served)
        answer = await fetch(served, "POST", "/mcp", session, call("boom"))
        assert (answer.status, answer.code, answer.json["id"]) == (500, errors.INTERNAL_ERROR, 1)
        assert b"secret" not in answer.body
        assert "a secret of the hub" in caplog.text
        unwritable = await fetch(served, "POST", "/mcp", session, call("unwritable"))
        assert unwritable.code == errors.INTERNAL_ERROR
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 200


async def test_the_standing_stream_sends_each_list_change_once_until_it_is_read() -> None:
    async with serving() as served, connected(served) as standing:
        session = await initialized(served)
        notify = served.dispatcher.joined[0].notify
        tools, prompts = (
            {"jsonrpc": "2.0", "method": f"notifications/{change}/list_changed"} for change in ("tools", "prompts")
        )
        for change in (tools, prompts, tools, tools, prompts):
            notify(change)
        standing.send(request(served, "GET", "/mcp", session))
        head = await standing.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        assert [await standing.event() for _ in range(2)] == [("message", tools), ("message", prompts)]
        notify(tools)
        assert await standing.event() == ("message", tools)


async def test_a_session_has_one_standing_stream_at_a_time() -> None:
    async with serving() as served, connected(served) as first:
        session = await initialized(served)
        first.send(request(served, "GET", "/mcp", session))
        assert (await first.head()).status == 200
        assert (await fetch(served, "GET", "/mcp", session)).status == 409
        assert (await fetch(served, "GET", "/mcp", [*JSON_ONLY, session[-1]])).status == 406


async def test_requests_of_one_session_run_concurrently() -> None:
    async with serving() as served, connected(served) as slow:
        session = await initialized(served)
        slow.send(request(served, "POST", "/mcp", session, call("wait", {"text": "slow"}, 1)))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        quick = await fetch(served, "POST", "/mcp", session, call("echo", {"text": "quick"}, 2))
        assert quick.json["result"]["content"][0]["text"] == "quick"
        served.dispatcher.release.set()
        assert json.loads((await slow.response()).body)["id"] == 1


async def test_a_question_is_refused_if_its_client_never_opens_the_standing_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake_session, "ASKED_FOR", 0.01)
    async with serving() as served, connected(served) as standing:
        session = await initialized(served)
        answer = await fetch(served, "POST", "/mcp", session, call("ask", {"on_standing_stream": True}))
        assert answer.json["result"]["content"][0]["text"] == "refused: -32600"
        standing.send(request(served, "GET", "/mcp", session))
        await standing.head()
        question, cancellation = [(await standing.event())[1] for _ in range(2)]
        assert cancellation["params"] == {"requestId": question["id"]}


async def test_a_question_waits_for_its_client_to_open_the_standing_stream() -> None:
    async with serving() as served, connected(served) as calling, connected(served) as standing:
        session = await initialized(served)
        calling.send(request(served, "POST", "/mcp", session, call("ask", {"on_standing_stream": True})))
        standing.send(request(served, "GET", "/mcp", session))
        await standing.head()
        question = (await standing.event())[1]
        answer = json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}).encode()
        assert (await fetch(served, "POST", "/mcp", session, answer)).status == 202
        assert (await calling.response()).json["result"]["content"][0]["text"] == '{"roots": []}'
