"""What programs may take: memory outside of the interpreter, places, and their caller's quotas and room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcp_hub.hub.internal_servers import KEPT_PROCESSES
from mcp_hub.servers.__main__ import PROGRAM_BASE
from tests.fakes.client import PATIENCE, StdioClient, fake, hub
from tests.fakes.network import network_hub
from tests.fakes.processes import below
from tests.hub.code_mode.test_programs import CODE, blamed, received_names, run, run_text, until
from tests.policy.access.test_a_person_is_asked_first import with_token

pytestmark = pytest.mark.anyio

MEGABYTE = 1_000_000
MEMORY = 100 * MEGABYTE
"""The default of `code_mode.memory`."""
TWICE = "x = ['a' * 100_000]\nfor _ in range(60):\n    x = [x, x]\n"
"""A value that takes 100 kB in a program, and 2**60 times its text as JSON."""


def peak(pid: int) -> int:
    """The most bytes of memory that a process has had."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    directory = tmp_path_factory.mktemp("bounds")
    tools = directory / "tools"
    tools.mkdir()
    (tools / "sizes.py").write_text(
        "from mcp_hub import tool\nfrom mcp_hub.servers.local.tool_results import ToolResult\n\n"
        "@tool\ndef image(size: int):\n"
        "    return ToolResult([{'type': 'image', 'mimeType': 'image/png', 'data': 'A' * size}])\n\n"
        "@tool\ndef long(size: int) -> str:\n    return 'x' * size\n\n"
        "@tool\ndef empty(count: int) -> list:\n    return [{}] * count\n"
    )
    record = directory / "record"
    code_mode = {"enabled": True, "writes": True, "calls": 1000}
    root = {"code_mode": code_mode, "unread": {"caller": "32MiB"}, "tools_dir": str(tools)}
    async with hub(directory, {"fake": fake("--record", str(record))}, **root) as client:
        client.record = record  # type: ignore[attr-defined]
        await client.tool_names()
        yield client


async def held(client: StdioClient, id: str, code: str = "await fake__sleep(seconds=600)") -> asyncio.Future[Any]:
    """Starts a program, and returns the future of its result once it has called `sleep`."""
    record: Path = client.record  # type: ignore[attr-defined]
    before = received_names(record).count("sleep")
    future = client.start("tools/call", {"name": "hub_run", "arguments": {"code": code}}, id)
    await until(lambda: future.done() or received_names(record).count("sleep") > before)
    assert not future.done(), future.result()
    return future


async def cancelled(client: StdioClient, id: str) -> None:
    """Cancels a program, and waits until only idle processes are left."""
    client.notify("notifications/cancelled", {"requestId": id})
    await until(lambda: len(below(client.process.pid, "programs")) <= KEPT_PROCESSES)


@pytest.mark.parametrize(
    "attack",
    [
        "await asyncio.gather(*[fake__echo(text='x' * 1_000_000) for _ in range(900)])",
        "await asyncio.gather(*[asyncio.gather(*[fake__echo(text='x' * 9_999_999)]) for _ in range(100)])",
        "[fake__echo(**{f'{n}' * 1_000_000: 1}) for n in range(900)]",
        "await call_tool('n' * 30_000_000)",
        f"{TWICE}await fake__echo(text=x)",
        f"{TWICE}await call_tool('fake__echo', {{(('a', 1),): x}})",
        "await fake__echo(text=[[]] * 300_000)",
    ],
)
async def test_the_calls_of_a_program_count_where_they_are_made(client: StdioClient, attack: str) -> None:
    body = attack.replace("\n", "\n    ")
    caught = "except (MemoryError, ValueError, RuntimeError) as error:\n    kind = type(error).__name__"
    code = f"kind = None\ntry:\n    {body}\n{caught}\nawait fake__echo(text=str(kind))\nawait fake__sleep(seconds=600)"
    await held(client, "attack", code)
    for runner in below(client.process.pid, "programs"):
        assert peak(runner.pid) < 4 * MEMORY
    assert peak(client.process.pid) < 4 * MEMORY
    await cancelled(client, "attack")


