"""The policy and the transport that CONTRIBUTING.md adds work as they stand there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Route
from mcp_hub.config import read_config
from mcp_hub.errors import UnknownName
from mcp_hub.hub.engine import Engine
from mcp_hub.policy import Call
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.transport import LinkLost
from mcp_hub.transport.peer import Peer, nothing_offered
from tests.fakes.client import PATIENCE, fake, write_config

pytestmark = pytest.mark.anyio
TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()


def example(file: str) -> dict[str, Any]:
    """The names of a file that CONTRIBUTING.md shows in full."""
    found = re.search(rf"`{re.escape(file)}`[^\n]*\n\n```python\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"__name__": file.removesuffix(".py").replace("/", ".")}
    exec(compile(found[1], file, "exec"), names)
    return names


async def test_the_policy_hides_a_tool_from_lists_and_from_calls(tmp_path: Path) -> None:
    hidden = example("mcp_hub/policy/hidden.py")["Hidden"]({"up": frozenset({"echo"})})
    engine = Engine(read_config(write_config(tmp_path, {"up": fake()})).config)
    rules = engine.rules
    rules.chain.insert(hidden, after=rules.access)
    async with asyncio.timeout(PATIENCE), engine as hub:
        names = (await hub.settled_catalog()).names(TOOLS)
        assert names
        assert "up__echo" not in names
        params = {"name": "echo", "arguments": {"text": "hello"}}
        with pytest.raises(UnknownName):
            await hub.act(
                Call(TOOLS.act_method, "up__echo", Route("up", TOOLS, "echo"), params, "handshake", Envelope())
            )


async def test_the_transport_carries_requests_until_it_is_closed() -> None:
    made = example("mcp_hub/transport/memory_link.py")["MemoryLink"]
    link = made(lambda message: {"jsonrpc": "2.0", "id": message["id"], "result": {"said": message["params"]}})
    peer = Peer(link, notified=lambda *_: None, requested=nothing_offered, lost=lambda _: None)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LinkLost):
            await peer.request("ask", {"word": "early"})
        await link.open(peer)
        assert await peer.request("ask", {"word": "hello"}) == {"said": {"word": "hello"}}
        await peer.close()
        with pytest.raises(LinkLost):
            await peer.request("ask", {"word": "late"})
