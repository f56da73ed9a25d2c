"""The input schemas that a client is listed: what the provider of its models takes; calls are checked as before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.types import Implementation

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.clients import Provider
from mcp_hub.clients.table import BY_ID
from mcp_hub.hub.client_schemas import ClientSchemas
from mcp_hub.library.formats import anthropic_tools, openai_tools
from mcp_hub.protocol.era import CLIENT_INFO_KEY
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, hub, spawned, write_config
from tests.fakes.network import network_hub, sdk, text
from tests.hub.exposure.listing import introduce
from tests.hub.exposure.test_what_commands_say import stdout_of
from tests.schema.provider_subsets import REFUSED_BY
from tests.schema.refused_schemas import REFUSED

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
CLIENTS = {
    "claude-code": "anthropic",
    "claude-ai (via mcp-remote 0.1.37)": "anthropic",
    "codex-mcp-client": "openai",
    "gemini-cli-mcp-client": "gemini",
}
STRICT: Json = {
    "type": "object", "additionalProperties": False,
    "properties": {"text": {"type": "string"}, "level": {"type": "integer", "enum": [1, 2]}},
    "allOf": [{"required": ["text"]}],
}  # fmt: skip
SCHEMAS = {"echo": STRICT, **{f"tool_{n}": schema for n, (_, _, schema, _) in enumerate(REFUSED)}}
SCHEMAS = {name: {"type": "object", **schema} for name, schema in SCHEMAS.items()}


def server(directory: Path) -> Json:
    """The entry of a server with one tool for each of the schemas, of which `echo` works."""
    file = directory / "lists.json"
    file.write_text(json.dumps({"tools": [{"name": name, "inputSchema": schema} for name, schema in SCHEMAS.items()]}))
    return fake("--lists", str(file))


async def listed(client: StdioClient, name: str) -> Json:
    """The schemas that a modern client of this name is listed."""
    page = await client.request("tools/list", {"_meta": {CLIENT_INFO_KEY: {"name": name, "version": "1"}}})
    return {tool["name"].removeprefix("a__"): tool["inputSchema"] for tool in page["tools"]}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(("name", "provider"), CLIENTS.items())
async def test_a_client_is_listed_schemas_that_its_provider_takes(
    tmp_path: Path, name: str, provider: str, modern: bool
) -> None:
    check = REFUSED_BY[provider]
    assert any(map(check, SCHEMAS.values()))
    async with hub(tmp_path, {"a": server(tmp_path)}, modern=modern, handshake=False, expose="all") as client:
        if not modern:
            await introduce(client, name)
        schemas = await listed(client, name)
    assert schemas.keys() == SCHEMAS.keys()
    assert [reason for schema in schemas.values() for reason in check(schema)] == []


async def test_other_clients_are_listed_the_servers_own_schemas(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server(tmp_path)}, modern=True, expose="all") as client:
        for name in ("cursor-vscode", "a client of my own", "mcp-hub"):
            assert await listed(client, name) == SCHEMAS
        assert await listed(client, "codex-mcp-client") != SCHEMAS
        assert await listed(client, "mcp") == SCHEMAS


async def test_the_setting_holds_for_every_client_and_may_change_while_the_hub_runs(tmp_path: Path) -> None:
    entry = server(tmp_path)
    async with hub(tmp_path, {"a": entry}, modern=True, expose="all", schemas="portable") as client:
        for name in ("a client of my own", "claude-code"):
            schemas = await listed(client, name)
            assert [reason for check in REFUSED_BY.values() for s in schemas.values() for reason in check(s)] == []
    async with hub(tmp_path, {"a": entry}, expose="all", schemas="original") as client:
        await introduce(client, "claude-code")
        assert await listed(client, "claude-code") == SCHEMAS
        write_config(tmp_path, {"a": entry}, expose="all", schemas="auto")
        await client.notified("notifications/tools/list_changed")
        assert await listed(client, "claude-code") != SCHEMAS


async def test_arguments_are_checked_by_the_servers_own_schema(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server(tmp_path)}, modern=True, expose="all") as client:
        schema = (await listed(client, "gemini-cli-mcp-client"))["echo"]
        assert "enum" not in schema["properties"]["level"]
        assert await client.text("a__echo", {"text": "x", "level": 2}) == "x"
        for arguments in ({"text": "x", "level": 3}, {"level": 1}):
            result = await client.call("a__echo", arguments)
            assert result["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"


async def test_a_list_that_differs_by_client_is_not_shared_between_clients(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": server(tmp_path)}, modern=True, expose="all") as client:
        meta = {CLIENT_INFO_KEY: {"name": "codex-mcp-client", "version": "1"}}
        assert (await client.request("tools/list", {"_meta": meta}))["cacheScope"] == "private"


@pytest.mark.parametrize(("name", "provider"), [("claude-desktop", "anthropic"), ("codex", "openai"),
    ("gemini", "gemini"), ("cursor", None)])  # fmt: skip
async def test_the_tools_command_prints_the_schemas_that_a_client_is_listed(
    tmp_path: Path, name: str, provider: str | None
) -> None:
    own_name = BY_ID[name].calls_itself[0]
    config = str(write_config(tmp_path, {"a": server(tmp_path)}, expose="all"))
    printed = json.loads(stdout_of("tools", "--config", config, "--client", name, "--json"))
    async with spawned([*HUB, "serve", "--config", config], modern=True) as client:
        assert {tool["name"].removeprefix("a__"): tool["inputSchema"] for tool in printed} == (
            schemas := await listed(client, own_name)
        )
    assert (schemas == SCHEMAS) == (provider is None)


def test_the_tools_command_prints_schemas_for_all_providers_where_all_clients_are_listed_them(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": server(tmp_path)}, expose="all", schemas="portable"))
    printed = json.loads(stdout_of("tools", "--config", config, "--json"))
    assert [reason for check in REFUSED_BY.values() for tool in printed for reason in check(tool["inputSchema"])] == []


@pytest.mark.parametrize(("format", "key"), [("openai", "parameters"), ("anthropic", "input_schema")])
def test_the_formats_for_models_have_schemas_that_their_provider_takes(format: str, key: str) -> None:
    definitions = [{"name": name, "inputSchema": schema} for name, schema in SCHEMAS.items()]
    made = {"openai": openai_tools, "anthropic": anthropic_tools}[format](definitions)
    schemas = [tool.get("function", tool)[key] for tool in made]
    assert any(map(REFUSED_BY[format], SCHEMAS.values()))
    assert [reason for schema in schemas for reason in REFUSED_BY[format](schema)] == []


async def test_requests_at_the_same_time_make_a_listing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten: list[str] = []

    def counted(schema: Json, provider: Provider | None) -> Json:
        rewritten.append(str(provider))
        return {**schema, "title": str(provider)}

    monkeypatch.setattr("mcp_hub.schema.portable_schema.portable_schema", counted)
    items = tuple(Item(Route("a", TOOLS, name), name, {"name": name, "inputSchema": schema})
        for name, schema in SCHEMAS.items())  # fmt: skip
    catalog, schemas = Catalog.build([CatalogSource("a", "a", items)]), ClientSchemas("auto")
    requests = [schemas.listed(catalog, BY_ID[name]) for name in ("claude-code", "codex", "claude-desktop") * 5]
    async with asyncio.timeout(PATIENCE):
        listings = await asyncio.gather(*requests)
    assert sorted(rewritten) == ["anthropic"] * len(SCHEMAS) + ["openai"] * len(SCHEMAS)
    assert len({id(listing) for listing in listings}) == 2
    assert set(listings) == set(catalog.listings.values())


def test_check_counts_the_rewritten_schemas(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, {"a": server(tmp_path)}, expose="all"))
    report = json.loads(stdout_of("check", "--config", config, "--json"))
    counts = {client: row["rewritten"] for row in report["rewritten"] for client in row["clients"]}
    assert counts.keys() == {"Claude Desktop", "Claude Code", "Codex", "Gemini CLI"}
    assert 0 < counts["Claude Code"] == counts["Claude Desktop"] < counts["Codex"] == counts["Gemini CLI"]
    lines = [line for line in stdout_of("check", "--config", config).splitlines() if line.startswith("schemas ")]
    assert [str(counts["Codex"]) in line and "Gemini CLI" in line for line in lines] == [True]
    config = str(write_config(tmp_path, {"a": server(tmp_path)}, expose="all", schemas="original"))
    assert json.loads(stdout_of("check", "--config", config, "--json"))["rewritten"] == []


@pytest.mark.parametrize("name", ["claude-code", "gemini-cli-mcp-client", "somebody"])
async def test_a_client_need_not_repeat_in_headers_what_its_list_does_not_ask_for(tmp_path: Path, name: str) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}, "n": {"const": 1}}}
    (tmp_path / "lists").write_text(json.dumps({"tools": [{"name": "echo", "inputSchema": schema}]}))
    servers = {"a": fake("--lists", str(tmp_path / "lists"))}
    info = Implementation(name=name, version="1")
    async with (
        network_hub(tmp_path / "hub", servers) as (_, base),
        sdk(f"{base}/mcp", "modern", client_info=info) as client,
    ):
        (tool,) = (await client.list_tools()).tools
        assert ("x-mcp-header" in json.dumps(tool.input_schema)) == (name != "gemini-cli-mcp-client")
        assert await text(client, "a__echo", {"text": "x"}) == "x"
