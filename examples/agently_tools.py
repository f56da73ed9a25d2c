"""Agently's ToolManager: functions and a server as tools, found by tags, called by name.

    python examples/agently_tools.py PYTHON SERVER.py

The lines marked `was:` are the only ones that differ from the same program written for Agently.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

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


class Point(BaseModel):
    x: int = Field(description="across")
    y: float = 0.5


@tools.tool_func
def move(point: Point, by: int = 1) -> Point:
    return point


for name in ("add", "greet", "fail", "move"):
    print(tools.get_tool_info()[name])
print(sorted(tool["name"] for tool in tools.get_tool_list(["words", "polite"])))
print(tools.get_tool_list("w"), tools.get_tool_info("broken"))

print(tools.call_tool("add", {"a": 1}), tools.call_tool("greet", {"name": "you"}))
print(tools.call_tool("fail", {}), "|", tools.call_tool("nothing", {}))
print(tools.get_tool_func("add") is add, tools.get_tool_func("nothing"))
print(tools.get_tool_func("greet", shift="sync")(name="from sync"))

# What is not JSON passes through: the function gets the very object.
received = []


@dataclass
class Pair:
    left: object
    right: object = None


class Unknown:
    def __repr__(self) -> str:
        return "Unknown()"


def keep(value: object) -> object:
    received.append(value)
    return value


tools.register(name="keep", desc="Keep a value.", kwargs={"value": (object, "any")}, func=keep)
for value in (
    b"abc",
    Path("a/b"),
    Point(x=1),
    Pair(1, Path("c")),
    Unknown(),
    {1, 2},
    (1, 2),
    {"in": Unknown()},
    [b"d"],
):
    result = tools.call_tool("keep", {"value": value})
    print(repr(result), type(result).__name__, received.pop() is value)
print(tools.call_tool("move", {"point": Point(x=3)}), tools.call_tool("move", {"point": {"x": 3}}))
print(tools.call_tool("keep", {}).startswith("Error: "), "|", tools.call_tool("keep", {"value": Unknown(), "more": 1}))

# A name that is registered again.
tools.register(name="fail", desc="It does not fail.", kwargs={}, func=lambda: "fine")
print(tools.get_tool_info()["fail"], tools.call_tool("fail", {}))


def down(depth: int) -> object:
    return tools.get_tool_func("down")(depth - 1) if depth else "the end"


tools.register(name="down", desc="Nested.", kwargs={"depth": (int, "")}, func=down)
print(tools.call_tool("down", {"depth": 4}))


@tools.tool_func
def collect(first: int = 1, **others: object) -> object:
    return first, others


print(tools.call_tool("collect", {"second": {"a": [2]}, "third": None}))


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

    # The same server once more, with another tool: its names are registered again.
    await tools.async_use_mcp({"mcpServers": {"demo": {"command": command, "args": [*args, "--kinds"]}}}, tags="kinds")
    print(sorted(tools.get_tool_info("kinds")))
    for kind in ("text", "image", "audio", "embedded", "link", "nothing"):
        print(await tools.async_call_tool("show_one", {"kind": kind}))
    print(await tools.get_tool_func("multiply")(a=4))


asyncio.run(with_a_server())
