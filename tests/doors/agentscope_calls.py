"""What AgentScope's Toolkit and MCP clients do with interruptions, clients of a program's own, middlewares and tasks.

python agentscope_calls.py PYTHON SERVER.py [newest]
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import mcp.types
from mcp import StdioServerParameters, stdio_client
from pydantic import TypeAdapter

import mcp_hub as clients_module  # was: import agentscope.mcp as clients_module
from mcp_hub import Toolkit, ToolResponse  # was: from agentscope.tool import Toolkit, ToolResponse

MCPClientBase, MCPToolFunction = clients_module.MCPClientBase, clients_module.MCPToolFunction

command, server, *options = sys.argv[1:]


def text(value: str, **fields: Any) -> ToolResponse:
    return ToolResponse(content=[{"type": "text", "text": value}], **fields)


def block(name: str, **arguments: Any) -> Any:
    return {"type": "tool_use", "id": "1", "name": name, "input": arguments}


async def call(toolkit: Toolkit, name: str, **arguments: Any) -> str:
    texts = []
    async for chunk in await toolkit.call_tool_function(block(name, **arguments)):
        texts = [part["text"] for part in chunk.content]
        print(name, texts, chunk.is_last, chunk.is_interrupted)
    return texts[0]


async def interrupted() -> ToolResponse:
    """Wait for a task that is cancelled."""
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task
    return text("never")


async def interrupted_stream() -> AsyncIterator[ToolResponse]:
    """Yield, and wait for a task that is cancelled."""
    yield text("a", stream=True, is_last=False)
    yield text("a b", stream=True, is_last=False, id="2")
    await interrupted()


class Mine(MCPClientBase):
    """A client of the program's own: its tools are functions."""

    def __init__(self) -> None:
        super().__init__(name="mine")

    async def list_tools(self) -> list[Any]:
        return [SimpleNamespace(name="greet"), SimpleNamespace(name="leave")]

    async def get_callable_function(
        self, func_name: str, wrap_tool_result: bool = True, execution_timeout: float | None = None
    ) -> Any:
        async def greet(who: str) -> ToolResponse:
            """Greet somebody."""
            content = [mcp.types.TextContent(type="text", text=f"{func_name} {who}")]
            return ToolResponse(content=self._convert_mcp_content_to_as_blocks(content))

        greet.__name__ = func_name
        return greet


class Session:
    """Stands for a session that the program has opened."""

    async def call_tool(self, name: str, arguments: dict[str, Any], **options: Any) -> Any:
        return mcp.types.CallToolResult(content=[mcp.types.TextContent(type="text", text=f"{name} {arguments}")])


async def clients(toolkit: Toolkit) -> None:
    await toolkit.register_mcp_client(Mine(), disable_funcs=["leave"])
    await call(toolkit, "greet", who="you")

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tool = mcp.types.Tool(name="say", description="Say it.", inputSchema=schema)
    toolkit.register_tool_function(MCPToolFunction("mine", tool, wrap_tool_result=True, session=Session()))
    await call(toolkit, "say", text="hello")
    print(toolkit.tools["say"].mcp_name, toolkit.get_json_schemas()[-1]["function"]["name"])
    await toolkit.remove_mcp_clients(["mine"])
    parameters = StdioServerParameters(command=command, args=[server])
    real = MCPToolFunction("real", tool, wrap_tool_result=True, client_gen=lambda: stdio_client(parameters))
    print((await real(text="hello")).content, real.session, real.client_gen is not None)
    for both in ({}, {"session": Session(), "client_gen": lambda: stdio_client(parameters)}):
        try:
            MCPToolFunction("real", tool, wrap_tool_result=True, **both)
        except ValueError as error:
            print("ValueError:", error)

    client = clients_module.StdIOStatefulClient(name="demo", command=command, args=[server])
    print(client.session, hasattr(client, "client"), client.is_connected)
    await client.connect()
    say = await client.get_callable_function("say", wrap_tool_result=False)
    print(say.session is client.session, say.client_gen)
    raw = await say(text="hello")
    print(isinstance(raw, mcp.types.CallToolResult), isinstance(raw.content[0], mcp.types.TextContent))
    print(TypeAdapter(mcp.types.CallToolResult).dump_python(raw, by_alias=True, exclude_none=True)["content"])
    print(copy.deepcopy(raw) == raw, pickle.loads(pickle.dumps(raw)) == raw)
    result = await client.session.call_tool("say", {"text": "again"})
    print(result.content[0].text, sorted(tool.name for tool in (await client.session.list_tools()).tools))
    print(MCPClientBase._convert_mcp_content_to_as_blocks(result.content))
    show = await client.get_callable_function("show")
    print((await show()).content)
    await client.close()


