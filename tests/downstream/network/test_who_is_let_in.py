"""The hub with principals and a verifier: who comes in, what the others are told, and whose sessions are whose."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.downstream.network.issuer import AUDIENCE, CLIENT, Issuer, issuing
from tests.downstream.network.visitor import ACCEPT, ERAS, TOKENS, bearer, network_hub, visiting
from tests.fakes.client import HUB, PATIENCE, fake, spawned, write_config
from tests.transport.forward_proxy import forwarding

pytestmark = pytest.mark.anyio

PROFILES = {"adding": {"tools": ["a/add"]}}
PEM = Issuer().with_key("one").public_key
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def listen(issuer: Issuer, kind: str = "jwt", **options: Any) -> dict[str, Any]:
    if kind == "jwt":
        issued: dict[str, Any] = {"audience": AUDIENCE, "jwks_uri": f"{issuer.url}/keys"}
    else:
        issued = {"endpoint": f"{issuer.url}/introspect", "client_id": CLIENT[0], "client_secret": CLIENT[1]}
    verify = {kind: {"issuer": issuer.url, "required_scopes": "use", **issued}, "profile_claim": "hub", **options}
    return {"verify": verify, "principals": {"alice": TOKENS["alice"]}}


def challenge(answer: httpx2.Response) -> dict[str, str]:
    scheme, _, parameters = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return {name: value.strip('"') for name, _, value in (part.partition("=") for part in parameters.split(", "))}


@pytest.mark.parametrize("kind", ["jwt", "introspection"])
@pytest.mark.parametrize("era", ERAS)
async def test_verified_and_configured_tokens_each_select_their_own_profile(
    tmp_path: Path, era: str, kind: str
) -> None:
    async with issuing() as issuer:
        token = issuer.token(hub="adding")
        issuer.introspections[token] = {"active": True, "sub": "ann", "scope": "use", "hub": "adding"}
        async with (
            network_hub(tmp_path, {"a": fake()}, listen(issuer, kind), profiles=PROFILES) as (_, base),
            visiting(base, era, token) as verified,
            visiting(base, era, TOKENS["alice"]) as alice,
        ):
            assert await verified.names("tools/list") == ["a__add"]
            assert await verified.text("a__add", {"a": 1, "b": 2}) == "3"
            assert "error" in await verified.call("a__echo")
            assert await alice.text("a__echo", {"text": "x"}) == "x"


@pytest.mark.parametrize("kind", ["jwt", "introspection"])
async def test_the_authorization_server_is_reached_through_the_root_proxy(tmp_path: Path, kind: str) -> None:
    issuer = Issuer("https://login.example").with_key("one")
    async with forwarding() as proxy:
        address = f"http://127.0.0.1:{proxy.port}"
        async with (
            network_hub(tmp_path, {}, listen(issuer, kind), profiles=PROFILES, proxy=address) as (_, base),
            httpx2.AsyncClient(base_url=base, headers={**ACCEPT, **bearer(issuer.token())}, timeout=PATIENCE) as http,
        ):
            answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert answer.status_code == 503, answer.text
        assert set(proxy.asked) == {"CONNECT login.example:443"}


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages"])
async def test_an_unauthorized_response_names_the_authorization_server(tmp_path: Path, path: str) -> None:
    async with (
        issuing() as issuer,
        network_hub(tmp_path, {"a": fake()}, listen(issuer), profiles=PROFILES) as (_, base),
        httpx2.AsyncClient(base_url=base, headers=ACCEPT, timeout=PATIENCE) as http,
    ):
        metadata_url = f"{base}{WELL_KNOWN}/mcp"
        expected: list[tuple[dict[str, str], int, str | None]] = [
            ({}, 401, None),
            (bearer("x"), 401, "invalid_token"),
            (bearer(TOKENS["bob"]), 401, "invalid_token"),
            ({"authorization": f"Basic {TOKENS['alice']}"}, 401, "invalid_token"),
            (bearer(issuer.token(hub="adding", exp=1)), 401, "invalid_token"),
            (bearer(issuer.token(hub="adding", scope="other")), 403, "insufficient_scope"),
            (bearer(issuer.token()), 403, "insufficient_scope"),
            (bearer(issuer.token(hub="unheard of")), 403, "insufficient_scope"),
        ]
        for headers, status, error in expected:
            for method in ("GET", "POST", "DELETE"):
                answer = await http.request(method, path, headers=headers)
                assert answer.status_code == status, (headers, answer.text)
                parameters = challenge(answer)
                assert parameters.get("error") == error
                assert (parameters["scope"], parameters["resource_metadata"]) == ("use", metadata_url)
        answer = await http.get(metadata_url)
        assert answer.json() == {
            "resource": f"{base}/mcp",
            "resource_name": "mcp-hub",
            "authorization_servers": [issuer.url],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["use"],
        }
        assert (await http.get(WELL_KNOWN)).json() == answer.json()
        assert (await http.post(WELL_KNOWN)).status_code == 405
        assert (await http.get(WELL_KNOWN, headers={"host": "evil.example"})).status_code == 421


async def test_while_the_issuer_is_unreachable_only_configured_principals_are_served(tmp_path: Path) -> None:
    async with issuing() as issuer:
        token, settings = issuer.token(hub="adding"), listen(issuer)
    async with (
        network_hub(tmp_path, {"a": fake()}, settings, profiles=PROFILES) as (process, base),
        httpx2.AsyncClient(base_url=base, headers=ACCEPT, timeout=PATIENCE) as http,
        visiting(base, "modern", TOKENS["alice"]) as alice,
    ):
        answer = await http.post("/mcp", headers=bearer(token), json={})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert await alice.text("a__echo", {"text": "x"}) == "x"
        await process.until(lambda: b"tokens cannot be verified" in process.stderr)
        assert token.encode() not in process.stderr


@pytest.mark.parametrize(
    ("settings", "resource"),
    [
        ({"public_host": "hub.example:8443"}, "https://hub.example:8443/mcp"),
        ({"public_host": "hub.example", "resource": "https://www.example/team/mcp"}, "https://www.example/team/mcp"),
        ({"host": "0.0.0.0"}, AUDIENCE),
    ],
)
async def test_the_protected_resource_metadata_comes_only_from_the_configuration(
    tmp_path: Path, settings: dict[str, Any], resource: str
) -> None:
    async with issuing() as issuer:
        verify_settings = {key: settings[key] for key in ("resource",) if key in settings}
        listen_settings = {key: value for key, value in settings.items() if key != "resource"}
        root = {**listen(issuer, **verify_settings), **listen_settings}
        async with (
            network_hub(tmp_path, {}, root, profiles=PROFILES) as (_, base),
            httpx2.AsyncClient(base_url=base.replace("0.0.0.0", "127.0.0.1"), timeout=PATIENCE) as http,
        ):
            forwarded = {"x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}
            answer = await http.get(WELL_KNOWN, headers=forwarded)
            assert answer.json()["resource"] == resource
            parameters = challenge(await http.post("/mcp", headers=forwarded))
            host, path = resource.removeprefix("https://").split("/", 1)
            assert parameters["resource_metadata"] == f"https://{host}{WELL_KNOWN}/{path}"


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_the_session_of_another_principal_answers_like_an_unknown_session(tmp_path: Path, method: str) -> None:
    async with (
        issuing() as issuer,
        network_hub(tmp_path, {"a": fake()}, listen(issuer), profiles=PROFILES) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
    ):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a__pid"}}).encode()
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
            for token in (issuer.token(hub="adding"), issuer.token(sub="alice", hub="adding")):
                stranger = {**ACCEPT, **bearer(token), "accept": "application/json, text/event-stream"}
                answers = [
                    await http.request(
                        method,
                        "/mcp",
                        headers={**stranger, "mcp-session-id": session},
                        content=body if method == "POST" else None,
                    )
                    for session in (alice.session["mcp-session-id"], "x" * len(alice.session["mcp-session-id"]))
                ]
                assert [answer.status_code for answer in answers] == [404, 404]
                assert answers[0].content == answers[1].content
                unequal = {"date"}
                first, second = (
                    {k: v for k, v in response.headers.items() if k not in unequal} for response in answers
                )
                assert first == second
        assert "result" in await alice.ask("tools/list")


async def test_another_principal_cannot_post_to_the_sse_stream_of_a_principal(tmp_path: Path) -> None:
    principals = {"principals": {name: TOKENS[name] for name in ("alice", "bob")}}
    async with (
        network_hub(tmp_path, {"a": fake()}, principals) as (_, base),
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http,
        asyncio.timeout(PATIENCE),
        http.stream("GET", "/sse", headers={**bearer(TOKENS["alice"]), "accept": "text/event-stream"}) as stream,
    ):
        lines = stream.aiter_lines()
        path = [await anext(lines) for _ in range(2)][1].removeprefix("data: ")
        unknown = path.partition("=")[0] + "=" + "x" * len(path.partition("=")[2])
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        stolen, none = [
            await http.post(endpoint, json=message, headers=bearer(TOKENS["bob"])) for endpoint in (path, unknown)
        ]
        assert (stolen.status_code, none.status_code) == (404, 404)
        assert stolen.content == none.content
        assert (await http.post(path, json={**message, "id": 2}, headers=bearer(TOKENS["alice"]))).status_code == 202
        async for line in lines:
            if line.startswith("data: "):
                assert json.loads(line.removeprefix("data: "))["id"] == 2
                break


@pytest.mark.parametrize(
    ("verify", "line"),
    [
        ({}, b"listen.verify: must have one of jwt and introspection"),
        (
            {"jwt": {"issuer": "https://i.example", "jwks_uri": "https://i.example/k"}},
            b"verify.jwt.audience: is missing",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a", "jwks_uri": "http://i.example/k"}},
            b"listen.verify.jwt.jwks_uri: must begin with https:// (http:// is for this machine only)",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a", "jwks_uri": "https://u:pw@i.example/k"}},
            b"listen.verify.jwt.jwks_uri: must be a URL without a user, a password or a fragment",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a"}},
            b"listen.verify.jwt: must have one of jwks_uri and public_key",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a", "public_key": PEM, "algorithms": "HS256"}},
            b"listen.verify.jwt.algorithms: must be one of RS256",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a", "public_key": "k"}},
            b"listen.verify.jwt: needs the public_key as PEM",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a", "public_key": "-----BEGIN RSA PRIVATE KEY-----"}},
            b"listen.verify.jwt: has a private key",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a", "public_key": PEM.replace("M", "N")}},
            b"listen.verify cannot be used",
        ),
        (
            {"jwt": {"issuer": "https://i.example", "audience": "a", "public_key": PEM, "algorithms": "ES256"}},
            b"listen.verify cannot be used",
        ),
        (
            {"introspection": {"issuer": "https://i.example", "endpoint": "http://10.0.0.1/i", "client_id": "x"}},
            b"listen.verify.introspection.endpoint: must begin with https://",
        ),
        (
            {
                "jwt": {"issuer": "https://i.example", "audience": "a", "jwks_uri": "https://i.example/k"},
                "profile": "unheard of",
            },
            b"listen.verify.profile: there is no profile 'unheard of' in this file",
        ),
    ],
)
async def test_an_invalid_verifier_is_reported_in_one_line(tmp_path: Path, verify: dict[str, Any], line: bytes) -> None:
    config = write_config(tmp_path, {}, listen={"verify": verify}, profiles=PROFILES)
    async with spawned([*HUB, "serve", "--http", "--config", str(config)]) as client:
        assert await client.exited() == 2
        await client.until(lambda: line in client.stderr)
        assert b"pw@" not in client.stderr


@pytest.mark.parametrize(
    ("way", "starts"),
    [
        ({}, False),
        ({"principals": {}}, False),
        ({"principals": {"alice": TOKENS["alice"]}}, True),
        ({"token": TOKENS["alice"]}, True),
        ({"verify": {"jwt": {"issuer": "https://i.example", "audience": AUDIENCE, "public_key": PEM}}}, True),
        ({"verify": {"jwt": {"issuer": "https://i.example", "audience": "a", "public_key": PEM}}}, False),
    ],
)
async def test_a_network_listener_starts_only_with_authentication(
    tmp_path: Path, way: dict[str, Any], starts: bool
) -> None:
    settings = {"host": "0.0.0.0", "port": 0, **way}
    config = write_config(tmp_path, {}, listen=settings)
    async with spawned([*HUB, "serve", "--http", "--config", str(config)]) as client:
        if not starts:
            assert await client.exited() == 2
            return
        await client.until(lambda: b"is listening" in client.stderr)
        client.process.terminate()
        assert await client.exited() == 0
