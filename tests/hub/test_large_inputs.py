"""No input within the bounds keeps the loop: every hub of the tests fails for a callback of more than 100 ms.

What is asserted here is what the input comes to, and that others are served meanwhile. All cases that were measured:
`scripts/faults --large`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.downstream.raw_http import initialized
from tests.fakes.client import PATIENCE, RpcError, StdioClient, fake, hub
from tests.fakes.network import network_hub
from tests.fuzz.listening import Front

pytestmark = pytest.mark.anyio

LONG_URL = "https://" + "a.b/c%2e/../" * 50_000
GUARD = {"guard": {"tools": ["t"], "filter_results": ["search"]}}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


def listing(directory: Path, **lists: Any) -> dict[str, Any]:
    file = directory / "lists.json"
    file.write_text(json.dumps({"tools": [tool("t"), tool("search"), tool("changed")], **lists}))
    return fake("--lists", str(file), deadlines={"list": PATIENCE, "connect": PATIENCE})


async def served(client: StdioClient, until: asyncio.Future[Any]) -> int:
    """How many calls to the good server are answered before something has come to its end."""
    calls = 0
    while not until.done():
        assert await client.text("good__echo", {"text": "x"}) == "x"
        calls += 1
    return calls


async def test_sixty_uris_of_600_kb_are_left_out_without_delaying_other_calls(tmp_path: Path) -> None:
    uris = [{"uri": f"https://x/{n}/{LONG_URL}", "name": "long"} for n in range(60)]
    fine = {"uri": "x:fine", "name": "fine"}
    servers = {"bad": listing(tmp_path, resources=[*uris, fine]), "good": fake()}
    async with hub(tmp_path, servers, list_wait=PATIENCE) as client:
        listed = await client.request("resources/list")
        assert [resource["uri"] for resource in listed["resources"]] == ["x:fine", "fake://fake/one"]
        request = asyncio.ensure_future(client.call("bad__changed"))
        assert await served(client, request)
        request = client.start("resources/list")
        assert await served(client, request)
        assert b"left out: its uri is longer than 1,024 characters" in client.stderr


async def test_links_of_600_kb_are_dropped_from_search_results_unread(tmp_path: Path) -> None:
    links = [{"type": "resource_link", "uri": f"{LONG_URL}{n}", "name": "x"} for n in range(12)]
    fine = {"type": "resource_link", "uri": "https://example.org/", "name": "x"}
    servers = {"bad": listing(tmp_path, result={"content": [*links, fine]}), "good": fake()}
    async with hub(tmp_path, servers, list_wait=PATIENCE, **GUARD) as client:
        await client.tool_names()
        call = asyncio.ensure_future(client.call("bad__search"))
        assert await served(client, call)
        assert [link["uri"] for link in (await call)["content"]] == ["https://example.org/"]


async def test_forty_thousand_links_are_filtered_while_others_are_served(tmp_path: Path) -> None:
    results = [{"link": f"https://example.org/{n}", "title": "t"} for n in range(40_000)]
    dataset = {"link": "https://huggingface.co/datasets/squad", "title": "t"}
    text = json.dumps({"results": [*results, dataset]})
    servers = {"bad": listing(tmp_path, result={"content": [{"type": "text", "text": text}]}), "good": fake()}
    async with hub(tmp_path, servers, list_wait=PATIENCE, **GUARD) as client:
        await client.tool_names()
        call = asyncio.ensure_future(client.call("bad__search"))
        assert await served(client, call)
        assert json.loads((await call)["content"][0]["text"]) == {"results": results}


async def test_a_call_with_too_many_urls_is_refused_while_others_are_served(tmp_path: Path) -> None:
    servers = {"bad": listing(tmp_path), "good": fake()}
    async with hub(tmp_path, servers, list_wait=PATIENCE, **GUARD) as client:
        await client.tool_names()
        call = asyncio.ensure_future(client.call("bad__t", {"urls": ["http://a.b/"] * 190_000}))
        assert await served(client, call)
        refused = await call
        assert refused["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
        allowed = await client.call("bad__t", {"urls": ["http://a.b/"] * 2_000, "text": "a b " * 200_000})
        assert "isError" not in allowed


ODD = {"direction marks": "\u200e", "combining marks": "\u0315\u0300", "ligatures": "\ufdfa"}
"""Characters of which Unicode, or a codec, takes time with the square of their number, or makes many of one."""


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("screen", ["flag", "quarantine"])
async def test_texts_of_odd_characters_are_read_while_others_are_served(tmp_path: Path, odd: str, screen: str) -> None:
    text = "a" + odd * (60_000 // len(odd))
    odd_tools = [tool("t"), tool("search"), tool("odd", description=text), tool(text[:900])]
    link = {"type": "resource_link", "uri": f"https://x.example/{text[:5000]}", "name": "x"}
    bad = listing(tmp_path, tools=odd_tools, instructions=text, result={"content": [link]})
    root = {"list_wait": PATIENCE, "screen": screen, "expose": "all", **GUARD}
    async with hub(tmp_path, {"bad": bad, "good": fake()}, **root) as client:
        assert "bad__t" in await client.tool_names()
        assert ("bad__odd" in await client.tool_names()) is (screen == "flag")
        for url in (f"https://{text[:4000]}/", f"https://x.example/{text}", f"{text[:200]}.example {text}"):
            call = asyncio.ensure_future(client.call("bad__t", {"url": url, text: url}))
            assert await served(client, call)
            assert (await call)["content"]
        search = asyncio.ensure_future(client.call("bad__search"))
        assert await served(client, search)
        assert [block["uri"] for block in (await search)["content"]] == [link["uri"]]
        for method, params in (("resources/read", {"uri": f"x:{text[:8000]}"}), ("tools/list", {text: 1})):
            request = client.start(method, params)
            assert await served(client, request)
            assert ("result" in await request) is (method == "tools/list")


@pytest.mark.parametrize("expose", ["all", "auto"])
async def test_ten_thousand_tools_are_listed_and_changed_while_others_are_served(tmp_path: Path, expose: str) -> None:
    many = [tool(f"tool_{n}", description=f"Does {n}.") for n in range(9_990)]
    servers = {"bad": listing(tmp_path, tools=[tool("changed"), *many]), "good": fake()}
    root = {"list_wait": PATIENCE, "expose": expose, "expose_always": ["bad/*new*", "tool_77"]}
    async with hub(tmp_path, servers, **root) as client:
        await client.tool_names()
        (tmp_path / "lists.json").write_text(json.dumps({"tools": [tool("changed"), tool("new"), *many]}))
        await client.call("bad__changed")
        changed = asyncio.ensure_future(client.notified("notifications/tools/list_changed"))
        assert await served(client, changed)
        assert "bad__new" in await client.tool_names()
        assert await client.call("bad__tool_9989")


def members(number: int, member: str = "{}") -> bytes:
    return b"[" + b",".join([member.encode()] * number) + b"]"


async def test_short_lines_of_a_server_that_exits_are_handled_while_others_are_served(tmp_path: Path) -> None:
    async with hub(tmp_path, {"bad": fake("--burst"), "good": fake()}) as client:
        call = asyncio.ensure_future(client.call("bad__burst", {"text": "1\n", "times": 400_000, "exit": True}))
        assert await served(client, call)
        assert (await call)["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert await client.text("bad__echo", {"text": "a new process"}) == "a new process"


async def test_a_batch_of_a_million_messages_of_a_server_is_cut_while_others_are_served(tmp_path: Path) -> None:
    async with hub(tmp_path, {"bad": fake("--burst"), "good": fake()}) as client:
        batch = {"begin": "[", "text": "{},", "times": 1_000_000, "end": "{}]\n"}
        call = asyncio.ensure_future(client.call("bad__burst", batch))
        assert await served(client, call)
        assert (await call)["content"][0]["text"] == "written"
        cut = b"only the first 5,000 of 1,000,001 messages of a batch were taken"
        await client.until(lambda: cut in client.stderr)


async def test_a_batch_of_more_than_a_thousand_is_refused_before_any_of_it_begins(tmp_path: Path) -> None:
    async with hub(tmp_path, {"good": fake()}, handshake=False) as client:
        await client.initialize("2025-03-26")
        call = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
        for number, member in ((1_300_000, "{}"), (1_001, call)):
            client.send_raw(members(number, member) + b"\n")
            await client.until(lambda: client.unmatched)
            refused = client.unmatched.pop()
            assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        pings = [json.dumps({"jsonrpc": "2.0", "id": f"p{n}", "method": "ping"}) for n in range(1_000)]
        client.send_raw(f"[{','.join(pings)}]\n".encode())
        await client.until(lambda: client.unmatched)
        assert {response["id"] for response in client.unmatched.pop()} == {f"p{n}" for n in range(1_000)}
        assert await client.text("good__echo", {"text": "x"}) == "x"


async def test_over_http_a_long_batch_is_refused_and_every_member_counts_against_the_rate(tmp_path: Path) -> None:
    listen = {"limits": {"rate": 1, "burst": 5}}
    async with network_hub(tmp_path, {"good": fake()}, listen=listen) as (_, base):
        front = Front(int(base.rpartition(":")[2]), tmp_path / "record")
        lines = await initialized(front, (), "2025-03-26")  # type: ignore[arg-type]
        long = await front.post(lines, members(300_000))
        assert (long.status, long.json["error"]["code"]) == (400, -32600)
        answers = (await front.post(lines, members(100))).json
        codes = [answer["error"]["code"] for answer in answers]
        assert len(codes) == 100
        assert set(codes) == {-32600, -32013}
        assert codes.count(-32600) <= 10  # the burst, and what came back meanwhile


@pytest.mark.parametrize(
    ("name", "arguments"), [("a__echo", {"text": "https://evil.example/"}), ("a__add", {"a": []}), ("a__fail", {})]
)
async def test_arguments_of_failed_calls_are_not_kept(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    guard = {"tools": ["a/echo"], "deny_urls": ["evil.example"]}
    async with hub(tmp_path, {"a": fake()}, guard=guard) as client:
        await client.request("tools/list")
        process = psutil.Process(client.process.pid)
        before = process.memory_info().rss
        for number in range(80):
            params = {"name": name, "arguments": {**arguments, "more": f"{number}" + "x" * 10**6}}
            with contextlib.suppress(RpcError):
                assert (await client.request("tools/call", params))["isError"]
        assert process.memory_info().rss - before < 40 * 10**6


async def test_arguments_of_failed_calls_of_a_program_are_not_kept(tmp_path: Path) -> None:
    code = (
        "failed = 0\nfor number in range(40):\n    try:\n        await call_tool('a__add', a=[], more='x' * 1000000)\n"
        "    except Exception:\n        failed += 1\nfailed"
    )
    program = {"name": "hub_run", "arguments": {"code": code}}
    async with hub(tmp_path, {"a": fake()}, code_mode={"enabled": True, "writes": True}) as client:
        await client.request("tools/list")
        process = psutil.Process(client.process.pid)
        before = process.memory_info().rss
        for _ in range(3):
            result = await client.request("tools/call", program)
            assert result["content"] == [{"type": "text", "text": "40"}]
        assert process.memory_info().rss - before < 60 * 10**6
