"""Tokens that others issue: the good ones stand for somebody, and nothing else lets anybody in."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mcp_hub.config.listen import TokenVerification
from mcp_hub.downstream import verifier as verifiers
from mcp_hub.downstream.verifier import RejectedToken, Verifier
from mcp_hub.security import Principal
from mcp_hub.security.proxies import ProxyRules
from mcp_hub.transport.egress import Egress
from tests.downstream.network.issuer import AUDIENCE, CLIENT, Issuer, issuing, unsigned, with_secret
from tests.fakes.client import PATIENCE
from tests.transport.forward_proxy import forwarding

pytestmark = pytest.mark.anyio

NOW = time.time()
"""When the module was read; all that is relative to it is minutes away."""
DAY = 86_400
"""Far from when this module was imported, however long the tests before took."""


@contextlib.asynccontextmanager
async def verifying(verify: dict[str, Any], **options: Any) -> AsyncIterator[Verifier]:
    verifier = Verifier(TokenVerification.model_validate(verify), ("research",), keys_again_after=0.0, **options)
    try:
        async with asyncio.timeout(PATIENCE):
            yield verifier
    finally:
        await verifier.close()


def by_keys(issuer: Issuer, **settings: Any) -> dict[str, Any]:
    return {"issuer": issuer.url, "audience": AUDIENCE, "jwks_uri": f"{issuer.url}/keys", **settings}


def by_introspection(issuer: Issuer, **settings: Any) -> dict[str, Any]:
    client_id, secret = CLIENT
    endpoint = {"issuer": issuer.url, "endpoint": f"{issuer.url}/introspect"}
    return {**endpoint, "client_id": client_id, "client_secret": secret, **settings}


async def verdict(verifier: Verifier, token: str) -> str:
    """The reason of the rejection; the principal's name when there is none."""
    outcome = await verifier.verify(token.encode())
    return outcome.reason if isinstance(outcome, RejectedToken) else str(outcome)


def forged(issuer: Issuer) -> str:
    foreign = Issuer(url=issuer.url)
    foreign.key("one")
    return foreign.token()


BAD: dict[str, Callable[[Issuer], str]] = {
    "empty": lambda issuer: "",
    "no JWT": lambda issuer: "abc",
    "three empty parts": lambda issuer: "..",
    "made-up parts": lambda issuer: "e30.e30.e30",
    "a header that is no object": lambda issuer: "W10.e30.e30",
    "a deep header": lambda issuer: base64.urlsafe_b64encode(b"[" * 9000).decode().rstrip("=") + ".e30.e30",
    "too long": lambda issuer: issuer.token(pad="x" * verifiers.MAX_TOKEN),
    "algorithm none": lambda issuer: unsigned(issuer.claims()),
    "the public key as a shared secret": lambda issuer: with_secret(issuer.claims(), issuer.public_key),
    "another algorithm of the same key": lambda issuer: issuer.token(algorithm="PS256"),
    "signed by another key": forged,
    "a changed payload": lambda issuer: issuer.token().replace(".", ".e", 1),
    "a cut signature": lambda issuer: issuer.token()[:-4],
    "an unknown critical header": lambda issuer: issuer.odd_token({"crit": ["x"], "x": 1}),
    "expired": lambda issuer: issuer.token(exp=int(NOW) - 1),
    "without an end": lambda issuer: issuer.token(exp=None),
    "an end that is a text": lambda issuer: issuer.token(exp="never"),
    "an end that is true": lambda issuer: issuer.token(exp=True),
    "an end that never comes": lambda issuer: issuer.token(exp=math.inf),
    "an end that is no number": lambda issuer: issuer.token(exp=math.nan),
    "not begun": lambda issuer: issuer.token(nbf=int(NOW) + DAY),
    "a beginning that is a text": lambda issuer: issuer.token(nbf="soon"),
    "another issuer": lambda issuer: issuer.token(iss="https://evil.example"),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "issuers": lambda issuer: issuer.token(iss=[issuer.url]),
    "another audience": lambda issuer: issuer.token(aud="https://other.example/mcp"),
    "an audience that begins so": lambda issuer: issuer.token(aud=AUDIENCE + "/x"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "nobody": lambda issuer: issuer.token(sub=None),
    "an empty subject": lambda issuer: issuer.token(sub=""),
    "a subject that is a list": lambda issuer: issuer.token(sub=["ann"]),
    "a subject without end": lambda issuer: issuer.token(sub="a" * (verifiers.MAX_SUBJECT + 1)),
    "scopes that are no texts": lambda issuer: issuer.token(scope=[["use"]]),
    "with a byte outside of ASCII": lambda issuer: issuer.token() + "é",
}


@pytest.mark.parametrize("case", BAD)
async def test_a_token_with_any_defect_is_refused(case: str) -> None:
    async with issuing() as issuer, verifying({"jwt": by_keys(issuer)}) as verifier:
        assert isinstance(await verifier.verify(issuer.token().encode()), Principal)
        assert await verdict(verifier, BAD[case](issuer)) == "invalid"


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("RSA", "RS256"), ("RSA", "PS512"), ("EC", "ES256"), ("OKP", "Ed25519"), ("OKP", "EdDSA")],
)
@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # of the issuer's library
async def test_a_valid_token_makes_its_subject_the_principal(kind: str, algorithm: str) -> None:
    async with issuing() as issuer:
        issuer.key("two", kind)
        settings = {"jwt": by_keys(issuer, algorithms=["RS256", algorithm])}
        async with verifying(settings) as verifier:
            first, second, third = [
                await verifier.verify(issuer.token("two", algorithm, **claims).encode())
                for claims in ({}, {"jti": "another"}, {"sub": "ben"})
            ]
            assert first == second != third
            assert isinstance(first, Principal)
            assert first.profile is None


