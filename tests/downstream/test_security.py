from __future__ import annotations

from typing import Any

import pytest

from mcp_hub.config.listen import TOKEN_HOLDER
from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import Gate, Refusal, check_listener
from mcp_hub.security import ANONYMOUS, Principal

TOKEN = "t" * 32
PORT = 8808


def verdict(listen: Listen, *lines: tuple[bytes, bytes]) -> int:
    """Status of the refusal, 0 if there is none."""
    refusal = Gate(listen).refusal(lines, PORT)
    return refusal.status if refusal is not None else 0


LOOPBACK_HOSTS: list[tuple[bytes, int]] = [
    (b"localhost", 0),
    (b"LOCALHOST:8808", 0),
    (b"127.0.0.1:8808", 0),
    (b"127.0.0.1:9999", 0),
    (b"[::1]:8808", 0),
    (b"[::1]", 0),
    (b"mine.example", 0),
    (b"mine.example:1", 0),
    (b"ported.example:81", 0),
    (b"ported.example", 421),
    (b"ported.example:82", 421),
    (b"any.example:5", 0),
    (b"evil.example", 421),
    (b"evil.example:8808", 421),
    (b"127.0.0.1.evil.example", 421),
    (b"localhost.", 421),
    (b"localhost:8808@evil.example", 421),
    (b"user@localhost", 421),
    (b"localhost/path", 421),
    (b"localhost?x", 421),
    (b"localhost#x", 421),
    (b"local host", 421),
    (b" localhost", 421),
    (b"localhost\t", 421),
    (b"localhost:", 421),
    (b"localhost:port", 421),
    (b"localhost:123456", 421),
    (b"localhost,evil.example", 421),
    (b"[::1", 421),
    (b"::1", 421),
    (b"[::1]x", 421),
    (b"http://localhost", 421),
    (b"l\xc3\xb6calhost", 421),
    (b"localhost\x00", 421),
    (b"", 421),
]


@pytest.mark.parametrize(("host", "status"), LOOPBACK_HOSTS)
def test_a_loopback_listener_serves_only_loopback_host_names(host: bytes, status: int) -> None:
    listen = Listen(allowed_hosts=("mine.example", "ported.example:81", "Any.Example:*"))
    assert verdict(listen, (b"host", host)) == status


def test_a_missing_and_a_repeated_host_are_refused_with_the_name_of_the_setting() -> None:
    for lines in ((), ((b"host", b"localhost"), (b"host", b"localhost"))):
        refusal = Gate(Listen()).refusal(lines, PORT)
        assert refusal is not None
        assert refusal.status == 421
        assert "listen.allowed_hosts" in refusal.text


def test_a_public_listener_serves_any_well_formed_host_unless_allowed_hosts_is_set() -> None:
    public = Listen(host="0.0.0.0", token=TOKEN)
    assert verdict(public, (b"host", b"anything.example")) == 0
    assert verdict(public, (b"host", b"any@thing")) == 421
    restricted = Listen(host="0.0.0.0", token=TOKEN, allowed_hosts=("mine.example",))
    assert verdict(restricted, (b"host", b"mine.example")) == 0
    assert verdict(restricted, (b"host", b"anything.example")) == 421


@pytest.mark.parametrize("names", [{"public_host": ("mine.example",)}, {"allowed_hosts": ("mine.example",)}])
def test_a_public_listener_answers_local_health_checks_for_any_host(names: dict[str, Any]) -> None:
    listen = Listen(host="0.0.0.0", token=TOKEN, **names)
    assert verdict(listen, (b"host", b"127.0.0.1:8808")) == 0
    assert verdict(listen, (b"host", b"localhost:8808"), (b"origin", b"http://localhost:8808")) == 403


def test_a_listener_on_one_address_serves_that_address() -> None:
    listen = Listen(host="192.0.2.7", token=TOKEN)
    assert verdict(listen, (b"host", b"192.0.2.7:8808")) == 0
    assert verdict(listen, (b"host", b"localhost")) == 421
    assert verdict(Listen(host="fe80::7", token=TOKEN), (b"host", b"[FE80::7]:1")) == 0


