"""Sampling, elicitation and roots: servers of both eras ask clients of the handshake era, and only the right one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import types
from mcp.client.client import Client

from mcp_hub.hub.composition import load_config
from tests.fakes.client import HUB, PATIENCE, StdioClient, spawned, write_config
from tests.fakes.network import network_hub, sdk

pytestmark = pytest.mark.anyio

ASKING = str(Path(__file__).parent.parent.parent / "fakes" / "asking.py")
ALL: dict[str, Any] = {
    "sampling": {"tools": {}, "future": 1},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}], "maxTokens": 5, "future": {}}
ERAS = ("handshake", "modern")


def asking(*options: str, **entry: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [ASKING, *options], **entry}


@contextlib.asynccontextmanager
async def client_of(directory: Path, entry: dict[str, Any], capabilities: Any = None) -> AsyncIterator[StdioClient]:
    """A raw stdio client that declares `capabilities`, default all, of a hub in front of one server `a`."""
    config = write_config(directory, {"a": entry})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": ALL if capabilities is None else capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        await client.request("initialize", params)
        client.notify("notifications/initialized")
        yield client


def questions(client: StdioClient) -> list[dict[str, Any]]:
    """Returns the requests of the hub so far."""
    return [message for message in client.notifications if "id" in message]


def news(client: StdioClient, call: asyncio.Future[Any], count: int) -> bool:
    return call.done() or len(questions(client)) > count


async def asked(client: StdioClient, count: int = 1) -> list[dict[str, Any]]:
    """Returns the requests of the hub, once there are `count` of them."""

    await client.until(lambda: len(questions(client)) >= count)
    return questions(client)


def respond(client: StdioClient, question: dict[str, Any], **answer: Any) -> None:
    client.send_raw(json.dumps({"jsonrpc": "2.0", "id": question["id"], **answer}).encode() + b"\n")


def named(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the params of a question of the server `a` as a client gets them."""
    if method == "roots/list":
        return params
    text_fields = {"message": f"a asks: {params['message']}"} if "message" in params else {}
    return {**params, **text_fields, "_meta": {"mcp-hub/server": "a"}}


def text_of(message: dict[str, Any]) -> Any:
    return json.loads(message["result"]["content"][0]["text"])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("sampling/createMessage", SAMPLING, {"role": "assistant", "content": [], "model": "m", "future": 10**25}),
        ("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}}, {"action": "decline"}),
        ("roots/list", {}, {"roots": [{"uri": "file:///x", "future": True}]}),
    ],
)
async def test_a_servers_request_names_the_server_and_the_response_returns_unchanged(
    tmp_path: Path, era: str, method: str, params: dict[str, Any], result: dict[str, Any]
) -> None:
    async with client_of(tmp_path, asking("--era", era)) as client:
        call = client.start("tools/call", {"name": "a__ask", "arguments": {"method": method, "params": params}})
        (question,) = await asked(client)
        assert (question["method"], question["params"]) == (method, named(method, params))
        respond(client, question, result=result)
        async with asyncio.timeout(PATIENCE):
            answer = text_of(await call)
    assert answer == ({"result": result} if era == "handshake" else {"key0": result})


async def test_an_error_of_the_client_reaches_a_handshake_server_unchanged(tmp_path: Path) -> None:
    error = {"code": -1, "message": "the user said no", "data": {"x": 1}, "future": 2}
    async with client_of(tmp_path, asking()) as client:
        call = client.start("tools/call", {"name": "a__ask", "arguments": {"method": "roots/list"}})
        (question,) = await asked(client)
        respond(client, question, error=error)
        async with asyncio.timeout(PATIENCE):
            assert text_of(await call) == {"error": error}


