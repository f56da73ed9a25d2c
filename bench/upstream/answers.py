"""What the trivial server answers: it reads the JSON of each request and puts its id into bytes made before."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

MODERN = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
HANDSHAKE = "2025-11-25"
INFO = {"name": "trivial", "version": "1"}


def _tool(name: str) -> dict[str, Any]:
    """A tool as large as tools usually are, about 500 bytes."""
    properties = {
        "text": {"type": "string", "description": f"What {name} is told, as plain text of any length."},
        "seconds": {"type": "number", "description": "How long it may take.", "minimum": 0},
        "bytes": {"type": "integer", "description": "How long the result should be.", "minimum": 0},
    }
    return {
        "name": name,
        "title": f"Tool {name}",
        "description": f"{name}: one of the tools of a server that does nothing, described in about as many words as "
        "people use to describe a tool to a model.",
        "inputSchema": {"type": "object", "properties": properties},
        "annotations": {"readOnlyHint": True},
    }


@cache
def long_text(size: int) -> bytes:
    """JSON of a text of `size` bytes, with escapes as in any text of lines."""
    line = 'line %07d: "a value", another, and a third one for good measure\n'
    lines = "".join(line % number for number in range(size // 60))
    return json.dumps(lines[:size].ljust(size, "x")).encode()


class Answers:
    """Of one era, `handshake` or `modern`; `tools` tools: echo, sleep, big and t0, t1, ..."""

    def __init__(self, era: str, tools: int) -> None:
        names = ["echo", "sleep", "big", *(f"t{number}" for number in range(tools - 3))]
        listed = {"tools": [_tool(name) for name in names[:tools]]}
        capabilities: dict[str, Any] = {"capabilities": {"tools": {}}}
        if era == "modern":
            cache_fields = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            identity = {"supportedVersions": [MODERN], "_meta": {"io.modelcontextprotocol/serverInfo": INFO}}
            self._fixed = {
                "server/discover": {**identity, **capabilities, **cache_fields},
                "tools/list": {**listed, **cache_fields},
            }
            self._end = b'}],"resultType":"complete"}}'
        else:
            identity = {"protocolVersion": HANDSHAKE, "serverInfo": INFO}
            self._fixed = {"initialize": {**identity, **capabilities}, "tools/list": listed, "ping": {}}
            self._end = b"}]}}"
        self._ready = {method: json.dumps(result).encode() for method, result in self._fixed.items()}

    def answer(self, data: bytes) -> tuple[bytes, float]:
        """The answer to one message and the seconds it has to wait; no bytes for what needs no answer."""
        message = json.loads(data)
        if "id" not in message or "method" not in message:
            return b"", 0.0
        method = message["method"]
        begin = b'{"jsonrpc":"2.0","id":' + json.dumps(message["id"]).encode()
        if method == "tools/call":
            name, arguments = message["params"]["name"], message["params"].get("arguments") or {}
            text = long_text(arguments["bytes"]) if name == "big" else json.dumps(arguments.get("text", "")).encode()
            wait = float(arguments["seconds"]) if name == "sleep" else 0.0
            return begin + b',"result":{"content":[{"type":"text","text":' + text + self._end, wait
        if method in self._ready:
            return begin + b',"result":' + self._ready[method] + b"}", 0.0
        return begin + b',"error":{"code":-32601,"message":"Method not found"}}', 0.0
