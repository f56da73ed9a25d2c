"""A faulty server and a good one behind a hub whose status can be queried."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, spawned, write_config
from tests.faults.table import ERROR, OK, Fault

FAULTY = str(Path(__file__).with_name("faulty.py"))
CALM = {"retry": "off", "breaker": "off", "health": {"ping": "300ms"}}
"""Every call is one attempt, and silence is noticed soon."""


@dataclass
class Front:
    """The hub, its client, and the switch of the fault."""

    client: StdioClient
    switch: Path
    effects: Path
    status: Path

    def turn(self, fault: str) -> None:
        self.switch.write_text(fault)

    async def outcome(self, nonce: str, tool: str = "bad__effect") -> tuple[str, str]:
        """Makes a call, and returns its outcome and the text of its error."""
        async with asyncio.timeout(PATIENCE):
            answer = await self.client.start("tools/call", {"name": tool, "arguments": {"nonce": nonce}})
        if "error" in answer:
            return ERROR, str(answer["error"]["message"])
        result = answer["result"]
        if not result.get("isError"):
            return OK, ""
        return str(result["_meta"]["mcp-hub/error"]["code"]), str(result["content"][0]["text"])

    async def facts(self) -> dict[str, Any]:
        """Returns the status of the hub, with its descriptors and children."""
        facts: dict[str, Any] = await asyncio.to_thread(self._read_status)
        pid = self.client.process.pid
        facts["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a count is all that is wanted
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        facts["children"] = len(children)
        return facts

    def _read_status(self) -> Any:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            asking.connect(str(self.status / f"{self.client.process.pid}.sock"))
            asking.sendall(b'{"ask": "status"}\n')
            data = b""
            while chunk := asking.recv(65536):
                data += chunk
        return json.loads(data)

    def executed(self, nonce: str) -> int:
        """Returns how often the server has executed a call."""
        return self.effects.read_text().split().count(nonce) if self.effects.exists() else 0


@contextlib.asynccontextmanager
async def front(directory: Path, fault: Fault, **bad: Any) -> AsyncIterator[Front]:
    """Starts a hub over stdio in front of a server with this fault and of a good one, and its client."""
    bad = {**CALM, "deadlines": {"call": fault.seconds, "connect": max(5, fault.seconds)}, **bad}
    if fault.http:
        bad["health"] = "off"  # its pings would keep every connection of the pool in use
    switch, effects, status = directory / "switch", directory / "effects", directory / "run"
    switch.write_text("")
    argv = [FAULTY, "--switch", str(switch), "--effects", str(effects), "--era", fault.era]
    async with contextlib.AsyncExitStack() as stack:
        entry: dict[str, Any] = {"command": sys.executable, "args": argv}
        if fault.http:
            server = await stack.enter_async_context(spawned([sys.executable, *argv, "--http"]))
            stack.callback(server.process.kill)
            listening = await server.notified("listening")
            entry = {"url": listening[0]["params"]["url"], "transport": "http"}
        config = write_config(directory, {"bad": {**entry, **bad}, "good": fake(**CALM)}, watch=False)
        hub = spawned([*HUB, "serve", "--config", str(config)], env={"MCP_HUB_RUNTIME_DIR": str(status)})
        client = await stack.enter_async_context(hub)
        await client.initialize()
        yield Front(client, switch, effects, status)
