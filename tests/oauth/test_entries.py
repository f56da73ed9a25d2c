"""The key `auth` and where tokens are kept, as a file says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.credentials import OAuthSettings
from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.secret_values import secrets_of
from tests.config.written import only, read, refused, switched_off

URL = "https://mcp.example/"
SECRET = "canary-secret-14142"


def written(auth: Any, **entry: Any) -> str:
    return json.dumps({"servers": {"a": {"url": URL, "auth": auth, **entry}}})


@pytest.mark.parametrize(
    ("auth", "meant"),
    [
        ("oauth", OAuthSettings()),
        ({"type": "oauth"}, OAuthSettings()),
        ({"client_id": "c"}, OAuthSettings(client_id="c")),
        (
            {"clientId": "c", "clientSecret": f"{SECRET}\n"},
            OAuthSettings(client_id="c", client_secret=SecretStr(SECRET)),
        ),
        ({"scopes": "read write read"}, OAuthSettings(scopes=("read", "write"))),
        ({"scope": ["read"]}, OAuthSettings(scopes=("read",))),
        ({"redirect_port": "8100"}, OAuthSettings(redirect_port=8100)),
        (
            {"client_metadata_url": "https://x.example/hub.json"},
            OAuthSettings(client_metadata_url="https://x.example/hub.json"),
        ),
        (
            {"grant": "client_credentials", "client_id": "c", "client_secret": "${S}", "issuer": "https://as.example"},
            OAuthSettings(
                grant="client_credentials", client_id="c", client_secret=SecretStr(SECRET), issuer="https://as.example"
            ),
        ),
    ],
)
def test_every_form_of_auth_setting_is_read(tmp_path: Path, auth: Any, meant: OAuthSettings) -> None:
    server = only(tmp_path, written(auth), "servers.json", environ={"S": SECRET})
    assert server.oauth == meant
    assert "Authorization" not in server.headers


@pytest.mark.parametrize("auth", [None, False, "none", "a-token"])
def test_an_auth_setting_other_than_oauth_starts_no_sign_in(tmp_path: Path, auth: Any) -> None:
    assert only(tmp_path, written(auth), "servers.json").oauth is None


@pytest.mark.parametrize(
    ("auth", "entry"),
    [
        ({"grant": "password"}, {}),
        ({"grant": "client_credentials"}, {}),
        ({"grant": "client_credentials", "client_id": "c"}, {}),
        ({"grant": "client_credentials", "client_id": "c", "client_secret": "s", "private_key": "k"}, {}),
        ({"grant": "client_credentials", "client_id": "c", "client_secret": "s", "redirect_port": 1}, {}),
        ({"client_secret": "s"}, {}),
        ({"private_key": "k", "client_id": "c"}, {}),
        ({"client_id": "c", "client_metadata_url": "https://x.example/hub.json"}, {}),
        ({"client_metadata_url": "http://x.example/hub.json"}, {}),
        ({"client_metadata_url": "https://x.example/"}, {}),
        ({"scopes": ['a"b']}, {}),
        ({"redirect_port": 0}, {}),
        ({"redirect_port": True}, {}),
        ({"issuer": "as.example"}, {}),
        ({"type": "basic"}, {}),
        ("oauth", {"url": "http://mcp.example/"}),
        ("oauth", {"headers": {"authorization": "Bearer x"}}),
        ("oauth", {"url": None, "command": "x"}),
    ],
)
def test_contradictory_auth_settings_switch_the_server_off(tmp_path: Path, auth: Any, entry: Any) -> None:
    (line,) = switched_off(tmp_path, written(auth, **entry), "servers.json")
    assert line.startswith("servers.json:1: servers.a: is switched off: auth"), line


@pytest.mark.parametrize("url", ["http://localhost:1/mcp", "http://127.0.0.1:1/mcp", "http://[::1]:1/mcp", URL])
def test_tokens_are_sent_only_over_tls_or_to_loopback(tmp_path: Path, url: str) -> None:
    assert only(tmp_path, written("oauth", url=url), "servers.json").oauth == OAuthSettings()


def test_an_unset_variable_in_auth_disables_the_entry_without_an_error(tmp_path: Path) -> None:
    auth = {"client_id": "c", "client_secret": "${UNSET}", "redirect_port": "${UNSET}"}
    server = only(tmp_path, written(auth), "servers.json")
    assert "UNSET is not set" in (server.disabled_reason or "")


def test_the_client_secret_is_redacted_everywhere(tmp_path: Path) -> None:
    auth = {"client_id": "c", "client_secret": SECRET}
    loaded = read(tmp_path, written(auth), "servers.json")
    assert SECRET in set(secrets_of(loaded.config))
    assert SECRET not in repr(loaded)


def test_the_store_of_tokens_can_be_configured(tmp_path: Path) -> None:
    config = read(tmp_path, "servers: {}\ntoken_store: keyring\ntoken_dir: there\n").config
    assert (config.token_store, config.token_dir) == ("keyring", tmp_path / "there")
    assert read(tmp_path, "servers: {}\n").config.token_store == "file"
    assert refused(tmp_path, "servers: {}\ntoken_store: plain\n")
