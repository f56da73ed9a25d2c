"""Lists are compressed for clients that accept gzip, and nothing else is."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream import list_compression
from mcp_hub.protocol.frames import Raw, encode
from tests.downstream.network.visitor import ERAS, network_hub, visiting
from tests.downstream.raw_http import connected, fetch, initialized, message, modern, request
from tests.downstream.scripted import Served, serving
from tests.fakes.client import fake

pytestmark = pytest.mark.anyio

TOOL = {"name": "echo", "inputSchema": {"type": "object"}, "description": "Says what it is told. "}


def tools(size: int) -> Raw:
    """A list of about so many bytes."""
    text = "Says what it is told. "
    return Raw(encode({"tools": [{**TOOL, "description": text * (size // len(text))}], "ttlMs": 0}))


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(Listen(port=0)) as hub:
        yield hub


def listing(served: Served, size: int) -> None:
    served.dispatcher.tools_list = tools(size)


GZIP = [("Accept-Encoding", "gzip, deflate, br")]


async def request_list(served: Served, headers: list[tuple[str, str]], request_id: Any = 1) -> Any:
    lines, body = modern("tools/list", request_id=request_id)
    return await fetch(served, "POST", "/mcp", [*lines, *headers], body)


@pytest.mark.parametrize("size", [2000, 100_000, 3_000_000])
async def test_a_list_is_compressed_for_a_client_that_accepts_it(served: Served, size: int) -> None:
    listing(served, size)
    plain = await request_list(served, [])
    for request_id in (1, "a" * 30_000, "ü" * 100):
        answer = await request_list(served, GZIP, request_id)
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        assert len(answer.body) < len(plain.body) // 3 + len(encode(request_id))
        decoded = json.loads(gzip.decompress(answer.body))
        assert decoded == {**plain.json, "id": request_id}


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("GZIP;q=0.5, identity", True),
        ("x-gzip", True),
        ("*", True),
        ("br, *;q=0.1", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*;q=0", False),
        ("gzipped", False),
        ("br", False),
    ],
)
async def test_accept_encoding_decides_the_content_coding(served: Served, accepted: str, *, compressed: bool) -> None:
    listing(served, 2000)
    answer = await request_list(served, [("Accept-Encoding", accepted)])
    assert ("content-encoding" in answer.headers) is compressed


async def test_neither_calls_nor_errors_nor_short_lists_are_compressed(served: Served) -> None:
    lines, body = modern("tools/call", {"name": "echo", "arguments": {"text": "x" * 5000}})
    answer = await fetch(served, "POST", "/mcp", [*lines, *GZIP], body)
    assert (answer.status, "content-encoding" in answer.headers) == (200, False)
    lines, body = modern("resources/list", request_id="a" * 5000)
    answer = await fetch(served, "POST", "/mcp", [*lines, *GZIP], body)
    assert "error" in answer.json
    assert "content-encoding" not in answer.headers
    listing(served, 100)
    assert "content-encoding" not in (await request_list(served, GZIP)).headers


async def test_a_list_is_compressed_in_a_session_but_not_in_a_batch(served: Served) -> None:
    listing(served, 2000)
    lines = await initialized(served, GZIP, version="2025-03-26")
    answer = await fetch(served, "POST", "/mcp", lines, message("tools/list"))
    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.body))["result"]["tools"][0]["name"] == "echo"
    batch = b"[" + message("tools/list") + b"," + message("ping", request_id=2) + b"]"
    answer = await fetch(served, "POST", "/mcp", lines, batch)
    assert "content-encoding" not in answer.headers
    assert len(answer.json) == 2


async def test_each_request_of_a_connection_gets_the_coding_it_accepts(served: Served) -> None:
    listing(served, 2000)
    lines, body = modern("tools/list")
    async with connected(served) as connection:
        for headers in (GZIP, [], GZIP, GZIP):
            connection.send(request(served, "POST", "/mcp", [*lines, *headers], body))
            answer = await connection.response()
            assert ("content-encoding" in answer.headers) is bool(headers)


async def test_a_compressed_list_is_cached_and_the_cache_is_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    deflated: Callable[[memoryview], bytes] = list_compression._deflate

    def counted(data: memoryview) -> bytes:
        sizes.append(data.nbytes)
        return deflated(data)

    monkeypatch.setattr(list_compression, "_deflate", counted)
    lists = [tools(size) for size in range(2000, 2000 + 22 * 2 * list_compression.MAX_KEPT, 22)]
    for tools_list in lists:
        served.dispatcher.tools_list = tools_list
        for _ in range(3):
            assert (await request_list(served, GZIP)).headers["content-encoding"] == "gzip"
    assert len(sizes) == len(lists)
    served.dispatcher.tools_list = lists[0]
    await request_list(served, GZIP)
    assert len(sizes) == len(lists) + 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_real_client_reads_a_compressed_list_of_a_hub(tmp_path: Path, era: str) -> None:
    codings: list[str | None] = []

    async def record_coding(response: httpx2.Response) -> None:
        codings.append(response.headers.get("content-encoding"))

    async with (
        network_hub(tmp_path / "hub", {f"up{n}": fake() for n in range(3)}, {}) as (_, base),
        visiting(base, era) as visitor,
    ):
        visitor.http.event_hooks["response"].append(record_coding)
        responses = []
        for coding in ("gzip", "identity"):
            visitor.http.headers["accept-encoding"] = coding
            responses.append(await visitor.ask("tools/list"))
    assert codings == ["gzip", None]
    assert responses[0] == responses[1]
    assert "up0__echo" in [tool["name"] for tool in responses[0]["result"]["tools"]]
