"""`max_result_bytes` and `postprocess`, as clients meet them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from tests.fakes.client import PATIENCE, RpcError, StdioClient, fake, hub
from tests.fakes.network import network_hub, sdk

pytestmark = pytest.mark.anyio

KEY = "mcp-hub/long-result"


async def all_pages(client: StdioClient, uri: str | None) -> list[dict[str, Any]]:
    contents = []
    while uri is not None:
        page = await client.request("resources/read", {"uri": uri})
        contents += page["contents"]
        uri = page["_meta"][KEY].get("next")
    return contents


@pytest.mark.parametrize("modern", [False, True])
async def test_a_long_text_is_shortened_and_can_be_read_to_its_end(tmp_path: Path, modern: bool) -> None:
    async with hub(tmp_path, {"a": fake(max_result_bytes="256KiB")}, modern=modern) as client:
        result = await client.call("a__big", {"bytes": 5 * 2**20})
        assert len(json.dumps(result)) < 256 * 1024 + 2048
        assert set(result["content"][0]["text"]) == {"x"}
        facts = result["_meta"][KEY]
        assert facts["next"] in result["content"][1]["text"]
        assert result["content"][2]["type"] == "resource_link"
        assert result["content"][2]["uri"] == facts["next"]
        page = await client.request("resources/read", {"uri": facts["next"]})
        assert {key: page.get(key) for key in ("resultType", "ttlMs", "cacheScope")} == (
            {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            if modern
            else {"resultType": None, "ttlMs": None, "cacheScope": None}
        )
        pages = await all_pages(client, facts["next"])
        assert "".join(page["text"] for page in pages) == "x" * 5 * 2**20
        assert len(pages) == facts["pages"]
        assert (await client.text("a__big", {"bytes": 10})) == "x" * 10
        with pytest.raises(RpcError) as unknown:
            await client.request("resources/read", {"uri": facts["uri"][:-1] + "z"})
        assert unknown.value.code == (-32602 if modern else -32002)


@pytest.mark.parametrize(("version", "link"), [("2024-11-05", False), ("2025-03-26", False), ("2025-06-18", True)])
async def test_a_client_of_a_revision_without_resource_links_gets_none(
    tmp_path: Path, version: str, link: bool
) -> None:
    async with hub(tmp_path, {"a": fake(max_result_bytes=1024)}, handshake=False) as client:
        await client.initialize(version)
        result = await client.call("a__big", {"bytes": 5000})
        assert ("resource_link" in {block["type"] for block in result["content"]}) is link
        assert (await all_pages(client, result["_meta"][KEY]["next"]))[0]["text"]


async def test_images_and_structured_content_are_kept_whole_or_left_out(tmp_path: Path) -> None:
    """Check 14 where nothing is too long, and what is done where something is."""
    blocks = [
        {"type": "text", "text": "first"},
        {"type": "image", "mimeType": "image/png", "data": "A" * 4000},
        {"type": "text", "text": "last"},
    ]
    answer = json.dumps({"content": blocks, "structuredContent": {"rows": ["y" * 50] * 100}})
    async with hub(
        tmp_path, {"all": fake("--result", answer), "some": fake("--result", answer, max_result_bytes=2000)}
    ) as client:
        assert (await client.call("all__echo"))["content"] == blocks
        short = await client.call("some__echo")
        assert [block["type"] for block in short["content"]] == ["text", "text", "text", "text", "resource_link"]
        assert [block["text"] for block in short["content"][::2][:2]] == ["first", "last"]
        assert "image image/png of 4," in short["content"][1]["text"]
        assert "structuredContent" not in short
        pages = await all_pages(client, short["_meta"][KEY]["next"])
        assert [page.get("blob") for page in pages][:3] == [None, "A" * 4000, None]
        assert json.loads("".join(p["text"] for p in pages[3:])) == {"rows": ["y" * 50] * 100}


TABLES = """
from dataclasses import dataclass
from mcp_hub import tool

@dataclass
class Table:
    rows: list[str]
    total: int

@tool
def rows(count: int) -> Table:
    return Table(["y" * 50] * count, count)

@tool
def words(count: int) -> Table:
    return Table(["word"] * count, count)