async def test_an_unknown_noncritical_token_header_is_ignored() -> None:
    async with issuing() as issuer, verifying({"jwt": by_keys(issuer)}) as verifier:
        assert isinstance(await verifier.verify(issuer.odd_token({"x": 1}).encode()), Principal)


async def test_a_user_and_a_client_of_the_same_name_are_different_principals() -> None:
    async with issuing() as issuer, verifying({"jwt": by_keys(issuer)}) as verifier:
        user = await verifier.verify(issuer.token(sub="ann").encode())
        program = await verifier.verify(issuer.token(sub=None, client_id="ann").encode())
        assert isinstance(user, Principal)
        assert isinstance(program, Principal)
        assert user != program


async def test_a_configured_key_needs_no_request_to_the_issuer() -> None:
    async with issuing() as issuer:
        settings = {"issuer": issuer.url, "audience": [AUDIENCE, "other"], "public_key": issuer.public_key}
        async with verifying({"jwt": settings}) as verifier:
            assert isinstance(await verifier.verify(issuer.token(aud=["x", "other"]).encode()), Principal)
            assert await verdict(verifier, forged(issuer)) == "invalid"
        assert issuer.requested_paths == []


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"scope": "use admin"}, "let in"),
        ({"scope": None, "scp": ["admin", "use"]}, "let in"),
        ({"scope": "use"}, "scope"),
        ({"scope": ""}, "scope"),
        ({"scope": None}, "scope"),
        ({"scope": "useadmin"}, "scope"),
        ({"scope": "USE ADMIN"}, "scope"),
    ],
)
async def test_a_token_must_have_every_required_scope(claims: dict[str, Any], expected: str) -> None:
    async with issuing() as issuer, verifying({"jwt": by_keys(issuer, required_scopes="use admin")}) as verifier:
        outcome = await verifier.verify(issuer.token(**claims).encode())
        assert (outcome.reason if isinstance(outcome, RejectedToken) else "let in") == expected


@pytest.mark.parametrize(
    ("settings", "claims", "profile"),
    [
        ({"profile": "research"}, {"hub": "other"}, "research"),
        ({"profile_claim": "hub"}, {"hub": "research"}, "research"),
        ({"profile_claim": "hub", "profile": "research"}, {}, "research"),
        ({"profile_claim": "hub"}, {}, None),
        ({"profile_claim": "hub"}, {"hub": "unheard of"}, None),
        ({"profile_claim": "hub", "profile": "research"}, {"hub": "unheard of"}, None),
        ({"profile_claim": "hub"}, {"hub": ["research"]}, None),
        ({"profile_claim": "hub"}, {"hub": ""}, None),
    ],
)
async def test_a_claim_selects_the_profile_and_an_unknown_profile_is_refused(
    settings: dict[str, Any], claims: dict[str, Any], profile: str | None
) -> None:
    async with issuing() as issuer, verifying({"jwt": by_keys(issuer), **settings}) as verifier:
        outcome = await verifier.verify(issuer.token(**claims).encode())
        if profile is None:
            assert outcome == RejectedToken("profile")
        else:
            assert isinstance(outcome, Principal)
            assert outcome.profile == profile


async def test_a_subject_with_another_profile_is_another_principal() -> None:
    async with issuing() as issuer:
        plain, with_profile = {"jwt": by_keys(issuer)}, {"jwt": by_keys(issuer), "profile": "research"}
        async with verifying(plain) as first, verifying(with_profile) as second:
            token = issuer.token().encode()
            assert await first.verify(token) != await second.verify(token)


