"""A person at the page of a hub whose own client comes over stdio: neither gets what belongs to the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.hub.hub_status import VARIABLE, ask_hub
from tests.downstream.page.acting import act, post, refusal, running, text
from tests.downstream.page.opened import OpenPage
from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, spawned, write_config
from tests.upstream.asking.test_servers_ask_handshake_clients import ALL, asking, questions

pytestmark = pytest.mark.anyio

FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}}}
ASKED = {"method": "elicitation/create", "params": FORM}


@pytest.fixture(autouse=True)
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "run"))


async def link_of(client: StdioClient) -> str:
    """A link to the page of a hub, as `mcp-hub open` gets it."""
    reply = await asyncio.to_thread(lambda: next(ask_hub(client.process.pid, {"ask": "page"}, patience=PATIENCE)))
    return str(reply["url"])


async def greeted(client: StdioClient) -> None:
    info = {"name": "raw", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": ALL, "clientInfo": info}
    await client.request("initialize", params)
    client.notify("notifications/initialized")


@contextlib.asynccontextmanager
async def opened(client: StdioClient) -> AsyncIterator[OpenPage]:
    base, _, secret = (await link_of(client)).partition("/ui#s=")
    async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
        page = OpenPage(http, base)
        assert (await page.begin(secret=secret)).status_code == 200
        yield page


async def test_thousands_of_tools_and_megabytes_of_arguments_do_not_block_the_event_loop(tmp_path: Path) -> None:
    servers = {"a": fake("--tools", "5000", disable_tools=["t1*"])}
    async with spawned([*HUB, "serve", "--config", str(write_config(tmp_path, servers))]) as client:
        await greeted(client)
        await client.tool_names()
        async with opened(client) as page:
            assert (await page.found("tools"))["hidden"] > 1000
            assert (await page.found("tools/a__t1999"))["definition"] is None
            assert await text(page, "a__echo", {"text": "x" * 3_000_000})
            assert await text(page, "a__big", {"bytes": 20_000_000})
            await act(page, "restart", server="a")
            assert await client.text("a__echo", {"text": "x"}) == "x"


async def test_a_server_request_goes_to_whoever_made_the_call_page_or_stdio_client(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": asking(), "b": fake()})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await greeted(client)
        assert await client.text("a__echo", {"text": "mine"})
        async with opened(client) as page:
            async with running(page, "a__ask", ASKED) as run:
                question = await run.until("question")
                answer = {"id": question["id"], "action": "accept", "content": {"it": "this"}}
                assert (await post(page, "answer", answer)).status_code == 200
                _, data = await run.end()
            assert json.loads(data["content"][0]["text"])["result"]["content"] == {"it": "this"}
            assert await text(page, "a__late")
            assert await text(page, "a__echo", {"text": "after it"})
            assert questions(client) == []
            assert await refusal(page, "end_session", client="only") == (409, "stdio")
            pid = await client.text("b__pid")
            await act(page, "restart", server="b")
            assert await client.text("b__pid") != pid
            call: Any = client.start("tools/call", {"name": "a__ask", "arguments": ASKED})
            await client.until(lambda: len(questions(client)) == 1)
            (elicitation,) = questions(client)
            response = {"jsonrpc": "2.0", "id": elicitation["id"], "result": {"action": "decline"}}
            client.send_raw(json.dumps(response).encode() + b"\n")
            async with asyncio.timeout(PATIENCE):
                assert "decline" in json.dumps(await call)
