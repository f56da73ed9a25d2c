"""No call that a real server answers may be refused by the validation that the hub does by default, or by the guard."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.differential.spellings import calls
from tests.fakes.client import HUB, RpcError, StdioClient, spawned, write_config
from tests.fakes.network import network_hub
from tests.peers.argument_servers import ARGUMENT_SERVERS, ArgumentServer
from tests.peers.catalogue import Place, real_servers

pytestmark = pytest.mark.anyio

CALLS: Final = int(os.environ.get("MCP_HUB_SPELLINGS", "100"))
"""Calls of each server besides the valid ones, chosen from all that are generated."""
SEED: Final = 1
MIN_COMPLETED: Final = 5
"""Calls that each server has to do at least, so that what is generated is not refused by all."""
ANSWER: Final = 10.0
"""Seconds for one answer; a call that takes longer was not answered."""

Json = dict[str, Any]


async def result_of(client: StdioClient, tool: str, arguments: Json) -> Json | None:
    """The result of a call; None for an error of the protocol and for no answer in time."""
    try:
        async with asyncio.timeout(ANSWER):
            return await client.call(tool, arguments)
    except (RpcError, TimeoutError):
        return None


def refused(result: Json | None) -> bool:
    meta = (result or {}).get("_meta") or {}
    return meta.get("mcp-hub/error", {}).get("code") in ("invalid_parameters", "guard_blocked")


def sample_calls(server: ArgumentServer, tools: list[Json], place: Place) -> list[tuple[str, Json]]:
    """Different calls of a server's tools: two valid ones of each, and as many of the others as there is time for."""
    valid: list[tuple[str, Json]] = []
    variants: dict[str, tuple[str, Json]] = {}
    for tool in tools:
        if tool["name"] not in server.avoid:
            least, full, *remainder = calls(tool["inputSchema"], server.values(place))
            valid += [(tool["name"], least), (tool["name"], full)]
            variants |= {json.dumps([tool["name"], arguments]): (tool["name"], arguments) for arguments in remainder}
    sample = random.Random(f"{SEED} {server.name}").sample(list(variants.values()), min(CALLS, len(variants)))
    return valid + sample


async def wrongly_refused(
    server: ArgumentServer, checked: StdioClient, unchecked: StdioClient, tools: list[Json], place: Place
) -> tuple[list[str], int]:
    """The calls that the hub refused and the server takes, and the number of those that the server did."""
    prefix = f"{server.name}__"
    own = [tool for tool in tools if tool["name"].startswith(prefix)]
    listed = [{**tool, "name": tool["name"].removeprefix(prefix)} for tool in own]
    completed, accepted = 0, []
    for tool, arguments in sample_calls(server, listed, place):
        result = await result_of(checked, prefix + tool, arguments)
        completed += result is not None and not result.get("isError")
        if refused(result):
            result = await result_of(unchecked, prefix + tool, arguments)
            assert not refused(result), "a hub without these rules has refused arguments"
            if result is not None and not result.get("isError"):
                accepted.append(f"{prefix}{tool} {json.dumps(arguments)}")
    return accepted, completed


@contextlib.asynccontextmanager
async def front(directory: Path, base: str, **rules: Any) -> AsyncIterator[StdioClient]:
    """A client of a hub with these rules, which has all tools of the hub at this address under the same names."""
    directory.mkdir()
    config = write_config(directory, {"all": {"url": f"{base}/mcp", "namespace": ""}}, **rules)
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        yield client


async def test_neither_validation_nor_the_guard_of_all_tools_refuses_a_call_that_a_real_server_answers(
    tmp_path: Path,
) -> None:
    """The servers are started once, behind a hub that refuses nothing; what is tried are hubs in front of it."""
    assert len(ARGUMENT_SERVERS) >= 20
    async with real_servers(tmp_path, ()) as place:
        servers = {server.name: server.entry(place) for server in ARGUMENT_SERVERS}
        plain = {"list_wait": 60, "call_log": False, "expose": "all"}
        unchecking = {**plain, "defaults": {"validate_arguments": "off"}, "guard": "off"}
        async with (
            network_hub(tmp_path, servers, **unchecking) as (_, base),
            front(tmp_path / "checked", base, **plain, guard={"tools": ["*"]}) as checked,
            front(tmp_path / "unchecked", base, **unchecking) as unchecked,
        ):
            tools = (await checked.request("tools/list"))["tools"]
            await unchecked.request("tools/list")
            comparisons = (wrongly_refused(server, checked, unchecked, tools, place) for server in ARGUMENT_SERVERS)
            outcomes = await asyncio.gather(*comparisons)
    assert [call for accepted, _ in outcomes for call in accepted] == []
    assert {
        server.name
        for server, (_, completed) in zip(ARGUMENT_SERVERS, outcomes, strict=True)
        if completed < MIN_COMPLETED
    } == set()
