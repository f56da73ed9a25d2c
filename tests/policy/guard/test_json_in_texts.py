"""A text that a server parses as JSON is no way around the guard and presets: real servers, and what they recorded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import Hub
from tests.fakes.client import StdioClient, hub
from tests.fakes.forks import python_with_sdk
from tests.peers.argument_servers import SERVERS1
from tests.peers.catalogue import REAL_SERVERS, real_servers
from tests.peers.programs import MCP1, installed

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).with_name("server_of_lists.py"))
FRAMEWORKS = ("sdk1", "sdk2", "fastmcp3", "fastmcp4")
LISTS = ("scrape_list", "scrape_untyped", "scrape_text_or_list")
FORBIDDEN = {
    "the guard": r'["https://hugging\u0066ace.co/datasets/x"]',
    "the guard, without a scheme": r'["hugging\u0066ace.co/datasets/x"]',
    "the guard, as hf:": r'["\u0068f://datasets/x/y"]',
    "deny_urls": r'[ "https://example.org/pri\u0076ate/x" ]',
    "a scheme": r'["\u0066ile:///etc/passwd"]',
    "any scheme in a list of URLs": r'["gopher\u003a//example.com"]',
    "beside another one": r'["https://example.com", "https://hugging\u0066ace.co/datasets/x"]',
    "behind a reader": r'["https://r.jina.ai/https://hugging\u0066ace.co/datasets/x"]',
    "behind blanks": "\t\n\r " + r'["https://hugging\u0066ace.co/datasets/x"]',
    "in a text in the text": json.dumps(
        [json.dumps(["https://huggingface.co/datasets/x"]).replace("face", r"\u0066ace")]
    ),
}
INNOCENT = [
    r'["https://hugging\u0066ace.co/docs/datasets"]',
    '["https://example.com/a", "https://example.org/b"]',
    "https://example.com/[a]{b}",
]  # fmt: skip
RULES: dict[str, Any] = {"guard": {"tools": ["*"], "deny_urls": ["example.org/private"]}}


def entry(framework: str, record: Path, **options: Any) -> dict[str, Any]:
    interpreter = {"sdk1": MCP1, "fastmcp3": SERVERS1 / "python"}.get(framework)
    command = python_with_sdk() if interpreter is None else installed(interpreter)
    return {"command": command, "args": [PROGRAM, framework.rstrip("1234"), str(record)], **options}


@contextlib.asynccontextmanager
async def front(directory: Path, framework: str, **root: Any) -> AsyncIterator[StdioClient]:
    server = entry(framework, directory / "record", preset={"send": {"items[].token": "ours"}})
    async with hub(directory, {"s": server}, **{**RULES, **root}) as client:
        yield client


def received(directory: Path) -> list[Any]:
    record = directory / "record"
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


async def code_of(client: StdioClient, tool: str, arguments: dict[str, Any]) -> str | None:
    result = await client.call(tool, arguments)
    return (result.get("_meta") or {}).get("mcp-hub/error", {}).get("code")  # type: ignore[no-any-return]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_no_server_gets_a_forbidden_url_in_a_text_that_it_may_parse(tmp_path: Path, framework: str) -> None:
    async with front(tmp_path, framework) as client:
        for tool in LISTS:
            for case, text in FORBIDDEN.items():
                assert await code_of(client, f"s__{tool}", {"urls": text}) == "guard_blocked", (tool, case)
        for text in (
            r'{"url": "hf.co\/\u0064atasets/x"}',
            r'{"url": "\u0066ile:///etc/passwd"}',
            '{"url": "gopher:x"}',
        ):
            assert await code_of(client, "s__scrape_dict_or_text", {"page": text}) == "guard_blocked", text
        assert received(tmp_path) == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_allowed_urls_in_a_text_reach_the_server_as_the_client_wrote_them(tmp_path: Path, framework: str) -> None:
    async with front(tmp_path, framework) as client:
        for text in INNOCENT:
            assert await code_of(client, "s__scrape_text_or_list", {"urls": text}) is None
    is_parsed = framework.startswith("sdk")
    assert received(tmp_path) == [json.loads(t) if is_parsed and t.startswith("[") else t for t in INNOCENT]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_text_cannot_bring_members_that_are_preset(tmp_path: Path, framework: str) -> None:
    async with front(tmp_path, framework, call_log={"file": str(tmp_path / "log")}) as client:
        refused = (
            '[{"v": "1", "token": "theirs"}]', ' [{"v": "1"}]', '"[{\\"token\\": \\"theirs\\"}]"',
            '[{"token": "theirs"},', ['{"token": "theirs"}'], {"token": "theirs"},
        )  # fmt: skip
        for items in refused:
            assert await code_of(client, "s__send", {"items": items}) == "invalid_parameters", items
        assert received(tmp_path) == []
        await client.call("s__send", {"items": [{"v": "1", "token": "theirs"}]})
    assert received(tmp_path) == [[{"v": "1", "token": "ours"}]]
    assert "theirs" not in (tmp_path / "log").read_text()


UNLIKE = {
    "a name twice": '{"a": ["https://example.com"], "a": []}',
    "no number": '["https://example.com", NaN]',
    "a number beyond 64 bits": '["https://example.com", 1e400]',
    "half a character": r'["https://example.com/\ud800"]',
    "a control character": '["https://example.com/\x01"]',
    "a byte order mark": '\ufeff["https://example.com"]',
    "blanks that are none of JSON": '\xa0["https://example.com"]',
    "too many levels": "[" * 100_000 + "]" * 100_000,
}


@pytest.mark.parametrize("case", UNLIKE)
async def test_a_text_that_parsers_read_differently_is_refused_unless_it_is_plain_text(
    tmp_path: Path, case: str
) -> None:
    text = UNLIKE[case]
    async with front(tmp_path, "fastmcp4") as client:
        assert await code_of(client, "s__scrape_text_or_list", {"urls": text}) == "guard_blocked"
        assert received(tmp_path) == []
        if case != "too many levels":
            assert await code_of(client, "s__write_text", {"content": text}) is None
            assert received(tmp_path) == [text]


PACKAGE = {
    "name": "x",
    "homepage": "https://huggingface.co/docs",
    "repository": {"type": "git", "url": "git+https://github.com/x/x.git"},
    "funding": {"url": "mailto:me@example.com"},
    "dependencies": {"a": "file:../a", "b": "npm:c@1"},
}
FILES = {
    "package.json": json.dumps(PACKAGE, indent=2),
    "tsconfig.json": '{\n  // the target\n  "target": "es2022", /* both */ "paths": {"@/*": ["./src/*"]},\n}\n',
    "twice.json": '{"a": 1, "a": 2}',
    "page.json": json.dumps({"html": '<a href="https://huggingface.co/docs/datasets">datasets</a> on huggingface.co'}),
    "notebook.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": ["!curl https://example.com\n"]}]}),
    "data.csv": '"url","title"\n"https://example.com","an example"\n' * 3000,
    "lines.jsonl": '{"url": "https://example.com"}\n{"url": "ssh://git@example.com"}\n',
    "readme.md": "[the docs](https://huggingface.co/docs) of `datasets`\n",
    "style.css": "{ background: url(data:image/png;base64,iVBORw0KGgo=) }",
}


async def test_files_of_json_can_be_written_by_a_guarded_tool(tmp_path: Path) -> None:
    async with real_servers(tmp_path, ()) as place:
        servers = {"files": REAL_SERVERS["filesystem"].entry(place)}
        (tmp_path / "hub").mkdir()
        async with hub(tmp_path / "hub", servers, **RULES) as client:
            for name, content in FILES.items():
                path = place.file.with_name(name)
                assert await code_of(client, "files__write_file", {"path": str(path), "content": content}) is None
                assert path.read_text() == content


async def test_no_other_way_to_call_a_tool_gets_past_the_rules(tmp_path: Path) -> None:
    text = FORBIDDEN["the guard"]
    async with front(tmp_path, "sdk2", meta_tools=True, code_mode={"enabled": True, "writes": True}) as client:
        await client.tool_names()
        inner = {"tool": "s__scrape_list", "arguments": {"urls": text}}
        assert await code_of(client, "hub_call", inner) == "guard_blocked"
        programs = (f"await s__scrape_list(urls={text!r})", 'await s__send(items=\'[{"token": "theirs"}]\')')
        assert [(await client.call("hub_run", {"code": code}))["isError"] for code in programs] == [True, True]
        await client.call("hub_run", {"code": "await s__send(items=[{'v': '1', 'token': 'theirs'}])"})
    config = {"servers": {"s": entry("sdk1", tmp_path / "record", preset={"send": {"items[].token": "ours"}})}, **RULES}
    async with Hub(config) as program:
        for tool, arguments in (("scrape_list", {"urls": text}), ("send", {"items": '[{"token": "theirs"}]'})):
            result = await program.call("s", tool, arguments)
            assert result["_meta"]["mcp-hub/error"]["code"] in ("guard_blocked", "invalid_parameters")
    assert received(tmp_path) == [[{"v": "1", "token": "ours"}]]
