"""An HTTP/1.1 server that says exactly what a test tells it to, byte by byte, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mcp_hub.config.models import Server as Configured
from mcp_hub.transport import LinkError, LinkLost, RequestId
from mcp_hub.transport.http_link import HttpLink

PATIENCE = 60
"""The most seconds that any wait of a test may take."""


@dataclass(frozen=True)
class Request:
    """A request as the server received it. Names of `headers` are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def message(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Reply:
    """Writes the response to a request: raw bytes, or one of the usual responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        """Exactly these bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, **headers: str) -> None:
        """Status line and headers; `_` in a name stands for `-`."""
        lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def full(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A complete answer."""
        await self.head(status, Content_Length=str(len(body)), **headers)
        await self.raw(body)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        """A complete JSON answer."""
        await self.full(status, json.dumps(value).encode(), Content_Type="application/json", **headers)

    async def result(self, request: Request, result: Any = None, **headers: str) -> None:
        """The JSON-RPC result of a request."""
        await self.json({"jsonrpc": "2.0", "id": request.message["id"], "result": result or {}}, **headers)

    async def stream(self, **headers: str) -> None:
        """The head of an event stream in chunks."""
        await self.head(200, Content_Type="text/event-stream", Transfer_Encoding="chunked", **headers)

    async def chunk(self, data: bytes) -> None:
        """One chunk."""
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, value: Any, id: str | None = None) -> None:
        """One event with a JSON message in it."""
        head = b"" if id is None else f"id: {id}\n".encode()
        await self.chunk(head + b"data: " + json.dumps(value).encode() + b"\n\n")

    async def end(self) -> None:
        """The last chunk."""
        await self.raw(b"0\r\n\r\n")

    async def cut(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def gone(self) -> None:
        """Wait until the other side has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass


Script = Callable[[Request, Reply], Awaitable[None]]


@dataclass
class Server:
    """A running server: `requests` in the order they were complete."""

    port: int
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    accepting: asyncio.Server | None = None
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where the tests send their messages."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def asked(self, method: str) -> list[Request]:
        """The requests of one method."""
        return [request for request in self.requests if request.method == method]

    async def stop_accepting(self) -> None:
        """Refuse new connections; those that are open live on."""
        assert self.accepting is not None
        self.accepting.close()


@contextlib.asynccontextmanager
async def scripted(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve `script`, one call a request; several requests of one connection follow each other."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        server.open.add(writer)
        number = server.connections
        try:
            while (request := await _read(reader, number)) is not None:
                server.requests.append(request)
                await script(request, Reply(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            server.open.discard(writer)
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 20, ssl=tls)
    server = Server(listening.sockets[0].getsockname()[1], accepting=listening)
    try:
        yield server
    finally:
        listening.close()
        running = list(tasks)
        for task in running:
            task.cancel()
        for writer in list(server.open):
            writer.transport.abort()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)


async def _read(reader: asyncio.StreamReader, connection: int) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head[:-4].split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body, connection)


class Inbox:
    """A Receiver that keeps every notification in order: messages, `(id, error)` pairs, the loss."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.losses: list[LinkLost] = []
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()

    def received(self, message: dict[str, Any], stream: RequestId | None = None) -> None:
        assert not self.losses, "nothing follows a loss"
        self._keep(message)

    def failed(self, request_id: RequestId | None, error: LinkError) -> None:
        assert not self.losses, "nothing follows a loss"
        self._keep((request_id, error))

    def lost(self, error: LinkLost) -> None:
        assert not self.losses, "a loss is told once"
        self.losses.append(error)
        self._keep(error)

    def _keep(self, item: Any) -> None:
        self.told.append(item)
        self._waiting.put_nowait(item)

    async def next(self) -> Any:
        """Returns the next item that was not returned yet."""
        async with asyncio.timeout(PATIENCE):
            return await self._waiting.get()

    async def failure(self, request_id: RequestId) -> LinkError:
        """Returns the error of this request, which must be the next item."""
        item = await self.next()
        assert isinstance(item, tuple), item
        assert item[0] == request_id
        error: LinkError = item[1]
        return error


TOKEN = "Bearer s3cret-token-value"


def configured(url: str, **fields: Any) -> Configured:
    """An entry for the streamable HTTP server at `url`."""
    return Configured(id="up", transport="http", url=url, namespace="up", **fields)


@contextlib.asynccontextmanager
async def linked(url: str, **fields: Any) -> AsyncIterator[tuple[HttpLink, Inbox]]:
    """Opens a link, and closes it within the time limit."""
    link, inbox = HttpLink(configured(url, **fields)), Inbox()
    await link.open(inbox)
    try:
        yield link, inbox
    finally:
        async with asyncio.timeout(PATIENCE):
            await link.close()


def call(id: int | str = 1, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def answer(id: Any = 1, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


NOTE = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


async def ask(link: HttpLink, message: dict[str, Any] | None = None, **headers: str) -> None:
    async with asyncio.timeout(PATIENCE):
        await link.send(message or call(), {name.replace("_", "-"): value for name, value in headers.items()})


async def one_failure(script: Any, **fields: Any) -> LinkError:
    """Returns the error of a single request to a server that runs `script`; the link must stay open."""
    async with scripted(script) as server, linked(server.url, **fields) as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert len(server.asked("POST")) == 1, "a request is never sent twice"
        assert inbox.losses == []
        return error


def always(status: int, body: bytes = b"", **headers: str) -> Any:
    async def script(request: Request, reply: Reply) -> None:
        await reply.full(status, body, **headers)

    return script


async def start(link: HttpLink, inbox: Inbox) -> None:
    await ask(link, call("init", "initialize"))
    assert (await inbox.next())["id"] == "init"
