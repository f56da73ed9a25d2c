"""AgentScope and the hub in one program: what AgentScope makes, the hub's Toolkit takes, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.doors.packages import python_beside
from tests.doors.programs import output
from tests.observability.spans.collector import collecting

pytestmark = pytest.mark.anyio


async def printed(tmp_path: Path, environment: str, code: str, *args: str) -> list[str]:
    """The lines that a program prints in an environment with AgentScope and the hub."""
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    return await output(program, *args, python=await python_beside(environment, tmp_path / "beside"))


CALL = """
import asyncio, json, sys
from mcp_hub import Toolkit

async def call(toolkit, block):
    async for chunk in await toolkit.call_tool_function(block):
        print(json.dumps([chunk.content, chunk.metadata, chunk.is_last, chunk.is_interrupted]))
"""

OF_1 = """
from functools import partial
from agentscope.message import ImageBlock, TextBlock, ToolUseBlock, URLSource
from agentscope.module import StateModule
from agentscope.session import JSONSession
from agentscope.tool import Toolkit as Theirs, ToolResponse

def picture(of: str) -> ToolResponse:
    image = ImageBlock(type="image", source=URLSource(type="url", url="https://example.org/a.png"))
    return ToolResponse(content=[TextBlock(type="text", text=of), image], metadata={"of": of})

async def steps(count: int):
    for step in range(count):
        yield ToolResponse(content=[TextBlock(type="text", text=str(step))], stream=True, is_last=step == count - 1)

def marked(call, response):
    assert isinstance(response, ToolResponse)
    return ToolResponse(content=response.content + [TextBlock(type="text", text=call["name"])])

class Holder(StateModule):
    def __init__(self, toolkit):
        super().__init__()
        self.toolkit = toolkit

async def main():
    toolkit = Toolkit()
    toolkit.create_tool_group("g", "A group.", active=True)
    toolkit.register_tool_function(picture)
    toolkit.register_tool_function(picture, postprocess_func=marked, func_name="marked")
    toolkit.register_tool_function(steps)
    for name, given in (("picture", {"of": "it"}), ("marked", {"of": "it"}), ("steps", {"count": 2})):
        await call(toolkit, ToolUseBlock(type="tool_use", id="1", name=name, input=given))
    print(isinstance(toolkit, StateModule), isinstance(toolkit, Theirs), isinstance(toolkit, Toolkit))
    print(Holder(toolkit).state_dict())
    session = JSONSession(save_dir=sys.argv[1])
    await session.save_session_state("s", toolkit=toolkit)
    toolkit.update_tool_groups(["g"], active=False)
    await session.load_session_state("s", toolkit=toolkit)
    print(toolkit.state_dict())
    listed = await toolkit.hub.list()
    print([card.definition.get("outputSchema") for card in listed])
    print(json.dumps(await toolkit.hub.call(listed[0].server, "picture", {"of": "x"})))
    await toolkit.aclose()

asyncio.run(main())
"""


async def test_the_hub_accepts_responses_blocks_and_state_modules_of_agentscope_1(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    link = {"type": "resource_link", "uri": "https://example.org/a.png", "name": "https://example.org/a.png"}
    lines = await printed(tmp_path, "agentscope1", CALL + OF_1, str(tmp_path / "sessions"))
    assert [json.loads(line) for line in lines[:4]] == [
        [[{"type": "text", "text": "it"}, picture], {"of": "it"}, True, False],
        [[{"type": "text", "text": "it"}, picture, {"type": "text", "text": "marked"}], None, True, False],
        [[{"type": "text", "text": "0"}], None, False, False],
        [[{"type": "text", "text": "1"}], None, True, False],
    ]
    assert lines[4:8] == [
        "True True True",
        "{'toolkit': {'active_groups': ['g']}}",
        "{'active_groups': ['g']}",
        "[None, None, None]",
    ]
    assert json.loads(lines[8]) == {"content": [{"type": "text", "text": "x"}, link], "_meta": {"of": "x"}}


SIGNATURES = """
import dataclasses, inspect
import agentscope.mcp, agentscope.tool, mcp_hub
from agentscope.tool import _types as their_types
from mcp_hub.library.agentscope import registered_tools, tool_groups

