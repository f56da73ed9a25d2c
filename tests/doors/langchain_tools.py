"""Run with LangChain installed: tools of the hub as LangChain tools, and LangChain tools as tools of the hub.

`langchain_tools.py CONFIGURATION` prints one JSON object.
"""

import asyncio
import json
import sys
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool

from mcp_hub import ToolExecutor, ToolManager


def failure(call: Any) -> str:
    try:
        call()
    except ToolException as error:
        return str(error).partition(":")[0]
    raise AssertionError("the call did not fail")


async def asynchronous(tools: dict[str, BaseTool]) -> dict[str, Any]:
    sums = await asyncio.gather(*(tools["calculate"].ainvoke({"a": number, "b": 1}) for number in range(3)))
    try:
        await tools["fail"].ainvoke({})
    except ToolException as error:
        code = str(error).partition(":")[0]
    # A sync call within a running loop.
    return {"calculate": sums, "fail": code, "within": tools["calculate"].invoke({"a": 1, "b": 1})}


with ToolManager.from_config(sys.argv[1]) as manager:
    executor = ToolExecutor(manager)
    listed = {tool.tool_name: tool for tool in manager.load_tools()}
    tools = {name: tool.to_langchain(executor) for name, tool in listed.items()}
    call = {"name": "calculate", "args": {"a": 2, "b": 3}, "id": "call_1", "type": "tool_call"}
    answer = tools["calculate"].invoke(call)
    handled = tools["fail"].model_copy(update={"handle_tool_error": True})
    print(
        json.dumps(
            {
                "tools": sorted(tools),
                "are": all(isinstance(tool, BaseTool) for tool in tools.values()),
                "sync": {
                    name: tools[name].invoke(arguments)
                    for name, arguments in {
                        "calculate": {"a": 1, "b": 2},
                        "nothing": {},
                        "echo": {"text": "hello"},
                        "langchain_sum": {"a": 20, "b": 22},
                        "langchain_upper": {"text": "x"},
                    }.items()
                },
                "message": [isinstance(answer, ToolMessage), answer.content, answer.tool_call_id],
                "async": asyncio.run(asynchronous(tools)),
                "fail": failure(lambda: tools["fail"].invoke({})),
                "invalid": failure(lambda: tools["calculate"].invoke({"a": "one"})),
                "handled": handled.invoke({}),
                "openai": convert_to_openai_tool(tools["calculate"]),
                "described": {name: listed[name].description for name in ("langchain_sum", "langchain_upper")},
                "executor": executor.execute("langchain_sum", {"a": "x"}).code,
            }
        )
    )
