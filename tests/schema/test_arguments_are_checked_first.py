"""Arguments that do not fit are refused before the server is asked, with what to do about it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import PATIENCE, fake, hub

pytestmark = pytest.mark.anyio

SCHEMAS = str(Path(__file__).with_name("server_of_schemas.py"))


def entry(directory: Path, schemas: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A server with a tool of each schema, which writes the name of every tool that is called to `called`."""
    listed = directory / "schemas.json"
    listed.write_text(json.dumps(schemas))
    return fake(**{**options, "args": [SCHEMAS, str(listed), str(directory / "called")]})


def called(directory: Path) -> list[str]:
    path = directory / "called"
    return path.read_text().split() if path.exists() else []


SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "maximum": 10},
        "sort": {"enum": ["new", "old"]},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
    },
    "required": ["query"],
    "additionalProperties": False,
}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "query is missing"),
    ({"qerry": "x"}, "is 'qerry' meant for it?"),
    ({"query": ["x"]}, "query must be a text, not a list"),
    ({"query": "x", "limit": "many"}, "limit must be a whole number"),
    ({"query": "x", "limit": 11}, "limit must be at most 10"),
    ({"query": "x", "sort": "best"}, 'sort must be one of "new", "old"'),
    ({"query": "x", "options": {}}, "options.deep is missing"),
]
PASSED: list[dict[str, Any]] = [
    {"query": "x"},
    {"query": 7, "limit": "3", "options": {"deep": "true"}},
    {"query": "x", "limit": 3.0, "more": 1},
    {"query": "x", "options": '{"deep": true}'},
]


@pytest.mark.parametrize("modern", [False, True])
async def test_invalid_arguments_are_refused_without_asking_the_server(tmp_path: Path, modern: bool) -> None:
    """Check 46."""
    async with hub(tmp_path, {"s": entry(tmp_path, {"search": SEARCH})}, modern=modern) as client:
        for arguments, problem in REFUSED:
            result = await client.call("s__search", arguments)
            assert result["isError"] is True, arguments
            error = result["_meta"]["mcp-hub/error"]
            assert (error["code"], error["server"], error["tool"]) == ("invalid_parameters", "s", "s__search")
            assert problem in result["content"][0]["text"]
    assert called(tmp_path) == []


@pytest.mark.parametrize("modern", [False, True])
async def test_a_convertible_value_reaches_the_server_unchanged(tmp_path: Path, modern: bool) -> None:
    async with hub(tmp_path, {"s": entry(tmp_path, {"search": SEARCH})}, modern=modern) as client:
        for arguments in PASSED:
            text = await client.text("s__search", arguments)
            assert text == json.dumps(arguments)
    assert called(tmp_path) == ["search"] * len(PASSED)


async def test_an_expensive_schema_does_not_delay_other_calls(tmp_path: Path) -> None:
    parts: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    endless = {"type": "object", "$defs": {**parts, "d40": {"type": "integer"}}}
    endless["properties"] = {"a": {"$ref": "#/$defs/d0"}}
    servers = {"s": entry(tmp_path, {"endless": endless}), "good": fake()}
    async with hub(tmp_path, servers) as client:
        assert json.loads(await client.text("s__endless", {"a": []})) == {"a": []}
        assert await client.text("good__echo", {"text": "on time"}) == "on time"


async def test_strict_accepts_only_what_the_schema_allows_and_off_everything(tmp_path: Path) -> None:
    modes = {"validate_arguments": "strict", "tools": {"free": {"validate_arguments": "off"}}}
    async with hub(tmp_path, {"s": entry(tmp_path, {"search": SEARCH, "free": SEARCH}, **modes)}) as client:
        refused = await client.call("s__search", {"query": "x", "limit": "3"})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
        assert json.loads(await client.text("s__free", {"limit": []})) == {"limit": []}


async def test_the_value_of_a_preset_is_checked_and_never_quoted(tmp_path: Path) -> None:
    preset = {"preset": {"search": {"sort": "secret"}}}
    async with hub(tmp_path, {"s": entry(tmp_path, {"search": SEARCH}, **preset)}) as client:
        result = await client.call("s__search", {"query": "x"})
    assert result["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
    assert "sort" not in result["content"][0]["text"]
    assert "secret" not in json.dumps(result)


async def test_a_schema_reference_never_makes_the_hub_open_a_file_or_url(tmp_path: Path) -> None:
    connections = 0
    counted = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        counted.set()
        writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    os.mkfifo(tmp_path / "fifo")  # an open for reading would block for ever
    outside = {
        "http": {"properties": {"a": {"$ref": f"{base}/a.json"}}},
        "file": {"properties": {"a": {"$ref": (tmp_path / "fifo").as_uri()}}},
        "relative": {"$id": f"{base}/root.json", "properties": {"a": {"$ref": "other.json"}}},
        "dynamic": {"properties": {"a": {"$dynamicRef": f"{base}/a.json#x"}}},
        "dialect": {"$schema": f"{base}/meta.json", "properties": {"a": {"type": "string"}}},
        "own_address": {"$id": f"{base}/root.json#", "properties": {"a": {"$ref": f"{base}/root.jso"}}},
        "by_recursion": {"properties": {"a": {"$recursiveRef": f"{base}/a.json"}}},
        "in_a_definition": {"$defs": {"x": {"not": {"$ref": f"{base}/a.json"}}}},
        "no_scheme": {"properties": {"a": {"$ref": str(tmp_path / "fifo")}}},
        "almost_a_dialect": {"$schema": f"{base}/json-schema.org/draft-07/schema#", "required": ["a"]},
        "nested": {"allOf": [{"$id": (tmp_path / "fifo").as_uri(), "$ref": "#/$defs/none"}]},
    }
    schemas = {name: {"type": "object", **schema} for name, schema in outside.items()}
    servers = {
        "s": entry(tmp_path, schemas),
        "t": entry(tmp_path, schemas, validate_arguments="strict"),
    }
    async with listener, hub(tmp_path, servers) as client:
        listed = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        for name, schema in schemas.items():
            assert listed[f"s__{name}"]["inputSchema"] == schema
            for server in ("s", "t"):
                async with asyncio.timeout(PATIENCE):
                    assert json.loads(await client.text(f"{server}__{name}", {"a": "x"})) == {"a": "x"}
        assert connections == 0
        _, writer = await asyncio.open_connection("127.0.0.1", listener.sockets[0].getsockname()[1])
        async with asyncio.timeout(PATIENCE):
            await counted.wait()  # the listener does count a connection
        writer.close()
        await writer.wait_closed()


async def test_a_catastrophic_regular_expression_is_bounded(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(?=((a+)+)+$)\1b"}}}
    arguments = {"a": "a" * 5000 + "!"}
    async with hub(tmp_path, {"s": entry(tmp_path, {"t": schema}, validate_arguments="strict")}) as client:
        assert json.loads(await client.text("s__t", arguments)) == arguments  # nobody knows whether it fits
        assert (await client.request("ping")) == {}


async def test_an_invalid_schema_is_logged_once_and_the_tool_works(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    async with hub(tmp_path, {"s": entry(tmp_path, {"t": schema}, validate_arguments="strict")}) as client:
        for _ in range(3):
            assert json.loads(await client.text("s__t", {"a": 1})) == {"a": 1}
        await client.until(lambda: b"arguments of t are not checked" in client.stderr)
        assert client.stderr.count(b"arguments of t are not checked") == 1
