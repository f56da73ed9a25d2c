"""ToolResponse: the one shape of what a tool says, whole or one chunk of it, and what it is on the wire."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

Block = Any
"""`{"type": "text", "text": ...}`, or `image`, `audio`, `video` with a `source` that is base64 or a URL: blocks.py."""

INTERRUPTED: Final = "<system-info>The tool call has been interrupted by the user.</system-info>"
INTERRUPTED_KEY: Final = "mcp-hub/interrupted"
"""In a result's `_meta`: the call ended before the tool did."""

log = logging.getLogger(__name__)


def _stamp() -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"_{os.urandom(3).hex()}"


@dataclass
class ToolResponse:
    """A result, or one chunk of a stream; chunks accumulate, so that the last one is complete."""

    content: list[Block]
    metadata: dict[str, Any] | None = None
    """For programs, not for the model; on the wire it is `_meta`."""
    stream: bool = False
    is_last: bool = True
    is_interrupted: bool = False
    id: str = field(default_factory=_stamp)

    def to_wire(self) -> dict[str, Any]:
        """The result of a call: blocks as those of MCP, metadata as `_meta`."""
        result: dict[str, Any] = {"content": [_wire_block(block) for block in self.content]}
        meta = dict(self.metadata or {}) | ({INTERRUPTED_KEY: True} if self.is_interrupted else {})
        if meta:
            result["_meta"] = meta
        return result


def interrupted(last: ToolResponse | None = None) -> ToolResponse:
    """What a call ends with that was cancelled: its last chunk with the note, or the note alone."""
    note: Block = {"type": "text", "text": INTERRUPTED}
    if last is None:
        return ToolResponse([note], stream=True, is_interrupted=True)
    last.content.append(note)
    last.is_interrupted = last.is_last = True
    return last


def response_of(result: Mapping[str, Any]) -> ToolResponse:
    """A result of the wire as a ToolResponse.

    Blocks are text, image and audio; an embedded text is its JSON. What a model cannot take in, links and embedded
    files, is left out and logged.
    """
    meta = dict(result.get("_meta") or {})
    was_interrupted = meta.pop(INTERRUPTED_KEY, False) is True
    return ToolResponse(blocks(result.get("content") or ()), metadata=meta or None, is_interrupted=was_interrupted)


def blocks(content: Iterable[Mapping[str, Any]]) -> list[Block]:
    """The content blocks of MCP as those of a ToolResponse."""
    found: list[Block] = []
    for one in content:
        kind = one.get("type")
        resource = one.get("resource")
        if kind == "text":
            found.append({"type": "text", "text": one.get("text", "")})
        elif kind in ("image", "audio"):
            source = {"type": "base64", "media_type": one.get("mimeType"), "data": one.get("data")}
            found.append({"type": kind, "source": source})
        elif kind == "resource" and isinstance(resource, Mapping) and "text" in resource:
            found.append({"type": "text", "text": json.dumps(resource, ensure_ascii=False, indent=2)})
        else:
            log.warning("a %s block is left out of a response: a model cannot take it in", kind)
    return found


def _wire_block(block: Mapping[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    if not isinstance(source, Mapping):
        return dict(block)  # a text, or a block of MCP already
    kind, media_type = block["type"], source.get("media_type")
    typed = {"mimeType": media_type} if media_type is not None else {}
    if source.get("type") == "url":
        return {"type": "resource_link", "uri": source["url"], "name": str(block.get("name") or source["url"]), **typed}
    if kind in ("image", "audio"):
        return {"type": kind, "data": source["data"], "mimeType": media_type or "application/octet-stream"}
    return {"type": "resource", "resource": {"uri": f"mcp-hub://{kind}", "blob": source["data"], **typed}}
