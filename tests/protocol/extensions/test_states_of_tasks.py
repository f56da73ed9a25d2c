"""A client that watches its tasks by `subscriptions/listen` is told their states, by the rules and nobody else's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import StdioClient, hub

pytestmark = pytest.mark.anyio

TASKS = "io.modelcontextprotocol/tasks"
META = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}

SERVER = """
import json, sys
TASKS = "io.modelcontextprotocol/tasks"
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
states, listening = {}, {}
def write(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def state(id):
    fields = {"taskId": id, "status": states[id], "createdAt": "2026-01-01T00:00:00Z", "ttlMs": None}
    done = {"result": {"resultType": "complete", "content": [{"type": "text", "text": "a secret"}]}}
    return {**fields, **(done if states[id] == "completed" else {})}
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params", {})
    if method == "notifications/cancelled":
        listening.pop(params["requestId"], None)
    if "id" not in asked:
        continue
    result = None
    if method == "server/discover":
        capabilities = {"tools": {}, "extensions": {TASKS: {}}}
        result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    elif method == "tools/list":
        names = ("begin", "finish")
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif method == "subscriptions/listen":
        filters = params["notifications"]
        declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"].get("extensions", {})
        listening[asked["id"]] = filters.get("taskIds", []) if TASKS in declared else []
        tag = {"io.modelcontextprotocol/subscriptionId": asked["id"]}
        told = {"notifications": filters, "_meta": tag}
        write({"method": "notifications/subscriptions/acknowledged", "params": told})
        for id in listening[asked["id"]]:
            write({"method": "notifications/tasks", "params": {**state(id), "_meta": tag}})
        continue
    elif method == "tools/call" and params["name"] == "begin":
        id = f"t{len(states)}"
        states[id] = "working"
        result = {**state(id), "resultType": "task"}
    elif method == "tools/call":
        for id in states:
            states[id] = "completed"
            for stream, ids in listening.items():
                tag = {"io.modelcontextprotocol/subscriptionId": stream}
                if id in ids:
                    write({"method": "notifications/tasks", "params": {**state(id), "_meta": tag}})
        result = {"content": []}
    elif method == "tasks/get":
        result = state(params["taskId"])
    elif method.endswith("/list"):
        result = {method.partition("/")[0].replace("templates", "resourceTemplates"): []}
    if result is None:
        write({"id": asked["id"], "error": {"code": -32601, "message": "none"}})
    else:
        write({"id": asked["id"], "result": {**COMPLETE, **result}})
"""
HIDING = """
def hide(call, result):
    return {**result, "content": [{"type": "text", "text": "hidden"}]}
"""


def server(directory: Path, **entry: Any) -> dict[str, Any]:
    program = directory / "tasks.py"
    program.write_text(SERVER)
    return {"command": sys.executable, "args": [str(program)], "era": "modern", **entry}


async def begun(client: StdioClient) -> str:
    return str((await client.call("a__begin", _meta=META))["taskId"])


def listen(client: StdioClient, *ids: str) -> None:
    client.start("subscriptions/listen", {"notifications": {"taskIds": list(ids)}, "_meta": META})


async def states(client: StdioClient, count: int) -> list[tuple[str, str]]:
    told = await client.notified("notifications/tasks", count)
    return [(one["params"]["taskId"], one["params"]["status"]) for one in told]


async def test_a_client_is_told_the_states_of_the_tasks_that_it_watches(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server(tmp_path)}, modern=True) as client:
        watched, other = await begun(client), await begun(client)
        listen(client, watched, "hub-task.forged", "t0")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"] == {"taskIds": [watched]}
        assert await states(client, 1) == [(watched, "working")]
        await client.call("a__finish")
        assert await states(client, 2) == [(watched, "working"), (watched, "completed")]
        assert other not in {id for id, _ in await states(client, 2)}
        last = client.notifications[-1]["params"]
        assert last["result"]["content"] == [{"type": "text", "text": "a secret"}]
        assert last["_meta"] == acknowledged["params"]["_meta"]


async def test_the_result_in_a_told_state_is_as_the_rules_leave_it(tmp_path: Path) -> None:
    (tmp_path / "hiding.py").write_text(HIDING)
    steps = [{"step": "hiding:hide"}]
    async with hub(tmp_path, {"a": server(tmp_path, postprocess=steps)}, modern=True) as client:
        task = await begun(client)
        listen(client, task)
        await states(client, 1)
        await client.call("a__finish")
        await states(client, 2)
        assert "a secret" not in str(client.notifications)


async def test_a_refused_tools_task_is_not_watched(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server(tmp_path)}, modern=True) as client:
        task = await begun(client)
    async with hub(tmp_path, {"a": server(tmp_path, disable_tools=["begin"])}, modern=True) as client:
        listen(client, task)
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"] == {"taskIds": []}