def parameters(function):
    return list(inspect.signature(function).parameters.values())

def compared(name, theirs, ours):
    for one in parameters(theirs):
        same = [other for other in parameters(ours) if other.name == one.name]
        if not same or (one.default is not one.empty and same[0].default != one.default):
            print(name, one, "is", same)
    if [one.name for one in parameters(theirs)] != [one.name for one in parameters(ours)][: len(parameters(theirs))]:
        print(name, "has another order")

methods = 0
for module, names in (
    (agentscope.tool, ("Toolkit",)),
    (agentscope.mcp, agentscope.mcp.__all__),
):
    for name in names:
        theirs, ours = getattr(module, name), getattr(mcp_hub, name)
        if name in ("Toolkit", "HttpStatefulClient", "HttpStatelessClient", "StdIOStatefulClient"):
            compared(name, theirs.__init__, ours.__init__)
        for method, function in vars(theirs).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                if hasattr(ours, method):
                    methods += 1
                    compared(f"{name}.{method}", function, getattr(ours, method))
                else:
                    print(name, "has no", method)
functions = ("execute_python_code", "execute_shell_command", "insert_text_file", "view_text_file", "write_text_file")
for name in functions:
    compared(name, getattr(agentscope.tool, name), getattr(mcp_hub, name))
for theirs, ours in (
    (their_types.RegisteredToolFunction, registered_tools.RegisteredToolFunction),
    (their_types.ToolGroup, tool_groups.ToolGroup),
    (agentscope.tool.ToolResponse, mcp_hub.ToolResponse),
):
    fields = [one.name for one in dataclasses.fields(theirs)]
    print(fields == [one.name for one in dataclasses.fields(ours)][: len(fields)])
print(methods > 20)
"""


@pytest.mark.parametrize(
    ("environment", "differences"),
    [("agentscope1", []), ("agentscope1_newest", ["Toolkit.register_tool_function has another order"])],
)
async def test_every_parameter_of_agentscopes_toolkit_has_the_same_name_position_and_default(
    tmp_path: Path, environment: str, differences: list[str]
) -> None:
    """The class diagrams of seed 004, lines 43 to 75 and 163 to 243."""
    lines = await printed(tmp_path, environment, SIGNATURES)
    assert lines == [*differences, "True", "True", "True", "True"]


OF_2 = """
from agentscope.message import Base64Source, DataBlock, TextBlock, ToolCallBlock
from agentscope.tool import ToolChunk, ToolResponse

def picture(of: str) -> ToolResponse:
    image = DataBlock(source=Base64Source(data="aGk=", media_type="image/png"))
    return ToolResponse(content=[TextBlock(text=of), image], metadata={"of": of})

async def steps(count: int):
    for step in range(count):
        yield ToolChunk(content=[TextBlock(text=str(step))], is_last=step == count - 1)

async def main():
    toolkit = Toolkit()
    toolkit.register_tool_function(picture)
    toolkit.register_tool_function(steps)
    for name, given in (("picture", '{"of": "it"}'), ("steps", '{"count": 2}'), ("picture", "[1]")):
        await call(toolkit, ToolCallBlock(id="1", name=name, input=given))
    await toolkit.aclose()

asyncio.run(main())
"""


async def test_the_hub_accepts_chunks_and_calls_of_agentscope_2(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "aGk=", "media_type": "image/png"}}
    *lines, refused = [json.loads(line) for line in await printed(tmp_path, "agentscope2", CALL + OF_2)]
    assert lines == [
        [[{"type": "text", "text": "it"}, picture], {"of": "it"}, True, False],
        [[{"type": "text", "text": "0"}], None, False, False],
        [[{"type": "text", "text": "1"}], None, True, False],
    ]
    assert refused[0][0]["text"].startswith("Error: ")


TRACED = """
from agentscope.agent import ReActAgent
from agentscope.formatter import DashScopeChatFormatter
from agentscope.message import Msg, TextBlock, ToolUseBlock
from agentscope.model import ChatModelBase, ChatResponse
from agentscope.tool import ToolResponse
import agentscope

