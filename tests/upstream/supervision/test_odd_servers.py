"""Servers that answer oddly, but so that what they mean is certain, are served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.errors import UpstreamAnswered
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.upstream import Upstream
from tests.fakes.client import PATIENCE, write_config
from tests.fakes.odd_server import odd_entry

pytestmark = pytest.mark.anyio

TRANSPORTS = ["stdio", "sse", "http"]


@contextlib.asynccontextmanager
async def served(tmp_path: Path, transport: str, habits: dict[str, Any], **entry: Any) -> AsyncIterator[Upstream]:
    """The hub's upstream for an odd server, after the first attempt to connect."""
    async with odd_entry(transport, habits) as found:
        config = load_config(write_config(tmp_path, {"a": {**found, **entry}}))
        async with Engine(config) as engine, asyncio.timeout(PATIENCE):
            upstream = engine.upstreams["a"]
            upstream.wake()
            await upstream.attempted.wait()
            yield upstream


async def called(upstream: Upstream, name: str = "t") -> Any:
    return (await upstream.request("tools/call", {"name": name, "arguments": {}})).result["content"][0]["text"]


@pytest.mark.parametrize(("transport", "status"), [("stdio", 0), ("sse", 0), ("http", 200), ("http", 400)])
@pytest.mark.parametrize("code", [-32602, -32600, -32022])
async def test_initialize_is_sent_again_in_the_best_revision_that_a_refusal_names(
    tmp_path: Path, transport: str, status: int, code: int
) -> None:
    habits = {"supports": ["2024-11-05", "2025-03-26", "1999-01-01"], "code": code, "status": status}
    async with served(tmp_path, transport, habits) as upstream:
        assert await called(upstream) == "done"
        assert upstream.agreement is not None
        assert upstream.agreement.version == "2025-03-26"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_refusal_that_names_no_revision_of_the_hub_is_final(tmp_path: Path, transport: str) -> None:
    habits = {"supports": ["1999-01-01"], "code": -32602, "status": 400}
    async with served(tmp_path, transport, habits) as upstream:
        assert codes.code_of(upstream.error or "") == codes.HANDSHAKE_REFUSED


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("form", ["text", "float"])
async def test_an_id_that_comes_back_in_another_form_is_the_number_that_it_stands_for(
    tmp_path: Path, transport: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with served(tmp_path, transport, {"id": form, "cursors": ["x"]}) as upstream:
            for _ in range(3):
                assert await called(upstream) == "done"
            assert len(upstream.lists.items[TOOLS]) == 2
            assert upstream.session is not None
            assert upstream.session.peer.stray == 0
    assert len([record for record in caplog.records if "taken as meant" in record.message]) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_error_without_an_id_is_the_answer_to_the_only_request(tmp_path: Path, transport: str) -> None:
    async with served(tmp_path, transport, {"unnamed": True}) as upstream:
        await called(upstream)
        while upstream.session is None or upstream.session.peer.in_flight:  # lists that were not declared
            await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(UpstreamAnswered) as caught:
                await called(upstream, "unknown")
            assert caught.value.error == {"code": -32603, "message": "odd"}
        assert await called(upstream) == "done"


async def failure_with(upstream: Upstream, came: str) -> str:
    """Waits for the error of an attempt to connect in which this came; on a busy machine the first may be too early."""
    while came not in (error := upstream.error or ""):
        upstream.wake()
        await asyncio.sleep(0)
    return error


@pytest.mark.parametrize(
    ("transport", "form", "came"),
    [("stdio", "foreign", "999"), ("stdio", "none", "None"), ("sse", "foreign", "999"), ("http", "none", "null")],
)
async def test_the_error_of_a_handshake_without_an_answer_has_what_came_instead(
    tmp_path: Path, transport: str, form: str, came: str
) -> None:
    habits = {"id": form, "says": ["Usage: x"]}
    async with served(tmp_path, transport, habits, deadlines={"connect": "2s"}, era="handshake") as upstream:
        await failure_with(upstream, came)


async def test_the_error_of_a_handshake_quotes_what_a_program_that_is_no_server_writes(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-u", "-c", "print('Usage: x', flush=True); input(); input()"]}
    async with served(tmp_path, "stdio", {}, **entry, deadlines={"connect": "2s"}, era="handshake") as upstream:
        assert codes.code_of(await failure_with(upstream, "Usage: x")) == codes.HANDSHAKE_LATE


@pytest.mark.parametrize("cursors", [[2, 4], [0.5], ["x", 1]])
async def test_a_cursor_may_be_a_number(tmp_path: Path, cursors: list[Any]) -> None:
    async with served(tmp_path, "stdio", {"cursors": cursors}) as upstream:
        await called(upstream)
        assert len(upstream.lists.items[TOOLS]) == 1 + len(cursors)
        assert upstream.incomplete == []


@pytest.mark.parametrize("end", ["", 0, False, {}])
async def test_a_cursor_that_says_nothing_ends_the_list(tmp_path: Path, end: Any) -> None:
    async with served(tmp_path, "stdio", {"cursors": ["x", end]}) as upstream:
        await called(upstream)
        assert len(upstream.lists.items[TOOLS]) == 2
        assert upstream.incomplete == []