async def test_an_error_of_the_client_ends_a_call_of_a_modern_server(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking("--era", "modern")) as client:
        call = client.start("tools/call", {"name": "a__ask", "arguments": {}})
        (question,) = await asked(client)
        respond(client, question, error={"code": -1, "message": "the user said no"})
        async with asyncio.timeout(PATIENCE):
            assert (await call)["error"] == {"code": -1, "message": "the user said no"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_sees_the_clients_capabilities_without_experimental_ones(tmp_path: Path, era: str) -> None:
    declared = {"roots": {"listChanged": True}, "experimental": {"x": {}}}
    async with client_of(tmp_path, asking("--era", era), declared) as client:
        assert json.loads(await client.text("a__declared")) == {"roots": {"listChanged": True}}


@pytest.mark.parametrize(
    ("declared", "method", "params"),
    [
        ({}, "sampling/createMessage", SAMPLING),
        ({"sampling": {}}, "sampling/createMessage", {**SAMPLING, "tools": []}),
        ({"elicitation": {}}, "elicitation/create", {"mode": "url", "url": "https://example.com", "message": "x"}),
        ({"roots": {}}, "elicitation/create", {"message": "x"}),
        ({"roots": {}}, "tasks/list", {}),
    ],
)
async def test_a_client_is_not_asked_for_capabilities_it_has_not_declared(
    tmp_path: Path, declared: Any, method: str, params: dict[str, Any]
) -> None:
    async with client_of(tmp_path, asking(), declared) as client:
        answer = json.loads(await client.text("a__ask", {"method": method, "params": params}))
        assert answer["error"]["code"] == -32601
        assert questions(client) == []


async def test_the_only_client_answers_server_requests_outside_of_calls_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with client_of(tmp_path, asking("--log", str(log))) as client:
        assert await client.text("a__late") == "soon"
        (question,) = await asked(client)
        respond(client, question, result={"roots": []})
        async with asyncio.timeout(PATIENCE):
            while not (log.exists() and '"roots": []' in log.read_text()):
                await client.text("a__echo", {"text": "x"})


async def test_a_server_is_notified_when_the_roots_of_its_only_client_change(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with client_of(tmp_path, asking("--log", str(log))) as client:
        await client.text("a__echo", {"text": "x"})
        client.notify("notifications/roots/list_changed")
        async with asyncio.timeout(PATIENCE):
            while "notifications/roots/list_changed" not in log.read_text():
                await client.text("a__echo", {"text": "x"})


async def test_a_servers_request_is_cancelled_with_the_call_that_caused_it(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking("--era", "modern")) as client:
        client.start("tools/call", {"name": "a__ask", "arguments": {}}, "mine")
        (question,) = await asked(client)
        client.notify("notifications/cancelled", {"requestId": "mine"})
        (cancelled,) = await client.notified("notifications/cancelled")
        assert cancelled["params"]["requestId"] == question["id"]
        assert await client.text("a__echo", {"text": "x"}) == "x"


@pytest.mark.parametrize("given", [{"reason": "the window was closed"}, {}, {"reason": 7}])
async def test_a_question_that_its_server_withdraws_is_cancelled_with_the_reason_of_the_server(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    async with client_of(tmp_path, asking()) as client:
        client.start("tools/call", {"name": "a__ask", "arguments": {"method": "roots/list"}})
        (question,) = await asked(client)
        await client.text("a__withdraw", given)
        (cancelled,) = await client.notified("notifications/cancelled")
        reason = given if isinstance(given.get("reason"), str) else {}
        assert cancelled["params"] == {"requestId": question["id"], **reason}


async def test_a_modern_server_may_request_input_several_times_in_one_call(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking("--era", "modern")) as client:
        call = client.start("tools/call", {"name": "a__together", "arguments": {"count": 3}})
        for number, question in reversed(list(enumerate(await asked(client, 3)))):
            respond(client, question, result={"roots": [], "n": number})
        async with asyncio.timeout(PATIENCE):
            answers = text_of(await call)
        assert sorted(answer["n"] for answer in answers.values()) == [0, 1, 2]
        assert await client.text("a__patience") == "after 3 rounds"


async def test_a_server_that_requests_input_without_end_is_stopped(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking("--era", "modern")) as client:
        call = client.start("tools/call", {"name": "a__greedy", "arguments": {}})
        answered = 0
        async with asyncio.timeout(PATIENCE):
            while not call.done():
                await client.until(partial(news, client, call, answered))
                for question in questions(client)[answered:]:
                    respond(client, question, result={"roots": []})
                    answered += 1
        assert (await call)["error"]["code"] == -32600
        assert answered < 50


def respondent(name: str, messages: list[str]) -> dict[str, Any]:
    """Callbacks of an SDK client that answers everything with its name."""

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        messages.append(params.message)
        return types.ElicitResult(action="accept", content={"name": name})

    return {"elicitation_callback": elicit}


QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}},
}


async def answer(client: Client) -> Any:
    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool("a__ask", QUESTION)
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize(
    "entry",
    [asking(), asking(session="client"), asking("--era", "modern")],
    ids=["shared", "a session each", "modern"],
)
async def test_over_a_network_each_client_answers_the_requests_of_its_own_calls(
    tmp_path: Path, path: str, entry: dict[str, Any]
) -> None:
    first_messages: list[str] = []
    second_messages: list[str] = []
    async with (
        network_hub(tmp_path / "hub", {"a": entry}) as (_, base),
        sdk(base + path, "handshake", **respondent("one", first_messages)) as first_client,
        sdk(base + path, "handshake", **respondent("two", second_messages)) as second_client,
    ):
        for client, name in ((first_client, "one"), (second_client, "two"), (first_client, "one")):
            received = await answer(client)
            received = received["result"] if "result" in received else received["key0"]
            assert received["content"] == {"name": name}
    assert (len(first_messages), len(second_messages)) == (2, 1)


