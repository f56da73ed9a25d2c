"""`mcp-hub login` and `logout` against a real authorization server."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.fakes.client import HUB, PATIENCE, spawned
from tests.oauth.authority import CLIENT, SECRET, Authority, authority
from tests.oauth.file_keyring import BACKEND
from tests.oauth.signing import browse, command, configured, kept_files, login

pytestmark = pytest.mark.anyio


def entry(server: Authority, **auth: Any) -> dict[str, Any]:
    return {"url": server.url, "auth": {"type": "oauth", **auth} if auth else "oauth"}


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_user_signs_in_with_pkce_and_the_hub_calls(tmp_path: Path, transport: str) -> None:
    async with authority(transport) as server:
        config = configured(tmp_path, {"a": {**entry(server), "transport": transport}})
        outcome = await login(config)
        assert outcome.code == 0, outcome.all
        (form,) = server.forms
        assert len(form["code_verifier"]) >= 43
        assert form["resource"] == server.url
        assert server.asked["POST /register"] == 1
        done = await command("call", "a__whoami", "--config", str(config))
        assert "read" in done.out, done.all
        assert "code_challenge_method=S256" in outcome.out
        output = outcome.all + done.all
        assert [token for token in server.tokens if token in output] == []
        assert form["code"] not in output


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_entry_with_a_url_alone_can_be_signed_in_to(tmp_path: Path, transport: str) -> None:
    async with authority(transport) as server:
        config = configured(tmp_path, {"a": {"url": server.url}})
        before = await command("check", "--config", str(config))
        assert "it requires you to sign in (HTTP 401); run: mcp-hub login a" in before.out
        outcome = await login(config)
        assert outcome.code == 0, outcome.all
        done = await command("call", "a__whoami", "--config", str(config))
        assert (done.code, done.out) == (0, "read\n"), done.all
        explicit = await command("call", "a__whoami", "--config", str(configured(tmp_path, {"a": entry(server)})))
        assert explicit.code == 0, "writing 'auth: oauth' later keeps the sign-in"
        logout = await command("logout", "a", "--config", str(configured(tmp_path, {"a": {"url": server.url}})))
        assert (logout.code, kept_files(tmp_path)) == (0, []), logout.all


async def test_a_running_hub_uses_a_sign_in_to_an_entry_with_a_url_alone(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": {"url": server.url}})
        async with spawned([*HUB, "serve", "--config", str(config)]) as client:
            await client.initialize()
            await client.until(lambda: b"mcp-hub login a" in client.stderr)
            assert await client.tool_names() == []
            assert (await login(config)).code == 0
            await client.notified("notifications/tools/list_changed")
            assert await client.text("a__whoami") == "read"


@pytest.mark.parametrize(
    "fields", [{"headers": {"Authorization": "Bearer of-the-file"}}, {"url": "http://mcp.example/mcp"}]
)
async def test_login_reports_why_an_entry_cannot_be_signed_in_to(tmp_path: Path, fields: dict[str, Any]) -> None:
    config = configured(tmp_path, {"a": {"url": "https://mcp.example/mcp", **fields}})
    outcome = await login(config)
    assert outcome.code == 2
    assert "it needs a url with https:// and no Authorization of its own" in outcome.err


async def test_token_files_are_readable_by_their_user_only(tmp_path: Path) -> None:
    async with authority() as server:
        await login(configured(tmp_path, {"a": entry(server)}))
        (path,) = kept_files(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert json.loads(path.read_text())["tokens"]["access_token"] in server.tokens
        path.chmod(0o644)
        outcome = await command("check", "--json", "--config", str(tmp_path / "servers.json"))
        (fact,) = json.loads(outcome.out)["servers"]
        assert "open to others" in fact["problem"]


async def test_tokens_of_one_server_url_are_not_used_for_another(tmp_path: Path) -> None:
    async with authority() as first, authority() as second:
        await login(configured(tmp_path, {"a": entry(first)}))
        outcome = await command("check", "--json", "--config", str(configured(tmp_path, {"a": entry(second)})))
        (fact,) = json.loads(outcome.out)["servers"]
        assert "mcp-hub login a" in fact["problem"]
        assert [bearer for bearer in second.bearers if bearer] == []


async def test_tokens_can_be_kept_in_the_keyring(tmp_path: Path) -> None:
    env = {"PYTHON_KEYRING_BACKEND": BACKEND, "TEST_KEYRING": str(tmp_path / "ring.json")}
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)}, token_store="keyring")
        outcome = await login(config, env=env)
        assert outcome.code == 0, outcome.all
        (beside,) = kept_files(tmp_path)
        tokens = server.tokens
        assert [token for token in tokens if token in beside.read_text()] == []
        assert all(token in (tmp_path / "ring.json").read_text() for token in tokens)
        done = await command("call", "a__whoami", "--config", str(config), env=env)
        assert "read" in done.out, done.all
        await command("logout", "a", "--config", str(config), env=env)
        assert json.loads((tmp_path / "ring.json").read_text()) == {}


async def test_logout_deletes_and_revokes_the_tokens(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)})
        await login(config)
        outcome = await command("logout", "a", "--config", str(config))
        assert (outcome.code, kept_files(tmp_path)) == (0, [])
        assert server.asked["POST /revoke"] == 1
        assert server.tokens == []
        again = await command("logout", "a", "--config", str(config))
        assert again.code == 0


async def test_a_second_login_uses_the_client_that_is_registered(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)})
        assert (await login(config)).code == 0
        assert (await login(config)).code == 0
        assert server.asked["POST /register"] == 1
        assert server.asked["token authorization_code"] == 2


async def test_a_client_that_is_configured_is_not_registered_again(tmp_path: Path) -> None:
    async with authority() as server:
        assert (await login(configured(tmp_path, {"a": entry(server)}))).code == 0
        (client,) = server.provider.clients.values()
        assert client.redirect_uris is not None
        settings = {
            "client_id": client.client_id,
            "client_secret": client.client_secret,
            "token_endpoint_auth_method": client.token_endpoint_auth_method,
            "redirect_port": client.redirect_uris[0].port,
            "scopes": ["read", "admin"],
        }
        config = configured(tmp_path, {"a": entry(server, **settings)})
        outcome = await login(config)
        assert outcome.code == 0, outcome.all
        assert server.asked["POST /register"] == 1
        done = await command("call", "a__whoami", "--config", str(config))
        assert "admin read" in done.out
        assert str(client.client_secret) not in outcome.all + done.all


async def test_a_redirect_with_another_state_is_ignored(tmp_path: Path) -> None:
    async with authority() as server:
        statuses = []

        async def forged_first(url: str) -> None:
            query = parse_qs(urlsplit(url).query)
            for forged in ("code=stolen&state=wrong", "code=stolen", "error=access_denied&state="):
                statuses.append(await browse(f"{query['redirect_uri'][0]}?{forged}"))
            statuses.append(await browse(url))

        outcome = await login(configured(tmp_path, {"a": entry(server)}), follow=forged_first)
        assert (outcome.code, statuses) == (0, [400, 400, 400, 200])
        assert "stolen" not in str(server.forms)


async def test_a_refused_sign_in_is_reported_and_nothing_is_stored(tmp_path: Path) -> None:
    async with authority() as server:

        async def refuse(url: str) -> None:
            query = parse_qs(urlsplit(url).query)
            await browse(f"{query['redirect_uri'][0]}?error=access_denied&state={query['state'][0]}")

        outcome = await login(configured(tmp_path, {"a": entry(server)}), follow=refuse)
        assert outcome.code == 1
        assert "access_denied" in outcome.err
        assert server.tokens == []


async def test_login_waits_for_the_user_until_its_timeout(tmp_path: Path) -> None:
    async with authority() as server:
        outcome = await login(configured(tmp_path, {"a": entry(server)}), "a", "--timeout", "200ms", follow=None)
        assert outcome.code == 1
        assert kept_files(tmp_path) == []


async def test_the_sign_in_url_is_passed_to_the_browser_as_one_argument_without_a_shell(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$1" > {tmp_path}/seen\n')
    browser.chmod(0o700)
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)})
        outcome = await command("login", "a", "--config", str(config), env={"BROWSER": str(browser)})
        assert outcome.code == 0, outcome.all
        number, url = (tmp_path / "seen").read_text().split()
        assert number == "1"
        assert url in outcome.out


@pytest.mark.parametrize(
    ("servers", "id"),
    [({"a": {"command": "x"}}, "a"), ({}, "a\x1b[31m")],
)
async def test_login_to_a_server_without_oauth_exits_2(tmp_path: Path, servers: Any, id: str) -> None:
    outcome = await login(configured(tmp_path, servers), id)
    assert outcome.code == 2
    assert "\x1b" not in outcome.all


async def test_the_hub_signs_in_with_client_credentials_without_a_user(tmp_path: Path) -> None:
    async with authority() as server:
        settings = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": SECRET}
        config = configured(tmp_path, {"a": {**entry(server, **settings, scopes="read admin"), "keep_catalog": False}})
        done = await command("call", "a__whoami", "--config", str(config))
        assert "admin read" in done.out, done.all
        assert server.asked["token client_credentials"] == 1
        again = await command("call", "a__whoami", "--config", str(config))
        assert "admin read" in again.out
        assert server.asked["token client_credentials"] == 1
        assert SECRET not in done.all + again.all


async def test_a_wrong_client_secret_is_reported_without_its_value_and_not_retried_at_once(tmp_path: Path) -> None:
    async with authority() as server:
        wrong = "canary-wrong-secret-27182"
        settings = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": wrong}
        config = configured(tmp_path, {"a": entry(server, **settings)})
        async with spawned([*HUB, "serve", "-vv", "--config", str(config)]) as client:
            await client.initialize()
            await client.request("tools/list")
            for _ in range(5):
                with pytest.raises(Exception, match="Unknown tool"):
                    await client.call("a__effect", {"word": "x"})
            await client.until(lambda: b"invalid_client" in client.stderr)
        assert server.asked["token client_credentials"] == 1
        assert wrong.encode() not in client.stderr


async def test_login_reports_that_its_redirect_port_is_taken(tmp_path: Path) -> None:
    async with authority() as server:
        port = urlsplit(server.base).port
        outcome = await login(configured(tmp_path, {"a": entry(server, redirect_port=port)}))
        assert outcome.code == 1
        assert "auth.redirect_port" in outcome.err


async def test_login_reports_a_server_without_an_authorization_server(tmp_path: Path) -> None:
    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(refusing, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        outcome = await login(configured(tmp_path, {"a": {"url": f"http://127.0.0.1:{port}/mcp", "auth": "oauth"}}))
    assert outcome.code == 1
    assert "client_id" in outcome.err
    assert "servers.a.headers" in outcome.err, "a server that takes a key instead"


async def test_the_redirect_listener_accepts_only_the_redirect(tmp_path: Path) -> None:
    async with authority() as server:
        statuses: list[int] = []

        async def look_around(url: str) -> None:
            back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as browser:
                for method, path in (("GET", "/"), ("POST", back), ("GET", "/mcp"), ("DELETE", back)):
                    target = path if path.startswith("http") else back.replace("/callback", path)
                    statuses.append((await browser.request(method, target)).status_code)
            await browse(url)

        outcome = await login(configured(tmp_path, {"a": entry(server)}), follow=look_around)
        assert (outcome.code, statuses) == (0, [404, 405, 404, 405])
