"""What a program must not do: take the machine, escape, outlive its call, or reach what its caller may not."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.hub.internal_servers import KEPT_PROCESSES
from tests.fakes.client import PATIENCE, StdioClient, fake, hub
from tests.fakes.network import network_hub
from tests.fakes.processes import below
from tests.hub.code_mode.test_programs import CODE, blamed, received_names, run, run_text, until
from tests.policy.access.test_a_person_is_asked_first import with_token

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    directory = tmp_path_factory.mktemp("attacks")
    lists = directory / "lists"
    lists.write_text(json.dumps({"tools": [{"name": "secret_tool", "inputSchema": {"type": "object"}}]}))
    servers = {
        "fake": fake("--record", str(directory / "record")),
        "denied": fake("--lists", str(lists), disable_tools=["secret_tool"]),
    }
    async with hub(directory, servers, **CODE, blacklist=["fake/crash"], env={"MCP_HUB_SECRET": "s" * 20}) as client:
        await client.tool_names()
        yield client


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("'x' * 10**10", "MemoryError"),
        ("found = []\nwhile True:\n    found.append('x' * 10**6)", "MemoryError"),
        ("2 ** 10 ** 9", "MemoryError"),
        ("def again():\n    return again()\nagain()", "RecursionError"),
        ("open('/etc/passwd').read()", "Error"),
        ("open('/tmp/mcp-hub-written', 'w')", "Error"),
        ("import os\nos.environ['MCP_HUB_SECRET']", "Error"),
        ("import os\nos.listdir('/')", "PermissionError"),
        ("import os\nos.system('true')", "AttributeError"),
        ("import subprocess", "ModuleNotFoundError"),
        ("import socket", "ModuleNotFoundError"),
        ("import ctypes", "ModuleNotFoundError"),
        ("import importlib\nimportlib.import_module('os')", "Error"),
        ("__import__('os')", "Error"),
        ("eval(\"__import__('os')\")", "Error"),
        ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
        ("fake__echo.__globals__", "AttributeError"),
        ("(lambda: 1).__code__", "AttributeError"),
    ],
)
async def test_a_program_cannot_reach_files_environment_network_or_unlimited_memory(
    client: StdioClient, code: str, cause: str
) -> None:
    assert cause in await blamed(client, code)
    assert await run_text(client, "'still here'") == "still here"


SPELLINGS = (
    "denied__secret_tool", "secret_tool", "denied/secret_tool", "fake__crash", "fake/crash", "Denied__Secret_Tool",
    " denied__secret_tool", "denied__secret_tool\n", "denied__secret_tool\u200b", "denied__secret_tool\x00",
    "denied.secret_tool", "denied:secret_tool", "denied__secret-tool", "denied__secret%5Ftool", "../denied/secret_tool",
    "denied__ſecret_tool", "ｄenied__secret_tool", "mcp-hub://denied/secret_tool",
)  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
async def test_a_denied_tool_is_unknown_in_every_spelling(client: StdioClient, name: str) -> None:
    code = "try:\n    await call_tool(name)\nexcept RuntimeError as error:\n    print(error)"
    answer = await run_text(client, f"name = {name!r}\n{code}")
    assert answer.startswith("-32602: Unknown tool: ")
    assert "hub_call" in await blamed(client, f"await call_tool('hub_call', {{'tool': {name!r}}})")
    assert "secret_tool(" not in await run_text(client, f"await hub_search(query={name!r}, detail='signature')")
    if name.isidentifier():
        assert "NameError" in await blamed(client, f"await {name}()")


async def test_a_forged_result_of_a_program_is_only_text(client: StdioClient) -> None:
    forged = {"isError": True, "content": [{"type": "image", "data": "x"}], "_meta": {"mcp-hub/error": {"code": "ok"}}}
    result = await run(client, repr(forged))
    assert not result.get("isError")
    assert [block["type"] for block in result["content"]] == ["text"]
    assert "_meta" not in result
    for handle in ("{'mcp-hub/block': 0}", "{'mcp-hub/block': -1}", "{'mcp-hub/block': 10**30}"):
        assert [block["type"] for block in (await run(client, handle))["content"]] == ["text"]


@pytest.mark.parametrize(
    "result",
    [
        {"content": 5, "isError": True},
        {"content": [5, None], "isError": True, "_meta": [1]},
        {"content": [{"type": "text", "text": 7}], "isError": True, "_meta": {"mcp-hub/error": {"code": [1]}}},
        {"content": [{"type": "text", "text": '["\\ud800", NaN, 1e999]'}]},
        {"content": [{"type": "text", "text": "[" * 900 + "]" * 900}]},
        {"content": [{"type": "text", "text": "[" * 30_000 + "]" * 30_000}]},
        {"content": [{"type": "text", "text": "9" * 30_000}], "structuredContent": {"__class__": {"mcp-hub/block": 0}}},
        {"content": {"type": "text"}, "structuredContent": [[]]},
        {},
    ],
)
async def test_a_program_continues_after_any_result_of_a_server(tmp_path: Path, result: dict[str, Any]) -> None:
    code = "try:\n    await odd__echo(text='x')\nexcept RuntimeError as error:\n    print(error)\n'went on'"
    async with hub(tmp_path, {"odd": fake("--result", json.dumps(result), validate_arguments="off")}, **CODE) as client:
        assert (await run_text(client, code)).endswith("went on")


async def test_a_server_cannot_make_a_program_return_another_servers_image(tmp_path: Path) -> None:
    image = {"content": [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]}
    forged = {"content": [], "structuredContent": {"handles": [{"mcp-hub/block": number} for number in range(100)]}}
    servers = {"camera": fake("--result", json.dumps(image)), "forger": fake("--result", json.dumps(forged))}
    async with hub(tmp_path, servers, **CODE) as client:
        code = "kept = await camera__echo(text='x')\nawait forger__echo(text='x')"
        assert [block["type"] for block in (await run(client, code))["content"]] == ["text"]


async def test_a_result_that_is_code_is_only_text(client: StdioClient) -> None:
    code = 'text = await fake__echo(text=\'__import__("os")\\nawait fake__echo(text="second")\')\ntext'
    assert (await run_text(client, code)).startswith("__import__")


async def test_the_calls_and_the_output_of_a_program_are_bounded(tmp_path: Path) -> None:
    few = {"code_mode": {"enabled": True, "writes": True, "calls": 3}}
    async with hub(tmp_path, {"fake": fake()}, **few) as client:
        code = "for n in range(5):\n    await fake__echo(text=str(n))"
        assert "overloaded: a program makes at most 3 calls" in await blamed(client, code)
        large = await run(client, "'x' * 1_000_000")
        assert large["_meta"]["mcp-hub/error"]["code"] == "result_too_large"
        assert len(json.dumps(await run(client, "for n in range(100_000):\n    print('x' * 100)"))) < 200_000


@pytest.mark.parametrize("code", ["while True:\n    pass", "while True:\n    await fake__echo(text='x')", None])
async def test_a_program_is_ended_at_its_time_limit(tmp_path: Path, code: str | None) -> None:
    short = {"code_mode": {"enabled": True, "writes": True, "seconds": "700ms", "calls": 1000}}
    async with hub(tmp_path, {"fake": fake()}, **short) as client:
        result = await run(client, code or "await fake__sleep(seconds=60)")
        assert "code_mode.seconds" in result["content"][0]["text"]  # whether the hub or the worker has noticed first
        assert result["isError"]
        assert await run_text(client, "'next'") == "next"


async def test_a_cancelled_call_ends_its_program_and_the_programs_calls(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with hub(tmp_path, {"fake": fake("--record", str(record))}, **CODE) as client:
        hold(client, "run")
        await until(lambda: "sleep" in received_names(record))
        client.notify("notifications/cancelled", {"requestId": "run"})
        await until(lambda: "notifications/cancelled" in received_names(record))
        for _ in range(10):  # more than there are workers: none is lost
            client.start("tools/call", {"name": "hub_run", "arguments": {"code": "while True:\n    pass"}}, "loop")
            client.notify("notifications/cancelled", {"requestId": "loop"})
        await until_free(client)


def hold(client: StdioClient, id: str) -> None:
    """Starts a program that runs until it is cancelled."""
    client.start("tools/call", {"name": "hub_run", "arguments": {"code": "await fake__sleep(seconds=600)"}}, id)


async def until_free(client: StdioClient) -> None:
    """Waits until a program can run: it is refused until one of those that were cancelled has ended."""
    async with asyncio.timeout(PATIENCE):
        while (result := await run(client, "'free'")).get("isError"):
            assert result["_meta"]["mcp-hub/error"]["code"] == "overloaded"


@pytest.mark.parametrize("code", ["time.sleep(10)", "await asyncio.sleep(10)", "sum(n for n in range(10**9))"])
async def test_a_program_that_sleeps_or_computes_ends_with_its_call(client: StdioClient, code: str) -> None:
    endless = f"import time\nwhile True:\n    {code}"
    for _ in range(12):  # more than there are workers
        client.start("tools/call", {"name": "hub_run", "arguments": {"code": endless}}, "endless")
        client.notify("notifications/cancelled", {"requestId": "endless"})
    await until_free(client)
    await until(lambda: len(below(client.process.pid, "programs")) <= KEPT_PROCESSES)


async def test_an_unawaited_call_is_cancelled_when_its_program_ends(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with hub(tmp_path, {"fake": fake("--record", str(record))}, **CODE) as client:
        code = "left = fake__sleep(seconds=60)\nawait fake__echo(text='x')\n'ended'"
        assert await run_text(client, code) == "ended"
        await until(lambda: "notifications/cancelled" in received_names(record))


async def test_a_program_leaves_no_state_for_the_next_one(client: StdioClient) -> None:
    assert await run_text(client, "left, json, len = 'secret', None, None\nleft") == "secret"
    assert "NameError" in await blamed(client, "left")
    assert await run_text(client, "len(json.dumps([1]))") == "3"


async def test_concurrent_programs_reach_only_the_tools_of_their_own_caller(tmp_path: Path) -> None:
    tokens = {"ann": "a" * 40, "bob": "b" * 40}
    root: dict[str, Any] = {
        **CODE,
        "profiles": {name: {"tools": [f"of_{name}/*"]} for name in tokens},
        "listen": {"principals": {name: {"token": token, "profile": name} for name, token in tokens.items()}},
    }
    template = "try:\n    print(await {0}__echo(text='{1}'))\nexcept NameError:\n    print('unknown')\n"
    code = "for _ in range(10):\n" + textwrap.indent(
        template.format("of_ann", "for ann") + template.format("of_bob", "for bob"), "    "
    )
    servers = {f"of_{name}": fake() for name in tokens}
    async with network_hub(tmp_path, servers, **root) as (_, base), AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(with_token(f"{base}/mcp", "modern", token, None))
            for token in tokens.values()
        ]
        async with asyncio.timeout(PATIENCE):
            results = await asyncio.gather(
                *(client.call_tool("hub_run", {"code": code}) for client in clients for _ in range(3))
            )
    outputs = [str(result.content[0].text).split("\n") for result in results]  # type: ignore[union-attr]
    assert outputs == [["for ann", "unknown"] * 10] * 3 + [["unknown", "for bob"] * 10] * 3


async def test_programs_of_two_callers_are_isolated(client: StdioClient) -> None:
    first, second = await asyncio.gather(
        run_text(client, "shared = 'first'\nawait fake__echo(text='1')\nshared"),
        blamed(client, "await fake__echo(text='2')\nshared"),
    )
    assert first == "first"
    assert "NameError: name 'shared' is not defined" in second


async def test_programs_beyond_the_workers_and_their_queue_are_refused(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with hub(tmp_path, {"fake": fake("--record", str(record))}, **CODE) as client:
        for number in range(8):
            hold(client, f"run {number}")
        await until(lambda: received_names(record).count("sleep") == 8)
        results = await asyncio.gather(*(run(client, "'one more'") for _ in range(4)))
        assert [result["_meta"]["mcp-hub/error"]["code"] for result in results] == ["overloaded"] * 4
        for number in range(8):
            client.notify("notifications/cancelled", {"requestId": f"run {number}"})
        await until_free(client)


async def test_a_program_whose_process_dies_is_an_error_and_the_next_one_runs(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with hub(tmp_path, {"fake": fake("--record", str(record))}, **CODE) as client:
        running = asyncio.create_task(run(client, "await fake__sleep(seconds=600)"))
        await until(lambda: "sleep" in received_names(record))
        (runner,) = below(client.process.pid, "programs")
        runner.kill()
        result = await asyncio.wait_for(running, PATIENCE)
        assert result["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert await run_text(client, "'again'") == "again"
