"""One call of a toolkit's tool, through the hub or through its MCP client, as a stream of chunks."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_hub.errors import CallError, InvalidParameters, ToolFailed
from mcp_hub.library.agentscope.mcp_clients import McpObject
from mcp_hub.library.agentscope.registered_tools import RegisteredToolFunction
from mcp_hub.library.agentscope.tool_stream import NoResponse, ToolRaised, response, stream_chunks
from mcp_hub.library.hub import Hub
from mcp_hub.servers.local.local_tool import ResultWithheld, apply_postprocessor, tool_call
from mcp_hub.servers.local.signature import ModelExtension
from mcp_hub.servers.local.tool_results import ToolResponse, response_of

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("mcp_hub.library")

Json = dict[str, Any]
Heard = Callable[[Any, bool], None]


async def call_tool(
    hub: Hub, tool: RegisteredToolFunction, block: Json, *, raise_on_error: bool
) -> AsyncGenerator[Any, None]:
    """Calls a tool and yields the chunks of its result.

    Raises NoResponse for a chunk that is not a ToolResponse, and, with `raise_on_error`, what the tool raises. A tool
    with a post-processor raises ToolFailed with the post-processed text instead.
    """
    given = dict(block.get("input") or {})
    if dropped := tool.preset_kwargs.keys() & given.keys():
        log.warning("%s: %d arguments were dropped because they are preset", tool.name, len(dropped))
    given = {name: value for name, value in given.items() if name not in tool.preset_kwargs}
    act = _through_the_client if tool.local is None else partial(_through_the_hub, hub, raise_on_error)
    try:
        async with aclosing(stream_chunks(partial(act, tool, block, given))) as stream:
            async for chunk in stream:
                if tool.extended_model is not None and isinstance(chunk, ToolResponse) and chunk.is_last:
                    _add_message(tool.extended_model, given, chunk)
                yield chunk
    except NoResponse:
        raise
    except _Processed as processed:
        if raise_on_error:
            raise processed.error from None
        yield processed.chunk
    except Exception as error:
        changed = await _of_error(tool, block, error)
        if changed is not None and raise_on_error:
            raise ToolFailed(_text(changed)) from None
        if raise_on_error:
            raise
        yield response(f"Error: {error}") if changed is None else changed


async def _through_the_hub(
    hub: Hub, raise_on_error: bool, tool: RegisteredToolFunction, block: Json, given: Json, heard: Heard
) -> Any:
    before = tool_call.set(block)
    try:
        outcome = await hub.act(hub.functions or "", tool.name, given, on_chunk=heard)
    finally:
        tool_call.reset(before)
    if outcome.error is not None:
        raise outcome.error
    result = outcome.result or {}
    if result.get("isError"):
        if tool.postprocess_func is not None:
            raise ToolRaised(_Processed(response_of(result), _error_of(result)))
        # The exception itself is only for the program. The text is the hub's, in which presets are redacted.
        raised = outcome.raised if raise_on_error and isinstance(outcome.raised, Exception) else None
        raise ToolRaised(raised or _error_of(result))
    if not outcome.direct:  # a policy of the hub has changed the result
        return response_of(result)
    nothing = outcome.value is None and tool.local is not None and tool.local.is_stream
    return ToolResponse([]) if nothing else outcome.value


async def _through_the_client(tool: RegisteredToolFunction, block: Json, given: Json, heard: Heard) -> Any:
    if tool.extended_model is not None:
        ModelExtension(tool.extended_model).checked(tool.name, given)
    assert tool.remote is not None
    answer = await tool.remote.called(given, tool.preset_kwargs)
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


async def _of_error(tool: RegisteredToolFunction, block: Json, error: Exception) -> ToolResponse | None:
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


def _add_message(model: type[BaseModel], given: Json, chunk: ToolResponse) -> None:
    """Adds the checked fields of the extended model as `metadata["response_msg"]`, where agents read their answer."""
    metadata = chunk.metadata or {}
    if "response_msg" in metadata:
        return
    names = ModelExtension(model).names
    message = model.model_validate({name: value for name, value in given.items() if name in names})
    chunk.metadata = {**metadata, "response_msg": message.model_dump_json(by_alias=True)}


def _error_of(result: Json) -> CallError:
    text = _text(response_of(result))
    code = result.get("_meta", {}).get("mcp-hub/error", {}).get("code")
    return InvalidParameters(text) if code == "invalid_parameters" else ToolFailed(text)
