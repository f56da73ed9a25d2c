"""Tokens while the hub runs: renewed once for all that wait, given up where nothing helps, taken up after a login."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import oauth
from mcp_hub.errors import SignInMissing
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import config_of, load_config
from mcp_hub.oauth import token_store
from mcp_hub.oauth.token_store import SignIn, TokenStore
from mcp_hub.transport import Challenge
from mcp_hub.upstream import negotiation
from tests.fakes.client import HUB, PATIENCE, StdioClient, spawned
from tests.oauth.authority import CLIENT, SECRET, Authority, authority
from tests.oauth.file_keyring import BACKEND
from tests.oauth.signing import COMMAND, command, configured, kept_files, login
from tests.oauth.test_login import entry

pytestmark = pytest.mark.anyio

MANY = 20


def code(result: dict[str, Any]) -> str:
    """The code of a call that has failed."""
    assert result.get("isError"), result
    return str(result["_meta"]["mcp-hub/error"]["code"])


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@contextlib.asynccontextmanager
async def serving(config: Path, *, modern: bool = False) -> AsyncIterator[StdioClient]:
    async with spawned([*HUB, "serve", "-vv", "--config", str(config)], modern=modern) as client:
        if not modern:
            await client.initialize()
        yield client


async def many(client: StdioClient, word: str) -> list[dict[str, Any]]:
    """Calls that are all under way at once."""
    calls = (client.call("a__effect", {"word": f"{word} {number}"}) for number in range(MANY))
    async with asyncio.timeout(COMMAND):
        return list(await asyncio.gather(*calls))


def executed_once(server: Authority, word: str) -> bool:
    return all(server.executed[f"{word} {number}"] == 1 for number in range(MANY))


@pytest.mark.parametrize("modern", [False, True])
async def test_an_expired_token_is_renewed_once_for_all_calls_that_wait(tmp_path: Path, modern: bool) -> None:
    async with authority() as server:
        server.provider.life = 0
        config = configured(tmp_path, {"a": entry(server)})
        await login(config)
        server.provider.life = 3600
        async with serving(config, modern=modern) as client:
            results = await many(client, "early")
        assert [text_of(result) for result in results] == [f"early {number} done" for number in range(MANY)]
        assert executed_once(server, "early")
        assert server.asked["token refresh_token"] == 1


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_token_refused_during_calls_is_renewed_once_and_the_calls_are_retried(
    tmp_path: Path, transport: str
) -> None:
    async with authority(transport) as server:
        config = configured(tmp_path, {"a": {**entry(server), "transport": transport}})
        await login(config)
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            server.provider.lapse()
            results = await many(client, "later")
            assert [result for result in results if result.get("isError")] == []
            stderr = client.stderr.decode()
        assert executed_once(server, "later")
        assert server.asked["token refresh_token"] == 1
        assert [token for token in [*server.tokens, *server.bearers] if token and token in stderr] == []


async def test_sessions_for_each_client_do_not_renew_tokens_more_often(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": {**entry(server), "session": "call"}})
        await login(config)
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            server.provider.lapse()
            results = await many(client, "own")
            assert [result for result in results if result.get("isError")] == []
        assert executed_once(server, "own")
        assert server.asked["token refresh_token"] == 1


async def test_two_hubs_use_a_refresh_token_only_once(tmp_path: Path) -> None:
    async with authority() as server:
        server.provider.life = 0
        config = configured(tmp_path, {"a": entry(server)})
        await login(config)
        server.provider.life = 3600
        async with serving(config) as first, serving(config) as second:
            results = [*await asyncio.gather(many(first, "one"), many(second, "other"))]
        assert [result for batch in results for result in batch if result.get("isError")] == []
        assert server.asked["token refresh_token"] == 1


async def test_a_refused_refresh_keeps_the_tools_listed_and_asks_for_a_login(
    tmp_path: Path,
) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server), "b": {"command": "no-such-command"}})
        await login(config)
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            server.provider.forget()
            for result in await many(client, "refused"):
                assert code(result) == "permission_denied"
                assert "mcp-hub login a" in text_of(result)
            request_count = server.asked.total()
            for _ in range(5):
                assert code(await client.call("a__effect", {"word": "refused"})) == "permission_denied"
            assert server.asked.total() == request_count, "nobody is asked again"
            assert server.asked["token refresh_token"] == 1
            assert "a__effect" in await client.tool_names()
            assert (await login(config)).code == 0
            assert await client.text("a__effect", {"word": "again"}) == "again done"
        assert server.executed["refused 0"] == server.executed["refused"] == 0
        assert server.executed["again"] == 1


@pytest.mark.parametrize("refuses_refresh", [False, True])
async def test_a_token_that_was_refused_for_a_moment_is_used_again_without_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses_refresh: bool
) -> None:
    monkeypatch.setattr(oauth, "REFUSED", 0.2)
    async with authority() as server:
        path = configured(tmp_path, {"a": entry(server)})
        await login(path)
        server.provider.refuses_refresh = refuses_refresh
        async with Engine(load_config(path)) as hub, asyncio.timeout(COMMAND):
            upstream = hub.upstreams["a"]

            async def effect(word: str) -> None:
                await upstream.request("tools/call", {"name": "effect", "arguments": {"word": word}})

            await effect("first")
            for word in ("second", "third"):
                server.refusals = 1 if refuses_refresh else 2  # a token that was just renewed, too
                with pytest.raises(SignInMissing):
                    await effect(word)
                while not server.executed[word]:
                    with contextlib.suppress(SignInMissing):
                        await effect(word)
        assert server.asked["token refresh_token"] == (1 if refuses_refresh else 2)
        assert {*server.executed.values()} == {1}


async def test_a_hub_without_a_sign_in_serves_the_cached_catalog_until_a_login(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)})
        await login(config)
        async with serving(config) as client:
            assert "a__effect" in await client.tool_names()
        assert (await command("logout", "a", "--config", str(config))).code == 0
        request_count = server.asked.total()
        async with serving(config) as client:
            assert "a__effect" in await client.tool_names()
            for _ in range(6):  # more than it takes to fail fast
                result = await client.call("a__effect", {"word": "none"})
                assert code(result) == "permission_denied"
                assert result["_meta"]["mcp-hub/error"]["retryable"] is False
                assert "mcp-hub login a" in text_of(result)
            assert server.asked.total() == request_count, "without a token nobody is asked"
            assert (await login(config)).code == 0
            assert await client.text("a__effect", {"word": "now"}) == "now done"
        assert server.executed["none"] == 0


async def test_check_names_the_servers_that_need_a_login(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)})
        done = await command("check", "--config", str(config))
        assert "a: authorization failed: nobody has signed in yet; run: mcp-hub login a" in done.out


async def test_requests_to_an_unreachable_authorization_server_are_throttled(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": {**entry(server), "breaker": "off"}})
        await login(config)
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            server.broken_tokens = True
            server.provider.lapse()
            for result in await many(client, "down"):
                assert code(result) == "server_unavailable"
                assert "503" in text_of(result)
                assert "mcp-hub login" not in text_of(result)
        assert server.asked["token refresh_token"] == 1
        assert not executed_once(server, "down")
        (token_file,) = kept_files(tmp_path)
        assert json.loads(token_file.read_text())["tokens"]["refresh_token"] in server.provider.refresh_tokens


async def test_a_scope_that_is_missing_is_named_and_the_next_login_asks_for_it(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server, scopes=["read"])})
        await login(config)
        server.wants = "admin"
        async with serving(config) as client:
            result = await client.call("a__whoami")
            assert code(result) == "permission_denied"
            assert "admin" in text_of(result)
            assert "mcp-hub login a" in text_of(result)
            assert "a__whoami" in await client.tool_names()
            assert (await login(config)).code == 0
            assert await client.text("a__whoami") == "admin read"


async def test_an_expired_client_credentials_token_is_renewed_once_for_all_waiting_calls(tmp_path: Path) -> None:
    async with authority() as server:
        settings = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": SECRET}
        config = configured(tmp_path, {"a": entry(server, **settings)})
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            server.provider.lapse()
            results = await many(client, "own")
            assert [result for result in results if result.get("isError")] == []
            stderr = client.stderr.decode()
        assert executed_once(server, "own")
        assert server.asked["token client_credentials"] == 2
        assert [secret for secret in [SECRET, *server.bearers] if secret and secret in stderr] == []


async def test_a_token_in_an_error_of_the_server_is_redacted(tmp_path: Path) -> None:
    async with authority() as server:

        @server.server.tool
        def leak() -> str:
            raise ValueError(f"your token is {server.bearers[-1]}")

        config = configured(tmp_path, {"a": entry(server)}, call_log={"file": str(tmp_path / "calls.jsonl")})
        await login(config)
        async with serving(config) as client:
            await client.call("a__leak")
            await client.until(lambda: b"a__leak" in client.stderr)
            stderr = client.stderr.decode()
        written = (tmp_path / "calls.jsonl").read_text()
        assert "leak" in written
        assert [bearer for bearer in server.bearers if bearer and bearer in stderr + written] == []


async def test_a_scope_that_was_not_granted_is_not_requested_at_every_call(tmp_path: Path) -> None:
    async with authority() as server:
        settings = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": SECRET, "scopes": ["read"]}
        config = configured(tmp_path, {"a": entry(server, **settings)})
        async with serving(config) as client:
            await client.text("a__whoami")
            server.wants = "something else"
            for _ in range(5):
                result = await client.call("a__whoami")
                assert code(result) == "permission_denied"
                assert "something else" in text_of(result)
            server.wants = None
            assert await client.text("a__whoami")
        assert server.asked["token client_credentials"] == 2


async def test_a_locked_keyring_is_reported_and_the_tools_stay_listed(tmp_path: Path) -> None:
    env = {"PYTHON_KEYRING_BACKEND": BACKEND, "TEST_KEYRING": str(tmp_path / "ring.json")}
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)}, token_store="keyring")
        assert (await login(config, env=env)).code == 0
        await command("tools", "--config", str(config), env=env)
        (tmp_path / "ring.locked").touch()
        async with spawned([*HUB, "serve", "--config", str(config)], env=env) as client:
            await client.initialize()
            assert "a__effect" in await client.tool_names()
            result = await client.call("a__effect", {"word": "x"})
            assert code(result) == "permission_denied"
            assert "the keyring is locked" in text_of(result)


async def test_a_remembered_refusal_does_not_override_a_simultaneous_login(tmp_path: Path) -> None:
    async with authority() as server:
        config = configured(tmp_path, {"a": entry(server)})
        await login(config)
        async with serving(config) as client:
            await client.text("a__effect", {"word": "first"})
            server.provider.forget()
            refused, _ = await asyncio.gather(many(client, "x"), login(config))
            assert len(refused) == MANY
            assert await client.text("a__effect", {"word": "after"}) == "after done"


async def test_a_file_system_without_locks_keeps_no_renewal_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    store = TokenStore(tmp_path / "tokens")
    server = config_of({"servers": {"a": {"url": "http://127.0.0.1:9/mcp"}}}).servers[0]
    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr(token_store, "LOCK_WAIT", 10 * PATIENCE)
    async with asyncio.timeout(PATIENCE), store.locked(server):
        store.save(server, SignIn(tokens={"access_token": "x"}, expires_at=1, challenge=Challenge(401, "Bearer")))
    assert store.load(server) == SignIn(
        tokens={"access_token": "x"}, expires_at=1.0, challenge=Challenge(401, "Bearer")
    )


async def test_a_slow_token_request_does_not_make_the_hub_try_the_other_era(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two handshakes at once would leave a session behind that belongs to neither."""
    monkeypatch.setattr(negotiation, "PROBE_WAIT", 2.0)  # a slow machine gets as long to ask for the token
    monkeypatch.setattr("tests.oauth.authority.HOLD_LIMIT", 5.0)
    async with authority() as server:
        settings = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": SECRET}
        config = load_config(configured(tmp_path, {"a": entry(server, **settings)}))
        server.holds_tokens_until = asyncio.Event()
        async with Engine(config) as hub, asyncio.timeout(COMMAND):
            await hub.upstreams["a"].attempted.wait()
            assert hub.upstreams["a"].error is None
        assert set(server.methods[:2]) == {"server/discover"}
        assert server.asked["token client_credentials"] == 1
        assert not server.holds_tokens_until.is_set()