async def test_results_that_wait_for_a_program_count_against_unread(client: StdioClient) -> None:
    code = (
        "async def long():\n"
        "    try:\n        return len(await local__long(size=10_000_000))\n"
        "    except RuntimeError as error:\n        return str(error).split(':')[0]\n"
        "await asyncio.gather(*[long() for _ in range(40)])"
    )
    outcomes = json.loads(await run_text(client, code))
    assert set(outcomes) == {10_000_000, "overloaded"}
    assert peak(client.process.pid) < 4 * MEMORY
    assert await run_text(client, "len(await local__long(size=10_000_000))") == "10000000"


async def test_images_that_a_program_has_got_count_against_unread_until_it_ends(client: StdioClient) -> None:
    for _ in range(2):
        code = (
            "outcomes = []\nfor _ in range(40):\n    try:\n"
            "        outcomes.append((await local__image(size=10_000_000))['type'])\n"
            "    except RuntimeError as error:\n        outcomes.append(str(error).split(':')[0])\noutcomes"
        )
        outcomes = json.loads(await run_text(client, code))
        assert outcomes == ["image"] * 3 + ["overloaded"] * 37


async def test_a_result_that_needs_too_much_memory_ends_its_program_only(client: StdioClient) -> None:
    other = await held(client, "other")
    assert "MemoryError" in await blamed(client, "await local__empty(count=10_000_000)")
    assert not other.done()
    await cancelled(client, "other")


async def test_each_process_for_programs_has_a_hard_limit_of_memory(client: StdioClient) -> None:
    await run_text(client, "1")
    runner, *_ = below(client.process.pid, "programs")
    limit = PROGRAM_BASE + 4 * MEMORY
    for process in (runner, *runner.children()):  # the worker has the interpreter
        assert process.rlimit(psutil.RLIMIT_DATA) == (limit, limit)


async def test_the_death_of_a_process_costs_one_program(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with hub(tmp_path, {"fake": fake("--record", str(record))}, **CODE) as client:
        client.record = record  # type: ignore[attr-defined]
        first = await held(client, "first")
        (runner,) = below(client.process.pid, "programs")
        second = await held(client, "second")
        runner.kill()
        async with asyncio.timeout(PATIENCE):
            result = (await first)["result"]
        assert result["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert not second.done()
        assert await run_text(client, "'next'") == "next"
        await cancelled(client, "second")


async def test_a_program_that_prints_too_much_is_told_so_after_its_text(client: StdioClient) -> None:
    text = await blamed(client, "print('x' * 100_000)")
    assert text.startswith("x" * 60_000)
    assert "MemoryError: a program may print 65,536 bytes" in text


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("raise ValueError('x' * 20_000_000)", "ValueError"),
        ("class Long(Exception):\n    pass\nraise Long('x' * 20_000_000)", "Long"),
        (
            "try:\n    raise KeyError('y' * 5_000_000)\nexcept KeyError:\n    raise ValueError('x' * 5_000_000)",
            "ValueError",
        ),
        ("async def f(n):\n    return await f(n + 1)\nawait f(0)", "RecursionError"),
        ("10 ** 5000", "ValueError"),
        ("{10 ** 5000: 1}", "ValueError"),
        ("await fake__echo(text=10 ** 5000)", "ValueError"),
        ("[fake__echo('x') for _ in range(50)]", "without 'await'"),
        ("await asyncio.gather(*[asyncio.sleep(1) for _ in range(2000)])", "overloaded"),
        ("'x' * 10**9", "code_mode.memory"),
    ],
)
async def test_the_error_of_a_program_is_bounded_and_says_what_it_is(
    client: StdioClient, code: str, cause: str
) -> None:
    text = await blamed(client, code)
    assert cause in text
    assert len(text) < 10_000


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (
            "[b'x', (1, 2), {3}, 1j, float('nan'), datetime.date(2020, 1, 1)]",
            '["b\'x\'",[1,2],[3],"1j","nan","2020-01-01"]',
        ),
        ("{(1, 2): 3, 4: 5, None: 6, 'a': {1.5: 7}}", '{"[1,2]":3,"4":5,"None":6,"a":{"1.5":7}}'),
        ("[2 ** 70, -(10 ** 4000) < 0]", "[1180591620717411303424,true]"),
        ("class A:\n    def __init__(self):\n        self.a = [1]\nA()", '{"a":[1]}'),
        ("'\\ud800'", "�"),
        ("await fake__echo(text='\\ud800')", "�"),
    ],
)
async def test_any_value_leaves_a_program_as_json(client: StdioClient, code: str, answer: str) -> None:
    assert await run_text(client, code) == answer


