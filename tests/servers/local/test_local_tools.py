"""Local tools in their child process: blocking, printing or dying, they never touch what serves them."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from mcp_hub.servers.local.local_server import THREADS
from tests.cli.test_commands import run
from tests.fakes.client import HUB, PATIENCE, RpcError, StdioClient, hub, spawned, write_config

pytestmark = pytest.mark.anyio

TOOLS = '''
import asyncio, contextvars, os, sys, threading, time
from mcp_hub import ToolResponse, tool
import _shared

released = threading.Event()

@tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return _shared.plus(a, b)

@tool
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slow"

@tool
def printing() -> str:
    print("printed"); sys.stdout.flush()
    os.write(1, b"written\\n")
    os.system("echo from a shell")
    return repr(sys.stdin.read())

@tool
def looping() -> str:
    while not released.is_set():
        pass
    return "released"

@tool
async def blocking_the_loop() -> str:
    while not released.is_set():
        pass
    return "released"

@tool
def release() -> None:
    released.set()

held = threading.Event()
changes = []

@tool
def hold() -> None:
    held.wait()

@tool
async def let_go() -> None:
    held.set()

@tool
def change() -> None:
    changes.append(1)

@tool
def changed() -> int:
    return len(changes)

@tool
def die() -> None:
    os._exit(3)

@tool
def leave() -> None:
    sys.exit("left")

@tool
def boom() -> None:
    raise ValueError("boom")

@tool
def odd() -> object:
    return object()

class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")

@tool
def unspeakable() -> None:
    raise Unspeakable

@tool
def odd_blocks() -> ToolResponse:
    return ToolResponse(object())

@tool
def structured() -> dict[str, int]:
    return {"n": 1}

@tool
def pid() -> int:
    return os.getpid()

def not_a_tool() -> None: ...
'''
AGAIN = "from mcp_hub import tool\n@tool\ndef add() -> None: ...\n@tool\ndef extra() -> str:\n    return 'extra'\n"
SECOND_TOOL = "from mcp_hub import tool\n@tool\ndef more() -> str:\n    return 'more'\n"
FILES = {
    "a_tools.py": TOOLS,
    "_shared.py": "def plus(a, b): return a + b\n",
    "b_broken.py": "from mcp_hub import tool\n\nimport no_such_module_anywhere\n",
    "c_syntax.py": "def f(:\n",
    "d_exit.py": "import sys\nsys.exit(5)\n",
    "e_again.py": AGAIN,
}


def written(directory: Path) -> Path:
    for name, text in FILES.items():
        (directory / name).write_text(text)
    (directory / "builtin").mkdir()
    (directory / "builtin" / "more.py").write_text(
        "from mcp_hub import tool\n@tool\ndef more() -> str:\n    return 'more'\n"
    )
    return directory


@asynccontextmanager
async def child(directory: Path, *, modern: bool = False) -> AsyncIterator[StdioClient]:
    async with spawned(
        [sys.executable, "-m", "mcp_hub.servers", "local", str(written(directory))], modern=modern
    ) as client:
        if not modern:
            await client.initialize()
        yield client


@pytest.mark.parametrize("modern", [False, True])
async def test_the_functions_of_every_file_are_listed_and_called(tmp_path: Path, modern: bool) -> None:
    async with child(tmp_path, modern=modern) as client:
        listed = await client.request("tools/list")
        names = [tool["name"] for tool in listed["tools"]]
        assert names[0] == "add"
        assert {"extra", "more"} <= set(names)
        assert "not_a_tool" not in names
        assert await client.text("add", {"a": 2, "b": 3}) == "5"
        assert await client.text("slow", {"seconds": 0}) == "slow"
        assert (await client.call("structured"))["structuredContent"] == {"n": 1}
        assert (await client.call("release"))["content"] == []
        assert ("resultType" in listed) is modern


async def test_a_file_that_does_not_import_is_reported_and_the_rest_load(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        await client.tool_names()
        lines = client.stderr.decode().splitlines()
    assert any("b_broken.py:3: does not import: ModuleNotFoundError" in line for line in lines)
    assert any("c_syntax.py:1: does not import: SyntaxError" in line for line in lines)
    assert any("d_exit.py:2: does not import: SystemExit" in line for line in lines)
    assert any("e_again.py: add is left out" in line for line in lines)


LAZY = """
import sys
from mcp_hub import BaseTool, tool

