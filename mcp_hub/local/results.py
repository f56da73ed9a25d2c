"""What a function returned or raised, as the result of a call."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter

from mcp_hub.errors import CallError
from mcp_hub.wire.frames import FrameError, encode

if TYPE_CHECKING:
    from mcp_hub.local.schema import LocalTool


@dataclass(frozen=True)
class ToolResult:
    """Returned by a function that says its result exactly: content blocks, `structuredContent`, `_meta`, `isError`."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    is_error: bool = False

    def to_wire(self) -> dict[str, Any]:
        """The result as it is sent."""
        result: dict[str, Any] = {"content": self.content}
        if self.structured is not None:
            result["structuredContent"] = self.structured
        if self.is_error:
            result["isError"] = True
        if self.meta is not None:
            result["_meta"] = self.meta
        return result


class ToolRefused(Exception):
    """Raised by a function that knows which of the hub's error codes says what happened, such as `guard_blocked`."""

    def __init__(self, code: str, message: str, *, rule: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.rule = rule
        """Which of several rules it was, for a program that has to know."""


def result_of(tool: LocalTool, done: Future[Any]) -> dict[str, Any]:
    """The result of a finished call.

    A text is a text block, None no block, anything else JSON in a text block, an object in `structuredContent` too.
    An exception is an error result with the code `tool_error`, or its own if it is a ToolRefused.
    """
    error = done.exception()
    if isinstance(error, ToolRefused):
        return failed(error.code, tool.name, error.message, error.rule)
    if error is not None:
        return failed("tool_error", tool.name, f"Error: {error}" if str(error) else f"Error: {type(error).__name__}")
    value = done.result()
    if value is None:
        return {"content": []}
    if isinstance(value, str):
        return {"content": [_text(value)]}
    try:
        if isinstance(value, ToolResult):
            exact = value.to_wire()
            encode(exact)
            return exact
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


def failed(code: str, tool: str, text: str, rule: str | None = None) -> dict[str, Any]:
    """An error result with a code, in the shape of errors.py."""
    retryable = any(kind.code == code and kind.retryable for kind in CallError.__subclasses__())
    facts = {"code": code, "server": None, "tool": tool, "retryable": retryable} | ({"rule": rule} if rule else {})
    return {"content": [_text(text)], "isError": True, "_meta": {"mcp-hub/error": facts}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
