"""What passes through the hub, one test a feature; three modules run all of it, one for each transport of the client.

A test names the features it shows, and test_the_manifest.py holds them against FEATURES.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import Any, Final

import pytest
from mcp import MCPError, types

from tests.conformance.fixture.content import PNG, WAV
from tests.conformance.fixture.extras import LISTED
from tests.fakes.client import PATIENCE
from tests.matrix.cells import Cell

FEATURES: Final = {
    "era": "a client of each era is answered in its own",
    "instructions": "the instructions of every server reach the client",
    "ping": "a client of the handshake is answered `ping`",
    "tools/list": "a tool arrives with title, icons, annotations, both schemas and `_meta`",
    "pagination": "following cursors gives the whole list, and one that was made up is refused",
    "content": "text, image, audio, embedded resources and several blocks arrive as they are, in order",
    "structured": "structured content and `_meta` of a result arrive",
    "tool-errors": "a tool's own error is a result, an unknown name an error",
    "meta": "`_meta` reaches the server with trace context and without what belongs to the hop",
    "progress": "progress arrives with the client's token, in order",
    "cancellation": "a call the client gives up is given up at the server",
    "logging": "log messages arrive from the level the client wants, and none it has not asked for",
    "resources": "texts and binaries are listed and read",
    "templates": "a template is listed, and what it stands for is read",
    "resource-missing": "a resource there is not is the error of the client's era",
    "uris": "what a result, a prompt or a tool says of a resource leads to it, whoever else has the same URI",
    "apps": "the resource that shows a tool is read under the URI the tool names",
    "subscriptions": "a client hears that a resource it watches has changed",
    "prompts": "prompts are listed, and made with their arguments",
    "completion": "arguments of prompts and of templates are completed",
    "sampling": "a server asks the client's model",
    "elicitation": "a server asks the client's user",
    "roots": "a server asks for the client's roots",
    "questions": "a server asks for several things, in several rounds, also for a prompt",
    "list-changed": "a client hears that the tools or prompts have changed, and lists them anew",
    "capabilities": "a server is told what the client has declared",
}


def shows(*features: str) -> pytest.MarkDecorator:
    """The features of FEATURES that a test shows."""
    return pytest.mark.shows(*features)


@shows("era")
async def test_each_client_negotiates_the_version_of_its_era(cell: Cell) -> None:
    assert cell.client.protocol_version == ("2026-07-28" if cell.era == "modern" else "2025-11-25")


@shows("instructions")
async def test_the_instructions_of_the_server_arrive(cell: Cell) -> None:
    assert f"The fixture {cell.name} does everything." in (cell.client.instructions or "")


@shows("ping")
async def test_a_ping_is_answered_in_the_era_that_has_it(cell: Cell) -> None:
    if cell.era == "handshake":
        assert await cell.client.send_ping() == types.EmptyResult()
    else:
        with pytest.raises(MCPError) as refused:
            await cell.client.session.send_request(types.PingRequest(), types.EmptyResult)
        assert refused.value.code == -32601


@shows("tools/list", "pagination")
async def test_tools_are_listed_with_all_their_fields(cell: Cell) -> None:
    listed = {tool["name"]: tool for tool in await cell.all_of("tools")}
    assert cell.tool("test_simple_text") in listed
    described = listed[cell.tool("described")]
    assert {key: described[key] for key in LISTED["described"]} == LISTED["described"]


@shows("pagination")
async def test_an_invented_cursor_is_refused(cell: Cell) -> None:
    with pytest.raises(MCPError) as refused:
        await cell.client.list_tools(cursor="made-up")
    assert refused.value.code == -32602


@shows("content")
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("test_simple_text", ["text"]),
        ("test_image_content", ["image"]),
        ("test_audio_content", ["audio"]),
        ("test_embedded_resource", ["resource"]),
        ("test_multiple_content_types", ["text", "image", "resource"]),
    ],
)
async def test_content_of_every_type_arrives_unchanged(cell: Cell, name: str, kinds: list[str]) -> None:
    result = await cell.call(name)
    assert [block["type"] for block in result["content"]] == kinds
    data = {"image": PNG, "audio": WAV}
    assert all(block["data"] == data[block["type"]] for block in result["content"] if block["type"] in data)
    assert not result.get("isError")


@shows("structured")
async def test_structured_content_and_the_meta_of_a_result_arrive(cell: Cell) -> None:
    result = await cell.call("described")
    assert result["structuredContent"] == {"celsius": 21.5}
    assert result["_meta"]["example.org/kept"] == [1, {"a": None}]


@shows("tool-errors")
async def test_a_tool_error_is_a_result_and_an_unknown_tool_is_a_json_rpc_error(cell: Cell) -> None:
    result = await cell.call("test_error_handling")
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": "This tool intentionally returns an error for testing"}]
    with pytest.raises(MCPError) as unknown:
        await cell.call("no_such_tool")
    assert unknown.value.code == -32602


@shows("meta")
async def test_meta_reaches_the_server_without_hop_by_hop_fields(cell: Cell) -> None:
    trace: Any = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "example.org/x": {"y": [1]}}
    result = await cell.call("meta", meta=trace)
    server_meta = result["structuredContent"]
    assert {key: server_meta.get(key) for key in trace} == trace
    assert set(server_meta) <= {*trace, "progressToken"}


@shows("progress")
async def test_progress_arrives_in_order(cell: Cell) -> None:
    reported: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total))

    await cell.call("test_tool_with_progress", progress_callback=on_progress)
    await cell.until(lambda: len(reported) == 3)
    assert reported == [(0, 100), (50, 100), (100, 100)]


@shows("cancellation")
async def test_a_cancelled_call_is_cancelled_at_the_server(cell: Cell) -> None:
    token = secrets.token_hex(4)
    with pytest.raises(MCPError):
        await cell.call("hold", {"token": token}, read_timeout_seconds=0.2)
    async with asyncio.timeout(PATIENCE):
        while await cell.text("cancelled", {"token": token}) != "yes":
            await asyncio.sleep(0)


@shows("logging")
async def test_log_messages_arrive_at_and_above_the_clients_level(cell: Cell) -> None:
    token = secrets.token_hex(4)
    await cell.say("warning", token)
    await cell.until(lambda: f"{token} error" in cell.room.logged)
    assert f"{token} debug" not in cell.room.logged


@shows("resources")
async def test_text_and_binary_resources_are_listed_and_read(cell: Cell) -> None:
    listed = {resource["name"]: resource for resource in await cell.all_of("resources", cell.name)}
    assert listed["static-text"]["mimeType"] == "text/plain"
    text, binary = [await cell.read(listed[name]["uri"]) for name in ("static-text", "static-binary")]
    assert text["text"] == "This is the content of the static text resource."
    assert base64.b64decode(binary["blob"]) == base64.b64decode(PNG)
    assert (await cell.read(listed["who"]["uri"]))["text"] == cell.name


@shows("templates")
async def test_a_resource_of_a_template_is_read(cell: Cell) -> None:
    (template,) = await cell.all_of("templates", cell.name)
    content = await cell.read(template["uriTemplate"].replace("{id}", "7"))
    assert '"Data for ID: 7"' in content["text"]


@shows("resource-missing")
async def test_reading_an_unknown_resource_gives_the_error_of_the_era(cell: Cell) -> None:
    with pytest.raises(MCPError) as missing:
        await cell.read("test://there/is/none")
    assert missing.value.code == (-32602 if cell.era == "modern" else -32002)


LINKED: Final = ["test://who", "test://template/5/data", "test://hidden/7"]
"""In a list, of a template, in no list: every server of the matrix has them."""


@shows("uris")
@pytest.mark.parametrize("uri", LINKED)
async def test_a_link_in_a_result_or_prompt_resolves_to_its_own_server(cell: Cell, uri: str) -> None:
    link, embedded = (await cell.call("link", {"uri": uri}))["content"]
    prompt = await cell.client.get_prompt(cell.tool("linking"), {"uri": uri})
    prompted: list[Any] = [message.content for message in prompt.messages]
    uris = {link["uri"], embedded["resource"]["uri"], str(prompted[0].uri), str(prompted[1].resource.uri)}
    assert len(uris) == 1
    content = await cell.read(link["uri"])
    assert content["uri"] == link["uri"]
    assert cell.name in content["text"]


@shows("apps")
async def test_the_ui_resource_of_a_tool_is_readable_by_the_uri_in_its_meta(cell: Cell) -> None:
    (app,) = [tool for tool in await cell.all_of("tools") if tool["name"] == cell.tool("app")]
    assert app["_meta"]["ui"]["visibility"] == ["model"]
    assert app["_meta"]["ui/resourceUri"] == app["_meta"]["ui"]["resourceUri"]
    assert (await cell.read(app["_meta"]["ui"]["resourceUri"]))["text"] == cell.name


@shows("subscriptions")
async def test_a_client_is_notified_of_a_change_of_a_subscribed_resource(cell: Cell) -> None:
    listed = {resource["name"]: resource["uri"] for resource in await cell.all_of("resources", cell.name)}
    async with cell.watching(listed["watched-resource"]) as updated:
        await cell.text("touch", {"uri": "test://static-text"})
        await cell.text("touch", {"uri": "test://watched-resource"})
        await cell.until(lambda: len(updated) > 0)
    assert updated == [listed["watched-resource"]]


@shows("prompts")
async def test_prompts_are_rendered_with_their_arguments(cell: Cell) -> None:
    listed = {prompt["name"]: prompt for prompt in await cell.all_of("prompts")}
    name = cell.tool("test_prompt_with_arguments")
    assert [argument["name"] for argument in listed[name]["arguments"]] == ["arg1", "arg2"]
    rendered = await cell.client.get_prompt(name, {"arg1": "one", "arg2": "two"})
    assert rendered.messages[0].content.text == "Prompt with arguments: arg1='one', arg2='two'"  # type: ignore[union-attr]
    rendered = await cell.client.get_prompt(
        cell.tool("test_prompt_with_embedded_resource"), {"resourceUri": "test://x"}
    )
    assert [message.content.type for message in rendered.messages] == ["resource", "text"]


@shows("completion")
async def test_arguments_of_prompts_and_templates_are_completed(cell: Cell) -> None:
    (template,) = await cell.all_of("templates", cell.name)
    references: list[Any] = [
        types.PromptReference(type="ref/prompt", name=cell.tool("test_prompt_with_arguments")),
        types.ResourceTemplateReference(type="ref/resource", uri=template["uriTemplate"]),
    ]
    for reference in references:
        completed = await cell.client.complete(reference, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]


@shows("sampling", "elicitation")
async def test_a_server_can_request_sampling_and_elicitation(cell: Cell) -> None:
    assert await cell.text("test_sampling", {"prompt": "2+2?"}) == "LLM response: heard 2+2?"
    text = await cell.text("test_elicitation", {"message": "Who?"})
    assert text == f'User response: action=accept, content={{"message": "{cell.name} asks: Who?"}}'


@shows("roots", "questions")
async def test_a_server_can_request_roots_and_several_inputs_in_one_call(cell: Cell) -> None:
    assert "file:///home" in await cell.text("test_input_required_result_list_roots")
    assert await cell.text("test_input_required_result_request_state") == "state-ok"
    assert "of 1 roots" in await cell.text("test_input_required_result_multiple_inputs")
    assert "likes" in await cell.text("test_input_required_result_multi_round")


@shows("questions")
async def test_a_server_can_request_input_during_prompts_get(cell: Cell) -> None:
    prompt = await cell.client.get_prompt(cell.tool("test_input_required_result_prompt"))
    assert "The context is" in prompt.messages[0].content.text  # type: ignore[union-attr]


@shows("list-changed")
@pytest.mark.parametrize(("kind", "thing"), [("tools", "tool"), ("prompts", "prompt")])
async def test_a_client_is_notified_of_a_changed_list(cell: Cell, kind: str, thing: str) -> None:
    name = cell.tool(f"test_changing_{thing}")
    before = name in {item["name"] for item in await cell.all_of(kind)}
    async with cell.hearing(f"notifications/{kind}/list_changed"):
        await cell.text(f"test_trigger_{thing}_change")
        async with asyncio.timeout(PATIENCE):
            while (name in {item["name"] for item in await cell.all_of(kind)}) is before:
                await cell.changed()


@shows("capabilities")
async def test_a_server_receives_the_capabilities_of_the_client(cell: Cell) -> None:
    assert await cell.text("test_missing_capability") == "The client can be sampled"
