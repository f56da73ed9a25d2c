"""Nothing of a tool leaves a toolkit past its post-processor: results, chunks, errors, and what is served."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from mcp_hub import Hub, StdIOStatefulClient, Toolkit, ToolManager, ToolResponse, tool
from tests.fakes.client import fake, hub, spawned
from tests.library.test_presets_are_secrets import REPEATING, called
from tests.library.toolkits import chunks, text, text_response

pytestmark = pytest.mark.anyio

PASSWORD = "hunter-2"


def redact(call: Any, response: ToolResponse) -> ToolResponse:
    return text_response("".join(block["text"] for block in response.content).replace(PASSWORD, "[redacted]"))


async def redact_later(call: Any, response: ToolResponse) -> ToolResponse:
    return redact(call, response)


def breaks(call: Any, response: ToolResponse) -> ToolResponse:
    raise ValueError(f"cannot read {response.content}")


def leaves(call: Any, response: ToolResponse) -> ToolResponse:
    sys.exit(f"cannot read {response.content}")


def fails(word: str) -> ToolResponse:
    """Fail."""
    raise ValueError(f"{word}: {PASSWORD}")


async def fails_later(word: str) -> ToolResponse:
    """Fail."""
    raise ValueError(f"{word}: {PASSWORD}")


async def fails_on_the_way(word: str) -> AsyncIterator[ToolResponse]:
    """Say a little, and fail."""
    yield text_response(PASSWORD, is_last=False)
    raise ValueError(f"{word}: {PASSWORD}")


@pytest.mark.parametrize("process", [redact, redact_later])
@pytest.mark.parametrize("function", [fails, fails_later])
async def test_an_exception_of_a_function_passes_through_its_post_processor(
    toolkit: Toolkit, function: Any, process: Any
) -> None:
    toolkit.register_tool_function(function, postprocess_func=process, func_name="f")
    assert await text(toolkit, "f", word="w") == "Error: w: [redacted]"
    refused = await text(toolkit, "f", word=PASSWORD, other=1)
    assert PASSWORD not in refused
    toolkit.raise_on_error = True
    with pytest.raises(Exception, match="redacted") as caught:
        await called(toolkit, "f", word="w")
    assert PASSWORD not in str((caught.value, caught.value.__cause__))


async def test_chunks_and_a_later_error_go_through_the_post_processor(toolkit: Toolkit) -> None:
    toolkit.register_tool_function(fails_on_the_way, postprocess_func=redact)
    texts = [chunk.content[0]["text"] for chunk in await chunks(toolkit, "fails_on_the_way", word="w")]
    assert texts == ["[redacted]", "Error: w: [redacted]"]


@pytest.mark.parametrize("process", [breaks, leaves])
async def test_an_exception_in_a_post_processor_withholds_the_content(
    toolkit: Toolkit, process: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fine(word: str) -> ToolResponse:
        """Answer."""
        return text_response(PASSWORD)

    client = StdIOStatefulClient("repeating", command=sys.executable, args=[REPEATING])
    await client.connect()
    await toolkit.register_mcp_client(client, postprocess_func=process, preset_kwargs_mapping={"say": {"key": "x"}})
    for function in (fine, fails):
        toolkit.register_tool_function(function, postprocess_func=process)
        answer = await text(toolkit, function.__name__, word="w")
        assert "withheld" in answer
        assert PASSWORD not in answer
    for how in ("ok", "rpc", "error"):
        answer = await text(toolkit, "say", how=how, options={"token": PASSWORD})
        assert "withheld" in answer
        assert PASSWORD not in answer
    await client.close()
    assert PASSWORD not in "".join(r.getMessage() for r in caplog.records if r.name != "mcp_hub.calls")


@pytest.mark.parametrize("wrapped", [True, False])
async def test_errors_of_mcp_tools_go_through_the_post_processor(toolkit: Toolkit, wrapped: bool) -> None:
    client = StdIOStatefulClient("repeating", command=sys.executable, args=[REPEATING])
    await client.connect()
    await toolkit.register_mcp_client(client, postprocess_func=redact, wrap_tool_result=wrapped)
    for how in ("error", "rpc", "crash", "ok"):
        answer = await called(toolkit, "say", how=how, key=PASSWORD)
        assert PASSWORD not in answer
        assert how == "ok" or "[redacted]" in answer or "***" in answer
    await client.close()


async def test_a_post_processor_set_by_the_decorator_applies_wherever_the_function_is_used() -> None:
    @tool(postprocess=redact)
    def marked(word: str) -> str:
        """Fail."""
        raise ValueError(PASSWORD)

    async with Hub() as second_hub:
        second_hub.tool(marked)
        failed = await second_hub.call("local", "marked", {"word": "w"})
        assert failed["isError"]
        assert failed["content"] == [{"type": "text", "text": "Error: [redacted]"}]
        assert failed["_meta"]["mcp-hub/error"]["code"] == "tool_error"
    manager = ToolManager()
    manager.tool_func(marked)
    assert await manager.async_call_tool("marked", {"word": "w"}) == "Error: [redacted]"
    await manager.aclose()


SERVED = f"""
import asyncio, sys
from pydantic import BaseModel
from mcp_hub import StdIOStatefulClient, Toolkit, ToolResponse

