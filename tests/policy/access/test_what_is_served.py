"""Tool sets, profiles and tags: `serve --tool-set`, `--profile`, `--tag`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB, RpcError, StdioClient, fake, spawned, write_config

pytestmark = pytest.mark.anyio

SERVERS = {"a": fake(tags=["alpha"]), "b": fake(tools={"pid": {"tags": ["who"]}, "echo": {"name": "say"}})}
ROOT: dict[str, Any] = {
    "tool_sets": {
        "data_analysis_set": {"description": "For analysts.", "tools": ["a/ad*", "b__say"]},
        "counting": ["count"],
    },
    "profiles": {
        "analyst": {"tool_sets": ["data_analysis_set", "counting"], "tools": ["a/add", "a__meta"]},
        "tagged": {"tags": ["who"]},
    },
}


@contextlib.asynccontextmanager
async def serving(directory: Path, *options: str) -> AsyncIterator[StdioClient]:
    config = write_config(directory, SERVERS, **ROOT)
    async with spawned([*HUB, "serve", "--config", str(config), *options]) as client:
        await client.initialize()
        yield client


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--tool-set", "data_analysis_set"], ["a__add", "b__say"]),
        (["--tool-set", "data_analysis_set", "--tool-set", "counting"], ["a__add", "a__count", "b__say", "b__count"]),
        (["--profile", "analyst"], ["a__add", "a__count", "a__meta", "b__say", "b__count"]),
        (["--profile", "tagged"], ["b__pid"]),
        (["--tag", "who"], ["b__pid"]),
        (["--tag", "alpha", "--tool-set", "counting"], ["a__count"]),
    ],
)
async def test_exactly_the_chosen_tools_are_listed_and_callable(
    tmp_path: Path, options: list[str], names: list[str]
) -> None:
    """Check 45."""
    async with serving(tmp_path, *options) as client:
        assert sorted(await client.tool_names()) == sorted(names)
        for name in ("a__fail", "b__fail", "b__echo"):
            with pytest.raises(RpcError) as refused:
                await client.call(name)
            assert refused.value.error == {"code": -32602, "message": f"Unknown tool: {name}"}


async def test_resources_and_prompts_are_served_only_from_servers_with_a_selected_tool(tmp_path: Path) -> None:
    async with serving(tmp_path, "--tag", "who") as client:
        prompts = (await client.request("prompts/list"))["prompts"]
        assert [prompt["name"] for prompt in prompts] == ["b__greet"]
        with pytest.raises(RpcError) as refused:
            await client.request("prompts/get", {"name": "a__greet"})
        assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tool-set", "nothing"], "there is no tool set 'nothing'"),
        (["--profile", "nobody"], "there is no profile 'nobody'"),
    ],
)
async def test_an_unknown_profile_or_set_is_an_error_that_lists_the_known_ones(
    tmp_path: Path, options: list[str], said: str
) -> None:
    config = write_config(tmp_path, SERVERS, **ROOT)
    async with spawned([*HUB, "serve", "--config", str(config), *options]) as client:
        assert await client.exited() == 2
        await client.until(lambda: said.encode() in client.stderr)
        assert b"data_analysis_set" in client.stderr or b"analyst" in client.stderr


async def test_the_tools_command_lists_what_would_be_served(tmp_path: Path) -> None:
    config = write_config(tmp_path, SERVERS, **ROOT)
    async with spawned([*HUB, "tools", "--json", "--tag", "who", "--config", str(config)]) as client:
        assert await client.exited() == 0
        await client.until(lambda: client.noise or client.unmatched)
        listed = json.loads(b"".join(client.noise)) if client.noise else client.unmatched[0]
    assert [tool["name"] for tool in listed] == ["b__pid"]


async def test_the_tools_command_lists_by_server(tmp_path: Path) -> None:
    servers = {**SERVERS, "dead": fake("--die", "gone"), "off": fake(enabled=False)}
    config = write_config(tmp_path, servers, **ROOT, blacklist=[["a", "add"]])
    async with spawned([*HUB, "tools", "--json", "--by-server", "--config", str(config)]) as client:
        assert await client.exited() == 0
        await client.until(lambda: client.noise or client.unmatched)
        listed = json.loads(b"".join(client.noise)) if client.noise else client.unmatched[0]
    assert [server["name"] for server in listed] == [*SERVERS, "dead"]
    tools = {server["name"]: server["tools"] for server in listed}
    assert tools["a"][0] == {
        "name": "echo",
        "description": "echo of fake",
        "schema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    assert "add" not in [tool["name"] for tool in tools["a"]]
    ((key, error),) = tools["dead"][0].items()
    assert (key, error.partition(":")[0]) == ("error", "Unable to fetch tools")


async def test_a_member_that_no_server_lists_fails_check_and_is_a_warning_in_serve(tmp_path: Path) -> None:
    root = {"tool_sets": {"some": ["a/echo", "a/ehco", "nowhere/*"]}, "profiles": {"p": {"tools": ["b/nothing"]}}}
    config = write_config(tmp_path, SERVERS, **root)
    async with spawned([*HUB, "check", "--config", str(config)]) as client:
        assert await client.exited() == 1
        await client.until(lambda: any(b"profiles.p" in line for line in client.noise))
        printed = b"".join(client.noise)
        assert b"error: tool_sets.some: no server has a/ehco; did you mean a/echo?" in printed
        assert b"error: tool_sets.some: no server has nowhere/*" in printed
        assert b"error: profiles.p: no server has b/nothing" in printed
    async with spawned([*HUB, "serve", "--tool-set", "some", "--config", str(config)]) as client:
        await client.initialize()
        assert await client.tool_names() == ["a__echo"]
        await client.until(lambda: b"tool_sets.some: no server has a/ehco" in client.stderr)
