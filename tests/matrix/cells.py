"""One client, one server, and the hub in between, over every transport and in every era."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.conformance.fronts import FIXTURE, ROOT, fixture
from tests.fakes.client import HUB as MCP_HUB
from tests.fakes.client import PATIENCE, free_port, write_config
from tests.fakes.forks import python_with_sdk
from tests.peers.programs import network_server

TRANSPORTS: Final = ("stdio", "http", "sse")
ERAS: Final = ("handshake", "modern")
SERVERS: Final = [(transport, era) for transport in TRANSPORTS for era in ERAS]
ALLOWED: Final = ["sampling", "elicitation", "roots"]
HUB: Final = [*MCP_HUB, "serve"]

Json = dict[str, Any]


@contextlib.asynccontextmanager
async def configured(tmp: Path) -> AsyncIterator[Path]:
    """A configuration with the fixture behind every transport, spoken to in every era; each knows its own name."""
    async with contextlib.AsyncExitStack() as stack:
        servers: dict[str, Json] = {}
        for transport, era in SERVERS:
            name = f"{transport}_{era}"
            if transport == "stdio":
                entry: Json = {"command": python_with_sdk(), "args": [*FIXTURE[1:], "stdio"], "cwd": str(ROOT)}
                entry["env"] = {"NAME": name}
            else:
                url = await stack.enter_async_context(fixture(tmp, transport, {"NAME": name}))
                entry = {"url": url, "transport": transport}
            servers[name] = {**entry, "era": era, "allow": ALLOWED}
        # Lists are compared with those of the servers.
        yield write_config(tmp, servers, list_wait=PATIENCE, expose="all")


@contextlib.asynccontextmanager
async def listening(tmp: Path, config: Path) -> AsyncIterator[dict[str, str]]:
    """A hub on a network; the addresses by transport."""
    port = free_port()
    command = [*HUB, "--sse", "--port", str(port), "--config", str(config)]
    async with network_server(command, port, log=tmp / "hub.log"):
        yield {"http": f"http://127.0.0.1:{port}/mcp", "sse": f"http://127.0.0.1:{port}/sse"}


@dataclass
class Room:
    """The notifications that one client has received."""

    logged: list[Any] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    """Methods of notifications."""
    updated: list[str] = field(default_factory=list)
    """URIs of resources."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append(params.data)
        self.news.set()

    async def receive(self, message: Any) -> None:
        self.methods.append(str(getattr(message, "method", "")))
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated.append(str(message.params.uri))
        self.news.set()

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content: Any = params.messages[0].content
        answer = types.TextContent(type="text", text=f"heard {content.text}")
        return types.CreateMessageResult(role="assistant", content=answer, model="none")

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        fields = params.requested_schema.get("properties", {})
        content = {name: True for name, field in fields.items() if field.get("type") == "boolean"}
        return types.ElicitResult(action="accept", content=content or {"message": params.message})

    async def roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home")])  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def connected(transport: str, era: str, urls: dict[str, str], config: Path) -> AsyncIterator[tuple[Client, Room]]:
    """A client of the hub that can be asked everything."""
    room = Room()
    async with _hub_client(transport, era, urls, config, {}) as first:
        await first.list_tools()  # waits for all servers: from now on everything is known at once
    options: Json = {"logging_callback": room.log, "message_handler": room.receive, "sampling_callback": room.sample}
    options |= {"elicitation_callback": room.elicit, "list_roots_callback": room.roots}
    async with _hub_client(transport, era, urls, config, options) as client:
        await client.list_tools()
        yield client, room


def _hub_client(transport: str, era: str, urls: dict[str, str], config: Path, options: Json) -> Client:
    server: Any = StdioServerParameters(command=HUB[0], args=[*HUB[1:], "--config", str(config)], cwd=str(ROOT))
    if transport != "stdio":
        server = (sse_client if transport == "sse" else streamable_http_client)(urls[transport])
    mode: Any = "legacy" if era == "handshake" else "auto"
    return Client(server, mode=mode, cache=None, **options)


_LISTS: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "templates": "resource_templates"}


