"""A server that writes down what it carries out: `python ledger.py FILE [CHANGES]`. Standard library only.

`do {id}` adds a line `ID PROCESS N` to FILE, for the n-th time of this process, and answers the same; `ask {id}` does
so after it has asked its client, with the id in the question. A line `URI N` that is added to CHANGES says that a
resource has changed for the N-th time: who subscribes to it is told, with N.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from itertools import count
from pathlib import Path

FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
PROCESS = f"{os.getpid()}-{secrets.token_hex(4)}"
"""What no other process has, also none that has the same id later."""
POLL_INTERVAL = 0.02
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("do", "ask")]
TEMPLATES = [{"uriTemplate": "x:{name}", "name": "any"}]
CAPABILITIES = {"tools": {}, **({"resources": {"subscribe": True}} if len(sys.argv) > 2 else {})}
lock = threading.Lock()
waiting: dict[str, threading.Event] = {}
question_numbers, action_numbers = count(1), count(1)
watched: set[str] = set()


def send(message: dict) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def execute(id: str) -> dict:
    text = f"{id} {PROCESS} {next(action_numbers)}"
    os.write(FILE, f"{text}\n".encode())
    return {"content": [{"type": "text", "text": text}]}


def ask(request_id: object, id: str) -> None:
    question = f"q{next(question_numbers)}"
    answer_event = waiting[question] = threading.Event()
    schema = {"type": "object", "properties": {}}
    params = {"message": id, "requestedSchema": schema}
    send({"id": question, "method": "elicitation/create", "params": params})
    if answer_event.wait(60):
        send({"id": request_id, "result": execute(id)})


def announce_changes(path: str) -> None:
    """Says what is added to a file from now on."""
    with Path(path).open() as changes:
        changes.seek(0, os.SEEK_END)
        while True:
            line = changes.readline()
            if not line.endswith("\n"):
                changes.seek(changes.tell() - len(line))
                time.sleep(POLL_INTERVAL)
                continue
            uri, number = line.split()
            if uri in watched:
                send({"method": "notifications/resources/updated", "params": {"uri": uri, "number": int(number)}})


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
        result = {"resources": []}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": TEMPLATES}
    elif method == "resources/subscribe":
        watched.add(params["uri"])
    elif method == "resources/unsubscribe":
        watched.discard(params["uri"])
    elif method == "tools/call":
        arguments = params.get("arguments") or {}
        if params["name"] == "ask":
            threading.Thread(target=ask, args=(request_id, arguments["id"]), daemon=True).start()
            return
        result = execute(arguments["id"])
    elif method != "ping":
        send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
        return
    send({"id": request_id, "result": result})


if len(sys.argv) > 2:
    threading.Thread(target=announce_changes, args=(sys.argv[2],), daemon=True).start()
for line in sys.stdin:
    handle(json.loads(line))
