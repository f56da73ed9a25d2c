"""A server that asks for the client's roots gets them before its first call, at each new connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, spawned, write_config
from tests.fakes.network import network_hub, sdk
from tests.fakes.processes import below
from tests.peers.catalogue import REAL_SERVERS, Place
from tests.replicas import raw_client
from tests.upstream.asking.test_servers_ask_handshake_clients import (
    asked,
    asking,
    news,
    questions,
    respond,
)

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def slow_client_of(directory: Path, entry: dict[str, Any]) -> AsyncIterator[StdioClient]:
    """A client with roots of a hub in front of the server `a`, and of `other`, which asks for nothing."""
    config = write_config(directory, {"a": entry, "other": fake()})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        info = {"name": "slow", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": info}
        await client.request("initialize", params)
        client.notify("notifications/initialized")
        yield client


async def called(client: StdioClient, params: dict[str, Any], root: Path, known: int = 0) -> dict[str, Any]:
    """The response to a call. All but `known` questions for roots are answered once the hub has made another call."""
    call = client.start("tools/call", params)
    while not call.done():
        await client.until(partial(news, client, call, known))
        await client.text("other__echo", {"text": "x"})
        for question in questions(client)[known:]:
            respond(client, question, result={"roots": [{"uri": root.as_uri()}]})
            known += 1
    response: dict[str, Any] = call.result()
    return response


def text_of(response: dict[str, Any]) -> str:
    return str(response["result"]["content"][0]["text"])


def is_denied(response: dict[str, Any]) -> bool:
    return bool(response["result"].get("isError")) and "Access denied" in text_of(response)


async def test_a_call_waits_until_the_first_question_for_roots_is_answered(tmp_path: Path) -> None:
    async with slow_client_of(tmp_path, asking("--first-roots")) as client:
        response = await called(client, {"name": "a__echo"}, tmp_path)
    assert json.loads(text_of(response)) == {"result": {"roots": [{"uri": tmp_path.as_uri()}]}}


async def test_a_client_that_refuses_to_name_its_roots_is_served(tmp_path: Path) -> None:
    error = {"code": -32603, "message": "no roots here"}
    async with slow_client_of(tmp_path, asking("--first-roots")) as client:
        call = client.start("tools/call", {"name": "a__echo"})
        (question,) = await asked(client)
        respond(client, question, error=error)
        async with asyncio.timeout(PATIENCE):
            assert json.loads(text_of(await call)) == {"error": error}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two directories: the client's root, and that of the server's command line, which has a secret."""
    inside, outside = tmp_path / "inside", Place(tmp_path).file.parent
    for directory in (inside, outside):
        directory.mkdir()
    (outside / "secret.txt").write_text("FILE-CONTENT")
    yield inside, outside
    assert not (outside / "new.txt").exists()


def read(outside: Path) -> dict[str, Any]:
    return {"name": "a__read_text_file", "arguments": {"path": str(outside / "secret.txt")}}


def write(outside: Path) -> dict[str, Any]:
    return {"name": "a__write_file", "arguments": {"path": str(outside / "new.txt"), "content": "x"}}


@pytest.mark.parametrize("session", ["shared", "client", "call"])
async def test_server_filesystem_denies_the_first_read_and_write_outside_of_the_roots(
    tmp_path: Path, places: tuple[Path, Path], session: str
) -> None:
    inside, outside = places
    entry = {**REAL_SERVERS["filesystem"].entry(Place(tmp_path)), "session": session}
    for params in (read(outside), write(outside)):  # each in a new hub: first without, then with a kept catalog
        async with slow_client_of(tmp_path, entry) as client:
            assert is_denied(await called(client, params, inside))


async def test_server_filesystem_denies_them_also_after_its_restart(tmp_path: Path, places: tuple[Path, Path]) -> None:
    inside, outside = places
    async with slow_client_of(tmp_path, REAL_SERVERS["filesystem"].entry(Place(tmp_path))) as client:
        assert is_denied(await called(client, read(outside), inside))
        for params in (write(outside), read(outside)):
            known = len(questions(client))
            for process in below(client.process.pid, str(outside)):
                process.kill()
            response = await called(client, params, inside, known)
            if not is_denied(response):  # the call that the process did not survive
                assert response["result"]["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
                response = await called(client, params, inside, known)
            assert is_denied(response)


async def answered(client: StdioClient, params: dict[str, Any], root: Path) -> dict[str, Any]:
    """The result of a modern client's call, which answers every question for roots."""
    declared = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}}
    result = await client.request("tools/call", {**params, **declared})
    while result["resultType"] == "input_required":
        assert {request["method"] for request in result["inputRequests"].values()} == {"roots/list"}
        answers = {key: {"roots": [{"uri": root.as_uri()}]} for key in result["inputRequests"]}
        retry = {"requestState": result["requestState"], "inputResponses": answers}
        result = await client.request("tools/call", {**params, **declared, **retry})
    return {"result": result}


@pytest.mark.parametrize("session", ["shared", "client", "call"])
async def test_server_filesystem_denies_the_first_calls_of_a_modern_client_outside_of_the_roots(
    tmp_path: Path, places: tuple[Path, Path], session: str
) -> None:
    """The server asks for the roots before there is a call that could carry the question to such a client."""
    inside, outside = places
    entry = {**REAL_SERVERS["filesystem"].entry(Place(tmp_path)), "session": session}
    config = write_config(tmp_path, {"a": entry})
    for _ in range(2):  # first without, then with a kept catalog
        async with spawned([*HUB, "serve", "--config", str(config)], modern=True) as client:
            calls = [answered(client, params, inside) for params in (read(outside), write(outside))]
            async with asyncio.timeout(PATIENCE):
                assert [is_denied(response) for response in await asyncio.gather(*calls)] == [True, True]


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_server_filesystem_denies_the_first_call_over_http_outside_of_the_roots(
    tmp_path: Path, places: tuple[Path, Path], era: str
) -> None:
    inside, outside = places

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=inside.as_uri())])

    servers = {"a": REAL_SERVERS["filesystem"].entry(Place(tmp_path))}
    async with (
        network_hub(tmp_path / "hub", servers) as (_, base),
        sdk(f"{base}/mcp", era, list_roots_callback=roots) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool(**read(outside))
    assert is_denied({"result": result.model_dump(by_alias=True)})


async def test_a_client_that_does_not_answer_a_modern_question_for_roots_holds_back_nobody_else(tmp_path: Path) -> None:
    Place(tmp_path).file.parent.mkdir()
    servers = {"a": REAL_SERVERS["filesystem"].entry(Place(tmp_path))}
    call = {"name": "a__list_allowed_directories", "arguments": {}}
    async with (
        network_hub(tmp_path / "hub", servers) as (_, base),
        raw_client.raw(base) as gone,
        raw_client.raw(base) as other,
    ):
        assert (await gone.modern("tools/call", call, roots={}))["result"]["resultType"] == "input_required"
        await other.begin()
        for _ in range(2):
            assert str(tmp_path) in raw_client.text_of(await other.request("tools/call", call))
