"""What of its tools a client is listed: all, or a few and a search for the others, by what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.protocol.era import CLIENT_INFO_KEY
from tests.fakes.client import RpcError, StdioClient, fake, hub
from tests.hub.exposure.listing import CHAT, META, introduce, many, names

pytestmark = pytest.mark.anyio

LARGE = 150
ERAS = [False, True]


async def listed_to(directory: Path, name: str, count: int, words: int, *, modern: bool, **root: object) -> list[str]:
    async with hub(directory, {"a": many(directory, count, words)}, modern=modern, handshake=False, **root) as client:
        if not modern:
            await introduce(client, name)
        return await names(client, name if modern else None)


@pytest.mark.parametrize("modern", ERAS)
@pytest.mark.parametrize("name", ["claude-code", "codex-mcp-client", "Claude-Code (via mcp-remote 0.1.37)", "mcp-hub"])
async def test_a_client_that_defers_tools_itself_gets_the_whole_list(tmp_path: Path, name: str, modern: bool) -> None:
    assert len(await listed_to(tmp_path, name, LARGE, 150, modern=modern)) == LARGE


@pytest.mark.parametrize("modern", ERAS)
@pytest.mark.parametrize("name", ["a client of my own", "mcp", "langchain", ""])
async def test_a_client_that_the_hub_does_not_know_gets_the_whole_list(tmp_path: Path, name: str, modern: bool) -> None:
    assert len(await listed_to(tmp_path, name, LARGE, 150, modern=modern)) == LARGE


@pytest.mark.parametrize("modern", ERAS)
@pytest.mark.parametrize("name", [CHAT, "gemini-cli-mcp-client", "opencode"])
async def test_a_client_that_shows_every_tool_gets_a_short_list_if_all_tools_exceed_the_budget(
    tmp_path: Path, name: str, modern: bool
) -> None:
    assert await listed_to(tmp_path, name, LARGE, 150, modern=modern) == META


@pytest.mark.parametrize("modern", ERAS)
async def test_all_tools_are_listed_if_they_fit_the_budget(tmp_path: Path, modern: bool) -> None:
    assert len(await listed_to(tmp_path, CHAT, 100, 150, modern=modern)) == 100


@pytest.mark.parametrize(("name", "count", "all_listed"), [
    ("cursor-vscode", 40, True), ("cursor-vscode", 41, False), ("windsurf-client", 100, True),
    ("windsurf-client", 101, False), ("Visual Studio Code", 128, True), ("Visual Studio Code", 129, False),
])  # fmt: skip
async def test_a_client_with_a_tool_limit_gets_a_short_list_above_it(
    tmp_path: Path, name: str, count: int, all_listed: bool
) -> None:
    tool_names = await listed_to(tmp_path, name, count, 1, modern=True)
    assert len(tool_names) == count if all_listed else tool_names == META


async def test_the_token_budget_is_configurable(tmp_path: Path) -> None:
    assert len(await listed_to(tmp_path, CHAT, LARGE, 150, modern=True, expose_budget=100_000)) == LARGE
    assert await listed_to(tmp_path, CHAT, 5, 4, modern=True, expose_budget=50) == META


async def test_expose_all_and_expose_search_apply_to_every_client(tmp_path: Path) -> None:
    for name in ("claude-code", "cursor-vscode", "mcp"):
        assert len(await listed_to(tmp_path, name, LARGE, 150, modern=True, expose="all")) == LARGE
        assert await listed_to(tmp_path, name, 5, 4, modern=True, expose="search") == META


async def test_tools_named_in_always_follow_the_hubs_own_tools(tmp_path: Path) -> None:
    always = ["a/tool_00[12]", "b__echo", "tool_003", "nothing"]
    servers = {"a": many(tmp_path, LARGE, 150), "b": fake()}
    async with hub(tmp_path, servers, modern=True, expose_always=always) as client:
        assert await names(client, CHAT) == [*META, "a__tool_001", "a__tool_002", "a__tool_003", "b__echo"]


@pytest.fixture(scope="module", params=ERAS)
async def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    directory = tmp_path_factory.mktemp("hub")
    servers = {"a": many(directory, LARGE, 150), "b": fake("--name", "b", disable_tools=["crash"])}
    async with hub(directory, servers, modern=request.param, expose="search") as client:
        yield client


async def test_an_unlisted_tool_can_be_called_by_its_name(client: StdioClient) -> None:
    assert await names(client) == META
    assert await client.text("b__echo", {"text": "hello"}) == "hello"
    assert await client.text("hub_call", {"tool": "b__echo", "arguments": {"text": "hello"}}) == "hello"
    assert "b__echo" in (await client.text("hub_search", {"query": "echo"}))


async def test_a_refused_tool_is_unknown_to_list_search_and_call(client: StdioClient) -> None:
    direct = await client.start("tools/call", {"name": "b__crash", "arguments": {}})
    wrapped = await client.start("tools/call", {"name": "hub_call", "arguments": {"tool": "b__crash"}})
    assert direct["error"] == wrapped["error"]
    assert "b__crash" not in await client.text("hub_search", {"query": "crash"})


@pytest.mark.parametrize("info", [None, "mcp", {}, {"name": None}, {"name": ["a"]}, {"name": "x" * 100_000}])
async def test_a_client_without_a_valid_name_is_treated_as_an_unknown_client(tmp_path: Path, info: object) -> None:
    async with hub(tmp_path, {"a": many(tmp_path, LARGE, 4)}, modern=True, expose_budget=50) as client:
        tools = (await client.request("tools/list", {"_meta": {CLIENT_INFO_KEY: info}}))["tools"]
        assert len(tools) == LARGE


async def test_with_expose_all_the_meta_tools_are_unknown(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake()}, modern=True, expose="all") as client:
        with pytest.raises(RpcError, match="Unknown tool: hub_search"):
            await client.call("hub_search", {"query": ""})


async def test_a_list_that_depends_on_the_client_has_the_cache_scope_private(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": many(tmp_path, LARGE, 150)}, modern=True) as client:
        for name in ("claude-code", CHAT):
            params = {"_meta": {CLIENT_INFO_KEY: {"name": name, "version": "1"}}}
            assert (await client.request("tools/list", params))["cacheScope"] == "private"
