"""A server that has both eras is spoken to in that of its client, so that what it can do in one alone is not lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.fakes.client import HUB, PATIENCE, fake, hub, spawned, write_config
from tests.hub.test_over_a_network import network_hub, sdk
from tests.upstream.asking.test_servers_ask_handshake_clients import (
    QUESTION,
    answer,
    asked,
    asking,
    client_of,
    respond,
    respondent,
    text_of,
)

pytestmark = pytest.mark.anyio

ROOTS = {"roots": [{"uri": "file:///x"}]}
BOTH = ("--era", "both")


async def test_the_only_client_has_shaken_hands_and_so_does_the_hub(tmp_path: Path) -> None:
    async with client_of(tmp_path, asking(*BOTH)) as client:
        call = client.start("tools/call", {"name": "a__ask", "arguments": {"method": "roots/list"}})
        (question,) = await asked(client)
        respond(client, question, result=ROOTS)
        async with asyncio.timeout(PATIENCE):
            assert text_of(await call) == {"result": ROOTS}


async def test_the_only_client_is_modern_and_so_is_the_hub(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": asking(*BOTH)})
    async with spawned([*HUB, "serve", "--config", str(config)], modern=True) as client:
        assert await client.text("a__ask", {}) == "this is asked of clients of the handshake alone"


async def test_what_was_kept_of_a_server_does_not_say_how_the_next_client_is_served(tmp_path: Path) -> None:
    async def spoken(modern: bool) -> bool:
        async with hub(tmp_path, {"up": fake("--era", "dual")}, modern=modern) as client:
            seen = json.loads(await client.text("up__meta"))
            return "io.modelcontextprotocol/protocolVersion" in seen

    eras = (False, True, True, False)
    assert [await spoken(modern) for modern in eras] == list(eras)


async def test_a_modern_server_whose_first_request_settles_its_era_is_started_anew_for_a_client_that_shakes_hands(
    tmp_path: Path,
) -> None:
    for modern in (True, False):  # the second client is served from what was kept for the first
        async with hub(tmp_path, {"up": fake("--era", "modern", "--one-opening")}, modern=modern) as client:
            assert "io.modelcontextprotocol/protocolVersion" in json.loads(await client.text("up__meta"))


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_session_of_its_own_is_in_the_era_of_its_caller(tmp_path: Path, path: str) -> None:
    heard: list[str] = []
    async with network_hub(tmp_path, {"a": asking(*BOTH, session="client")}) as (_, base):
        async with sdk(base + path, "handshake", **respondent("old", heard)) as client:
            assert (await answer(client))["result"]["content"] == {"name": "old"}
        async with sdk(base + path, "modern", **respondent("new", heard)) as client:
            async with asyncio.timeout(PATIENCE):
                result = await client.call_tool("a__ask", QUESTION)
            assert "handshake alone" in str(result.content)
    assert heard == ["who?"]
