"""A minimal aggregating proxy on the `mcp` SDK: its low-level server in front of one client session a server.

No rules, no log, no supervision: what the SDK itself costs. JSON answers and uvloop, as both are faster than what it
does by default; lists are kept, as a proxy that asks all servers for each list would be slower still.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientSession
from mcp.server.lowlevel import Server

MODES = {"handshake": "legacy", "modern": "2026-07-28"}


class Proxy:
    """All servers of a configuration, their tools under `NAME__TOOL`."""

    def __init__(self, servers: dict[str, dict[str, Any]], mode: str) -> None:
        self._servers = servers
        self._mode = mode
        self._routes: dict[str, tuple[ClientSession, str]] = {}
        self._listed: dict[str, list[types.Tool]] = {}

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Sessions with all of them, begun at the same time."""
        async with anyio.create_task_group() as group:
            started = []
            for name, entry in self._servers.items():
                self._listed[name] = []
                started.append(anyio.Event())
                group.start_soon(self._hold, name, entry, started[-1])
            for event in started:
                await event.wait()
            yield
            group.cancel_scope.cancel()

    async def _hold(self, name: str, entry: dict[str, Any], started: anyio.Event) -> None:
        source = entry["url"] if "url" in entry else StdioServerParameters(command=entry["command"], args=entry["args"])
        async with Client(source, mode=self._mode, cache=None) as client:
            session = client.session
            cursor = None
            while True:
                page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
                for tool in page.tools:
                    exposed = f"{name}__{tool.name}"
                    self._routes[exposed] = (session, tool.name)
                    self._listed[name].append(tool.model_copy(update={"name": exposed}))
                if (cursor := page.next_cursor) is None:
                    break
            started.set()
            await anyio.sleep_forever()

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool for listed in self._listed.values() for tool in listed])

    async def call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        session, name = self._routes[params.name]
        return await session.call_tool(name, params.arguments)


async def serve(server: Server[Any], transport: str, port: int) -> None:
    """Serve clients over one transport until the end."""
    if transport == "stdio":
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return
    import uvicorn

    app = sse_app(server) if transport == "sse" else server.streamable_http_app(json_response=True, max_sessions=None)
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", backlog=4096)).serve()


def sse_app(server: Server[Any]) -> Any:
    """The older transport at `/sse`."""
    from mcp.server.sse import SseServerTransport
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Mount, Route

    transport = SseServerTransport("/messages/")

    async def stream(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", stream), Mount("/messages/", app=transport.handle_post_message)])


async def main(servers: dict[str, dict[str, Any]], transport: str, port: str, era: str) -> None:
    proxy = Proxy(servers, MODES[era])
    async with proxy.connected():
        server: Server[Any] = Server("sdk", on_list_tools=proxy.list_tools, on_call_tool=proxy.call_tool)
        await serve(server, transport, int(port))


if __name__ == "__main__":
    config, *rest = sys.argv[1:]
    entries = json.loads(Path(config).read_text())["mcpServers"]
    anyio.run(main, entries, *rest, backend_options={"use_uvloop": True})
