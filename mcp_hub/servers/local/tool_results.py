"""Results of tools: blocks, ToolResponse and ToolResult, and the conversion of values and exceptions to results."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, Literal, Required, cast

from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from mcp_hub.errors import ERROR_KEY, CallError
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import JSON_KEY
from mcp_hub.text import printable


class TextBlock(TypedDict, total=False):
    """A text block."""

    type: Required[Literal["text"]]
    text: str


class Base64Source(TypedDict, total=False):
    """Data in base64."""

    type: Required[Literal["base64"]]
    media_type: Required[str]
    data: Required[str]


class URLSource(TypedDict, total=False):
    """The URL of data."""

    type: Required[Literal["url"]]
    url: Required[str]


class ImageBlock(TypedDict, total=False):
    """An image, in base64 or by its URL."""

    type: Required[Literal["image"]]
    source: Required[Base64Source | URLSource]


class AudioBlock(TypedDict, total=False):
    """A sound recording, in base64 or by its URL."""

    type: Required[Literal["audio"]]
    source: Required[Base64Source | URLSource]


class VideoBlock(TypedDict, total=False):
    """A video, in base64 or by its URL."""

    type: Required[Literal["video"]]
    source: Required[Base64Source | URLSource]


class ToolUseBlock(TypedDict, total=False):
    """A call of a tool: its name and its arguments."""

    type: Required[Literal["tool_use"]]
    id: Required[str]
    name: Required[str]
    input: Required[dict[str, Any]]


Block = Any
"""`{"type": "text", "text": ...}`, or `image`, `audio` or `video` with a `source` that is base64 or a URL."""

INTERRUPTED: Final = "<system-info>The tool call has been interrupted by the user.</system-info>"
INTERRUPTED_KEY: Final = "mcp-hub/interrupted"
"""Key in the `_meta` of a result: the call ended before the tool did."""

log = logging.getLogger(__name__)


def _stamp() -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"_{os.urandom(3).hex()}"


@dataclass
class ToolResponse:
    """A result, or one chunk of a stream. Chunks accumulate, so that the last one is complete."""

    content: list[Block]
    metadata: dict[str, Any] | None = None
    """For programs, not for the model. In an MCP result it is `_meta`."""
    stream: bool = False
    is_last: bool = True
    is_interrupted: bool = False
    id: str = field(default_factory=_stamp)

    def to_wire(self) -> dict[str, Any]:
        """Returns the MCP result `{"content": [...], "_meta": {...}}`. `_meta` is left out if empty."""
        return _wire_response(self)


def _wire_response(response: ToolResponse) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [_wire_block(block) for block in response.content]}
    meta = dict(response.metadata or {}) | ({INTERRUPTED_KEY: True} if response.is_interrupted else {})
    if meta:
        result["_meta"] = meta
    return result


_FIELDS: Final = frozenset(member.name for member in fields(ToolResponse))
_FIELDS_OF_2: Final = frozenset({"content", "state", "metadata", "id"})


def is_response_class(kind: Any) -> bool:
    """Returns whether a class is a ToolResponse, the hub's or AgentScope's. The latter is recognised by its fields."""
    if not isinstance(kind, type) or isinstance(kind, GenericAlias):
        return False
    if is_dataclass(kind):
        return {member.name for member in fields(kind)} >= _FIELDS
    return issubclass(kind, BaseModel) and kind.model_fields.keys() >= _FIELDS_OF_2


def given_response(value: Any) -> ToolResponse | None:
    """Returns a function's return value if it is a ToolResponse, the hub's or AgentScope's; else None.

    A ToolResponse of AgentScope 1.x has the fields of the hub's and is returned itself; one of 2.x is converted.
    """
    if isinstance(value, ToolResponse) or not is_response_class(type(value)):
        return value if isinstance(value, ToolResponse) else None
    if is_dataclass(value):
        return cast("ToolResponse", value)
    if not all(isinstance(block, BaseModel) for block in value.content):
        return None
    return ToolResponse(
        [_block_of_2(block.model_dump(mode="json")) for block in value.content],
        metadata=value.metadata or None,
        is_last=getattr(value, "is_last", True),
        is_interrupted=value.state == "interrupted",
        id=value.id,
    )


def _block_of_2(block: dict[str, Any]) -> Block:
    """Converts a block of AgentScope 2.x to one of 1.x. In 2.x, images, audio and video are all `data` blocks."""
    source = block.get("source")
    if block.get("type") != "data" or not isinstance(source, dict):
        return {"type": "text", "text": block.get("text", "")} if block.get("type") == "text" else block
    kind = str(source.get("media_type") or "").partition("/")[0]
    return {"type": kind if kind in ("image", "audio", "video") else "data", "source": source}


def interrupted_response(last: ToolResponse | None = None) -> ToolResponse:
    """Returns the response of an interrupted call: a copy of its last chunk, if any, with a note added."""
    note: Block = {"type": "text", "text": INTERRUPTED}
    if last is None:
        return ToolResponse([note], stream=True, is_interrupted=True)
    return replace(last, content=[*last.content, note], is_interrupted=True, is_last=True)


def response_of(result: Mapping[str, Any]) -> ToolResponse:
    """Returns an MCP result as a ToolResponse.

    Text, image and audio blocks are converted, and an embedded text resource becomes its JSON. Links and embedded
    files, which a model cannot read, are left out and logged.
    """
    meta = dict(result.get("_meta") or {})
    is_interrupted = meta.pop(INTERRUPTED_KEY, False) is True
    meta.pop(JSON_KEY, None)
    return ToolResponse(blocks(result.get("content") or ()), metadata=meta or None, is_interrupted=is_interrupted)


def blocks(content: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Returns MCP content blocks as those of a ToolResponse."""
    converted: list[Block] = []
    for block in content:
        kind = block.get("type")
        resource = block.get("resource")
        if kind == "text":
            converted.append({"type": "text", "text": block.get("text", "")})
        elif kind in ("image", "audio"):
            source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
            converted.append({"type": kind, "source": source})
        elif kind == "resource" and isinstance(resource, Mapping) and "text" in resource:
            # AgentScope's order of fields, and its null for what is missing
            shown = {"uri": resource.get("uri"), "mimeType": resource.get("mimeType"), "meta": resource.get("_meta")}
            shown |= {name: value for name, value in resource.items() if name != "_meta"}
            converted.append({"type": "text", "text": json.dumps(shown, ensure_ascii=False, indent=2)})
        else:
            log.warning("a %s block is left out of a response because a model cannot read it", kind)
    return converted


