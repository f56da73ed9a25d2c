"""What every driver of a real client understands and prints.

DRIVER --transport stdio|http|sse [--mode MODE] [--url URL] [--tool NAME --args JSON]... [-- COMMAND ARGS...]

It connects, lists all tools, calls those it was told to, and prints one JSON line: {"client", "protocolVersion",
"tools": their names, "result": of the first call, "results": of all}. This file runs in the Python
environments of several clients, so it needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Order:
    """What the driver is to do."""

    transport: str
    mode: str | None
    url: str
    command: list[str]
    calls: list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Answer:
    """What the client saw; `version` is None where the client does not tell."""

    version: str | None
    tools: list[str]
    results: list[dict[str, Any]]


def read_order(argv: list[str]) -> Order:
    """The order on the command line; exits with 2 when it is not one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "http", "sse"], required=True)
    parser.add_argument("--mode", choices=["auto", "legacy", "stateful", "stateless"])
    parser.add_argument("--url", default="")
    parser.add_argument("--tool", action="append", default=[])
    parser.add_argument("--args", action="append", type=json.loads, default=[])
    split = argv.index("--") if "--" in argv else len(argv)
    options, command = parser.parse_args(argv[:split]), argv[split + 1 :]
    if options.transport == "stdio" and not command:
        parser.error("stdio needs a command behind --")
    if options.transport != "stdio" and not options.url:
        parser.error(f"{options.transport} needs --url")
    if len(options.tool) != len(options.args):
        parser.error("every --tool needs its --args")
    return Order(
        options.transport, options.mode, options.url, command, list(zip(options.tool, options.args, strict=True))
    )


def drive(client: str, talk: Callable[[Order], Awaitable[Answer]]) -> None:
    """Do what the command line orders and print what came of it."""
    order = read_order(sys.argv[1:])

    async def run() -> Answer:
        return await talk(order)

    answer = asyncio.run(run())
    line = {"client": client, "protocolVersion": answer.version, "tools": answer.tools}
    first = answer.results[0] if answer.results else None
    print(json.dumps({**line, "result": first, "results": answer.results}))


def dumped(result: Any) -> dict[str, Any]:
    """A result of a pydantic model, as it stood on the wire."""
    data: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return data
