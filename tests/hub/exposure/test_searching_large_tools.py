"""A search answers for tools with large or hostile definitions, and keeps the hub's loop for nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import fake, hub

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


def schemas() -> Iterator[Json]:
    names = [f"name_{number}" for number in range(4000)]
    yield {"type": "object", "properties": dict.fromkeys(names, True), "required": names[::2]}
    inner = {"type": "object", "properties": dict.fromkeys(names[:2000], True), "required": names[:1000]}
    references = {name: {"$ref": "#/$defs/inner"} for name in names[:1000]}
    yield {"type": "object", "properties": references, "required": names[:1000], "$defs": {"inner": inner}}
    conjuncts = [{"properties": {f"{name}_{number}": True for number in range(9)}} for name in names[:1000]]
    yield {"type": "object", "properties": {"a": {"allOf": conjuncts}, "b": {"anyOf": conjuncts}}}
    yield {"type": "object", "properties": {"a": {"enum": ["x" * 20_000] * 8}, "b": {"const": ["y"] * 20_000}}}


@pytest.mark.parametrize("mode", ["search", "code"])
async def test_a_search_shows_tools_with_large_schemas_and_keeps_the_loop_for_nobody(tmp_path: Path, mode: str) -> None:
    hostile = list(schemas())
    tools = [
        {"name": f"tool_{number}", "description": "Does x. " * 100, "inputSchema": hostile[number % len(hostile)]}
        for number in range(20)
    ]
    (tmp_path / "lists").write_text(json.dumps({"tools": tools}))
    async with hub(tmp_path, {"a": fake("--lists", str(tmp_path / "lists"))}, expose=mode) as client:
        for detail in ("brief", "signature", "full"):
            text = await client.text("hub_search", {"query": "", "detail": detail, "limit": 20})
            assert "a__tool_0" in text
