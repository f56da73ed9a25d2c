"""Pages that are too large, too slow or too hard: they cost themselves, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable

import psutil
import pytest
from aiohttp import web

from tests.fakes.client import PATIENCE, StdioClient
from tests.fakes.processes import below
from tests.servers.scrape.documents import DOCX, docx_bomb, pdf, pdf_bomb, pdf_with_picture, zipped
from tests.servers.scrape.site import Site, refused, scrape, scraper, serving

pytestmark = pytest.mark.anyio

HARD = b"<blockquote>" * 250 + b"<p>x</p>" * 100_000
"""Takes a minute and more: every paragraph is quoted again at every level."""


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


def converters(client: StdioClient) -> list[psutil.Process]:
    return below(client.process.pid)


async def until(condition: Callable[[], bool]) -> None:
    """For what no event tells of: a process of somebody else's."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


async def test_the_size_limit_applies_after_decompression_and_ignores_content_length(site: Site) -> None:
    body = gzip.compress(b"a" * 50_000_000)
    assert len(body) < 100_000
    bomb = site.put("/bomb", body, "text/plain", headers={"Content-Encoding": "gzip"})
    exact = site.put("/exact", b"b" * 1_000_000, "text/plain")
    above = site.put("/more", b"b" * 1_000_001, "text/plain")
    async with scraper(max_bytes=1_000_000) as client:
        assert await refused(client, bomb) == "result_too_large"
        assert await refused(client, above) == "result_too_large"
        assert len(await scrape(client, exact)) == 1_000_000


async def test_an_endless_page_ends_at_the_time_limit_and_the_next_one_works(site: Site) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(b"begin")
        await site.released.wait()
        return response

    async def silent(request: web.Request) -> web.StreamResponse:
        await site.released.wait()
        return web.Response()

    site.answers["/endless"], site.answers["/silent"] = endless, silent
    fine = site.put("/fine", "fine", "text/plain")
    async with scraper(timeout=8.0) as client:
        stuck = [client.start("tools/call", call(site.url(path))) for path in ("/endless", "/silent")]
        async with asyncio.timeout(PATIENCE):
            results = [message["result"] for message in await asyncio.gather(*stuck)]
        assert [result["_meta"]["mcp-hub/error"]["code"] for result in results] == ["timeout", "timeout"]
        assert await scrape(client, fine) == "fine"


async def test_a_page_that_never_arrives_does_not_delay_others(site: Site) -> None:
    async def blocked(request: web.Request) -> web.StreamResponse:
        await site.released.wait()
        return web.Response(text="at last")

    site.answers["/held"] = blocked
    fine = site.put("/fine", "fine", "text/plain")
    async with scraper() as client:
        waiting = [client.start("tools/call", call(site.url("/held"))) for _ in range(20)]
        await until(lambda: site.asked.count("/held") == 20)
        assert await scrape(client, fine) == "fine"
        assert not any(future.done() for future in waiting)
        site.released.set()
        async with asyncio.timeout(PATIENCE):
            results = [message["result"] for message in await asyncio.gather(*waiting)]
        assert {result["content"][0]["text"] for result in results} == {"at last"}


async def test_an_endless_conversion_is_killed_while_others_continue(site: Site) -> None:
    hard, fine = site.put("/hard", HARD, "text/html"), site.put("/fine", "fine", "text/plain")
    async with scraper(timeout=10.0) as client:
        assert await scrape(client, fine) == "fine"
        (first,) = converters(client)
        stuck = client.start("tools/call", call(hard))
        await until(lambda: "/hard" in site.asked)
        for _ in range(3):
            assert await scrape(client, fine) == "fine"
        assert not stuck.done()
        working = converters(client)
        async with asyncio.timeout(PATIENCE):
            result = (await stuck)["result"]
        assert result["_meta"]["mcp-hub/error"]["code"] == "timeout"
        assert first in working
        await until(lambda: not all(process.is_running() for process in working))
        assert await scrape(client, fine) == "fine"


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a Word document": (lambda: docx_bomb(400), DOCX),
    "a ZIP of tables": (lambda: zipped({"xl/a.csv": ["1,2,3\n" * 150_000] * 500}), "application/zip"),
    "a PDF": (lambda: pdf_bomb(600), "application/pdf"),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_document_that_unpacks_beyond_its_memory_limit_fails_and_the_next_one_works(
    site: Site, bomb: str
) -> None:
    make, content_type = BOMBS[bomb]
    body = await asyncio.to_thread(make)
    assert len(body) < 5_000_000
    url, fine = site.put("/bomb", body, content_type), site.put("/fine", pdf("fine"), "application/pdf")
    async with scraper(max_memory=400 * 1024**2, timeout=PATIENCE) as client:
        result = await client.call("scrape_website", {"url": url})
        assert result["_meta"]["mcp-hub/error"]["code"] == "tool_error"
        assert "400 MiB" in result["content"][0]["text"]
        assert "web.max_memory" in result["content"][0]["text"]
        assert "fine" in await scrape(client, fine)


async def test_a_huge_picture_in_a_document_is_not_unpacked(site: Site) -> None:
    body = await asyncio.to_thread(pdf_with_picture, "beside a picture", 800)
    url = site.put("/picture", body, "application/pdf")
    async with scraper(max_memory=400 * 1024**2, timeout=PATIENCE) as client:
        assert "beside a picture" in await scrape(client, url)


