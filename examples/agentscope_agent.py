"""AgentScope's own ReActAgent with the hub's Toolkit: its plan, its clients, its state and its structured output.

    python examples/agentscope_agent.py PYTHON SERVER.py

It needs AgentScope 1.0 in the same environment. The model is a script, so nothing is asked of a network. The line
marked `was:` is the only one that differs from the same program without the hub.
"""

import asyncio
import json
import sys

from agentscope.agent import ReActAgent
from agentscope.formatter import DashScopeChatFormatter
from agentscope.mcp import StdIOStatefulClient
from agentscope.message import Msg, TextBlock, ToolUseBlock
from agentscope.model import ChatModelBase, ChatResponse
from agentscope.plan import PlanNotebook
from agentscope.tool import ToolResponse
from pydantic import BaseModel, Field

from mcp_hub import Toolkit, execute_python_code  # was: from agentscope.tool import Toolkit, execute_python_code

command, *args = sys.argv[1:]


class Script(ChatModelBase):
    """A model that says what it was told to say, and notes what it was offered."""

    def __init__(self) -> None:
        super().__init__("script", stream=False)
        self.turns = []
        self.offers = []

    async def __call__(self, prompt, tools=None, tool_choice=None, **_):
        self.offers.append((sorted(tool["function"]["name"] for tool in tools or []), tool_choice))
        return ChatResponse(content=self.turns.pop(0))


def text_block(text: str) -> TextBlock:
    return TextBlock(type="text", text=text)


call_numbers = iter(range(10, 100))


def use(tool: str, /, **arguments) -> ToolUseBlock:
    return ToolUseBlock(type="tool_use", id=f"call-{next(call_numbers)}", name=tool, input=arguments)


class Report(BaseModel):
    """The answer that is asked for."""

    total: int = Field(description="The sum.")
    remark: str


def add(a: int, b: int, unit: str) -> ToolResponse:
    """Add two numbers.

    Args:
        a (int): The first one.
        b (int): The second one.
        unit (str): Of both.
    """
    return ToolResponse(content=[text_block(f"{a + b} {unit}")], metadata={"sum": a + b})


async def spell(word: str):
    """Spell a word.

    Args:
        word (str): Which one.
    """
    for end in range(1, len(word) + 1):
        yield ToolResponse(content=[text_block("-".join(word[:end]))], stream=True, is_last=end == len(word))


waits = asyncio.Event()


async def wait() -> ToolResponse:
    """Wait for ever."""
    waits.set()
    await asyncio.Event().wait()
    return ToolResponse(content=[])


def louder(call, response):
    """A post-processor that is asked about every chunk and changes some."""
    if call["name"] != "say":
        return None
    return ToolResponse(content=[text_block(response.content[0]["text"].upper())])


async def main() -> None:
    toolkit = Toolkit()
    toolkit.create_tool_group("letters", "Tools for letters.", notes="Spell slowly.")
    toolkit.register_tool_function(add, preset_kwargs={"unit": "apples"})
    toolkit.register_tool_function(spell, group_name="letters")
    toolkit.register_tool_function(wait)
    toolkit.register_tool_function(execute_python_code)
    client = StdIOStatefulClient(name="demo", command=command, args=args)
    await client.connect()
    await toolkit.register_mcp_client(client, enable_funcs=["say", "multiply"], postprocess_func=louder)

    model = Script()
    agent = ReActAgent(
        name="Friday",
        sys_prompt="You count.",
        model=model,
        formatter=DashScopeChatFormatter(),
        toolkit=toolkit,
        plan_notebook=PlanNotebook(),
        enable_meta_tool=True,
        parallel_tool_calls=True,
    )
    agent.set_console_output_enabled(False)

    async def ask(question: str, *turns, **options) -> None:
        model.turns, model.offers = list(turns), []
        before = len(await agent.memory.get_memory())
        reply = await agent(Msg("user", question, "user"), **options)
        print(reply.get_text_content(), json.dumps(reply.metadata))
        new_messages = (await agent.memory.get_memory())[before:]
        results = [block for message in new_messages for block in message.get_content_blocks("tool_result")]
        for block in sorted(results, key=lambda block: block["id"]):  # tools that run at once end in any order
            print(" ", block["name"], json.dumps(block["output"], ensure_ascii=False))
        for names, choice in model.offers:
            print(" ", choice, *names)

    await ask(
        "How many?",
        [use("add", a=1, b=2), use("multiply", a=21), use("say", text="hello")],
        [use("spell", word="hub")],
        [use("reset_equipped_tools", letters=True, plan_related=True)],
        [use("spell", word="hub"), use("execute_python_code", code="print(6 * 7)")],
        [use("generate_response", total=3, remark="apples")],
        [text_block("Three.")],
        structured_model=Report,
    )
    subtasks = [{"name": "count", "description": "Count.", "expected_outcome": "A number."}]
    await ask(
        "Plan.",
        [use("create_plan", name="p", description="d", expected_outcome="e", subtasks=subtasks)],
        [use("reset_equipped_tools")],
        [use("nothing")],
        [text_block("Planned.")],
    )

    # The state of the agent has that of its toolkit.
    toolkit.update_tool_groups(["letters"], active=True)
    state = agent.state_dict()
    print(state["toolkit"])
    toolkit.update_tool_groups(["letters"], active=False)
    agent.load_state_dict(state)
    print(toolkit.state_dict())

    # An agent that is interrupted.
    model.turns = [[use("wait")]]
    reply = asyncio.ensure_future(agent(Msg("user", "Wait.", "user")))
    await waits.wait()
    await agent.interrupt()
    print((await reply).get_text_content())
    print((await agent.memory.get_memory())[-2].content[0]["output"])
    await client.close()


asyncio.run(main())
