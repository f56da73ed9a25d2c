"""Nothing unresolved is ever sent: in every dialect, in every form of placeholder, in every text of an entry."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.config import Server
from mcp_hub.hub.composition import read_config

Json = dict[str, Any]
NAME: Final = "MCP_HUB_UNSET_SECRET"

EVERYWHERE: Final = (
    "${%s}", "${env:%s}", "{env:%s}", "${file:/nowhere/%s}", "${keyring:nobody/%s}", "${{ secrets.%s }}",
    "${{inputs.%s}}", "${input:%s}", "${cmd:%s}", "${command:%s}", "${config:%s}", "${env.%s}", "${%s:?}", "${%s",
    "${env://%s}", "${ %s }",
)  # fmt: skip
"""Forms that mean a placeholder in some host, and so are never a text of their own."""


def entry_of(**keys: str) -> Callable[[str, str, bool], Json]:
    """Returns what makes an entry with a text in one of its places, in the words of a host."""

    def made(place: str, text: str, remote: bool) -> Json:
        entry: Json = {keys["url"]: "https://x.example/mcp"} if remote else {keys["command"]: "x"}
        if "type" in keys:
            entry["type"] = keys["type"].split()[remote]
        name = keys.get(place, place)
        if place in ("env", "headers"):
            return {**entry, name: {"A_NAME": text}}
        return {**entry, name: [text] if place == "args" else f"https://{text}/mcp" if place == "url" else text}

    return made


_USUAL = entry_of(command="command", url="url")
_DIALECTS: Final[dict[str, tuple[str, Callable[[Json], Json], Callable[[str, str, bool], Json], tuple[str, ...]]]] = {
    "ours": ("servers.json", lambda one: {"servers": {"it": one}}, _USUAL, ()),
    "claude": ("claude_desktop_config.json", lambda one: {"mcpServers": {"it": one}}, _USUAL, ()),
    "project": (".claude.json", lambda one: {"projects": {str(Path.cwd()): {"mcpServers": {"it": one}}}}, _USUAL, ()),
    "vscode": (".vscode/mcp.json", lambda one: {"inputs": [], "servers": {"it": one}}, _USUAL, ()),
    "windsurf": (
        "mcp_config.json",
        lambda one: {"mcpServers": {"it": one}},
        entry_of(command="command", url="serverUrl"),
        (),
    ),
    "codex": (
        "config.json",
        lambda one: {"mcp_servers": {"it": one}},
        entry_of(command="command", url="url", headers="http_headers"),
        ("os.environ/%s",),
    ),
    "gemini": (".gemini/settings.json", lambda one: {"mcpServers": {"it": one}}, _USUAL, ("$%s",)),
    "opencode": (
        "opencode.json",
        lambda one: {"mcp": {"it": one}},
        entry_of(command="command", url="url", env="environment"),
        ("{file:/nowhere/%s}",),
    ),
    "zed": ("settings.json", lambda one: {"context_servers": {"it": one}}, _USUAL, ()),
    "goose": (
        "config.json",
        lambda one: {"extensions": {"it": one}},
        entry_of(command="cmd", url="uri", env="envs", type="stdio streamable_http"),
        (),
    ),
    "amp": ("settings.json", lambda one: {"amp.mcpServers": {"it": one}}, _USUAL, ()),
    "continue": ("config.json", lambda one: {"mcpServers": [{"name": "it", **one}]}, _USUAL, ()),
    "copilot": (".copilot/mcp-config.json", lambda one: {"mcpServers": {"it": {"tools": ["*"], **one}}}, _USUAL, ()),
    "kiro": (".kiro/settings/mcp.json", lambda one: {"mcpServers": {"it": {"disabled": False, **one}}}, _USUAL, ()),
}
_PLACES: Final = {False: ("command", "args", "env", "cwd"), True: ("url", "headers")}


def sent(server: Server) -> str:
    """All that the server would be started or asked with, as one text."""
    secrets = [secret.get_secret_value() for secret in (*server.env.values(), *server.headers.values())]
    return "\n".join(map(str, (server.command, *server.args, server.cwd, server.url, *secrets)))


def only(name: str, tree: Json) -> Server:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tree))
        path.chmod(0o600)
        (server,) = read_config(path, {}, Path(directory)).config.servers
        return server


@pytest.mark.parametrize("dialect", _DIALECTS)
@given(data=st.data())
def test_an_entry_with_an_unfilled_placeholder_is_disabled(dialect: str, data: st.DataObject) -> None:
    name, tree, entry, own = _DIALECTS[dialect]
    remote = data.draw(st.booleans())
    place = data.draw(st.sampled_from(_PLACES[remote]))
    form = data.draw(st.sampled_from((*EVERYWHERE, *own)))
    whole = form.startswith("os.environ")  # which LiteLLM has as a whole text only
    place = "headers" if whole and place == "url" else place
    around = st.just("") if whole or place == "url" else st.sampled_from(("", "Bearer ", "--key=", "a b "))
    text = data.draw(around) + form % NAME
    server = only(name, tree(entry(place, text, remote)))
    assert not server.enabled, sent(server)
    assert server.disabled_reason


@pytest.mark.parametrize("dialect", _DIALECTS)
def test_an_entry_without_a_placeholder_is_enabled(dialect: str) -> None:
    name, tree, entry, _ = _DIALECTS[dialect]
    for remote, places in _PLACES.items():
        for place in places:
            server = only(name, tree(entry(place, "plain.example", remote)))
            assert server.enabled, (place, server.disabled_reason)
            assert "plain.example" in sent(server)


@pytest.mark.parametrize("header", ["$%s", "Bearer $%s", "${%s}", "a$%s-b"])
def test_a_goose_entry_whose_header_lacks_its_secret_is_disabled(header: str) -> None:
    entry = {"type": "streamable_http", "uri": "https://x.example/mcp", "headers": {"A": header % NAME}}
    assert not only("config.json", {"extensions": {"it": entry}}).enabled


@pytest.mark.parametrize("value", ["${HOME}", "plain"])
def test_a_header_of_goose_takes_its_value_from_the_entrys_environment(tmp_path: Path, value: str) -> None:
    entry = {"type": "streamable_http", "uri": "https://x.example/mcp", "headers": {"A": "$K"}, "envs": {"K": value}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"extensions": {"it": entry}}))
    path.chmod(0o600)
    (server,) = read_config(path, {"HOME": "/home/of"}, tmp_path).config.servers
    assert server.headers["A"].get_secret_value() == value.replace("${HOME}", "/home/of")


@pytest.mark.parametrize(
    ("root", "entry"),
    [
        ("extensions", {"type": "stdio", "cmd": "x", "env_keys": [NAME]}),
        ("extensions", {"type": "streamable_http", "uri": "https://x.example/mcp", "env_keys": [NAME]}),
        ("mcp_servers", {"url": "https://x.example/mcp", "bearer_token_env_var": NAME}),
        ("mcp_servers", {"url": "https://x.example/mcp", "env_http_headers": {"A": NAME}}),
    ],
)
def test_a_goose_entry_with_a_missing_named_secret_is_disabled(root: str, entry: Json) -> None:
    server = only("config.json", {root: {"it": entry}})
    assert (server.enabled, NAME in (server.disabled_reason or "")) == (False, True)


def test_a_file_in_the_servers_folder_uses_the_placeholders_of_its_dialect(tmp_path: Path) -> None:
    (tmp_path / "tools" / "mcp").mkdir(parents=True)
    inner = {"mcpServers": {"it": {"httpUrl": "https://x.example/mcp", "headers": {"A": f"${NAME}"}}}}
    for path, tree in ((tmp_path / "servers.json", {"servers": {}}), (tmp_path / "tools/mcp/gemini.json", inner)):
        path.write_text(json.dumps(tree))
        path.chmod(0o600)
    (server,) = read_config(tmp_path / "servers.json", {}, tmp_path).config.servers
    assert (server.id, server.enabled) == ("it", False)