@pytest.mark.parametrize("entry", [asking(), asking(session="client")], ids=["shared", "a session each"])
async def test_a_question_is_refused_if_its_client_accepts_no_event_stream(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    async with (
        network_hub(tmp_path / "hub", {"a": entry}) as (_, base),
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers={"accept": "application/json"}) as http,
    ):
        hello = {"protocolVersion": "2025-11-25", "capabilities": ALL, "clientInfo": {"name": "raw", "version": "1"}}
        answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        session = {"mcp-session-id": answer.headers["mcp-session-id"]}
        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        params = {"name": "a__ask", "arguments": QUESTION}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        answer = await http.post("/mcp", json=call, headers=session)
        received = json.loads(answer.json()["result"]["content"][0]["text"])
        assert received["error"]["code"] == -32600


async def test_a_shared_server_may_not_request_what_its_entry_forbids(tmp_path: Path) -> None:
    messages: list[str] = []
    async with (
        network_hub(tmp_path / "hub", {"a": asking(allow=[])}) as (_, base),
        sdk(base + "/mcp", "handshake", **respondent("one", messages)) as client,
    ):
        declared = await client.call_tool("a__declared", {})
        assert json.loads(declared.content[0].text).keys() == {"extensions"}  # type: ignore[union-attr]
        assert (await answer(client))["error"]["code"] == -32601
    assert messages == []


async def test_a_servers_request_with_several_possible_callers_is_refused(tmp_path: Path) -> None:
    release = asyncio.Event()
    first_asked = asyncio.Event()
    messages: list[str] = []

    async def slow(context: Any, params: Any) -> types.ElicitResult:
        first_asked.set()
        await release.wait()
        return types.ElicitResult(action="cancel")

    async with (
        network_hub(tmp_path / "hub", {"a": asking()}) as (_, base),
        sdk(base + "/mcp", "handshake", elicitation_callback=slow) as first,
        sdk(base + "/mcp", "handshake", **respondent("two", messages)) as second,
    ):
        waiting = asyncio.ensure_future(answer(first))
        async with asyncio.timeout(PATIENCE):
            await first_asked.wait()
        refused = await answer(second)
        assert refused["error"]["code"] == -32600
        release.set()
        assert (await waiting)["result"]["action"] == "cancel"
    assert messages == []


@contextlib.asynccontextmanager
async def abandoned(directory: Path, path: str, **arguments: Any) -> AsyncIterator[tuple[Client, Client, list[str]]]:
    """Two clients of a shared server that still works on a call which the first one has cancelled.

    Yields the clients and the questions that the second one gets.
    """
    log, messages = directory / "log", []
    async with (
        network_hub(directory / "hub", {"a": asking("--log", str(log))}) as (_, base),
        sdk(base + path, "handshake", **respondent("one", [])) as first,
        sdk(base + path, "handshake", **respondent("two", messages)) as second,
    ):
        call = asyncio.ensure_future(first.call_tool("a__linger", {**QUESTION, **arguments}))
        async with asyncio.timeout(PATIENCE):
            while "lingers" not in log.read_text():
                await second.list_tools()
            call.cancel()
            while "notifications/cancelled" not in log.read_text():
                await second.list_tools()
        yield first, second, messages


async def resume(client: Client) -> Any:
    """Makes the server ask for the abandoned call; returns what it was answered."""
    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool("a__resume", {})
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_question_of_a_cancelled_call_never_reaches_another_client(tmp_path: Path, path: str) -> None:
    async with abandoned(tmp_path, path) as (first, second, messages):
        assert (await resume(second))["error"]["code"] == -32600
        assert (await answer(second))["error"]["code"] == -32600
        assert messages == []
        assert (await answer(first))["result"]["content"] == {"name": "one"}


async def test_the_client_that_cancelled_a_call_may_be_asked_during_its_next_one(tmp_path: Path) -> None:
    async with abandoned(tmp_path, "/mcp") as (first, _, messages):
        assert (await resume(first))["result"]["content"] == {"name": "one"}
        assert messages == []


async def test_other_clients_are_asked_again_once_a_cancelled_call_is_answered(tmp_path: Path) -> None:
    async with abandoned(tmp_path, "/mcp", answers=True) as (_, second, messages):
        assert (await resume(second))["error"]["code"] == -32600
        assert (await answer(second))["result"]["content"] == {"name": "two"}
        assert len(messages) == 1


def test_a_server_whose_allow_names_an_unknown_capability_is_switched_off(tmp_path: Path) -> None:
    (server,) = load_config(write_config(tmp_path, {"a": asking(allow=["everything"])})).servers
    assert not server.enabled
    assert server.disabled_reason == "allow[0]: must be one of sampling, elicitation, roots"
