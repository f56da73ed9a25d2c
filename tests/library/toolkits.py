"""What the tests of AgentScope's Toolkit share."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from mcp_hub import Toolkit, ToolResponse
from tests.fakes.client import PATIENCE

NOTE = "<system-info>The tool call has been interrupted by the user.</system-info>"


class Point(BaseModel):
    x: int


def text_response(text: str, **fields: Any) -> ToolResponse:
    return ToolResponse([{"type": "text", "text": text}], **fields)


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
    return text_response(str(a + b))


def parameters(toolkit: Toolkit, name: str = "add") -> dict[str, Any]:
    (schema,) = [
        function["function"] for function in toolkit.get_json_schemas() if function["function"]["name"] == name
    ]
    properties: dict[str, Any] = schema["parameters"]
    return properties


def names(toolkit: Toolkit, groups: list[str] | None = None) -> list[str]:
    return [schema["function"]["name"] for schema in toolkit.get_json_schemas(groups)]


def plain() -> ToolResponse:
    return text_response("a b")


async def coroutine() -> ToolResponse:
    return text_response("a b")
