"""Servers of both eras send clients to URLs; each client gets only its own ids and its own completions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream.parked_calls import MAX_PARKED
from tests.fakes.client import PATIENCE, RpcError, StdioClient
from tests.fakes.network import network_hub, sdk
from tests.upstream.asking.test_servers_ask_handshake_clients import (
    asked,
    asking,
    client_of,
    named,
    respond,
    text_of,
)
from tests.upstream.asking.test_servers_ask_modern_clients import call, modern

pytestmark = pytest.mark.anyio

COMPLETE = "notifications/elicitation/complete"
URL = {"mode": "url", "message": "Please", "url": "https://example.com/x"}
NAMED = named("elicitation/create", URL)
ACCEPTED = {"action": "accept"}


def completed(client: StdioClient) -> list[Any]:
    return [message["params"] for message in client.notifications if message["method"] == COMPLETE]


async def test_the_elicitation_id_of_a_handshake_server_is_prefixed_and_so_is_its_completion(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking()) as client:
        params = {**URL, "elicitationId": "id/1", "future": 1}
        running = client.start(
            "tools/call", {"name": "a__ask", "arguments": {"method": "elicitation/create", "params": params}}
        )
        (question,) = await asked(client)
        assert question["params"] == {**NAMED, "elicitationId": "a/id/1", "future": 1}
        respond(client, question, result=ACCEPTED)
        async with asyncio.timeout(PATIENCE):
            assert text_of(await running) == {"result": ACCEPTED}
        await client.text("a__complete", {"id": "unknown"})
        await client.text("a__complete", {"id": "id/1"})
        await client.notified(COMPLETE)
        await client.text("a__complete", {"id": "id/1"})
        assert completed(client) == [{"elicitationId": "a/id/1", "future": 3}]


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_an_elicitation_with_a_non_web_url_is_refused(tmp_path: Path, era: str) -> None:
    question = {"method": "elicitation/create", "params": {**URL, "url": "file:///etc/passwd"}}
    async with client_of(tmp_path, asking("--era", era)) as client, asyncio.timeout(PATIENCE):
        answer = await client.start("tools/call", {"name": "a__ask", "arguments": question})
        error = answer["error"] if era == "modern" else text_of(answer)["error"]
        assert error["code"] == -32600
        assert [message for message in client.notifications if "id" in message] == []


async def test_a_non_web_url_in_an_error_is_refused_also_to_a_client_that_cannot_be_asked(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        with pytest.raises(RpcError) as refused:
            await client.call("a__visit", {"id": "7", "url": "file:///etc/passwd"})
        assert refused.value.code == -32600


async def test_the_url_elicitation_required_error_passes_with_its_ids(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking()) as client:
        arguments = {"id": "7", "url": "https://example.com/y"}
        with pytest.raises(RpcError) as refused:
            await client.call("a__visit", arguments)
        assert refused.value.error == {
            "code": -32042,
            "message": "Visit this first",
            "data": {
                "elicitations": [{**NAMED, "elicitationId": "a/7", "url": "https://example.com/y", "future": 1}],
                "future": 2,
            },
        }
        await client.text("a__complete", {"id": "7"})
        await client.notified(COMPLETE)
        assert completed(client) == [{"elicitationId": "a/7", "future": 3}]
        assert await client.text("a__visit", arguments) == ""


async def test_a_modern_client_is_asked_to_open_the_urls_and_its_retry_is_executed(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        arguments = {"id": "7", "url": "https://example.com/y"}
        first = await call(client, "a__visit", arguments)
        ((key, request),) = first["inputRequests"].items()
        assert request == {
            "method": "elicitation/create",
            "params": {**NAMED, "url": "https://example.com/y", "future": 1},
        }
        retry = {"requestState": first["requestState"], "inputResponses": {key: ACCEPTED}}
        assert (await call(client, "a__visit", arguments, **retry))["resultType"] == "complete"


async def test_a_modern_client_that_declines_gets_the_servers_error(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        first = await call(client, "a__visit", {"id": "7", "url": "https://example.com/y"})
        (key,) = first["inputRequests"]
        retry = {"requestState": first["requestState"], "inputResponses": {key: {"action": "decline"}}}
        with pytest.raises(RpcError) as refused:
            await call(client, "a__visit", {"id": "7", "url": "https://example.com/y"}, **retry)
        assert refused.value.code == -32042


async def test_a_client_with_too_many_parked_calls_gets_the_servers_error_and_not_another_question(
    tmp_path: Path,
) -> None:
    async with modern(tmp_path) as client:
        for number in range(MAX_PARKED):
            arguments = {"id": str(number), "url": "https://example.com/y"}
            parked = await call(client, "a__visit", arguments)
            assert parked["resultType"] == "input_required"
        with pytest.raises(RpcError) as refused:
            await call(client, "a__visit", {"id": "more", "url": "https://example.com/y"})
        assert refused.value.code == -32042
        (key,) = parked["inputRequests"]
        retry = {"requestState": parked["requestState"], "inputResponses": {key: ACCEPTED}}
        assert (await call(client, "a__visit", arguments, **retry))["resultType"] == "complete"
        second_call = await call(client, "a__visit", {"id": "again", "url": "https://example.com/y"})
        assert second_call["resultType"] == "input_required"


async def test_a_modern_client_without_url_elicitation_gets_the_servers_error(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        with pytest.raises(RpcError) as refused:
            await client.call("a__visit", {"id": "7", "url": "https://example.com/y"})
        assert refused.value.code == -32042


async def test_an_elicitation_of_a_modern_server_gets_an_id_and_its_completion_is_notified(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking("--era", "modern")) as client:
        question = {"method": "elicitation/create", "params": URL}
        running = client.start("tools/call", {"name": "a__ask", "arguments": question})
        (elicitation,) = await asked(client)
        minted = elicitation["params"].pop("elicitationId")
        assert elicitation["params"] == NAMED
        respond(client, elicitation, result=ACCEPTED)
        async with asyncio.timeout(PATIENCE):
            assert text_of(await running) == {"key0": ACCEPTED}
        await client.notified(COMPLETE)
        assert completed(client) == [{"elicitationId": minted}]


async def test_a_completed_elicitation_is_notified_only_to_the_client_that_was_asked(tmp_path: Path) -> None:
    completions: dict[str, list[Any]] = {"one": [], "two": []}

    def client(name: str, base: str) -> Any:
        async def elicit(context: Any, params: Any) -> Any:
            from mcp import types

            return types.ElicitResult(action="accept")

        async def notified(message: Any) -> None:
            if getattr(message, "method", None) == COMPLETE:
                completions[name].append(message.params.elicitation_id)

        return sdk(base + "/mcp", "handshake", elicitation_callback=elicit, message_handler=notified)

    async with (
        network_hub(tmp_path / "hub", {"a": asking()}) as (_, base),
        client("one", base) as first,
        client("two", base) as second,
        asyncio.timeout(PATIENCE),
    ):
        for name, asking_client in (("1", first), ("2", second)):
            question = {"method": "elicitation/create", "params": {**URL, "elicitationId": name}}
            result = await asking_client.call_tool("a__ask", question)
            assert json.loads(result.content[0].text)["result"]["action"] == "accept"
        for name in ("2", "1"):
            await second.call_tool("a__complete", {"id": name})
        while not (completions["one"] and completions["two"]):
            await first.call_tool("a__echo", {"text": "x"})
    assert completions == {"one": ["a/1"], "two": ["a/2"]}
