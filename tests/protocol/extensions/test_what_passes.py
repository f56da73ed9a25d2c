"""The hub forwards apps, tasks and skills, and hides other extensions from both sides."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Route
from mcp_hub.catalog.exposed_ids import TaskIds
from mcp_hub.errors import ProtocolError
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.protocol.skill_entries import SKILLS_EXTENSION
from mcp_hub.security.callers import SOLE, Caller
from tests.catalog.uris.test_links_and_rules import server
from tests.fakes.callers import a_principal
from tests.fakes.client import PATIENCE, RpcError, StdioClient, hub
from tests.upstream.asking.test_servers_ask_handshake_clients import asking, client_of

pytestmark = pytest.mark.anyio

UI, TASKS = "io.modelcontextprotocol/ui", "io.modelcontextprotocol/tasks"
DECLARED = {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}, TASKS: {}, "example.org/unknown": {}}
CAPABILITIES = {"extensions": DECLARED, "experimental": {"x": {}}, "roots": {}}
META = {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}


async def call(client: StdioClient, name: str, arguments: dict[str, Any] | None = None) -> Any:
    return await client.call(name, arguments, _meta=META)


async def task(client: StdioClient, verb: str, task_id: str, **extra_params: Any) -> Any:
    return await client.request(f"tasks/{verb}", {"taskId": task_id, "_meta": META, **extra_params})


async def finished(client: StdioClient, task_id: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while (state := await task(client, "get", task_id))["status"] in ("working", "input_required"):
            for key, question in state.get("inputRequests", {}).items():
                assert question["params"]["message"].startswith(("a asks: ", "b asks: "))
                answer = {"action": "accept", "content": {"confirm": True}}
                assert (await task(client, "update", task_id, inputResponses={key: answer}))["resultType"] == "complete"
    return state


@pytest.mark.parametrize("modern", [True, False])
async def test_forwarded_extensions_are_advertised_in_their_era(tmp_path: Path, modern: bool) -> None:
    async with hub(tmp_path, {"a": server("a")}, modern=True, list_wait=20) as client:
        await client.tool_names()  # from now on the catalog of the server is cached
    async with hub(tmp_path, {"a": server("a")}, modern=modern, handshake=False, list_wait=20) as client:
        result = await client.request("server/discover") if modern else await client.initialize()
    assert set(result["capabilities"]["extensions"]) == ({UI, TASKS, SKILLS_EXTENSION} if modern else {UI})


async def test_without_a_server_that_has_an_extension_only_skills_are_advertised(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": asking("--era", "modern")}, modern=True, list_wait=20) as client:
        await client.tool_names()
        result = await client.request("server/discover")
        assert result["capabilities"]["extensions"] == {SKILLS_EXTENSION: {}}
        with pytest.raises(RpcError) as refused:
            await task(client, "get", "x")
        assert refused.value.code == -32601


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_server_receives_the_clients_forwardable_extensions(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"a": asking("--era", era)}, modern=True, list_wait=20) as client:
        await call(client, "a__echo", {"text": "x"})
        declared = json.loads((await call(client, "a__declared"))["content"][0]["text"])
    passed = {UI: DECLARED[UI], TASKS: {}} if era == "modern" else {UI: DECLARED[UI]}
    assert declared == {"roots": {}, "extensions": passed}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_handshake_clients_extensions_are_forwarded_without_modern_ones(tmp_path: Path, era: str) -> None:
    async with client_of(tmp_path, asking("--era", era), CAPABILITIES) as client:
        assert json.loads(await client.text("a__declared")) == {"roots": {}, "extensions": {UI: DECLARED[UI]}}


async def test_tasks_of_two_equal_servers_are_distinguished(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server("a"), "b": server("b")}, modern=True, list_wait=20) as client:
        await client.tool_names()
        created = [await call(client, f"{name}__{tool}") for name in "ab" for tool in ("confirm_delete", "multi_input")]
        assert {new_task["resultType"] for new_task in created} == {"task"}
        final_states = [await finished(client, new_task["taskId"]) for new_task in created]
    assert [state["taskId"] for state in final_states] == [new_task["taskId"] for new_task in created]
    texts = [state["result"]["content"][0]["text"] for state in final_states]
    assert texts == ["deleted: True", "answered: first, second"] * 2


async def test_a_task_can_be_cancelled_and_a_failed_task_reports_its_reason(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server("a")}, modern=True, list_wait=20) as client:
        slow = (await call(client, "a__slow_compute", {"seconds": 60}))["taskId"]
        await task(client, "cancel", slow)
        assert (await finished(client, slow))["status"] == "cancelled"
        broken = (await call(client, "a__protocol_error_job"))["taskId"]
        assert (await finished(client, broken))["error"]["message"] == "This job breaks"


async def test_a_non_web_url_in_the_error_of_a_task_is_refused(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server("a")}, modern=True, list_wait=20) as client:
        web = (await call(client, "a__protocol_error_job", {"url": "https://example.com/x"}))["taskId"]
        assert (await finished(client, web))["error"]["data"]["elicitations"][0]["url"] == "https://example.com/x"
        other = (await call(client, "a__protocol_error_job", {"url": "file:///etc/passwd"}))["taskId"]
        with pytest.raises(RpcError) as refused:
            await finished(client, other)
        assert refused.value.code == -32600


REDACTING = """
def redact(call, result):
    for block in result["content"]:
        block["text"] = block["text"].replace("breaks", "***")
    return result
