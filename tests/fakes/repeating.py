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
received: list[Any] = []


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id: Any, params: dict[str, Any]) -> dict[str, Any]:
    arguments, meta = params.get("arguments", {}), params.get("_meta", {})
    received.append(arguments)
    report = f"it was called with {received}"
    mode = arguments.get("how")
    if mode == "rpc":
        return {"id": id, "error": {"code": -32050, "message": report, "data": {"sent": received}}}
    if mode == "crash":
        sys.stderr.write(f"Traceback: {report}\n")
        sys.stderr.flush()
        os._exit(1)
    if mode == "tell":
        sys.stderr.write(report + "\n")
        sys.stderr.flush()
        if "progressToken" in meta:
            progress = {"progressToken": meta["progressToken"], "progress": 1, "message": report}
            send({"method": "notifications/progress", "params": progress})
        send({"method": "notifications/message", "params": {"level": "error", "data": report}})
        return {"id": id, "result": {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}}
    content = [{"type": "text", "text": report if mode == "error" else "done"}]
    return {"id": id, "result": {"resultType": "complete", "content": content, "isError": mode == "error"}}


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
            send({"method": "notifications/message", "params": {"level": "error", "data": f"after it: {received}"}})
    elif method in ("ping", "logging/setLevel"):
        send({"id": request["id"], "result": {}})
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
