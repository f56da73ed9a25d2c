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
    """Returns a function that makes an entry with a text in one of its fields, with the key names of a host."""

    def make_entry(field: str, text: str, remote: bool) -> Json:
        entry: Json = {keys["url"]: "https://x.example/mcp"} if remote else {keys["command"]: "x"}
        if "type" in keys:
            entry["type"] = keys["type"].split()[remote]
        name = keys.get(field, field)
        if field in ("env", "headers"):
            return {**entry, name: {"A_NAME": text}}
        return {**entry, name: [text] if field == "args" else f"https://{text}/mcp" if field == "url" else text}

    return make_entry


_USUAL = entry_of(command="command", url="url")
_DIALECTS: Final[dict[str, tuple[str, Callable[[Json], Json], Callable[[str, str, bool], Json], tuple[str, ...]]]] = {
    "ours": ("servers.json", lambda entry: {"servers": {"it": entry}}, _USUAL, ()),
    "claude": ("claude_desktop_config.json", lambda entry: {"mcpServers": {"it": entry}}, _USUAL, ()),
    "project": (
        ".claude.json",
        lambda entry: {"projects": {str(Path.cwd()): {"mcpServers": {"it": entry}}}},
        _USUAL,
        (),
    ),
    "vscode": (".vscode/mcp.json", lambda entry: {"inputs": [], "servers": {"it": entry}}, _USUAL, ()),
    "windsurf": (
        "mcp_config.json",
        lambda entry: {"mcpServers": {"it": entry}},
        entry_of(command="command", url="serverUrl"),
        (),
    ),
    "codex": (
        "config.json",
        lambda entry: {"mcp_servers": {"it": entry}},
        entry_of(command="command", url="url", headers="http_headers"),
        ("os.environ/%s",),
    ),
    "gemini": (".gemini/settings.json", lambda entry: {"mcpServers": {"it": entry}}, _USUAL, ("$%s",)),
    "opencode": (
        "opencode.json",
        lambda entry: {"mcp": {"it": entry}},
        entry_of(command="command", url="url", env="environment"),
        ("{file:/nowhere/%s}",),
    ),
    "zed": ("settings.json", lambda entry: {"context_servers": {"it": entry}}, _USUAL, ()),
    "goose": (
        "config.json",
        lambda entry: {"extensions": {"it": entry}},
        entry_of(command="cmd", url="uri", env="envs", type="stdio streamable_http"),
        (),
    ),
    "amp": ("settings.json", lambda entry: {"amp.mcpServers": {"it": entry}}, _USUAL, ()),
    "continue": ("config.json", lambda entry: {"mcpServers": [{"name": "it", **entry}]}, _USUAL, ()),
    "copilot": (
        ".copilot/mcp-config.json",
        lambda entry: {"mcpServers": {"it": {"tools": ["*"], **entry}}},
        _USUAL,
        (),
    ),
    "kiro": (".kiro/settings/mcp.json", lambda entry: {"mcpServers": {"it": {"disabled": False, **entry}}}, _USUAL, ()),
}
_FIELDS: Final = {False: ("command", "args", "env", "cwd"), True: ("url", "headers")}


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
    field = data.draw(st.sampled_from(_FIELDS[remote]))
    form = data.draw(st.sampled_from((*EVERYWHERE, *own)))
    is_whole_text = form.startswith("os.environ")  # which LiteLLM has as a whole text only
    field = "headers" if is_whole_text and field == "url" else field
    around = st.just("") if is_whole_text or field == "url" else st.sampled_from(("", "Bearer ", "--key=", "a b "))
    text = data.draw(around) + form % NAME
    server = only(name, tree(entry(field, text, remote)))
    assert not server.enabled, sent(server)
    assert server.disabled_reason


@pytest.mark.parametrize("dialect", _DIALECTS)
def test_an_entry_without_a_placeholder_is_enabled(dialect: str) -> None:
    name, tree, entry, _ = _DIALECTS[dialect]
    for remote, fields in _FIELDS.items():
        for field in fields:
            server = only(name, tree(entry(field, "plain.example", remote)))
            assert server.enabled, (field, server.disabled_reason)
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
