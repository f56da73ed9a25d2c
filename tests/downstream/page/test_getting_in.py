"""Who gets into the live page, and what an attacker on the machine or on the web gets: nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream.page.sessions import (
    AT_THE_MACHINE,
    LINK_SECONDS,
    MAX_LINKS,
    MAX_OF_ONE,
    MAX_SESSIONS,
    OneTimeLinks,
    PageSessions,
    Viewer,
)
from mcp_hub.security import Principal
from tests.downstream.network.issuer import AUDIENCE, issuing
from tests.downstream.network.visitor import TOKENS
from tests.downstream.page.acting import refusal
from tests.downstream.page.opened import OpenPage, ServedHub, served_hub
from tests.fakes.client import PATIENCE, fake

pytestmark = pytest.mark.anyio

EVIL = "http://evil.example"
NETWORK = {"principals": {"alice": {"token": TOKENS["alice"], "profile": "adding"}, "bob": TOKENS["bob"]}}
PROFILES = {"adding": {"tools": ["a/add"]}}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_link_works_once() -> None:
    links = OneTimeLinks()
    secret = links.issue()
    assert len(secret) * 6 >= 128
    assert [links.redeem(secret), links.redeem(secret)] == [True, False]


def test_a_link_expires_after_a_minute() -> None:
    clock = Clock()
    links = OneTimeLinks(clock)
    early, late = links.issue(), links.issue()
    clock.now += LINK_SECONDS
    assert links.redeem(early)
    clock.now += 0.1
    assert not links.redeem(late)
    assert not links.waiting


def test_the_number_of_unused_links_is_bounded() -> None:
    links = OneTimeLinks()
    secrets = [links.issue() for _ in range(MAX_LINKS + 1)]
    assert [links.redeem(secret) for secret in secrets] == [False] + [True] * MAX_LINKS


def test_an_idle_page_session_expires_and_one_with_an_open_stream_does_not() -> None:
    clock = Clock()
    sessions = PageSessions(clock)
    idle, open_one = sessions.begin(AT_THE_MACHINE), sessions.begin(AT_THE_MACHINE)
    open_one.streams = 1
    clock.now += 9 * 3600
    assert sessions.find(idle.token, [f"{idle.cookie_name}={idle.cookie}"]) is None
    assert sessions.find(open_one.token, [f"x=1; {open_one.cookie_name}={open_one.cookie}; y=2"]) is open_one


def test_cookies_of_two_sessions_do_not_replace_each_other() -> None:
    sessions = PageSessions()
    first, second = sessions.begin(AT_THE_MACHINE), sessions.begin(AT_THE_MACHINE)
    both = f"{first.cookie_name}={first.cookie}; {second.cookie_name}={second.cookie}"
    assert sessions.find(first.token, [both]) is first
    assert sessions.find(second.token, [both]) is second
    assert sessions.find(first.token, [f"{second.cookie_name}={second.cookie}"]) is None
    assert sessions.find(first.token, [f"{first.cookie_name}={second.cookie}"]) is None


async def attempt(served: ServedHub, body: Any, **headers: str) -> httpx2.Response:
    """A request for a session with these headers."""
    sent_headers = {"origin": served.base, "content-type": "application/json", **headers}
    async with httpx2.AsyncClient(base_url=served.base, timeout=PATIENCE) as http:
        return await http.post("/ui/api/session", content=json.dumps(body), headers=sent_headers)


def test_many_sessions_of_callers_do_not_evict_the_local_users_session() -> None:
    sessions = PageSessions()
    machine = sessions.begin(AT_THE_MACHINE)
    for name in range(MAX_SESSIONS):
        viewer = Viewer(Principal(f"p{name}"), "p", admin=False, network=True, token="x")
        opened = [sessions.begin(viewer) for _ in range(MAX_OF_ONE + 1)]
        assert [session.ended for session in opened] == [True] + [False] * MAX_OF_ONE
    assert len(sessions) == MAX_SESSIONS
    assert not machine.ended


async def test_page_sessions_end_when_a_reload_disables_the_page(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page, page.events() as events:
        served.app.take(Listen(port=served.port, ui=False))
        assert await events.next("bye") == {"reason": "the session has ended"}
        assert (await page.get("state")).status_code == 404
        served.app.take(Listen(port=served.port))
        assert (await page.get("state")).status_code == 401


async def test_a_link_opens_the_page_once(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served:
        secret = await served.secret()
        first, second = await attempt(served, {"secret": secret}), await attempt(served, {"secret": secret})
        assert first.json()["who"] == {
            "principal": "", "label": "you, at this machine", "admin": True, "network": False
        }  # fmt: skip
        cookie = first.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/ui"} <= set(cookie.split("; "))
        assert second.status_code == 401
        assert second.json()["error"]["code"] == "link"
        assert "mcp-hub open" in second.json()["error"]["cure"]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://localhost"},
    ],
)
async def test_a_request_of_another_origin_does_not_consume_a_link(tmp_path: Path, headers: dict[str, str]) -> None:
    async with served_hub(tmp_path, {}) as served:
        secret = await served.secret()
        assert (await attempt(served, {"secret": secret}, **headers)).status_code == 403
        assert (await attempt(served, {"secret": secret})).status_code == 200


async def test_an_origin_that_may_call_tools_may_not_open_the_page(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}, {"allowed_origins": ["https://app.example"]}) as served:
        answer = await attempt(served, {"secret": await served.secret()}, origin="https://app.example")
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "origin"
        assert "access-control-allow-origin" not in answer.headers


async def test_a_request_for_a_session_without_an_origin_is_refused(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, httpx2.AsyncClient(base_url=served.base) as http:
        answer = await http.post("/ui/api/session", json={"secret": await served.secret()})
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "x",
        {},
        {"secret": ""},
        {"secret": "x" * 22},
        {"secret": 1},
        {"secret": None, "token": ""},
        {"token": "x" * 40},
        {"token": "\u202e"},
        {"secret": "\ud800"},
    ],
)
async def test_only_a_link_secret_or_a_token_opens_a_page_session(tmp_path: Path, body: Any) -> None:
    async with served_hub(tmp_path, {}) as served:
        answer = await attempt(served, body)
        assert answer.status_code in (400, 401)
        assert set(answer.json()["error"]) == {"code", "message", "cure"}
        assert "set-cookie" not in answer.headers


async def test_a_form_of_another_page_cannot_send_json(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served:
        secret = await served.secret()
        answer = await attempt(served, {"secret": secret}, **{"content-type": "text/plain"})
        assert answer.status_code == 415
        assert (await attempt(served, {"secret": secret})).status_code == 200


async def test_ten_megabytes_instead_of_a_secret_are_refused(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served:
        assert (await attempt(served, {"secret": "x" * 10_000_000})).status_code == 413


async def test_a_page_request_needs_both_cookie_and_token(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page, served.looking() as second_page:
        first, second = page.headers, second_page.headers
        invalid: list[dict[str, str]] = [
            {},
            {"cookie": first["cookie"]},
            {"x-mcp-hub-page": first["x-mcp-hub-page"]},
            {"cookie": first["cookie"], "x-mcp-hub-page": ""},
            {"cookie": first["cookie"], "x-mcp-hub-page": second["x-mcp-hub-page"]},
            {"cookie": second["cookie"], "x-mcp-hub-page": first["x-mcp-hub-page"]},
            {**first, "cookie": first["cookie"] + "x"},
        ]
        for headers in invalid:
            for path in ("state", "calls", "calls/x", "events", "nothing"):
                answer = await page.http.get(f"/ui/api/{path}", headers=headers)
                assert answer.status_code == 401, (path, headers)
        assert (await page.get("state")).status_code == 200


async def test_a_program_on_another_port_that_was_sent_the_cookie_gets_nothing(tmp_path: Path) -> None:
    """Browsers send cookies of 127.0.0.1 to every port of it."""
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        thief = OpenPage(page.http, served.base)
        thief.headers = {"cookie": page.headers["cookie"]}
        assert (await thief.get("state")).status_code == 401
        planted = {"x-mcp-hub-page": page.headers["cookie"].partition("=")[2]}
        assert (await thief.get("state", **planted)).status_code == 401


async def test_a_session_ends_when_the_page_signs_out(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        foreign = await page.http.delete("/ui/api/session", headers={**page.headers, "origin": EVIL})
        assert foreign.status_code == 403
        own = await page.http.delete("/ui/api/session", headers={**page.headers, "origin": served.base})
        assert own.status_code == 200
        assert (await page.get("state")).status_code == 401


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/static/page.css", "/ui/api/state", "/ui/api/session", "/"])
async def test_another_host_name_is_refused(tmp_path: Path, path: str) -> None:
    """A name of the attacker's that resolves to 127.0.0.1 (DNS rebinding)."""
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        headers = {**page.headers, "host": f"evil.example:{served.port}"}
        assert (await page.http.get(path, headers=headers)).status_code == 421
        answer = await page.http.post(
            path, headers={**headers, "origin": f"http://evil.example:{served.port}"}, json={}
        )
        assert answer.status_code == 421


