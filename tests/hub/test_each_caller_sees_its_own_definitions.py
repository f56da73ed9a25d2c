"""With `session: client` a caller sees, and is validated by, what its own session lists, and nobody else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.downstream.network.visitor import ERAS, TOKENS, Visitor, network_hub, visiting
from tests.fakes.client import fake
from tests.hub.groups.hearing import Ear, code, hearing

pytestmark = pytest.mark.anyio

LISTEN: dict[str, Any] = {"principals": {name: TOKENS[name] for name in ("alice", "bob")}}


def described(name: str, user: str, argument: str, **fields: Any) -> dict[str, Any]:
    """A tool as a server describes it to one user, who has to give `argument`."""
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"name": name, "description": f"private tables of {user}", "inputSchema": schema, **fields}


async def redefine(visitor: Visitor, ear: Ear, name: str, definition: Any) -> None:
    """Makes the visitor's own session list a tool differently, and waits until the visitor is told."""
    count = ear.methods.count("notifications/tools/list_changed")
    await visitor.text("own__grow", {"name": name, "definition": definition})
    await ear.until(count + 1)


async def definition_of(visitor: Visitor, name: str) -> dict[str, Any] | None:
    tools = (await visitor.ask("tools/list"))["result"]["tools"]
    return next((tool for tool in tools if tool["name"] == name), None)


async def refusal(visitor: Visitor, name: str, arguments: dict[str, Any]) -> str | None:
    """The code with which the hub refuses a call; None if the server has answered it."""
    answer = await visitor.call(name, arguments)
    return code(answer["result"]) if "result" in answer else str(answer["error"]["code"])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["pid", "new"])
async def test_a_tool_is_listed_and_validated_as_the_callers_own_session_describes_it(
    tmp_path: Path, era: str, name: str
) -> None:
    servers = {"own": fake(session="client", tools={name: {"strip_titles": True}})}
    async with (
        network_hub(tmp_path, servers, LISTEN) as (_, base),
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(base, era, TOKENS["bob"]) as bob,
        hearing(alice) as alices_ear,
        hearing(bob) as bobs_ear,
    ):
        before = await definition_of(bob, f"own__{name}")
        await redefine(alice, alices_ear, name, described(name, "alice", "table"))
        assert await definition_of(bob, f"own__{name}") == before
        await redefine(bob, bobs_ear, name, described(name, "bob", "row"))
        for visitor, user, argument, others in ((alice, "alice", "table", "row"), (bob, "bob", "row", "table")):
            listed = await definition_of(visitor, f"own__{name}")
            assert listed is not None
            assert (listed["description"], list(listed["inputSchema"]["properties"])) == (
                f"private tables of {user}", [argument],
            )  # fmt: skip
            assert await refusal(visitor, f"own__{name}", {argument: "x"}) is None
            assert await refusal(visitor, f"own__{name}", {others: "x"}) == "invalid_parameters"
        await redefine(alice, alices_ear, name, described(name, "alice", "table", title="mine"))
        assert (await definition_of(alice, f"own__{name}") or {})["title"] == "mine"
        assert "title" not in (await definition_of(bob, f"own__{name}") or {})


async def test_a_tool_that_a_callers_own_session_does_not_list_is_unknown_to_this_caller_alone(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path, {"own": fake(session="client")}, LISTEN) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
        visiting(base, "handshake", TOKENS["bob"]) as bob,
        hearing(alice) as ear,
    ):
        await alice.names("tools/list")
        await redefine(alice, ear, "pid", "gone")
        assert await definition_of(alice, "own__pid") is None
        assert await refusal(alice, "own__pid", {}) == "-32602"
        assert await definition_of(bob, "own__pid") is not None
        assert await refusal(bob, "own__pid", {}) is None


async def test_a_search_finds_the_callers_own_definition(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path, {"own": fake(session="client")}, LISTEN, meta_tools=True) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
        visiting(base, "handshake", TOKENS["bob"]) as bob,
        hearing(alice) as ear,
    ):
        await alice.names("tools/list")
        await redefine(alice, ear, "pid", described("pid", "alice", "table"))
        found = [await each.text("hub_search", {"query": "private tables", "detail": "full"}) for each in (alice, bob)]
        assert ["tables of alice" in text for text in found] == [True, False]


async def test_hub_read_goes_by_the_annotations_that_the_callers_own_session_lists(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path, {"own": fake(session="client")}, LISTEN, meta_tools=True) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
        visiting(base, "handshake", TOKENS["bob"]) as bob,
        hearing(alice) as ear,
    ):
        await alice.names("tools/list")
        schema = {"type": "object"}
        await redefine(alice, ear, "echo", {"name": "echo", "inputSchema": schema})  # it only reads for everybody else
        reads = {"name": "pid", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
        await redefine(alice, ear, "pid", reads)
        refusals = {
            (user, tool): await refusal(visitor, "hub_read", {"tool": f"own__{tool}", "arguments": {}})
            for user, visitor in (("alice", alice), ("bob", bob))
            for tool in ("echo", "pid")
        }
    refused = "permission_denied"
    assert refusals == {
        ("alice", "echo"): refused, ("alice", "pid"): None, ("bob", "echo"): None, ("bob", "pid"): refused,
    }  # fmt: skip


async def test_presets_are_set_in_the_callers_own_schema_and_hidden_from_it(tmp_path: Path) -> None:
    servers = {"own": fake(session="client", preset={"echo": {"text": "preset"}})}
    properties = {key: {"type": "string"} for key in ("text", "TEXT", "more")}
    definition = {"name": "echo", "inputSchema": {"type": "object", "properties": properties}}
    async with (
        network_hub(tmp_path, servers, LISTEN) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
        hearing(alice) as ear,
    ):
        await alice.names("tools/list")
        await redefine(alice, ear, "echo", definition)
        listed = await definition_of(alice, "own__echo")
        assert listed is not None
        assert set(listed["inputSchema"]["properties"]) == {"TEXT", "more"}
        assert await alice.text("own__echo", {"text": "mine", "more": "x"}) == "preset"
