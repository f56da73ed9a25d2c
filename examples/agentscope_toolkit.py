"""AgentScope's Toolkit: functions, groups, presets, post-processing and a server in one toolkit.

    python examples/agentscope_toolkit.py PYTHON SERVER.py

The lines marked `was:` are the only ones that differ from the same program written for AgentScope 1.0.
"""

import asyncio
import json
import os
import sys
import tempfile
from functools import partial

from pydantic import BaseModel

import mcp_hub as tools  # was: import agentscope.tool as tools
from mcp_hub import StdIOStatefulClient  # was: from agentscope.mcp import StdIOStatefulClient
from mcp_hub import Toolkit, ToolResponse  # was: from agentscope.tool import Toolkit, ToolResponse

command, *args = sys.argv[1:]


def text(value: str, **fields) -> ToolResponse:
    return ToolResponse(content=[{"type": "text", "text": value}], **fields)


def weather(city: str, unit: str = "C", key: str = "") -> ToolResponse:
    """Tell the weather.

    It is always the same.

    Args:
        city (str): Where.
        unit (str): In which unit.
        key (str): What opens the service.
    """
    return text(f"{city}: 21 {unit}, asked with {key!r}")


async def remember(title: str) -> ToolResponse:
    """Remember something.

    Args:
        title (str): What it is called.
    """
    return text(f"remembered {title}", metadata={"title": title})


def count(steps: int):
    """Count.

    Args:
        steps (int): How far.
    """
    output = ""
    for step in range(1, steps + 1):
        output += f"{step} "
        yield text(output, stream=True, is_last=step == steps)


async def spell(word: str):
    """Spell a word.

    Args:
        word (str): Which one.
    """
    spelt = ""
    for letter in word:
        spelt += f"{letter}-"
        yield text(spelt, stream=True, is_last=len(spelt) == 2 * len(word))


def fail() -> ToolResponse:
    """Fail."""
    raise ValueError("boom")


def louder(call, response):
    """A post-processor: another response, or None to keep it."""
    if call["name"] != "say":
        return None
    return text(response.content[0]["text"].upper())


class Mood(BaseModel):
    mood: str


