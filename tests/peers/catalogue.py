"""The real servers the tests talk to, and how to start them. `scripts/peers` installs them.

Whatever is missing fails the test that needs it, with a message naming `scripts/peers`; nothing is skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from tests.fakes.client import free_port
from tests.fakes.forks import python_with, python_with_sdk
from tests.peers.programs import END_BOUND, HERE, MCP1, NODE, NPM, SERVERS, installed, network_server, run

Transport = Literal["stdio", "http", "sse"]
Era = Literal["handshake", "modern"]

TRANSPORTS: tuple[Transport, ...] = ("stdio", "http", "sse")
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
"""The newest revision of each era: what real peers agree on today."""
REVISION: Mapping[Era, str] = {"handshake": HANDSHAKE, "modern": MODERN}

FASTMCP_SERVER = HERE / "servers" / "fastmcp_server.py"
ONE_ERA_SERVER = HERE / "servers" / "one_era_server.py"
LOOPBACK_ONLY = HERE / "servers" / "loopback_only.cjs"


PAGE = "a page on loopback"
"""What the page says that mcp-server-fetch is told to read."""


@dataclass(frozen=True)
class Place:
    """Where the servers of one test live: a directory of their own, and the addresses of those on a network."""

    tmp: Path
    page: str = ""
    urls: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.tmp / "files" / "greeting.txt"

    @property
    def memory(self) -> Path:
        return self.tmp / "memory.jsonl"

    @property
    def repository(self) -> Path:
        return self.tmp / "repository"


Entry = dict[str, Any]


@dataclass(frozen=True)
class RealServer:
    """A server people run: how the hub is told of it, and one call whose outcome is known."""

    name: str
    transport: Transport
    era: Era
    tool: str
    arguments: Callable[[Place], dict[str, Any]]
    expected: str
    entry: Callable[[Place], Entry]
    """Its entry in the hub's configuration."""
    start: Callable[[int], tuple[list[str], dict[str, str]]] | None = None
    """For a server on a network: its command and environment on a port."""

    @property
    def path(self) -> str:
        return "/sse" if self.transport == "sse" else "/mcp"


def _npm(package: str, *args: str, preload: Path | None = None) -> list[str]:
    options = [] if preload is None else ["--require", str(preload)]
    return [installed(NODE), *options, installed(NPM / ".bin" / package), *args]


def _on_python(name: str, *args: str) -> list[str]:
    """A program of the environment of servers, which have to import the SDK."""
    python = python_with(
        "mcp_server_fetch", "mcp_server_git", "mcp_server_time", interpreter=installed(SERVERS / "python")
    )
    return [python, installed(SERVERS / name), *args]


def _spawned(command: Callable[[Place], list[str]], **env: Callable[[Place], str]) -> Callable[[Place], Entry]:
    def entry(place: Place) -> Entry:
        argv = command(place)
        variables = {name: value(place) for name, value in env.items()}
        return {"command": argv[0], "args": argv[1:], "env": variables}

    return entry


def _everything(transport: Transport, argument: str) -> RealServer:
    name = f"everything_{transport}"
    return RealServer(
        name=name,
        transport=transport,
        era="handshake",
        tool="get-sum",
        arguments=lambda _: {"a": 20, "b": 22},
        expected="The sum of 20 and 22 is 42",
        entry=_spawned(lambda _: _npm("mcp-server-everything", argument))
        if transport == "stdio"
        else lambda place: {"url": place.urls[name], "transport": transport},
        start=None
        if transport == "stdio"
        else lambda port: (
            _npm("mcp-server-everything", argument, preload=LOOPBACK_ONLY),
            {"PORT": str(port)},
        ),
    )


def _fastmcp(transport: Transport) -> RealServer:
    name = f"fastmcp_{transport}"
    return RealServer(
        name=name,
        transport=transport,
        era="modern",
        tool="echo",
        arguments=lambda _: {"text": name},
        expected=f"fastmcp heard {name}",
        entry=_spawned(lambda _: [python_with_sdk(), str(FASTMCP_SERVER), "stdio"])
        if transport == "stdio"
        else lambda place: {"url": place.urls[name], "transport": transport},
        start=None
        if transport == "stdio"
        else lambda port: ([sys.executable, str(FASTMCP_SERVER), transport], {"PORT": str(port)}),
    )


def _one_era(era: Era, transport: Transport) -> RealServer:
    name = f"{era}_only_{transport}"

    def command() -> list[str]:
        of_sdk1 = ("mcp.server.fastmcp", "starlette.applications", "uvicorn")
        python = python_with(*of_sdk1, interpreter=installed(MCP1)) if era == "handshake" else python_with_sdk()
        return [python, str(ONE_ERA_SERVER), transport]

    # The specification has SSE in the handshake era alone; the hub speaks the other over it only where it is told to.
    pinned = {"era": "modern"} if (era, transport) == ("modern", "sse") else {}
    return RealServer(
        name=name,
        transport=transport,
        era=era,
        tool="echo",
        arguments=lambda _: {"text": "a word"},
        expected=f"{name} heard a word",
        entry=_spawned(lambda _: command(), NAME=lambda _: name)
        if transport == "stdio"
        else lambda place: {"url": place.urls[name], "transport": transport, **pinned},
        start=None if transport == "stdio" else lambda port: (command(), {"PORT": str(port), "NAME": name}),
    )


