"""A handshake server asks a modern client: the call is parked until the client comes back with the answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from mcp_hub.downstream.dispatcher import Dispatcher, Duplex
from mcp_hub.errors import INVALID_REQUEST
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.security.callers import Caller
from tests.fakes.client import ENVELOPE, HUB, PATIENCE, RpcError, StdioClient, fake, spawned, write_config
from tests.fakes.network import network_hub, sdk, text
from tests.replicas.raw_client import Json, raw, text_of
from tests.upstream.asking.test_servers_ask_handshake_clients import ALL, QUESTION, answer, asking, respondent

pytestmark = pytest.mark.anyio

DECLARED = {"_meta": {"io.modelcontextprotocol/clientCapabilities": ALL}}
ROOTS_LIST = {"method": "roots/list"}
ROOTS = {"roots": [{"uri": "file:///x", "future": 10**25}]}


async def call(client: StdioClient, name: str, arguments: dict[str, Any] | None = None, **extra_params: Any) -> Any:
    return await client.request("tools/call", {"name": name, "arguments": arguments or {}, **DECLARED, **extra_params})


def modern(directory: Path, *options: str, **entry: Any) -> Any:
    config = write_config(directory, {"a": asking(*options, **entry)})
    return spawned([*HUB, "serve", "--config", str(config)], modern=True)


async def test_a_server_request_is_returned_as_an_input_required_result_and_answered_by_the_retry(
    tmp_path: Path,
) -> None:
    async with modern(tmp_path) as client:
        arguments = {"method": "roots/list", "params": {"future": 1}}
        first = await call(client, "a__ask", arguments)
        assert first["resultType"] == "input_required"
        ((key, request),) = first["inputRequests"].items()
        assert request == arguments
        retry = {"requestState": first["requestState"], "inputResponses": {key: ROOTS}}
        final = await call(client, "a__ask", arguments, **retry)
        assert final["resultType"] == "complete"
        assert json.loads(final["content"][0]["text"]) == {"result": ROOTS}


async def test_a_retry_without_the_answer_gets_the_request_again(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        first = await call(client, "a__ask", ROOTS_LIST)
        second = await call(client, "a__ask", ROOTS_LIST, requestState=first["requestState"], inputResponses={})
        assert second["inputRequests"] == first["inputRequests"]
        assert second["requestState"] != first["requestState"]
        (key,) = second["inputRequests"]
        retry = {"requestState": second["requestState"], "inputResponses": {key: ROOTS}}
        final = await call(client, "a__ask", ROOTS_LIST, **retry)
        assert final["resultType"] == "complete"


async def test_a_call_that_is_parked_again_and_again_grows_no_memory(tmp_path: Path) -> None:
    async with Engine(load_config(write_config(tmp_path, {"a": asking()}))) as served:
        answers: asyncio.Queue[Any] = asyncio.Queue()
        dispatcher = Dispatcher(served)
        duplex = Duplex(dispatcher, answers.put_nowait, dispatcher.backlog.share(), Caller())
        envelope = {**ENVELOPE, **DECLARED["_meta"]}

        async def park(**extra_params: Any) -> str:
            params = {"name": "a__ask", "arguments": ROOTS_LIST, "_meta": envelope, **extra_params}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            duplex.received(json.dumps(request).encode())
            async with asyncio.timeout(PATIENCE):
                result = json.loads(await answers.get())["result"]
            assert result["resultType"] == "input_required"
            return str(result["requestState"])

        async def parked_again(state: str, times: int) -> str:
            for _ in range(times):
                state = await park(requestState=state, inputResponses={})
            return state

        state = await parked_again(await park(), 200)
        gc.collect()
        before = len(gc.get_objects())
        await parked_again(state, 1_000)
        gc.collect()
        assert len(gc.get_objects()) < before + 500
        duplex.close()
        dispatcher.close()


async def test_results_of_parked_calls_count_against_the_bound_on_waiting_data(tmp_path: Path) -> None:
    """The server responds before its request is answered: there are two results of 1 MB, and the bound allows one."""
    config = write_config(tmp_path, {"a": asking()}, unread={"caller": "1500KB"})
    async with spawned([*HUB, "serve", "--config", str(config)], modern=True) as client:
        codes = []
        parked = [await call(client, "a__impatient")]
        parked.append(await call(client, "a__impatient"))  # this makes the server respond to the first call
        await call(client, "a__echo")
        for result in parked:
            (key,) = result["inputRequests"]
            final = await call(client, "a__impatient", requestState=result["requestState"], inputResponses={key: ROOTS})
            codes.append(final.get("_meta", {}).get("mcp-hub/error", {}).get("code"))
        assert codes == [None, "overloaded"]


async def test_a_request_state_works_once_and_only_in_this_run_of_the_hub(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        first = await call(client, "a__ask", ROOTS_LIST)
        (key,) = first["inputRequests"]
        retry = {"requestState": first["requestState"], "inputResponses": {key: ROOTS}}
        await call(client, "a__ask", ROOTS_LIST, **retry)
        for state in (first["requestState"], "mcp-hub:another-run:token"):
            used = await call(client, "a__ask", ROOTS_LIST, requestState=state, inputResponses={})
            assert used["_meta"]["mcp-hub/error"]["code"] == "cancelled"
            assert "may have been carried out" in used["content"][0]["text"]


async def test_a_parked_call_does_not_consume_its_deadline(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": asking(timeout=1), "clock": fake(timeout=30)})
    async with spawned([*HUB, "serve", "--config", str(config)], modern=True) as client:
        first = await call(client, "a__ask", ROOTS_LIST)
        await call(client, "clock__sleep", {"seconds": 1.5})
        (key,) = first["inputRequests"]
        retry = {"requestState": first["requestState"], "inputResponses": {key: ROOTS}}
        assert (await call(client, "a__ask", ROOTS_LIST, **retry))["resultType"] == "complete"


async def test_a_modern_client_is_not_asked_for_capabilities_it_has_not_declared(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        result = await client.request("tools/call", {"name": "a__ask", "arguments": ROOTS_LIST})
        assert json.loads(result["content"][0]["text"])["error"]["code"] == -32601


async def test_server_requests_outside_of_a_call_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with modern(tmp_path, "--log", str(log)) as client:
        assert (await call(client, "a__late"))["content"][0]["text"] == "soon"
        async with asyncio.timeout(PATIENCE):
            while not (log.exists() and "-32600" in log.read_text()):
                await client.request("server/discover", {**DECLARED})  # the hub's own: no call to carry the question


async def test_a_malformed_answer_is_refused_and_the_call_keeps_waiting(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        first = await call(client, "a__ask", ROOTS_LIST)
        with pytest.raises(RpcError) as refused:
            await call(client, "a__ask", ROOTS_LIST, requestState=first["requestState"], inputResponses=[1])
        assert refused.value.code == -32602
        (key,) = first["inputRequests"]
        retry = {"requestState": first["requestState"], "inputResponses": {key: ROOTS}}
        assert (await call(client, "a__ask", ROOTS_LIST, **retry))["resultType"] == "complete"


OTHER_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "a__echo", "arguments": ROOTS_LIST}),
    ("tools/call", {"name": "b__ask", "arguments": ROOTS_LIST}),
    ("tools/call", {"name": "a__ask", "arguments": {"method": "ping"}}),
    ("tools/call", {"name": "a__ask", "arguments": {**ROOTS_LIST, "params": {"x": 1}}}),
    ("tools/call", {"name": "a__ask"}),
    ("tools/call", {"name": "hub_call", "arguments": {"tool": "a__ask", "arguments": ROOTS_LIST}}),
    ("resources/read", {"uri": "x:one"}),
    ("prompts/get", {"name": "a__ask", "arguments": ROOTS_LIST}),
]


async def test_a_retry_that_is_another_request_is_refused_and_the_call_keeps_waiting(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": asking(), "b": asking()}, meta_tools=True)
    async with spawned([*HUB, "serve", "--config", str(config)], modern=True) as client:
        first = await call(client, "a__ask", ROOTS_LIST)
        (key,) = first["inputRequests"]
        retry = {"requestState": first["requestState"], "inputResponses": {key: ROOTS}, **DECLARED}
        for method, params in OTHER_REQUESTS:
            with pytest.raises(RpcError) as refused:
                await client.request(method, {**params, **retry})
            assert refused.value.code == -32602, (method, params)
        final = await call(client, "a__ask", dict(reversed(ROOTS_LIST.items())), **retry)
        assert json.loads(final["content"][0]["text"]) == {"result": ROOTS}


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("link", ["stdio", "http", "sse"])
async def test_an_sdk_client_of_the_modern_era_answers_requests_of_a_handshake_server(
    tmp_path: Path, path: str, link: str
) -> None:
    messages: list[str] = []
    inner = {"in": asking()}
    async with network_hub(tmp_path / "inner", inner) as (_, inner_base):
        entry: dict[str, Any] = asking(session="client")
        if link != "stdio":
            url = inner_base + ("/sse" if link == "sse" else "/mcp")
            entry = {"url": url, "transport": link, "era": "handshake", "session": "client", "namespace": ""}
        outer = {"a": entry}
        async with (
            network_hub(tmp_path / "outer", outer) as (_, base),
            sdk(base + path, "modern", **respondent("modern", messages)) as client,
        ):
            name = "a__ask" if link == "stdio" else "in__ask"
            async with asyncio.timeout(PATIENCE):
                result = await client.call_tool(name, QUESTION)
            assert isinstance(result.content[0], types.TextContent)
            assert json.loads(result.content[0].text)["result"]["content"] == {"name": "modern"}
    assert messages == ["a asks: who?" if link == "stdio" else "a asks: in asks: who?"]


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_server_request_passes_two_hubs_in_the_era_of_its_client(tmp_path: Path, era: str) -> None:
    """The inner one parks the call of a modern client, and the outer one passes on its state."""
    messages: list[str] = []
    async with (
        network_hub(tmp_path / "inner", {"in": asking()}) as (_, inner),
        network_hub(tmp_path / "outer", {"a": {"url": f"{inner}/mcp", "namespace": ""}}) as (_, base),
        sdk(f"{base}/mcp", era, **respondent("Ada", messages)) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool("in__ask", QUESTION)
    assert isinstance(result.content[0], types.TextContent)
    assert json.loads(result.content[0].text)["result"]["content"] == {"name": "Ada"}
    assert messages == ["a asks: in asks: who?"]


async def test_a_modern_server_and_a_modern_client_work_together_without_the_hub(tmp_path: Path) -> None:
    messages: list[str] = []
    async with (
        network_hub(tmp_path / "hub", {"a": asking("--era", "modern")}) as (_, base),
        sdk(base + "/mcp", "modern", **respondent("modern", messages)) as client,
    ):
        assert (await answer(client))["key0"]["content"] == {"name": "modern"}
    assert messages == ["a asks: who?"]


@pytest.mark.parametrize("session", ["shared", "client"])
@pytest.mark.parametrize("names", [("one", "two"), ("one", "one")], ids=["other names", "one name"])
async def test_an_anonymous_program_is_served_but_not_asked_while_a_server_works_for_another(
    tmp_path: Path, names: tuple[str, str], session: str
) -> None:
    first_asked, release = asyncio.Event(), asyncio.Event()
    messages: list[str] = []

    async def slow(context: Any, params: Any) -> types.ElicitResult:
        first_asked.set()
        await release.wait()
        return types.ElicitResult(action="cancel")

    infos = [types.Implementation(name=name, version="1") for name in names]
    async with (
        network_hub(tmp_path / "hub", {"a": asking(session=session)}) as (_, base),
        sdk(base + "/mcp", "modern", elicitation_callback=slow, client_info=infos[0]) as first,
        sdk(base + "/mcp", "modern", client_info=infos[1], **respondent("two", messages)) as second,
    ):
        waiting = asyncio.ensure_future(answer(first))
        async with asyncio.timeout(PATIENCE):
            await first_asked.wait()
        assert await text(second, "a__echo", {"text": "x"}) == "x"
        assert (await answer(second))["error"]["code"] == INVALID_REQUEST
        release.set()
        assert (await waiting)["result"]["action"] == "cancel"
        assert (await answer(second))["result"]["content"] == {"name": "two"}
    assert len(messages) == 1


async def test_a_cancelled_call_of_an_anonymous_program_asks_no_other_program_of_its_name(tmp_path: Path) -> None:
    log, messages = tmp_path / "log", list[str]()
    async with (
        network_hub(tmp_path / "hub", {"a": asking("--log", str(log))}) as (_, base),
        sdk(base + "/mcp", "modern", **respondent("one", messages)) as first,
        sdk(base + "/mcp", "modern", **respondent("two", messages)) as second,
        asyncio.timeout(PATIENCE),
    ):
        lingering = asyncio.ensure_future(first.call_tool("a__linger", QUESTION))
        while not (log.exists() and "lingers" in log.read_text()):
            await asyncio.sleep(0.01)
        lingering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lingering
        assert json.loads(await text(second, "a__resume"))["error"]["code"] == INVALID_REQUEST
    assert messages == []


@pytest.mark.parametrize("session", ["shared", "client"])
async def test_each_of_an_anonymous_programs_concurrent_calls_gets_its_question_answered(
    tmp_path: Path, session: str
) -> None:
    messages: list[str] = []
    async with (
        network_hub(tmp_path / "hub", {"a": asking(session=session)}) as (_, base),
        sdk(base + "/mcp", "modern", **respondent("one", messages)) as client,
    ):
        answers = await asyncio.gather(*(answer(client) for _ in range(8)))
    assert [received["result"]["content"]["name"] for received in answers] == ["one"] * 8
    assert len(messages) == 8


async def test_a_client_that_keeps_no_cookies_is_asked_while_its_calls_do_not_overlap(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"a": asking()}) as (_, base), raw(base) as client:
        asked: Json = {"name": "a__ask", "arguments": QUESTION}
        for _ in range(2):
            first = (await client.modern("tools/call", asked, elicitation={}))["result"]
            given = {key: {"action": "cancel"} for key in first["inputRequests"]}
            retry = {**asked, "requestState": first["requestState"], "inputResponses": given}
            second = await client.modern("tools/call", retry, elicitation={})
            assert json.loads(text_of(second))["result"] == {"action": "cancel"}


async def test_a_server_sees_the_capabilities_that_each_request_declares(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"a": asking(session="client")}) as (_, base):
        for options, capabilities in (({}, {}), (respondent("x", []), {"elicitation"}), ({}, {})):
            async with sdk(base + "/mcp", "modern", **options) as client, asyncio.timeout(PATIENCE):
                result = await client.call_tool("a__declared", {})
            assert isinstance(result.content[0], types.TextContent)
            assert set(json.loads(result.content[0].text)) == set(capabilities)


async def test_server_requests_of_two_concurrent_calls_are_answered_through_the_open_calls(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        first = await call(client, "a__ask", ROOTS_LIST)
        second = await call(client, "a__ask", ROOTS_LIST)
        for parked in (second, first):
            (key,) = parked["inputRequests"]
            retry = {"requestState": parked["requestState"], "inputResponses": {key: ROOTS}}
            assert (await call(client, "a__ask", ROOTS_LIST, **retry))["resultType"] == "complete"
