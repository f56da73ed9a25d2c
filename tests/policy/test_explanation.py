"""What every policy did with a call, and how long it took: from its record, while somebody watches."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.errors import CallError, ProtocolError
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.policy import Call
from mcp_hub.policy.explanation import MAX_TIMED, explain
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.client import PATIENCE, fake, write_config

pytestmark = pytest.mark.anyio


async def call(hub: Engine, name: str, **arguments: Any) -> None:
    """Make a call and wait for its record."""
    route = await hub.route(TOOLS, name, "handshake")
    tool_call = Call("tools/call", name, route, {"name": route.name, "arguments": arguments}, "handshake", Envelope())
    with contextlib.suppress(CallError, ProtocolError):
        await hub.act(tool_call)
    await asyncio.sleep(0)  # the record is made in the next round of the loop
    await asyncio.sleep(0)


def by_policy(hub: Engine, record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["policy"]: step for step in hub.rules.steps(record, hub.times)}


async def test_a_call_record_has_the_effect_of_every_policy_and_durations_only_while_watched(
    tmp_path: Path,
) -> None:
    records: list[dict[str, Any]] = []
    config = load_config(write_config(tmp_path, {"a": fake("--gibberish", retry={"attempts": 2})}))
    async with Engine(config, record=records.append) as hub, asyncio.timeout(PATIENCE):
        await call(hub, "a__echo", text="x")
        before = by_policy(hub, records[-1])
        assert before["access"] == {"policy": "access", "did": "passed", "ms": None}
        assert before["upstream"]["did"] == "was asked once"
        assert not {"trace", "spans"} & before.keys()
        hub.times.watch()
        await call(hub, "a__echo", text="x")
        watched = by_policy(hub, records[-1])
        assert watched["upstream"]["ms"] > 0
        assert watched["validate"]["ms"] > 0
        assert "steps" not in records[-1]
        await call(hub, "a__echo", text=["not a text"])
        refused = by_policy(hub, records[-1])
        assert refused["validate"]["did"] == "refused: validate_arguments: lenient"
        assert {refused[name]["did"] for name in ("retry", "breaker", "limits")} == {"not reached"}
        assert refused["upstream"]["did"] == "was not asked"
        last = records[-1]["id"]
        hub.times.unwatch()
        assert not hub.times.of(last)
        await call(hub, "a__echo", text="y")
        assert by_policy(hub, records[-1])["upstream"]["ms"] is None


async def test_durations_survive_a_reload_and_are_bounded(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    path = write_config(tmp_path, {"a": fake()})
    async with Engine(load_config(path), record=records.append) as hub, asyncio.timeout(PATIENCE):
        hub.times.watch()
        await hub.renew(load_config(path))
        await call(hub, "a__echo", text="x")
        assert by_policy(hub, records[-1])["upstream"]["ms"] is not None
        tool_call = Call("tools/call", "n", await hub.route(TOOLS, "a__echo", "handshake"), {}, "handshake", Envelope())
        for n in range(MAX_TIMED):
            tool_call.label = str(n)
            hub.times.measured(tool_call, "access", 0.0, 0.0)
        assert not hub.times.of(records[-1]["id"])


async def test_a_hidden_name_is_explained_from_its_record(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    config = load_config(write_config(tmp_path, {"a": fake(disable_tools=["echo"])}))
    async with Engine(config, record=records.append) as hub, asyncio.timeout(PATIENCE):
        await hub.settled_catalog()
        hub.record_unknown(TOOLS, "a__echo", "handshake", None, Envelope())
        steps = by_policy(hub, records[-1])
        assert steps["access"]["did"] == "refused: servers.a: filter of tools"
        assert steps["validate"]["did"] == "not reached"
        assert "upstream" not in steps


def test_notes_of_no_known_policy_are_shown_too() -> None:
    steps = explain(["trace", "access"], ["called by its name through hub_call"], None, None)
    assert steps == [
        {"policy": "access", "did": ["passed"]},
        {"policy": "other", "did": ["called by its name through hub_call"]},
    ]
