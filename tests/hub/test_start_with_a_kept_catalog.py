"""From the second start on the list is complete at once, from what was kept of each upstream."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog.names import expose_uri
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.policy import Call
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import KINDS, TOOLS
from mcp_hub.upstream.catalog_cache import CatalogCache
from mcp_hub.upstream.lifecycle import UpstreamState
from tests.downstream.network.visitor import TOKENS, network_hub, visiting
from tests.fakes.client import PATIENCE, RpcError, fake, hub

pytestmark = pytest.mark.anyio


def started(record: Path) -> int:
    """How often the recording upstream was connected to."""
    return record.read_text().count('"method":"server/discover"') + record.read_text().count('"method":"initialize"')


async def first_run(directory: Path, servers: dict[str, Any]) -> list[str]:
    async with hub(directory, servers) as client:
        return await client.tool_names()


async def test_the_second_start_lists_the_cached_catalog_while_the_upstream_hangs(tmp_path: Path) -> None:
    flag = tmp_path / "hang"
    servers = {"up": fake("--hang-if", str(flag)), "other": fake()}
    names = await first_run(tmp_path, servers)
    flag.touch()
    async with hub(tmp_path, servers) as client:
        assert await client.tool_names() == names
        assert await client.text("other__echo", {"text": "x"}) == "x"


async def test_a_call_starts_the_upstream_it_is_for_and_no_other(tmp_path: Path) -> None:
    records = {name: tmp_path / name for name in ("called", "idle")}
    servers = {name: fake("--record", str(record), lazy=True) for name, record in records.items()}
    await first_run(tmp_path, servers)
    before = {name: started(record) for name, record in records.items()}
    async with hub(tmp_path, servers) as client:
        assert await client.text("called__echo", {"text": "x"}) == "x"
    assert started(records["called"]) > before["called"]
    assert started(records["idle"]) == before["idle"]


@pytest.mark.parametrize("changes", [False, True])
async def test_a_refreshed_list_is_announced_only_if_it_differs(tmp_path: Path, changes: bool) -> None:
    flag = tmp_path / "more"
    servers = {"up": fake("--more-if", str(flag), "--name", "up")}
    names = await first_run(tmp_path, servers)
    if changes:
        flag.touch()
    async with hub(tmp_path, servers) as client:
        assert await client.tool_names() == names
        await client.text("up__echo", {"text": "this starts it"})
        if changes:
            await client.notified("notifications/tools/list_changed")
            assert await client.tool_names() == [*names, "up__late"]
        else:
            await client.text("up__grow", {"name": "marker"})
            await client.notified("notifications/tools/list_changed")
            assert await client.tool_names() == [*names, "up__marker"]
            assert len(client.notifications) == 1


async def test_a_cached_catalog_is_refreshed_in_the_background(tmp_path: Path) -> None:
    flag = tmp_path / "more"
    servers = {"up": fake("--more-if", str(flag))}
    await first_run(tmp_path, servers)
    flag.touch()
    async with hub(tmp_path, servers) as client:
        assert "up__late" not in await client.tool_names()
        await client.notified("notifications/tools/list_changed")
        assert "up__late" in await client.tool_names()


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_call_of_a_tool_gained_since_the_last_run_asks_its_server_first(
    tmp_path: Path, era: str, lazy: bool
) -> None:
    flag, record = tmp_path / "more", tmp_path / "record"
    other = fake("--record", str(record), lazy=True)
    servers = {"up": fake("--more-if", str(flag), "--era", era, lazy=lazy), "other": other}
    await first_run(tmp_path, servers)
    flag.touch()
    before = started(record)
    async with hub(tmp_path, servers) as client:
        assert await client.text("up__late") == "called late"
        with pytest.raises(RpcError) as caught:
            await client.call("up__never")
        assert caught.value.error == {"code": -32602, "message": "Unknown tool: up__never"}
    assert started(record) == before


async def test_prompts_and_resources_gained_since_the_last_run_are_found_by_their_prefix(tmp_path: Path) -> None:
    file, uris = tmp_path / "lists.json", ["fake://x/1", "fake://x/2"]
    resources = [{"uri": uri, "name": uri} for uri in uris]
    file.write_text(json.dumps({"resources": resources[:1]}))
    servers = {"first": fake("--resources", json.dumps(uris)), "up": fake("--lists", str(file), lazy=True)}
    await first_run(tmp_path, servers)
    cached = {path: path.read_bytes() for path in (tmp_path / "cache").glob("*.json")}
    file.write_text(json.dumps({"resources": resources, "prompts": [{"name": "late"}]}))
    requests = {"prompts/get": {"name": "up__late"}, "resources/read": {"uri": expose_uri("up", uris[1])}}
    for method, params in requests.items():
        async with hub(tmp_path, servers) as client:
            assert await client.request(method, params)
        for path, data in cached.items():
            path.write_bytes(data)


async def test_a_name_that_a_profile_hides_starts_no_server(tmp_path: Path) -> None:
    record = tmp_path / "record"
    servers = {"up": fake("--record", str(record), lazy=True), "open": fake()}
    await first_run(tmp_path, servers)
    before = started(record)
    profiles = {"narrow": {"tools": ["open/*"]}}
    listen = {"principals": {"alice": {"token": TOKENS["alice"], "profile": "narrow"}}}
    async with (
        network_hub(tmp_path, servers, listen, profiles=profiles) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
    ):
        answer = await alice.call("up__late")
        assert answer["error"]["code"] == -32602
        assert started(record) == before


async def test_the_cached_catalog_of_a_disabled_server_is_not_listed(tmp_path: Path) -> None:
    await first_run(tmp_path, {"up": fake()})
    async with hub(tmp_path, {"up": fake(enabled=False)}) as client:
        assert await client.tool_names() == []
        with pytest.raises(RpcError):
            await client.call("up__echo")


async def test_no_cached_catalog_contains_a_secret(tmp_path: Path) -> None:
    await first_run(tmp_path, {"up": fake(env={"KEY": "canary-secret-value"})})
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(files) == 3  # the key, the catalog for this client, and that for others
    assert not any(b"canary-secret-value" in path.read_bytes() for path in files)
    assert any(len(json.loads(path.read_bytes())["lists"]["tools"]) == 15 for path in files if path.suffix == ".json")


async def test_a_server_without_keep_catalog_is_awaited_at_every_start(tmp_path: Path) -> None:
    flag = tmp_path / "more"
    servers = {"up": fake("--more-if", str(flag), keep_catalog=False)}
    names = await first_run(tmp_path, servers)
    assert not (tmp_path / "cache").exists()
    flag.touch()
    async with hub(tmp_path, servers) as client:
        assert await client.tool_names() == [*names, "up__late"]
        assert client.notifications == []


@pytest.mark.parametrize("modern", [False, True])
async def test_every_kind_is_cached_in_either_era(tmp_path: Path, modern: bool) -> None:
    flag = tmp_path / "hang"
    servers = {"up": fake("--hang-if", str(flag), "--era", "modern" if modern else "handshake")}
    kinds = [kind for kind in KINDS if kind.extension is None]
    methods = [kind.list_method for kind in kinds]

    async def all_lists() -> list[Any]:
        async with hub(tmp_path, servers, modern=modern) as client:
            return [await client.request(method) for method in methods]

    before = await all_lists()
    flag.touch()
    assert await all_lists() == before
    assert all(result[kind.result_key] for kind, result in zip(kinds, before, strict=True))


async def test_a_damaged_cached_catalog_is_ignored(tmp_path: Path) -> None:
    servers = {"up": fake()}
    names = await first_run(tmp_path, servers)
    for path in (tmp_path / "cache").glob("*.json"):
        path.write_bytes(path.read_bytes()[:-20])
    assert await first_run(tmp_path, servers) == names
    assert all(json.loads(path.read_bytes()) for path in (tmp_path / "cache").glob("*.json"))


async def test_the_catalog_refresh_does_not_start_lazy_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.hub.REFRESH_AFTER", 0.0)
    servers = {"lazy": fake(lazy=True), "eager": fake()}
    await first_run(tmp_path, servers)
    config = read_config(tmp_path / "servers.json").config
    async with Engine(config, kept=CatalogCache(tmp_path / "cache")) as second, asyncio.timeout(PATIENCE):
        lazy, eager = second.upstreams["lazy"], second.upstreams["eager"]
        assert lazy.settled.is_set()
        await eager.attempted.wait()
        assert (lazy.state, eager.state) == (UpstreamState.IDLE, UpstreamState.READY)
        call = Call(TOOLS.act_method, "lazy__echo", await second.route(TOOLS, "lazy__echo", "handshake"),
                    {"name": "echo", "arguments": {"text": "x"}}, "handshake", Envelope())  # fmt: skip
        assert (await second.act(call))["content"][0]["text"] == "x"
        assert lazy.state is UpstreamState.READY
