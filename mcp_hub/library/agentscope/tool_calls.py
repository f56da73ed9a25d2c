"""One call of a toolkit's tool, through the hub or through its MCP client, as the stream of chunks that agents get."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.errors import CallError, InvalidParameters, ToolFailed, error_facts
from mcp_hub.library import Hub
from mcp_hub.library.agentscope.mcp_clients import McpObject
from mcp_hub.library.agentscope.registered_tools import RegisteredToolFunction
from mcp_hub.library.engine_host import CallLabel
from mcp_hub.protocol.frames import FrameError, decode
from mcp_hub.servers.local.local_tool import ResultWithheld, apply_postprocessor, tool_call
from mcp_hub.servers.local.signature import ModelExtension
from mcp_hub.servers.local.tool_results import ToolResponse, given_response, interrupted_response, response_of

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("mcp_hub.library")

Json = dict[str, Any]
Chunk = ToolResponse | McpObject
"""A CallToolResult comes only from an MCP client that was registered with `wrap_tool_result=False`."""
Act = Callable[[Callable[[Any, bool], None]], Awaitable[Any]]
"""Makes the call, passes chunks to its argument as they come, and returns the last one."""

MAX_WAITING: Final = 1000
"""Most chunks that wait to be consumed. Chunks accumulate, so dropping the oldest ones loses nothing."""


def read_block(tool_call: Mapping[str, Any] | BaseModel) -> Json:
    """Returns a block `{"type", "id", "name", "input"}` as a new dict.

    It may be an object of AgentScope 2.x, whose `input` is a JSON text. A text that is not an object is left as it is.
    """
    block = dict(tool_call)
    if isinstance(block.get("input"), str):
        try:
            arguments = decode(block["input"].encode() or b"{}")
        except FrameError:
            arguments = None
        block["input"] = arguments if isinstance(arguments, dict) else block["input"]
    return block


def label_of(block: Json) -> CallLabel:
    """Returns the label of a block's call in records and spans."""
    id = block.get("id")
    return CallLabel(str(block["name"]), id if isinstance(id, str) and id else None)


class NoResponse(TypeError):
    """A tool returned something that is not a ToolResponse."""


