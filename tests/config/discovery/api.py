"""A REST API on loopback that answers by its path and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Api:
    """`requests` are all there were, the newest last."""

    url: str
    requests: list[Asked] = field(default_factory=list)
    elsewhere: str = ""
    """Where `/elsewhere` redirects to."""


def _answer(api: Api, request: Asked) -> tuple[int, dict[str, str], bytes]:
    endpoint = request.path.partition("?")[0].strip("/").split("/")[0]
    if endpoint == "status":
        code = int(request.path.split("/")[2])
        return code, {"Content-Type": "text/plain"}, f"no: {request.headers.get('x-api-key', '')}".encode()
    if endpoint == "long":
        return 200, {"Content-Type": "text/plain"}, b"x" * 100_000
    if endpoint == "charset":
        return 200, {"Content-Type": f"text/plain; charset={request.path.split('/')[2]}"}, b"-" + b"a0b1" * 1_000_000
    if endpoint == "empty":
        return 204, {}, b""
    if endpoint == "elsewhere":
        return 302, {"Location": api.elsewhere}, b""
    if endpoint == "moved":
        return 302, {"Location": "/echo/moved"}, b""
    payload: dict[str, Any] = {"path": request.path, "method": request.method, "list": [{"n": 2**70}]}
    return 200, {"Content-Type": "application/json"}, json.dumps(payload).encode()


@contextlib.contextmanager
def serving() -> Iterator[Api]:
    """One that runs while the block does."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Asked(self.command, self.path, headers, self.rfile.read(length))
            api.requests.append(request)
            if self.path.startswith("/dropped"):
                self.close_connection = True
                return
            status, fields, body = _answer(api, request)
            self.send_response(status)
            for name, value in {**fields, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api = Api(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
