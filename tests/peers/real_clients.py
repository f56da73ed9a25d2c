"""The real clients of the tests, and how to let one talk to a server. `scripts/peers` installs them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.catalogue import HANDSHAKE, MODERN, TRANSPORTS, Entry, Transport
from tests.peers.programs import HERE, NODE, NPM, PEERS, installed, run

ANSWERED = 120.0
"""A client has listed and called within this, a hub it starts itself included."""


@dataclass(frozen=True)
class RealClient:
    """A client people run, behind the contract of clients/contract.py."""

    name: str
    command: Callable[[], list[str]]
    versions: Mapping[Transport, str | None]
    """What it agrees on with a server of both eras, per transport it has; None: it does not tell."""
    mode: str | None = None


def _python(driver: str, environment: Path | None = None) -> Callable[[], list[str]]:
    python = environment and environment / "bin" / "python"
    return lambda: [installed(python) if python else sys.executable, str(HERE / "clients" / driver)]


def _node(driver: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        installed(NPM)
        return [installed(NODE), str(HERE / "clients" / driver)]

    return command


def _inspector() -> list[str]:
    installed(NODE)
    installed(NPM / ".bin" / "mcp-inspector")
    return [sys.executable, str(HERE / "clients" / "inspector.py")]


def _everywhere(version: str | None) -> dict[Transport, str | None]:
    return dict.fromkeys(TRANSPORTS, version)


_CLIENTS = (
    RealClient("python_mcp1", _python("python_mcp1.py", PEERS / "mcp1"), _everywhere(HANDSHAKE)),
    RealClient("python_mcp2_auto", _python("python_mcp2.py"), _everywhere(MODERN), "auto"),
    RealClient("python_mcp2_legacy", _python("python_mcp2.py"), _everywhere(HANDSHAKE), "legacy"),
    RealClient("typescript_sdk1", _node("typescript_sdk1.cjs"), _everywhere(HANDSHAKE)),
    RealClient("typescript_client2", _node("typescript_client2.cjs"), _everywhere(HANDSHAKE)),
    RealClient("typescript_client2_auto", _node("typescript_client2.cjs"), _everywhere(MODERN), "auto"),
    RealClient("inspector", _inspector, _everywhere(None)),
    # Over SSE the client of fastmcp always shakes hands.
    RealClient("python_fastmcp", _python("python_fastmcp.py"), {"stdio": MODERN, "http": MODERN, "sse": HANDSHAKE}),
)
REAL_CLIENTS: Mapping[str, RealClient] = {client.name: client for client in _CLIENTS}


async def run_client(
    client: RealClient | str,
    transport: Transport,
    url: str | None = None,
    command: Sequence[str] | None = None,
    tool: str | None = None,
    args: Mapping[str, Any] | None = None,
    calls: Sequence[tuple[str, Mapping[str, Any]]] = (),
    deadline: float = ANSWERED,
) -> dict[str, Any]:
    """Let a client list the tools of a server and call one, or several on the same connection.

    What it saw: {"client", "protocolVersion", "tools", "result": of the first call, "results": of all}.
    Raises PeerFailed with what the client wrote on stderr.
    """
    if isinstance(client, str):
        client = REAL_CLIENTS[client]
    argv = [*client.command(), "--transport", transport]
    argv += ["--mode", client.mode] if client.mode else []
    argv += ["--url", url] if url else []
    for name, arguments in [*([(tool, args or {})] if tool else []), *calls]:
        argv += ["--tool", name, "--args", json.dumps(arguments)]
    argv += ["--", *command] if command else []
    printed = await run(argv, deadline)
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return answer


async def run_client_on(
    client: RealClient | str, entry: Entry, tool: str | None = None, args: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Let a client talk to a server directly, without the hub; `entry` is what the hub would be told."""
    if "url" in entry:
        return await run_client(client, entry["transport"], entry["url"], None, tool, args)
    variables = [f"{name}={value}" for name, value in entry["env"].items()]
    command = [*(["env", *variables] if variables else []), entry["command"], *entry["args"]]
    return await run_client(client, "stdio", None, command, tool, args)


def text_of(result: Mapping[str, Any]) -> str:
    """All text of a tool's result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
