"""What a function returned or raised, as the result of a call."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from mcp_hub.errors import CallError
from mcp_hub.protocol.frames import encode
from mcp_hub.servers.local.response import ToolResponse, response_of

ERROR_KEY: Final = "mcp-hub/error"
"""In `_meta` of an error result: its code and what else errors.py says."""
_AS_JSON: Final[TypeAdapter[Any]] = TypeAdapter(Any)


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


def result_of(tool: str, value: Any) -> dict[str, Any]:
    """The result of a call that came to `value`.

    A text is a text block, None no block, anything else JSON in a text block, an object in `structuredContent` too.
    """
    if value is None:
        return {"content": []}
    if isinstance(value, str):
        return {"content": [_text(value)]}
    try:
        if isinstance(value, ToolResult | ToolResponse):
            exact = value.to_wire()
            if isinstance(value, ToolResponse):  # whose metadata may be anything
                exact = _AS_JSON.dump_python(exact, mode="json")
            encode(exact)
            return exact
        plain = _plain(value)
        text = encode(plain).decode()
    except Exception as problem:  # objects of the user's may raise anything when they are looked at
        what = f"Error: {tool!r} returned {type(value).__name__}, which is not JSON: {problem}"
        return failed("tool_error", tool, what)
    result: dict[str, Any] = {"content": [_text(text)]}
    if isinstance(plain, dict):
        result["structuredContent"] = plain
    return result


def failure_of(tool: str, error: BaseException) -> dict[str, Any]:
    """The error result of a call that raised: with the code `tool_error`, or its own if it is a ToolRefused."""
    if isinstance(error, ToolRefused):
        return failed(error.code, tool, error.message, error.rule)
    try:
        said = str(error)
    except Exception:
        said = ""
    return failed("tool_error", tool, f"Error: {said or type(error).__name__}")


def as_response(value: Any) -> ToolResponse:
    """What a function returned as a ToolResponse; one that is one already stays itself."""
    return value if isinstance(value, ToolResponse) else response_of(result_of("the tool", value))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if is_dataclass(value) or isinstance(value, dict | list | tuple | set):
        return _AS_JSON.dump_python(value, mode="json")
    return value


def failed(code: str, tool: str, text: str, rule: str | None = None) -> dict[str, Any]:
    """An error result with a code, in the shape of errors.py."""
    retryable = any(kind.code == code and kind.retryable for kind in CallError.__subclasses__())
    facts = {"code": code, "server": None, "tool": tool, "retryable": retryable} | ({"rule": rule} if rule else {})
    return {"content": [_text(text)], "isError": True, "_meta": {ERROR_KEY: facts}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