"""


async def test_the_error_of_a_failed_task_is_post_processed_too(tmp_path: Path) -> None:
    (tmp_path / "redacting.py").write_text(REDACTING)
    step = {"step": "redacting:redact"}
    async with hub(tmp_path, {"a": server("a", postprocess=[step])}, modern=True, list_wait=20) as client:
        broken = (await call(client, "a__protocol_error_job"))["taskId"]
        state = await finished(client, broken)
    assert state["status"] == "failed"
    assert (state["error"]["message"], state["error"]["code"]) == ("This job ***", -32603)
    assert "breaks" not in json.dumps(state)


async def test_a_task_of_a_now_refused_tool_is_answered_like_an_unknown_task(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server("a")}, modern=True, list_wait=20) as client:
        task_id = (await call(client, "a__confirm_delete"))["taskId"]
    refusing = {"a": server("a", disable_tools=["confirm_delete"])}
    async with hub(tmp_path, refusing, modern=True, list_wait=20) as client:
        await client.tool_names()
        for sealed in (task_id, "made-up", task_id[:-2], "hub-task.x.y"):
            for verb in ("get", "update", "cancel"):
                with pytest.raises(RpcError) as refused:
                    await task(client, verb, sealed)
                assert refused.value.error == {"code": -32602, "message": f"Unknown task: {sealed}"}


async def test_a_task_id_stays_valid_after_a_restart_of_the_hub(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server("a")}, modern=True, list_wait=20) as client:
        task_id = (await call(client, "a__confirm_delete"))["taskId"]
    async with hub(tmp_path, {"a": server("a")}, modern=True, list_wait=20) as client:
        await client.tool_names()
        with pytest.raises(RpcError) as refused:
            await task(client, "get", task_id)
        assert "Unknown task" in refused.value.error["message"]
        assert task_id not in refused.value.error["message"]  # only the restarted server does not know the task


async def test_a_client_without_the_task_extension_gets_an_error_naming_it(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server("a")}, modern=True, list_wait=20) as client:
        task_id = (await call(client, "a__confirm_delete"))["taskId"]
        for attempt in (client.request("tasks/get", {"taskId": task_id}), client.call("a__failing_job")):
            with pytest.raises(RpcError) as refused:
                await attempt
            assert refused.value.code == -32021
            assert refused.value.error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        assert (await client.call("a__slow_compute", {"seconds": 0}))["resultType"] == "complete"


def test_a_task_id_of_one_replica_is_valid_at_the_others_and_names_its_replica() -> None:
    ann = a_principal("ann")
    route, keys = Route("a", TOOLS, "tool"), [b"k" * 32, b"l" * 32]
    first, second = TaskIds(*keys, place="one"), TaskIds(*reversed(keys), place="another")
    sealed = first.seal(ann, route, "7")
    assert second.open(ann, sealed) == first.open(ann, sealed) == (route, "7")
    assert second.place_of(ann, sealed) == "one"
    assert TaskIds(keys[0]).place_of(ann, TaskIds(keys[0]).seal(ann, route, "7")) == ""
    with pytest.raises(ProtocolError):
        second.place_of(a_principal("bob"), sealed)


def test_a_task_id_is_valid_only_for_the_caller_that_received_it() -> None:
    ids, route = TaskIds(b"k" * 32), Route("a", TOOLS, "tool")
    callers = {SOLE, Caller(), Caller(), *map(a_principal, ("", "token", "None", "only"))}
    for caller in callers:
        sealed = ids.seal(caller, route, "7")
        assert ids.open(caller, sealed) == (route, "7")
        for other_caller in callers - {caller}:
            with pytest.raises(ProtocolError):
                ids.open(other_caller, sealed)
        with pytest.raises(ProtocolError):
            TaskIds(b"l" * 32).open(caller, sealed)
        for n in range(len(sealed)):
            with pytest.raises(ProtocolError):
                ids.open(caller, sealed[:n] + ("A" if sealed[n] != "A" else "B") + sealed[n + 1 :])
