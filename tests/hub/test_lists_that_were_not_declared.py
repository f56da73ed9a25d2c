"""A list that a server of the handshake era did not declare is asked for once, and offered if it answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB, PATIENCE, fake, hub, spawned, write_config

pytestmark = pytest.mark.anyio

TOOLS_ALONE = {"capabilities": {"tools": {"listChanged": True}}}
UNDECLARED = ("resources/list", "resources/templates/list", "prompts/list")


def server(directory: Path, lists: dict[str, Any], **entry: Any) -> dict[str, Any]:
    """A server whose lists are in a file, and which records what it receives in another."""
    (directory / "lists.json").write_text(json.dumps(lists))
    return fake("--lists", str(directory / "lists.json"), "--record", str(directory / "record"), **entry)


def asked(directory: Path) -> dict[str, int]:
    """How often the server got a request for each list that it did not declare."""
    text = (directory / "record").read_text()
    return {method: text.count(f'"method":"{method}"') for method in UNDECLARED}


async def test_a_list_that_was_not_declared_and_answers_is_announced_offered_and_used(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": server(tmp_path, TOOLS_ALONE)}) as client:
        assert "up__echo" in await client.tool_names()
        if not (await client.request("prompts/list"))["prompts"]:
            await client.notified("notifications/prompts/list_changed")
        prompts = (await client.request("prompts/list"))["prompts"]
        assert [prompt["name"] for prompt in prompts] == ["up__greet"]
        answer = await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "you"}})
        assert answer["messages"][0]["content"]["text"] == "hello you"
        assert [item["uri"] for item in (await client.request("resources/list"))["resources"]] == ["fake://fake/one"]
        assert (await client.request("resources/templates/list"))["resourceTemplates"]


async def test_tools_that_were_not_declared_are_offered(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": server(tmp_path, {"capabilities": {}})}) as client:
        if "up__echo" not in await client.tool_names():
            await client.notified("notifications/tools/list_changed")
        assert await client.text("up__echo", {"text": "x"}) == "x"


@pytest.mark.parametrize("fault", ["error", "silence", "exit"])
async def test_a_server_without_such_lists_is_asked_once_for_all_starts_of_its_version(
    tmp_path: Path, fault: str
) -> None:
    faults = {**TOOLS_ALONE, "faults": dict.fromkeys(UNDECLARED, fault)}
    servers = {"up": server(tmp_path, faults, deadlines={"list": 1.0})}
    total = 0
    for version, is_new in (("1", True), ("1", False), ("2", True)):
        (tmp_path / "lists.json").write_text(json.dumps({**faults, "version": version}))
        result = subprocess.run([*HUB, "tools", "--config", str(write_config(tmp_path, servers))],
            check=True, timeout=PATIENCE, capture_output=True, text=True)  # fmt: skip
        assert "up__echo" in result.stdout
        assert result.stderr == "" or fault == "exit"
        former_total, total = total, sum(asked(tmp_path).values())
        # A server that ends at the first request does not read the others.
        assert total - former_total == is_new * (1 if fault == "exit" else 3)


async def test_a_caller_with_a_session_of_its_own_keeps_a_list_that_was_not_declared(tmp_path: Path) -> None:
    servers = {"up": server(tmp_path, TOOLS_ALONE, session="client")}
    async with spawned([*HUB, "serve", "--config", str(write_config(tmp_path, servers))]) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "c"}}
        await client.request("initialize", params)
        client.notify("notifications/initialized")
        await client.tool_names()
        async with asyncio.timeout(PATIENCE):
            while not (await client.request("prompts/list"))["prompts"]:
                await asyncio.sleep(0.01)
            await client.text("up__grow")  # on its own session, whose lists are fetched then
            while "up__grown" not in await client.tool_names():
                await asyncio.sleep(0.01)
        assert [prompt["name"] for prompt in (await client.request("prompts/list"))["prompts"]] == ["up__greet"]
        assert sum(asked(tmp_path).values()) >= len(UNDECLARED)


async def test_a_rule_about_an_item_of_a_list_that_was_not_declared_is_judged_by_that_list(tmp_path: Path) -> None:
    rules = {"disable_prompts": ["greet"], "disable_resources": ["fake://fake/one"]}
    config = write_config(tmp_path, {"up": server(tmp_path, TOOLS_ALONE, **rules)})
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:
        await client.initialize()
        assert "up__echo" in await client.tool_names()
        assert b"no server has" not in client.stderr
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:  # now from the cache
        await client.initialize()
        assert "up__echo" in await client.tool_names()


async def test_a_misspelt_rule_about_a_list_that_was_not_declared_ends_a_strict_hub(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": server(tmp_path, TOOLS_ALONE, disable_prompts=["gret"])})
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:
        assert await client.exited() == 2
