"""A registry on loopback: it serves server.json files in the official form, with pages, or answers as a test says."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 2
"""Servers on a page, whatever the client asks for."""


def listing(name: str, version: str = "1.0.0", **fields: Any) -> dict[str, Any]:
    """A server.json."""
    schema = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
    return {"$schema": schema, "name": name, "description": f"About {name}", "version": version, **fields}


def npm(identifier: str = "some-server", version: str = "1.0.0", **fields: Any) -> dict[str, Any]:
    """A package of npm."""
    package = {"registryType": "npm", "identifier": identifier, "version": version, "transport": {"type": "stdio"}}
    return {**package, **fields}


def pypi(identifier: str = "small-server", version: str = "1.0.0", **fields: Any) -> dict[str, Any]:
    """A package of PyPI."""
    return {**npm(identifier, version), "registryType": "pypi", **fields}


def answer(server: dict[str, Any], status: str = "active", *, latest: bool = True) -> dict[str, Any]:
    """A server.json as a registry answers it."""
    official = {"status": status, "publishedAt": "2026-01-01T00:00:00Z", "isLatest": latest}
    return {"server": server, "_meta": {"io.modelcontextprotocol.registry/official": official}}


class Loopback:
    """What a test decides: the answers of the registry, and those of other paths."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.paths: dict[str, Callable[[Handler], None] | bytes] = {}
        """Path without its query -> the body of its answer, or what answers it."""
        self.types: dict[str, str] = {}
        """Path -> the content type of its body."""
        self.asked: list[str] = []
        self.stopping = threading.Event()
        self.base = ""

    def add(self, *servers: dict[str, Any]) -> None:
        self.answers += [answer(server) for server in servers]

    def registry(self, path: str, query: dict[str, list[str]]) -> Any | None:
        if path == "/v0.1/servers":
            term = query.get("search", [""])[0]
            named = [entry for entry in self.answers if term in entry["server"]["name"]]
            start = int(query.get("cursor", ["0"])[0])
            page = named[start : start + PAGE]
            metadata: dict[str, Any] = {"count": len(page)}
            if start + PAGE < len(named):
                metadata["nextCursor"] = str(start + PAGE)
            return {"servers": page, "metadata": metadata}
        parts = path.split("/")
        if len(parts) == 6 and parts[:3] == ["", "v0.1", "servers"] and parts[4] == "versions":
            name, version = unquote(parts[3]), unquote(parts[5])
            for entry in reversed(self.answers):
                if entry["server"]["name"] == name and version in ("latest", entry["server"]["version"]):
                    return entry
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    loopback: Loopback

    def do_GET(self) -> None:
        self.loopback.asked.append(self.path)
        parts = urlsplit(self.path)
        scripted = self.loopback.paths.get(parts.path)
        if callable(scripted):
            scripted(self)
        elif scripted is not None:
            self.reply(200, scripted, Content_Type=self.loopback.types.get(parts.path, "application/json"))
        elif (response := self.loopback.registry(parts.path, parse_qs(parts.query))) is not None:
            self.reply(200, json.dumps(response).encode())
        else:
            self.reply(404, b'{"error": "Server not found"}')

    def do_HEAD(self) -> None:
        self.do_GET()

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[Loopback]:
    """Serves on a free port until the block ends."""
    loopback = Loopback()
    handler = type("OfOneTest", (Handler,), {"loopback": loopback})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    loopback.base = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield loopback
    finally:
        loopback.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
