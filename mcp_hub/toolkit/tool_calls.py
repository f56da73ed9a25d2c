"""One call of a toolkit's tool: through the hub, or through its MCP client."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_hub.errors import CallError, InvalidParameters, ToolFailed
from mcp_hub.local.extension import Extension
from mcp_hub.local.functions import postprocessed, tool_call
from mcp_hub.local.response import ToolResponse, response_of
from mcp_hub.toolkit.hub import Hub
from mcp_hub.toolkit.objects import McpObject
from mcp_hub.toolkit.registered import RegisteredToolFunction
from mcp_hub.toolkit.streams import NoResponse, ToolRaised, response, streamed

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("mcp_hub.toolkit")

Json = dict[str, Any]
Heard = Callable[[Any, bool], None]


async def called(
    hub: Hub, tool: RegisteredToolFunction, block: Json, *, raise_on_error: bool
) -> AsyncGenerator[Any, None]:
    """The chunks of a call. Raises NoResponse, and with `raise_on_error` what the tool raises."""
    given = dict(block.get("input") or {})
    if dropped := sorted(tool.preset_kwargs.keys() & given.keys()):
        log.warning("%s: what was sent for %s is dropped: it is preset", tool.name, ", ".join(dropped))
    given = {name: value for name, value in given.items() if name not in tool.preset_kwargs}
    act = _through_the_client if tool.local is None else partial(_through_the_hub, hub)
    try:
        async with aclosing(streamed(partial(act, tool, block, given))) as stream:
            async for chunk in stream:
                if tool.extended_model is not None and isinstance(chunk, ToolResponse) and chunk.is_last:
                    _add_message(tool.extended_model, given, chunk)
                yield chunk
    except NoResponse:
        raise
    except Exception as error:
        if raise_on_error:
            raise
        yield response(f"Error: {error}")


async def _through_the_hub(hub: Hub, tool: RegisteredToolFunction, block: Json, given: Json, heard: Heard) -> Any:
    before = tool_call.set(block)
    try:
        outcome = await hub.act(hub.functions or "", tool.name, given, on_chunk=heard)
    finally:
        tool_call.reset(before)
    if outcome.error is not None:
        raise outcome.error
    result = outcome.result or {}
    if result.get("isError"):
        raise ToolRaised(outcome.raised) if isinstance(outcome.raised, Exception) else _error_of(result)
    if not outcome.direct:  # a rule of the hub's has changed it
        return response_of(result)
    nothing = outcome.value is None and tool.local is not None and tool.local.is_stream
    return ToolResponse([]) if nothing else outcome.value


async def _through_the_client(tool: RegisteredToolFunction, block: Json, given: Json, heard: Heard) -> Any:
    if tool.extended_model is not None:
        Extension(tool.extended_model).checked(tool.name, given)
    answer = await tool.original_func(**{**given, **tool.preset_kwargs})
    if tool.postprocess_func is None or isinstance(answer, McpObject):
        return answer
    changed = await postprocessed(tool.postprocess_func, block, answer)
    return answer if changed is None else changed


def _add_message(model: type[BaseModel], given: Json, chunk: ToolResponse) -> None:
    """The fields of the extended model that were given, checked, where an agent looks for its final answer."""
    metadata = chunk.metadata or {}
    if "response_msg" in metadata:
        return
    names = Extension(model).names
    message = model.model_validate({name: value for name, value in given.items() if name in names})
    chunk.metadata = {**metadata, "response_msg": message.model_dump_json(by_alias=True)}


def _error_of(result: Json) -> CallError:
    blocks = response_of(result).content
    text = "\n".join(str(block["text"]) for block in blocks if block["type"] == "text").removeprefix("Error: ")
    code = result.get("_meta", {}).get("mcp-hub/error", {}).get("code")
    return InvalidParameters(text) if code == "invalid_parameters" else ToolFailed(text)
