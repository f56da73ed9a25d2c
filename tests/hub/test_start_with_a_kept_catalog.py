"""From the second start on the list is complete at once, from what was kept of each upstream."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import RpcError, fake, hub

pytestmark = pytest.mark.anyio


def started(record: Path) -> int:
    """How often the recording upstream was connected to."""
    return record.read_text().count('"method":"server/discover"') + record.read_text().count('"method":"initialize"')


async def first_run(directory: Path, servers: dict[str, Any]) -> list[str]:
    async with hub(directory, servers) as client:
        return await client.tool_names()


async def test_the_second_start_lists_everything_although_the_upstream_hangs(tmp_path: Path) -> None:
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


async def test_the_upstream_is_refreshed_by_itself_after_a_moment(tmp_path: Path) -> None:
    flag = tmp_path / "more"
    servers = {"up": fake("--more-if", str(flag))}
    await first_run(tmp_path, servers)
    flag.touch()
    async with hub(tmp_path, servers) as client:
        assert "up__late" not in await client.tool_names()
        await client.notified("notifications/tools/list_changed")
        assert "up__late" in await client.tool_names()


async def test_what_was_kept_of_a_disabled_server_is_not_listed(tmp_path: Path) -> None:
    await first_run(tmp_path, {"up": fake()})
    async with hub(tmp_path, {"up": fake(enabled=False)}) as client:
        assert await client.tool_names() == []
        with pytest.raises(RpcError):
            await client.call("up__echo")


async def test_nothing_kept_holds_a_secret(tmp_path: Path) -> None:
    await first_run(tmp_path, {"up": fake(env={"KEY": "canary-secret-value"})})
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(files) == 2
    assert not any(b"canary-secret-value" in path.read_bytes() for path in files)
    assert any(len(json.loads(path.read_bytes())["lists"]["tools"]) == 15 for path in files if path.suffix == ".json")
