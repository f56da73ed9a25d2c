"""A server that writes down every call it gets and every one it carries out, and fails as it is told.

`python counting.py LOG FAULT,FAULT,... [--http PORT]`: the n-th call of all its lives has the n-th fault, later ones
none. A line of the log is `got TOOL` or `did TOOL`; it is written before anything can fail. With `--token T` every
request must carry it, and the log has a line `token METHOD` for each that does. Standard library only.

Over HTTP a fault may be a status in place of the answer; it comes after `did` unless it is one of `UNREAD`. `/sse` is
the older transport: a POST ends after its work, for `late-504` with that status although the answer is on the stream.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

LOG = Path(sys.argv[1])
FAULTS = sys.argv[2].split(",")
TOKEN = sys.argv[sys.argv.index("--token") + 1] if "--token" in sys.argv else None
lock = threading.Lock()
ended: list[int] = []
"""The statuses with which the next POSTs end although their answers are on the stream."""
HINTS = {"read": {"readOnlyHint": True}, "idem": {"idempotentHint": True}}
UNREAD = ("die-before", "401", "413", "429", "503", "reset-before")
LATE = 0.4
"""Seconds of work of a call with a fault `late-...`."""
TOOLS = ("effect", "read", "idem", "scrape", "scrape_website", "other", "pid")


class Faulty(Exception):
    """The transport fails here; the argument says how."""


def note(line: str) -> int:
    """Write a line; how many calls there were before."""
    with lock:
        before = LOG.read_text().count("got ") if LOG.exists() else 0
        with LOG.open("a") as file:
            file.write(line + "\n")
        return before


def answer(message: dict) -> dict | None:
    """The response to a message, None for a notification. Raises Faulty."""
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        if method == "notifications/cancelled":
            note("cancelled")
        return None
    result: dict = {}
    if method == "initialize":
        info = {"name": "counting", "version": "1"}
        capabilities = {"tools": {}, "resources": {}, "logging": {}}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    elif method == "tools/list":
        schema = {"type": "object"}
        result = {"tools": [{"name": n, "inputSchema": schema, "annotations": HINTS.get(n, {})} for n in TOOLS]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "count://one", "name": "one"}]}
    elif method == "logging/setLevel":
        execute("level")
    elif method in ("tools/call", "resources/read"):
        result = execute(params.get("name") or "resource")
    elif method != "ping":
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
    if "error" in result:
        return {"jsonrpc": "2.0", "id": message["id"], **result}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def execute(tool: str) -> dict:
    number = note(f"got {tool}")
    fault = FAULTS[number] if number < len(FAULTS) else "ok"
    if fault in UNREAD:
        raise Faulty(fault)
    note(f"did {tool}")
    if fault in ("die-after", "reset-after", "cut") or fault.isdigit():
        raise Faulty(fault)
    if fault.startswith("late-"):
        time.sleep(LATE)
        ended.append(int(fault.removeprefix("late-")))
    if fault == "hang":
        time.sleep(600)
    if fault == "error":
        return {"content": [{"type": "text", "text": "the tool says no"}], "isError": True}
    if fault == "rpc-error":
        return {"error": {"code": -32050, "message": "no"}}
    if tool == "resource":
        return {"contents": [{"uri": "count://one", "text": "one"}]}
    return {"content": [{"type": "text", "text": str(os.getpid()) if tool == "pid" else f"{tool} done"}]}


def serve_stdio() -> None:
    def respond(message: dict) -> None:
        try:
            response = answer(message)
        except Faulty:
            os._exit(9)
        if response is not None:
            with lock:
                sys.stdout.write(json.dumps(response) + "\n")
                sys.stdout.flush()

    for line in sys.stdin:
        threading.Thread(target=respond, args=(json.loads(line),), daemon=True).start()


def serve_http(port: int) -> None:
    import http.server  # it takes longer than all the rest

    streams: list[http.server.BaseHTTPRequestHandler] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if TOKEN is not None:
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    self.reply(401, b"{}")
                    return
                note(f"token {message.get('method')}")
            try:
                response = answer(message)
            except Faulty as fault:
                self.fail(str(fault))
                return
            body = b"" if response is None else json.dumps(response).encode()
            if self.path == "/messages":
                if body:
                    streams[-1].wfile.write(b"data: " + body + b"\n\n")
                self.reply(ended.pop() if ended else 202, b"")
                return
            self.reply(202 if response is None else 200, body)

        def reply(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def fail(self, fault: str) -> None:
            if fault.isdigit():
                self.reply(int(fault), b"{}", **({"Retry_After": "0"} if fault in UNREAD else {"Location": "/done"}))
                return
            if fault == "cut":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
            self.close_connection = True
            self.connection.close()

        def do_GET(self) -> None:
            if self.path != "/sse":
                self.reply(405, b"")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
            streams.append(self)
            self.rfile.read(1)  # until the other side closes it

        def do_DELETE(self) -> None:
            self.reply(405, b"")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        print("listening", flush=True)
        server.serve_forever()


if "--http" in sys.argv:
    serve_http(int(sys.argv[sys.argv.index("--http") + 1]))
else:
    serve_stdio()