async def test_documents_that_exhaust_memory_are_converted_two_at_a_time(site: Site) -> None:
    body = await asyncio.to_thread(docx_bomb, 400)
    url, fine = site.put("/bomb", body, DOCX), site.put("/fine", "fine", "text/plain")
    async with scraper(max_memory=400 * 1024**2, timeout=PATIENCE) as client:
        calls = [client.start("tools/call", call(url)) for _ in range(6)]
        peak = 0
        while not all(task.done() for task in calls):
            peak = max(peak, len(converters(client)))
            await asyncio.wait(calls, timeout=0.05)
        assert {task.result()["result"]["_meta"]["mcp-hub/error"]["code"] for task in calls} == {"tool_error"}
        assert 1 <= peak <= 2
        assert await scrape(client, fine) == "fine"


async def test_a_cancelled_call_cancels_its_conversion(site: Site) -> None:
    hard, fine = site.put("/hard", HARD, "text/html"), site.put("/fine", "fine", "text/plain")
    async with scraper() as client:
        assert await scrape(client, fine) == "fine"
        (worker,) = converters(client)
        client.start("tools/call", call(hard), request_id="given up")
        idle = worker.cpu_times().user
        await until(lambda: worker.cpu_times().user > idle + 0.3)
        client.notify("notifications/cancelled", {"requestId": "given up"})
        await until(lambda: not worker.is_running())
        assert await scrape(client, fine) == "fine"
        assert client.unmatched == []


async def test_a_conversion_ends_with_the_process_it_is_for(site: Site) -> None:
    hard, fine = site.put("/hard", HARD, "text/html"), site.put("/fine", "fine", "text/plain")
    async with scraper() as client:
        assert await scrape(client, fine) == "fine"
        (worker,) = converters(client)
        idle = worker.cpu_times().user
        client.start("tools/call", call(hard))
        await until(lambda: worker.cpu_times().user > idle + 0.3)
        client.process.kill()
        await client.exited()
        await until(lambda: not worker.is_running())


async def test_the_converter_ends_with_its_stdin(site: Site) -> None:
    hard, fine = site.put("/hard", HARD, "text/html"), site.put("/fine", "fine", "text/plain")
    async with scraper() as client:
        assert await scrape(client, fine) == "fine"
        client.start("tools/call", call(hard))
        await until(lambda: "/hard" in site.asked)
        workers = converters(client)
        assert workers
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await client.exited() == 0
        assert not any(worker.is_running() for worker in workers)


async def test_an_http_error_is_reported_with_its_status_text(site: Site) -> None:
    page = "<html><body><h1>Closed</h1><p>Come back on Monday.</p></body></html>"
    async with scraper() as client:
        for status, retryable in ((404, False), (403, False), (500, False), (503, True), (429, True)):
            url = site.put(f"/{status}", page, "text/html", status=status)
            result = await client.call("scrape_website", {"url": url})
            assert result["isError"]
            assert result["_meta"]["mcp-hub/error"]["code"] == "tool_error"
            assert result["_meta"]["mcp-hub/error"]["retryable"] is retryable
            assert result["_meta"]["mcp-hub/source"]["status"] == status
            assert str(status) in result["content"][0]["text"]
            assert "Come back on Monday." in result["content"][0]["text"]


async def test_an_unreachable_server_or_one_without_http_is_an_error(site: Site) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    broken = site.put("/broken-gzip", b"this is not gzip", "text/plain", headers={"Content-Encoding": "gzip"})
    async with scraper() as client:
        for peer in (nonsense, mute):
            server = await asyncio.start_server(peer, "127.0.0.1", 0)
            async with server:
                port = server.sockets[0].getsockname()[1]
                for scheme in ("http", "https"):
                    assert await refused(client, f"{scheme}://127.0.0.1:{port}/") == "tool_error"
        assert await refused(client, f"http://127.0.0.1:{port}/") == "tool_error"
        assert await refused(client, "http://no-such-host.invalid/") == "tool_error"
        assert await refused(client, broken) == "tool_error"


def call(url: str) -> dict[str, object]:
    return {"name": "scrape_website", "arguments": {"url": url}}


async def test_a_long_page_is_returned_in_parts_that_make_the_whole(site: Site) -> None:
    lines = [f"line {number} of a very long text" for number in range(20_000)]
    whole = "\n".join(lines)
    page = site.put("/long", whole, "text/plain")
    async with scraper() as client:
        parts, start = [], 0
        while True:
            text = await client.text("scrape_website", {"url": page, "start_index": start})
            assert len(text) < 61_000
            part, mark, rest = text.rpartition("[")
            if not (mark and rest.endswith(f"start_index {start + len(part)}]")):
                parts.append(text)
                break
            parts.append(part)
            start += len(part)
        assert "".join(parts) == whole
        assert len(await client.text("scrape_website", {"url": page, "max_length": 1000})) < 1100
        beyond = await client.text("scrape_website", {"url": page, "start_index": len(whole) + 1})
        assert f"{len(whole):,}" in beyond
        for wrong in ({"start_index": -1}, {"max_length": 0}):
            assert (await client.call("scrape_website", {"url": page, **wrong})).get("isError")