"""


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_clients_that_validate_output_schemas_accept_shortened_and_changed_results(
    tmp_path: Path, era: str
) -> None:
    (tmp_path / "hub" / "tables").mkdir(parents=True)
    (tmp_path / "hub" / "tables" / "tables.py").write_text(TABLES)
    entry = {
        "tools_dir": "tables",
        "max_result_bytes": 4000,
        "tools": {"words": {"postprocess": {"step": "json", "arguments": {"path": "rows[1]"}}}},
    }
    async with (
        network_hub(tmp_path / "hub", {"a": entry}) as (_, base),
        sdk(base + "/mcp", era) as client,
    ):
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        assert schemas["a__rows"] is not None
        assert schemas["a__words"] is None, "what is left of it is a text"
        result = await client.call_tool("a__rows", {"count": 1000})
        assert result.structured_content is not None
        assert result.structured_content["total"] == 1000
        assert 0 < len(result.structured_content["rows"]) < 1000
        assert result.meta is not None
        last = f"{result.meta[KEY]['uri']}/{result.meta[KEY]['pages']}"
        (page,) = (await client.read_resource(last)).contents
        assert json.loads(page.text) == {"rows": ["y" * 50] * 1000, "total": 1000}  # type: ignore[union-attr]
        result_of_words = await client.call_tool("a__words", {"count": 3})
        assert [block.text for block in result_of_words.content] == ["word"]  # type: ignore[union-attr]


async def test_only_its_caller_can_read_the_pages_of_a_result(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path / "hub", {"a": fake(max_result_bytes=1024)}) as (_, base),
        sdk(base + "/mcp", "handshake") as first,
        sdk(base + "/mcp", "handshake") as second,
        sdk(base + "/mcp", "modern") as third,
    ):
        result = await first.call_tool("a__big", {"bytes": 5000})
        assert result.meta is not None
        uri = result.meta[KEY]["next"]
        assert (await first.read_resource(uri)).contents
        for client in (second, third):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.code in (-32002, -32602)


FUNCTIONS = """
import asyncio, os, sys, time

def shout(call, result, mark="!"):
    print("a line on stdout")
    text = result["content"][0]["text"].upper() + mark
    return {**result, "content": [{"type": "text", "text": f"{call['server']}/{call['name']}: {text}"}]}

async def whisper(call, result):
    await asyncio.sleep(0)
    return result["content"][0]["text"].lower()

def keep(call, result): return None
def fail(call, result): raise ValueError("no good")
def odd(call, result): return {"content": "nothing of the kind"}
def hang(call, result): time.sleep(600)
def leave(call, result): os._exit(3)
def process(call, result): return str(os.getpid())
def end(call, result): sys.exit(3)
def stop(call, result): return next(iter(()))
def structure(call, result): return {"content": [], "structuredContent": [1]}
"""


@pytest.fixture
def functions(tmp_path: Path) -> None:
    (tmp_path / "shaping.py").write_text(FUNCTIONS)
    (tmp_path / "broken.py").write_text("print('imported')\nimport os\nos.no_such_thing\ndef any(call, result): ...\n")


def steps(**steps_by_tool: Any) -> dict[str, Any]:
    return {"a": fake(tools={name: {"postprocess": step} for name, step in steps_by_tool.items()})}


@pytest.mark.usefixtures("functions")
async def test_a_user_function_changes_results_in_its_own_process(tmp_path: Path) -> None:
    rules = steps(
        echo=["shaping:shout", {"step": "shaping:shout", "arguments": {"mark": "?"}}],
        meta="shaping:whisper",
        pid="shaping:keep",
    )
    async with hub(tmp_path, rules) as client:
        assert await client.text("a__echo", {"text": "hello"}) == "a/echo: A/ECHO: HELLO!?"
        assert await client.text("a__meta") == "{}"
        assert (await client.text("a__pid")).isdigit()


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    "step",
    [
        "shaping:fail",
        "shaping:odd",
        "shaping:leave",
        "shaping:end",
        "shaping:stop",
        "shaping:missing",
        "nowhere:none",
        "broken:any",
    ],
)
async def test_a_failing_step_withholds_the_result_unless_configured_to_keep_it(tmp_path: Path, step: str) -> None:
    rules = steps(echo=step, pid={"step": step, "on_error": "keep"})
    async with hub(tmp_path, rules) as client:
        failed = await client.call("a__echo", {"text": "private"})
        assert failed["_meta"]["mcp-hub/error"]["code"] == "tool_error"
        assert step in failed["content"][0]["text"]
        assert "private" not in json.dumps(failed)
        assert (await client.text("a__pid")).isdigit()


@pytest.mark.usefixtures("functions")
async def test_a_function_that_hangs_ends_with_its_call_and_delays_no_other(tmp_path: Path) -> None:
    rules = steps(echo="shaping:hang", meta="shaping:whisper")
    rules["a"]["timeout"] = 2
    async with hub(tmp_path, rules) as client:
        hanging = client.start("tools/call", {"name": "a__echo", "arguments": {}})
        assert await client.text("a__meta") == "{}"
        assert not hanging.done()
        result = (await hanging)["result"]
        assert result["_meta"]["mcp-hub/error"]["code"] == "timeout"


@pytest.mark.usefixtures("functions")
async def test_a_module_that_does_not_import_is_reported_as_such(tmp_path: Path) -> None:
    async with hub(tmp_path, steps(echo="broken:any", pid="shaping:missing")) as client:
        assert "no_such_thing" in (await client.call("a__echo"))["content"][0]["text"]
        assert "no function 'missing'" in (await client.call("a__pid"))["content"][0]["text"]


async def process_other_than(client: StdioClient, before: str) -> str:
    """The process functions run in, as soon as it is another one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            result = await client.call("a__meta")
            if not result.get("isError") and result["content"][0]["text"] != before:
                return str(result["content"][0]["text"])


