"""A server that writes down what it carries out: `python ledger.py FILE`. Standard library only.

`do {id}` adds the id to FILE and answers `ID PID N`, the n-th time of this process; `ask {id}` does so after it has
asked its client, with the id in the question; `touch {uri}` says that a resource has changed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from itertools import count

FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("do", "ask", "touch")]
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}}
lock = threading.Lock()
waiting: dict[str, threading.Event] = {}
questions, done = count(1), count(1)


def send(message: dict) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def carried_out(id: str) -> dict:
    os.write(FILE, f"{id}\n".encode())
    return {"content": [{"type": "text", "text": f"{id} {os.getpid()} {next(done)}"}]}


def ask(request_id: object, id: str) -> None:
    question = f"q{next(questions)}"
    answered = waiting[question] = threading.Event()
    schema = {"type": "object", "properties": {}}
    params = {"message": id, "requestedSchema": schema}
    send({"id": question, "method": "elicitation/create", "params": params})
    if answered.wait(60):
        send({"id": request_id, "result": carried_out(id)})


def handle(message: dict) -> None:
    method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    result: dict | None = {}
    if method is None:
        waiting.pop(request_id, threading.Event()).set()
        return
    if request_id is None:
        return
    if method == "initialize":
        info = {"name": "ledger", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "resources/list":
        result = {"resources": [{"uri": "x:one", "name": "one"}]}
    elif method == "tools/call":
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "ask":
            threading.Thread(target=ask, args=(request_id, arguments["id"]), daemon=True).start()
            return
        if name == "touch":
            send({"method": "notifications/resources/updated", "params": {"uri": arguments["uri"]}})
            result = {"content": [{"type": "text", "text": "touched"}]}
        else:
            result = carried_out(arguments["id"])
    elif method not in ("ping", "resources/subscribe", "resources/unsubscribe"):
        send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
        return
    send({"id": request_id, "result": result})


for line in sys.stdin:
    handle(json.loads(line))
