"""Sign-ins that are needed, refused or cannot be read: each is told with the code of its cure."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.config.models import Config
from mcp_hub.hub.composition import read_config
from mcp_hub.oauth.token_store import SignIn, token_store_for
from tests.diagnosis.looking import answering, checked, configured, findings, http, reported_codes, unused_port
from tests.oauth.authority import CLIENT, SECRET, authority

pytestmark = pytest.mark.anyio

BEARER = http("401 Unauthorized", WWW_Authenticate="Bearer")


def signed_in(config: Path, **sign_in: Any) -> None:
    """Keeps a sign-in of every server, as `login` does."""
    loaded: Config = read_config(config).config
    for server in loaded.servers:
        token_store_for(loaded).save(server, SignIn(**sign_in))


async def test_a_server_without_a_sign_in_is_diagnosed(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": {"url": server.url, "auth": "oauth"}}, token_dir="tokens")
        assert codes.SIGN_IN_NEEDED in await asyncio.to_thread(checked, config)
        assert codes.SIGN_IN_NEEDED in await asyncio.to_thread(reported_codes, config)


def test_a_sign_in_that_has_expired_is_diagnosed(tmp_path: Path) -> None:
    with answering(BEARER) as url:
        config = configured(tmp_path, {"a": {"url": url, "auth": "oauth"}}, token_dir="tokens")
        signed_in(config, tokens={"access_token": "canary-token-1234"}, expires_at=time.time() - 7200)
        expired = [finding for finding in findings(config) if finding["code"] == codes.SIGN_IN_NEEDED]
    assert "has expired 2 h ago" in " ".join(finding["text"] for finding in expired)
    assert "canary" not in str(expired)


@pytest.mark.parametrize(
    ("sign_in", "level", "text"),
    [
        ({"expires_at": 900}, "warn", "ends in 15 min"),
        ({"expires_at": 8000}, "ok", "signed in for 2 h"),
        ({}, "ok", "signed in"),
    ],
)
def test_the_expiry_of_a_sign_in_is_reported(tmp_path: Path, sign_in: dict[str, Any], level: str, text: str) -> None:
    config = configured(tmp_path, {"a": {"url": "http://127.0.0.1:9/mcp", "auth": "oauth"}}, token_dir="tokens")
    expiry = {name: time.time() + seconds + 5 for name, seconds in sign_in.items()}
    signed_in(config, tokens={"access_token": "canary-token-1234"}, **expiry)
    assert [finding for finding in findings(config) if finding["level"] == level and text in finding["text"]]


async def test_a_client_that_the_authorization_server_refuses_is_diagnosed(tmp_path: Path) -> None:
    async with authority() as server:
        auth = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": f"${{NO:-{SECRET}-wrong}}"}
        config = configured(tmp_path, {"a": {"url": server.url, "auth": auth}}, token_dir="tokens")
        assert codes.CLIENT_REFUSED in await asyncio.to_thread(checked, config)


async def test_an_unreachable_authorization_server_is_diagnosed(tmp_path: Path) -> None:
    challenge = f'Bearer resource_metadata="http://127.0.0.1:{unused_port()}/.well-known/oauth-protected-resource"'
    with answering(http("401 Unauthorized", WWW_Authenticate=challenge)) as url:
        auth = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": "${NO:-some-secret}"}
        config = configured(tmp_path, {"a": {"url": url, "auth": auth}}, token_dir="tokens")
        assert codes.ISSUER_AWAY in await asyncio.to_thread(checked, config)


def test_token_files_that_others_can_read_are_diagnosed(tmp_path: Path) -> None:
    config = configured(tmp_path, {"a": {"url": "http://127.0.0.1:9/mcp", "auth": "oauth"}}, token_dir="tokens")
    signed_in(config, tokens={"access_token": "canary-token-1234"})
    for file in (tmp_path / "tokens").glob("*.json"):
        file.chmod(0o644)
    assert {codes.TOKENS_UNREADABLE, codes.STATE_NOT_PRIVATE} <= reported_codes(config)
    assert reported_codes(config, "--fix", "--yes")
    assert not {codes.TOKENS_UNREADABLE, codes.STATE_NOT_PRIVATE} & reported_codes(config)
