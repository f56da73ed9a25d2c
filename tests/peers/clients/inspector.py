"""The command line of the MCP Inspector: one run lists, one more for each call.

It does not tell which revision it negotiated.
"""

import asyncio
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from contract import Answer, Order, drive

PEERS = Path(__file__).resolve().parents[3] / ".peers"
INSPECTOR = PEERS / "node/node_modules/.bin/mcp-inspector"


async def talk(order: Order) -> Answer:
    with tempfile.TemporaryDirectory() as scratch:

        def run(*options: str) -> dict[str, Any]:
            server = ["--", *order.command] if order.transport == "stdio" else ["--server-url", order.url]
            era = ["--protocol-era", order.mode] if order.mode else []
            environment = {
                **os.environ,
                "MCP_CATALOG_PATH": f"{scratch}/mcp.json",
                "MCP_CLIENT_CONFIG_PATH": f"{scratch}/client.json",
            }
            command = [PEERS / "bin/node", INSPECTOR, "--cli", "--format", "json", "--transport", order.transport]
            completed = subprocess.run(
                [*command, *era, *options, *server], env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            printed: dict[str, Any] = json.loads(completed.stdout)
            return printed

        tools = await asyncio.to_thread(run, "--method", "tools/list")
        results = []
        for tool, arguments in order.calls:
            call = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
            results.append((await asyncio.to_thread(run, *call))["result"])
    return Answer(None, [tool["name"] for tool in tools["result"]["tools"]], results)


drive("inspector", talk)
