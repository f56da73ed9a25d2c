"""What is counted and left out in lists, on the tools of twenty servers that people run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog.token_estimate import estimate_tool_tokens
from mcp_hub.clients import Provider
from mcp_hub.protocol.frames import encode
from mcp_hub.schema.compact_schema import compact_schema
from mcp_hub.schema.compiled_schemas import CompiledSchema
from mcp_hub.schema.portable_schema import portable_schema
from tests.differential.spellings import calls
from tests.fakes.client import HUB, spawned, write_config
from tests.peers.argument_servers import ARGUMENT_SERVERS
from tests.peers.catalogue import real_servers
from tests.schema.provider_subsets import REFUSED_BY
from tests.vocabularies import VOCABULARIES, count_tokens

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
SENT = ("name", "description", "inputSchema")
"""What clients pass to their model."""


@pytest.fixture(scope="module")
async def tools(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> list[Json]:
    """The tools of all servers as they list them."""
    return await _list_tools(tmp_path_factory.mktemp("whole"))


async def _list_tools(tmp: Path, **defaults: Any) -> list[Json]:
    async with real_servers(tmp, ()) as place:
        servers = {server.name: server.entry(place) for server in ARGUMENT_SERVERS}
        config = write_config(tmp, servers, expose="all", list_wait=60, call_log=False, defaults=defaults)
        async with spawned([*HUB, "serve", "--config", str(config)]) as hub:
            await hub.initialize()
            listed: list[Json] = (await hub.request("tools/list"))["tools"]
    assert {tool["name"].partition("__")[0] for tool in listed} == {server.name for server in ARGUMENT_SERVERS}
    return listed


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
async def test_the_token_estimate_of_all_real_tools_is_within_a_tenth(tools: list[Json], vocabulary: str) -> None:
    sent = [encode({key: tool[key] for key in SENT if key in tool}).decode() for tool in tools]
    counted = sum(count_tokens(vocabulary, text) for text in sent)
    assert sum(map(estimate_tool_tokens, tools)) == pytest.approx(counted, rel=0.1)


def _values(schema: Json) -> Iterator[Any]:
    yield from ({}, None, [], 1, "a")
    yield from calls(schema, {})


async def test_compact_schemas_of_real_tools_accept_and_refuse_the_same(tools: list[Json]) -> None:
    comparisons = 0
    for tool in tools:
        schema = tool["inputSchema"]
        for mode in ("strict", "lenient"):
            full, compact = CompiledSchema(schema, mode), CompiledSchema(compact_schema(schema), mode)
            for value in _values(schema):
                assert full.accepts(value) == compact.accepts(value), (tool["name"], mode, value)
                comparisons += 1
    assert comparisons > 10_000


@pytest.mark.parametrize("provider", [*REFUSED_BY, None])
async def test_providers_take_the_portable_schemas_of_real_tools_which_accept_the_same_arguments(
    tools: list[Json], provider: Provider | None
) -> None:
    comparisons = 0
    for tool in tools:
        schema = tool["inputSchema"]
        portable = portable_schema(schema, provider)
        checks = [check for name, check in REFUSED_BY.items() if provider in (name, None)]
        assert [reason for check in checks for reason in check(portable)] == [], tool["name"]
        own, rewritten = CompiledSchema(schema, "strict"), CompiledSchema(portable, "strict")
        for value in _values(schema):
            comparisons += 1
            assert rewritten.accepts(value) or not isinstance(value, dict) or not own.accepts(value), tool["name"]
    assert comparisons > 5_000


async def test_a_hub_with_short_descriptions_and_compact_schemas_loses_no_argument(
    tools: list[Json], tmp_path: Path
) -> None:
    small = await _list_tools(tmp_path, descriptions="first_sentence", schemas="compact")
    assert [tool["name"] for tool in small] == [tool["name"] for tool in tools]
    for small_tool, full_tool in zip(small, tools, strict=True):
        assert estimate_tool_tokens(small_tool) <= estimate_tool_tokens(full_tool)
        assert small_tool["description"]
        before, after = full_tool["inputSchema"], small_tool["inputSchema"]
        assert after.get("properties", {}).keys() == before.get("properties", {}).keys()
        assert after.get("required", []) == before.get("required", [])
    saved = 1 - sum(map(estimate_tool_tokens, small)) / sum(map(estimate_tool_tokens, tools))
    assert saved > 0.15, json.dumps(saved)
