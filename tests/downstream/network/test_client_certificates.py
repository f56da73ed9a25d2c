"""Clients with a certificate: its name says which principal they are, and nothing else lets them in."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import PeerPrincipals, check_listener
from mcp_hub.transport.http1.peers import CertifiedPeer
from tests.downstream.network.authority import Authority
from tests.downstream.raw_http import Connection, Lines, Response, modern, request
from tests.downstream.scripted import Served, serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio

TOKENS = {name: name * 10 + "0123456789" for name in ("alice", "carol")}
SPIFFE = "spiffe://cluster.example/ns/agents/sa/builder"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def listening(authority: Authority, **settings: Any) -> Listen:
    principals = {
        "alice": {"token": TOKENS["alice"]},
        "bob.example": {},
        "builder": {"certificate": SPIFFE},
        "erin": {"certificate": ["erin@example.com", "erin.example"]},
        "carol": {"token": TOKENS["carol"], "certificate": "carol-1"},
    }
    tls = authority.server(client_ca=authority.file)
    return Listen.model_validate({"port": 0, "tls": tls, "principals": principals, **settings})


@contextlib.asynccontextmanager
async def connected(served: Served, context: ssl.SSLContext) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


async def ask(served: Served, context: ssl.SSLContext, headers: Lines = ()) -> Response:
    lines, body = modern("tools/list")
    async with connected(served, context) as connection:
        connection.send(request(served, "POST", "/mcp", [*lines, *headers], body))
        return await connection.response()


def principal_of(served: Served) -> list[str]:
    return [str(connection.principal) for connection in served.dispatcher.connections]


def bearer(name: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {TOKENS.get(name, name * 10)}")]


NAMES: dict[str, tuple[list[x509.GeneralName], str, str | None]] = {
    "a common name": ([], "alice", "alice"),
    "a common name in capitals": ([], "Alice", "alice"),
    "a name of DNS": ([x509.DNSName("BOB.example")], "", "bob.example"),
    "a URI": ([x509.UniformResourceIdentifier(SPIFFE)], "", "builder"),
    "an address of mail": ([x509.RFC822Name("erin@example.com")], "", "erin"),
    "two names of one": ([x509.RFC822Name("erin@example.com"), x509.DNSName("erin.example")], "", "erin"),
    "one name of somebody": ([x509.DNSName("other.example"), x509.DNSName("bob.example")], "", "bob.example"),
    "names of two": ([x509.DNSName("bob.example"), x509.RFC822Name("erin@example.com")], "", None),
    "a common name beside others": ([x509.DNSName("other.example")], "alice", None),
    "a wildcard": ([x509.DNSName("*.example")], "", None),
    "nobody": ([], "mallory", None),
    "a name of a principal that has another": ([], "carol", None),
    "no name": ([], "", None),
}


@pytest.mark.parametrize("case", NAMES)
async def test_the_name_of_the_certificate_is_the_principal(authority: Authority, case: str) -> None:
    names, common, principal = NAMES[case]
    certificate = authority.signed(names, common=common)
    async with serving(listening(authority)) as served:
        answer = await ask(served, authority.client(certificate))
        assert answer.status == (403 if principal is None else 200), answer
        assert principal_of(served) == ([] if principal is None else [principal])
        if principal is None:
            (record,) = served.dispatcher.refusals
            assert (record["cause"], record["status"], record["peer"]) == ("certificate", 403, "127.0.0.1")
            # No token helps: a certificate that is nobody's is not passed over.
            assert (await ask(served, authority.client(certificate), bearer("alice"))).status == 403


async def test_a_client_without_a_certificate_needs_a_token(authority: Authority) -> None:
    async with serving(listening(authority)) as served:
        assert (await ask(served, authority.client())).status == 401
        assert (await ask(served, authority.client(), bearer("alice"))).status == 200
        assert principal_of(served) == ["alice"]


async def test_a_token_and_a_certificate_must_name_the_same_principal(authority: Authority) -> None:
    certificate = authority.client(authority.signed(common="alice"))
    async with serving(listening(authority)) as served:
        assert (await ask(served, certificate, bearer("alice"))).status == 200
        assert (await ask(served, certificate, bearer("carol"))).status == 403
        assert (await ask(served, certificate, bearer("unknown"))).status == 403
        assert principal_of(served) == ["alice"]


@pytest.mark.parametrize("case", ["another authority", "ended", "of a server", "revoked"])
async def test_an_invalid_client_certificate_ends_the_tls_handshake(
    tmp_path: Path, authority: Authority, case: str
) -> None:
    import datetime

    listen = listening(authority)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if case == "of a server" else ExtendedKeyUsageOID.CLIENT_AUTH
    ends = datetime.timedelta(minutes=-5 if case == "ended" else 5)
    signer = Authority(tmp_path, "other") if case == "another authority" else authority
    invalid, valid = signer.signed(common="alice", usage=usage, ends=ends), authority.signed(common="alice")
    if case == "revoked":
        authority.file.write_bytes(authority.file.read_bytes() + authority.revocations(invalid[0]))
    async with serving(listen) as served:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask(served, authority.client(invalid))
        assert (await ask(served, authority.client(valid))).status == 200
        assert served.app.refusals.facts() == {"tls": 1}


async def test_the_certificate_of_a_trusted_proxy_makes_no_principal(authority: Authority) -> None:
    proxy = authority.client(authority.signed(common="alice"))
    listen = listening(authority, trusted_proxies=["127.0.0.1"])
    forwarded = [("X-Forwarded-For", "203.0.113.9")]
    async with serving(listen) as served:
        assert (await ask(served, proxy, forwarded)).status == 401
        assert (await ask(served, proxy)).status == 401
        assert (await ask(served, proxy, [*forwarded, *bearer("carol")])).status == 200
        assert principal_of(served) == ["carol"]


def test_a_certified_peer_is_no_principal_after_its_certificate_expires(authority: Authority) -> None:
    now = 1000.0
    principals = PeerPrincipals(listening(authority), now=lambda: now)
    peer = CertifiedPeer(("alice",), until=1001.0)
    assert principals.of(peer, []) == "alice"
    now = 1001.0
    assert principals.of(peer, []) == "certificate_ended"


async def test_requests_on_an_open_connection_are_refused_after_its_certificate_expires(authority: Authority) -> None:
    async with serving(listening(authority)) as served:
        for seconds in (2, 8, 32):  # a busy machine may take longer than that to connect
            certificate = authority.signed(common="alice", ends=datetime.timedelta(seconds=seconds))
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                answers = await answers_until_refused(served, authority.client(certificate))
                if len(answers) > 1:
                    break
        assert answers[0].status == 200
        assert answers[-1].status == 403
        assert b"The certificate has ended; connect with a new one." in answers[-1].body
        assert {*principal_of(served)} == {"alice"}
        assert {(record["cause"], record["status"]) for record in served.dispatcher.refusals} == {("certificate", 403)}


async def answers_until_refused(served: Served, context: ssl.SSLContext) -> list[Response]:
    """Asks on one connection until it is refused."""
    lines, body = modern("tools/list")
    answers: list[Response] = []
    async with connected(served, context) as connection, asyncio.timeout(60):
        while not answers or answers[-1].status == 200:
            connection.send(request(served, "POST", "/mcp", lines, body))
            answers.append(await connection.response())
            await asyncio.sleep(0.05)
    return answers


async def test_requests_of_a_removed_certificate_principal_are_refused(authority: Authority) -> None:
    certificate = authority.client(authority.signed([x509.DNSName("bob.example")]))
    listen = listening(authority)
    async with serving(listen) as served, connected(served, certificate) as connection:
        lines, body = modern("tools/list")
        connection.send(request(served, "POST", "/mcp", lines, body))
        assert (await connection.response()).status == 200
        remaining = {name: principal for name, principal in listen.principals.items() if name != "bob.example"}
        served.app.take(listen.model_copy(update={"principals": remaining}))
        connection.send(request(served, "POST", "/mcp", lines, body))
        assert (await connection.response()).status == 403


CASES: list[tuple[dict[str, Any], str]] = [
    ({"principals": {"alice": {}}}, "listen.principals.alice.token is missing"),
    ({"principals": {"alice": {"token": "t" * 40, "certificate": "a"}}}, "needs listen.tls.client_ca"),
    ({"tls": {"cert": "c", "key": "k", "client_ca": "a"}}, "lets nobody in"),
    (
        {
            "tls": {"cert": "c", "key": "k", "client_ca": "a"},
            "principals": {"alice": {}, "bob": {"certificate": ["x", "ALICE"]}},
        },
        "alice and bob have the same certificate",
    ),
]


@pytest.mark.parametrize(("listen", "words"), CASES)
def test_certificate_settings_that_match_no_principal_or_two_are_refused(listen: dict[str, Any], words: str) -> None:
    assert words in str(check_listener(Listen.model_validate(listen)))


async def test_a_client_ca_file_without_certificates_is_reported(authority: Authority, tmp_path: Path) -> None:
    from mcp_hub.errors import HubError

    listen = listening(authority)
    authority.file.write_text("nothing")
    with pytest.raises(HubError, match=r"listen\.tls\.client_ca: .* has no certificates in PEM"):
        async with serving(listen):
            pass
