"""The Python SDK 2.x: `auto` asks for the modern era first, `legacy` shakes hands."""

from contract import Answer, Order, drive, dumped
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client


async def talk(order: Order) -> Answer:
    if order.transport == "stdio":
        server = StdioServerParameters(command=order.command[0], args=order.command[1:])
    else:
        server = sse_client(order.url) if order.transport == "sse" else order.url
    async with Client(server, mode=order.mode or "auto") as client:
        page = await client.list_tools()
        tools = [tool.name for tool in page.tools]
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            tools += [tool.name for tool in page.tools]
        results = [dumped(await client.call_tool(tool, arguments)) for tool, arguments in order.calls]
        version = client.protocol_version
    return Answer(version, tools, results)


drive("python_mcp2", talk)
