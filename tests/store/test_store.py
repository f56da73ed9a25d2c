"""The store client with its deadlines: replies, and what happens without a reply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from mcp_hub.config.field_types import ValidationError
from mcp_hub.config.store import StoreSettings
from mcp_hub.errors import ConfigError, to_wire
from mcp_hub.store import Script, Store, StoreUnavailable
from mcp_hub.store.change_log import PAGE, Change, ChangeLog
from mcp_hub.store.replica_keys import ReplicaKeys
from mcp_hub.store.shared_bucket import SharedBucket
from mcp_hub.store.stored_stream import StoredEvent, StoredStream
from tests.fakes.redis_server import PATIENCE, redis_server
from tests.store.test_membership import Replica, replicas

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
COUNT = Script("return redis.call('INCR', KEYS[1])")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)


async def test_a_script_is_executed_with_the_prefix_before_its_keys() -> None:
    async with redis_server() as server:
        store = Store(server.settings(prefix="team"))
        await store.open()
        assert [await COUNT.run(store, ["n"]) for _ in range(3)] == [1, 2, 3]
        assert await store.execute("KEYS", "*") == [b"{team:2}:n"]
        await store.close()


async def test_hubs_with_different_prefixes_share_nothing() -> None:
    async with redis_server() as server:
        first_store, second_store = Store(server.settings(prefix="one")), Store(server.settings(prefix="other"))
        assert await COUNT.run(first_store, ["n"]) == await COUNT.run(second_store, ["n"]) == 1
        a, b = Replica(server, prefix="one"), Replica(server, prefix="other")
        await a.member.join()
        await b.member.join()
        assert (await a.member.claim("session")).owner == a.member.me.owner
        assert (await b.member.claim("session")).owner == b.member.me.owner
        await ChangeLog(a.store, lambda: ReplicaKeys([b"k" * 32])).append(Change("a", "reload", "", None))
        await until(lambda: a.heard[-1:] != [b""] and len(b.heard) > 2)
        assert (a.member.count, b.member.count) == (1, 1)
        assert set(b.heard) == {b""}
        for replica in (a, b):
            await replica.member.leave()
            await replica.store.close()
        await first_store.close()
        await second_store.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_store_that_evicts_any_key_is_refused(policy: str) -> None:
    async with redis_server("--maxmemory", "50mb", "--maxmemory-policy", policy) as server:
        store = Store(server.settings())
        with pytest.raises(ConfigError, match="set maxmemory-policy to noeviction"):
            await store.open()
        await store.close()


async def test_a_hanging_store_fails_every_command_and_is_reconnected_later() -> None:
    async with redis_server() as server:
        states: list[bool] = []
        store = Store(server.settings())
        store.changed = states.append
        await COUNT.run(store, ["n"])
        server.pause()
        with pytest.raises(StoreUnavailable) as raised:
            await COUNT.run(store, ["n"])
        assert to_wire(raised.value, "tools/list", None)["error"]["code"] == -32010
        assert to_wire(raised.value, "tools/list", None)["error"]["data"]["code"] == "store_unavailable"
        uses = store.uses
        for _ in range(100):  # no command waits for an unavailable server
            with pytest.raises(StoreUnavailable):
                await COUNT.run(store, ["n"])
        assert (store.is_unavailable, store.uses) == (True, uses)
        server.resume()
        await until(lambda: not store.is_unavailable)
        assert await COUNT.run(store, ["n"]) >= 2
        assert states == [True, False]
        await store.close()


@pytest.mark.parametrize(
    ("options", "mend"),
    [
        (("--replicaof", "127.0.0.1 1"), "REPLICAOF NO ONE"),
        (("--min-replicas-to-write", "1"), "CONFIG SET min-replicas-to-write 0"),
    ],
    ids=["a replica", "too few replicas"],
)
async def test_a_store_that_accepts_no_writes_is_unavailable_until_it_does(
    options: tuple[str, ...], mend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with redis_server(*options) as server, Redis(unix_socket_path=str(server.socket)) as redis:

        async def connections() -> int:
            return int((await redis.info("stats"))["total_connections_received"])

        states: list[bool] = []
        store = Store(server.settings())
        store.changed = states.append
        await store.open()
        with pytest.raises(StoreUnavailable) as raised:
            await COUNT.run(store, ["n"])
        assert raised.value.code == "store_unavailable"
        before = await connections()
        async with asyncio.timeout(PATIENCE):
            while await connections() < before + 3:  # each probe opens a new connection
                with pytest.raises(StoreUnavailable):
                    await COUNT.run(store, ["n"])
                await asyncio.sleep(0.01)
        assert (store.is_unavailable, states, len(caplog.records)) == (True, [True], 1)
        await redis.execute_command(*mend.split())  # type: ignore[no-untyped-call]
        await until(lambda: not store.is_unavailable)
        assert await COUNT.run(store, ["n"]) == 1
        assert (states, len(caplog.records)) == ([True, False], 2)
        await store.close()


async def test_a_command_that_the_redis_user_may_not_run_does_not_make_the_store_unavailable() -> None:
    async with redis_server("--user", "hub", "on", ">right-one", "~*", "+@all", "-xadd") as server:
        server.url = f"unix://hub@{server.socket}?password=right-one"
        store = Store(server.settings())
        with pytest.raises(StoreUnavailable):
            await store.execute("XADD", store.key("log"), "*", "a", "b")
        assert not store.is_unavailable
        assert await COUNT.run(store, ["n"]) == 1
        await store.close()


async def test_scripts_are_loaded_again_into_a_restarted_store() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        assert await COUNT.run(store, ["n"]) == 1
        await server.kill()
        with pytest.raises(StoreUnavailable):
            await COUNT.run(store, ["n"])
        await server.start()
        await until(lambda: not store.is_unavailable)
        assert [await COUNT.run(store, ["n"]) for _ in range(2)] == [1, 2]
        await store.close()


async def test_concurrent_runs_of_a_script_that_the_store_has_lost_all_succeed() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        for first in (1, 9):  # the first round opens the connections, so that the second one is concurrent
            counts = await asyncio.gather(*(COUNT.run(store, ["n"]) for _ in range(8)))
            assert sorted(counts) == list(range(first, first + 8))
            await store.execute("SCRIPT", "FLUSH")
        await store.close()


async def test_an_unreachable_store_does_not_stop_the_hub_from_starting() -> None:
    store = Store(StoreSettings.model_validate({"url": "unix:///nowhere/redis.sock"}))
    await store.open()
    assert store.is_unavailable
    await store.close()


async def test_a_wrong_store_password_counts_as_unreachable_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with redis_server("--requirepass", "right-one") as server:
        for url, is_away in ((f"{server.url}?password=wrong-one", True), (f"{server.url}?password=right-one", False)):
            store = Store(StoreSettings.model_validate({"url": url}))
            await store.open()
            assert store.is_unavailable is is_away
            await store.close()
    assert f"the store at {server.socket} cannot be used: invalid" in caplog.text
    assert "wrong-one" not in caplog.text


async def test_the_documented_redis_user_can_run_replicas_and_access_no_other_key() -> None:
    line = re.search(r"ACL SETUSER (hub .*)", (ROOT / "docs" / "scale.md").read_text())
    assert line is not None
    options = line[1].replace("PASSWORD", "right-one").replace("'", "").split()
    async with redis_server("--user", *options) as server:
        server.url = f"unix://hub@{server.socket}?password=right-one"
        async with replicas(server, 2) as (first, second):
            assert not (await first.member.claim("session")).before
            assert (await second.member.claim("session")).owner == first.member.me.owner
            await first.member.hand_over()
            assert (await second.member.claim("session")).owner == second.member.me.owner
        store = Store(server.settings())
        await store.open()
        keys = await ReplicaKeys.load_shared(store)
        assert await SharedBucket(store, lambda: 1).take("up", 5.0, "alice") == 0
        stream = StoredStream(store, lambda: keys, "one")
        await stream.begin(b"[]")
        assert await stream.append(1, b"{}")
        assert await stream.read(0) == [StoredEvent(1, b"{}")]
        log = ChangeLog(store, lambda: keys)
        change = await log.append(Change("a", "reload", "", None))
        assert await log.read() == [change]
        assert not store.is_unavailable
        with pytest.raises(StoreUnavailable):
            await store.execute("GET", "a key of others")
        await store.close()


async def test_changes_after_a_page_of_entries_without_a_signature_are_read() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        keys, foreign = ReplicaKeys([b"k" * 32]), ReplicaKeys([b"f" * 32])
        log = ChangeLog(store, lambda: keys)
        stranger = ChangeLog(store, lambda: foreign)
        for number in range(PAGE + 1):
            await stranger.append(Change("stranger", "reload", "", number))
        await store.execute("XADD", store.key("changes"), "*", "other", "field")
        change = await log.append(Change("a", "reload", "", None))
        reader, read_changes = ChangeLog(store, lambda: keys), []
        while changes := await reader.read():
            read_changes += changes
        assert read_changes == [change]
        assert not reader.skipped
        await store.close()


async def test_an_error_reply_is_raised_and_the_store_stays_connected() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        with pytest.raises(StoreUnavailable, match="wrong"):
            await Script("return redis.error_reply('wrong')").run(store, [])
        assert not store.is_unavailable
        await store.close()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": "http://redis:6379"}, "redis://"),
        ({"url": "redis://"}, "redis://"),
        ({"url": "redis://host:port"}, "redis://"),
        ({"url": "redis://host", "prefix": "a b"}, "letters"),
        ({"url": "redis://host", "keys": ["short"]}, "openssl rand -hex 32"),
        ({"url": "redis://host", "address": "10.0.0.7:8808"}, "http://10.0.0.7:8808"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_an_example(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        StoreSettings.model_validate(given)


def test_the_password_of_a_store_url_is_not_shown() -> None:
    settings = StoreSettings.model_validate({"url": "redis://hub:hunter2hunter2@host", "keys": ["k" * 32]})
    assert "hunter2" not in repr(settings)
    assert "kkk" not in repr(settings)


async def test_a_store_command_can_be_cancelled_at_any_moment() -> None:
    async with redis_server() as server:
        store = Store(server.settings())
        await store.execute("PING")
        for steps in range(40):
            use = asyncio.ensure_future(store.execute("PING"))
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled = use.cancel()
            await asyncio.wait([use])
            assert use.cancelled() == cancelled
        await store.close()
