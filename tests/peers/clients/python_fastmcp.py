"""The client of fastmcp."""

from contract import Answer, Order, drive, dumped
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport


async def talk(order: Order) -> Answer:
    if order.transport == "stdio":
        transport = StdioTransport(order.command[0], order.command[1:], keep_alive=False)
    else:
        transport = (SSETransport if order.transport == "sse" else StreamableHttpTransport)(order.url)
    async with Client(transport, mode=order.mode or "auto") as client:
        tools = [tool.name for tool in await client.list_tools()]
        results = [dumped(await client.call_tool_mcp(tool, arguments)) for tool, arguments in order.calls]
        version = client.protocol_version
    return Answer(version, tools, results)


drive("python_fastmcp", talk)
