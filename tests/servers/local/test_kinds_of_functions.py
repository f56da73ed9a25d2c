"""Every kind of callable through the hub: what its last chunk says is the result, the others are progress."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import StdioClient, hub, spawned

pytestmark = pytest.mark.anyio

TOOLS = '''
import asyncio, contextlib, functools, threading
from typing import Annotated, AsyncGenerator, Generator
from mcp_hub import ToolResponse, tool
from pydantic import BaseModel

class Total(BaseModel):
    total: int

released = threading.Event()
ended = []

def said(text, **more):
    return ToolResponse([{"type": "text", "text": text}], **more)

@tool
def plain(word: str) -> ToolResponse:
    return said(word, metadata={"seen": [1]})

@tool
async def coroutine(word: str) -> str:
    return word

@tool
def generator(word: str) -> Generator[ToolResponse, None, None]:
    home = threading.get_ident()
    yield said("1", stream=True, is_last=False)
    yield said("1 2", stream=True, is_last=False)
    assert threading.get_ident() == home
    yield said("1 2 " + word, stream=True)

@tool
async def async_generator(word: str) -> AsyncGenerator[str, None]:
    yield "a"
    yield "a b"
    yield "a b " + word

@tool
async def late_generator(word: str):
    async def later():
        yield said("one")
        yield said("one, " + word)
    return later()

@tool
def early(word: str):
    return late_generator(word)

@tool
def counting() -> Generator[Total, None, None]:
    yield Total(total=1)
    yield Total(total=2)

@tool
def total() -> Total:
    return Total(total=1)

@tool(postprocess=lambda call, response: response)
def processed_total() -> Total:
    return Total(total=1)

@tool
def nothing() -> Generator[str, None, None]:
    return
    yield

@tool
def failing_late() -> Generator[str, None, None]:
    yield "so far"
    raise ValueError("no further")

@tool
async def leaving() -> str:
    raise SystemExit("left")

@tool
def blocking() -> str:
    released.wait()
    return "released"

@tool
def release() -> None:
    released.set()

@tool
def endless():
    try:
        while True:
            yield "again"
    finally:
        ended.append("sync")

@tool
async def endless_async():
    try:
        while True:
            yield "again"
            await asyncio.sleep(0)
    finally:
        ended.append("async")

@tool
async def endings(count: int) -> list[str]:
    while len(ended) < count:
        await asyncio.sleep(0.001)
    return sorted(ended)

def joined(left: str, middle: Annotated[str, "in between"], /, *rest: str, right: str = "!") -> str:
    return " ".join([left, middle, *rest, right])

half = tool(name="half")(functools.partial(joined, "L"))
whole = tool(functools.partial(joined, "L", "M", "N", right="R"))

class Adding:
    """Adds."""
    async def __call__(self, a: int, b: int = 1) -> int:
        return a + b

adding = tool(name="adding")(Adding())

def louder(call, response):
    if call["input"]["word"] == "bad":
        raise RuntimeError("too bad")
    if call["input"]["word"] != "same":
        return said(response.content[0]["text"].upper() + call["name"])

async def louder_later(call, response):
    await asyncio.sleep(0)
    return louder(call, response)

@tool(postprocess=louder)
def shouted(word: str):
    yield "well"
    yield word

@tool(postprocess=louder_later)
def shouted_later(word: str) -> str:
    return word

@tool(postprocess=louder_later)
async def shouted_async(word: str) -> dict[str, str]:
    return {"word": word}

@tool(preset={"key": "k-secret", "maker": object}, include_var_keyword=True)
def with_presets(word: str, key: str, maker: threading.Thread, **more: int) -> dict[str, object]:
    return {"word": word, "key": key, "maker": maker is object, "more": more}

@tool(json_schema={"type": "function", "function": {
    "name": "by_hand", "description": "Written by hand.", "parameters": {
        "type": "object", "title": "Arguments", "required": ["query", "session"],
        "properties": {"query": {"type": "string", "title": "Query"}, "title": {"type": "string"},
                       "session": {"type": "string"}}}}}, preset={"session": "s"})
def wrapper(**arguments):
    return arguments

@tool(extended_model=Total)
def finish(response: str, **more) -> dict:
    return {"response": response, **more}
'''


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    directory = tmp_path_factory.mktemp("kinds")
    (directory / "tools").mkdir()
    (directory / "tools" / "tools.py").write_text(TOOLS)
    entry = {
        "tools_dir": str(directory / "tools"),
        "tools": {
            "finish": {"extend_schema": {"properties": {"extra": {"type": "boolean"}}, "required": ["extra"]}},
            "with_*": {"preset": {"word": "W"}},
        },
    }
    async with hub(directory, {"local": entry}) as running:
        yield running


async def listed(client: StdioClient) -> dict[str, dict[str, Any]]:
    return {tool["name"].removeprefix("local__"): tool for tool in (await client.request("tools/list"))["tools"]}


async def streamed(client: StdioClient, name: str, arguments: dict[str, Any] | None = None) -> tuple[list[Any], Any]:
    """Calls a tool; returns (the params of its progress notifications, its result)."""
    result = await client.call(f"local__{name}", arguments, _meta={"progressToken": name})
    progress = [note["params"] for note in client.notifications if note["params"].get("progressToken") == name]
    return progress, result


@pytest.mark.parametrize(
    ("name", "chunks", "last"),
    [
        ("plain", [], "W"),
        ("coroutine", [], "W"),
        ("generator", ["1", "1 2"], "1 2 W"),
        ("async_generator", ["a", "a b", "a b W"], "a b W"),
        ("late_generator", ["one"], "one, W"),
        ("early", ["one"], "one, W"),
        ("half", [], "L W !"),
    ],
)
async def test_every_kind_of_function_streams_chunks_and_the_last_chunk_is_the_result(
    client: StdioClient, name: str, chunks: list[str], last: str
) -> None:
    """Check 40."""
    argument = "middle" if name == "half" else "word"
    progress, result = await streamed(client, name, {argument: "W"})
    assert [params["message"] for params in progress] == chunks
    assert [params["progress"] for params in progress] == list(range(1, len(chunks) + 1))
    assert result["content"] == [{"type": "text", "text": last}]


async def test_a_chunk_with_more_than_text_is_sent_whole_as_progress(client: StdioClient) -> None:
    progress, result = await streamed(client, "counting")
    assert [params["_meta"]["mcp-hub/chunk"]["structuredContent"] for params in progress] == [
        {"total": 1},
        {"total": 2},
    ]
    assert result["structuredContent"] == {"total": 2}
    assert (await client.call("local__plain", {"word": "x"}))["_meta"] == {"seen": [1]}
    assert (await client.call("local__nothing"))["content"] == []


async def test_a_blocking_sync_tool_does_not_delay_another_call(client: StdioClient) -> None:
    """Check 40."""
    blocked = client.start("tools/call", {"name": "local__blocking", "arguments": {}})
    assert await client.text("local__generator", {"word": "x"}) == "1 2 x"
    assert await client.text("local__coroutine", {"word": "x"}) == "x"
    assert not blocked.done()
    await client.call("local__release")
    assert (await blocked)["result"]["content"][0]["text"] == "released"


async def test_an_error_after_chunks_is_the_result_of_the_call(client: StdioClient) -> None:
    progress, result = await streamed(client, "failing_late")
    assert [params["message"] for params in progress] == ["so far"]
    assert result["isError"]
    assert result["_meta"]["mcp-hub/error"]["code"] == "tool_error"
    exited = await client.call("local__leaving")
    assert exited["_meta"]["mcp-hub/error"]["code"] == "tool_error"
    assert await client.text("local__coroutine", {"word": "alive"}) == "alive"


async def test_a_generator_ends_when_its_call_is_cancelled(client: StdioClient) -> None:
    for name in ("endless", "endless_async"):
        params = {"name": f"local__{name}", "arguments": {}, "_meta": {"progressToken": name}}
        running = client.start("tools/call", params, request_id=name)
        await client.until(
            lambda name=name: client.notifications and client.notifications[-1]["params"].get("progressToken") == name
        )
        client.notify("notifications/cancelled", {"requestId": name})
        assert not running.done()
    assert (await client.call("local__endings", {"count": 2}))["content"][0]["text"] == '["async","sync"]'


async def test_arguments_bound_by_a_partial_are_preset(client: StdioClient) -> None:
    tools = await listed(client)
    assert list(tools["half"]["inputSchema"]["properties"]) == ["middle", "right"]
    assert tools["half"]["inputSchema"]["properties"]["middle"]["description"] == "in between"
    assert tools["joined"]["inputSchema"]["properties"] == {}
    assert await client.text("local__joined") == "L M N R"
    assert tools["adding"]["description"] == "Adds."
    assert await client.text("local__adding", {"a": 2}) == "3"


async def test_presets_are_hidden_and_override_sent_arguments(client: StdioClient) -> None:
    schema = (await listed(client))["with_presets"]["inputSchema"]
    assert list(schema["properties"]) == ["more"]
    assert "required" not in schema
    result = await client.call("local__with_presets", {"more": {"a": 1}, "word": "theirs"})
    assert result["structuredContent"] == {"word": "W", "key": "k-secret", "maker": True, "more": {"a": 1}}


async def test_a_preset_sent_to_the_child_itself_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    async with spawned([sys.executable, "-m", "mcp_hub.servers", "local", str(tmp_path)]) as child:
        await child.initialize()
        result = await child.call("with_presets", {"word": "x", "key": "theirs"})
        assert result["structuredContent"]["key"] == "k-secret"
        await child.until(lambda: b"preset" in child.stderr)
        assert b"theirs" not in child.stderr


async def test_a_handwritten_schema_is_used_and_a_property_named_title_is_kept(client: StdioClient) -> None:
    """Check 41."""
    tool = (await listed(client))["by_hand"]
    assert tool["description"] == "Written by hand."
    assert tool["inputSchema"] == {
        "type": "object",
        "required": ["query"],
        "properties": {"query": {"type": "string"}, "title": {"type": "string"}},
    }
    result = await client.call("local__by_hand", {"query": "q", "title": "t"})
    assert result["structuredContent"] == {"query": "q", "title": "t", "session": "s"}


async def test_fields_of_an_extended_model_and_of_extend_schema_are_arguments(client: StdioClient) -> None:
    schema = (await listed(client))["finish"]["inputSchema"]
    assert list(schema["properties"]) == ["response", "total", "extra"]
    assert schema["required"] == ["response", "total", "extra"]
    result = await client.call("local__finish", {"response": "r", "total": 3, "extra": True})
    assert result["structuredContent"] == {"response": "r", "total": 3, "extra": True}
    for wrong in ({"response": "r", "total": "x", "extra": True}, {"response": "r", "total": 3}):
        refused = await client.call("local__finish", wrong)
        assert refused["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"


@pytest.mark.parametrize("name", ["shouted", "shouted_later", "shouted_async"])
async def test_a_post_processor_can_change_keep_or_withhold_every_chunk(client: StdioClient, name: str) -> None:
    progress, result = await streamed(client, name, {"word": "hi"})
    assert [params["message"] for params in progress] == (["WELLshouted"] if name == "shouted" else [])
    text = '{"WORD":"HI"}' if name == "shouted_async" else "HI"
    assert result == {"content": [{"type": "text", "text": text + name}]}
    unchanged = await client.call(f"local__{name}", {"word": "same"})
    assert unchanged.get("structuredContent") == ({"word": "same"} if name == "shouted_async" else None)
    withheld = await client.call(f"local__{name}", {"word": "bad"})
    assert withheld["_meta"]["mcp-hub/error"]["code"] == "tool_error"
    assert "louder" in withheld["content"][0]["text"]


async def test_tools_whose_results_may_lack_a_value_have_no_output_schema(client: StdioClient) -> None:
    tools = await listed(client)
    assert tools["total"]["outputSchema"]["properties"] == {"total": {"type": "integer"}}
    names = ("plain", "generator", "async_generator", "counting", "processed_total")
    assert not [name for name in names if "outputSchema" in tools[name]]
    assert (await client.call("local__processed_total"))["content"] == [{"type": "text", "text": '{"total":1}'}]


async def test_concurrent_calls_of_one_function_do_not_mix(client: StdioClient) -> None:
    names = ["plain", "coroutine", "generator", "async_generator", "late_generator"]
    calls = [client.text(f"local__{name}", {"word": str(number)}) for number in range(20) for name in names]
    for number, text in enumerate(await asyncio.gather(*calls)):
        assert text.endswith(str(number // len(names)))