def _wire_block(block: Mapping[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    if not isinstance(source, Mapping):
        return dict(block)  # a text block, or an MCP block already
    kind, media_type = block["type"], source.get("media_type")
    mime_field = {"mimeType": media_type} if media_type is not None else {}
    if source.get("type") == "url":
        return {
            "type": "resource_link",
            "uri": source["url"],
            "name": str(block.get("name") or source["url"]),
            **mime_field,
        }
    if kind in ("image", "audio"):
        return {"type": kind, "data": source["data"], "mimeType": media_type or "application/octet-stream"}
    return {"type": "resource", "resource": {"uri": f"mcp-hub://{kind}", "blob": source["data"], **mime_field}}


_AS_JSON: Final[TypeAdapter[Any]] = TypeAdapter(Any)


@dataclass(frozen=True)
class ToolResult:
    """An exact result for a function to return: content blocks, `structuredContent`, `_meta` and `isError`."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    is_error: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Returns the MCP result `{"content": [...], "structuredContent"?, "isError"?, "_meta"?}`."""
        result: dict[str, Any] = {"content": self.content}
        if self.structured is not None:
            result["structuredContent"] = self.structured
        if self.is_error:
            result["isError"] = True
        if self.meta is not None:
            result["_meta"] = self.meta
        return result


MAX_PART: Final = 60_000
"""Most characters of a long text that one result has; a further call returns the rest."""


def part_of(text: str, offset: int, limit: int, rest: str) -> str:
    """Returns at most `limit` characters of a text from `offset`, cut at the end of a line, and how to get the rest.

    `rest`: what to call for the rest, before the number of its first character, such as `browser_text with offset`.
    """
    if offset == 0 and len(text) <= limit:
        return text
    part = text[offset : offset + limit]
    end = offset + len(part)
    if end < len(text):
        part = part[: part.rfind("\n") + 1] or part
        end = offset + len(part)
        part += f"[{len(text) - end:,} characters more: {rest} {end}]"
    return part or f"[The text has only {len(text):,} characters.]"


class ToolRefused(Exception):
    """Raised by a function to fail with one of the hub's error codes, such as `guard_blocked`."""

    def __init__(self, code: str, message: str, *, rule: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.rule = rule
        """Which of several rules refused the call, for programs."""


def result_of(tool: str, value: Any) -> dict[str, Any]:
    """Returns the MCP result of a call that returned `value`.

    A string becomes a text block, None no block, anything else JSON in a text block, and an object `structuredContent`
    too.
    """
    if value is None:
        return {"content": []}
    if isinstance(value, str):
        return {"content": [_text(value)]}
    try:
        response = given_response(value)
        if response is not None or isinstance(value, ToolResult):
            wire_result: dict[str, Any] = value.to_wire() if response is None else _wire_response(response)
            if response is not None:  # its metadata may hold any object
                wire_result = _AS_JSON.dump_python(wire_result, mode="json")
            encode(wire_result)
            return wire_result
        plain = _plain(value)
        text = encode(plain).decode()
    except Exception as error:  # the user's objects may raise anything
        message = f"Error: {tool!r} returned {type(value).__name__}, which is not JSON: {error}"
        return error_result("tool_error", tool, message)
    result: dict[str, Any] = {"content": [_text(text)]}
    if isinstance(plain, dict):
        result["structuredContent"] = plain
    return result


def marked_as_json(result: dict[str, Any], value: Any) -> dict[str, Any]:
    """Returns the result of `value`, marked with JSON_KEY if its text is JSON, so that 3 differs from "3"."""
    if value is None or isinstance(value, str | ToolResult) or "structuredContent" in result or result.get("isError"):
        return result
    if given_response(value) is not None:
        return result
    return {**result, "_meta": {JSON_KEY: True}}


def failure_of(tool: str, error: BaseException) -> dict[str, Any]:
    """Returns the error result of an exception. Its code is `tool_error`, or that of a ToolRefused."""
    if isinstance(error, ToolRefused):
        return error_result(error.code, tool, error.message, error.rule)
    try:
        message = str(error)
    except Exception:
        message = ""
    return error_result("tool_error", tool, f"Error: {message or type(error).__name__}")


def location_of(error: BaseException) -> str:
    """Returns `TYPE: MESSAGE (FILE:LINE in FUNCTION)` of an exception: the deepest place that is not a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    own_frames = [frame for frame in frames if not frame.filename.startswith(libraries)] or frames
    try:
        message = f"{type(error).__name__}: {error}"
    except Exception:
        message = type(error).__name__
    message = printable(" ".join(message.split()))  # a line of the log
    return (
        f"{message} ({own_frames[-1].filename}:{own_frames[-1].lineno} in {own_frames[-1].name})"
        if own_frames
        else message
    )


def as_response(value: Any) -> ToolResponse:
    """Returns a function's return value as a ToolResponse; a ToolResponse is returned itself."""
    response = given_response(value)
    return response_of(result_of("the tool", value)) if response is None else response


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if is_dataclass(value) or isinstance(value, dict | list | tuple | set):
        return _AS_JSON.dump_python(value, mode="json")
    return value


def error_result(code: str, tool: str, text: str, rule: str | None = None) -> dict[str, Any]:
    """Returns an error result `{"content": [...], "isError": True, "_meta": {...}}` with an error code."""
    retryable = any(kind.code == code and kind.retryable for kind in CallError.__subclasses__())
    facts = {"code": code, "server": None, "tool": tool, "retryable": retryable} | ({"rule": rule} if rule else {})
    return {"content": [_text(text)], "isError": True, "_meta": {ERROR_KEY: facts}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
