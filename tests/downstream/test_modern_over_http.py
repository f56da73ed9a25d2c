from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_hub import errors
from mcp_hub.config.listen import NamedPrincipal
from mcp_hub.config.models import Listen
from mcp_hub.downstream import event_stream
from mcp_hub.protocol import era as eras
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import BOTH, ENVELOPE, connected, fetch, message, modern, request
from tests.downstream.scripted import serving

pytestmark = pytest.mark.anyio

Lines = list[tuple[str, str]]


def without(lines: Lines, name: str) -> Lines:
    return [line for line in lines if line[0] != name]


def tool(name: str, arguments: dict[str, Any] | None = None, request_id: Any = 1) -> tuple[Lines, bytes]:
    return modern("tools/call", {"name": name, "arguments": arguments or {}}, request_id)


async def test_a_modern_request_is_answered_without_a_session() -> None:
    async with serving() as served:
        answer = await fetch(served, "POST", "/mcp", *tool("echo", {"text": "hi"}))
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json["result"]["content"][0]["text"] == "hi"
        assert "mcp-session-id" not in answer.headers
        assert served.dispatcher.joined == []


async def test_no_answer_is_compressed_even_if_the_client_accepts_it() -> None:
    async with serving() as served:
        for lines, body in (tool("echo", {"text": "x" * 5000}), modern("tools/list")):
            answer = await fetch(served, "POST", "/mcp", [*lines, ("Accept-Encoding", "gzip, deflate, *")], body)
            assert answer.status == 200
            assert "result" in answer.json
            assert "content-encoding" not in answer.headers