async def main() -> None:
    toolkit = Toolkit()

    async def call(name: str, **arguments) -> None:
        chunks = []
        async for chunk in await toolkit.call_tool_function(
            {"type": "tool_use", "id": "1", "name": name, "input": arguments}
        ):
            chunks.append((chunk.content[0]["text"], chunk.is_last, chunk.is_interrupted))
        print(name, chunks)

    def schemas() -> None:
        for schema in toolkit.get_json_schemas():
            tool = schema["function"]
            shape = {key: tool["parameters"].get(key) for key in ("type", "properties", "required")}
            print(schema["type"], tool["name"], json.dumps(shape, sort_keys=True))

    toolkit.register_tool_function(weather, preset_kwargs={"key": "sesame"})
    toolkit.register_tool_function(remember)
    toolkit.register_tool_function(count)
    toolkit.register_tool_function(fail, func_description="It always fails.")
    schemas()
    print([schema["function"]["description"] for schema in toolkit.get_json_schemas()])
    await call("weather", city="Hangzhou")
    await call("remember", title="a title")
    await call("count", steps=3)
    await call("fail")
    await call("nothing")

    # Names that are taken.
    try:
        toolkit.register_tool_function(fail)
    except ValueError as error:
        print("ValueError:", error)
    toolkit.register_tool_function(partial(weather, key="other"), namesake_strategy="skip")
    await call("weather", city="Berlin")
    toolkit.register_tool_function(partial(weather, key="other"), namesake_strategy="override")
    await call("weather", city="Berlin")

    # Groups.
    try:
        toolkit.register_tool_function(spell, group_name="letters")
    except ValueError as error:
        print("ValueError:", error)
    toolkit.create_tool_group("letters", "Tools for letters.", notes="Spell slowly.")
    toolkit.create_tool_group("demo", "The server of the examples.", active=True, notes="Be gentle with it.")
    toolkit.register_tool_function(spell, group_name="letters")
    await call("spell", word="hub")
    toolkit.update_tool_groups(["letters"], active=True)
    await call("spell", word="hub")
    print(toolkit.get_activated_notes())
    print(toolkit.state_dict())

    # A server.
    client = StdIOStatefulClient(name="demo", command=command, args=args)
    try:
        await toolkit.register_mcp_client(client)
    except RuntimeError as error:
        print("RuntimeError:", error)
    await client.connect()
    try:
        await toolkit.register_mcp_client(client, preset_kwargs_mapping=["search"])
    except TypeError as error:
        print("TypeError:", error)
    await toolkit.register_mcp_client(
        client,
        group_name="demo",
        disable_funcs=["divide"],
        preset_kwargs_mapping={"search": {"key": "secret", "limit": 2}},
        postprocess_func=louder,
    )
    print(sorted(toolkit.tools))
    await call("multiply", a=21)
    await call("search", query="hub")
    await call("say", text="goodbye")
    async for chunk in await toolkit.call_tool_function({"type": "tool_use", "id": "2", "name": "show", "input": {}}):
        for block in chunk.content:
            content = json.loads(block["text"]) if block.get("text", "").startswith("{") else block
            print(sorted((key, value) for key, value in content.items() if value is not None))

    # What the model itself may switch.
    toolkit.register_tool_function(toolkit.reset_equipped_tools)
    toolkit.set_extended_model("remember", Mood)
    schemas()
    await call("reset_equipped_tools", letters=True, demo=False)
    await call("say", text="goodbye")
    await call("reset_equipped_tools")
    print(sorted(schema["function"]["name"] for schema in toolkit.get_json_schemas()))
    toolkit.load_state_dict({"active_groups": ["demo"]})
    print(toolkit.state_dict())

    # What comes with it: programs and text files of this machine, if they are registered.
    for name in ("execute_python_code", "execute_shell_command", "view_text_file", "write_text_file"):
        toolkit.register_tool_function(getattr(tools, name))
    toolkit.register_tool_function(tools.insert_text_file)
    for schema in toolkit.get_json_schemas()[-5:]:
        shape = schema["function"]["parameters"]
        print(schema["function"]["name"], shape["required"], {k: v.get("type") for k, v in shape["properties"].items()})
    await call("execute_python_code", code="import sys; print(6 * 7); print('so', file=sys.stderr); sys.exit(3)")
    await call("execute_python_code", code="import time; print('begun', flush=True); time.sleep(600)", timeout=1)
    await call("execute_shell_command", command="echo shell; exit 2")
    await call("execute_shell_command", command="exec sleep 600", timeout=1)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        await call("write_text_file", file_path="new.txt", content="one\ntwo\nthree\n", ranges=[1, 2])
        await call("view_text_file", file_path="new.txt")
        await call("insert_text_file", file_path="new.txt", content="half", line_number=2)
        await call("insert_text_file", file_path="new.txt", content="far", line_number=9)
        await call("write_text_file", file_path="new.txt", content="2\n", ranges=[3, 3])
        await call("view_text_file", file_path="new.txt", ranges=[2, 3])
        await call("view_text_file", file_path="new.txt", ranges=[3, 2])
        await call("view_text_file", file_path="new.txt", ranges=[8, 9])
        await call("view_text_file", file_path="none.txt")
        await call("write_text_file", file_path="new.txt", content="all\n")
        os.chdir("/")
    print((await tools.execute_python_code("print('directly')")).content)

    # And away again.
    await toolkit.remove_mcp_clients(["demo"])
    await client.close()
    toolkit.remove_tool_groups("letters")
    toolkit.remove_tool_function("fail")
    toolkit.remove_tool_function("fail")
    try:
        toolkit.remove_tool_function("fail", allow_not_exist=False)
    except ValueError:
        print("ValueError: there is no such tool any more")
    try:
        toolkit.remove_tool_groups("basic")
    except ValueError as error:
        print("ValueError:", error)
    try:
        toolkit.load_state_dict({"active_groups": [], "more": 1})
    except ValueError:
        print("ValueError: this is not what state_dict gave")
    print(sorted(toolkit.tools))
    toolkit.clear()
    print(sorted(toolkit.tools), toolkit.groups)


asyncio.run(main())
