"""What calls give back with Agently's ToolManager of its document: generators, errors, a lost server.

python agently_calls.py PYTHON SERVER.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastmcp.mcp_config import MCPConfig

from mcp_hub import ToolManager  # was: from agently import Agently

tools = ToolManager()  # was: tools = Agently.tool

command, *args = sys.argv[1:]


def count(to: int) -> Iterator[int]:
    yield from range(to)


async def count_async(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


def squares(to: int) -> Any:
    return (number * number for number in range(to))


def named() -> None:
    raise RuntimeError("RuntimeError")


def silent() -> None:
    raise RuntimeError


for function in (count, count_async, squares):
    tools.register(
        name=function.__name__, desc="Count.", kwargs={"to": (int, "how far")}, func=function, returns=None, tags="all"
    )
for failing in (named, silent):
    tools.register(name=failing.__name__, desc="It fails.", kwargs={}, func=failing, tags="all")


def outcome(value: Any) -> Any:
    """The value; only the beginning of an error, as its text is each library's own."""
    return "Error: ..." if isinstance(value, str) and value.startswith("Error: ") else value


async def main() -> None:
    for name in ("count", "squares"):
        generator = await tools.async_call_tool(name, {"to": 3})
        print(name, type(generator).__name__, list(generator))
    print([number async for number in await tools.async_call_tool("count_async", {"to": 3})])
    print([await tools.async_call_tool(name, {}) for name in ("named", "silent")])
    config = MCPConfig.from_dict({"mcpServers": {"demo": {"command": command, "args": args}}})
    await tools.async_use_mcp(config, tags="demo")
    print(sorted(tools.get_tool_info("demo"))[:3], await tools.async_call_tool("add", {"a": 1, "b": 2}))
    for name in ("fail", "crash"):
        print(name, outcome(await tools.async_call_tool(name, {})))


print(list(tools.call_tool("count", {"to": 2})))
asyncio.run(main())
