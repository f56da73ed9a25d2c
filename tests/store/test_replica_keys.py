"""Values that replicas seal, and which keys can open them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.store import Store
from mcp_hub.store.replica_keys import ReplicaKeys
from tests.fakes.redis_server import redis_server

FIRST, SECOND, STRANGE = b"1" * 32, b"2" * 32, b"3" * 32
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_another_replica_can_open_a_sealed_value(value: object) -> None:
    sealed = ReplicaKeys([FIRST]).seal("session", value)
    assert ReplicaKeys([SECOND, FIRST]).open("session", sealed) == value
    assert sealed.isascii()
    assert sealed.isprintable()


@given(VALUES, st.data())
def test_a_modified_sealed_value_cannot_be_opened(value: object, data: st.DataObject) -> None:
    keys = ReplicaKeys([FIRST])
    sealed = keys.seal("session", value)
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = data.draw(
        st.sampled_from("abcdefghijABCDEFGHIJ0123456789-_.= \n").filter(lambda char: char != sealed[at])
    )
    assert keys.open("session", sealed[:at] + changed + sealed[at + 1 :]) is None
    assert keys.open("session", sealed[:at]) is None
    assert keys.open("session", sealed + changed) is None


def test_a_value_sealed_as_one_kind_cannot_be_opened_as_another() -> None:
    keys = ReplicaKeys([FIRST])
    assert keys.open("state", keys.seal("session", 1)) is None
    assert not keys.is_signed("state", b"x", keys.sign("session", b"x"))


def test_another_secret_can_neither_open_nor_sign() -> None:
    ours, strange = ReplicaKeys([FIRST, SECOND]), ReplicaKeys([STRANGE])
    assert ours.open("session", strange.seal("session", 1)) is None
    assert not ours.is_signed("member", b"x", strange.sign("member", b"x"))
    assert ours.is_signed("member", b"x", ReplicaKeys([SECOND]).sign("member", b"x"))


@pytest.mark.parametrize("text", ["", ".", "a.b", "ä.ö", "x" * 7000, "e30.", ".e30", "e30.AA\n"])
def test_an_unsealed_text_cannot_be_opened(text: str) -> None:
    assert ReplicaKeys([FIRST]).open("session", text) is None


@pytest.mark.anyio
async def test_replicas_find_the_same_keys_in_the_store() -> None:
    async with redis_server() as server:
        first_store, second_store = Store(server.settings()), Store(server.settings())
        first_keys, second_keys = (
            await ReplicaKeys.load_shared(first_store),
            await ReplicaKeys.load_shared(second_store),
        )
        assert second_keys.open("session", first_keys.seal("session", {"a": 1})) == {"a": 1}
        await first_store.close()
        await second_store.close()


@pytest.mark.anyio
async def test_a_replaced_key_can_still_open_values() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        old_keys = await ReplicaKeys.load_shared(store)
        stored_key = (await store.execute("LINDEX", store.key("keys"), 0)).partition(b":")[2]
        await store.execute("LSET", store.key("keys"), 0, b"1000:" + stored_key)  # the key is dated 1970 now
        new_keys = await ReplicaKeys.load_shared(store)
        assert new_keys.open("session", old_keys.seal("session", 1)) == 1
        assert old_keys.open("session", new_keys.seal("session", 1)) == 1  # not all replicas know the new key yet
        assert len(new_keys.entries) == 2
        await store.close()


@pytest.mark.anyio
async def test_keys_lost_by_the_store_are_written_back_and_still_open_values() -> None:
    async with redis_server() as server:
        stores = [Store(server.settings()) for _ in range(3)]
        earlier_keys = await ReplicaKeys.load_shared(stores[0])
        sealed = earlier_keys.seal("session", {"id": "a"})
        await stores[0].execute("FLUSHALL")
        late_keys = await ReplicaKeys.load_shared(stores[1])  # a replica that starts now does not know the lost keys
        assert late_keys.open("session", sealed) is None
        restored = await ReplicaKeys.load_shared(stores[0], earlier_keys)
        late_keys = await ReplicaKeys.load_shared(stores[1], late_keys)
        for keys in (restored, late_keys, await ReplicaKeys.load_shared(stores[2])):
            assert keys.open("session", sealed) == {"id": "a"}
            assert restored.open("session", keys.seal("session", 1)) == 1
        assert restored.entries == late_keys.entries
        for store in stores:
            await store.close()


@pytest.mark.anyio
async def test_a_new_key_is_used_for_sealing_once_all_replicas_have_it() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        now = int((await store.execute("TIME"))[0])
        await store.execute("RPUSH", store.key("keys"), f"{now}:{'aa' * 32}", f"{now - 3600}:{'bb' * 32}")
        old, young = ReplicaKeys([b"\xbb" * 32]), ReplicaKeys([b"\xaa" * 32])
        keys = await ReplicaKeys.load_shared(store)
        assert old.open("a", keys.seal("a", 1)) == 1
        assert keys.open("a", young.seal("a", 1)) == 1
        await store.execute("DEL", store.key("keys"))
        await store.execute("RPUSH", store.key("keys"), f"{now - 600}:{'aa' * 32}", f"{now - 3600}:{'bb' * 32}")
        assert young.open("a", (await ReplicaKeys.load_shared(store)).seal("a", 1)) == 1
        await store.close()