async def middlewares(toolkit: Toolkit) -> None:
    def marked(mark: str) -> Any:
        async def middleware(kwargs: dict[str, Any], next_handler: Any) -> AsyncIterator[ToolResponse]:
            tool_call = kwargs["tool_call"]
            if tool_call["input"]["text"] == "stop":
                yield text(f"stopped by {mark}")
                return
            tool_call["input"]["text"] += f" {mark}"
            async for chunk in await next_handler(**kwargs):
                chunk.content[0]["text"] += f" after {mark}"
                yield chunk

        return middleware

    async def echo(text: str) -> ToolResponse:
        """Say it."""
        return ToolResponse(content=[{"type": "text", "text": text}])

    toolkit.register_tool_function(echo, func_name="other")
    print(toolkit.tools["other"].original_name)
    for mark in ("one", "two"):
        toolkit.register_middleware(marked(mark))
    await call(toolkit, "other", text="hello")
    await call(toolkit, "other", text="stop")


async def tasks(toolkit: Toolkit) -> None:
    resume = asyncio.Event()

    async def slow(word: str) -> AsyncIterator[ToolResponse]:
        """Wait."""
        yield text(word, stream=True, is_last=False)
        await resume.wait()
        yield text(f"{word} done", stream=True, id="2")

    async def fails() -> ToolResponse:
        """Fail."""
        raise ValueError("no")

    async def start(tool: str, **arguments: Any) -> str:
        async for chunk in await toolkit.call_tool_function(block(tool, **arguments)):
            reminder = chunk.content[0]["text"]
        id = re.search(r"Task ID: (\w+)", reminder)[1]
        print(reminder.replace(id, "ID"))
        return id

    async def ask(tool: str, id: str, **arguments: Any) -> None:
        async for chunk in await toolkit.call_tool_function(block(tool, task_id=id, **arguments)):
            print(tool, [part["text"].replace(id, "ID") for part in chunk.content], chunk.is_interrupted)

    for function in (toolkit.view_task, toolkit.wait_task, toolkit.cancel_task):
        toolkit.register_tool_function(function)
        print(toolkit.get_json_schemas()[-1])
    for function in (slow, fails):
        toolkit.register_tool_function(function, async_execution=True)
    first, second, third = [await start("slow", word=word) for word in ("a", "b", "c")]
    await ask("view_task", first)
    await ask("wait_task", first, timeout=0.05)
    await ask("cancel_task", second)
    resume.set()
    await ask("wait_task", first, timeout=60)
    await ask("view_task", first)
    await ask("view_task", second)
    print((await toolkit.wait_task(third, timeout=60)).content)
    await ask("cancel_task", "nonsense")
    failed = await start("fails")
    await asyncio.wait({toolkit._async_tasks[failed]})
    await ask("cancel_task", failed)
    await ask("view_task", failed)


async def main() -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(interrupted)
    toolkit.register_tool_function(interrupted_stream)
    await call(toolkit, "interrupted")
    await call(toolkit, "interrupted_stream")
    await clients(toolkit)
    if options == ["newest"]:
        await tasks(Toolkit())
        await middlewares(toolkit)


asyncio.run(main())