ORIGINS: list[tuple[bytes, int]] = [
    (b"http://localhost:8808", 0),
    (b"http://127.0.0.1:8808", 0),
    (b"http://[::1]:8808", 0),
    (b"https://app.example", 0),
    (b"HTTPS://APP.example", 0),
    (b"https://app.example:444", 403),
    (b"https://app.example.evil", 403),
    (b"http://app.example", 403),
    (b"http://localhost:8809", 403),
    (b"http://localhost", 403),
    (b"https://localhost:8808", 403),
    (b"http://localhost:8808.evil.example", 403),
    (b"null", 403),
    (b"", 403),
    (b"http://evil.example", 403),
]


@pytest.mark.parametrize(("origin", "status"), ORIGINS)
def test_only_own_and_configured_origins_are_served(origin: bytes, status: int) -> None:
    listen = Listen(allowed_origins=("https://app.example/",))
    assert verdict(listen, (b"host", b"localhost"), (b"origin", origin)) == status


def test_a_repeated_origin_is_refused_with_the_name_of_the_setting() -> None:
    own = (b"origin", b"http://localhost:8808")
    refusal = Gate(Listen()).refusal([(b"host", b"localhost"), own, own], PORT)
    assert refusal is not None
    assert refusal.status == 403
    assert "listen.allowed_origins" in refusal.text


SITES: list[tuple[list[bytes], bytes | None, int]] = [
    ([], None, 0),
    ([b"none"], None, 0),
    ([b"same-origin"], None, 0),
    ([b"Same-Origin "], None, 0),
    ([b"cross-site"], None, 403),
    ([b"same-site"], None, 403),
    ([b"same-origin", b"cross-site"], None, 403),
    ([b""], None, 403),
    ([b"cross-site"], b"https://app.example", 0),
    ([b"same-site"], b"http://localhost:8808", 0),
    ([b"cross-site"], b"https://evil.example", 403),
    ([b"same-origin"], b"null", 403),
]


@pytest.mark.parametrize(("sites", "origin", "status"), SITES)
def test_a_cross_site_request_needs_an_accepted_origin(sites: list[bytes], origin: bytes | None, status: int) -> None:
    lines = [(b"host", b"localhost"), *((b"sec-fetch-site", site) for site in sites)]
    lines += [(b"origin", origin)] if origin is not None else []
    assert verdict(Listen(allowed_origins=("https://app.example",)), *lines) == status


