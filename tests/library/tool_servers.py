"""Servers on loopback that refuse, and values that functions return in every place where a function may be."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""HTTP status, and a body that becomes JSON."""


@contextlib.contextmanager
def http_server(answer: Callable[[str, Mapping[str, str], Any], Answer]) -> Iterator[str]:
    """The address of a server that answers each request by `answer(path, headers, body)`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            said = self.rfile.read(length)
            status, body = answer(self.path, self.headers, json.loads(said) if said else None)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_DELETE = do_POST

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


VALUES = '''
from dataclasses import dataclass
from datetime import date
from mcp_hub import ToolResponse

@dataclass
class Point:
    x: int

VALUES = {
    "none": None, "truth": True, "whole": 3, "real": 0.5, "text": "3", "json_text": "[1]", "empty": "",
    "items": [1, "two", None], "pair": (1, 2), "object": {"a": [1]}, "point": Point(1), "day": date(2026, 11, 23),
    "response": ToolResponse([{"type": "text", "text": "4"}]), "no_items": [],
}

def value(of: str):
    """Return the value of a name."""
    return VALUES[of]

async def value_async(of: str):
    """Return the value of a name."""
    return VALUES[of]

def value_last(of: str):
    """Return the value of a name as the last chunk."""
    yield "first"
    yield VALUES[of]
'''
"""Functions that return values of every type."""
AS_JSON: dict[str, Any] = {
    "none": None, "truth": True, "whole": 3, "real": 0.5, "text": "3", "json_text": "[1]", "empty": "",
    "items": [1, "two", None], "pair": [1, 2], "object": {"a": [1]}, "point": {"x": 1}, "day": "2026-11-23",
    "response": "4", "no_items": [],
}  # fmt: skip
"""What they are in JSON."""
