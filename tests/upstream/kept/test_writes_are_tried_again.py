"""A failed write is repeated with the newest state as soon as the disk works again, or when the hub ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.security.private_files import PendingWrites
from tests.fakes.client import PATIENCE, StdioClient, fake, hub
from tests.hub.groups.hearing import GROUPS, RESET
from tests.oauth.authority import authority
from tests.oauth.signing import configured, kept_files, login
from tests.oauth.test_login import entry
from tests.oauth.test_renewing import serving

pytestmark = pytest.mark.anyio

SERVERS = {"a": fake("--name", "a"), "b": fake("--name", "b")}


async def until(condition: Callable[[], object]) -> None:
    """Polls a condition that no event reports, such as a file that another process writes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


async def logged(client: StdioClient, text: bytes) -> None:
    await client.until(lambda: text in client.stderr)


def groups_root(directory: Path) -> tuple[Path, dict[str, Any]]:
    return directory / "own", {"groups": GROUPS, "group_scope": "hub", "state_file": str(directory / "own" / "s.json")}


def state(directory: Path) -> dict[str, bool]:
    return json.loads((directory / "s.json").read_text())["groups"]  # type: ignore[no-any-return]


async def test_the_newest_state_of_groups_is_written_once_the_disk_works_again(tmp_path: Path) -> None:
    groups_path, root = groups_root(tmp_path)
    groups_path.write_text("a file where the directory should be")
    async with hub(tmp_path, SERVERS, **root) as client:
        await client.call(RESET, {"sums": True})
        await logged(client, b"writing state_file")
        await client.call(RESET, {"sums": True, "texts": True})
        await client.call(RESET, {"texts": True})
        groups_path.unlink()
        await logged(client, b"writing state_file s.json works again")
        assert state(groups_path)["texts"]
        assert not state(groups_path)["sums"]
        groups_path.rename(tmp_path / "away")
        groups_path.write_text("again")
        await client.call(RESET, {"sums": True})
        await client.until(lambda: client.stderr.count(b"writing state_file s.json failed") == 2)
        groups_path.unlink()
        await client.until(lambda: client.stderr.count(b"writing state_file s.json works again") == 2)
        assert state(groups_path)["sums"]
    assert client.stderr.count(b"writing state_file") == 4


async def test_pending_writes_are_written_when_the_hub_ends(tmp_path: Path) -> None:
    groups_path, root = groups_root(tmp_path)
    groups_path.write_text("")
    async with hub(tmp_path, SERVERS, **root) as client:
        await client.call(RESET, {"sums": True})
        await logged(client, b"writing state_file")
        groups_path.unlink()
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await client.exited() == 0
        assert state(groups_path)["sums"]


async def test_a_hub_with_a_failing_disk_still_exits_and_reports_lost_data(tmp_path: Path) -> None:
    groups_path, root = groups_root(tmp_path)
    groups_path.write_text("")
    async with hub(tmp_path, SERVERS, **root) as client:
        await client.call(RESET, {"sums": True})
        await logged(client, b"writing state_file")
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await client.exited() == 0
    assert b"the newest state is lost" in client.stderr


async def test_catalogs_are_cached_once_the_disk_works_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("")
    async with hub(tmp_path, SERVERS, cache_dir=str(cache)) as client:
        await client.request("tools/list")
        await logged(client, b"keeping the catalog of a failed")
        await logged(client, b"keeping the catalog of b failed")
        cache.unlink()
        await until(lambda: len(list(cache.glob("*.json"))) == 4)
        await logged(client, b"keeping the catalog of a works again")
        await logged(client, b"keeping the catalog of b works again")
    assert client.stderr.count(b"keeping the catalog of a failed") == 1


