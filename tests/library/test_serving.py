"""A program's own hub, served to MCP clients."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from mcp_hub import Hub, ToolManager
from mcp_hub.errors import ConfigError
from tests.fakes.client import FAKE, spawned

pytestmark = pytest.mark.anyio

PROGRAM = f"""
import sys
from mcp_hub import Hub, ToolManager

class Upper:
    hub = Hub({{"servers": {{"other": {{"command": sys.executable, "args": [{FAKE!r}]}}}}}})

manager = ToolManager(
    [{{"name": "fake", "params": {{"command": sys.executable, "args": [{FAKE!r}]}}}}], tool_blacklist=["fake/add"]
)

@manager.tool_func
def shout(text: str) -> str:
    print("printed")
    return text.upper()

@manager.tool_func
async def count(steps: int):
    for number in range(steps):
        yield str(number)

manager.hub.attach(Upper())
print("ready", file=sys.stderr, flush=True)
manager.serve("stdio")
"""


@pytest.mark.parametrize("modern", [False, True])
async def test_a_manager_is_served_with_its_functions_servers_and_rules(tmp_path: Path, modern: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    async with spawned([sys.executable, str(program)], modern=modern) as client:
        if not modern:
            await client.initialize()
        names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
        assert {"shout", "count", "fake__echo", "other__echo"} <= set(names)
        assert "fake__add" not in names
        assert (await client.call("shout", {"text": "loud"}))["content"][0]["text"] == "LOUD"
        assert (await client.call("count", {"steps": 3}))["content"][0]["text"] == "2"
        assert (await client.call("other__echo", {"text": "x"}))["content"][0]["text"] == "x"
        assert client.noise == []
    assert b"printed" in client.stderr


async def test_invalid_serve_arguments_are_refused() -> None:
    with pytest.raises(ConfigError):
        Hub().serve("smoke")  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Hub().serve("http", host="0.0.0.0", port=0)
    with pytest.raises(ConfigError, match="port"):
        Hub().serve("http", port=70_000)


async def test_managers_and_toolkits_attach_to_one_hub_and_keep_working() -> None:
    first, second = ToolManager(), ToolManager()
    first.tool_func(one)
    second.tool_func(two)
    hub = Hub()
    hub.attach(first, second)
    assert first.hub is second.hub is hub
    assert [card.exposed for card in await hub.list()] == ["one", "two"]
    assert await first.async_call_tool("one") == 1
    assert await second.async_call_tool("two") == 2
    with pytest.raises(ConfigError):
        hub.attach(ToolManager(config={"servers": {"local": {"command": "x"}}}))
    await hub.aclose()


def one() -> int:
    """One."""
    return 1


def two() -> int:
    """Two."""
    return 2
