"""MiroFlow's ToolManager as its orchestrator uses it: definitions for the prompt, calls by position and by keyword.

python examples/miroflow_manager.py PYTHON SERVER.py --scrape
"""

import asyncio
import sys

from mcp import StdioServerParameters

from mcp_hub import ToolManager  # was: from miroflow_tools.manager import ToolManager

command, *args = sys.argv[1:]


class TaskLog:
    """What MiroFlow's task log does with a step, in one line."""

    def log_step(self, info_level, step_name, message, metadata=None):
        print(f"[{info_level}] {step_name}")


server_configs = [
    {"name": "tool-demo", "params": StdioServerParameters(command=command, args=args)},
    {"name": "tool-gone", "params": StdioServerParameters(command="/there/is/no/such/program", args=[])},
    {"name": "tool-odd", "params": 7},
]
manager = ToolManager(server_configs, tool_blacklist={("tool-demo", "divide")})
manager.set_task_log(TaskLog())


def for_the_prompt(servers) -> list[str]:
    """As MiroFlow's prompt builders read it: an entry with an error and without a name is no tool."""
    lines = []
    for server in servers:
        for tool in server["tools"]:
            if "error" in tool and "name" not in tool:
                lines.append(f"{server['name']}: {tool['error'].partition(':')[0]}")
            else:
                lines.append(f"{server['name']}: {tool['name']}({', '.join(tool['schema']['properties'])})")
    return lines


def to_be_repeated(result) -> bool:
    """As MiroFlow's orchestrator reads it: these beginnings mean that the query was not done."""
    text = str(result.get("result") or result.get("error"))
    return text.startswith(("Unknown tool:", "Error executing tool"))


async def turns() -> None:
    # Its demo page calls by position, its orchestrator by keyword.
    print(await manager.execute_tool_call("tool-demo", "multiply", {"a": 21}))
    result = await manager.execute_tool_call(server_name="tool-demo", tool_name="say", arguments={"text": "hi"})
    print(result, to_be_repeated(result))
    print(await manager.execute_tool_call("nobody", "say", {"text": "hi"}))
    print(await manager.execute_tool_call("tool-demo", "divide", {"a": 1, "b": 1}))
    print(to_be_repeated(await manager.execute_tool_call("tool-demo", "no_such_tool", {})))
    page = {"url": "https://huggingface.co/datasets/some/answers"}
    print(await manager.execute_tool_call("tool-demo", "scrape", page))


print(*for_the_prompt(asyncio.run(manager.get_all_tool_definitions())), sep="\n")
asyncio.run(turns())  # in another loop: the servers are still there
asyncio.run(manager.close())
