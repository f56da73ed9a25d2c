"""Agently: `use_mcp` and `call_tool` of its tool manager, which opens a connection for every call."""

from agently import Agently
from contract import Answer, Order, drive


async def talk(order: Order) -> Answer:
    if order.transport == "stdio":
        command, *args = order.command
        transport = {"mcpServers": {"hub": {"command": command, "args": args}}}
    else:
        transport = order.url
    await Agently.tool.async_use_mcp(transport, tags="hub")
    tools = list(Agently.tool.get_tool_info("hub"))
    results = [{"returned": await Agently.tool.async_call_tool(name, arguments)} for name, arguments in order.calls]
    return Answer(None, tools, results)


drive("agently", talk)
