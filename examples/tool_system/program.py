"""The requirements of a tool system, section by section, on the files beside this program.

SEARCH_URL and SEARCH_KEY say where the search engine of `tools/native` is, REMOTE_URL and REMOTE_KEY the MCP server of
`tools/mcp/remote.yaml`. DEMO_PYTHON and DEMO_SERVER say what `tools/mcp/demo.yaml` starts in place of
`python examples/demo_server.py`.
"""

import asyncio
import logging
from pathlib import Path

from mcp_hub import BaseTool, ToolExecutor, ToolFormatter, ToolManager

HERE = Path(__file__).parent


class Model:
    """An ILLMClient that can or cannot call functions."""

    def __init__(self, can: bool) -> None:
        self.can = can

    def supports_function_calling(self) -> bool:
        return self.can


class Metrics:
    """An IMetricsCollector: the success rate."""

    def __init__(self) -> None:
        self.outcomes: list[bool] = []

    def record(self, *, server, tool, method, code, seconds, success) -> None:
        self.outcomes.append(success)


class Lines(logging.Handler):
    """The log lines of the calls, without their durations."""

    def emit(self, record: logging.LogRecord) -> None:
        print("log:", record.levelname, record.getMessage().rpartition(", ")[0])


metrics = Metrics()
tools = ToolManager.from_config(HERE / "servers.yaml", collectors=[metrics])
executor = ToolExecutor(tools)

print("# 4.1.1 three kinds of tools, all of them a BaseTool with name, description and parameters")
loaded = tools.load_tools()
for tool in loaded:
    parameters = [(parameter.name, parameter.type, parameter.required) for parameter in tool.parameters]
    print(type(tool).__name__, tool.name, parameters)
print(all(isinstance(tool, BaseTool) for tool in loaded))
search_tool = tools.get_tool("search_tool")
print(search_tool.api_url.endswith("/search"), search_tool.auth_method)
print(tools.get_tool("effect").mcp_server_url.endswith("/mcp"))

print("# 4.1.2 of equal names the first is kept")
calculate = tools.get_tool("calculate")
print(calculate.description, executor.execute(calculate, {"a": 2, "b": 3}).output)

print("# 4.2 tool sets, and the agent's tools")
print([tool.tool_name for tool in tools.get_tool_set("data_analysis_set")])
print([tool.tool_name for tool in tools.get_profile("agent")])
print([tool.tool_name for tool in tools.get_profile({"tool_sets": ["data_analysis_set"], "tools": ["search_tool"]})])
for missing in (lambda: tools.get_tool("no_tool"), lambda: tools.get_tool_set("no_set")):
    try:
        missing()
    except ValueError as error:
        print("ValueError:", str(error).partition(";")[0])

print("# 4.3 the strategy of output, and its formats")
formatter = tools.formatter
print(formatter.detect_strategy(Model(can=True)), formatter.format(calculate, {"a": 1, "b": 2}))
print(formatter.format_for_llm([calculate]))
print(formatter.detect_strategy(Model(can=False)), formatter.format(calculate, {"a": 1, "b": 2}))
print(formatter.format_for_llm([calculate]))
print(formatter.parse('{"name": "calculate", "parameters": {"a": 1, "b": 2}}'))
try:
    ToolFormatter({"function_calling": True, "fallback_to_structured_output": False}).detect_strategy(Model(can=False))
except Exception as error:
    print(type(error).__name__)

print("# 4.4 calls: sync, async, side by side")
print(executor.execute("sql_tool", {"query": "SELECT city FROM sales WHERE amount > 4"}))
print(asyncio.run(executor.async_execute(search_tool, {"q": "hub"})))
print(asyncio.run(executor.async_execute("effect", {})))
calls = [("plot_tool", {"amounts": [3, 5]}), ("fail", {}), ("excel_tool", {"limit": 1}), ("multiply", {"a": 21})]
for message in executor.execute_many(calls, parallel=True):
    print(message)

print("# 4.5 errors have a code and are not raised")
errors = [
    (calculate, {"a": "one", "b": 2}),
    (calculate, {"a": 1}),
    ("slow_tool", {}),
    ("wrong_key_tool", {"q": "hub"}),
    ("no_tool", {}),
]
for message in executor.execute_many(errors):
    print(message.tool_name, message.output, message.code, message.error.startswith(f"{message.code}: "))

print("# 5 each call is logged at INFO, and counted")
logger = logging.getLogger("mcp_hub.executor")
logger.setLevel(logging.INFO)
logger.addHandler(Lines())
executor.execute(calculate, {"a": 1, "b": 2})
executor.execute("fail", {})
print(len(metrics.outcomes), metrics.outcomes.count(True))
tools.close()
