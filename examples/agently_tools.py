"""Agently's ToolManager: functions and a server as tools, found by tags, called by name.

    python examples/agently_tools.py PYTHON SERVER.py

The lines marked `was:` are the only ones that differ from the same program written for Agently.
"""

import asyncio
import sys
from typing import Annotated

from mcp_hub import ToolManager  # was: from agently import Agently

tools = ToolManager()  # was: tools = Agently.tool

command, *args = sys.argv[1:]


@tools.tool_func
def add(a: Annotated[int, "the left one"], b: Annotated[int, "the right one", "small"] = 3) -> int:
    """Add two numbers."""
    return a + b


async def greet(name: str) -> str:
    return f"hello {name}"


def fail() -> None:
    raise ValueError("boom")


tools.register(
    name="greet", desc="Say hello.", kwargs={"name": (str, "whom")}, func=greet, returns=str, tags=["words", "polite"]
)
tools.register(name="fail", desc=None, kwargs=None, func=fail, tags="broken")
tools.tag("add", ["words", "numbers"])

for name in ("add", "greet", "fail"):
    print(tools.get_tool_info()[name])
print(sorted(tool["name"] for tool in tools.get_tool_list(["words", "polite"])))
print(tools.get_tool_list("w"), tools.get_tool_info("broken"))

print(tools.call_tool("add", {"a": 1}), tools.call_tool("greet", {"name": "you"}))
print(tools.call_tool("fail", {}), "|", tools.call_tool("nothing", {}))
print(tools.get_tool_func("add") is add, tools.get_tool_func("nothing"))
print(tools.get_tool_func("greet", shift="sync")(name="from sync"))


async def with_a_server() -> None:
    print(await tools.async_call_tool("add", {"a": 1, "b": 2}))
    print(await tools.get_tool_func("add", shift="async")(a=2, b=2))
    await tools.async_use_mcp({"mcpServers": {"demo": {"command": command, "args": args}}}, tags="demo")
    for name, info in sorted(tools.get_tool_info("demo").items()):
        print(name, info)
    print(sorted(tools.get_tool_info(["sums", "broken"])))
    print(await tools.async_call_tool("multiply", {"a": 21}))
    print(await tools.async_call_tool("divide", {"a": 1, "b": 0}))
    print(await tools.async_call_tool("search", {"query": "hub", "limit": 2}))
    print(await tools.async_call_tool("say", {"text": "goodbye"}))


asyncio.run(with_a_server())