@pytest.mark.parametrize("name", [b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"])
def test_a_forwarded_request_needs_a_listener_with_a_token(name: bytes) -> None:
    lines = ((b"host", b"localhost"), (name, b"192.0.2.1"))
    assert verdict(Listen(), *lines) == 403
    assert verdict(Listen(token=TOKEN), *lines) == 0


AUTHORIZATIONS: list[tuple[list[bytes], bool]] = [
    ([f"Bearer {TOKEN}".encode()], True),
    ([f"bearer   {TOKEN}".encode()], True),
    ([], False),
    ([b""], False),
    ([TOKEN.encode()], False),
    ([f"Basic {TOKEN}".encode()], False),
    ([f"Bearer {TOKEN}x".encode()], False),
    ([f"Bearer {TOKEN[:-1]}".encode()], False),
    ([b"Bearer "], False),
    ([b"Bearer \xff\xff"], False),
    ([f"Bearer {TOKEN}".encode()] * 2, False),
    ([f"Bearer {TOKEN}".encode(), b"Bearer x"], False),
]


@pytest.mark.parametrize(("values", "admitted"), AUTHORIZATIONS)
def test_only_the_exact_token_is_accepted(values: list[bytes], admitted: bool) -> None:
    outcome = Gate(Listen(token=TOKEN)).admit([(b"authorization", value) for value in values])
    if admitted:
        assert outcome == TOKEN_HOLDER
    else:
        assert isinstance(outcome, Refusal)
        assert outcome.status == 401
        assert outcome.challenge is not None
        assert outcome.challenge.startswith(b"Bearer")
        assert TOKEN not in outcome.text


def test_every_caller_of_a_listener_without_a_token_is_anonymous() -> None:
    assert Gate(Listen()).admit([(b"authorization", b"Bearer whatever")]) == ANONYMOUS


LISTENERS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"host": "localhost"}, None),
    ({"host": "LocalHost"}, None),
    ({"host": "127.0.0.53"}, None),
    ({"host": "::1"}, None),
    ({"host": "[::1]"}, None),
    ({"host": ""}, "listen.token"),
    ({"host": "0.0.0.0"}, "listen.token"),
    ({"host": "::"}, "listen.token"),
    ({"host": "192.0.2.7"}, "listen.token"),
    ({"host": "a-name.example"}, "listen.token"),
    ({"host": "localhost.example"}, "listen.token"),
    ({"host": "0.0.0.0", "token": TOKEN}, None),
    ({"host": "0.0.0.0", "token": TOKEN[:-1]}, "32"),
    ({"token": "short"}, "32"),
    ({"token": ""}, "32"),
    ({"token": TOKEN + "\n"}, "visible"),
    ({"token": "ü" * 32}, "visible"),
    ({"allowed_origins": ["null"]}, "allowed_origins"),
    ({"allowed_origins": ["https://app.example", " NULL"]}, "allowed_origins"),
    ({"allowed_origins": ["null"], "token": TOKEN}, None),
    ({"allowed_origins": ["https://app.example"]}, None),
    ({"allowed_hosts": ["mine.example"]}, "allowed_hosts"),
    ({"allowed_hosts": ["localhost", "mine.example:8808"]}, "allowed_hosts"),
    ({"allowed_hosts": ["mine.example:*"]}, "allowed_hosts"),
    ({"allowed_hosts": ["mine.example"], "token": TOKEN}, None),
    ({"allowed_hosts": ["localhost:8808", "127.0.0.1:*", "[::1]:80", "127.0.0.53"]}, None),
]


@pytest.mark.parametrize(("fields", "reason"), LISTENERS)
def test_a_public_listener_without_authentication_is_refused(fields: dict[str, Any], reason: str | None) -> None:
    problem = check_listener(Listen(**fields))
    assert (problem is None) == (reason is None)
    assert reason is None or reason in str(problem)
    secret = fields.get("token")
    assert not secret or secret not in str(problem)


FORWARDING: list[tuple[bytes, bytes]] = [
    (b"x-forwarded-host", b"evil.example"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-user", b"alice"),
    (b"x-forwarded-client-cert", b"URI=alice"),
    (b"forwarded", b"for=203.0.113.9;host=evil.example;proto=https"),
]


@pytest.mark.parametrize("peer", ["10.0.0.5", "192.0.2.1", "unix:1000"])
def test_forwarding_headers_change_neither_the_host_nor_the_principal(peer: str) -> None:
    listen = Listen.model_validate({"token": TOKEN, "trusted_proxies": ["10.0.0.0/8", "unix"]})
    gate = Gate(listen)
    for line in FORWARDING:
        assert gate.refusal([(b"host", b"localhost"), line], PORT) is None
        refusal = gate.refusal([(b"host", b"evil.example"), line], PORT)
        assert refusal is not None
        assert refusal.status == 421
        outcome = gate.admit([line])
        assert not isinstance(outcome, Principal)
        is_forwarded = peer != "192.0.2.1" and line[0] == b"forwarded"
        assert gate.peer(peer, [line]) == ("203.0.113.9" if is_forwarded else peer)


@pytest.mark.parametrize("line", FORWARDING, ids=lambda line: line[0].decode())
def test_forwarding_headers_are_refused_on_a_listener_without_authentication(line: tuple[bytes, bytes]) -> None:
    for proxies in ((), ("127.0.0.1",)):
        refusal = Gate(Listen(trusted_proxies=proxies)).refusal([(b"host", b"localhost"), line], PORT)
        assert refusal is not None
        assert (refusal.status, refusal.cause) == (403, "forwarded")
