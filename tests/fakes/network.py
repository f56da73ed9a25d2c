"""A hub on a port, and clients of the SDK for it."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.fakes.client import HUB, PATIENCE, StdioClient, spawned, write_config


@contextlib.asynccontextmanager
async def network_hub(
    directory: Path, servers: dict[str, Any], port: int = 0, **root: Any
) -> AsyncIterator[tuple[StdioClient, str]]:
    """A hub on a port, and its base URL."""
    directory.mkdir(exist_ok=True)
    config = write_config(directory, servers, **root)
    async with spawned([*HUB, "serve", "--sse", "--port", str(port), "--config", str(config)]) as process:
        await process.until(lambda: b"Serving" in process.stderr)
        match = re.search(rb"(http://127\.0\.0\.1:\d+)/mcp", process.stderr)
        assert match is not None
        try:
            yield process, match[1].decode()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.process.terminate()


def sdk(url: str, era: str, **options: Any) -> Client:
    transport = sse_client(url) if url.endswith("/sse") else streamable_http_client(url)
    return Client(transport, mode="legacy" if era == "handshake" else "auto", **options)


async def text(client: Client, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool(name, arguments or {}, **options)
    assert not result.is_error, result
    return str(result.content[0].text)  # type: ignore[union-attr]