_ALL = (
    _everything("stdio", "stdio"),
    _everything("sse", "sse"),
    _everything("http", "streamableHttp"),
    RealServer(
        name="filesystem",
        transport="stdio",
        era="handshake",
        tool="read_text_file",
        arguments=lambda place: {"path": str(place.file)},
        expected="grüße aus der Datei",
        entry=_spawned(lambda place: _npm("mcp-server-filesystem", str(place.file.parent))),
    ),
    RealServer(
        name="memory",
        transport="stdio",
        era="handshake",
        tool="read_graph",
        arguments=lambda _: {},
        expected="sits in front of all servers",
        entry=_spawned(lambda _: _npm("mcp-server-memory"), MEMORY_FILE_PATH=lambda place: str(place.memory)),
    ),
    RealServer(
        name="time",
        transport="stdio",
        era="modern",
        tool="convert_time",
        arguments=lambda _: {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        expected="T21:00:00+09:00",
        entry=_spawned(lambda _: _on_python("mcp-server-time")),
    ),
    RealServer(
        name="fetch",
        transport="stdio",
        era="modern",
        tool="fetch",
        arguments=lambda place: {"url": place.page},
        expected=PAGE,
        entry=_spawned(lambda _: _on_python("mcp-server-fetch", "--allow-private-ips")),
    ),
    RealServer(
        name="git",
        transport="stdio",
        era="modern",
        tool="git_log",
        arguments=lambda place: {"repo_path": str(place.repository)},
        expected="the first commit",
        entry=_spawned(lambda place: _on_python("mcp-server-git", "--repository", str(place.repository))),
    ),
    _fastmcp("stdio"),
    _fastmcp("http"),
    _fastmcp("sse"),
)
REAL_SERVERS: Mapping[str, RealServer] = {server.name: server for server in _ALL}
"""What people run. Those of the modern era shake hands as well."""
ONE_ERA_SERVERS: Mapping[str, RealServer] = {
    f"{era}_only_{transport}": _one_era(era, transport) for era in REVISION for transport in TRANSPORTS
}
"""Of one era alone, on the SDK 1.x or 2.x; each has a tool that reports progress, a resource, a template, a prompt."""
SERVERS_BY_NAME: Mapping[str, RealServer] = {**REAL_SERVERS, **ONE_ERA_SERVERS}


@contextlib.asynccontextmanager
async def real_servers(tmp: Path, names: Sequence[str] = tuple(REAL_SERVERS)) -> AsyncIterator[Place]:
    """Everything the named servers need: their files, the page, and those on a network, started and accepting."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(tmp, stack.enter_context(_serve_page()))
        place.file.parent.mkdir()
        place.file.write_text("grüße aus der Datei\n", encoding="utf-8")
        entity = {"type": "entity", "name": "hub", "entityType": "program"}
        place.memory.write_text(json.dumps({**entity, "observations": ["sits in front of all servers"]}) + "\n")
        await _make_repository(place.repository)

        async def start(server: RealServer) -> None:
            if server.start is None:
                return
            port = free_port()
            command, env = server.start(port)
            await stack.enter_async_context(network_server(command, port, env, log=tmp / f"{server.name}.log"))
            place.urls[server.name] = f"http://127.0.0.1:{port}{server.path}"

        outcomes = await asyncio.gather(*(start(SERVERS_BY_NAME[name]) for name in names), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        yield place


def hub_config(
    place: Place, names: Sequence[str] = tuple(REAL_SERVERS), expose: str = "all", name: str = "hub", **root: Any
) -> Path:
    """A configuration file of the hub with the named servers, catalogs kept in a directory of its own.

    What clients are listed is compared with what the servers list, so it is all of it unless `expose` says otherwise.
    """
    config = {
        "servers": {name: SERVERS_BY_NAME[name].entry(place) for name in names},
        "cache_dir": str(place.tmp / "cache"),
        "list_wait": 60,
        "expose": expose,
        **root,
    }
    path = place.tmp / f"{name}_{expose}.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@contextlib.contextmanager
def _serve_page() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exists = self.path == "/page.txt"  # there is no robots.txt: everything is allowed
            body = PAGE.encode() if exists else b""
            self.send_response(200 if exists else 404)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/page.txt"
        finally:
            server.shutdown()
            thread.join(END_BOUND)


async def _make_repository(path: Path) -> None:
    path.mkdir()
    author = ["-c", "user.name=tests", "-c", "user.email=tests@example.invalid", "-c", "commit.gpgsign=false"]
    await run(["git", "init", "--quiet", str(path)], END_BOUND * 4)
    await run(["git", "-C", str(path), *author, "commit", "--quiet", "--allow-empty", "-m", "the first commit"], 20)