class Script(ChatModelBase):
    def __init__(self, *turns):
        super().__init__("script", stream=False)
        self.turns = list(turns)

    async def __call__(self, *_, **__):
        return ChatResponse(content=self.turns.pop(0))

def use(id, tool, **given):
    return ToolUseBlock(type="tool_use", id=id, name=tool, input=given)

def add(a: int, b: int) -> ToolResponse:
    from opentelemetry import trace
    with trace.get_tracer("mine").start_as_current_span("adding"):
        return ToolResponse(content=[TextBlock(type="text", text=str(a + b))])

def fail() -> ToolResponse:
    raise ValueError("no such thing")

async def fail_late():
    yield ToolResponse(content=[TextBlock(type="text", text="so far")], stream=True, is_last=False)
    raise LookupError("no more")

async def main():
    toolkit = Toolkit()
    toolkit.create_tool_group("off", "Off.")
    toolkit.register_tool_function(add)
    toolkit.register_tool_function(add, "off", func_name="late")
    await call(toolkit, use("before", "add", a=1, b=2))
    agentscope.init(tracing_url=sys.argv[1])  # the hub has run before
    toolkit.register_tool_function(fail)
    toolkit.register_tool_function(fail_late)
    turns = [
        [use("one", "add", a=1, b=2), use("five", "fail"), use("six", "fail_late")],
        [use("two", "late", a=1, b=2), use("three", "absent")],
    ]
    switched = [use("four", "reset_equipped_tools", off=True)]
    model = Script(*turns, switched, [TextBlock(type="text", text="done")])
    agent = ReActAgent("Friday", "You.", model, DashScopeChatFormatter(), toolkit=toolkit, enable_meta_tool=True)
    agent.set_console_output_enabled(False)
    await agent(Msg("user", "add", "user"))
    await toolkit.aclose()
    from opentelemetry import trace
    trace.get_tracer_provider().force_flush()

asyncio.run(main())
"""


async def test_spans_go_to_the_programs_tracer_provider_with_the_ids_of_its_blocks(tmp_path: Path) -> None:
    """Row A001-21: `trace_toolkit` makes a span of each call, with what went in, what came out and the error."""
    with collecting() as collector:
        await printed(tmp_path, "agentscope1", CALL + TRACED, f"{collector.url}/v1/traces")
        spans = collector.spans
    (agent,) = [span for span in spans if span.name.startswith("invoke_agent")]
    tools = {span.attributes["gen_ai.tool.call.id"]: span for span in spans if span.name.startswith("execute_tool")}
    assert {id: span.name for id, span in tools.items()} == {
        "one": "execute_tool add",
        "two": "execute_tool late",
        "three": "execute_tool absent",
        "four": "execute_tool reset_equipped_tools",
        "five": "execute_tool fail",
        "six": "execute_tool fail_late",
    }
    assert {(span.trace, span.parent) for span in tools.values()} == {(agent.trace, agent.id)}
    added = tools["one"].attributes
    assert json.loads(added["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 2}
    assert json.loads(added["gen_ai.tool.call.result"])["content"] == [{"type": "text", "text": "3"}]
    assert sorted(id for id, span in tools.items() if span.error) == ["five", "six", "three", "two"]
    types = {"five": "ValueError", "six": "LookupError"}
    for id, type in types.items():
        ((name, attributes),) = tools[id].events
        assert (name, attributes["exception.type"]) == ("exception", type)
    assert "no such thing" in tools["five"].attributes["gen_ai.tool.call.result"]
    assert "FunctionInactiveError" in tools["two"].attributes["gen_ai.tool.call.result"]
    (inside,) = [span for span in spans if span.name == "adding"]
    assert inside.parent == tools["one"].id
