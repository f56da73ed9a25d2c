"""T7: what a server names is asked only where the server itself could go, and never with what belongs elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.oauth.token_flow import CheckedTransport, check_url
from mcp_hub.oauth.token_store import SignInError, TokenUnavailable
from mcp_hub.transport.egress import Egress
from tests.fakes.client import PATIENCE
from tests.oauth.authority import authority
from tests.oauth.leading import Leading, leading
from tests.oauth.signing import Said, browse, configured, login

pytestmark = pytest.mark.anyio

PUBLIC = "https://1.1.1.1/mcp"
PRIVATE = "https://10.0.0.1/mcp"
LOCAL = "http://127.0.0.1:8000/mcp"
SECRET = "canary-secret-16180"


async def sign_in(tmp_path: Path, server: Leading, **auth: Any) -> Said:
    entry = {"url": f"{server.base}/mcp", "auth": {"type": "oauth", **auth}}
    return await login(configured(tmp_path, {"a": entry}))


async def reached(server_url: str, url: str, allow: tuple[str, ...] = ()) -> bool:
    """Whether an address is dialled; nobody answers at most of them."""
    checked = CheckedTransport(server_url, allow, Egress.of())
    async with httpx2.AsyncClient(transport=checked, timeout=0.2) as http:
        try:
            async with asyncio.timeout(PATIENCE):
                await http.get(url)
        except TokenUnavailable:
            return True
        except SignInError:
            return False
    return True


@pytest.mark.parametrize(
    ("server", "named", "may"),
    [
        (PUBLIC, "https://10.1.2.3/token", False),
        (PUBLIC, "https://169.254.169.254/latest/meta-data", False),
        (PUBLIC, "https://127.0.0.1:8443/token", False),
        (PUBLIC, "https://localhost:8443/token", False),
        (PUBLIC, "https://[::1]:8443/token", False),
        (PUBLIC, "https://[::ffff:10.0.0.1]/token", False),
        (PUBLIC, "http://1.1.1.1/token", False),
        (PUBLIC, "http://127.0.0.1:1/token", False),
        (PRIVATE, "https://127.0.0.1:1/token", False),
        (PRIVATE, "http://10.0.0.1/token", False),
        (LOCAL, "http://10.0.0.1/token", False),
        (LOCAL, "http://127.0.0.1:1/token", True),
        (LOCAL, "https://localhost:1/token", True),
        (LOCAL, "http://localhost.example.com/token", False),
        (PUBLIC, "file:///etc/passwd", False),
        (PUBLIC, "https://user:pass@1.1.1.1/", False),
    ],
)
async def test_metadata_is_fetched_only_from_addresses_near_the_server(server: str, named: str, may: bool) -> None:
    assert await reached(server, named) is may


async def test_a_private_authorization_server_address_can_be_allowed() -> None:
    assert not await reached(PUBLIC, "https://127.0.0.1:1/token")
    assert await reached(PUBLIC, "https://127.0.0.1:1/token", ("127.0.0.1:1",))
    assert not await reached(PUBLIC, "https://127.0.0.1:2/token", ("127.0.0.1:1",))


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "https://as.example/a b",
        'https://as.example/"$(id)',
        "https://as.example/\u202e",
        "file:///x",
        "https://as.example/`id`",
        "https://as.example/^&calc",
        "http://as.example/",
        "https://a@as.example/",
        "",
        "https://",
    ],
)
def test_a_url_opened_in_the_browser_has_no_characters_special_to_a_shell(url: str) -> None:
    with pytest.raises(SignInError):
        check_url(PUBLIC, url)


async def test_a_metadata_redirect_to_another_origin_is_not_followed(tmp_path: Path) -> None:
    async with leading() as server, leading() as foreign:
        server.responses["/.well-known/oauth-protected-resource/mcp"] = server.resource(server.base)
        server.responses["/.well-known/oauth-authorization-server"] = server.metadata()
        for path in ("/token", "/registration"):
            server.responses[path] = (307, f"Location: {foreign.base}{path}\r\n")
        outcome = await sign_in(tmp_path, server, client_id="c", client_secret=SECRET, grant="client_credentials")
        assert outcome.code == 1
        assert "POST /token" in server.requests
        assert foreign.requests == []
        assert SECRET not in outcome.all
        outcome = await sign_in(tmp_path, server)
        assert outcome.code == 1
        assert "POST /registration" in server.requests
        assert foreign.requests == []


async def test_a_client_secret_is_sent_only_to_the_configured_issuer(tmp_path: Path) -> None:
    async with leading() as server, leading() as foreign:
        server.responses["/.well-known/oauth-protected-resource/mcp"] = server.resource(foreign.base)
        foreign.responses["/.well-known/oauth-authorization-server"] = foreign.metadata()
        for grant in ("client_credentials", "authorization_code"):
            settings = {"grant": grant, "client_id": "c", "client_secret": SECRET, "issuer": "https://as.example"}
            outcome = await sign_in(tmp_path, server, **settings)
            assert outcome.code == 1, outcome.all
            assert SECRET not in outcome.all
        assert "POST /token" not in foreign.requests
        assert SECRET not in "".join([*foreign.bodies, *server.bodies])


@pytest.mark.parametrize("endpoint", ["file:///etc/passwd", "http://as.example/authorize", "javascript:alert(1)//"])
async def test_a_sign_in_url_with_another_scheme_is_never_shown(tmp_path: Path, endpoint: str) -> None:
    async with leading() as server:
        server.responses["/.well-known/oauth-protected-resource/mcp"] = server.resource(server.base)
        server.responses["/.well-known/oauth-authorization-server"] = server.metadata(authorization_endpoint=endpoint)
        server.responses["/registration"] = {"client_id": "c", "redirect_uris": []}
        outcome = await sign_in(tmp_path, server)
        assert outcome.code == 1
        assert "Open this address" not in outcome.out


async def test_an_authorization_server_without_pkce_is_refused(tmp_path: Path) -> None:
    async with leading() as server:
        server.responses["/.well-known/oauth-protected-resource/mcp"] = server.resource(server.base)
        metadata = server.metadata()
        del metadata["code_challenge_methods_supported"]
        server.responses["/.well-known/oauth-authorization-server"] = metadata
        server.responses["/registration"] = {"client_id": "c", "redirect_uris": []}
        outcome = await sign_in(tmp_path, server)
        assert outcome.code == 1
        assert "PKCE" in outcome.err


async def test_an_endless_metadata_response_is_cut_off(tmp_path: Path) -> None:
    async with leading() as server:
        server.responses["/.well-known/oauth-protected-resource/mcp"] = {"resource": "x" * 1_000_000}
        outcome = await sign_in(tmp_path, server)
        assert outcome.code == 1
        assert "bytes" in outcome.err


@pytest.mark.parametrize(
    "odd",
    [
        {"access_token": "t", "token_type": "Bearer", "expires_in": 10**400},
        {"access_token": "t\r\nX-Injected: 1", "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": "t" * 100_000, "token_type": "Bearer"},
        {"access_token": "t", "token_type": "DPoP"},
        {"access_token": ["t"]},
        [],
    ],
    ids=lambda odd: str(odd)[:40],
)
async def test_an_unusable_token_response_is_a_short_error_without_traceback(tmp_path: Path, odd: Any) -> None:
    async with leading() as server:
        server.responses["/.well-known/oauth-protected-resource/mcp"] = server.resource(server.base)
        server.responses["/.well-known/oauth-authorization-server"] = server.metadata()
        server.responses["/token"] = odd
        outcome = await sign_in(tmp_path, server, client_id="c", client_secret=SECRET, grant="client_credentials")
        assert outcome.code == 1
        assert len(outcome.err.splitlines()) <= 2, outcome.err
        assert "Traceback" not in outcome.err


async def test_texts_of_an_authorization_server_are_escaped_and_redacted(tmp_path: Path) -> None:
    async with leading() as server:
        server.challenge = 'Bearer scope="\x1b[2J"'
        server.responses["/.well-known/oauth-protected-resource/mcp"] = server.resource(server.base)
        server.responses["/.well-known/oauth-authorization-server"] = server.metadata()
        body = f'{{"error": "\\u001b[31m{SECRET}", "error_description": "{SECRET}"}}'
        server.responses["/token"] = (400, "", body)
        outcome = await sign_in(tmp_path, server, client_id="c", client_secret=SECRET, grant="client_credentials")
        assert outcome.code == 1
        assert "\x1b" not in outcome.all
        assert SECRET not in outcome.all


async def test_the_authorization_server_gets_no_cookie_or_token_of_the_server(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": {"url": server.url, "auth": "oauth", "headers": {"X-Key": SECRET}}})
        assert (await login(config, follow=browse)).code == 0
        assert SECRET not in str(server.forms)
        assert SECRET not in server.seen_elsewhere