@pytest.mark.parametrize("path", ["/ui", "/ui/static/app.js", "/ui/api/state", "/ui/api/none", "/ui/none"])
async def test_every_page_response_has_a_strict_csp_and_forbids_framing(tmp_path: Path, path: str) -> None:
    async with served_hub(tmp_path, {}) as served, httpx2.AsyncClient(base_url=served.base) as http:
        headers = (await http.get(path)).headers
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} <= set(policy)
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path",
    ["/ui/static/../__init__.py", "/ui/static/%2e%2e/__init__.py", "/ui/static//etc/passwd", "/ui/static/", "/ui/x"],
)
async def test_only_files_of_the_page_are_served(tmp_path: Path, path: str) -> None:
    async with served_hub(tmp_path, {}) as served, httpx2.AsyncClient(base_url=served.base) as http:
        answer = await http.send(httpx2.Request("GET", httpx2.URL(served.base).copy_with(raw_path=path.encode())))
        assert answer.status_code == 404


async def test_an_unchanged_static_file_is_answered_304(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, httpx2.AsyncClient(base_url=served.base) as http:
        first = await http.get("/ui")
        second = await http.get("/ui", headers={"if-none-match": first.headers["etag"]})
        assert (second.status_code, second.content) == (304, b"")
        assert (await http.head("/ui")).content == b""
        assert (await http.post("/ui", json={}, headers={"origin": served.base})).status_code == 405


async def test_no_get_changes_anything(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page:
        page_of_hub = served.access.page
        assert len(page_of_hub.sessions) == 1
        for path in ("session", "actions/restart", "run", "answer"):
            assert (await page.get(path)).status_code in (404, 405)
        assert len(page_of_hub.sessions) == 1


async def test_the_root_url_shows_a_browser_a_link_to_the_page(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, httpx2.AsyncClient(base_url=served.base) as http:
        html = await http.get("/", headers={"accept": "text/html,application/xhtml+xml"})
        assert html.headers["content-type"] == "text/html; charset=utf-8"
        assert '<a href="/ui">' in html.text
        assert "/mcp" in html.text
        assert "mcp-hub open" in (await http.get("/", headers={"accept": "*/*"})).text


async def test_a_cross_site_navigation_is_accepted_only_at_the_sign_in_return_path(tmp_path: Path) -> None:
    """The site of the sign-in leads it here, by a navigation."""
    navigation = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    embedded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    async with served_hub(tmp_path, {}) as served, httpx2.AsyncClient(base_url=served.base) as http:
        assert (await http.get("/ui/return?code=x&state=y", headers=navigation)).status_code == 400
        assert (await http.get("/ui/return?code=x&state=y", headers=embedded)).status_code == 403
        assert (await http.get("/ui/return", headers={**navigation, "host": "evil.example"})).status_code == 421
        for path in ("/ui", "/ui/api/state", "/mcp"):
            assert (await http.get(path, headers=navigation)).status_code == 403
    async with (
        served_hub(tmp_path, {}, {"ui": False}) as served,
        httpx2.AsyncClient(base_url=served.base) as http,
    ):
        assert (await http.get("/ui/return", headers=navigation)).status_code == 403


def test_the_page_is_served_by_default_only_on_loopback() -> None:
    token = "t" * 40
    assert Listen().serves_page
    assert Listen(token=token).serves_page
    assert not Listen(ui=False).serves_page
    assert not Listen(host="0.0.0.0", token=token).serves_page
    assert not Listen(token=token, public_host=("hub.example",)).serves_page
    assert Listen(host="0.0.0.0", token=token, ui=True).serves_page


@pytest.mark.parametrize("listen", [{"ui": False}, {"public_host": ["hub.example"], "token": "t" * 40}])
async def test_a_disabled_page_answers_404_on_every_path(tmp_path: Path, listen: dict[str, Any]) -> None:
    async with served_hub(tmp_path, {}, listen) as served, httpx2.AsyncClient(base_url=served.base) as http:
        for path in ("/ui", "/ui/", "/ui/static/page.css", "/ui/api/state"):
            assert (await http.get(path)).status_code == 404
        assert "/ui" not in (await http.get("/", headers={"accept": "text/html"})).text


async def test_a_caller_signs_in_with_its_own_token(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"a": fake()}, NETWORK, profiles=PROFILES) as served,
        served.looking(token=TOKENS["alice"]) as alice,
    ):
        assert alice.viewer == {"principal": "alice", "label": "alice", "admin": False, "network": True}
        assert (await alice.get("state")).status_code == 200


async def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {}, NETWORK, profiles=PROFILES) as served,
        served.looking(token=TOKENS["alice"]) as alice,
        served.looking(token=TOKENS["bob"]) as bob,
    ):
        served.app.take(Listen(port=served.port, principals={"bob": {"token": TOKENS["bob"]}}))  # type: ignore[dict-item]
        assert (await alice.get("state")).status_code == 401
        assert (await bob.get("state")).status_code == 200