@pytest.mark.parametrize(
    "code", [f"{TWICE}x", "'x' * 30_000_000", "{n: 'a' for n in range(100_000)}", "'\\x00' * 400_000"]
)
async def test_a_value_that_is_too_long_is_refused_where_it_is_made(client: StdioClient, code: str) -> None:
    result = await run(client, code)
    assert result["_meta"]["mcp-hub/error"]["code"] == "result_too_large"


TRIED = (
    "made = []\nfor n in range({0}):\n"
    "    try:\n        made.append(await {1})\n"
    "    except RuntimeError as error:\n        made.append(str(error).split(':')[0])\n"
    "made"
)
"""A program that tries a call many times; it returns the results and the codes."""


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    "called", ["fake__echo(text='x')", "call_tool('fake__echo', {'text': 'x'})", "hub_search(query='echo')"]
)
async def test_a_call_of_a_program_takes_a_token_of_its_principal(tmp_path: Path, called: str, era: Any) -> None:
    token = "a" * 40
    limits = {"rate": 0.001, "burst": 5}
    listen = {"principals": {"ann": {"token": token, "limits": limits}}}
    async with (
        network_hub(tmp_path, {"fake": fake()}, listen=listen, **CODE) as (_, base),
        with_token(f"{base}/mcp", era, token, None) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool("hub_run", {"code": TRIED.format(20, called)})
        direct = await client.call_tool("fake__echo", {"text": "x"})
    made = json.loads(str(result.content[0].text))  # type: ignore[union-attr]
    assert made.count("overloaded") == 16  # the call of hub_run took the first token
    assert made[4:] == ["overloaded"] * 16
    assert direct.is_error


async def test_the_concurrent_calls_of_a_program_count_for_its_principal(tmp_path: Path) -> None:
    token = "a" * 40
    listen = {"principals": {"ann": {"token": token, "limits": {"calls": 4}}}}
    code = (
        "async def tried():\n"
        "    try:\n        return await fake__sleep(seconds=0.2)\n"
        "    except RuntimeError as error:\n        return str(error).split(':')[0]\n"
        "await asyncio.gather(*[tried() for _ in range(10)])"
    )
    async with (
        network_hub(tmp_path, {"fake": fake()}, listen=listen, **CODE) as (_, base),
        with_token(f"{base}/mcp", "modern", token, None) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool("hub_run", {"code": code})
    made = json.loads(str(result.content[0].text))  # type: ignore[union-attr]
    assert made.count("overloaded") == 6  # one of the four takes the place of hub_run, which waits for it


async def test_a_program_of_a_principal_with_one_call_at_a_time_makes_its_calls_one_by_one(tmp_path: Path) -> None:
    token = "a" * 40
    listen = {"principals": {"ann": {"token": token, "limits": {"calls": 1}}}}
    code = "[await fake__echo(text='a'), await fake__echo(text='b')]"
    async with (
        network_hub(tmp_path, {"fake": fake()}, listen=listen, **CODE) as (_, base),
        with_token(f"{base}/mcp", "modern", token, None) as client,
        asyncio.timeout(PATIENCE),
    ):
        for _ in range(2):
            result = await client.call_tool("hub_run", {"code": code})
            assert json.loads(str(result.content[0].text)) == ["a", "b"]  # type: ignore[union-attr]


async def test_one_principal_cannot_take_all_places(tmp_path: Path) -> None:
    tokens = {"ann": "a" * 40, "bob": "b" * 40}
    record = tmp_path / "record"
    listen = {"principals": {name: {"token": token} for name, token in tokens.items()}}
    servers = {"fake": fake("--record", str(record))}
    async with (
        network_hub(tmp_path, servers, listen=listen, **CODE) as (_, base),
        with_token(f"{base}/mcp", "modern", tokens["ann"], None) as ann,
        with_token(f"{base}/mcp", "modern", tokens["bob"], None) as bob,
        asyncio.timeout(PATIENCE),
    ):
        long = "await fake__sleep(seconds=600)"
        running = [asyncio.create_task(ann.call_tool("hub_run", {"code": long})) for _ in range(8)]
        await until(lambda: received_names(record).count("sleep") == 8)
        refused = await ann.call_tool("hub_run", {"code": "1"})
        accepted = await bob.call_tool("hub_run", {"code": "1"})
        for task in running:
            task.cancel()
    assert refused.is_error
    assert not accepted.is_error