class Lazy:
    @property
    def __class__(self):
        raise RuntimeError("outside of a request")

    def __getattr__(self, name):
        raise RuntimeError("outside of a request")

request = Lazy()

class Leaving(BaseTool):
    def __init__(self) -> None:
        sys.exit("no key is set")

    def _run(self) -> str:
        return ""

@tool
def beside() -> str:
    return "beside"
"""


async def test_a_file_with_a_lazy_object_and_a_class_that_exits_still_loads(tmp_path: Path) -> None:
    (tmp_path / "f_lazy.py").write_text(LAZY)
    (tmp_path / "g_broken.py").write_text(f"{LAZY}\nraise ValueError\n")
    async with child(tmp_path) as client:
        assert {"add", "beside", "more"} <= set(await client.tool_names())
        assert await client.text("beside") == "beside"
        lines = client.stderr.decode().splitlines()
    assert any("f_lazy.py: Leaving is left out: no key is set" in line for line in lines)
    assert any(re.search(r"g_broken.py:\d+: does not import: ValueError", line) for line in lines)


async def test_output_of_a_tool_never_reaches_the_protocol_stream(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        assert await client.text("printing") == "''"
        await client.until(lambda: b"from a shell" in client.stderr)
        assert client.noise == []
        assert b"printed" in client.stderr


async def test_output_of_a_tool_reaches_the_log_without_a_flush(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "said.py").write_text(
        "from mcp_hub import tool\n@tool\ndef say() -> str:\n    print('said to the log')\n    return 'said'\n"
    )
    config = write_config(tmp_path, {"local": {"tools_dir": str(tmp_path / "tools")}})
    async with spawned([*HUB, "serve", "-v", "--config", str(config)]) as client:
        await client.initialize()
        assert await client.text("local__say") == "said"
        await client.until(lambda: b"info: local: said to the log" in client.stderr)


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_the_line_of_an_exception_is_in_the_log_and_not_in_the_response(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "tools" / "fails.py"
    file.parent.mkdir()
    file.write_text(
        f"import json\nfrom mcp_hub import tool\n@tool\n{kind} fails() -> str:\n    return helper()\n\n"
        "def helper():\n    return json.loads('no json')\n"
    )
    async with hub(tmp_path, {"local": {"tools_dir": str(file.parent)}}) as client:
        result = await client.call("local__fails")
        (block,) = result["content"]
        assert block["text"] == "Error: Expecting value: line 1 column 1 (char 0)"
        assert str(file) not in json.dumps(result)
        pattern = f"warning: local: fails failed: JSONDecodeError: Expecting value: .* \\({file}:8 in helper\\)"
        await client.until(lambda: re.search(pattern, client.stderr.decode()))


async def test_explain_shows_what_the_server_wrote_to_its_stderr_during_the_call(tmp_path: Path) -> None:
    file = tmp_path / "tools" / "fails.py"
    file.parent.mkdir()
    file.write_text(
        "from mcp_hub import tool\nprint('at the start')\n@tool\ndef fails() -> str:\n    print('before')\n"
        "    raise ValueError('two\\nlines')\n"
    )
    config = str(write_config(tmp_path, {"local": {"tools_dir": str(file.parent)}}))
    done = run("call", "local__fails", "--explain", "--json", "--config", config)
    assert (done.returncode, json.loads(done.stdout)["stderr"]) == (
        1,
        ["before", f"fails failed: ValueError: two lines ({file}:6 in fails)"],
    )


@pytest.mark.parametrize("loop", ["looping", "blocking_the_loop"])
async def test_a_tool_that_blocks_in_pure_python_does_not_delay_other_calls(tmp_path: Path, loop: str) -> None:
    async with child(tmp_path) as client:
        blocked = client.start("tools/call", {"name": loop, "arguments": {}})
        assert await client.request("ping") == {}
        assert await client.text("add", {"a": 1}) == "2"
        assert not blocked.done()
        await client.call("release")
        async with asyncio.timeout(PATIENCE):
            assert (await blocked)["result"]["content"][0]["text"] == "released"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("boom", "tool_error", "Error: boom"),
        ("leave", "tool_error", "Error: left"),
        ("odd", "tool_error", "not JSON"),
        ("odd_blocks", "tool_error", "not JSON"),
        ("unspeakable", "tool_error", "Error: Unspeakable"),
    ],
)
async def test_an_exception_is_an_error_result_with_its_code(tmp_path: Path, name: str, code: str, said: str) -> None:
    async with child(tmp_path) as client:
        result = await client.call(name)
        assert result["isError"] is True
        assert result["_meta"]["mcp-hub/error"]["code"] == code
        assert said in result["content"][0]["text"]
        assert await client.text("add", {"a": 1}) == "2"


async def test_wrong_arguments_are_refused_before_the_call(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        result = await client.call("add", {"a": "3"})
    assert result["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
    assert "got str '3'" in result["content"][0]["text"]


@pytest.mark.parametrize(("method", "params", "code"), [("no/such", {}, -32601), ("tools/call", {"name": "x"}, -32602)])
async def test_unknown_tools_and_methods_are_answered_with_their_codes(
    tmp_path: Path, method: str, params: Any, code: int
) -> None:
    async with child(tmp_path) as client:
        with pytest.raises(RpcError) as caught:
            await client.request(method, params)
    assert caught.value.code == code


async def test_a_cancelled_call_is_never_answered(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        waiting = client.start("tools/call", {"name": "slow", "arguments": {"seconds": 600}}, request_id="w")
        blocked = client.start("tools/call", {"name": "looping", "arguments": {}}, request_id="b")
        for request_id in ("w", "b"):
            client.notify("notifications/cancelled", {"requestId": request_id})
        await client.call("release")
        assert await client.text("add", {"a": 1}) == "2"
        assert not waiting.done()
        assert not blocked.done()


async def test_a_call_that_is_cancelled_before_a_thread_is_free_does_not_run(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        holding = [client.start("tools/call", {"name": "hold", "arguments": {}}) for _ in range(THREADS)]
        client.start("tools/call", {"name": "change", "arguments": {}}, request_id="c")
        client.notify("notifications/cancelled", {"requestId": "c"})
        await client.call("let_go")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*holding)
        assert await client.text("changed") == "0"


async def test_functions_that_never_end_do_not_block_the_calls_after_theirs(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        endless = [str(number) for number in range(THREADS)]
        for request_id in endless:
            client.start("tools/call", {"name": "hold", "arguments": {}}, request_id=request_id)
        queued = client.start("tools/call", {"name": "add", "arguments": {"a": 1}})
        for request_id in endless:
            client.notify("notifications/cancelled", {"requestId": request_id})
        async with asyncio.timeout(PATIENCE):
            assert (await queued)["result"]["content"][0]["text"] == "2"
        assert await client.text("add", {"a": 2}) == "3"


async def test_a_file_whose_import_never_ends_is_named_in_the_error_of_its_server(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    written(tmp_path / "tools")
    endless = tmp_path / "tools" / "f_endless.py"
    endless.write_text("import threading\nthreading.Event().wait()\n")
    servers = {"local": {"tools_dir": str(tmp_path / "tools"), "deadlines": {"connect": 15}}}
    async with hub(tmp_path, servers) as client:
        await client.until(lambda: f"its last words: {endless}: its import has not ended".encode() in client.stderr)


async def test_the_child_exits_when_stdin_closes_even_if_a_thread_never_returns(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        client.start("tools/call", {"name": "looping", "arguments": {}})
        await client.text("add", {"a": 1})
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await client.exited() == 0


async def test_a_tool_that_exits_its_process_fails_its_call_and_the_next_call_uses_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    written(tmp_path / "tools")
    servers = {"local": {"tools_dir": str(tmp_path / "tools")}}
    async with hub(tmp_path, servers) as client:
        first = await client.text("local__pid")
        died = await client.call("local__die")
        assert died["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert await client.text("local__pid") != first


async def test_a_missing_tools_directory_is_named(tmp_path: Path) -> None:
    config = {"local": {"tools_dir": str(tmp_path / "nowhere")}}
    async with hub(tmp_path, config) as client:
        assert await client.tool_names() == []
        await client.until(lambda: b"there is no directory" in client.stderr)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_real_client_can_use_the_child_directly(tmp_path: Path, mode: str) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_hub.servers", "local", str(written(tmp_path))]
    )
    async with asyncio.timeout(PATIENCE), Client(parameters, mode=mode) as client:  # type: ignore[arg-type]
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "add" in names
        result = await client.call_tool("structured", {})
    assert result.structured_content == {"n": 1}
    assert json.loads(result.content[0].text) == {"n": 1}  # type: ignore[union-attr]
