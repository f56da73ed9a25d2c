"""`hub_search` and `hub_call`: every tool by its name, and by no other way than a direct call takes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import StdioClient, fake, hub
from tests.hub.groups.hearing import GROUPS, RESET, code, inactive
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio

WRITES: dict[str, Any] = {"meta_tools": True, "code_mode": {"writes": True}}
"""Meta tools that ask nobody before they call a tool that may write."""
LONG = {"description": "x" * 300_000, "inputSchema": {"type": "object"}}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    directory = tmp_path_factory.mktemp("hub")
    (directory / "no_model").mkdir()  # by words alone, whether or not the process for meaning is ready by then
    (directory / "lists").write_text(json.dumps({"tools": [{"name": f"long{n}", **LONG} for n in range(3)]}))
    servers = {
        "a": fake("--name", "a", disable_tools=["crash"], preset={"echo": {"text": "preset"}}),
        "b": fake("--name", "b", "--record", str(directory / "record")),
        "slow": fake("--name", "slow", timeout="300ms"),
        "long": fake("--lists", str(directory / "lists")),
        "asking": asking(),
    }
    root = {
        **WRITES,
        "groups": GROUPS,
        "search": {"model": "no_model"},
        "call_log": {"file": str(directory / "calls.jsonl")},
    }
    async with hub(directory, servers, **root) as client:
        client.directory = directory  # type: ignore[attr-defined]
        await client.tool_names()
        yield client


async def through(client: StdioClient, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """Calls a tool by hub_call and returns the whole response."""
    call = {"tool": tool, "arguments": arguments or {}}
    answer: dict[str, Any] = await client.start("tools/call", {"name": "hub_call", "arguments": call})
    return answer


async def search(client: StdioClient, query: str, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(await search_text(client, query, detail="full", **options))
    return result


async def search_text(client: StdioClient, query: str, **options: Any) -> str:
    result = await client.call("hub_search", {"query": query, **options})
    assert not result.get("isError"), result
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("a__echo", {"text": "sent"}),
        ("a__pid", {}),
        ("a__fail", {}),
        ("a__crash", {}),
        ("a__add", {"a": 1, "b": 1}),
        ("b__pid", {}),
        ("slow__add", {"a": "one"}),
        ("slow__sleep", {"seconds": 60}),
        ("nowhere__tool", {}),
        ("hub_search", {"query": "add"}),
        ("hub_search", {"query": 5}),
        (RESET, {"nowhere": True}),
    ],
)
async def test_hub_call_returns_the_same_result_as_a_direct_call(
    client: StdioClient, tool: str, arguments: dict[str, Any]
) -> None:
    direct = await client.start("tools/call", {"name": tool, "arguments": arguments})
    wrapped = await through(client, tool, arguments)
    assert {**wrapped, "id": 0} == {**direct, "id": 0}


async def test_a_call_of_an_inactive_tool_is_refused_without_asking_the_server(client: StdioClient) -> None:
    result = (await through(client, "b__pid"))["result"]
    assert code(result) == "group_inactive"
    assert result["content"][0]["text"] == inactive("b__pid", "all_of_b")
    assert '"tools/call"' not in (client.directory / "record").read_text()  # type: ignore[attr-defined]
    await client.call(RESET, {"texts": True, "all_of_b": True})
    assert "result" in await through(client, "b__pid")
    assert '"tools/call"' in (client.directory / "record").read_text()  # type: ignore[attr-defined]
    await client.call(RESET, {"texts": True})


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tool": 5},
        {"tool": "hub_call", "arguments": {"tool": "a__pid"}},
        {"tool": "a__pid", "arguments": "{}"},
        {"tool": "a__echo", "text": "beside"},
    ],
)
async def test_a_malformed_hub_call_is_refused(client: StdioClient, arguments: dict[str, Any]) -> None:
    refused = await client.call("hub_call", arguments)
    assert code(refused) == "invalid_parameters"


async def test_null_as_the_arguments_of_hub_call_means_none(client: StdioClient) -> None:
    without = await client.call("hub_call", {"tool": "a__pid"})
    assert await client.call("hub_call", {"tool": "a__pid", "arguments": None}) == without


async def test_progress_and_server_requests_of_an_inner_call_reach_the_caller(tmp_path: Path) -> None:
    servers = {"a": fake(), "asking": asking()}
    async with hub(tmp_path, servers, modern=True, **WRITES) as client:
        await client.tool_names()
        inner_call = {"tool": "a__count", "arguments": {"steps": 2}}
        await client.call("hub_call", inner_call, _meta={"progressToken": "p"})
        assert [n["params"]["progress"] for n in await client.notified("notifications/progress", 2)] == [1, 2]
        capable = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}}
        question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
        params = {"name": "hub_call", "arguments": {"tool": "asking__ask", "arguments": question}, **capable}
        pending = await client.request("tools/call", params)
        assert pending["resultType"] == "input_required"
        (key,) = pending["inputRequests"]
        answers = {"inputResponses": {key: {"action": "decline"}}, "requestState": pending["requestState"]}
        result = await client.request("tools/call", {**params, **answers})
        assert "decline" in result["content"][0]["text"]


async def test_search_matches_names_and_descriptions_and_marks_inactive_tools(client: StdioClient) -> None:
    result = await search(client, "ADD numbers")
    tools = {tool["name"]: tool for tool in result["tools"]}
    assert {"a__add", "b__add", "slow__add"} == set(tools)
    assert tools["a__add"]["groups"] == ["sums"]
    assert tools["a__add"]["active"] is False
    assert tools["b__add"]["groups"] == ["sums", "all_of_b"]
    assert "groups" not in tools["slow__add"]
    assert tools["slow__add"]["inputSchema"]["properties"] == {"a": {"type": "number"}, "b": {"type": "number"}}
    assert "text" not in (await search(client, "a echo"))["tools"][0]["inputSchema"]["properties"]  # preset
    assert (await search(client, "zzzz"))["tools"] == []


async def test_the_query_and_the_results_of_a_search_are_bounded(client: StdioClient) -> None:
    full_result = await search(client, "", limit=50)
    assert len(full_result["tools"]) + len(full_result["left_out"]) == 50
    assert full_result["found"] > 50
    assert len((await search(client, ""))["tools"]) == 10
    assert (await search(client, "long0"))["left_out"] == ["long__long0"]
    for arguments in (
        {},
        {"query": "x" * 1001},
        {"query": ["x"]},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 51},
        {"query": "x", "limit": True},
        {"query": "x", "limits": 1},
    ):
        assert code(await client.call("hub_search", arguments)) == "invalid_parameters"


async def test_records_of_hub_call_name_the_inner_tool(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    async with hub(tmp_path, {"a": fake()}, **WRITES, call_log={"file": str(log)}) as client:
        await through(client, "a__pid")
        await through(client, "hub_call")
        await client.call("hub_search", {"query": ""})
    records = [json.loads(line) for line in log.read_text().splitlines()]
    calls = [
        (record["upstream"], record["tool"], record["verdict"]) for record in records if record.get("event") == "call"
    ]
    assert ("a", "pid", "ok") in calls
    assert ("(mcp-hub)", "hub_search", "ok") in calls
    assert any("hub_call" in note for record in records for note in record.get("notes", []))
