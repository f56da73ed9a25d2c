"""`python server_of_schemas.py SCHEMAS CALLED`: a tool for each schema of a JSON file; a call answers its arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

schemas = json.loads(Path(sys.argv[1]).read_text())
called = Path(sys.argv[2])

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    answer: dict = {}
    if method == "initialize":
        answer = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "schemas", "version": "1"},
        }
    elif method == "tools/list":
        answer = {"tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]}
    elif method == "tools/call":
        with called.open("a") as file:
            file.write(params["name"] + "\n")
        answer = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
    elif method != "ping":
        reply = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps(reply), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