class More(BaseModel):
    urgency: int

def redact(call, response):
    text = "".join(block.get("text", "") for block in response.content)
    return ToolResponse([{{"type": "text", "text": call["name"] + ": " + text.replace({PASSWORD!r}, "[redacted]")}}])

def breaks(call, response):
    raise ValueError(str(response.content))

def fails(word: str) -> ToolResponse:
    "Fail."
    raise ValueError({PASSWORD!r} + word)

toolkit = Toolkit()
client = StdIOStatefulClient("repeating", command=sys.executable, args=[sys.argv[1]])
other = StdIOStatefulClient("other", command=sys.executable, args=[sys.argv[1]])

async def registered():
    await client.connect()
    await other.connect()
    toolkit.register_tool_function(
        await client.get_callable_function("say"), func_name="tell", func_description="Tell it.",
        preset_kwargs={{"key": {PASSWORD!r}}}, postprocess_func=redact)
    await toolkit.register_mcp_client(other, postprocess_func=breaks)
    toolkit.register_tool_function(fails, postprocess_func=redact)
    toolkit.set_extended_model("tell", More)

asyncio.run(registered())
print([schema["function"] for schema in toolkit.get_json_schemas()], file=sys.stderr, flush=True)
toolkit.serve()
"""


@pytest.mark.parametrize("modern", [False, True])
async def test_a_served_toolkit_lists_the_same_tools_as_the_toolkit(tmp_path: Path, modern: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVED)
    async with spawned([sys.executable, str(program), REPEATING], modern=modern) as served:
        if not modern:
            await served.initialize()
        tools = {wire["name"]: wire for wire in (await served.request("tools/list"))["tools"]}
        assert set(tools) == {"tell", "say", "fails"}
        assert tools["tell"]["description"] == "Tell it."
        schema = tools["tell"]["inputSchema"]
        assert list(schema["properties"]) == ["how", "count", "options", "urgency"]
        assert schema["required"] == ["how", "urgency"]
        for how in ("ok", "error", "rpc", "crash"):
            try:
                answer = str(await served.call("tell", {"how": how, "urgency": 1}))
            except Exception as error:
                answer = str(error)
            assert PASSWORD not in answer
            assert how == "ok" or "[redacted]" in answer or "***" in answer
        for arguments in ({"how": "ok"}, {"how": "ok", "urgency": "high"}):
            refused = await served.call("tell", arguments)
            assert refused["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
            assert "key" not in str(refused["content"])
        failed = await served.call("fails", {"word": "w"})
        assert failed["isError"]
        assert failed["content"][0]["text"] == "fails: Error: [redacted]w"
        for how in ("ok", "error", "rpc"):
            withheld = await served.call("say", {"how": how, "key": PASSWORD})
            assert withheld["isError"]
            assert PASSWORD not in str(withheld)


async def test_an_sdk_client_can_call_a_served_toolkit(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVED)
    server = StdioServerParameters(command=sys.executable, args=[str(program), REPEATING])
    async with Client(stdio_client(server)) as client:
        assert {listed_tool.name for listed_tool in (await client.list_tools()).tools} == {"tell", "say", "fails"}
        result = await client.call_tool("tell", {"how": "error", "urgency": 1})
        assert result.is_error
        assert PASSWORD not in str(result)
        assert "[redacted]" in str(result) or "***" in str(result)


STEPS = f"""
def redact(call, result):
    texts = [block.get("text", "").replace({PASSWORD!r}, "[redacted]") for block in result["content"]]
    return {{"content": [{{"type": "text", "text": text}} for text in texts], "isError": bool(result.get("isError"))}}

def breaks(call, result):
    raise ValueError(str(result))
"""


@pytest.mark.parametrize("modern", [False, True])
async def test_errors_go_through_the_steps_of_the_configuration_and_keep_their_codes(
    tmp_path: Path, modern: bool
) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    entry = {"command": sys.executable, "args": [REPEATING]}
    servers = {
        "up": {**entry, "postprocess": "steps:redact"},
        "down": {**entry, "postprocess": "steps:breaks"},
        "plain": fake(postprocess={"step": "truncate", "arguments": {"max_chars": 100}}),
    }
    async with hub(tmp_path, servers, modern=modern) as client:
        failed = await client.call("up__say", {"how": "error", "key": PASSWORD})
        assert failed["isError"]
        assert "[redacted]" in failed["content"][0]["text"]
        with pytest.raises(Exception, match="redacted") as caught:
            await client.call("up__say", {"how": "rpc", "key": PASSWORD})
        assert caught.value.code == -32050  # type: ignore[attr-defined]
        assert PASSWORD not in str(caught.value)
        crashed = await client.call("up__say", {"how": "crash", "key": PASSWORD})
        assert crashed["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert PASSWORD not in str(crashed)
        for how in ("ok", "error", "rpc"):
            withheld = await client.call("down__say", {"how": how, "key": PASSWORD})
            assert withheld["_meta"]["mcp-hub/error"]["code"] == "tool_error"
            assert PASSWORD not in str(withheld)
        with pytest.raises(Exception) as unchanged:
            await client.call("plain__fail")
        assert unchanged.value.error["data"] == {"why": [1, 2]}  # type: ignore[attr-defined]
