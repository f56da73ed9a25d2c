"""The content of results as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def text(result: Json) -> str:
    """All texts of a result, embedded ones too, joined by line ends; `[image image/png]` and so on for what is none."""
    return "\n".join(_text(block) for block in _content(result))


def error_text(result: Json) -> str:
    """The texts alone, for an error."""
    return "\n".join(str(block["text"]) for block in _content(result) if isinstance(block.get("text"), str))


def _content(result: Json) -> Iterator[Json]:
    content = result.get("content")
    if isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _text(block: Json) -> str:
    kind, resource = block.get("type"), block.get("resource")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource" and isinstance(resource, dict):
        if isinstance(resource.get("text"), str):
            return str(resource["text"])
        return _marker(kind, resource.get("mimeType"), resource.get("uri"))
    return _marker(str(kind), block.get("mimeType"), block.get("uri"))


def _marker(kind: str, *facts: Any) -> str:
    return "[" + " ".join([kind, *(fact for fact in facts if isinstance(fact, str))]) + "]"
