"""A REST API on loopback, made of one function of the test."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BOUND = 60.0
"""Seconds after which a request without an answer ends, should the test not end before."""

Answer = tuple[int, Any] | None
"""HTTP status, and a body that becomes JSON; None: no answer before the end of the test."""


@contextlib.contextmanager
def json_api(answer: Callable[[str, Mapping[str, str], Any], Answer]) -> Iterator[str]:
    """The address of a server that answers each request by `answer(path, headers, body)`."""
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            payload = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            response = answer(self.path, self.headers, json.loads(payload) if payload else None)
            if response is None:
                stopped.wait(BOUND)
                return
            status, body = response
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
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            stopped.set()
            server.shutdown()
            thread.join()