async def test_a_principal_configured_as_admin_sees_all_servers(tmp_path: Path) -> None:
    listen = {"principals": {"ann": {"token": TOKENS["alice"], "profile": "adding", "admin": True}}}
    async with (
        served_hub(tmp_path, {"a": fake(), "b": fake()}, listen, profiles=PROFILES) as served,
        served.looking(token=TOKENS["alice"]) as ann,
    ):
        assert ann.viewer["admin"] is True
        assert [row["server"] for row in (await ann.found("state"))["servers"]] == ["a", "b"]


async def test_a_verified_subject_named_like_an_admin_is_no_admin(tmp_path: Path) -> None:
    async with issuing() as issuer:
        jwt = {"issuer": issuer.url, "audience": AUDIENCE, "jwks_uri": f"{issuer.url}/keys"}
        listen = {"principals": {"ann": {"token": TOKENS["alice"], "admin": True}}, "verify": {"jwt": jwt}}
        async with (
            served_hub(tmp_path, {"a": fake()}, listen) as served,
            served.looking(token=TOKENS["alice"]) as ann,
            served.looking(token=issuer.token(sub="ann")) as verified,
        ):
            assert [ann.viewer["admin"], verified.viewer["admin"]] == [True, False]
            assert await refusal(verified, "restart", server="a") == (403, "not_admin")
