"""What clients call themselves in `clientInfo`, and what the table knows of how many tools they take."""

from __future__ import annotations

import pytest

from mcp_hub.clients.table import BY_ID, CLIENTS, client_calling_itself
from mcp_hub.hub.exposure import LEAST_LIMIT


def test_each_client_info_name_identifies_exactly_one_client() -> None:
    names = [name for client in CLIENTS for name in client.calls_itself]
    assert len(set(names)) == len(names)
    assert [client_calling_itself(name) for name in names] == [
        client for client in CLIENTS for _ in client.calls_itself
    ]


@pytest.mark.parametrize(
    ("name", "client"),
    [
        ("claude-code", "claude-code"),
        ("claude-ai (via mcp-remote 0.1.37)", "claude-desktop"),
        ("Visual Studio Code", "vscode"),
        ("Visual Studio Code - Insiders", "vscode"),
        ("Windsurf", "windsurf"),
        (" cursor-vscode ", "cursor"),
    ],
)
def test_a_client_is_found_by_its_name_in_any_case_and_through_a_proxy(name: str, client: str) -> None:
    assert client_calling_itself(name) is BY_ID[client]


@pytest.mark.parametrize("name", ["", "mcp", "cursor-like", "(via mcp-remote)", "claude-code-2"])
def test_an_unknown_client_info_name_matches_no_client(name: str) -> None:
    assert client_calling_itself(name) is None


def test_the_constant_of_the_smallest_tool_limit_matches_the_client_table() -> None:
    assert min(client.tool_limit for client in CLIENTS if client.tool_limit is not None) == LEAST_LIMIT
