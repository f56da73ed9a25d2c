"""The content of results in the shapes of other tool systems."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

log = logging.getLogger("mcp_hub.toolkit")

_MEDIA: Final = ("image", "audio")


def blocks(result: Json) -> list[Json]:
    """Content as AgentScope's blocks: text, image and audio, an embedded text as JSON; others are left out and logged."""
    found: list[Json] = []
    for block in _content(result):
        kind, resource = block.get("type"), block.get("resource")
        if kind == "text":
            found.append({"type": "text", "text": str(block.get("text", ""))})
        elif kind in _MEDIA:
            source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
            found.append({"type": kind, "source": source})
        elif kind == "resource" and isinstance(resource, dict) and "text" in resource:
            found.append({"type": "text", "text": json.dumps(resource, indent=2, ensure_ascii=False)})
        else:
            log.warning("a content block of type %r has no counterpart among blocks; it is left out", kind)
    return found


def text(result: Json) -> str:
    """All texts of a result, embedded ones too, joined by line ends; `[image image/png]` and so on for what has none."""
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
