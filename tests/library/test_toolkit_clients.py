"""AgentScope's Toolkit: extended models, skills and the tools of MCP clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import BaseModel, Field

from mcp_hub import Hub, StdIOStatefulClient, Toolkit, ToolResponse
from mcp_hub.errors import ConfigError
from tests.fakes.client import PATIENCE, fake
from tests.library.toolkits import add, block, chunks, names, parameters, text, text_response

pytestmark = pytest.mark.anyio

# --- extended models and skills --------------------------------------------------------------------------------------


class Answer(BaseModel):
    """What is wanted."""

    total: int = Field(description="The sum.")


async def test_an_extended_model_adds_validated_arguments_and_metadata_has_the_error(
    toolkit: Toolkit,
) -> None:
    def finish(response: str, **fields: Any) -> ToolResponse:
        return text_response(response, metadata={"success": True})

    toolkit.register_tool_function(finish)
    toolkit.register_tool_function(add)
    toolkit.set_extended_model("finish", Answer)
    assert parameters(toolkit, "finish") == {
        "type": "object",
        "properties": {"response": {"type": "string"}, "total": {"type": "integer", "description": "The sum."}},
        "required": ["response", "total"],
    }
    (chunk,) = await chunks(toolkit, "finish", response="r", total=3)
    assert chunk.metadata == {"success": True, "response_msg": "r", "total": 3}
    assert chunk.is_last
    (chunk,) = await chunks(toolkit, "finish", response="", total=3)
    assert chunk.metadata == {"success": True, "response_msg": '{"total":3}', "total": 3}
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
    second = Toolkit("Skills:", "{name} in {dir}")
    second.register_agent_skill(str(skill))
    assert second.get_agent_skill_prompt() == f"Skills:\nmaps in {skill}"
    toolkit.close()
    second.close()


# --- MCP clients -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[StdIOStatefulClient]:
    entry = fake("--name", "one")
    instance = StdIOStatefulClient("one", command=entry["command"], args=entry["args"])
    await instance.connect()
    yield instance
    await instance.close()


async def test_the_process_of_a_server_ends_if_connecting_to_it_is_cancelled() -> None:
    entry = fake("--silent", "--name", "never answers")
    client = StdIOStatefulClient("silent", command=entry["command"], args=entry["args"])
    before = set(psutil.Process().children(recursive=True))
    connecting = asyncio.create_task(client.connect())
    async with asyncio.timeout(PATIENCE):
        while not (started := set(psutil.Process().children(recursive=True)) - before):
            await asyncio.sleep(0.01)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    _, alive = await asyncio.to_thread(psutil.wait_procs, started, timeout=PATIENCE / 4)
    assert alive == []
    assert not client.is_connected


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
        postprocess_func=lambda call, response: text_response(f"{call['name']}: {response.content[0]['text']}"),
    )
    assert names(toolkit) == []
    assert names(toolkit, ["remote"]) == ["echo", "add", "fail"]
    assert "FunctionInactiveError" in await text(toolkit, "echo", text="x")
    toolkit.update_tool_groups(["remote"], active=True)
    assert parameters(toolkit, "add")["properties"] == {"a": {"type": "number"}}
    assert await text(toolkit, "echo", text="x") == "echo: x"
    assert await text(toolkit, "add", a=2, b=1) == "add: 42"
    assert (await text(toolkit, "fail")).startswith("fail: Error: ")
    assert "FunctionNotFoundError" in await text(toolkit, "pid")
    await toolkit.register_mcp_client(client, enable_funcs=["echo"], namesake_strategy="rename")
    assert (toolkit.tools["echo_2"].mcp_name, toolkit.tools["echo_2"].source) == ("one", "mcp_server")
    assert await text(toolkit, "echo_2", text="y") == "y"
    await toolkit.remove_mcp_clients("one")
    assert list(toolkit.tools) == []
    with pytest.raises(TypeError):
        await toolkit.remove_mcp_servers([1])  # type: ignore[list-item]


async def test_names_that_a_client_does_not_have_are_told_with_the_nearest_one(
    toolkit: Toolkit, client: StdIOStatefulClient, caplog: pytest.LogCaptureFixture
) -> None:
    await toolkit.register_mcp_client(client, disable_funcs=["ech"], preset_kwargs_mapping={"add": {"b": 1}})
    (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "ech; did you mean echo?" in warning
    assert "HUB-124" in warning


async def test_the_groups_of_a_hub_name_no_tools_of_clients_that_are_elsewhere(
    toolkit: Toolkit, client: StdIOStatefulClient
) -> None:
    toolkit.create_tool_group("mixed", "Here and elsewhere.", active=True)
    await toolkit.register_mcp_client(client, group_name="mixed", enable_funcs=["echo"])
    toolkit.register_tool_function(lambda: text_response("here"), "mixed", func_name="here")
    assert await text(toolkit, "here") == "here"
    assert await text(toolkit, "echo", text="x") == "x"
    assert [group.tools for group in toolkit.hub.config.groups] == [("local/here",)]


async def test_a_client_can_return_raw_results_and_a_single_function(
    toolkit: Toolkit, client: StdIOStatefulClient
) -> None:
    await toolkit.register_mcp_client(client, enable_funcs=["echo"], wrap_tool_result=False)
    (raw,) = [chunk async for chunk in toolkit.call_tool_function(block("echo", text="x"))]
    assert (raw.content[0].text, raw.isError, raw["futureTop"]) == ("x", False, {"n": 10**25})
    toolkit.register_tool_function(await client.get_callable_function("add"), preset_kwargs={"a": 1})
    assert await text(toolkit, "add", b=1) == "2"
    toolkit.raise_on_error = True
    await toolkit.register_mcp_client(client, enable_funcs=["fail", "sleep"], execution_timeout=0.2)
    with pytest.raises(Exception, match="no"):
        await chunks(toolkit, "fail")
    with pytest.raises(TimeoutError):
        await chunks(toolkit, "sleep")


async def test_an_async_post_processor_of_a_client_keeps_or_replaces_what_its_tools_answer(
    toolkit: Toolkit, client: StdIOStatefulClient
) -> None:
    """Seed 001, line 80: None keeps the response, a ToolResponse replaces it. Seed 004, line 55: it may be async."""
    inputs: list[tuple[str, Any]] = []

    async def process(call: dict[str, Any], response: ToolResponse) -> ToolResponse | None:
        inputs.append((call["name"], call["input"]))
        return text_response("other", metadata={"changed": True}) if call["name"] == "add" else None

    await toolkit.register_mcp_client(client, enable_funcs=["echo", "add"], postprocess_func=process)
    (unchanged,) = await chunks(toolkit, "echo", text="x")
    assert (unchanged.content, unchanged.metadata) == ([{"type": "text", "text": "x"}], {"x/y": 1})
    (changed,) = await chunks(toolkit, "add", a=1, b=2)
    assert (changed.content, changed.metadata, changed.is_last) == (
        [{"type": "text", "text": "other"}], {"changed": True}, True,
    )  # fmt: skip
    assert inputs == [("echo", {"text": "x"}), ("add", {"a": 1, "b": 2})]
    await toolkit.remove_mcp_clients(["one"])
    await toolkit.register_mcp_client(client, enable_funcs=["echo"], postprocess_func=process, wrap_tool_result=False)
    (raw,) = [chunk async for chunk in toolkit.call_tool_function(block("echo", text="x"))]
    assert raw["futureTop"] == {"n": 10**25}


async def test_invalid_registrations_of_a_client_are_errors(toolkit: Toolkit, client: StdIOStatefulClient) -> None:
    entry = fake()
    unconnected = StdIOStatefulClient("apart", command=entry["command"], args=entry["args"])
    with pytest.raises(RuntimeError, match=r"Use the `connect\(\)` method first"):
        await toolkit.register_mcp_client(unconnected)
    with pytest.raises(ValueError, match="echo"):
        await toolkit.register_mcp_client(client, enable_funcs=["echo"], disable_funcs=["echo"])
    with pytest.raises(TypeError):
        await toolkit.register_mcp_client(client, preset_kwargs_mapping=[])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await toolkit.register_mcp_client(client, enable_funcs="echo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not found"):
        await toolkit.register_mcp_client(client, "nope")
    assert list(toolkit.tools) == []


async def test_a_hubs_rules_apply_to_clients_of_its_toolkit() -> None:
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


# --- the hub of a client ---------------------------------------------------------------------------------------------


async def connected(name: str = "one") -> StdIOStatefulClient:
    client = StdIOStatefulClient(name, **{key: fake()[key] for key in ("command", "args")})
    await client.connect()
    return client


async def test_the_rules_of_a_toolkit_hold_for_a_client_that_was_closed_and_connected_again() -> None:
    client = await connected()
    async with Toolkit(config={"guard": {"deny_urls": ["example.com"], "tools": ["*"]}}) as toolkit:
        await toolkit.register_mcp_client(client)
        echo = await client.get_callable_function("echo")
        for _ in range(2):
            assert "example.com" in (await text(toolkit, "echo", text="https://example.com/"))
            assert (await text(toolkit, "echo", text="https://example.com/")).startswith("Error: ")
            assert (await echo(text="x")).content[0]["text"] == "x"
            await client.close()
            assert (await text(toolkit, "echo", text="x")).startswith("Error: ")
            await client.connect()
        await client.close()
        other = Hub()
        other.attach(toolkit)
        await client.connect()
        assert await text(toolkit, "echo", text="x") == "x"
        assert client.hub is other
        await client.close()
    await other.aclose()
    await client.connect()
    assert (await (await client.get_callable_function("echo"))(text="alone")).content[0]["text"] == "alone"
    await client.close()


async def test_a_client_of_one_toolkit_with_rules_is_refused_by_another_which_leaves_the_first_one_alone() -> None:
    client = await connected()
    async with Toolkit(config={}) as toolkit, Toolkit(config={}) as other:
        toolkit.register_tool_function(add)
        await toolkit.register_mcp_client(client, enable_funcs=["echo"])
        with pytest.raises(ConfigError, match="another toolkit"):
            await other.register_mcp_client(client)
        with pytest.raises(ConfigError, match="another toolkit"):
            other.hub.attach(client)
        assert await text(toolkit, "add", a=1) == "3"
        assert await text(toolkit, "echo", text="x") == "x"
        together = Toolkit(hub=toolkit.hub)
        await together.register_mcp_client(client, enable_funcs=["pid"])
        assert (await text(together, "pid")).isdigit()
    await client.close()


async def test_a_hub_takes_a_toolkit_over_with_the_clients_at_its_hub() -> None:
    client = await connected()
    async with Hub() as hub:
        toolkit = Toolkit(config={})
        toolkit.register_tool_function(add)
        await toolkit.register_mcp_client(client, enable_funcs=["echo"])
        hub.attach(toolkit)
        assert await text(toolkit, "add", a=1) == "3"
        assert await text(toolkit, "echo", text="x") == "x"
        assert {card.name for card in await hub.list()} == {"add", "echo"}
        await client.close()


async def test_a_client_that_is_registered_again_has_the_tools_of_all_registrations() -> None:
    client = await connected()
    async with Toolkit(config={}) as toolkit:
        toolkit.create_tool_group("more", "More.", active=True)
        await toolkit.register_mcp_client(client, enable_funcs=["echo"])
        await toolkit.register_mcp_client(client, "more", enable_funcs=["pid"])
        together = Toolkit(hub=toolkit.hub)
        await together.register_mcp_client(client, enable_funcs=["add"], preset_kwargs_mapping={"add": {"b": 40}})
        assert await text(toolkit, "echo", text="x") == "x"
        assert (await text(toolkit, "pid")).isdigit()
        assert await text(together, "add", a=2) == "42"
        assert {card.name for card in await toolkit.hub.list()} == {"echo", "pid", "add"}
        await together.remove_mcp_clients("one")
        assert {card.name for card in await toolkit.hub.list()} == {"echo", "pid"}
        assert await text(toolkit, "echo", text="x") == "x"
        toolkit.clear()
        assert await toolkit.hub.list() == []
        await toolkit.register_mcp_client(client, enable_funcs=[])
        assert await toolkit.hub.list() == []
        await toolkit.register_mcp_client(client, enable_funcs=["echo"])
        assert await text(toolkit, "echo", text="x") == "x"
    await client.close()
