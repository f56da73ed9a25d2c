"""AgentScope 1.0: one of its three MCP clients, registered with a Toolkit; `--mode stateless` for the third of them."""

import logging

from agentscope.mcp import HttpStatefulClient, HttpStatelessClient, StdIOStatefulClient
from agentscope.tool import Toolkit
from contract import Answer, Order, drive


async def talk(order: Order) -> Answer:
    logging.getLogger("as").setLevel(logging.WARNING)  # it logs to stdout
    if order.transport == "stdio":
        client = StdIOStatefulClient(name="hub", command=order.command[0], args=order.command[1:])
    else:
        kind = HttpStatelessClient if order.mode == "stateless" else HttpStatefulClient
        transport = "sse" if order.transport == "sse" else "streamable_http"
        client = kind(name="hub", transport=transport, url=order.url)
    if not isinstance(client, HttpStatelessClient):
        await client.connect()
    toolkit = Toolkit()
    await toolkit.register_mcp_client(client)
    schemas = [schema["function"] for schema in toolkit.get_json_schemas()]
    results = []
    for number, (name, arguments) in enumerate(order.calls):
        call = {"type": "tool_use", "id": str(number), "name": name, "input": arguments}
        async for chunk in await toolkit.call_tool_function(call):
            last = chunk
        results.append({"content": last.content, "_meta": last.metadata, "is_last": last.is_last})
    if not isinstance(client, HttpStatelessClient):
        await client.close()
    return Answer(None, [schema["name"] for schema in schemas], results)


drive("agentscope1", talk)
