"""The tool system of the requirements: tools found in folders, sets, both formats of output, calls side by side.

SEARCH_URL, SEARCH_KEY, DEMO_PYTHON and DEMO_SERVER (examples/demo_server.py) say where its tools are.
"""

import asyncio
from pathlib import Path

from mcp_hub import ToolExecutor, ToolFormatter, ToolManager

HERE = Path(__file__).parent


class Model:
    """An LLM client that can or cannot call functions."""

    def __init__(self, can: bool) -> None:
        self.can = can

    def supports_function_calling(self) -> bool:
        return self.can


tools = ToolManager.from_config(HERE / "servers.yaml")
executor = ToolExecutor(tools)

# 4.1: found, of three kinds, all of one form.
for tool in tools.load_tools():
    print(tool.source, tool.name, [(one.name, one.type, one.required) for one in tool.parameters])
print([tool.name for tool in tools.get_tool_set("data_analysis_set")])
for missing in (lambda: tools.get_tool("excel_tool"), lambda: tools.get_tool_set("no_set")):
    try:
        missing()
    except ValueError as error:
        print("ValueError:", str(error).partition(";")[0])

# 4.3: both strategies.
calculate = tools.get_tool("calculate")
formatter = ToolFormatter({"function_calling": True, "fallback_to_structured_output": True})
print(formatter.detect_strategy(Model(can=True)), formatter.format(calculate, {"a": 1, "b": 2}))
print(formatter.format_for_llm([calculate]))
print(formatter.detect_strategy(Model(can=False)), formatter.format(calculate, {"a": 1, "b": 2}))
prompt = formatter.format_for_llm([calculate])
print("请按以下格式调用工具" in prompt, "calculate" in prompt)
print(formatter.parse('{"name": "calculate", "parameters": {"a": 1, "b": 2}}'))
try:
    ToolFormatter({"function_calling": True, "fallback_to_structured_output": False}).detect_strategy(Model(can=False))
except Exception as error:
    print(type(error).__name__)

# 4.4 and 4.5: calls, one by one and side by side; whatever fails is in its message.
print(executor.execute(calculate, {"a": 1, "b": 2}).output)
print(asyncio.run(executor.async_execute(tools.get_tool("search_tool"), {"q": "hub"})).output)
print(executor.execute(calculate, {"a": "one"}).code, executor.execute("fail", {}).error)
calls = [("wait", {"seconds": 0.3}), ("fail", {}), ("multiply", {"a": 21}), ("calculate", {"a": 2, "b": 2})]
for message in executor.execute_many(calls, parallel=True):
    print(message.tool_name, message.output, message.code)
tools.close()
