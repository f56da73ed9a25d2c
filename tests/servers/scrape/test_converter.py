"""The process that converts: what MarkItDown in it is made of, and what it gets to see."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from mcp_hub.servers.builtin.chromium import narrow_environment
from mcp_hub.servers.builtin.converter import MEMORY, Converter, SourceDocument
from mcp_hub.servers.local.tool_results import ToolRefused
from tests.fakes.client import PATIENCE
from tests.fakes.processes import below
from tests.servers.scrape.documents import pdf
from tests.servers.scrape.site import refused, scraper, serving

pytestmark = pytest.mark.anyio

ENDPOINT = "http://127.0.0.1:9/"
AZURE = '''
"""Where the packages of the service would be: enough of them for MarkItDown to be made with it."""
class Anything:
    def __init__(self, *given, **named):
        pass
AzureKeyCredential = TokenCredential = DefaultAzureCredential = DocumentIntelligenceClient = Anything
AnalyzeDocumentRequest = AnalyzeResult = DocumentAnalysisFeature = Anything
'''


async def hello(setup: Mapping[str, Any], **environment: str) -> dict[str, Any]:
    """Starts the real process with this setup; returns its first message."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mcp_hub.servers.builtin.markdown",
        stdin=pipe, stdout=pipe, env={**os.environ, **environment},
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate(json.dumps(setup).encode() + b"\n")
    greeting: dict[str, Any] = json.loads(out.splitlines()[0])
    return greeting


@contextlib.asynccontextmanager
async def converter(**options: Any) -> AsyncIterator[Converter]:
    running = Converter(**options)
    try:
        yield running
    finally:
        await running.close()


def azure_packages(directory: Path) -> str:
    """A PYTHONPATH on which the optional packages of the service are found."""
    for name in ("azure/core/credentials", "azure/identity", "azure/ai/documentintelligence/models"):
        package = directory
        for part in name.split("/"):
            package = package / part
            package.mkdir(exist_ok=True)
            (package / "__init__.py").write_text(AZURE)
    return str(directory)


async def test_without_an_endpoint_markitdown_is_created_without_document_intelligence(tmp_path: Path) -> None:
    """Check 23."""
    greeting = await hello({"docintel_endpoint": None, "memory": MEMORY}, PYTHONPATH=azure_packages(tmp_path))
    assert "PdfConverter" in greeting["converters"]
    assert "DocumentIntelligenceConverter" not in greeting["converters"]


async def test_a_configured_endpoint_is_passed_to_markitdown(tmp_path: Path) -> None:
    greeting = await hello({"docintel_endpoint": ENDPOINT, "memory": MEMORY}, PYTHONPATH=azure_packages(tmp_path))
    assert greeting["converters"][0] == "DocumentIntelligenceConverter"


async def test_an_endpoint_without_its_packages_is_an_error_naming_what_to_install() -> None:
    async with serving() as site, scraper(docintel_endpoint=ENDPOINT) as client:
        url = site.put("/a.pdf", pdf("words"), "application/pdf")
        assert await refused(client, url) == "tool_error"
        text = (await client.call("scrape_website", {"url": url}))["content"][0]["text"]
        assert "web.docintel_endpoint" in text
        assert "markitdown[az-doc-intel]" in text


async def test_the_converter_process_gets_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOME_TOKEN", "AZURE_API_KEY", "HTTPS_PROXY", "MCP_HUB_BUILTIN"):
        monkeypatch.setenv(name, "a-secret")
    monkeypatch.setenv("MCP_HUB_RUN", "run:1:web:")
    async with converter() as running:
        await running.convert(SourceDocument(b"text", "text/plain"), PATIENCE)
        (process,) = workers()
        environ = process.environ()
    assert "a-secret" not in environ.values()
    assert environ["MCP_HUB_RUN"] == "run:1:web:"
    assert workers() == []


async def test_the_converter_process_keeps_its_environment_after_a_page_was_opened_in_a_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "given")
    monkeypatch.setenv("PYTHONPATH", azure_packages(tmp_path))
    async with converter(docintel_endpoint=ENDPOINT) as running:
        with mock.patch.dict(os.environ):
            narrow_environment()
            await running.convert(SourceDocument(b"text", "text/plain"), PATIENCE)
        (process,) = workers()
        assert process.environ()["AZURE_CLIENT_SECRET"] == "given"


async def test_converter_processes_are_reused_and_at_most_two_run() -> None:
    async with converter() as running:
        await running.convert(SourceDocument(b"text", "text/plain"), PATIENCE)
        (first,) = workers()
        await running.convert(SourceDocument(b"text", "text/plain"), PATIENCE)
        assert workers() == [first]
        many = [running.convert(SourceDocument(b"%d" % number, "text/plain"), PATIENCE) for number in range(12)]
        texts = [document.markdown for document in await asyncio.gather(*many)]
        assert texts == [str(number) for number in range(12)]
        assert first in workers()
        assert len(workers()) == 2


async def test_a_dead_converter_process_is_replaced() -> None:
    async with converter() as running:
        await running.convert(SourceDocument(b"text", "text/plain"), PATIENCE)
        (first,) = workers()
        first.kill()  # the news of its end may come with the very next document
        assert (await running.convert(SourceDocument(b"again", "text/plain"), PATIENCE)).markdown == "again"
        assert first not in workers()


async def test_a_document_that_exhausts_memory_fails_and_the_next_one_works() -> None:
    wide = "a," * 10_000 + "\n" + "x\n" * 40_000  # as a table: 400 million cells
    async with converter(memory=500_000_000) as running:
        with pytest.raises(ToolRefused) as refusal:
            await running.convert(SourceDocument(wide.encode(), "text/csv"), PATIENCE)
        assert refusal.value.code == "tool_error"
        assert (await running.convert(SourceDocument(b"again", "text/plain"), PATIENCE)).markdown == "again"


async def test_markdown_above_the_limit_is_cut() -> None:
    async with converter() as running:
        document = await running.convert(SourceDocument(b"word " * 3_000_000, "text/plain"), PATIENCE)
    assert 8_000_000 < len(document.markdown) < 9_000_000
    assert document.markdown.startswith("word word")


def workers() -> list[psutil.Process]:
    return below(os.getpid(), "mcp_hub.servers.builtin.markdown")
