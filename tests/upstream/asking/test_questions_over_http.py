"""A server over streamable HTTP that all clients share asks those whose calls it runs, in any pair of eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from mcp.client.client import Client

from tests.fakes.client import PATIENCE
from tests.hub.test_over_a_network import network_hub, sdk
from tests.peers.catalogue import free_port, network_server

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

ASKING = str(Path(__file__).parent.parent.parent / "fakes" / "asking_over_http.py")
ERAS = ("handshake", "modern")
PATHS = ("/mcp", "/sse")


@contextlib.asynccontextmanager
async def asking_server(tmp: Path, era: str | None = None) -> AsyncIterator[str]:
    """The URL of the asking server, of both eras or of one."""
    port = free_port()
    command = [sys.executable, ASKING, str(port), *([era] if era else [])]
    async with network_server(command, port, log=tmp / "asking.log"):
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.asynccontextmanager
async def asking_hub(tmp: Path, era: str | None = None, **entry: Any) -> AsyncIterator[str]:
    """The base URL of a hub before the asking server."""
    async with asking_server(tmp, era) as url, network_hub(tmp / "hub", {"a": {"url": url, **entry}}) as (_, base):
        yield base


class Person:
    """Answers a client's questions by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []

    @property
    def answers(self) -> dict[str, Any]:
        """What an SDK client is made with."""

        async def elicit(context: Any, params: Any) -> types.ElicitResult:
            self.asked.append(params.message)
            return types.ElicitResult(action="accept", content={"name": self.name})

        async def sample(context: Any, params: Any) -> types.CreateMessageResult:
            self.asked.append(params.messages[0].content.text)
            content = types.TextContent(type="text", text=self.name)
            return types.CreateMessageResult(role="assistant", content=content, model="none")

        return {"elicitation_callback": elicit, "sampling_callback": sample}


async def said(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool of the asking server answers."""
    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool(f"a__{tool}", arguments)
    assert not result.is_error, result
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


def names_in(answer: Any) -> list[str]:
    """The names that answers are given with, whichever era the server was spoken to in."""
    given = [one["result"] for one in answer] if isinstance(answer, list) else list(answer.values())
    return [one["content"].get("name") or one["content"]["text"] for one in given]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("server_era", [None, *ERAS])
@pytest.mark.parametrize("era", ERAS)
async def test_a_plain_entry_lets_a_server_ask_clients_of_both_eras(
    tmp_path: Path, era: str, server_era: str | None, path: str
) -> None:
    person = Person("one")
    sampling = {"messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}], "maxTokens": 5}
    async with asking_hub(tmp_path, server_era) as base, sdk(base + path, era, **person.answers) as client:
        assert names_in(await said(client, "ask")) == ["one"]
        assert names_in(await said(client, "ask", method="sampling/createMessage", params=sampling)) == ["one"]
    assert len(person.asked) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_of_both_eras_is_spoken_to_in_that_of_each_caller(tmp_path: Path, era: str) -> None:
    other = "modern" if era == "handshake" else "handshake"
    async with (
        asking_hub(tmp_path) as base,
        sdk(f"{base}/mcp", era) as first,
        sdk(f"{base}/mcp", other) as second,
    ):
        for _ in range(2):
            assert (await said(first, "echo"))["era"] == era
            assert (await said(second, "echo"))["era"] == other
