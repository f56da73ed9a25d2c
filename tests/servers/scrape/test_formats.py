"""What becomes Markdown: every format, every encoding, whatever the server says of it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_hub.config.extras import DISTRIBUTION
from tests.fakes.client import StdioClient
from tests.servers.scrape.documents import DOCX, PPTX, XLSX, docx, pdf, pptx, xlsx
from tests.servers.scrape.site import Site, refused, scrape, scraper, serving, source

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[StdioClient]:
    async with scraper() as running:
        yield running


async def test_a_page_becomes_markdown_without_its_scripts(client: StdioClient, site: Site) -> None:
    page = (
        "<html><head><title>A title</title><style>p{}</style></head><body><h1>Heading</h1><p>Some <b>bold</b> text"
        "<a href='/next'>on</a></p><table><tr><th>a</th></tr><tr><td>1</td></tr></table>"
        "<script>alert('never')</script></body></html>"
    )
    url = site.put("/page", page, "text/html; charset=utf-8")
    text = await scrape(client, url)
    assert "# Heading" in text
    assert "**bold**" in text
    assert "[on](/next)" in text
    assert "| a |" in text
    assert "never" not in text
    assert await source(client, url) == {
        "url": url, "content_type": "text/html", "bytes": len(page), "rendered": False, "redirects": 0,
        "title": "A title",
    }  # fmt: skip


async def test_word_and_pdf_documents_are_read(client: StdioClient, site: Site) -> None:
    text = await scrape(client, site.put("/report.docx", docx("The heading", "The paragraph"), DOCX))
    assert "# The heading" in text
    assert "The paragraph" in text
    assert "Text of a page" in await scrape(client, site.put("/a.pdf", pdf("Text of a page"), "application/pdf"))


async def test_workbooks_and_presentations_are_read(client: StdioClient, site: Site) -> None:
    table = await scrape(client, site.put("/sums.xlsx", xlsx([["name", "sum"], ["first", 42]]), XLSX))
    assert "| name | sum |" in table
    assert "| first | 42 |" in table
    slides = await scrape(client, site.put("/talk.pptx", pptx("The title", "The point"), PPTX))
    assert "# The title" in slides
    assert "The point" in slides


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("a.xlsx", "openpyxl", f"{DISTRIBUTION}[web]"),
        ("a.pptx", "pptx", f"{DISTRIBUTION}[web]"),
        ("a.xls", "xlrd", "markitdown[xls]"),
    ],
)
async def test_the_error_of_a_document_that_nothing_installed_can_read_says_what_to_install(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    bodies = {
        "a.xlsx": (xlsx([["name", "sum"]]), XLSX),
        "a.pptx": (pptx("The title", "The point"), PPTX),
        "a.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(range(256)) * 16, "application/vnd.ms-excel"),
    }
    (tmp_path / f"{module}.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    async with scraper() as client:
        result = await client.call("scrape_website", {"url": site.put(f"/{name}", *bodies[name])})
    assert result["_meta"]["mcp-hub/error"]["code"] == "tool_error"
    assert f"pip install '{package}'" in result["content"][0]["text"]


async def test_json_and_text_are_returned_unchanged_and_csv_becomes_a_table(client: StdioClient, site: Site) -> None:
    data = {"name": "Grüße", "values": [1, 2]}
    body = json.dumps(data, ensure_ascii=False)
    assert json.loads(await scrape(client, site.put("/data", body, "application/json"))) == data
    assert json.loads(await scrape(client, site.put("/ld", body, "application/ld+json"))) == data
    table = await scrape(client, site.put("/table", "a,b\n1,2\n", "text/csv"))
    assert [line.replace(" ", "") for line in table.splitlines()] == ["|a|b|", "|---|---|", "|1|2|"]
    assert await scrape(client, site.put("/plain", "one\n<b>two</b>\n", "text/plain")) == "one\n<b>two</b>\n"
    assert await scrape(client, site.put("/ready", "# Ready\n\n*as it is*", "text/markdown")) == "# Ready\n\n*as it is*"


@pytest.mark.parametrize(
    ("declared", "disposition"),
    [
        (None, None),
        ("application/octet-stream", None),
        ("text/plain", None),
        ("application/octet-stream", 'attachment; filename="an other name.pdf"'),
        ("no such thing", None),
    ],
)
async def test_a_documents_format_is_detected_by_its_content_not_its_content_type(
    client: StdioClient, site: Site, declared: str | None, disposition: str | None
) -> None:
    headers = {} if disposition is None else {"Content-Disposition": disposition}
    for path, body in (("/download", pdf("Found anyway")), ("/file", docx("H", "Found anyway"))):
        url = site.put(path, body, declared, headers=headers if path == "/download" else {})
        assert "Found anyway" in await scrape(client, url)


async def test_a_page_with_a_file_extension_in_its_url_is_read_as_html(client: StdioClient, site: Site) -> None:
    page = "<html><body><h2>About it</h2><p>a, b</p></body></html>"
    for path in ("/view/report.csv", "/view/report.pdf", "/view/README.md"):
        assert "## About it" in await scrape(client, site.put(path, page, "text/html"))


SENTENCE = "Größe, naïve café: ein Satz, in dem einiges steht, was nicht ASCII ist. Übung, Äpfel, Öl."
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 3
JAPANESE = "いろはにほへと ちりぬるを わかよたれそ つねならむ"


@pytest.mark.parametrize(
    ("text", "encoding", "content_type", "meta"),
    [
        (SENTENCE, "utf-8", "text/html", ""),
        (SENTENCE, "utf-8-sig", "text/html; charset=iso-8859-1", ""),
        (SENTENCE + " “€”", "cp1252", "text/html; charset=ISO-8859-1", ""),
        (SENTENCE, "latin-1", "text/html; charset=latin1", '<meta charset="utf-8">'),
        (SENTENCE, "utf-8", "text/html; charset=no-such-thing", ""),
        (SENTENCE, "utf-8", "text/html; charset=undefined", ""),
        (SENTENCE, "utf-8", "text/html", '<meta charset="idna">'),
        (SENTENCE, "utf-8", "text/plain; charset=punycode", ""),
        (RUSSIAN, "windows-1251", "text/html", '<meta charset="windows-1251">'),
        (RUSSIAN, "koi8-r", "text/html", '<META http-equiv=Content-Type content="text/html; charset=koi8-r">'),
        (RUSSIAN, "windows-1251", "text/plain", ""),
        (JAPANESE, "shift_jis", "text/html; charset=Shift_JIS", ""),
        (JAPANESE, "euc-jp", "text/html", "<meta charset='euc-jp'>"),
        (JAPANESE, "utf-16", "text/html", ""),
        (JAPANESE, "utf-16-le", "text/plain; charset=utf-16le", ""),
        ("简体中文 鎔 㐀", "gb18030", 'text/html; charset="gb2312"', ""),
        (RUSSIAN, "windows-1251", "text/html; charset=x-cp1251", ""),
        (JAPANESE, "shift_jis", "text/plain; charset=windows-31j", ""),
        (JAPANESE, "euc-jp", "text/html", "<!-- <meta charset=koi8-r> --><meta charset=x-euc-jp>"),
        ("Größe", "cp1252", "text/plain", ""),
        ("piñata, mañana – “café”", "cp1252", "text/html", ""),
        (SENTENCE * 5, "cp1252", "text/html", ""),
    ],
)
async def test_text_is_decoded_in_its_own_encoding(
    client: StdioClient, site: Site, text: str, encoding: str, content_type: str, meta: str
) -> None:
    html = content_type.startswith("text/html")
    page = f"<html><head>{meta}</head><body><p>{text}</p></body></html>" if html else text
    assert text.strip() in await scrape(client, site.put("/encoded", page.encode(encoding), content_type))


@pytest.mark.parametrize("content_type", ["application/rss+xml", "text/xml", "application/octet-stream", None])
@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (SENTENCE, "ISO-8859-1"),
        (RUSSIAN.strip(), "windows-1251"),
        (JAPANESE, "Shift_JIS"),
        (JAPANESE, "UTF-16"),
        (JAPANESE, "UTF-16LE"),
        (SENTENCE, "UTF-16BE"),
        (SENTENCE, "utf-8-sig"),
    ],
)
async def test_a_feed_is_decoded_once_in_its_own_encoding(
    client: StdioClient, site: Site, text: str, encoding: str, content_type: str | None
) -> None:
    feed = (
        f"<?xml version='1.0' encoding='{encoding.removesuffix('-sig')}'?>"
        "<rss version='2.0'><channel><title>A feed</title>"
        f"<item><title>{text}</title></item></channel></rss>"
    )
    markdown = await scrape(client, site.put("/feed", feed.encode(encoding), content_type))
    assert markdown.strip().splitlines() == ["# A feed", "", f"## {text}"]


async def test_the_charset_of_the_content_type_overrides_that_of_a_feed(client: StdioClient, site: Site) -> None:
    feed = f'<?xml version="1.0" encoding="koi8-r"?><rss><channel><title>{RUSSIAN.strip()}</title></channel></rss>'
    url = site.put("/feed", feed.encode("windows-1251"), "application/rss+xml; charset=windows-1251")
    assert await scrape(client, url) == f"# {RUSSIAN.strip()}\n"


async def test_an_invalid_byte_replaces_one_character_only(client: StdioClient, site: Site) -> None:
    for kind in ("text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json; charset=utf-8"):
        assert "before \ufffd after" in await scrape(client, site.put("/broken", b"before \xff after", kind))


async def test_a_document_without_text_is_reported(client: StdioClient, site: Site) -> None:
    assert await refused(client, site.put("/broken.pdf", pdf("Broken off")[:60], "application/pdf")) == "tool_error"
    assert await refused(client, site.put("/no.pdf", b"%PDF-1.4\nnothing more", "application/pdf")) == "tool_error"
    assert await refused(client, site.put("/broken.docx", b"PK\x03\x04 and no more", DOCX)) == "tool_error"
    assert await refused(client, site.put("/noise", bytes(range(256)) * 8, "application/x-noise")) == "tool_error"
    empty = await client.call("scrape_website", {"url": site.put("/empty", b"", "text/html")})
    assert not empty.get("isError")
    assert empty["content"][0]["text"]
    assert empty["_meta"]["mcp-hub/source"]["bytes"] == 0


async def test_a_document_with_a_linked_picture_fetches_nothing(client: StdioClient, site: Site) -> None:
    body = docx("Heading", "Words", linked_picture=site.put("/picture.png", b"\x89PNG", "image/png"))
    await client.call("scrape_website", {"url": site.put("/linked.docx", body, DOCX)})
    assert "/linked.docx" in site.asked
    assert "/picture.png" not in site.asked


async def test_the_scraping_tool_has_a_title_and_annotations(client: StdioClient) -> None:
    (listed,) = (await client.request("tools/list"))["tools"]
    assert listed["name"] == "scrape_website"
    assert listed["annotations"]["readOnlyHint"]
    assert listed["annotations"]["openWorldHint"]
    assert listed["inputSchema"]["required"] == ["url"]
    assert listed["inputSchema"]["properties"]["url"]["type"] == "string"
    assert "outputSchema" not in listed
