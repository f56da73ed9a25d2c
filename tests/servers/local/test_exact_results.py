"""A function that says its result exactly, or with which code it refuses."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.client import StdioClient, spawned

pytestmark = pytest.mark.anyio

TOOLS = """
from mcp_hub import tool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}

@tool
def exact() -> ToolResult:
    return ToolResult([IMAGE], structured={"a": 1}, meta={"x/y": [1]})

@tool
def failing() -> ToolResult:
    return ToolResult([{"type": "text", "text": "no"}], is_error=True)

@tool
def not_json() -> ToolResult:
    return ToolResult([{"type": "text", "text": object()}])

@tool
def refusing(code: str) -> str:
    raise ToolRefused(code, "Not now.")
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[StdioClient]:
    (tmp_path / "tools.py").write_text(TOOLS)
    async with spawned([sys.executable, "-m", "mcp_hub.servers", "local", str(tmp_path)]) as running:
        await running.initialize()
        yield running


async def test_an_exact_result_is_sent_unchanged(client: StdioClient) -> None:
    assert await client.call("exact") == {
        "content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}],
        "structuredContent": {"a": 1},
        "_meta": {"x/y": [1]},
    }
    assert await client.call("failing") == {"content": [{"type": "text", "text": "no"}], "isError": True}
    listed = (await client.request("tools/list"))["tools"]
    assert not [tool for tool in listed if "outputSchema" in tool]


async def test_an_exact_result_that_is_not_json_is_an_error(client: StdioClient) -> None:
    result = await client.call("not_json")
    assert result["_meta"]["mcp-hub/error"]["code"] == "tool_error"


async def test_a_refusal_has_the_code_it_was_given(client: StdioClient) -> None:
    for code, retryable in (("guard_blocked", False), ("timeout", True), ("overloaded", True)):
        result = await client.call("refusing", {"code": code})
        assert result["isError"]
        assert result["content"] == [{"type": "text", "text": "Not now."}]
        facts = {"code": code, "server": None, "tool": "refusing", "retryable": retryable}
        assert result["_meta"] == {"mcp-hub/error": facts}