SOUND = tool("echo")[0]
FAULTS: dict[str, tuple[Lines, int]] = {
    "no version": (without(SOUND, "MCP-Protocol-Version"), errors.HEADER_MISMATCH),
    "no method": (without(SOUND, "Mcp-Method"), errors.HEADER_MISMATCH),
    "no name": (without(SOUND, "Mcp-Name"), errors.HEADER_MISMATCH),
    "another version": (
        [*without(SOUND, "MCP-Protocol-Version"), ("MCP-Protocol-Version", eras.LATEST_HANDSHAKE)],
        errors.HEADER_MISMATCH,
    ),
    "another method": ([*without(SOUND, "Mcp-Method"), ("Mcp-Method", "tools/list")], errors.HEADER_MISMATCH),
    "another name": ([*without(SOUND, "Mcp-Name"), ("Mcp-Name", "admin")], errors.HEADER_MISMATCH),
    "a broken sentinel": ([*without(SOUND, "Mcp-Name"), ("Mcp-Name", "=?base64?!?=")], errors.HEADER_MISMATCH),
    "two names": ([*SOUND, ("mcp-name", "echo")], errors.HEADER_MISMATCH),
    "two methods": ([*SOUND, ("mcp-method", "tools/call")], errors.HEADER_MISMATCH),
    "two versions": ([*SOUND, ("mcp-protocol-version", eras.LATEST_MODERN)], errors.HEADER_MISMATCH),
    "an unknown version": (
        [*without(SOUND, "MCP-Protocol-Version"), ("MCP-Protocol-Version", "2099-01-01")],
        errors.UNSUPPORTED_PROTOCOL_VERSION,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_headers_that_disagree_with_the_body_are_refused(fault: str) -> None:
    lines, code = FAULTS[fault]
    async with serving() as served:
        answer = await fetch(served, "POST", "/mcp", lines, tool("echo")[1])
        assert (answer.status, answer.code) == (400, code)
        assert served.dispatcher.methods == []


REGIONS: list[tuple[dict[str, Any], Lines, int]] = [
    ({"region": "eu"}, [("Mcp-Param-Region", "eu")], 200),
    ({"region": "ü"}, [("Mcp-Param-Region", "=?base64?w7w=?=")], 200),
    ({}, [], 200),
    ({"region": "eu"}, [], 400),
    ({"region": "eu"}, [("Mcp-Param-Region", "us")], 400),
    ({}, [("Mcp-Param-Region", "eu")], 400),
    ({"region": "eu"}, [("Mcp-Param-Region", "eu"), ("mcp-param-region", "eu")], 400),
    ({"region": "eu"}, [("Mcp-Param-Region", "eu"), ("Mcp-Param-Other", "x")], 200),
]


@pytest.mark.parametrize(("arguments", "extra", "status"), REGIONS)
async def test_annotated_arguments_are_checked_against_their_headers(
    arguments: dict[str, Any], extra: Lines, status: int
) -> None:
    async with serving() as served:
        lines, body = tool("regional", arguments)
        answer = await fetch(served, "POST", "/mcp", [*lines, *extra], body)
        assert answer.status == status
        assert status == 200 or answer.code == errors.HEADER_MISMATCH


async def test_a_request_without_its_envelope_is_refused_with_invalid_params() -> None:
    async with serving() as served:
        for params in (None, {}, {"_meta": {}}, {"_meta": {eras.VERSION_KEY: eras.LATEST_MODERN}}):
            lines = modern("tools/list")[0]
            answer = await fetch(served, "POST", "/mcp", lines, message("tools/list", params, "x"))
            assert (answer.status, answer.code, answer.json["id"]) == (400, errors.INVALID_PARAMS, "x")
        assert served.dispatcher.methods == []


async def test_the_status_follows_from_the_code_of_the_error() -> None:
    async with serving() as served:
        unknown = await fetch(served, "POST", "/mcp", *modern("no/such"))
        assert (unknown.status, unknown.code) == (404, errors.METHOD_NOT_FOUND)
        bug = await fetch(served, "POST", "/mcp", *tool("boom"))
        assert (bug.status, bug.code) == (500, errors.INTERNAL_ERROR)


async def test_notifications_are_accepted_and_batches_and_answers_refused() -> None:
    async with serving() as served:
        lines = modern("tools/list")[0]
        body = message("notifications/cancelled", {"requestId": 1, "_meta": ENVELOPE}, None)
        assert (await fetch(served, "POST", "/mcp", lines, body)).status == 202
        for body in (b"[" + modern("tools/list")[1] + b"]", b'{"jsonrpc": "2.0", "id": 1, "result": {}}'):
            answer = await fetch(served, "POST", "/mcp", lines, body)
            assert (answer.status, answer.code) == (400, errors.INVALID_REQUEST)
        assert served.dispatcher.methods == served.dispatcher.notifications == []


async def test_modern_clients_get_405_for_get_and_delete() -> None:
    async with serving() as served:
        for method in ("GET", "DELETE"):
            answer = await fetch(served, method, "/mcp", modern("tools/list")[0])
            assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_clients_may_use_the_same_request_id_concurrently() -> None:
    async with serving() as served, connected(served) as first, connected(served) as second:
        for number, connection in enumerate((first, second)):
            served.dispatcher.started.clear()
            connection.send(request(served, "POST", "/mcp", *tool("wait", {"text": str(number)}, 1)))
            await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        served.dispatcher.release.set()
        for number, connection in enumerate((first, second)):
            assert (await connection.response()).json["result"]["content"][0]["text"] == str(number)


async def test_closing_the_response_cancels_the_request() -> None:
    async with serving() as served:
        async with connected(served) as connection:
            connection.send(request(served, "POST", "/mcp", *tool("then-wait")))
            await connection.head()
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)


async def test_a_cancelled_notification_cancels_nothing_in_the_modern_era() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", *tool("wait")))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        lines = modern("tools/list")[0]
        body = message("notifications/cancelled", {"requestId": 1}, None)
        assert (await fetch(served, "POST", "/mcp", lines, body)).status == 202
        served.dispatcher.release.set()
        assert (await connection.response()).status == 200
        assert not served.dispatcher.cancelled.is_set()


async def test_a_subscription_is_a_stream_that_ends_with_its_result() -> None:
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", *modern(eras.LISTEN, {"notifications": {}}, "sub")))
        assert (await connection.head()).headers["content-type"] == "text/event-stream"
        name, acknowledged = await connection.event()
        assert (name, acknowledged["method"]) == ("message", eras.ACKNOWLEDGED)
        served.stop.set()
        assert (await connection.event())[1]["result"]["_meta"][eras.SUBSCRIPTION_KEY] == "sub"
        assert await connection.event() == ("end", None)


async def test_a_subscription_requires_an_accept_header_with_event_streams() -> None:
    async with serving() as served:
        lines, body = modern(eras.LISTEN, {"notifications": {}})
        lines = [BOTH[0], ("Accept", "application/json"), *lines[2:]]
        assert (await fetch(served, "POST", "/mcp", lines, body)).status == 406


async def test_requests_of_a_principal_that_a_reload_removes_are_cancelled() -> None:
    a, b = (("Authorization", f"Bearer {letter * 32}") for letter in "ab")
    principals = {"a": NamedPrincipal(token="a" * 32), "b": NamedPrincipal(token="b" * 32)}
    async with (
        serving(Listen(port=0, principals=principals)) as served,
        connected(served) as removed,
        connected(served) as remaining,
    ):
        for connection, token in ((removed, a), (remaining, b)):
            lines, body = modern(eras.LISTEN, {"notifications": {}}, "sub")
            connection.send(request(served, "POST", "/mcp", [*lines, token], body))
            await connection.head()
            assert (await connection.event())[1]["method"] == eras.ACKNOWLEDGED
        served.app.take(Listen(port=0, principals={"b": principals["b"]}))
        assert "error" in (await removed.event())[1]
        assert await removed.event() == ("end", None)
        served.stop.set()
        assert "result" in (await remaining.event())[1]


async def test_a_silent_subscription_is_kept_open_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE", 0.01)
    async with serving() as served, connected(served) as connection:
        connection.send(request(served, "POST", "/mcp", *modern(eras.LISTEN, {"notifications": {}})))
        await connection.head()
        assert [(await connection.event())[0] for _ in range(4)] == ["message", "comment", "comment", "comment"]
