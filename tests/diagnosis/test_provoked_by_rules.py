"""Rules with a misspelt name, argument or key: they would refuse nothing, so nobody may overlook them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from tests.diagnosis.looking import configured, reported_codes, said
from tests.fakes.client import HUB, fake, spawned, write_config

pytestmark = pytest.mark.anyio


def unmatched(config: Path) -> list[tuple[str, str, str | None]]:
    """Returns (key, name, hint) of the names that `check` found to match nothing, which must be an error."""
    done = said("check", "--json", "--config", str(config))
    names = [(row["key"], row["name"], row["hint"]) for row in json.loads(done.out)["unmatched"]]
    assert done.code == (1 if names else 0)
    return names


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"disable_tools": ["ech", "add"]}, ("servers.up.disable_tools", "ech", "echo")),
        ({"disable_tools": ["delete_*"]}, ("servers.up.disable_tools", "delete_*", None)),
        ({"enable_tools": ["echo", "ad"]}, ("servers.up.enable_tools", "ad", "add")),
        ({"excludeTools": ["ech"]}, ("servers.up.disable_tools", "ech", "echo")),
        ({"exclude_tags": ["writes"]}, ("servers.up.exclude_tags", "writes", None)),
        ({"disable_prompts": ["nothing"]}, ("servers.up.disable_prompts", "nothing", None)),
        ({"disable_resources": ["other://x"]}, ("servers.up.disable_resources", "other://x", None)),
        ({"preset": {"ecoh": {"text": "x"}}}, ("servers.up.preset", "ecoh", "echo")),
        ({"preset": {"echo": {"txet": "x"}}}, ("servers.up.preset.echo", "txet", "text")),
        ({"tools": {"echo": {"preset": {"texts": "x"}}}}, ("servers.up.preset.echo", "texts", "text")),
        ({"tools": {"ecoh": {"timeout": "5s"}}}, ("servers.up.tools", "ecoh", "echo")),
        ({"tools": {"ecoh": {"enabled": False}}}, ("servers.up.disable_tools", "ecoh", "echo")),
        ({"labels": {"reads_private": ["ech"]}}, ("servers.up.labels.reads_private", "ech", "echo")),
        ({"retry": {"tools": ["ech"]}}, ("servers.up.retry.tools", "ech", "echo")),
        ({"confirm": ["ech"]}, ("servers.up.confirm", "ech", "echo")),
    ],
)
def test_a_name_in_a_rule_of_an_entry_that_matches_nothing_is_an_error(
    tmp_path: Path, entry: dict[str, Any], found: tuple[str, str, str | None]
) -> None:
    config = configured(tmp_path, {"up": fake(**entry), "other": fake(enabled=False)})
    assert unmatched(config) == [found]
    assert codes.MEMBER_UNKNOWN in reported_codes(config)


@pytest.mark.parametrize(
    ("root", "found"),
    [
        ({"blacklist": [["up", "ech"]]}, ("blacklist", "ech", "echo")),
        ({"blacklist": ["up/ech"]}, ("blacklist", "ech", "echo")),
        ({"blacklist": ["ech"]}, ("blacklist", "ech", "echo")),
        ({"blacklist": [["u?", "file://*"]]}, ("blacklist", "file://*", None)),
        ({"profiles": {"p": {"tags": ["none"]}}}, ("profiles.p.tags", "none", None)),
        ({"defaults": {"retry": {"tools": ["ech"]}}}, ("defaults.retry.tools", "ech", "echo")),
        ({"confirm": ["up/ech"]}, ("confirm", "up/ech", "up/echo")),
        ({"guard": {"filter_results": ["up__ech"]}}, ("guard.filter_results", "up__ech", "up__echo")),
    ],
)
def test_a_name_in_a_rule_of_the_root_that_matches_nothing_is_an_error(
    tmp_path: Path, root: dict[str, Any], found: tuple[str, str, str | None]
) -> None:
    config = configured(tmp_path, {"up": fake(), "two": fake(enabled=False)}, **root)
    assert unmatched(config) == [found]


def test_rules_that_match_something_are_no_findings(tmp_path: Path) -> None:
    entry = fake(
        tags=["own"],
        exclude_tags=["own"],
        enable_tools=["*"],
        disable_prompts=["gr*"],
        labels=["reads_private"],
        tools={
            "e*": {"preset": {"text": "x"}, "extend_schema": {"properties": {"more": {"type": "string"}}}},
            "echo": {"preset": {"more": "x"}},
        },
    )
    root: dict[str, Any] = {"defaults": {"retry": {"tools": ["echo"]}}, "blacklist": ["up/ad?", ["*", "echo"]]}
    config = configured(tmp_path, {"up": entry, "two": fake()}, **root)
    assert unmatched(config) == []


def test_rules_about_a_server_that_is_off_or_gone_are_not_judged(tmp_path: Path) -> None:
    gone = {"command": "false", "disable_tools": ["anything"], "preset": {"any": {"thing": 1}}}
    servers = {"up": fake(), "off": fake(enabled=False, disable_tools=["anything"]), "gone": gone}
    config = configured(tmp_path, servers, confirm=["off/x", "gone/x", "somewhere"], blacklist=[["gone", "x"]])
    assert unmatched(config) == []


ISSUER = {"issuer": "https://i.example", "audience": "hub", "jwks_uri": "https://i.example/keys"}


@pytest.mark.parametrize(
    ("root", "entry"),
    [
        ({"blaklist": ["up/echo"]}, {}),
        ({"Blacklist": ["up/echo"]}, {}),
        ({"confrim": ["destructive"]}, {}),
        ({"flow": {"mode": "refuse"}}, {}),
        ({"guard": {"deny_url": ["example.com"]}}, {}),
        ({"profile": {"p": ["up/echo"]}}, {}),
        ({"profiles": {"p": {"tools": ["*"], "confrim": ["echo"]}}}, {}),
        ({"listen": {"tokn": "0" * 32}}, {}),
        ({"listen": {"principals": {"ann": {"token": "0" * 32, "profil": "p"}}}}, {}),
        ({"defaults": {"rety": 1}}, {}),
        ({}, {"tools": {"echo": {"presset": {"text": "x"}}}}),
        ({}, {"retry": {"tool": ["echo"]}}),
        ({}, {"limits": {"per_callr": 1}}),
        ({"fallback": {"tols": []}}, {}),
        ({"call_log": {"argument": False}}, {}),
        ({"listen": {"tls": {"cert": "a", "key": "b", "client_caa": "c"}}}, {}),
        ({"listen": {"verify": {"jwt": ISSUER, "profle": "p"}}}, {}),
        ({"disable_tools": ["up/echo"]}, {}),
        ({"denylist": ["up/echo"]}, {}),
        ({"whitelist": ["up/add"]}, {}),
        ({"deny_urls": ["example.org"]}, {}),
        ({}, {"tools": {"echo": {"confirm": True}}}),
    ],
)
def test_a_misspelt_key_of_a_rule_is_an_error(tmp_path: Path, root: dict[str, Any], entry: dict[str, Any]) -> None:
    config = configured(tmp_path, {"up": fake(**entry)}, **root)
    done = said("serve", "--config", str(config))
    assert (done.code, done.codes) == (2, {codes.KEY_UNKNOWN})


@pytest.mark.parametrize(
    "entry",
    [
        {"disable_tool": ["echo"]},
        {"disabled-tools": ["echo"]},
        {"lables": ["reads_private"]},
        {"prest": {"echo": {"text": "x"}}},
        {"command": None, "builtin": "files", "roots": {"/workspace/": {"path": ".", "mdoe": "ro"}}},
        {"denied_tools": ["echo"]},
        {"whitelist": ["add"]},
        {"guard": {"deny_urls": ["example.org"]}},
    ],
)
def test_a_misspelt_rule_of_an_entry_switches_its_server_off(tmp_path: Path, entry: dict[str, Any]) -> None:
    config = configured(tmp_path, {"up": fake(**entry), "other": fake()})
    done = said("check", "--json", "--config", str(config))
    (up, other) = json.loads(done.out)["servers"]
    assert (up["state"], up["code"], other["exposed_tools"] > 0) == ("disabled", codes.KEY_UNKNOWN, True)


def test_a_misspelt_key_of_no_rule_is_a_warning(tmp_path: Path) -> None:
    config = configured(tmp_path, {"up": fake(requird=True)}, expose_budgt=5)
    done = said("check", "--config", str(config))
    assert (done.code, done.codes) == (0, {codes.KEY_UNKNOWN})


@pytest.mark.parametrize("switch", [{"enabled": False}, {"disabled": True}])
def test_a_tool_that_its_rules_switch_off_is_not_listed(tmp_path: Path, switch: dict[str, Any]) -> None:
    config = configured(tmp_path, {"up": fake(tools={"echo": switch})})
    done = said("call", "--config", str(config), "up__echo", "text=x")
    assert done.code == 2


def test_a_blacklist_with_a_misspelt_server_names_the_nearest(tmp_path: Path) -> None:
    config = configured(tmp_path, {"notes": fake()}, blacklist=["note/echo"])
    done = said("check", "--strict", "--config", str(config))
    assert (done.code, "'notes'" in done.out + done.err) == (1, True)


async def test_serve_warns_of_names_in_rules_that_match_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake(disable_tools=["ad"])}, confirm=["up/ech"])
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        warnings = [b"servers.up.disable_tools: no server has ad", b"confirm: no server has up/ech"]
        await client.until(lambda: all(warning in client.stderr for warning in warnings))


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(
    ("root", "entry"),
    [({"something_unknown": 1}, {}), ({}, {"disable_tools": ["ad"]}), ({}, {"preset": {"echo": {"txt": 1}}})],
)
async def test_strict_serve_serves_nobody_beside_a_warning(
    tmp_path: Path, root: dict[str, Any], entry: dict[str, Any], network: bool
) -> None:
    config = write_config(tmp_path, {"up": fake(**entry)}, **root)
    options = ["--http", "--port", "0"] if network else []
    async with spawned([*HUB, "serve", "--strict", *options, "--config", str(config)]) as client:
        assert await client.exited() == 2
        assert b"listening" not in client.stderr


async def test_strict_serve_ends_when_a_server_that_comes_later_lacks_what_a_rule_names(tmp_path: Path) -> None:
    late = tmp_path / "late"
    late.touch()
    entry = fake("--die-if", str(late), disable_tools=["ad"])
    config = write_config(tmp_path, {"up": fake(), "late": entry})
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:
        await client.initialize()
        assert "up__echo" in await client.tool_names()
        late.unlink()
        assert await client.exited() == 1


async def test_strict_serve_without_a_warning_serves(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake(disable_tools=["add"])})
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:
        await client.initialize()
        assert "up__echo" in await client.tool_names()


async def test_a_strict_hub_refuses_a_reload_that_has_a_warning(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:
        await client.initialize()
        assert "up__echo" in await client.tool_names()
        write_config(tmp_path, {"up": fake(namespace="other")}, something_unknown=1)
        await client.until(lambda: b"was not loaded again" in client.stderr)
        assert "up__echo" in await client.tool_names()


@pytest.mark.parametrize(
    ("entry", "root"),
    [
        ({"disable_tools": ["ech"]}, {}),  # the process of the server stays
        ({"disable_tools": ["ech"], "env": {"OTHER": "1"}}, {}),
        ({"disable_tools": ["ech"], "env": {"OTHER": "1"}, "lazy": True}, {}),
        ({"namespace": "other"}, {"confirm": ["up__echo"]}),
    ],
)
async def test_a_strict_hub_refuses_a_reload_whose_rules_name_what_no_server_has(
    tmp_path: Path, entry: dict[str, Any], root: dict[str, Any]
) -> None:
    config = write_config(tmp_path, {"up": fake()})
    async with spawned([*HUB, "serve", "--strict", "--config", str(config)]) as client:
        await client.initialize()
        assert "up__echo" in await client.tool_names()
        write_config(tmp_path, {"up": fake(**entry)}, **root)
        await client.until(lambda: b"was not loaded again" in client.stderr)
        assert codes.MEMBER_UNKNOWN.encode() in client.stderr
        assert "up__echo" in await client.tool_names()
        write_config(tmp_path, {"up": fake(disable_tools=["echo"])})
        await client.until(lambda: b"servers.json again" in client.stderr.replace(b"was not loaded again", b""))
        assert "up__echo" not in await client.tool_names()


def test_strict_check_fails_on_each_warning(tmp_path: Path) -> None:
    fine = configured(tmp_path, {"up": fake()})
    assert said("check", "--strict", "--config", str(fine)).code == 0
    warned = configured(tmp_path, {"up": fake()}, something_unknown=1)
    assert said("check", "--config", str(warned)).code == 0
    assert said("check", "--strict", "--config", str(warned)).code == 1
    advised = configured(tmp_path, {"up": fake(env={"API_TOKEN": "sk-0123456789abcdef0123456789"})})
    assert said("check", "--config", str(advised)).code == 0
    assert said("check", "--strict", "--config", str(advised)).code == 1
