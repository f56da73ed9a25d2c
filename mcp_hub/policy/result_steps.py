"""The hub's own post-processing steps: each takes the result of a call and returns another one. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_hub.policy import Json
from mcp_hub.protocol.frames import FrameError, decode, encode

MAX_CHARACTERS: Final = 20_000
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_PATH: Final = re.compile(r"(?:(?:[^.\[\]]+|\[\d{1,9}\])(?:\.[^.\[\]]+|\[\d{1,9}\])*)?")


class StepFailed(Exception):
    """A post-processing step failed; `str()` says why."""


def truncate(result: Json, options: Mapping[str, Any]) -> Json:
    """Cuts the texts of a result to `max_chars` characters in total; other blocks stay.

    Raises StepFailed for a wrong option.
    """
    _check_options(options, "max_chars")
    remaining = options.get("max_chars", MAX_CHARACTERS)
    if not isinstance(remaining, int) or isinstance(remaining, bool) or remaining < 0:
        raise StepFailed("max_chars must be a whole number")
    blocks = _content(result)
    excess = sum(len(text) for block in blocks if (text := _text(block)) is not None) - remaining
    if excess <= 0:
        return result
    content: list[Any] = []
    cut = False
    for block in blocks:
        text = _text(block)
        if text is None:
            content.append(block)
        elif len(text) <= remaining:
            remaining -= len(text)
            content.append(block)
        elif not cut:
            content.append({**block, "text": f"{text[:remaining]}… ({excess:,} more characters)"})
            remaining, cut = 0, True
    return {**result, "content": content}


def select_text(result: Json, options: Mapping[str, Any]) -> Json:
    """Keeps only the texts, including those of embedded resources: no images, links or structured content.

    Raises StepFailed for an unknown option.
    """
    _check_options(options)
    texts: list[Json] = []
    for block in _content(result):
        if isinstance(block, dict) and block.get("type") == "text":
            texts.append(block)
            continue
        inner = block.get("resource") if isinstance(block, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("text"), str):
            texts.append({"type": "text", "text": inner["text"]})
    fields = {key: member for key, member in result.items() if key != "structuredContent"}
    return {**fields, "content": texts}


def select_json(result: Json, options: Mapping[str, Any]) -> Json:
    """Keeps the value at `path` (`a.b[0]`) of `structuredContent`, or else of the first text that is JSON.

    Without `path` it keeps the whole value. The value becomes the text, and `structuredContent` if it is an object. An
    error result of the server stays as it is. Raises StepFailed if there is no such value.
    """
    _check_options(options, "path")
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
    fields = {key: member for key, member in result.items() if key != "structuredContent"}
    text = value if isinstance(value, str) else encode(value).decode()
    selected = {**fields, "content": [{"type": "text", "text": text}]}
    return {**selected, "structuredContent": value} if isinstance(value, dict) else selected


def _check_options(options: Mapping[str, Any], *names: str) -> None:
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise StepFailed(f"it has no argument {', '.join(unknown)}; it has {', '.join(names) or 'none'}")


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
    """Returns whether a value is a complete result of a call: its content blocks all have a type."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or value.get("resultType", "complete") != "complete":
        return False
    return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content)
