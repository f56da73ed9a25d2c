"""Tokens, principals and profiles change while the hub runs: who is out is out, everybody else notices nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.downstream.network.visitor import ERAS, TOKENS, network_hub, visiting
from tests.fakes.client import PATIENCE, StdioClient, fake, write_config
from tests.hub.groups.hearing import hearing

pytestmark = pytest.mark.anyio

SERVERS = {"a": fake()}
PROFILES = {"echoing": {"tools": ["a/echo"]}, "adding": {"tools": ["a/add"]}}


def principals(**profiles: str) -> dict[str, Any]:
    return {"principals": {name: {"token": TOKENS[name], "profile": profile} for name, profile in profiles.items()}}


async def changed(
    process: StdioClient, directory: Path, listen: dict[str, Any], log_text: bytes, servers: dict[str, Any] = SERVERS
) -> None:
    count = process.stderr.count(log_text)
    write_config(directory, servers, listen={"port": 0, **listen}, profiles=PROFILES, watch=False)
    process.process.send_signal(signal.SIGHUP)
    await process.until(lambda: process.stderr.count(log_text) > count)


@pytest.mark.parametrize("era", ERAS)
async def test_a_removed_principal_is_refused_and_others_stay(tmp_path: Path, era: str) -> None:
    before = principals(alice="echoing", bob="echoing")
    async with (
        network_hub(tmp_path, SERVERS, before, profiles=PROFILES, watch=False) as (process, base),
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(base, era, TOKENS["bob"]) as bob,
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http,
    ):
        assert await bob.text("a__echo", {"text": "x"}) == "x"
        assert (await http.get("/mcp", headers={"authorization": f"Bearer {TOKENS['carol']}"})).status_code == 401
        await changed(process, tmp_path, principals(alice="echoing", carol="adding"), b"loaded servers.json again")
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await bob.post(message)).status_code == 401
        assert await alice.text("a__echo", {"text": "x"}) == "x"
        async with visiting(base, era, TOKENS["carol"]) as carol:
            assert await carol.names("tools/list") == ["a__add"]


async def test_a_session_ends_with_the_profile_it_was_opened_under(tmp_path: Path) -> None:
    before = principals(alice="echoing", bob="echoing")
    async with (
        network_hub(tmp_path, SERVERS, before, profiles=PROFILES, watch=False) as (process, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
        visiting(base, "handshake", TOKENS["bob"]) as bob,
    ):
        assert await alice.names("tools/list") == ["a__echo"]
        await changed(process, tmp_path, principals(alice="adding", bob="echoing"), b"loaded servers.json again")
        response = await alice.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert response.status_code == 404
        assert await bob.names("tools/list") == ["a__echo"]
        async with visiting(base, "handshake", TOKENS["alice"]) as new_session:
            assert await new_session.names("tools/list") == ["a__add"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_principal_with_lists_of_its_own_gets_those_of_its_new_profile(tmp_path: Path, era: str) -> None:
    servers = {"a": fake(session="client")}
    profiles = {"echoing": {"tools": ["a/echo", "a/grow"]}, "adding": PROFILES["adding"]}
    async with network_hub(tmp_path, servers, principals(alice="echoing"), profiles=profiles, watch=False) as (
        process,
        base,
    ):
        async with visiting(base, era, TOKENS["alice"]) as alice, hearing(alice) as ear:
            assert await alice.names("tools/list") == ["a__echo", "a__grow"]
            await alice.text("a__grow", {"name": "echo", "definition": "gone"})
            await ear.until(1)
            assert await alice.names("tools/list") == ["a__grow"]
        await changed(process, tmp_path, principals(alice="adding"), b"loaded servers.json again", servers)
        async with visiting(base, era, TOKENS["alice"]) as alice:
            assert await alice.names("tools/list") == ["a__add"]
            assert await alice.text("a__add", {"a": 1, "b": 2}) == "3"


async def test_a_reload_that_would_drop_authentication_is_refused(tmp_path: Path) -> None:
    listen = {"host": "0.0.0.0", **principals(alice="echoing")}
    async with (
        network_hub(tmp_path, SERVERS, listen, profiles=PROFILES, watch=False) as (process, base),
        visiting(base.replace("0.0.0.0", "127.0.0.1"), "handshake", TOKENS["alice"]) as alice,
    ):
        await changed(process, tmp_path, {"host": "0.0.0.0"}, b"servers.json was not loaded again")
        assert b"lets others in" in process.stderr
        assert await alice.names("tools/list") == ["a__echo"]
        short = {"host": "0.0.0.0", "principals": {"alice": "too-short"}}
        await changed(process, tmp_path, short, b"servers.json was not loaded again")
        assert await alice.names("tools/list") == ["a__echo"]
