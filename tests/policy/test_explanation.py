"""What every policy did with a call, from its record."""

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
from mcp_hub.policy.chain import explain
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE
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
    return {step["policy"]: step for step in hub.rules.steps(record)}


async def test_a_call_record_has_the_effect_of_every_policy(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    config = load_config(write_config(tmp_path, {"a": fake("--gibberish", retry={"attempts": 2})}))
    async with Engine(config, record=records.append) as hub, asyncio.timeout(PATIENCE):
        await call(hub, "a__echo", text="x")
        passed = by_policy(hub, records[-1])
        assert passed["access"] == {"policy": "access", "did": "passed"}
        assert passed["upstream"]["did"] == "was asked once"
        assert not {"trace", "spans"} & passed.keys()
        assert "steps" not in records[-1]
        await call(hub, "a__echo", text=["not a text"])
        refused = by_policy(hub, records[-1])
        assert refused["validate"]["did"] == "refused: validate_arguments: lenient"
        assert {refused[name]["did"] for name in ("retry", "breaker", "limits")} == {"not reached"}
        assert refused["upstream"]["did"] == "was not asked"


async def test_a_hidden_name_is_explained_from_its_record(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    config = load_config(write_config(tmp_path, {"a": fake(disable_tools=["echo"])}))
    async with Engine(config, record=records.append) as hub, asyncio.timeout(PATIENCE):
        await hub.settled_catalog()
        hub.record_unknown(TOOLS, "a__echo", "handshake", SOLE, Envelope())
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