@pytest.mark.usefixtures("functions")
async def test_functions_that_never_end_are_ended_when_there_are_many(tmp_path: Path) -> None:
    rules = steps(echo="shaping:hang", meta="shaping:process")
    rules["a"]["tools"]["echo"]["timeout"] = 1
    async with hub(tmp_path, rules) as client:
        before = await client.text("a__meta")
        hanging = [client.start("tools/call", {"name": "a__echo", "arguments": {}}) for _ in range(40)]
        async with asyncio.timeout(PATIENCE):
            codes = {(await call)["result"]["_meta"]["mcp-hub/error"]["code"] for call in hanging}
        assert codes <= {"timeout", "tool_error"}
        await process_other_than(client, before)


@pytest.mark.usefixtures("functions")
async def test_after_a_function_has_ended_its_process_the_next_one_runs_in_another(tmp_path: Path) -> None:
    async with hub(tmp_path, steps(echo="shaping:leave", meta="shaping:process")) as client:
        before = await client.text("a__meta")
        assert (await client.call("a__echo"))["isError"]
        await process_other_than(client, before)


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_functions_result_is_translated_to_the_clients_era(tmp_path: Path, modern: bool) -> None:
    async with hub(tmp_path, steps(echo="shaping:structure"), modern=modern) as client:
        result = await client.call("a__echo")
    assert result.get("structuredContent") == ([1] if modern else None)
    assert result.get("resultType") == ("complete" if modern else None)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"step": "truncate", "arguments": {"max_chars": 4}}, "abcd\u2026 (22 more characters)"),
        ("select_text", "abcdefghijklmnopqrstuvwxyz"),
        ({"step": "json", "arguments": {"path": "rows[1].n"}}, "2"),
    ],
)
async def test_the_built_in_post_processing_steps_change_results_as_documented(
    tmp_path: Path, step: Any, text: str
) -> None:
    answer = {
        "content": [
            {"type": "text", "text": "abcdefghijklmnopqrstuvwxyz"},
            {"type": "image", "mimeType": "image/png", "data": "AA=="},
        ],
        "structuredContent": {"rows": [{"n": 1}, {"n": 2}]},
    }
    async with hub(tmp_path, {"a": fake("--result", json.dumps(answer), postprocess=step)}) as client:
        result = await client.call("a__echo")
    assert result["content"][0]["text"] == text
    assert [block["type"] for block in result["content"]] == (
        ["text", "image"] if "truncate" in str(step) else ["text"]
    )
