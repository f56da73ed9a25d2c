"""AgentScope's Toolkit: the methods, defaults and words its users know, through the hub."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from mcp_hub import Hub, StdIOStatefulClient, Toolkit, ToolResponse
from mcp_hub.config import Config
from mcp_hub.config.rules import PostProcess
from mcp_hub.errors import InvalidParameters
from tests.fakes.client import FAKE, PATIENCE, RpcError, fake, spawned

pytestmark = pytest.mark.anyio

NOTE = "<system-info>The tool call has been interrupted by the user.</system-info>"


class Point(BaseModel):
    x: int


def said(text: str, **more: Any) -> ToolResponse:
    return ToolResponse([{"type": "text", "text": text}], **more)


def block(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "call-1", "name": name, "input": arguments}


async def chunks(toolkit: Toolkit, name: str, **arguments: Any) -> list[ToolResponse]:
    async with asyncio.timeout(PATIENCE):
        return [chunk async for chunk in await toolkit.call_tool_function(block(name, **arguments))]


async def text(toolkit: Toolkit, name: str, **arguments: Any) -> str:
    (chunk,) = await chunks(toolkit, name, **arguments)
    assert chunk.is_last
    return str(chunk.content[0]["text"])


def add(a: int, b: int = 2) -> ToolResponse:
    """Add two numbers.

    Exactly.

    Args:
        a (int): The first one.
        b (int): The second one.
    """
    return said(str(a + b))


@pytest.fixture
async def toolkit() -> AsyncIterator[Toolkit]:
    async with Toolkit() as made:
        yield made


def parameters(toolkit: Toolkit, name: str = "add") -> dict[str, Any]:
    (schema,) = [one["function"] for one in toolkit.get_json_schemas() if one["function"]["name"] == name]
    found: dict[str, Any] = schema["parameters"]
    return found


def names(toolkit: Toolkit, groups: list[str] | None = None) -> list[str]:
    return [schema["function"]["name"] for schema in toolkit.get_json_schemas(groups)]


# --- registering ---------------------------------------------------------------------------------------------------


def test_models_are_told_of_a_function_as_they_always_were() -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(add)
    assert toolkit.get_json_schemas() == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Add two numbers.\nExactly.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "a": {"type": "integer", "description": "The first one."},
                        "b": {"type": "integer", "description": "The second one.", "default": 2},
                    },
                    "required": ["a"],
                },
            },
        }
    ]
    registered = toolkit.tools["add"]
    assert (registered.name, registered.group, registered.source, registered.original_func) == (
        "add", "basic", "function", add,
    )  # fmt: skip
    toolkit.close()


async def test_namesakes_are_refused_left_out_replaced_or_renamed(toolkit: Toolkit) -> None:
    """Check 37."""

    def other(a: int) -> ToolResponse:
        return said("other")

    other.__name__ = "add"
    toolkit.register_tool_function(add)
    with pytest.raises(ValueError, match=r"^A function with name 'add' is already registered in the toolkit\.$"):
        toolkit.register_tool_function(other)
    toolkit.register_tool_function(other, namesake_strategy="skip")
    assert await text(toolkit, "add", a=1) == "3"
    toolkit.register_tool_function(other, namesake_strategy="rename")
    assert names(toolkit) == ["add", "add_2"]
    assert toolkit.tools["add_2"].original_name == "add"
    assert (await text(toolkit, "add", a=1), await text(toolkit, "add_2", a=1)) == ("3", "other")
    toolkit.register_tool_function(other, namesake_strategy="override")
    assert names(toolkit) == ["add", "add_2"]
    assert await text(toolkit, "add", a=1) == "other"
    with pytest.raises(ValueError, match="strategy"):
        toolkit.register_tool_function(other, namesake_strategy="other")  # type: ignore[arg-type]
    async with Toolkit() as again:  # after a restart
        for _ in range(2):
            again.register_tool_function(add, namesake_strategy="rename")
        assert names(again) == ["add", "add_2"]


async def test_a_schema_by_hand_is_used_and_titles_go_but_not_properties_of_that_name(
    toolkit: Toolkit,
) -> None:
    """Check 41."""

    def wrapper(**arguments: Any) -> ToolResponse:
        return said(str(arguments))

    properties = {"title": {"type": "string", "title": "Title"}, "query": {"type": "string"}}
    schema = {
        "type": "function",
        "function": {
            "name": "search",
            "description": "By hand.",
            "parameters": {"type": "object", "properties": properties, "required": ["query"]},
        },
    }
    toolkit.register_tool_function(wrapper, json_schema=schema)
    assert parameters(toolkit, "search")["properties"] == {"title": {"type": "string"}, "query": {"type": "string"}}
    assert await text(toolkit, "search", query="q", title="t") == "{'query': 'q', 'title': 't'}"
    wrong: list[Any] = [{"type": "function"}, {"type": "function", "function": []}, {"name": "search"}]
    for bad in wrong:
        with pytest.raises(TypeError):
            toolkit.register_tool_function(wrapper, json_schema=bad)
    assert names(toolkit) == ["search"]


async def test_presets_and_what_a_partial_has_bound_are_hidden_and_win(
    toolkit: Toolkit, caplog: pytest.LogCaptureFixture
) -> None:
    secret = object()

    def send(to: str, key: Any, user: str = "nobody") -> ToolResponse:
        return said(f"{to} {key is secret} {user}")

    toolkit.register_tool_function(send, preset_kwargs={"key": secret, "user": "me"}, func_description="Said.")
    assert list(parameters(toolkit, "send")["properties"]) == ["to"]
    assert toolkit.get_json_schemas()[0]["function"]["description"] == "Said."
    assert await text(toolkit, "send", to="x", user="theirs", key=1) == "x True me"
    assert "dropped" in caplog.text
    assert "theirs" not in caplog.text
    toolkit.register_tool_function(functools.partial(send, "y", secret), func_name="bound")
    assert list(parameters(toolkit, "bound")["properties"]) == ["user"]
    assert toolkit.tools["bound"].preset_kwargs == {"to": "y", "key": secret}
    assert await text(toolkit, "bound", user="u") == "y True u"


async def test_a_function_gets_arguments_as_the_model_sent_them(toolkit: Toolkit) -> None:
    def where(point: Point, *rest: int, unit: Literal["m", "km"] = "m", **more: int) -> ToolResponse:
        return said(f"{type(point).__name__} {rest} {unit} {more}")

    toolkit.register_tool_function(where, include_var_positional=True, include_var_keyword=True)
    assert await text(toolkit, "where", point={"x": 1}, rest=[1, 2], more={"y": 3}) == "dict (1, 2) m {'y': 3}"
    assert (await text(toolkit, "where", point={"x": "one"})).startswith("Error: ")


# --- calling -------------------------------------------------------------------------------------------------------


def plain() -> ToolResponse:
    return said("a b")


async def coroutine() -> ToolResponse:
    return said("a b")


def generator() -> Generator[ToolResponse, None, None]:
    yield said("a", stream=True, is_last=False)
    yield said("a b", stream=True, is_last=True)


async def async_generator() -> AsyncGenerator[ToolResponse, None]:
    yield said("a", stream=True)
    yield said("a b", stream=True)


async def returned_generator() -> AsyncGenerator[ToolResponse, None]:
    return async_generator()


@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator, returned_generator])
async def test_every_kind_of_tool_gives_chunks_that_end_in_is_last(
    toolkit: Toolkit, function: Callable[..., Any]
) -> None:
    """Check 40."""
    toolkit.register_tool_function(function)
    got = await chunks(toolkit, function.__name__)
    expected = ["a b"] if function in (plain, coroutine) else ["a", "a b"]
    assert [chunk.content[0]["text"] for chunk in got] == expected
    assert got[-1].is_last
    directly = [chunk async for chunk in toolkit.call_tool_function(block(function.__name__))]
    assert [chunk.content for chunk in directly] == [chunk.content for chunk in got]


async def test_a_blocking_sync_tool_does_not_delay_another_call(toolkit: Toolkit) -> None:
    """Check 40."""
    entered, released = threading.Event(), threading.Event()

    def block_it() -> ToolResponse:
        entered.set()
        released.wait(PATIENCE)
        return said("released")

    toolkit.register_tool_function(block_it)
    toolkit.register_tool_function(add)
    blocked = asyncio.create_task(text(toolkit, "block_it"))
    assert await text(toolkit, "add", a=1) == "3"
    assert not blocked.done()
    released.set()
    assert await blocked == "released"


async def test_chunks_arrive_while_the_tool_runs_and_a_last_one_is_always_marked(toolkit: Toolkit) -> None:
    go = asyncio.Event()

    async def steps() -> AsyncGenerator[ToolResponse, None]:
        yield said("first", is_last=False)
        await go.wait()
        yield said("first second", is_last=False)

    async def nothing() -> AsyncGenerator[ToolResponse, None]:
        return
        yield said("never")

    toolkit.register_tool_function(steps)
    toolkit.register_tool_function(nothing)
    stream = toolkit.call_tool_function(block("steps"))
    async with asyncio.timeout(PATIENCE):
        assert (await anext(stream)).content[0]["text"] == "first"
        go.set()
        rest = [(chunk.content[0]["text"], chunk.is_last) async for chunk in stream]
    assert rest == [("first second", False), ("first second", True)]
    (empty,) = await chunks(toolkit, "nothing")
    assert (empty.content, empty.is_last) == ([], True)


async def test_what_is_interrupted_ends_with_its_last_chunk_and_a_note(toolkit: Toolkit) -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[ToolResponse, None]:
        try:
            yield said("so far", is_last=False)
            await asyncio.sleep(PATIENCE)
        finally:
            ended.set()

    async def silent() -> ToolResponse:
        await asyncio.sleep(PATIENCE)
        return said("never")

    got: list[ToolResponse] = []

    async def take(name: str) -> None:
        async for chunk in await toolkit.call_tool_function(block(name)):
            got.append(chunk)
            begun.set()

    for function in (endless, silent):
        toolkit.register_tool_function(function)
    begun = asyncio.Event()
    taking = asyncio.create_task(take("endless"))
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
        taking.cancel()
        await taking
        await ended.wait()
    assert [one["text"] for one in got[-1].content] == ["so far", NOTE]
    assert (got[-1].is_last, got[-1].is_interrupted) == (True, True)
    taking = asyncio.create_task(take("silent"))
    await asyncio.sleep(0)
    taking.cancel()
    async with asyncio.timeout(PATIENCE):
        await taking
    assert [one["text"] for one in got[-1].content] == [NOTE]


async def test_what_a_tool_raises_is_a_text_or_raised(toolkit: Toolkit) -> None:
    class Odd(Exception):
        pass

    def boom() -> ToolResponse:
        raise Odd("boom")

    async def late() -> AsyncGenerator[ToolResponse, None]:
        yield said("so far")
        raise Odd("late")

    def wrong() -> str:
        return "a text"

    for function in (boom, late, wrong):
        toolkit.register_tool_function(function)
    assert await text(toolkit, "boom") == "Error: boom"
    assert [chunk.content[0]["text"] for chunk in await chunks(toolkit, "late")] == ["so far", "Error: late"]
    with pytest.raises(TypeError, match="ToolResponse"):
        await chunks(toolkit, "wrong")
    assert await text(toolkit, "nope") == "FunctionNotFoundError: Cannot find the function named nope"
    toolkit.raise_on_error = True
    with pytest.raises(Odd, match=r"^boom$"):
        await chunks(toolkit, "boom")
    toolkit.register_tool_function(add)
    with pytest.raises(InvalidParameters):
        await chunks(toolkit, "add", a="x")


async def test_a_post_processor_gets_the_call_as_it_was_and_every_chunk(toolkit: Toolkit) -> None:
    calls: list[Any] = []

    def upper(call: dict[str, Any], response: ToolResponse) -> ToolResponse | None:
        calls.append(call)
        return None if response.content[0]["text"] == "a" else said(response.content[0]["text"].upper())

    async def later(call: dict[str, Any], response: ToolResponse) -> ToolResponse | None:
        await asyncio.sleep(0)
        return upper(call, response)

    def failing(call: dict[str, Any], response: ToolResponse) -> None:
        raise ValueError("hidden")

    toolkit.register_tool_function(generator, postprocess_func=upper)
    toolkit.register_tool_function(plain, postprocess_func=later)
    toolkit.register_tool_function(coroutine, postprocess_func=failing)
    assert [chunk.content[0]["text"] for chunk in await chunks(toolkit, "generator")] == ["a", "A B"]
    assert await text(toolkit, "plain") == "A B"
    assert calls == [block("generator"), block("generator"), block("plain")]
    withheld = await text(toolkit, "coroutine")
    assert "withheld" in withheld
    assert "a b" not in withheld


async def test_what_a_rule_of_the_hub_withholds_is_not_shown_as_a_chunk_either(toolkit: Toolkit) -> None:
    toolkit.register_tool_function(async_generator)

    def withholding(config: Config) -> Config:
        steps = (PostProcess(step="no_such_module:function"),)
        servers = tuple(server.model_copy(update={"postprocess": steps}) for server in config.servers)
        return config.model_copy(update={"servers": servers})

    toolkit.hub.change_sync(withholding)
    got = [chunk.content[0]["text"] for chunk in await chunks(toolkit, "async_generator")]
    assert got[0] == "a"
    assert "withheld" in got[1]
    assert len(got) == 2


async def test_a_tool_may_change_the_toolkit_it_is_in(toolkit: Toolkit) -> None:
    async def learn() -> ToolResponse:
        toolkit.create_tool_group("learned", "New.", active=True)
        toolkit.register_tool_function(add, "learned")
        return said(await text(toolkit, "add", a=1))

    def learn_more() -> ToolResponse:
        toolkit.register_tool_function(plain, "learned")
        toolkit.update_tool_groups(["learned"], active=False)
        return said("done")

    toolkit.register_tool_function(learn)
    toolkit.register_tool_function(learn_more)
    assert await text(toolkit, "learn") == "3"
    assert await text(toolkit, "learn_more") == "done"
    assert names(toolkit) == ["learn", "learn_more"]


def test_it_can_be_used_in_several_loops_one_after_the_other() -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(add)
    toolkit.register_tool_function(coroutine)
    for _ in range(2):
        assert asyncio.run(text(toolkit, "add", a=1)) == "3"
        assert asyncio.run(text(toolkit, "coroutine")) == "a b"
    toolkit.close()
    toolkit.close()


# --- groups --------------------------------------------------------------------------------------------------------


async def test_tools_of_an_inactive_group_are_not_listed_and_say_how_to_switch_it_on(
    toolkit: Toolkit,
) -> None:
    """Check 38."""
    toolkit.create_tool_group("sums", "Adding.", notes="Add slowly.")
    toolkit.create_tool_group("words", "Saying.", active=True)
    for name in ("sums", "basic"):
        with pytest.raises(ValueError, match=rf"^Tool group '{name}' is already registered in the toolkit\.$"):
            toolkit.create_tool_group(name, "Again.")
    with pytest.raises(ValueError, match=r"^Tool group 'nope' not found\.$"):
        toolkit.register_tool_function(add, "nope")
    toolkit.register_tool_function(add, "sums")
    toolkit.register_tool_function(plain, group_name="words")
    toolkit.register_tool_function(toolkit.reset_equipped_tools)
    assert names(toolkit) == ["plain", "reset_equipped_tools"]
    assert names(toolkit, ["sums"]) == ["add"]
    assert await text(toolkit, "add", a=1) == (
        "FunctionInactiveError: The function 'add' is in the inactive group 'sums'. "
        "Activate the tool group by calling 'reset_equipped_tools' first to use this tool."
    )
    assert parameters(toolkit, "reset_equipped_tools")["properties"] == {
        "sums": {"type": "boolean", "default": False, "description": "Adding."},
        "words": {"type": "boolean", "default": False, "description": "Saying."},
    }
    for wrong in ({"sums": True, "words": "yes"}, {"sums": True, "nope": True}):
        assert (await text(toolkit, "reset_equipped_tools", **wrong)).startswith("Invalid arguments: ")
    assert names(toolkit) == ["plain", "reset_equipped_tools"]  # nothing has changed
    notes = "## About Tool Group 'sums'\nAdd slowly."
    assert await text(toolkit, "reset_equipped_tools", sums=True) == (
        f"Now tool groups 'sums' are activated. You MUST follow these notes to use these tools:\n<notes>{notes}</notes>"
    )
    assert toolkit.get_activated_notes() == toolkit.get_tool_group_notes() == notes
    assert names(toolkit) == ["add", "reset_equipped_tools"]
    assert await text(toolkit, "add", a=1) == "3"
    assert await text(toolkit, "reset_equipped_tools") == "All tool groups are now deactivated currently."
    assert names(toolkit) == ["reset_equipped_tools"]


async def test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept(toolkit: Toolkit) -> None:
    for name in ("one", "two", "three"):
        toolkit.create_tool_group(name, name)
    toolkit.register_tool_function(add, "one")
    toolkit.register_tool_function(plain, "two")
    toolkit.update_tool_groups(["one", "two", "basic", "nope"], active=True)
    assert names(toolkit) == ["add", "plain"]
    state = toolkit.state_dict()
    assert state == {"active_groups": ["one", "two"]}
    toolkit.load_state_dict({"active_groups": ["two"]})
    assert names(toolkit) == ["plain"]
    bad: list[Any] = [{}, [], {"active_groups": "one"}, {"active_groups": ["one"], "more": 1}]
    for wrong in bad:
        with pytest.raises(ValueError, match="active_groups"):
            toolkit.load_state_dict(wrong)
    toolkit.load_state_dict({**state, "more": 1}, strict=False)
    assert toolkit.state_dict() == state
    with pytest.raises(ValueError, match="basic"):
        toolkit.remove_tool_groups("basic")
    with pytest.raises(TypeError):
        toolkit.remove_tool_groups([1])  # type: ignore[list-item]
    toolkit.remove_tool_groups("one")
    assert list(toolkit.tools) == ["plain"]
    assert "FunctionNotFoundError" in await text(toolkit, "add", a=1)
    toolkit.register_tool_function(add)
    assert await text(toolkit, "add", a=1) == "3"
    toolkit.remove_tool_function("add")
    toolkit.remove_tool_function("add")
    with pytest.raises(ValueError, match="add"):
        toolkit.remove_tool_function("add", allow_not_exist=False)
    toolkit.clear()
    assert (toolkit.tools, toolkit.groups, toolkit.get_json_schemas()) == ({}, {}, [])


async def test_a_hub_it_is_attached_to_has_its_functions_its_groups_and_its_own_rules() -> None:
    toolkit = Toolkit()
    toolkit.create_tool_group("sums", "Adding.")
    toolkit.register_tool_function(add, "sums")
    toolkit.register_tool_function(plain)
    toolkit.register_tool_function(coroutine)
    async with Hub({"servers": {}, "blacklist": []}) as hub:
        hub.attach(toolkit)
        assert toolkit.hub is hub
        assert {card.name for card in await hub.list()} == {"plain", "coroutine"}
        refused = await hub.call("local", "add", {"a": 1})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "group_inactive"
        toolkit.update_tool_groups(["sums"], active=True)
        assert {card.name for card in await hub.list()} == {"add", "plain", "coroutine"}
        assert (await hub.call("local", "add", {"a": 1}))["content"] == [{"type": "text", "text": "3"}]
        assert await text(toolkit, "add", a=1) == "3"
        toolkit.remove_tool_groups("sums")
        assert {card.name for card in await hub.list()} == {"plain", "coroutine"}
        hub.change_sync(lambda config: config.model_copy(update={"blacklist": (("local", "plain"),)}))
        assert await text(toolkit, "plain") == "Error: Unknown tool: plain"
        await toolkit.aclose()
        assert await text(toolkit, "coroutine") == "a b"


SERVED = """
import asyncio, sys
from mcp_hub import StdIOStatefulClient, Toolkit, ToolResponse

