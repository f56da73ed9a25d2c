"""The post-processing steps that come with the hub; each makes a new result of a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_hub.protocol.frames import FrameError, decode, encode

Json = dict[str, Any]

MAX_CHARACTERS: Final = 20_000
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_PATH: Final = re.compile(r"(?:(?:[^.\[\]]+|\[\d{1,9}\])(?:\.[^.\[\]]+|\[\d{1,9}\])*)?")


class StepFailed(Exception):
    """A step cannot do what it was told; `str()` says why."""


def truncate(result: Json, options: Mapping[str, Any]) -> Json:
    """The texts together cut to `max_chars` characters; other blocks stay."""
    _only(options, "max_chars")
    left = options.get("max_chars", MAX_CHARACTERS)
    if not isinstance(left, int) or isinstance(left, bool) or left < 0:
        raise StepFailed("max_chars must be a whole number")
    blocks = _content(result)
    more = sum(len(text) for block in blocks if (text := _text(block)) is not None) - left
    if more <= 0:
        return result
    content: list[Any] = []
    cut = False
    for block in blocks:
        text = _text(block)
        if text is None:
            content.append(block)
        elif len(text) <= left:
            left -= len(text)
            content.append(block)
        elif not cut:
            content.append({**block, "text": f"{text[:left]}… ({more:,} more characters)"})
            left, cut = 0, True
    return {**result, "content": content}


def select_text(result: Json, options: Mapping[str, Any]) -> Json:
    """Only the texts, those of embedded resources included; no images, links and structured content."""
    _only(options)
    texts: list[Json] = []
    for block in _content(result):
        if isinstance(block, dict) and block.get("type") == "text":
            texts.append(block)
            continue
        inner = block.get("resource") if isinstance(block, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("text"), str):
            texts.append({"type": "text", "text": inner["text"]})
    kept = {key: one for key, one in result.items() if key != "structuredContent"}
    return {**kept, "content": texts}


def select_json(result: Json, options: Mapping[str, Any]) -> Json:
    """The part at `path` (`a.b[0]`; all of it without) of `structuredContent`, else of the first text that is JSON.

    It is the text, and `structuredContent` where it is an object. A server's own error stays what it is.
    """
    _only(options, "path")
    path = options.get("path", "")
    if not isinstance(path, str) or _PATH.fullmatch(path) is None:
        raise StepFailed("path must be like rows[0].name")
    if result.get("isError"):
        return result
    value = result.get("structuredContent")
    if value is None:
        value = _first_json(result)
    for name, index in _STEP.findall(path):
        try:
            value = _member(value, name, index)
        except LookupError:
            raise StepFailed(f"there is nothing at {path!r}") from None
    kept = {key: one for key, one in result.items() if key != "structuredContent"}
    text = value if isinstance(value, str) else encode(value).decode()
    found = {**kept, "content": [{"type": "text", "text": text}]}
    return {**found, "structuredContent": value} if isinstance(value, dict) else found


def _only(options: Mapping[str, Any], *known: str) -> None:
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise StepFailed(f"it has no argument {', '.join(unknown)}; it has {', '.join(known) or 'none'}")


def _member(value: Any, name: str, index: str) -> Any:
    if isinstance(value, list) and index:
        return value[int(index)]
    if isinstance(value, dict) and name:
        return value[name]
    raise LookupError


def _first_json(result: Json) -> Any:
    for block in _content(result):
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            try:
                return decode(text.encode("utf-8", "surrogatepass"))
            except FrameError:
                continue
    raise StepFailed("no text of the result is JSON")


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _content(result: Json) -> list[Any]:
    content = result.get("content")
    return content if isinstance(content, list) else []


STEPS: Final[Mapping[str, Callable[[Json, Mapping[str, Any]], Json]]] = {
    "truncate": truncate,
    "select_text": select_text,
    "json": select_json,
}


def is_result(value: Any) -> bool:
    """Whether a value is the complete result of a call: a list of content blocks that have a type."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or value.get("resultType", "complete") != "complete":
        return False
    return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content)
