"""AgentScope 2.0: its one MCP client, whose tools are called as it hands them out. `--mode stateful|stateless`."""

import logging

from agentscope.mcp import HttpMCPConfig, MCPClient, StdioMCPConfig
from contract import Answer, Order, drive


async def talk(order: Order) -> Answer:
    logging.getLogger("as").setLevel(logging.WARNING)  # it logs to stdout
    if order.transport == "stdio":
        config = StdioMCPConfig(command=order.command[0], args=order.command[1:])
    else:
        config = HttpMCPConfig(url=order.url)
    client = MCPClient(name="hub", is_stateful=order.mode != "stateless", mcp_config=config)
    if client.is_stateful:
        await client.connect()
    tools = await client.list_tools()
    results = []
    for name, arguments in order.calls:
        tool = await client.get_tool(name)
        chunk = await tool(**arguments)
        results.append({**chunk.model_dump(mode="json"), "called": tool.name})
    if client.is_stateful:
        await client.close()
    prefix = "mcp__hub__"
    return Answer(None, [tool.name.removeprefix(prefix) for tool in tools], results)


drive("agentscope2", talk)