def said(text, **more):
    return ToolResponse([{"type": "text", "text": text}], **more)

async def spell(word: str):
    for end in range(1, len(word) + 1):
        yield said(word[:end], is_last=False)

toolkit = Toolkit()
toolkit.create_tool_group("remote", "Elsewhere.", notes="Be quick.")
toolkit.register_tool_function(spell)
toolkit.register_tool_function(toolkit.reset_equipped_tools)
client = StdIOStatefulClient("fake", command=sys.executable, args=[sys.argv[1]])

async def registered():
    await client.connect()
    await toolkit.register_mcp_client(
        client, "remote", enable_funcs=["echo", "add"], preset_kwargs_mapping={"add": {"b": 40}})

asyncio.run(registered())
toolkit.serve()
"""


async def test_a_toolkit_is_served_with_its_clients_its_presets_and_its_groups(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVED)
    async with spawned([sys.executable, str(program), FAKE]) as served:
        await served.initialize()
        assert await served.tool_names() == ["reset_equipped_tools", "spell"]
        result = await served.call("spell", {"word": "hub"}, _meta={"progressToken": "t"})
        assert result["content"][0]["text"] == "hub"
        told = await served.notified("notifications/progress", 3)
        assert [note["params"]["message"] for note in told] == ["h", "hu", "hub"]
        refused = await served.call("fake__add", {"a": 2})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "group_inactive"
        assert "Be quick." in await served.text("reset_equipped_tools", {"remote": True})
        await served.notified("notifications/tools/list_changed")
        tools = {tool["name"]: tool for tool in (await served.request("tools/list"))["tools"]}
        assert list(tools) == ["reset_equipped_tools", "spell", "fake__echo", "fake__add"]
        assert list(tools["fake__add"]["inputSchema"]["properties"]) == ["a"]
        assert await served.text("fake__add", {"a": 2, "b": 0}) == "42"
        with pytest.raises(RpcError) as hidden:
            await served.call("fake__pid")
        assert hidden.value.code == -32602


# --- extended models and skills --------------------------------------------------------------------------------------


class Answer(BaseModel):
    """What is wanted."""

    total: int = Field(description="The sum.")


async def test_an_extended_model_adds_arguments_and_checks_them_and_the_message_is_in_the_metadata(
    toolkit: Toolkit,
) -> None:
    def finish(response: str, **fields: Any) -> ToolResponse:
        return said(response, metadata={"success": True})

    toolkit.register_tool_function(finish)
    toolkit.register_tool_function(add)
    toolkit.set_extended_model("finish", Answer)
    assert parameters(toolkit, "finish") == {
        "type": "object",
        "properties": {"response": {"type": "string"}, "total": {"type": "integer", "description": "The sum."}},
        "required": ["response", "total"],
    }
    (done,) = await chunks(toolkit, "finish", response="r", total=3)
    assert done.metadata == {"success": True, "response_msg": '{"total":3}'}
    assert done.is_last
    assert (await text(toolkit, "finish", response="r", total="x")).startswith("Error: ")

    class Clash(BaseModel):
        a: int

    with pytest.raises(ValueError, match="already exists"):
        toolkit.set_extended_model("add", Clash)
    with pytest.raises(ValueError, match=r"^Tool function 'nope' not found in the toolkit"):
        toolkit.set_extended_model("nope", Answer)
    with pytest.raises(TypeError):
        toolkit.set_extended_model("add", int)  # type: ignore[arg-type]
    toolkit.set_extended_model("finish", None)
    assert list(parameters(toolkit, "finish")["properties"]) == ["response"]


def test_skills_are_read_from_their_directories(tmp_path: Path) -> None:
    toolkit = Toolkit()
    assert toolkit.get_agent_skill_prompt() is None
    skill = tmp_path / "maps"
    for wrong in (str(skill), str(tmp_path)):
        with pytest.raises(ValueError, match="skill directory"):
            toolkit.register_agent_skill(wrong)
    skill.mkdir()
    for wrong in ("# No front matter", "---\nname: maps\n---\n", "---\n- [\n---\n"):
        (skill / "SKILL.md").write_text(wrong)
        with pytest.raises(ValueError, match=r"(?i)front matter"):
            toolkit.register_agent_skill(str(skill))
    (skill / "SKILL.md").write_text("---\nname: maps\ndescription: Reads maps.\n---\n# Maps\n")
    toolkit.register_agent_skill(str(skill))
    with pytest.raises(ValueError, match="already registered"):
        toolkit.register_agent_skill(str(skill))
    prompt = toolkit.get_agent_skill_prompt()
    assert prompt is not None
    assert prompt.startswith("# Agent Skills\n")
    assert prompt.endswith(f'## maps\nReads maps.\nCheck "{skill}/SKILL.md" for how to use this skill')
    toolkit.remove_agent_skill("maps")
    toolkit.remove_agent_skill("maps")
    assert toolkit.get_agent_skill_prompt() is None
    other = Toolkit("Skills:", "{name} in {dir}")
    other.register_agent_skill(str(skill))
    assert other.get_agent_skill_prompt() == f"Skills:\nmaps in {skill}"
    toolkit.close()
    other.close()


# --- MCP clients -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[StdIOStatefulClient]:
    entry = fake("--name", "one")
    made = StdIOStatefulClient("one", command=entry["command"], args=entry["args"])
    await made.connect()
    yield made
    await made.close()


async def test_the_tools_of_a_client_are_registered_filtered_and_preset(
    toolkit: Toolkit, client: StdIOStatefulClient
) -> None:
    toolkit.create_tool_group("remote", "Elsewhere.")
    await toolkit.register_mcp_client(
        client,
        group_name="remote",
        enable_funcs=["echo", "add", "fail"],
        disable_funcs=["pid"],
        preset_kwargs_mapping={"add": {"b": 40}},
        postprocess_func=lambda call, response: said(f"{call['name']}: {response.content[0]['text']}"),
    )
    assert names(toolkit) == []
    assert names(toolkit, ["remote"]) == ["echo", "add", "fail"]
    assert "FunctionInactiveError" in await text(toolkit, "echo", text="x")
    toolkit.update_tool_groups(["remote"], active=True)
    assert parameters(toolkit, "add")["properties"] == {"a": {"type": "number"}}
    assert await text(toolkit, "echo", text="x") == "echo: x"
    assert await text(toolkit, "add", a=2, b=1) == "add: 42"
    assert (await text(toolkit, "fail")).startswith("Error: ")
    assert "FunctionNotFoundError" in await text(toolkit, "pid")
    await toolkit.register_mcp_client(client, enable_funcs=["echo"], namesake_strategy="rename")
    assert (toolkit.tools["echo_2"].mcp_name, toolkit.tools["echo_2"].source) == ("one", "mcp_server")
    assert await text(toolkit, "echo_2", text="y") == "y"
    await toolkit.remove_mcp_clients("one")
    assert list(toolkit.tools) == []
    with pytest.raises(TypeError):
        await toolkit.remove_mcp_servers([1])  # type: ignore[list-item]


async def test_raw_results_and_single_functions_of_a_client(toolkit: Toolkit, client: StdIOStatefulClient) -> None:
    await toolkit.register_mcp_client(client, enable_funcs=["echo"], wrap_tool_result=False)
    (raw,) = [one async for one in toolkit.call_tool_function(block("echo", text="x"))]
    assert (raw.content[0].text, raw.isError, raw["futureTop"]) == ("x", False, {"n": 10**25})
    toolkit.register_tool_function(await client.get_callable_function("add"), preset_kwargs={"a": 1})
    assert await text(toolkit, "add", b=1) == "2"
    toolkit.raise_on_error = True
    await toolkit.register_mcp_client(client, enable_funcs=["fail", "sleep"], execution_timeout=0.2)
    with pytest.raises(Exception, match="no"):
        await chunks(toolkit, "fail")
    with pytest.raises(TimeoutError):
        await chunks(toolkit, "sleep")


async def test_what_cannot_be_registered_of_a_client_is_an_error(toolkit: Toolkit, client: StdIOStatefulClient) -> None:
    entry = fake()
    apart = StdIOStatefulClient("apart", command=entry["command"], args=entry["args"])
    with pytest.raises(RuntimeError, match=r"Use the `connect\(\)` method first"):
        await toolkit.register_mcp_client(apart)
    with pytest.raises(ValueError, match="echo"):
        await toolkit.register_mcp_client(client, enable_funcs=["echo"], disable_funcs=["echo"])
    with pytest.raises(TypeError):
        await toolkit.register_mcp_client(client, preset_kwargs_mapping=[])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await toolkit.register_mcp_client(client, enable_funcs="echo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not found"):
        await toolkit.register_mcp_client(client, "nope")
    assert list(toolkit.tools) == []


async def test_the_rules_of_a_hub_hold_for_the_clients_of_its_toolkit_too() -> None:
    entry = fake("--name", "two")
    client = StdIOStatefulClient("two", command=entry["command"], args=entry["args"])
    await client.connect()
    async with Toolkit(config={"servers": {}}) as toolkit:
        toolkit.create_tool_group("remote", "Elsewhere.")
        await toolkit.register_mcp_client(
            client, "remote", enable_funcs=["echo", "add"], preset_kwargs_mapping={"add": {"b": 40}}
        )
        assert client.hub is toolkit.hub
        assert await toolkit.hub.list() == []
        toolkit.update_tool_groups(["remote"], active=True)
        cards = {card.name: card.schema["properties"] for card in await toolkit.hub.list()}
        assert list(cards) == ["echo", "add"]
        assert list(cards["add"]) == ["a"]
        assert (await toolkit.hub.call("two", "add", {"a": 2, "b": 0}))["content"][0]["text"] == "42"
        assert await text(toolkit, "add", a=3) == "43"
        with pytest.raises(Exception, match="Unknown tool: pid"):
            await toolkit.hub.call("two", "pid")
        toolkit.remove_tool_function("echo")
        assert [card.name for card in await toolkit.hub.list()] == ["add"]
