"""A call of any function as an async iterator on the loop of whoever calls."""

import asyncio
import functools
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from contextvars import ContextVar
from typing import Any

import pytest

from mcp_hub import ToolResponse
from mcp_hub.servers.local import Mark
from mcp_hub.servers.local.local_tool import LocalTool
from mcp_hub.servers.local.tool_results import INTERRUPTED, interrupted_response, response_of
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio

who: ContextVar[str] = ContextVar("who")


async def chunks_of(function: Callable[..., Any], arguments: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    tool = LocalTool(function, Mark(**options))
    async with asyncio.timeout(PATIENCE):
        return [chunk async for chunk in tool.chunks(tool.bind(arguments or {}))]


async def test_every_kind_of_function_gives_the_same_stream() -> None:
    def plain() -> int:
        return 1

    async def coroutine() -> int:
        return 1

    def generator() -> Iterator[int]:
        yield from (0, 1)

    async def async_generator() -> AsyncIterator[int]:
        yield 0
        yield 1

    async def of_a_generator() -> Iterator[int]:
        return generator()

    for function in (plain, coroutine, functools.partial(plain), functools.partial(coroutine)):
        assert await chunks_of(function) == [(1, False)]
    for function in (generator, async_generator, of_a_generator, functools.partial(async_generator)):  # type: ignore[assignment]
        assert await chunks_of(function) == [(0, True), (1, True)]


async def test_a_sync_function_runs_in_a_thread_with_its_callers_context() -> None:
    who.set("me")

    def generator() -> Iterator[Any]:
        with closing(sqlite3.connect(":memory:")) as connection:  # which refuses any thread but its own
            yield threading.get_ident(), who.get()
            yield connection.execute("select 1").fetchone()[0]

    (first, _), (second, _) = await chunks_of(generator)
    assert first[0] != threading.get_ident()
    assert (first[1], second) == ("me", 1)


async def test_any_exception_of_a_function_is_raised_to_the_caller() -> None:
    class Odd(BaseException):
        pass

    def stop() -> None:
        raise StopIteration

    def leave() -> Iterator[int]:
        yield 1
        raise SystemExit("left")

    async def value_error() -> None:
        raise ValueError("x")

    def odd() -> None:
        raise Odd("odd")

    for function, error in (
        (stop, RuntimeError),
        (leave, RuntimeError),
        (value_error, ValueError),
        (odd, RuntimeError),
    ):
        with pytest.raises(error):
            await chunks_of(function)


async def test_an_abandoned_generator_is_closed_in_its_own_thread() -> None:
    closed: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def endless() -> Iterator[int]:
        home = threading.get_ident()
        try:
            while True:
                yield home
        finally:
            loop.call_soon_threadsafe(closed.put_nowait, threading.get_ident())

    tool = LocalTool(endless)
    stream = tool.chunks(tool.bind({}))
    home, _ = await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(PATIENCE):
        assert await closed.get() == home


async def test_a_blocking_function_blocks_neither_the_loop_nor_process_exit() -> None:
    entered, released = threading.Event(), threading.Event()
    before = threading.enumerate()

    def block() -> str:
        entered.set()
        released.wait(PATIENCE)
        return "done"

    running = asyncio.create_task(chunks_of(block))
    while not entered.is_set():
        await asyncio.sleep(0)
    started = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread.daemon for thread in started if thread.name == "tool"] == [True]
    assert await chunks_of(lambda: "other", name="other") == [("other", False)]
    released.set()
    assert await running == [("done", False)]


def test_responses_and_results_convert_to_each_other() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    content = [{"type": "text", "text": "t"}, {"type": "image", "source": source}]
    wire = ToolResponse(content, metadata={"a": 1}, is_interrupted=True).to_wire()
    assert wire["content"] == [
        {"type": "text", "text": "t"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]
    back = response_of(wire)
    assert (back.content, back.metadata, back.is_interrupted) == (content, {"a": 1}, True)
    linked = ToolResponse([{"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}]).to_wire()
    assert linked["content"][0] == {
        "type": "resource_link",
        "uri": "https://x.example/a.png",
        "name": "https://x.example/a.png",
    }
    embedded = [{"type": "resource", "resource": {"uri": "a:b", "text": "x"}}, {"type": "resource_link", "uri": "a:c"}]
    assert [block["text"] for block in response_of({"content": embedded}).content] == [
        '{\n  "uri": "a:b",\n  "mimeType": null,\n  "meta": null,\n  "text": "x"\n}'
    ]


def test_an_interrupted_call_ends_with_its_last_chunk_and_a_note() -> None:
    note = {"type": "text", "text": INTERRUPTED}
    alone = interrupted_response()
    assert (alone.content, alone.is_last, alone.is_interrupted) == ([note], True, True)
    last = interrupted_response(ToolResponse([{"type": "text", "text": "so far"}], is_last=False))
    assert last.content == [{"type": "text", "text": "so far"}, note]
    assert (last.is_last, last.is_interrupted) == (True, True)


def test_the_fields_of_a_response_have_agentscopes_defaults() -> None:
    first, second = ToolResponse([]), ToolResponse([])
    assert (first.metadata, first.stream, first.is_last, first.is_interrupted) == (None, False, True, False)
    assert first.id != second.id