async def test_renewed_tokens_are_stored_once_the_disk_works_again(tmp_path: Path) -> None:
    async with authority() as server:
        server.provider.life = 0
        config = configured(tmp_path, {"a": entry(server)})
        await login(config)
        server.provider.life = 3600
        (token_file,) = kept_files(tmp_path)
        before = token_file.read_bytes()
        # The directory is open to other users: the hub reads it and does not write to it.
        token_file.parent.chmod(0o755)
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            await logged(client, b"keeping the tokens of a in")
            assert token_file.read_bytes() == before
            await client.text("a__effect", {"word": "second"})
            token_file.parent.chmod(0o700)
            await until(lambda: token_file.read_bytes() != before)
            await client.text("a__effect", {"word": "third"})
        assert server.asked["token refresh_token"] == 1
        async with serving(config) as client:  # the previous refresh token was used up
            await client.text("a__effect", {"word": "fourth"})
        assert server.asked["token refresh_token"] == 1


async def test_a_newer_sign_in_of_another_process_is_not_overwritten_by_a_pending_write(tmp_path: Path) -> None:
    async with authority() as server:
        server.provider.life = 0
        config = configured(tmp_path, {"a": entry(server)})
        await login(config)
        server.provider.life = 3600
        (token_file,) = kept_files(tmp_path)
        token_file.parent.chmod(0o755)
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            await logged(client, b"keeping the tokens of a in")
            newer = json.loads(token_file.read_bytes()) | {"sentinel": "of another process"}
            fresh = token_file.with_suffix(".new")
            fresh.write_text(json.dumps(newer))
            fresh.chmod(0o600)
            fresh.replace(token_file)
            token_file.parent.chmod(0o700)
            await logged(client, b"works again")
            assert json.loads(token_file.read_bytes()) == newer


async def test_the_status_socket_is_opened_once_its_directory_is_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "run"
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(directory))
    directory.write_text("")
    async with hub(tmp_path, SERVERS) as client:
        await logged(client, b"finds this hub failed")
        directory.unlink()
        await until(lambda: list(directory.glob("*.sock")))
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await client.exited() == 0
        assert not list(directory.iterdir())


async def test_recording_resumes_with_a_count_of_missing_records(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.write_text("")
    async with hub(tmp_path, SERVERS, call_log={"file": str(directory / "calls.jsonl")}) as client:
        await client.call("a__echo", {"text": "lost"})
        await logged(client, b"cannot be written")
        directory.unlink()
        await client.call("a__echo", {"text": "kept"})
        await logged(client, b"is written again")
    events = [json.loads(line)["event"] for line in (directory / "calls.jsonl").read_text().splitlines()]
    assert events == ["dropped", "call"]


class Disk:
    """A disk that accepts every write, or none."""

    def __init__(self) -> None:
        self.full = True
        self.tries = 0
        self.has: dict[str, int] = {}

    def writing(self, name: str, number: int) -> Callable[[], Any]:
        async def write() -> None:
            self.tries += 1
            if self.full:
                raise OSError(28, "No space left on device")
            self.has[name] = number

        return write


async def test_only_the_newest_of_many_pending_states_is_written() -> None:
    disk, writes = Disk(), PendingWrites()
    for number in range(1000):
        writes.put("writing x", disk.writing("x", number))
        writes.put("writing y", disk.writing("y", -number))
    await until(lambda: disk.tries >= 2)
    assert disk.tries < 20
    disk.full = False
    await writes.close()
    assert disk.has == {"x": 999, "y": -999}
    assert "writing x" not in writes


async def test_a_state_saved_during_an_older_write_is_written_afterwards() -> None:
    writes, write_started, go = PendingWrites(), asyncio.Event(), asyncio.Event()
    order = []

    async def older() -> None:
        write_started.set()
        await go.wait()
        order.append("older")

    async def newer() -> None:
        order.append("newer")

    writes.put("x", older)
    async with asyncio.timeout(PATIENCE):
        await write_started.wait()
        writes.put("x", newer)
        go.set()
        await writes.close()
    assert order == ["older", "newer"]
