"""The tool module as its operating procedure describes it: partials, schemas by hand, a finish function, raw results.

    python examples/agentscope_sop.py PYTHON SERVER.py

The names are those of that text: plain async generators, `get_tool_group_notes`, `remove_mcp_servers`.
"""

import asyncio
import sys
from functools import partial

from pydantic import BaseModel

from mcp_hub import StdIOStatefulClient, Toolkit, ToolResponse

command, *args = sys.argv[1:]


def text(value: str) -> ToolResponse:
    return ToolResponse(content=[{"type": "text", "text": value}])


def query_table(table: str, limit: int, dsn: str) -> ToolResponse:
    """Read rows of a table."""
    return text(f"{limit} rows of {table} from {dsn}")


async def sub_agent(**task) -> ToolResponse:
    return text(f"sub-agent works on {task['query']!r}")


def finish(response: str, **answer) -> ToolResponse:
    """Give the final answer."""
    return ToolResponse(content=[{"type": "text", "text": "done"}], metadata={"response_msg": response, **answer})


async def stream(title: str):
    """Write a page, part by part."""
    page = ""
    for part in (title, ", ", "the end"):
        page += part
        yield ToolResponse(content=[{"type": "text", "text": page}], stream=True, is_last=part == "the end")


def fail() -> ToolResponse:
    """Fail."""
    raise RuntimeError("no such table")


class Answer(BaseModel):
    confidence: float


async def main() -> None:
    toolkit = Toolkit()
    toolkit.create_tool_group("database", "Tables.", active=True, notes="Ask for few rows.")
    toolkit.create_tool_group("writing", "Pages.", notes="Write short pages.")

    # What a partial has bound is preset, by position and by keyword: the model sees neither.
    toolkit.register_tool_function(partial(query_table, "orders", dsn="db://host"), group_name="database")
    # The wrapper of a sub-agent has no parameters of its own: the schema comes with it.
    input_model = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    function = {"name": "sub_agent", "description": "Ask another agent.", "parameters": input_model}
    toolkit.register_tool_function(sub_agent, json_schema={"type": "function", "function": function})
    toolkit.register_tool_function(stream, group_name="writing")
    toolkit.register_tool_function(finish)
    toolkit.register_tool_function(fail)
    toolkit.set_extended_model("finish", Answer)

    for schema in toolkit.get_json_schemas():
        print(schema["function"]["name"], sorted(schema["function"]["parameters"]["properties"]))
    print([schema["function"]["parameters"] for schema in toolkit.get_json_schemas(["writing"])])

    async def call(name: str, **arguments) -> None:
        async for chunk in toolkit.call_tool_function(
            {"type": "tool_use", "id": "1", "name": name, "input": arguments}
        ):
            print(name, chunk.content, chunk.metadata, chunk.stream, chunk.is_last)

    await call("query_table", limit=2)
    await call("sub_agent", query="who is it?")
    await call("finish", response="It is you.", confidence=0.5)
    await call("fail")
    await call("stream", title="A page")
    toolkit.update_tool_groups(["writing"], active=True)
    await call("stream", title="A page")
    print(toolkit.get_tool_group_notes())

    for refused, error in (
        (lambda: toolkit.create_tool_group("database", "again"), ValueError),
        (lambda: toolkit.register_tool_function(fail), ValueError),
        (lambda: toolkit.remove_tool_groups("basic"), ValueError),
        (lambda: toolkit.register_tool_function(text, json_schema={"name": "text"}), TypeError),
    ):
        try:
            refused()
        except error as raised:
            print(type(raised).__name__)

    client = StdIOStatefulClient(name="demo", command=command, args=args)
    await client.connect()
    await toolkit.register_mcp_client(client, enable_funcs=["divide", "say"], wrap_tool_result=False)
    async for raw in toolkit.call_tool_function(
        {"type": "tool_use", "id": "2", "name": "divide", "input": {"a": 1, "b": 0}}
    ):
        print("divide", raw.isError, raw.content[0].text)
    await toolkit.remove_mcp_servers(["demo"])
    print(sorted(toolkit.tools))
    await client.close()

    state = toolkit.state_dict()
    toolkit.update_tool_groups(["database", "writing"], active=False)
    toolkit.load_state_dict(state)
    print(toolkit.state_dict())
    await toolkit.aclose()

    # "Exceptions are raised upward": for those who have an agent that decides.
    async with Toolkit(raise_on_error=True) as strict:
        strict.register_tool_function(fail)
        try:
            async for _ in strict.call_tool_function({"type": "tool_use", "id": "3", "name": "fail", "input": {}}):
                pass
        except RuntimeError as raised:
            print("raised:", raised)


asyncio.run(main())