async def test_introspection_uses_the_configured_client() -> None:
    async with issuing() as issuer:
        issuer.introspections["opaque"] = {"active": True, "sub": "ann"}
        for method in ("basic", "post"):
            async with verifying({"introspection": by_introspection(issuer, method=method)}) as verifier:
                assert isinstance(await verifier.verify(b"opaque"), Principal)
        basic = "Basic " + base64.b64encode(":".join(CLIENT).encode()).decode()
        assert issuer.authorizations == [basic, None]
        assert issuer.forms[1] == {
            "token": "opaque",
            "token_type_hint": "access_token",
            "client_id": CLIENT[0],
            "client_secret": CLIENT[1],
        }


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"active": True, "sub": "ann", "scope": "use"}, "let in"),
        ({"active": True, "client_id": "program", "scope": "use"}, "let in"),
        ({"active": True, "sub": "ann", "scope": "use", "exp": NOW + DAY}, "let in"),
        ({"active": True, "sub": "ann", "scope": "other"}, "scope"),
        ({"active": True, "sub": "ann"}, "scope"),
        ({"active": False, "sub": "ann", "scope": "use"}, "invalid"),
        ({"active": "false", "sub": "ann", "scope": "use"}, "invalid"),
        ({"active": 1, "sub": "ann", "scope": "use"}, "invalid"),
        ({"sub": "ann", "scope": "use"}, "invalid"),
        ({"active": True, "scope": "use"}, "invalid"),
        ({"active": True, "sub": "ann", "scope": "use", "exp": NOW - 1}, "invalid"),
        ({"active": True, "sub": "ann", "scope": "use", "exp": 0}, "invalid"),
        ({"active": True, "sub": "ann", "scope": "use", "exp": "2099"}, "invalid"),
        ({"active": True, "sub": "ann", "scope": "use", "nbf": NOW + DAY}, "invalid"),
        ({"active": True, "sub": "ann", "scope": "use", "iss": "https://evil.example"}, "invalid"),
    ],
)
async def test_introspection_results_are_interpreted_strictly(said: dict[str, Any], expected: str) -> None:
    async with issuing() as issuer:
        issuer.introspections["opaque"] = said
        async with verifying({"introspection": by_introspection(issuer, required_scopes="use")}) as verifier:
            outcome = await verifier.verify(b"opaque")
            assert (outcome.reason if isinstance(outcome, RejectedToken) else "let in") == expected


@pytest.mark.parametrize(("audience", "expected"), [(AUDIENCE, True), ("other", False), (None, False)])
async def test_introspection_can_require_an_audience(audience: str | None, expected: bool) -> None:
    async with issuing() as issuer:
        issuer.introspections["opaque"] = {"active": True, "sub": "ann", "aud": audience}
        async with verifying({"introspection": by_introspection(issuer, audience=AUDIENCE)}) as verifier:
            assert isinstance(await verifier.verify(b"opaque"), Principal) == expected


def broken_status(issuer: Issuer) -> None:
    issuer.status = 500


def broken_credentials(issuer: Issuer) -> None:
    issuer.status = 401


def broken_size(issuer: Issuer) -> None:
    issuer.padding = verifiers.MAX_ANSWER


@pytest.mark.parametrize("kind", ["jwt", "introspection"])
@pytest.mark.parametrize("broken", [broken_status, broken_credentials, broken_size])
async def test_tokens_are_refused_while_the_issuer_sends_invalid_responses(
    kind: str, broken: Callable[[Issuer], None]
) -> None:
    async with issuing() as issuer:
        token = issuer.token()
        issuer.introspections[token] = {"active": True, "sub": "ann"}
        settings = by_keys(issuer) if kind == "jwt" else by_introspection(issuer)
        broken(issuer)
        async with verifying({kind: settings}) as verifier:
            assert await verdict(verifier, token) == "unreachable"
            issuer.status, issuer.padding = 200, 0
            assert isinstance(await verifier.verify(token.encode()), Principal)


@pytest.mark.parametrize("kind", ["jwt", "introspection"])
async def test_while_the_issuer_is_unreachable_tokens_are_refused(kind: str) -> None:
    async with issuing() as issuer:
        token, settings = issuer.token(), by_keys(issuer) if kind == "jwt" else by_introspection(issuer)
    async with verifying({kind: settings}) as verifier:
        assert await verdict(verifier, token) == "unreachable"


async def test_keys_are_not_fetched_through_a_redirect() -> None:
    async with issuing() as issuer:
        async with verifying({"jwt": by_keys(issuer, jwks_uri=f"{issuer.url}/elsewhere")}) as verifier:
            assert await verdict(verifier, issuer.token()) == "unreachable"
        assert issuer.requested_paths == ["/elsewhere"]