class ToolRaised(Exception):
    """The tool itself raised `error`. Chunks that came before it remain valid."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class ToolInterrupted(Exception):
    """The tool itself ended with a CancelledError: a task that it awaits was cancelled, or it raised one."""


class ToolStream(AsyncGenerator[Any, None], Coroutine[Any, Any, Any]):
    """The return value of `call_tool_function`: an async iterator that may be awaited first, which returns itself.

    It is a coroutine too, so that it can be given to `asyncio.create_task`. The call begins with the first chunk.
    """

    def __init__(self, chunks: AsyncGenerator[Any, None]) -> None:
        self._chunks = chunks

    def __await__(self) -> Generator[Any, None, ToolStream]:
        yield from ()
        return self

    def send(self, value: None) -> Any:
        """Ends the coroutine with the stream as its value."""
        raise StopIteration(self)

    def throw(self, *error: Any) -> Any:
        """Raises an exception in the coroutine, which waits for nothing."""
        raise error[0]

    def close(self) -> None:
        """Closes the coroutine; the stream can be used nevertheless."""

    async def asend(self, value: None) -> Any:
        """Returns the next chunk. Raises StopAsyncIteration after the last one."""
        return await self._chunks.asend(value)

    async def athrow(self, *error: Any) -> Any:
        """Raises an exception at the point where the stream waits."""
        return await self._chunks.athrow(*error)

    async def aclose(self) -> None:
        """Cancels the call if it still runs."""
        await self._chunks.aclose()


async def stream_chunks(act: Act) -> AsyncGenerator[Any, None]:
    """Yields the chunks of a call, the last one with `is_last`.

    Raises what the call raises, and NoResponse for a chunk that is not a ToolResponse. A chunk with `is_last` is held
    back until another one follows or the call ends. If the task is cancelled while it waits or the tool is
    interrupted, a last chunk says so.
    """
    chunks: deque[Any] = deque(maxlen=MAX_WAITING)
    changed = asyncio.Event()

    def on_chunk(chunk: Any, more_follow: bool) -> None:
        if more_follow:
            chunks.append(chunk)
            changed.set()

    call = asyncio.ensure_future(act(on_chunk))
    call.add_done_callback(partial(_on_call_done, changed))
    last_yielded: ToolResponse | None = None
    held_chunk: ToolResponse | None = None
    try:
        while not call.done() or chunks:
            await changed.wait()
            changed.clear()
            while chunks:
                chunk = _tool_response(chunks.popleft())
                if held_chunk is not None:
                    last_yielded, held_chunk = held_chunk, None
                    yield last_yielded
                if chunk.is_last:
                    held_chunk = chunk
                else:
                    last_yielded = chunk
                    yield last_yielded
        last = call.result()
    except ToolRaised as raised:
        if held_chunk is not None:
            yield held_chunk
        raise raised.error from None
    except (asyncio.CancelledError, ToolInterrupted):
        call.cancel()
        if held_chunk is not None:
            yield held_chunk
        yield interrupted_response(held_chunk or last_yielded)
        return
    finally:
        call.cancel()
    if isinstance(last, McpObject):
        yield last
        return
    last = _tool_response(last)
    yield last if last.is_last else dataclasses.replace(last, is_last=True)


def _on_call_done(changed: asyncio.Event, call: asyncio.Future[Any]) -> None:
    changed.set()
    if not call.cancelled():
        call.exception()  # marks it as retrieved, so that asyncio does not log it


def response(text: str) -> ToolResponse:
    """Returns a chunk with one text."""
    return ToolResponse([{"type": "text", "text": text}])


def _tool_response(chunk: Any) -> ToolResponse:
    given_chunk = given_response(chunk)
    if given_chunk is None:
        raise NoResponse(
            "The tool function must return a ToolResponse object, or an AsyncGenerator/Generator of ToolResponse "
            f"objects, but got {type(chunk)}."
        )
    return given_chunk


OnChunk = Callable[[Any, bool], None]


async def call_tool(
    hub: Hub, tool: RegisteredToolFunction, block: Json, *, raise_on_error: bool, in_any_group: bool
) -> AsyncGenerator[Any, None]:
    """Calls a tool and yields the chunks of its result.

    With `in_any_group`, the hub also calls a tool whose group is inactive.

    Raises NoResponse for a chunk that is not a ToolResponse, and, with `raise_on_error`, what the tool raises. A tool
    with a post-processor raises ToolFailed with the post-processed text instead.
    """
    arguments = block.get("input") or {}
    if not isinstance(arguments, dict):
        yield await record_answer(hub, tool, block, invalid_input(tool.name, arguments))
        return
    if dropped := tool.preset_kwargs.keys() & arguments.keys():
        log.warning("%s: %d arguments were dropped because they are preset", tool.name, len(dropped))
    arguments = {name: value for name, value in arguments.items() if name not in tool.preset_kwargs}
    act = _through_the_client if tool.local is None else partial(_through_the_hub, hub, raise_on_error)
    label = label_of(block)._replace(in_any_group=in_any_group)
    try:
        async with aclosing(stream_chunks(partial(act, tool, block, label, arguments))) as stream:
            async for chunk in stream:
                if tool.extended_model is not None and not isinstance(chunk, McpObject) and _is_whole(chunk):
                    _add_message(tool.extended_model, arguments, chunk)
                yield chunk
    except NoResponse:
        raise
    except _Processed as processed:
        if raise_on_error:
            raise processed.error from None
        yield processed.chunk
    except Exception as error:
        changed = await _postprocessed_error(tool, block, error)
        if changed is not None and raise_on_error:
            raise ToolFailed(_text(changed)) from None
        if raise_on_error:
            raise
        yield response(f"Error: {error}") if changed is None else changed


def invalid_input(tool: str, value: object) -> str:
    """Returns the text for a call whose input is not an object."""
    return f"Error: the input of {tool!r} must be an object, but got {type(value).__name__}."


async def record_answer(
    hub: Hub, tool: RegisteredToolFunction | None, block: Json, text: str, *, failed: bool = True
) -> ToolResponse:
    """Returns an answer of the toolkit itself as a chunk, after the hub has recorded and traced it like any call."""
    answer = response(text)
    if not hub.closed:
        hidden = tool.preset_kwargs if tool is not None else {}
        arguments = block.get("input")
        visible = (
            {key: value for key, value in arguments.items() if key not in hidden} if isinstance(arguments, dict) else {}
        )
        await hub.answered(label_of(block), visible, answer.to_wire() | ({"isError": True} if failed else {}))
    return answer


async def _through_the_hub(
    hub: Hub,
    raise_on_error: bool,
    tool: RegisteredToolFunction,
    block: Json,
    label: CallLabel,
    arguments: Json,
    on_chunk: OnChunk,
) -> Any:
    token = tool_call.set(block)
    try:
        outcome = await hub.act(hub.functions or "", tool.name, arguments, on_chunk=on_chunk, label=label)
    finally:
        tool_call.reset(token)
    if outcome.error is not None:
        raise outcome.error
    result = outcome.result or {}
    if result.get("isError"):
        if isinstance(outcome.raised, asyncio.CancelledError):
            raise ToolInterrupted
        if tool.postprocess_func is not None:
            raise ToolRaised(_Processed(response_of(result), _error_of(result)))
        # The exception itself is only for the program. The text is the hub's, in which presets are redacted.
        raised = outcome.raised if raise_on_error and isinstance(outcome.raised, Exception) else None
        raise ToolRaised(raised or _error_of(result))
    if not outcome.direct:  # a policy of the hub has changed the result
        return response_of(result)
    is_empty = outcome.value is None and tool.local is not None and tool.local.is_stream
    return ToolResponse([]) if is_empty else outcome.value


async def _through_the_client(
    tool: RegisteredToolFunction, block: Json, label: CallLabel, arguments: Json, on_chunk: OnChunk
) -> Any:
    if tool.extended_model is not None:
        ModelExtension(tool.extended_model).checked(tool.name, arguments)
    assert tool.remote is not None
    answer = await tool.remote.called(arguments, tool.preset_kwargs, label)
    if tool.postprocess_func is None:
        return answer
    chunk = response_of(answer) if isinstance(answer, McpObject) else answer
    changed = await apply_postprocessor(tool.postprocess_func, block, chunk)
    return answer if changed is None else changed


class _Processed(Exception):
    """An error whose text was post-processed already."""

    def __init__(self, chunk: ToolResponse, error: CallError) -> None:
        super().__init__(str(error))
        self.chunk = chunk
        self.error = error


async def _postprocessed_error(tool: RegisteredToolFunction, block: Json, error: Exception) -> ToolResponse | None:
    """Returns the error as the post-processor changes it, or None if there is no post-processor or no change."""
    if tool.postprocess_func is None or isinstance(error, ResultWithheld):
        return None
    try:
        changed: ToolResponse | None = await apply_postprocessor(
            tool.postprocess_func, block, response(f"Error: {error}")
        )
    except ResultWithheld as withheld:
        return response(f"Error: {withheld}")
    return changed


def _text(chunk: ToolResponse) -> str:
    texts = [str(block["text"]) for block in chunk.content if block["type"] == "text"]
    return "\n".join(texts).removeprefix("Error: ")


def _is_whole(chunk: ToolResponse) -> bool:
    return chunk.is_last and not chunk.is_interrupted


def _add_message(model: type[BaseModel], arguments: Json, chunk: ToolResponse) -> None:
    """Adds the checked fields of the extended model to the metadata, and the text of the answer as `response_msg`.

    What the tool has set itself stays. Without a text, `response_msg` has the fields as JSON.
    """
    names = ModelExtension(model).names
    fields = model.model_validate({name: value for name, value in arguments.items() if name in names})
    text = _text(chunk) or fields.model_dump_json(by_alias=True)
    metadata = chunk.metadata or {}
    chunk.metadata = metadata | {"response_msg": text} | fields.model_dump(mode="json", by_alias=True) | metadata


def _error_of(result: Json) -> CallError:
    text = _text(response_of(result))
    return InvalidParameters(text) if error_facts(result).get("code") == InvalidParameters.code else ToolFailed(text)
