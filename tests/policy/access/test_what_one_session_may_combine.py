"""Private data, what strangers wrote, and a way out: two of them are work, all three can be refused."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Route
from mcp_hub.hub.composition import config_of
from mcp_hub.policy import Call
from mcp_hub.policy.data_flow import FlowPolicy, FlowRefused, FlowSettings, Label, UsedLabels
from mcp_hub.policy.sharing import Sharing
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import Caller
from mcp_hub.store import StoreUnavailable
from tests.fakes.callers import a_principal
from tests.fakes.client import PATIENCE, fake, hub, write_config
from tests.fakes.network import network_hub, sdk, text

pytestmark = pytest.mark.anyio

SERVERS: dict[str, Any] = {
    "notes": fake(labels=["reads_private"]),
    "web": fake(labels={"reads_untrusted": ["echo", "fake://*"]}),
    "mail": fake(labels={"writes_external": "add"}),
    "plain": fake(),
}


async def outcome(client: Any, name: str, arguments: dict[str, Any]) -> str:
    result = await client.call(name, arguments)
    return str(result["_meta"]["mcp-hub/error"]["code"]) if result.get("isError") else "ok"


ECHO, ADD = {"text": "x"}, {"a": 1, "b": 2}


async def test_the_call_that_completes_the_three_labels_is_refused_in_any_order(tmp_path: Path) -> None:
    calls = {"notes__echo": ECHO, "web__echo": ECHO, "mail__add": ADD}
    for last in calls:
        async with hub(tmp_path, SERVERS, flows="refuse") as client:
            for name in calls:
                if name != last:
                    assert await outcome(client, name, calls[name]) == "ok"
            assert await outcome(client, last, calls[last]) == "permission_denied"
            assert await outcome(client, last, calls[last]) == "permission_denied"
            for name in (*(earlier for earlier in calls if earlier != last), "plain__echo"):
                assert await outcome(client, name, calls.get(name, ECHO)) == "ok"
            await client.until(lambda: b'"policy":"flow"' in client.stderr)


async def test_unlabelled_tools_and_other_flow_modes_are_not_refused(tmp_path: Path) -> None:
    for mode in ("warn", "off"):
        async with hub(tmp_path, SERVERS, flows=mode) as client:
            for name, arguments in (("notes__echo", ECHO), ("web__echo", ECHO), ("web__add", ADD), ("mail__add", ADD)):
                assert await outcome(client, name, arguments) == "ok"
            await client.until(lambda: client.stderr.count(b'"event":"call"') == 4)
            is_warned = b"flow: reads_private, reads_untrusted, writes_external" in client.stderr
            assert is_warned is (mode == "warn")


async def test_reading_a_resource_counts_as_using_its_label(tmp_path: Path) -> None:
    async with hub(tmp_path, SERVERS, flows="refuse") as client:
        resources = (await client.request("resources/list"))["resources"]
        assert resources
        await client.request("resources/read", {"uri": "mcp-hub://web/fake://fake/one"})
        assert await outcome(client, "notes__echo", ECHO) == "ok"
        assert await outcome(client, "mail__add", ADD) == "permission_denied"


async def test_labels_survive_a_reload(tmp_path: Path) -> None:
    async with hub(tmp_path, SERVERS, flows="refuse", watch=False) as client:
        assert await outcome(client, "notes__echo", ECHO) == "ok"
        assert await outcome(client, "web__echo", ECHO) == "ok"
        write_config(tmp_path, {**SERVERS, "more": fake()}, flows="refuse", watch=False)
        client.process.send_signal(signal.SIGHUP)
        await client.until(lambda: b"loaded servers.json again" in client.stderr)
        assert await outcome(client, "mail__add", ADD) == "permission_denied"


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_labels_are_counted_for_each_session(tmp_path: Path, era: str) -> None:
    async with network_hub(tmp_path / "hub", SERVERS, flows="refuse") as (_, base):
        async with sdk(f"{base}/mcp", era) as first:
            await text(first, "notes__echo", ECHO)
            await text(first, "web__echo", ECHO)
            refused = await first.call_tool("mail__add", ADD)
            assert refused.is_error
        async with sdk(f"{base}/mcp", era) as second:
            again = await second.call_tool("mail__add", ADD)
            # In the modern era both are the anonymous principal, who has no sessions.
            assert again.is_error is (era == "modern")


async def test_an_unknown_label_is_an_error_of_the_file(tmp_path: Path) -> None:
    from mcp_hub.errors import ConfigError
    from mcp_hub.hub.composition import read_config

    path = write_config(tmp_path, {"a": fake(labels=["reads_everything"])})
    with pytest.raises(ConfigError, match=r"servers\.a\.labels\.reads_everything: is not a label"):
        read_config(path)
    path = write_config(tmp_path, {"a": fake(labels=[["reads_private"]])})
    with pytest.raises(ConfigError, match=r"servers\.a\.labels: must be a list of reads_private, "):
        read_config(path)


async def test_a_refused_call_does_not_take_back_labels_that_another_one_has_used_meanwhile() -> None:
    names: dict[str, Label] = {"notes": "reads_private", "web": "reads_untrusted", "mail": "writes_external"}
    servers = {
        id: config_of({"servers": {id: {"command": id, "labels": [label]}}}).servers[0] for id, label in names.items()
    }
    published: list[asyncio.Future[None]] = []
    alice = a_principal("alice")

    def publish(kind: str, about: str, value: Any) -> asyncio.Future[None]:
        published.append(asyncio.get_running_loop().create_future())
        if len(published) > 2:
            published[-1].set_result(None)
        return published[-1]

    async def answer(call: Call) -> dict[str, Any]:
        return {}

    policy = FlowPolicy(servers, FlowSettings(mode="refuse"), UsedLabels(), sharing=Sharing(publish=publish))

    def started(server: str) -> asyncio.Task[dict[str, Any]]:
        route = Route(server, TOOLS, "echo")
        call = Call(TOOLS.act_method, "echo", route, {}, "modern", Envelope(), caller=alice)
        return asyncio.ensure_future(policy(call, answer))

    async with asyncio.timeout(PATIENCE):
        first, second = started("web"), started("notes")
        while len(published) < 2:
            await asyncio.sleep(0)
        published[1].set_result(None)
        assert await second == {}
        published[0].set_exception(StoreUnavailable("The store is unavailable."))
        with pytest.raises(StoreUnavailable):
            await first
        assert await started("web") == {}
        with pytest.raises(FlowRefused):
            await started("mail")


def test_labels_from_another_replica_do_not_revive_those_that_have_expired() -> None:
    used, alice = UsedLabels(), a_principal("alice")
    used.note(alice, 0.0, frozenset({"reads_private"}))
    used.merge(alice, 100.0, frozenset({"reads_untrusted"}), 60.0)
    assert used.labels(alice, 40.0) == {"reads_untrusted"}
    used.merge(alice, 110.0, frozenset({"writes_external"}), 60.0)
    assert used.labels(alice, 50.0) == {"reads_untrusted", "writes_external"}


def test_a_caller_has_only_the_labels_that_it_has_used_itself() -> None:
    used, ann, bob = UsedLabels(), a_principal("ann"), a_principal("bob")
    used.note(ann, 1.0, frozenset({"reads_private"}))
    used.note(bob, 1.0, frozenset({"reads_untrusted"}))
    assert used.labels(ann, 0.0) == {"reads_private"}
    assert used.labels(bob, 0.0) == {"reads_untrusted"}
    assert used.labels(Caller(ann.principal), 0.0) == frozenset()
