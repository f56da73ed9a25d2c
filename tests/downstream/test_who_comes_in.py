"""The checks of T2, T3 and T5 over a real socket: what is refused reaches nothing behind the app."""

from __future__ import annotations

import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import Gate
from tests.downstream.raw_http import BOTH, call, fetch, initialized, message
from tests.downstream.scripted import serving

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef" * 2
JSON = ("Content-Type", "application/json")

CASES: dict[str, tuple[str | None, list[tuple[str, str]], int]] = {
    "no Host": (None, [JSON], 421),
    "a rebound name": ("evil.example", [JSON], 421),
    "a rebound name with the port": ("evil.example:8808", [JSON], 421),
    "userinfo": ("127.0.0.1@evil.example", [JSON], 421),
    "an own name as a prefix": ("localhost.evil.example", [JSON], 421),
    "a second Host": ("own", [("Host", "localhost"), JSON], 421),
    "a blank in Host": ("local host", [JSON], 421),
    "a path in Host": ("localhost/mcp", [JSON], 421),
    "Origin null": ("own", [("Origin", "null"), JSON], 403),
    "a foreign Origin": ("own", [("Origin", "http://evil.example"), JSON], 403),
    "the own name on another port": ("own", [("Origin", "http://localhost:1"), JSON], 403),
    "two Origins": ("own", [("Origin", "http://localhost"), ("Origin", "null"), JSON], 403),
    "Forwarded": ("own", [("Forwarded", "for=192.0.2.1"), JSON], 403),
    "X-Forwarded-For": ("own", [("X-Forwarded-For", "127.0.0.1"), JSON], 403),
    "X-Forwarded-Host": ("own", [("X-Forwarded-Host", "localhost"), JSON], 403),
    "a page of another site": ("own", [("Sec-Fetch-Site", "cross-site"), JSON], 403),
    "a page of the same site": ("own", [("Sec-Fetch-Site", "same-site"), JSON], 403),
    "a form": ("own", [("Content-Type", "application/x-www-form-urlencoded")], 415),
    "plain text": ("own", [("Content-Type", "text/plain")], 415),
    "no Content-Type": ("own", [], 415),
    "two Content-Types": ("own", [JSON, ("Content-Type", "text/plain")], 415),
    "no session": ("own", [JSON], 400),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("path", ["/mcp", "/messages?session_id=x"])
async def test_a_request_refused_for_its_headers_reaches_no_handler(case: str, path: str) -> None:
    host, lines, status = CASES[case]
    if path != "/mcp" and status in (400, 415):
        status = 404  # there the session comes first
    async with serving() as served:
        answer = await fetch(served, "POST", path, lines, call("echo"), host=host)
        assert answer.status == status
        assert served.dispatcher.methods == served.dispatcher.notifications == []


OPEN = ("/", "/healthz", "/healthz/live", "/healthz/ready")


async def test_unknown_routes_are_answered_404() -> None:
    async with serving() as served:
        assert served.app.routes == [*OPEN, "/mcp", "/messages", "/metrics", "/sse"]
        for path in (
            "/register",
            "/authorize",
            "/.well-known/oauth-protected-resource",
            "/mcp/x",
            "/docs",
            "//mcp",
            "/replica",
        ):
            answer = await fetch(served, "POST", path, BOTH, message("ping"))
            assert (answer.status, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")


async def test_the_sse_routes_are_404_if_sse_is_off() -> None:
    async with serving(sse=False) as served:
        assert [(await fetch(served, "GET", path)).status for path in ("/sse", "/messages")] == [404, 404]
        assert served.app.routes == [*OPEN, "/mcp", "/metrics"]


async def test_a_browser_gets_a_plain_text_explanation_at_the_root_url() -> None:
    html = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]
    for listen, sse in ((Listen(port=0), True), (Listen(port=0, token=TOKEN), False)):
        async with serving(listen, sse=sse) as served:
            answer = await fetch(served, "GET", "/", html)
            assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
            assert answer.body.decode().startswith("This is mcp-hub, ")
            assert ("/mcp or /sse" in answer.body.decode()) == sse
            assert (await fetch(served, "POST", "/", BOTH, message("ping"))).status == 405
            assert (await fetch(served, "GET", "/", html, host="evil.example")).status == 421
            assert served.dispatcher.methods == []
            endpoint = await fetch(served, "GET", "/mcp", html)
            assert endpoint.status == (401 if listen.token else 406)
            assert listen.token or "not for web browsers" in endpoint.body.decode()


async def test_health_is_served_without_a_token_to_known_hosts() -> None:
    async with serving(Listen(port=0, token=TOKEN)) as served:
        answer = await fetch(served, "GET", "/healthz")
        assert (answer.status, answer.json) == (200, {"status": "ok"})
        assert (await fetch(served, "GET", "/healthz/")).status == 200
        assert (await fetch(served, "GET", "/healthz", host="evil.example")).status == 421
        assert (await fetch(served, "POST", "/healthz")).status == 405


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/sse"), ("POST", "/messages")]
)
async def test_a_listener_with_a_token_refuses_requests_without_it(method: str, path: str) -> None:
    async with serving(Listen(port=0, token=TOKEN)) as served:
        for credentials in ([], [("Authorization", "Bearer " + "x" * 32)]):
            answer = await fetch(served, method, path, [*BOTH, *credentials], message("initialize", {}))
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert served.dispatcher.methods == []


async def test_a_client_with_the_token_is_served() -> None:
    bearer = [("Authorization", f"Bearer {TOKEN}")]
    async with serving(Listen(port=0, token=TOKEN)) as served:
        session = await initialized(served, bearer)
        assert (await fetch(served, "POST", "/mcp", session, call("echo", {"text": "hi"}))).status == 200


async def test_a_session_of_another_principal_looks_exactly_like_an_unknown_one() -> None:
    listen = Listen(port=0, token=TOKEN)
    gate = Gate(listen, {TOKEN.encode(): "a", b"b" * 32: "b"})
    async with serving(listen, gate=gate) as served:
        session = await initialized(served, [("Authorization", f"Bearer {TOKEN}")])
        stranger = [*BOTH, ("Authorization", "Bearer " + "b" * 32)]
        stolen = [*stranger, session[-1]]
        unknown = [*stranger, ("Mcp-Session-Id", "x" * len(session[-1][1]))]
        for method, body in (("POST", call("echo")), ("GET", b""), ("DELETE", b"")):
            answers = [await fetch(served, method, "/mcp", lines, body) for lines in (stolen, unknown)]
            assert [answer.status for answer in answers] == [404, 404]
            assert answers[0].body == answers[1].body
        assert served.dispatcher.methods == ["initialize"]
        assert (await fetch(served, "POST", "/mcp", session, call("echo"))).status == 200


async def test_a_configured_origin_gets_cors_headers() -> None:
    async with serving(Listen(port=0, token=TOKEN, allowed_origins=("https://app.example",))) as served:
        origin = ("Origin", "https://app.example")
        preflight_headers = [
            origin,
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization"),
        ]
        preflight = await fetch(served, "OPTIONS", "/mcp", preflight_headers)
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        refusal = await fetch(served, "POST", "/mcp", [*BOTH, origin], message("initialize", {}))
        assert (refusal.status, refusal.headers["access-control-allow-origin"]) == (401, "https://app.example")
        evil = await fetch(served, "OPTIONS", "/mcp", [("Origin", "https://evil.example"), *preflight_headers[1:]])
        assert evil.status == 403
        assert "access-control-allow-origin" not in evil.headers
