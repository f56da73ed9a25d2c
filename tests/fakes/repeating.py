"""An MCP server of both eras that says everything it was sent, in whatever way it is asked to."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

VERSION = "2026-07-28"
SCHEMA = {
    "type": "object",
    "properties": {
        "how": {"type": "string"},
        "key": {"type": "string"},
        "count": {"type": "integer"},
        "options": {"type": "object", "properties": {"token": {"type": "string"}, "depth": {"type": "integer"}}},
    },
    "required": ["how", "key"],
}
seen: list[Any] = []


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id: Any, params: dict[str, Any]) -> dict[str, Any]:
    arguments, meta = params.get("arguments", {}), params.get("_meta", {})
    seen.append(arguments)
    said = f"it was called with {seen}"
    how = arguments.get("how")
    if how == "rpc":
        return {"id": id, "error": {"code": -32050, "message": said, "data": {"sent": seen}}}
    if how == "crash":
        sys.stderr.write(f"Traceback: {said}\n")
        sys.stderr.flush()
        os._exit(1)
    if how == "tell":
        sys.stderr.write(said + "\n")
        sys.stderr.flush()
        if "progressToken" in meta:
            told = {"progressToken": meta["progressToken"], "progress": 1, "message": said}
            send({"method": "notifications/progress", "params": told})
        send({"method": "notifications/message", "params": {"level": "error", "data": said}})
        return {"id": id, "result": {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}}
    content = [{"type": "text", "text": said if how == "error" else "done"}]
    return {"id": id, "result": {"resultType": "complete", "content": content, "isError": how == "error"}}


for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params") or {}
    if "id" not in request:
        continue
    capabilities = {"tools": {}, "logging": {}}
    if method == "server/discover":
        result = {"supportedVersions": [VERSION], "capabilities": capabilities, "resultType": "complete"}
        send({"id": request["id"], "result": result})
    elif method == "initialize":
        info = {"name": "repeating", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        send({"id": request["id"], "result": result})
    elif method == "tools/list":
        tool = {"name": "say", "description": "Say it all.", "inputSchema": SCHEMA}
        cache = {"resultType": "complete", "ttlMs": 1000, "cacheScope": "private"}
        send({"id": request["id"], "result": {"tools": [tool], **cache}})
    elif method == "tools/call":
        send(answer(request["id"], params))
        if params.get("arguments", {}).get("how") == "tell":
            send({"method": "notifications/message", "params": {"level": "error", "data": f"after it: {seen}"}})
    elif method in ("ping", "logging/setLevel"):
        send({"id": request["id"], "result": {}})
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