async def test_with_a_silent_issuer_tokens_are_refused_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "VERIFY_DEADLINE", 0.05)
    async with issuing() as issuer:
        issuer.hold = asyncio.Event()
        async with verifying({"introspection": by_introspection(issuer)}) as verifier:
            assert await verdict(verifier, "opaque") == "unreachable"
        issuer.hold.set()


async def test_concurrent_requests_introspect_a_token_once_and_the_result_is_cached() -> None:
    clock = [NOW]
    async with issuing() as issuer:
        issuer.introspections["opaque"] = {"active": True, "sub": "ann"}
        settings = {"introspection": by_introspection(issuer), "cache": "30s"}
        async with verifying(settings, now=lambda: clock[0]) as verifier:
            outcomes = await asyncio.gather(*(verifier.verify(b"opaque") for _ in range(20)))
            assert len(set(outcomes)) == 1
            assert len(issuer.requested_paths) == 1
            issuer.introspections.clear()  # revoked
            clock[0] = NOW + 29
            assert isinstance(await verifier.verify(b"opaque"), Principal)
            clock[0] = NOW + 30
            assert await verdict(verifier, "opaque") == "invalid"
            assert len(issuer.requested_paths) == 2


async def test_a_cached_token_expires_with_the_token() -> None:
    now = time.time()
    clock = [now]
    async with issuing() as issuer, verifying({"jwt": by_keys(issuer)}, now=lambda: clock[0]) as verifier:
        token = issuer.token(exp=int(now) + 60)
        assert isinstance(await verifier.verify(token.encode()), Principal)
        clock[0] = int(now) + 60
        assert await verdict(verifier, token) == "invalid"


async def test_cached_tokens_and_concurrent_introspections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "MAX_REMEMBERED", 2)
    monkeypatch.setattr(verifiers, "MAX_ASKING", 2)
    async with issuing() as issuer:
        for number in range(4):
            issuer.introspections[f"t{number}"] = {"active": True, "sub": "ann"}
        async with verifying({"introspection": by_introspection(issuer)}) as verifier:
            for number in (0, 1, 2, 0, 2):
                assert isinstance(await verifier.verify(f"t{number}".encode()), Principal)
            assert [form["token"] for form in issuer.forms] == ["t0", "t1", "t2", "t0"]
            issuer.hold = asyncio.Event()
            waiting = [asyncio.ensure_future(verifier.verify(token)) for token in (b"t1", b"t3")]
            while len(issuer.requested_paths) < 6:
                await asyncio.sleep(0)
            assert await verifier.verify(b"t5") == RejectedToken("busy")
            issuer.hold.set()
            assert all(isinstance(outcome, Principal) for outcome in await asyncio.gather(*waiting))


async def test_a_client_that_disconnects_during_introspection_does_not_fail_others() -> None:
    async with issuing() as issuer:
        issuer.introspections["opaque"] = {"active": True, "sub": "ann"}
        issuer.hold = asyncio.Event()
        async with verifying({"introspection": by_introspection(issuer)}) as verifier:
            first, second = (asyncio.ensure_future(verifier.verify(b"opaque")) for _ in range(2))
            while not issuer.requested_paths:
                await asyncio.sleep(0)
            first.cancel()
            issuer.hold.set()
            assert isinstance(await second, Principal)


async def test_rotated_signing_keys_are_fetched_and_old_ones_dropped() -> None:
    async with issuing() as issuer, verifying({"jwt": by_keys(issuer)}) as verifier:
        old = issuer.token()
        assert isinstance(await verifier.verify(old.encode()), Principal)
        issuer.key("two")
        del issuer.keys["one"]
        assert isinstance(await verifier.verify(issuer.token("two").encode()), Principal)
        assert isinstance(await verifier.verify(old.encode()), Principal), "it was verified while its key was good"


async def test_keys_and_introspection_are_requested_through_the_root_proxy() -> None:
    async with issuing() as issuer, forwarding() as proxy:
        # The proxy of an entry also counts for this machine, where the issuer of this test is.
        egress = Egress(ProxyRules.of({}, f"http://127.0.0.1:{proxy.port}", own=True))
        async with verifying({"jwt": by_keys(issuer)}, egress=egress) as verifier:
            assert isinstance(await verifier.verify(issuer.token().encode()), Principal)
        assert proxy.asked == [f"GET {issuer.url}/keys"]
    closed = Egress(ProxyRules.of({}, f"http://127.0.0.1:{proxy.port}", own=True))
    async with issuing() as issuer, verifying({"introspection": by_introspection(issuer)}, egress=closed) as verifier:
        assert await verdict(verifier, "opaque") == "unreachable"
