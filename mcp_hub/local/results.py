"""What a function returned or raised, as the result of a call."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import is_dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter

from mcp_hub.local.schema import LocalTool
from mcp_hub.wire.frames import FrameError, encode


def result_of(tool: LocalTool, done: Future[Any]) -> dict[str, Any]:
    """The result of a finished call.

    A text is a text block, None no block, anything else JSON in a text block, an object in `structuredContent` too.
    An exception is an error result with the code `tool_error`.
    """
    error = done.exception()
    if error is not None:
        return failed("tool_error", tool.name, f"Error: {error}" if str(error) else f"Error: {type(error).__name__}")
    value = done.result()
    if value is None:
        return {"content": []}
    if isinstance(value, str):
        return {"content": [_text(value)]}
    try:
        plain = _plain(value)
        text = encode(plain).decode()
    except (FrameError, ValueError, TypeError) as problem:
        what = f"Error: {tool.name!r} returned {type(value).__name__}, which is not JSON: {problem}"
        return failed("tool_error", tool.name, what)
    result: dict[str, Any] = {"content": [_text(text)]}
    if isinstance(plain, dict):
        result["structuredContent"] = plain
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if is_dataclass(value) or isinstance(value, dict | list | tuple | set):
        return TypeAdapter(Any).dump_python(value, mode="json")
    return value


def failed(code: str, tool: str, text: str) -> dict[str, Any]:
    """An error result with a code, in the shape of errors.py."""
    facts = {"code": code, "server": None, "tool": tool, "retryable": False}
    return {"content": [_text(text)], "isError": True, "_meta": {"mcp-hub/error": facts}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
