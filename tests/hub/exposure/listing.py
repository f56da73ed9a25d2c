"""A hub with many tools behind it, and clients of every name that list them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp_hub.protocol.era import CLIENT_INFO_KEY
from tests.fakes.client import StdioClient, fake, hub

CHAT = "claude-ai"
"""The name of such a client as `chatting` is."""
META = ["hub_search", "hub_read", "hub_call"]
Json = dict[str, Any]


def tools(count: int, words: int = 4) -> list[Json]:
    """Definitions of tools, each of about `words` tokens and 40 more."""
    text = " ".join(["word"] * words)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return [{"name": f"tool_{n:03}", "description": text, "inputSchema": schema} for n in range(count)]


def many(directory: Path, count: int, words: int = 4, **entry: Any) -> Json:
    """The entry of a server with so many tools, and one more that works: `echo` of a fake without lists."""
    file = directory / f"lists_{count}_{words}.json"
    file.write_text(json.dumps({"tools": tools(count, words)}))
    return fake("--lists", str(file), **entry)


async def names(client: StdioClient, name: str | None = None) -> list[str]:
    """The names of the tools that are listed to a client of this name; a modern one says it with the request."""
    params: Json = {} if name is None else {"_meta": {CLIENT_INFO_KEY: {"name": name, "version": "1"}}}
    tool_names: list[str] = []
    cursor: Json = {}
    while True:
        page = await client.request("tools/list", {**params, **cursor})
        tool_names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            return tool_names
        cursor = {"cursor": page["nextCursor"]}


@contextlib.asynccontextmanager
async def chatting(directory: Path, servers: Json, **root: Any) -> AsyncIterator[StdioClient]:
    """A client that shows its model every tool that it is listed, and has no search of its own."""
    async with hub(directory, servers, handshake=False, **root) as client:
        await introduce(client, CHAT)
        yield client


async def introduce(client: StdioClient, name: str) -> None:
    """The handshake of a client of this name."""
    info = {"name": name, "version": "1"}
    await client.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
    client.notify("notifications/initialized")
