"""What passes through the hub over stdio arrives as it was sent, in every cell of client era and upstream era."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.protocol.era import CLIENT_INFO_KEY
from tests.fakes.client import ENVELOPE, RpcError, fake, hub
from tests.hub.exposure.listing import introduce

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

CELLS = [(client, upstream) for client in ("handshake", "modern") for upstream in ("handshake", "modern", "dual")]
cells = pytest.mark.parametrize(("client_era", "upstream_era"), CELLS)


@cells
async def test_every_kind_is_listed_and_can_be_used(tmp_path: Path, client_era: str, upstream_era: str) -> None:
    servers = {"up": fake("--name", "up", "--era", upstream_era)}
    async with hub(tmp_path, servers, modern=client_era == "modern") as client:
        assert "up__echo" in await client.tool_names()
        assert await client.text("up__add", {"a": 2, "b": 3}) == "5"
        resources = (await client.request("resources/list"))["resources"]
        assert resources == [{"uri": "fake://up/one", "name": "one", "future": 1}]
        templates = (await client.request("resources/templates/list"))["resourceTemplates"]
        assert templates == [{"uriTemplate": "fake://up/item/{id}", "name": "item"}]
        for uri in ("fake://up/one", "fake://up/item/7"):
            resource = await client.request("resources/read", {"uri": uri})
            assert resource["contents"] == [{"uri": uri, "text": f"text of {uri}"}]
        prompts = (await client.request("prompts/list"))["prompts"]
        assert prompts == [{"name": "up__greet", "arguments": [{"name": "who", "required": True}]}]
        prompt = await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "Ada"}})
        assert prompt["messages"][0]["content"]["text"] == "hello Ada"


@cells
async def test_unknown_fields_arrive_untouched(tmp_path: Path, client_era: str, upstream_era: str) -> None:
    modern = client_era == "modern"
    async with hub(tmp_path, {"up": fake("--name", "up", "--era", upstream_era)}, modern=modern) as client:
        listed = await client.request("tools/list")
        echo = listed["tools"][0]
        assert echo == {
            "name": "up__echo",
            "description": "echo of up",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "title": "Echo",
            "annotations": {"readOnlyHint": True},
            "icons": [],
            "_meta": {"a/b": [1]},
            "futureField": {"x": 10**25},
        }
        result = await client.call("up__echo", {"text": "grüß\u2028"})
    assert result["content"] == [{"type": "text", "text": "grüß\u2028", "futureField": 1}]
    assert result["futureTop"] == {"n": 10**25}
    assert result["_meta"]["x/y"] == 1
    assert ("resultType" in result) is modern
    assert ("ttlMs" in listed, "cacheScope" in listed, "resultType" in listed) == (modern, modern, modern)


@cells
async def test_an_error_of_the_upstream_arrives_whole(tmp_path: Path, client_era: str, upstream_era: str) -> None:
    async with hub(tmp_path, {"up": fake("--era", upstream_era)}, modern=client_era == "modern") as client:
        with pytest.raises(RpcError) as caught:
            await client.call("up__fail")
    assert caught.value.error == {"code": -32050, "message": "no", "data": {"why": [1, 2]}, "extra": True}


@cells
async def test_progress_arrives_in_order_under_the_clients_own_token(
    tmp_path: Path, client_era: str, upstream_era: str
) -> None:
    async with hub(tmp_path, {"up": fake("--era", upstream_era)}, modern=client_era == "modern") as client:
        await client.call("up__count", {"steps": 5}, _meta={"progressToken": "mine"})
        progress = [n["params"] for n in client.notifications if n["method"] == "notifications/progress"]
        assert progress == [{"progressToken": "mine", "progress": n, "total": 5, "future": "kept"} for n in range(1, 6)]
        client.notifications.clear()
        await client.call("up__count", {"steps": 5})
        assert client.notifications == []


@cells
async def test_a_cancelled_call_is_cancelled_upstream_and_never_answered(
    tmp_path: Path, client_era: str, upstream_era: str
) -> None:
    record = tmp_path / "record"
    servers = {"up": fake("--era", upstream_era, "--record", str(record))}
    async with hub(tmp_path, servers, modern=client_era == "modern") as client:
        await client.tool_names()
        sleeping = client.start("tools/call", {"name": "up__sleep", "arguments": {}}, request_id="sleeper")
        while '"sleep"' not in record.read_text():
            await client.text("up__echo")
        client.notify("notifications/cancelled", {"requestId": "sleeper", "reason": "Esc was pressed"})
        while "notifications/cancelled" not in record.read_text():
            await client.text("up__echo")
        assert '"reason": "Esc was pressed"' in record.read_text().replace('":"', '": "')
        assert not sleeping.done()


@cells
async def test_meta_is_forwarded_without_hop_by_hop_fields(tmp_path: Path, client_era: str, upstream_era: str) -> None:
    async with hub(tmp_path, {"up": fake("--era", upstream_era)}, modern=client_era == "modern") as client:
        meta = {"traceparent": "00-abc", "my/key": {"a": 1}, "progressToken": "mine"}
        result = await client.call("up__meta", _meta=meta)
    forwarded = json.loads(result["content"][0]["text"])
    assert forwarded["traceparent"] == "00-abc"
    assert forwarded["my/key"] == {"a": 1}
    assert forwarded["progressToken"] != "mine"
    era = client_era if upstream_era == "dual" else upstream_era
    assert (set(ENVELOPE) <= set(forwarded)) is (era == "modern")


@cells
async def test_completion_reaches_the_upstream_under_its_original_name(
    tmp_path: Path, client_era: str, upstream_era: str
) -> None:
    async with hub(
        tmp_path, {"up": fake("--name", "up", "--era", upstream_era)}, modern=client_era == "modern"
    ) as client:
        for reference, original in (
            ({"type": "ref/prompt", "name": "up__greet"}, {"type": "ref/prompt", "name": "greet"}),
            ({"type": "ref/resource", "uri": "fake://up/item/{id}"}, None),
        ):
            argument = {"name": "who", "value": "Ad"}
            completion = await client.request("completion/complete", {"ref": reference, "argument": argument})
            assert completion["completion"]["values"] == ["Ad!", json.dumps(original or reference)]


@cells
async def test_a_list_that_changes_is_announced_and_then_complete(
    tmp_path: Path, client_era: str, upstream_era: str
) -> None:
    modern = client_era == "modern"
    async with hub(tmp_path, {"up": fake("--era", upstream_era)}, modern=modern) as client:
        before = await client.tool_names()
        if modern:
            client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id="sub")
            await client.notified("notifications/subscriptions/acknowledged")
        await client.text("up__grow", {"name": "fresh"})
        (note,) = await client.notified("notifications/tools/list_changed")
        assert await client.tool_names() == [*before, "up__fresh"]
    if modern:
        assert note["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}


async def test_a_storm_of_list_changes_is_notified_a_few_times_and_ends_complete(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        await client.tool_names()
        for n in range(200):
            await client.text("up__grow", {"name": f"fresh{n}"})
        await client.notified("notifications/tools/list_changed")
        names: list[str] = []
        while "up__fresh199" not in names:
            names = await client.tool_names()
        notifications = [n for n in client.notifications if n["method"] == "notifications/tools/list_changed"]
        assert len(notifications) < 100


async def test_many_clients_requests_with_odd_ids_get_their_own_answers(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        ids = [0, -1, "", "ü", 2**53, "x" * 300]
        futures = [
            client.start("tools/call", {"name": "up__echo", "arguments": {"text": repr(i)}}, i or repr(i)) for i in ids
        ]
        answers = await asyncio.gather(*futures)
    assert [a["result"]["content"][0]["text"] for a in answers] == [repr(i) for i in ids]


@pytest.mark.parametrize("upstream_era", ["handshake", "modern"])
@pytest.mark.parametrize("modern", [False, True])
async def test_structured_content_alone_is_text_too_for_a_client_that_reads_nothing_else(
    tmp_path: Path, modern: bool, upstream_era: str
) -> None:
    results: dict[str, Json] = {
        "alone": {"content": [], "structuredContent": {"n": 4343, "ü": [1, None]}},
        "failed": {"content": [], "structuredContent": {"n": 1}, "isError": True},
        "beside": {"content": [{"type": "text", "text": "x"}], "structuredContent": {"n": 2}},
        "nothing": {"content": []},
    }
    file = tmp_path / "lists.json"
    file.write_text(json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in results],
        "results": results}))  # fmt: skip
    servers = {"up": fake("--lists", str(file), "--era", upstream_era)}
    for client_name in ("gemini-cli-mcp-client", "gemini-cli-mcp-client (via mcp-remote 0.1.37)", "codex", "another"):
        async with hub(tmp_path, servers, modern=modern, handshake=False) as client:
            if not modern:
                await introduce(client, client_name)
            meta = {"_meta": {CLIENT_INFO_KEY: {"name": client_name, "version": "1"}}} if modern else {}
            for name, result in results.items():
                expected = dict(result)
                if name in ("alone", "failed") and "gemini" in client_name:
                    (block,) = (await client.call(f"up__{name}", **meta))["content"]
                    assert block["type"] == "text"
                    assert json.loads(block["text"]) == result["structuredContent"]
                    expected["content"] = [block]
                answer = await client.call(f"up__{name}", **meta)
                assert {key: answer[key] for key in result} == expected


async def test_structured_content_that_only_modern_clients_know_is_text_for_the_others(tmp_path: Path) -> None:
    result = json.dumps({"content": [], "structuredContent": [1, "two"]})
    async with hub(tmp_path, {"up": fake("--era", "modern", "--result", result)}) as client:
        answer = await client.call("up__echo", {"text": "x"})
        assert "structuredContent" not in answer
        assert json.loads(answer["content"][0]["text"]) == [1, "two"]
