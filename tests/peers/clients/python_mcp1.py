"""The Python SDK 1.x: the handshake era."""

from contextlib import AsyncExitStack

from contract import Answer, Order, drive, dumped
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def talk(order: Order) -> Answer:
    async with AsyncExitStack() as stack:
        if order.transport == "stdio":
            transport = stdio_client(StdioServerParameters(command=order.command[0], args=order.command[1:]))
        elif order.transport == "sse":
            transport = sse_client(order.url)
        else:
            transport = streamable_http_client(order.url)
        streams = await stack.enter_async_context(transport)
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        version = str((await session.initialize()).protocolVersion)
        page = await session.list_tools()
        tools = [tool.name for tool in page.tools]
        while page.nextCursor:
            page = await session.list_tools(cursor=page.nextCursor)
            tools += [tool.name for tool in page.tools]
        results = [dumped(await session.call_tool(tool, arguments)) for tool, arguments in order.calls]
    return Answer(version, tools, results)


drive("python_mcp1", talk)
