"""What a replica takes for a forward of another one, and what it refuses."""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from mcp_hub.config.store import StoreSettings
from mcp_hub.downstream.replicas.forwarding import HEADER, KIND, PROOF, Forward, ForwardGate
from mcp_hub.store import Store
from mcp_hub.store.membership import Membership
from mcp_hub.store.replica_keys import ReplicaKeys
from tests.fakes.client import fake
from tests.replicas.raw_client import raw
from tests.replicas.served import cluster

KEYS = ReplicaKeys([b"k" * 32])
BODY = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


class Receiver:
    """A replica that is told the time, and gets forwards."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        store = Store(StoreSettings.model_validate({"url": "redis://127.0.0.1:1"}))
        self.members = Membership(store, lambda: KEYS, "http://127.0.0.1:2")
        self.gate = ForwardGate(lambda: KEYS, self.members, lambda: self.now)

    def sealed(self, keys: ReplicaKeys = KEYS, kind: str = KIND, **changed: Any) -> str:
        fields = {
            "to": self.members.me.owner,
            "method": "POST",
            "principal": "ann",
            "digest": hashlib.sha256(BODY).hexdigest(),
            "at": self.now,
            "nonce": secrets.token_hex(8),
            **changed,
        }
        return keys.seal(kind, msgspec.to_builtins(Forward(**fields)))


def test_a_forward_sealed_by_a_replica_is_accepted_once() -> None:
    replica = Receiver()
    sealed = replica.sealed()
    forward = replica.gate.opened(sealed, BODY)
    assert isinstance(forward, Forward)
    assert forward.principal == "ann"
    assert replica.gate.opened(sealed, BODY) == 403


def test_a_forward_is_refused_with_another_body_or_a_changed_seal() -> None:
    replica = Receiver()
    assert replica.gate.opened(replica.sealed(), BODY + b" ") == 403
    payload, _, mac = replica.sealed().partition(".")
    other_payload = replica.sealed(principal="bob").partition(".")[0]
    for forged in (f"{other_payload}.{mac}", f"{payload}.{mac[:-2]}AA", f"{payload}.", payload, "", "x" * 50_000):
        assert replica.gate.opened(forged, BODY) == 403


def test_a_request_that_no_replica_sealed_as_a_forward_is_refused() -> None:
    replica = Receiver()
    assert replica.gate.opened(replica.sealed(ReplicaKeys([b"s" * 32])), BODY) == 403
    assert replica.gate.opened(replica.sealed(kind="session"), BODY) == 403
    assert replica.gate.opened(KEYS.seal(KIND, {"to": replica.members.me.owner}), BODY) == 403


@pytest.mark.parametrize("away", [-31.0, 31.0, float("nan"), float("-inf")])
def test_a_forward_outside_its_time_window_is_refused(away: float) -> None:
    replica = Receiver()
    timestamp = replica.now + away
    assert replica.gate.opened(replica.sealed(at=timestamp if timestamp == timestamp else 0.0), BODY) == 403


def test_an_accepted_forward_is_remembered_while_it_is_valid() -> None:
    replica = Receiver()
    sealed = replica.sealed(at=replica.now + 29)
    assert isinstance(replica.gate.opened(sealed, BODY), Forward)
    for _ in range(58):
        replica.now += 1
        assert isinstance(replica.gate.opened(replica.sealed(), BODY), Forward)
        assert replica.gate.opened(sealed, BODY) == 403


def test_a_forward_for_another_replica_or_an_earlier_lease_is_returned() -> None:
    replica = Receiver()
    for address in ("another:1", f"{replica.members.me.id}:0"):
        assert replica.gate.opened(replica.sealed(to=address), BODY) == 421


def test_a_replica_proves_who_it_is_only_to_those_that_dialled_its_own_address() -> None:
    replica = Receiver()
    challenge = f"random {replica.members.me.address}"
    proof = replica.gate.proof(challenge.encode())
    assert proof is not None
    assert KEYS.open(PROOF, proof.decode()) == [replica.members.me.owner, challenge]
    for relayed in (b"random http://127.0.0.1:3", b"random ", b"random", b"\xff"):
        assert replica.gate.proof(relayed) is None


@pytest.mark.anyio
async def test_the_forward_path_refuses_requests_that_no_replica_sealed(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, {"up": fake()}, 1, balanced=False, listen={"token": "t" * 40}) as served,
        raw(served.url, "t" * 40) as client,
        aiohttp.ClientSession() as http,
    ):
        await client.begin()
        assert client.session is not None
        now = time.time()
        unsealed = KEYS.seal(
            KIND, {"to": "x", "method": "POST", "principal": "", "digest": "", "at": now, "nonce": "x"}
        )
        for header in ({}, {HEADER: client.session}, {HEADER: unsealed}):
            async with http.post(
                f"{served.url}/replica", data=BODY, headers={**header, "Content-Type": "application/json"}
            ) as answer:
                assert (answer.status, await answer.text()) == (403, "This is not for this replica.\n")
        head = {"Authorization": f"Bearer {'t' * 40}"}
        async with http.get(f"{served.url}/metrics", headers=head) as response:
            assert 'mcp_hub_refusals_total{cause="replica"} 3' in await response.text()
