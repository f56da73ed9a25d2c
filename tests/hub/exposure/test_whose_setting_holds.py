"""`expose` at the root, of a profile, of a principal and on the command line, and what holds where they differ."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.downstream.network.visitor import ERAS, TOKENS, network_hub, visiting
from tests.fakes.client import HUB, StdioClient, fake, spawned, write_config
from tests.hub.exposure.listing import META, chatting, many, names

pytestmark = pytest.mark.anyio

FEW, LARGE = 5, 150
PROFILES = {"work": {"tools": ["a/*"], "expose": "search"}, "plain": ["a/*"]}
PRINCIPALS = {
    "alice": {"token": TOKENS["alice"], "expose": "all"},
    "bob": {"token": TOKENS["bob"], "profile": "work"},
    "carol": {"token": TOKENS["carol"], "profile": "work", "expose": "all"},
    "dora": {"token": TOKENS["dora"], "profile": "plain"},
}


@pytest.mark.parametrize("era", ERAS)
async def test_expose_of_a_principal_overrides_its_profile_which_overrides_the_root(tmp_path: Path, era: str) -> None:
    servers, listen = {"a": many(tmp_path, FEW)}, {"principals": PRINCIPALS}
    async with network_hub(tmp_path, servers, listen, profiles=PROFILES, expose="search") as (_, base):
        for principal, count in {"alice": FEW, "bob": len(META), "carol": FEW, "dora": len(META)}.items():
            async with visiting(base, era, TOKENS[principal]) as visitor:
                assert len(await visitor.names("tools/list")) == count


@pytest.mark.parametrize("era", ERAS)
async def test_with_root_expose_all_only_principals_with_another_setting_get_a_short_list(
    tmp_path: Path, era: str
) -> None:
    servers, listen = {"a": many(tmp_path, LARGE, 150)}, {"principals": PRINCIPALS}
    async with network_hub(tmp_path, servers, listen, profiles=PROFILES, expose="all") as (_, base):
        for principal, count in {"alice": LARGE, "bob": len(META), "carol": LARGE, "dora": LARGE}.items():
            async with visiting(base, era, TOKENS[principal]) as visitor:
                assert len(await visitor.names("tools/list")) == count


async def served(config: Path, *options: str) -> list[str]:
    async with spawned([*HUB, "serve", "--config", str(config), *options], modern=True) as client:
        return await names(client)


async def test_expose_of_the_served_profile_overrides_the_root(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": many(tmp_path, FEW)}, profiles=PROFILES, expose="all")
    assert await served(config, "--profile", "work") == META
    assert len(await served(config, "--profile", "plain")) == FEW


async def test_expose_on_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": many(tmp_path, FEW)}, profiles=PROFILES, expose="all")
    assert await served(config, "--expose", "search") == META
    assert len(await served(config, "--expose", "all", "--profile", "work")) == FEW
    assert len(await served(config, "--expose", "auto")) == FEW


async def change(client: StdioClient, config: Path, **root: object) -> None:
    """Writes other settings, and waits until the client has been told of another list."""
    count = len([message for message in client.notifications if message["method"].endswith("tools/list_changed")])
    config.write_text(json.dumps({**json.loads(config.read_text()), **root}))
    await client.notified("notifications/tools/list_changed", count + 1)


async def test_a_changed_expose_setting_changes_the_lists_and_notifies_clients(tmp_path: Path) -> None:
    async with chatting(tmp_path, {"a": many(tmp_path, FEW), "b": fake()}, expose="all") as client:
        full_list = await names(client)
        assert len(full_list) > FEW
        config = tmp_path / "servers.json"
        await change(client, config, expose="search")
        assert await names(client) == META
        assert await client.text("b__echo", {"text": "still there"}) == "still there"
        await change(client, config, expose="auto")
        assert await names(client) == full_list
        await change(client, config, expose_budget=10)
        assert await names(client) == META


async def test_a_file_with_the_removed_key_expose_recent_starts_and_is_told_what_to_write(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": fake()}, expose_recent=3, expose="search")
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        assert await names(client) == META
    assert re.search(r"expose_recent: .*expose_always", client.stderr.decode())
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:
        assert await client.exited() == 2


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ({"expose": "some"}, "expose"),
        ({"expose": True}, "expose"),
        ({"expose_budget": 0}, "expose_budget"),
        ({"expose_budget": "large"}, "expose_budget"),
        ({"expose_always": {"a": 1}}, "expose_always"),
        ({"profiles": {"p": {"tools": ["a/*"], "expose": "some"}}}, "profiles.p.expose"),
        ({"listen": {"principals": {"p": {"token": TOKENS["bob"], "expose": 5}}}}, "listen.principals.p.expose"),
    ],
)
async def test_an_invalid_expose_setting_is_refused_with_its_place(
    tmp_path: Path, root: dict[str, object], said: str
) -> None:
    config = write_config(tmp_path, {"a": fake()}, **root)
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        assert await client.exited() == 2
    assert said in client.stderr.decode()
