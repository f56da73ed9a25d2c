"""Keys of other hosts mean in an entry what they mean there: transports, allow-lists, deny-lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.config.entry_rules import Filter
from tests.config.written import only, read, refused


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("stdio", "stdio"),
        ("local", "stdio"),
        ("http", "http"),
        ("streamable-http", "http"),
        ("streamable_http", "http"),
        ("streamableHttp", "http"),
        ("sse", "sse"),
        ("auto", "auto"),
        ("remote", "auto"),
    ],
)
def test_every_name_of_a_transport_is_accepted(tmp_path: Path, written: str, meant: str) -> None:
    target = "command: x" if meant == "stdio" else "url: https://x.example/mcp"
    assert only(tmp_path, f"servers: {{a: {{type: {written}, {target}}}}}").transport == meant


@pytest.mark.parametrize(
    ("url", "transport"),
    [
        ("https://x.example/sse", "sse"),
        ("https://x.example/a/sse/?key=1", "sse"),
        ("https://x.example/mcp?next=/sse", "auto"),
        ("https://x.example/assess", "auto"),
        ("https://x.example", "auto"),
    ],
)
def test_without_a_type_the_path_of_the_url_decides_the_transport(tmp_path: Path, url: str, transport: str) -> None:
    assert only(tmp_path, f"servers: {{a: {{url: '{url}'}}}}").transport == transport


def test_an_explicit_transport_wins_over_the_path(tmp_path: Path) -> None:
    assert only(tmp_path, "servers: {a: {url: 'https://x.example/sse', transport: http}}").transport == "http"


def test_a_transport_of_another_host_disables_its_entry(tmp_path: Path) -> None:
    server = only(tmp_path, '{"mcpServers": {"a": {"type": "ws", "url": "wss://x.example"}}}', "mcp.json")
    assert (server.enabled, server.disabled_reason) == (False, "the transport 'ws' is not supported")


ALLOWING = ["includeTools", "enabled_tools", "allowed_tools", "allowedTools", "enable_tools", "enable_funcs", "tools"]
REFUSING = ["excludeTools", "disabled_tools", "disallowed_tools", "disabledTools", "disable_tools", "disable_funcs"]


@pytest.mark.parametrize("key", ALLOWING)
def test_an_allow_list_of_any_dialect_allows_only_what_it_names(tmp_path: Path, key: str) -> None:
    server = only(tmp_path, f"servers: {{a: {{command: x, {key}: [t]}}}}")
    assert (server.enabled, server.filters) == (True, {"tools": Filter(allow=("t",))})


@pytest.mark.parametrize("key", REFUSING)
def test_a_deny_list_of_any_dialect_refuses_what_it_names(tmp_path: Path, key: str) -> None:
    server = only(tmp_path, f"servers: {{a: {{command: x, {key}: [t]}}}}")
    assert (server.enabled, server.filters) == (True, {"tools": Filter(deny=("t",))})


@pytest.mark.parametrize(("key", "kind"), [("disabledResources", "resources"), ("disabledPrompts", "prompts")])
def test_resource_and_prompt_filters_are_read(tmp_path: Path, key: str, kind: str) -> None:
    assert only(tmp_path, f"servers: {{a: {{command: x, {key}: [t]}}}}").filters == {kind: Filter(deny=("t",))}


def test_an_empty_deny_list_makes_no_filter(tmp_path: Path) -> None:
    server = only(tmp_path, "servers: {a: {command: x, disabledTools: [], tools: ['*'], includeTools: null}}")
    assert server.filters.get("tools", Filter()) == Filter()


def test_an_empty_allow_list_allows_nothing(tmp_path: Path) -> None:
    server = only(tmp_path, "servers: {a: {command: x, enabled_tools: []}}")
    assert server.filters["tools"].allow == ()


def test_an_unsupported_restriction_of_another_host_disables_its_entry(tmp_path: Path) -> None:
    server = only(tmp_path, "servers: {a: {command: x, sandboxEnabled: true}}")
    assert "sandbox" in (server.disabled_reason or "")


def test_a_file_with_two_root_keys_is_refused_with_both_names(tmp_path: Path) -> None:
    lines = refused(tmp_path, "servers: {}\nmcpServers: {}\n")
    assert lines == [
        "servers.yaml:2: mcpServers: the servers of a file are below one key, "
        "but 'servers' and 'mcpServers' are both there; keep one"
    ]


def test_a_key_of_another_host_without_effect_is_a_warning(tmp_path: Path) -> None:
    loaded = read(tmp_path, "servers: {a: {url: 'https://x.example', oauth: {clientId: c}}}")
    assert loaded.warnings == (
        "servers.yaml:1: servers.a.oauth: has no effect: write 'auth: oauth', or 'auth' with client_id, "
        "scopes and so on, and run: mcp-hub login SERVER",
    )
