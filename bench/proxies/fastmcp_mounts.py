"""FastMCP with a mounted proxy for each server of a configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from fastmcp import FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

MODES = {"handshake": "legacy", "modern": "2026-07-28"}


async def serve(servers: dict[str, dict[str, Any]], transport: str, port: str, era: str) -> None:
    """Serve clients over one transport until the end."""
    front: FastMCP[None] = FastMCP("mounts")
    for name, entry in servers.items():
        source = entry["url"] if "url" in entry else StdioTransport(entry["command"], entry["args"])
        front.mount(create_proxy(source, mode=MODES[era]), namespace=name)
    if transport == "stdio":
        await front.run_async("stdio", show_banner=False)
    else:
        await front.run_async(
            transport, show_banner=False, host="127.0.0.1", port=int(port),
            log_level="warning", json_response=True if transport == "http" else None,
        )  # fmt: skip


if __name__ == "__main__":
    config, *rest = sys.argv[1:]
    servers = json.loads(Path(config).read_text())["mcpServers"]
    anyio.run(serve, servers, *rest, backend_options={"use_uvloop": True})
