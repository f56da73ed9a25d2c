"""The guard as clients meet it: the exact sentence, nobody asked, the rule where tools are listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import RpcError, fake, hub
from tests.schema.test_arguments_are_checked_first import called, entry

pytestmark = pytest.mark.anyio

SENTENCE = (
    "You are trying to scrape a Hugging Face dataset for answers, please do not use the scrape tool for this purpose."
)
MESSAGE = "Don't: it's \"not\" allowed."
DATASET = "https://huggingface.co/datasets/squad"
ANY = {"type": "object", "properties": {"url": {"type": "string"}}}
TOOLS = {"scrape": ANY, "scrape_website": ANY, "read": ANY, "google_search": ANY}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        {"url": DATASET},
        {"url": "hf.co/spaces/x"},
        {"options": {"pages": [{"at": DATASET}]}},
        {"query": f"read {DATASET} for me"},
        {DATASET: 1},
    ],
)
async def test_scraping_a_dataset_is_refused_with_the_message_and_reaches_no_server(
    tmp_path: Path, modern: bool, arguments: dict[str, Any]
) -> None:
    """Check 5."""
    async with hub(tmp_path, {"s": entry(tmp_path, TOOLS)}, modern=modern) as client:
        for tool in ("s__scrape", "s__scrape_website"):
            result = await client.call(tool, arguments)
            assert result["isError"] is True
            assert result["content"] == [{"type": "text", "text": SENTENCE}]
            assert result["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
        assert called(tmp_path) == []
        assert json.loads(await client.text("s__read", arguments)) == arguments
        innocent = {"url": "https://huggingface.co/docs/datasets"}
        assert json.loads(await client.text("s__scrape", innocent)) == innocent


async def test_a_guarded_tool_is_guarded_under_another_name(tmp_path: Path) -> None:
    server = entry(tmp_path, TOOLS, tools={"scrape": {"name": "fetch_page"}})
    async with hub(tmp_path, {"s": server}) as client:
        result = await client.call("s__fetch_page", {"url": DATASET})
    assert result["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
    assert called(tmp_path) == []


async def test_guarded_tools_describe_the_rule_and_guarded_resources_are_hidden(tmp_path: Path) -> None:
    """Check 7."""
    resources = [DATASET, "https://huggingface.co/docs/datasets"]
    server = fake("--resources", json.dumps(resources), "--record", str(tmp_path / "record"))
    async with hub(tmp_path, {"s": entry(tmp_path, TOOLS), "r": server}) as client:
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        for name in ("s__scrape", "s__scrape_website"):
            assert SENTENCE in tools[name]["description"]
            assert tools[name]["_meta"]["mcp-hub/guard"]["message"] == SENTENCE
        assert "_meta" not in tools["s__read"]
        listed = [resource["uri"] for resource in (await client.request("resources/list"))["resources"]]
        assert listed == resources[1:]
        for uri in (DATASET, "https://nobody.example/x"):
            with pytest.raises(RpcError) as refused:
                await client.request("resources/read", {"uri": uri})
            assert refused.value.error == {"code": -32002, "message": f"Unknown resource: {uri}", "data": {"uri": uri}}
        await client.request("resources/read", {"uri": resources[1]})
    assert DATASET not in (tmp_path / "record").read_text()


@pytest.mark.parametrize("modern", [False, True])
async def test_a_guarded_resource_answers_like_a_missing_one_to_every_method(tmp_path: Path, modern: bool) -> None:
    """Check 7."""
    guarded, template = "https://huggingface.co/models/../datasets/x", "https://hf.co/datasets{/name}"
    record = tmp_path / "record"
    options = ("--era", "dual", "--resources", json.dumps([guarded]), "--template", template, "--record", str(record))
    methods = [("resources/read", lambda uri: {"uri": uri})]
    methods += [] if modern else [("resources/subscribe", lambda uri: {"uri": uri})]
    argument = {"name": "name", "value": "a"}
    methods.append(
        ("completion/complete", lambda uri: {"ref": {"type": "ref/resource", "uri": uri}, "argument": argument})
    )
    async with hub(tmp_path, {"r": fake(*options)}, modern=modern) as client:
        assert (await client.request("resources/list"))["resources"] == []
        assert (await client.request("resources/templates/list"))["resourceTemplates"] == []
        for method, params in methods:
            errors = []
            for uri in (guarded, template, "https://hf.co/datasets/a", "https://nobody.example/x"):
                with pytest.raises(RpcError) as refused:
                    await client.request(method, params(uri))
                errors.append(json.dumps(refused.value.error).replace(uri, "URI"))
            assert len(set(errors)) == 1
    acts = [json.loads(line)["method"] for line in record.read_text().splitlines()]
    assert not {method for method, _ in methods} & set(acts)


async def test_a_guarded_uri_is_not_readable_through_a_template_either(tmp_path: Path) -> None:
    server = fake("--template", "https://{host}/{+path}", "--record", str(tmp_path / "record"))
    async with hub(tmp_path, {"r": server}) as client:
        assert (await client.request("resources/read", {"uri": "https://example.com/a"}))["contents"]
        with pytest.raises(RpcError) as refused:
            await client.request("resources/read", {"uri": "https://huggingface.co/x/../datasets"})
        assert refused.value.code == -32002
    assert "x/../datasets" not in (tmp_path / "record").read_text()


async def test_the_guards_message_tools_and_urls_are_configurable(tmp_path: Path) -> None:
    guard = {"tools": ["s/re*"], "message": MESSAGE, "deny_urls": ["example.org/private"], "allow_urls": ["hf.co"]}
    async with hub(tmp_path, {"s": entry(tmp_path, TOOLS)}, guard=guard) as client:
        for url in (DATASET, "http://example.org/private/x"):
            refused = await client.call("s__read", {"url": url})
            assert refused["content"][0]["text"] == MESSAGE
        assert await client.text("s__read", {"url": "https://hf.co/datasets/x"})
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        assert MESSAGE in tools["s__read"]["description"]
        assert "example.org/private" in tools["s__read"]["description"]
        assert await client.text("s__scrape", {"url": DATASET})


@pytest.mark.parametrize("name", ["read", "s/read", "s__read", "s__re*"])
async def test_guard_tools_matches_a_tool_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    async with hub(tmp_path, {"s": entry(tmp_path, TOOLS)}, guard={"tools": [name]}) as client:
        refused = await client.call("s__read", {"url": DATASET})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
        assert await client.text("s__scrape", {"url": DATASET})


async def test_a_guard_that_is_off_does_nothing(tmp_path: Path) -> None:
    async with hub(tmp_path, {"s": entry(tmp_path, TOOLS)}, guard="off") as client:
        assert await client.text("s__scrape", {"url": DATASET})
        tools = (await client.request("tools/list"))["tools"]
        assert not any("description" in tool or "_meta" in tool for tool in tools)


async def test_guarded_links_are_dropped_from_search_results(tmp_path: Path) -> None:
    search_result = {
        "organic": [{"link": DATASET, "title": "a"}, {"link": "https://example.com", "title": "b"}],
        "more": {"urls": ["https://hf.co/spaces/x", "https://example.org"]},
        "n": 10**25,
    }
    expected = {"organic": search_result["organic"][1:], "more": {"urls": ["https://example.org"]}, "n": 10**25}
    result = {
        "content": [
            {"type": "text", "text": json.dumps(search_result)},
            {"type": "text", "text": f"prose about {DATASET}"},
            {"type": "resource_link", "uri": DATASET, "name": "x"},
        ],
        "structuredContent": search_result,
    }
    servers = {"a": fake("--result", json.dumps(result)), "b": fake("--result", json.dumps(result))}
    async with hub(tmp_path, servers, guard={"filter_results": ["a/echo"]}) as client:
        filtered = await client.call("a__echo")
        assert json.loads(filtered["content"][0]["text"]) == expected
        assert filtered["structuredContent"] == expected
        assert filtered["content"][1:] == result["content"][1:2]
        assert await client.call("b__echo") == result


@pytest.mark.parametrize("modern", [False, True])
async def test_browser_tools_accept_only_http_and_https_urls(tmp_path: Path, modern: bool) -> None:
    text = {"type": "object", "properties": {"text": {"type": "string"}}}
    browser = entry(tmp_path, {"browser_navigate": ANY, "browser_type": text})
    async with hub(tmp_path, {"playwright": browser}, modern=modern) as client:
        for url in (
            "view-source:https://huggingface.co/datasets/x",
            "view-source:https://example.org",
            " \nDATA:text/html,<script>location='https://hugging'+'face.co/datasets/x'</script>",
            "javascript:location='https://example.org'",
            "file:///etc/passwd",
            "chrome://settings",
        ):
            result = await client.call("playwright__browser_navigate", {"url": url})
            assert result["_meta"]["mcp-hub/error"]["code"] == "guard_blocked", url
        assert called(tmp_path) == []
        for url in ("https://example.org", "about:blank", "localhost:3000"):
            assert json.loads(await client.text("playwright__browser_navigate", {"url": url})) == {"url": url}
        typed = {"text": "data: see javascript: the good parts"}
        assert json.loads(await client.text("playwright__browser_type", typed)) == typed


async def test_scraping_tools_accept_only_http_urls_and_other_tools_any(tmp_path: Path) -> None:
    guard = {"allow_urls": ["file:"]}
    async with hub(tmp_path, {"s": entry(tmp_path, TOOLS)}, guard=guard) as client:
        refused = await client.call("s__scrape", {"url": "data:text/html,hello"})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
        for tool, url in (("scrape", "file:///x"), ("read", "data:text/html,hello"), ("scrape", "https://example.org")):
            assert json.loads(await client.text(f"s__{tool}", {"url": url})) == {"url": url}