@dataclass
class Cell:
    """One client's view of one server."""

    client: Client
    room: Room
    era: str
    name: str
    """Of the server, in front of its tools and prompts."""

    def tool(self, name: str) -> str:
        """The name of a tool or prompt as the hub exposes it."""
        return f"{self.name}__{name}"

    async def all_of(self, kind: str, server: str | None = None) -> list[Json]:
        """A whole list, page by page; of one `server` only what its URIs say is of it."""
        items: list[Json] = []
        cursor: str | None = None
        listing: Any = getattr(self.client, f"list_{'resource_templates' if kind == 'templates' else kind}")
        while True:
            page = await listing(cursor=cursor)
            items += [
                item.model_dump(by_alias=True, exclude_none=True, mode="json") for item in getattr(page, _LISTS[kind])
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        if server is None:
            return items
        key = "uriTemplate" if kind == "templates" else "uri"
        first = f"{SERVERS[0][0]}_{SERVERS[0][1]}"  # the first of equal URIs keeps its own
        own = f"mcp-hub://{server}/"
        return [item for item in items if (item[key].startswith("test:") if server == first else own in item[key])]

    async def call(self, name: str, arguments: Json | None = None, **options: Any) -> Json:
        """The result of a tool."""
        options = {"read_timeout_seconds": PATIENCE, **options}
        result = await self.client.call_tool(self.tool(name), arguments or {}, **options)
        return result.model_dump(by_alias=True, exclude_none=True, mode="json")

    async def text(self, name: str, arguments: Json | None = None) -> str:
        """The first text of the result of a tool that has not failed."""
        result = await self.call(name, arguments)
        assert not result.get("isError"), result
        return str(result["content"][0]["text"])

    async def read(self, uri: str) -> Json:
        """The one content of a resource."""
        (content,) = (await self.client.read_resource(uri)).contents
        return content.model_dump(by_alias=True, exclude_none=True, mode="json")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something heard makes it true."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await self.changed()

    async def changed(self) -> None:
        """Wait for anything at all, a moment."""
        self.room.news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self.room.news.wait()

    async def say(self, level: str, token: str) -> None:
        """Have the server log something, while the client wants to hear this level and above."""
        meta: Any = {"io.modelcontextprotocol/logLevel": level} if self.era == "modern" else None
        if self.era == "handshake":
            await self.client.set_logging_level(level)  # type: ignore[arg-type]
        await self.call("say", {"token": token}, meta=meta)

    @contextlib.asynccontextmanager
    async def watching(self, uri: str) -> AsyncIterator[list[str]]:
        """The URIs of resources that are said to have changed, while one is watched."""
        updated = self.room.updated
        updated.clear()
        if self.era == "handshake":
            await self.client.subscribe_resource(uri)
            yield updated
            await self.client.unsubscribe_resource(uri)
            return
        async with self.client.listen(resource_subscriptions=[uri]):
            yield updated

    @contextlib.asynccontextmanager
    async def hearing(self, method: str, since: int | None = None) -> AsyncIterator[None]:
        """While this is open, the client is told of changed lists; `since` is the number of notifications before it."""
        if self.era == "modern":
            async with self.client.listen(tools_list_changed=True, prompts_list_changed=True):
                yield
            return
        before = len(self.room.methods) if since is None else since
        yield
        await self.until(lambda: method in self.room.methods[before:])


@pytest.fixture(scope="module")
async def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Path, Path]]:
    """A directory, and in it the configuration of all servers for the clients over TRANSPORT of a module."""
    tmp = tmp_path_factory.mktemp(request.module.TRANSPORT)
    async with configured(tmp) as config:
        yield tmp, config


@pytest.fixture(scope="module", params=ERAS)
async def client(request: pytest.FixtureRequest, place: tuple[Path, Path]) -> AsyncIterator[Cell]:
    """The only client that calls anything on its hub: with several, log messages of some servers are nobody's."""
    transport = request.module.TRANSPORT
    async with contextlib.AsyncExitStack() as stack:
        urls = {} if transport == "stdio" else await stack.enter_async_context(listening(*place))
        client, room = await stack.enter_async_context(connected(transport, request.param, urls, place[1]))
        yield Cell(client, room, request.param, "")


@pytest.fixture(params=["_".join(server) for server in SERVERS])
def cell(request: pytest.FixtureRequest, client: Cell) -> Cell:
    """One cell of the matrix: the client before one of the servers."""
    return Cell(client.client, client.room, client.era, request.param)
