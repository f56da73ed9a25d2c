"""What the configuration adds to the input schemas of servers, and what it takes away."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.fakes.client import hub

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("server_of_schemas.py"))
TITLED = {
    "type": "object",
    "title": "Arguments",
    "properties": {"title": {"type": "string", "title": "Title"}, "size": {"$ref": "#/$defs/Size"}},
    "required": ["title"],
    "$defs": {"Size": {"type": "integer", "title": "Size"}},
}
ADDED = {
    "properties": {"reason": {"type": "string"}, "size": {"$ref": "#/$defs/Size"}},
    "required": ["reason"],
    "$defs": {"Size": {"type": "integer", "title": "Size"}},
}


async def test_configured_schema_edits_strip_titles_and_add_properties(tmp_path: Path) -> None:
    """Arguments are checked against the schema that is listed, and reach the server; what clashes is left out."""
    bare = {"type": "object", "properties": {"title": {"type": "string"}}}
    schemas = {"plain": TITLED, "bare": TITLED, "more": bare, "clash": TITLED}
    (tmp_path / "schemas.json").write_text(json.dumps(schemas))
    called = tmp_path / "called"
    tools = {
        "bare": {"strip_titles": True},
        "more": {"extend_schema": ADDED},
        "clash": {"extend_schema": ADDED},
    }
    args = [SERVER, str(tmp_path / "schemas.json"), str(called)]
    entry = {"command": sys.executable, "args": args, "namespace": "", "tools": tools}
    async with hub(tmp_path, {"s": entry}) as client:
        listed = {tool["name"]: tool["inputSchema"] for tool in (await client.request("tools/list"))["tools"]}
        assert listed["plain"] == listed["clash"] == TITLED
        assert listed["bare"] == {
            "type": "object",
            "properties": {"title": {"type": "string"}, "size": {"$ref": "#/$defs/Size"}},
            "required": ["title"],
            "$defs": {"Size": {"type": "integer"}},
        }
        assert listed["more"] == {
            "type": "object",
            "properties": {**bare["properties"], **ADDED["properties"]},  # type: ignore[dict-item]
            "required": ["reason"],
            "$defs": ADDED["$defs"],
        }
        await client.until(lambda: b"extend_schema of clash is left out" in client.stderr)
        refused = await client.call("more", {"title": "t"})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
        assert not called.exists()
        arguments = {"title": "t", "reason": "r", "size": 1}
        assert json.loads(await client.text("more", arguments)) == arguments


async def test_configured_entries_get_short_descriptions_and_compact_schemas(tmp_path: Path) -> None:
    """Arguments are still checked against the schema of the server, and what the user wrote stays as long as it is."""
    path_schema = {"type": "string", "title": "Path", "description": "A path. It is relative to the root."}
    schema = {"type": "object", "title": "A", "properties": {"path": path_schema}, "required": ["path"]}
    (tmp_path / "schemas.json").write_text(json.dumps(dict.fromkeys(("short", "whole", "own"), schema)))
    called = tmp_path / "called"
    tools = {
        "whole": {"descriptions": "full", "schemas": "full"},
        "own": {"description": "Mine. It is long."},
    }
    args = [SERVER, str(tmp_path / "schemas.json"), str(called)]
    entry = {"command": sys.executable, "args": args, "namespace": "", "tools": tools}
    async with hub(tmp_path, {"s": entry}, defaults={"descriptions": "first_sentence", "schemas": "compact"}) as client:
        listed = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        small = {"type": "string", "description": "A path."}
        assert listed["whole"]["inputSchema"] == schema
        assert listed["short"]["inputSchema"] == {
            "type": "object", "properties": {"path": small}, "required": ["path"],
        }  # fmt: skip
        assert listed["own"]["description"] == "Mine. It is long."
        assert listed["own"]["inputSchema"] == listed["short"]["inputSchema"]
        refused = await client.call("short", {})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
        assert json.loads(await client.text("short", {"path": "a"})) == {"path": "a"}
