"""AgentScope's Toolkit: every kind of tool gives chunks that end, whatever happens to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from mcp_hub import StdIOStatefulClient, Toolkit, ToolResponse
from mcp_hub.config import Config
from mcp_hub.config.entry_rules import PostProcessStep
from mcp_hub.errors import InvalidParameters
from mcp_hub.library.agentscope import background_tasks
from tests.fakes.client import PATIENCE, fake
from tests.library.toolkits import NOTE, add, block, chunks, coroutine, names, plain, text, text_response

pytestmark = pytest.mark.anyio


def generator() -> Generator[ToolResponse, None, None]:
    yield text_response("a", stream=True, is_last=False)
    yield text_response("a b", stream=True, is_last=True)


async def async_generator() -> AsyncGenerator[ToolResponse, None]:
    yield text_response("a", stream=True)
    yield text_response("a b", stream=True)


async def returned_generator() -> AsyncGenerator[ToolResponse, None]:
    return async_generator()


@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator, returned_generator])
async def test_every_kind_of_tool_gives_chunks_that_end_in_is_last(
    toolkit: Toolkit, function: Callable[..., Any]
) -> None:
    """Check 40."""
    toolkit.register_tool_function(function)
    received = await chunks(toolkit, function.__name__)
    expected = ["a b"] if function in (plain, coroutine) else ["a", "a b"]
    assert [chunk.content[0]["text"] for chunk in received] == expected
    assert received[-1].is_last
    task = asyncio.create_task(toolkit.call_tool_function(block(function.__name__)))
    assert [chunk.content async for chunk in await task] == [chunk.content for chunk in received]
    directly = [chunk async for chunk in toolkit.call_tool_function(block(function.__name__))]
    assert [chunk.content for chunk in directly] == [chunk.content for chunk in received]


async def test_a_blocking_sync_tool_does_not_delay_another_call(toolkit: Toolkit) -> None:
    """Check 40."""
    entered, released = threading.Event(), threading.Event()

    def block_it() -> ToolResponse:
        entered.set()
        released.wait(PATIENCE)
        return text_response("released")

    toolkit.register_tool_function(block_it)
    toolkit.register_tool_function(add)
    blocked = asyncio.create_task(text(toolkit, "block_it"))
    assert await text(toolkit, "add", a=1) == "3"
    assert not blocked.done()
    released.set()
    assert await blocked == "released"


async def test_chunks_arrive_while_the_tool_runs_and_a_last_one_is_always_marked(toolkit: Toolkit) -> None:
    resume = asyncio.Event()

    async def steps() -> AsyncGenerator[ToolResponse, None]:
        yield text_response("first", is_last=False)
        await resume.wait()
        yield text_response("first second", is_last=False)

    async def nothing() -> AsyncGenerator[ToolResponse, None]:
        return
        yield text_response("never")

    toolkit.register_tool_function(steps)
    toolkit.register_tool_function(nothing)
    stream = toolkit.call_tool_function(block("steps"))
    async with asyncio.timeout(PATIENCE):
        assert (await anext(stream)).content[0]["text"] == "first"
        resume.set()
        remainder = [(chunk.content[0]["text"], chunk.is_last) async for chunk in stream]
    assert remainder == [("first second", False), ("first second", True)]
    (empty,) = await chunks(toolkit, "nothing")
    assert (empty.content, empty.is_last) == ([], True)


async def test_an_interrupted_tool_ends_with_its_last_chunk_and_a_note(toolkit: Toolkit) -> None:
    """`is_interrupted` of seed 001, line 98; row A004-18 has the words of the note."""
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[ToolResponse, None]:
        try:
            yield text_response("so far", is_last=False)
            await asyncio.sleep(PATIENCE)
        finally:
            closed.set()

    async def silent() -> ToolResponse:
        await asyncio.sleep(PATIENCE)
        return text_response("never")

    received: list[ToolResponse] = []

    async def take(name: str) -> None:
        async for chunk in await toolkit.call_tool_function(block(name)):
            received.append(chunk)
            started.set()

    for function in (endless, silent):
        toolkit.register_tool_function(function)
    started = asyncio.Event()
    take_task = asyncio.create_task(take("endless"))
    async with asyncio.timeout(PATIENCE):
        await started.wait()
        take_task.cancel()
        await take_task
        await closed.wait()
    assert [content["text"] for content in received[-1].content] == ["so far", NOTE]
    assert (received[-1].is_last, received[-1].is_interrupted) == (True, True)
    take_task = asyncio.create_task(take("silent"))
    await asyncio.sleep(0)
    take_task.cancel()
    async with asyncio.timeout(PATIENCE):
        await take_task
    assert [content["text"] for content in received[-1].content] == [NOTE]


async def cancelled_task() -> ToolResponse:
    task = asyncio.create_task(asyncio.sleep(PATIENCE))
    task.cancel()
    await task
    return text_response("never")


async def interrupted_async_generator() -> AsyncGenerator[ToolResponse, None]:
    yield text_response("a", stream=True, is_last=False)
    yield text_response("a b", stream=True)
    await cancelled_task()


def interrupted_function() -> ToolResponse:
    return asyncio.run(cancelled_task())


def interrupted_generator() -> Generator[ToolResponse, None, None]:
    yield text_response("a b", stream=True)
    interrupted_function()


@pytest.mark.parametrize(
    ("function", "before"),
    [
        (cancelled_task, []),
        (interrupted_async_generator, ["a", "a b"]),
        (interrupted_function, []),
        (interrupted_generator, ["a b"]),
    ],
)
async def test_an_interruption_inside_a_tool_is_an_interrupted_response(
    toolkit: Toolkit, function: Callable[..., Any], before: list[str]
) -> None:
    toolkit.register_tool_function(function)
    *received, last = await chunks(toolkit, function.__name__)
    assert [[content["text"] for content in chunk.content] for chunk in received] == [[text] for text in before]
    assert [content["text"] for content in last.content] == [*before[-1:], NOTE]
    assert (last.is_last, last.is_interrupted) == (True, True)
    assert [chunk.is_interrupted for chunk in received] == [False] * len(before)


async def test_a_registered_tool_is_called_with_its_arguments_also_in_an_inactive_group(
    toolkit: Toolkit,
) -> None:
    client = StdIOStatefulClient("one", **{key: fake()[key] for key in ("command", "args")})
    await client.connect()
    toolkit.create_tool_group("off", "Off.")
    toolkit.register_tool_function(add, "off", preset_kwargs={"b": 40})
    await toolkit.register_mcp_client(client, "off", enable_funcs=["echo"])
    toolkit.hub.attach(client)
    toolkit.create_tool_group("more", "More.")  # the hub learns of the tools of the client
    for name, arguments, expected in (("add", {"a": 2}, "42"), ("echo", {"text": "x"}, "x")):
        (chunk,) = [chunk async for chunk in toolkit.tools[name].call(arguments=arguments, stream_print=False)]
        assert chunk.content == [{"type": "text", "text": expected}]
        assert (await text(toolkit, name, **arguments)).startswith("FunctionInactiveError: ")
    await client.close()


async def test_tasks_in_the_background_and_their_results_are_bounded(
    toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_tasks, "MAX_TASKS", 2)
    monkeypatch.setattr(toolkit._async_results, "bound", 1)
    resume = asyncio.Event()

    async def slow() -> ToolResponse:
        await resume.wait()
        return text_response("done", metadata={"kept": True})

    toolkit.register_tool_function(slow, async_execution=True)
    first, second = [(await text(toolkit, "slow")).partition("Task ID: ")[2].partition(".")[0] for _ in range(2)]
    assert (await text(toolkit, "slow")).startswith("Error: ")
    resume.set()
    result = await toolkit.wait_task(second, timeout=PATIENCE)
    assert (result.content, result.metadata) == ([{"type": "text", "text": "done"}], {"kept": True})
    assert (await toolkit.wait_task(second, timeout=PATIENCE)).content[0]["text"].startswith("InvalidTaskIdError")
    await toolkit.wait_task(first, timeout=PATIENCE)
    forgotten, kept = [(await text(toolkit, "slow")).partition("Task ID: ")[2].partition(".")[0] for _ in range(2)]
    await asyncio.wait(toolkit._async_tasks.values())
    assert forgotten not in toolkit._async_results
    assert (await toolkit.view_task(kept)).content == result.content


async def test_the_result_of_a_task_has_the_last_chunks_of_a_long_stream(
    toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_tasks, "MAX_CHUNKS", 2)

    async def count() -> AsyncGenerator[ToolResponse, None]:
        for number in range(4):
            yield text_response(str(number))

    toolkit.register_tool_function(count, async_execution=True)
    task = (await text(toolkit, "count")).partition("Task ID: ")[2].partition(".")[0]
    assert [part["text"] for part in (await toolkit.wait_task(task, timeout=PATIENCE)).content] == ["2", "3"]


async def test_an_exception_of_a_tool_is_returned_as_text_or_raised(toolkit: Toolkit) -> None:
    """Seed 001, lines 87 and 111 say "raised" and "raised or an error block"; row A004-19 has the words of the text."""

    class Odd(Exception):
        pass

    def boom() -> ToolResponse:
        raise Odd("boom")

    async def late() -> AsyncGenerator[ToolResponse, None]:
        yield text_response("so far")
        raise Odd("late")

    def wrong() -> str:
        return "a text"

    for function in (boom, late, wrong):
        toolkit.register_tool_function(function)
    assert await text(toolkit, "boom") == "Error: boom"
    assert [chunk.content[0]["text"] for chunk in await chunks(toolkit, "late")] == ["so far", "Error: late"]
    with pytest.raises(TypeError, match="ToolResponse"):
        await chunks(toolkit, "wrong")
    assert await text(toolkit, "nope") == "FunctionNotFoundError: Cannot find the function named nope"
    toolkit.raise_on_error = True
    with pytest.raises(Odd, match=r"^boom$"):
        await chunks(toolkit, "boom")
    toolkit.register_tool_function(add)
    with pytest.raises(InvalidParameters):
        await chunks(toolkit, "add", a="x")


async def test_a_post_processor_receives_the_original_call_and_every_chunk(toolkit: Toolkit) -> None:
    calls: list[Any] = []

    def upper(call: dict[str, Any], response: ToolResponse) -> ToolResponse | None:
        calls.append(call)
        return None if response.content[0]["text"] == "a" else text_response(response.content[0]["text"].upper())

    async def later(call: dict[str, Any], response: ToolResponse) -> ToolResponse | None:
        await asyncio.sleep(0)
        return upper(call, response)

    def failing(call: dict[str, Any], response: ToolResponse) -> None:
        raise ValueError("hidden")

    toolkit.register_tool_function(generator, postprocess_func=upper)
    toolkit.register_tool_function(plain, postprocess_func=later)
    toolkit.register_tool_function(coroutine, postprocess_func=failing)
    assert [chunk.content[0]["text"] for chunk in await chunks(toolkit, "generator")] == ["a", "A B"]
    assert await text(toolkit, "plain") == "A B"
    assert calls == [block("generator"), block("generator"), block("plain")]
    withheld = await text(toolkit, "coroutine")
    assert "withheld" in withheld
    assert "a b" not in withheld


async def test_a_result_withheld_by_a_policy_is_not_yielded_as_a_chunk(toolkit: Toolkit) -> None:
    toolkit.register_tool_function(async_generator)

    def withholding(config: Config) -> Config:
        steps = (PostProcessStep(step="no_such_module:function"),)
        servers = tuple(server.model_copy(update={"postprocess": steps}) for server in config.servers)
        return config.model_copy(update={"servers": servers})

    toolkit.hub.change_sync(withholding)
    texts = [chunk.content[0]["text"] for chunk in await chunks(toolkit, "async_generator")]
    assert texts[0] == "a"
    assert "withheld" in texts[1]
    assert len(texts) == 2


async def test_a_tool_can_modify_its_own_toolkit(toolkit: Toolkit) -> None:
    async def learn() -> ToolResponse:
        toolkit.create_tool_group("learned", "New.", active=True)
        toolkit.register_tool_function(add, "learned")
        return text_response(await text(toolkit, "add", a=1))

    def learn_more() -> ToolResponse:
        toolkit.register_tool_function(plain, "learned")
        toolkit.update_tool_groups(["learned"], active=False)
        return text_response("done")

    toolkit.register_tool_function(learn)
    toolkit.register_tool_function(learn_more)
    assert await text(toolkit, "learn") == "3"
    assert await text(toolkit, "learn_more") == "done"
    assert names(toolkit) == ["learn", "learn_more"]


def test_a_toolkit_works_in_consecutive_event_loops() -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(add)
    toolkit.register_tool_function(coroutine)
    for _ in range(2):
        assert asyncio.run(text(toolkit, "add", a=1)) == "3"
        assert asyncio.run(text(toolkit, "coroutine")) == "a b"
    toolkit.close()
    toolkit.close()
