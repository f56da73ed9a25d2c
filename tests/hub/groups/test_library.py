"""`hub.groups` as a program uses it: groups made, changed and removed while the hub runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Route
from mcp_hub.config.models import Config
from mcp_hub.downstream import Connection, not_delivered
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.errors import UnknownName, UpstreamAnswered
from mcp_hub.hub import Engine
from mcp_hub.hub.catalogs import CallerFilter
from mcp_hub.hub.composition import load_config
from mcp_hub.policy import Call
from mcp_hub.policy.group import GroupInactive
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import RESOURCES, TOOLS, Kind
from mcp_hub.security import Principal, callers
from mcp_hub.security.callers import SOLE, Caller
from tests.fakes.callers import a_principal
from tests.fakes.client import ENVELOPE, PATIENCE, fake, write_config
from tests.hub.groups.hearing import GROUPS, RESET

pytestmark = pytest.mark.anyio

ALICE, BOB = a_principal("alice"), a_principal("bob")


@contextlib.asynccontextmanager
async def running(directory: Path, **root: Any) -> AsyncIterator[Engine]:
    config = load_config(write_config(directory, {"a": fake("--name", "a"), "b": fake("--name", "b")}, **root))
    async with Engine(config) as hub, asyncio.timeout(PATIENCE):
        await hub.settled_catalog()
        yield hub


def names(hub: Engine, caller: Caller = SOLE) -> tuple[str, ...]:
    return hub.catalogs.of(caller).names(TOOLS)


async def call(hub: Engine, name: str, arguments: dict[str, Any] | None = None, caller: Caller = SOLE) -> str:
    route = await hub.route(TOOLS, name, "handshake", caller)
    params = {"name": route.name, "arguments": arguments or {}}
    result = await hub.act(Call("tools/call", name, route, params, "handshake", Envelope(), caller))
    return str(result["content"][0]["text"])


class Told:
    """Records which of some callers were notified of changed tools."""

    def __init__(self, hub: Engine, *callers: Caller) -> None:
        self._callers = callers
        self._notified: list[Caller] = []
        hub.catalogs.watch(self._take)

    def _take(self, kinds: frozenset[Kind], caller_filter: CallerFilter) -> None:
        self._notified += [caller for caller in self._callers if TOOLS in kinds and caller_filter(caller)]

    def now(self) -> list[Caller]:
        notified, self._notified = self._notified, []
        return notified

    async def soon(self) -> list[Caller]:
        """Waits until a caller was notified: a catalog that takes long is built in slices."""
        while not self._notified:
            await asyncio.sleep(0.01)
        return self.now()


async def test_a_group_can_be_created_filled_switched_and_removed_with_its_tools(tmp_path: Path) -> None:
    async with running(tmp_path) as hub:
        notified = Told(hub, SOLE, ALICE)
        rules = hub.rules.chain.policies
        assert list(hub.groups) == []
        assert hub.rules.chain.policies == rules  # nobody pays for groups that are not there
        assert notified.now() == []
        hub.groups.create("sums", "Adding.", notes="Twice.", active=True)
        assert notified.now() == [SOLE, ALICE]  # the tool that switches groups
        assert [type(policy).__name__ for policy in hub.rules.chain.policies[1:4]] == [
            "Access",
            "GroupPolicy",
            "ReadOnly",
        ]
        hub.groups.add("sums", tools=["a/add"], servers=["b"])
        assert notified.now() == []
        hub.groups.update("sums", active=False)
        assert notified.now() == [SOLE, ALICE]
        assert names(hub)[0] == RESET
        assert not {"a__add", "b__pid"} & set(names(hub))
        with pytest.raises(GroupInactive):
            await call(hub, "a__add", {"a": 1, "b": 1})
        hub.groups.update(["sums", "basic"], active=True)
        assert await call(hub, "a__add", {"a": 1, "b": 1}) == "2"
        assert hub.groups["sums"].active
        hub.groups.remove("sums")
        assert RESET not in names(hub)
        for name in ("a__add", "b__pid", RESET):
            with pytest.raises(UnknownName):
                await call(hub, name)
        hub.groups.create("other", tools=["b/pid"], active=True)
        assert "b__pid" in names(hub)
        assert "b__echo" not in names(hub)


async def test_a_callers_group_choice_affects_only_that_caller(tmp_path: Path) -> None:
    async with running(tmp_path, groups=GROUPS) as hub:
        alice = a_principal("alice")
        notified = Told(hub, SOLE, alice, BOB)
        hub.groups.reset_for(alice, {"sums": True})
        assert notified.now() == [alice]
        assert hub.groups.active_for(alice) == ("sums",)
        assert hub.groups.active_for(BOB) == hub.groups.active() == ("texts",)
        hub.groups.reset({"sums": True, "all_of_b": True})
        assert notified.now() == [SOLE, BOB]
        assert hub.groups.active_for(alice) == ("sums",)
        assert (
            hub.groups.notes() == "## About Tool Group 'sums'\nAdd twice.\n## About Tool Group 'all_of_b'\nBe careful."
        )
        assert hub.groups.notes(["texts", "sums"]) == "## About Tool Group 'sums'\nAdd twice."
        hub.groups.create("late", tools=["a/pid"])
        assert notified.now() == [SOLE, alice, BOB]
        assert "a__pid" not in names(hub, alice)
        alice.end()
        assert names(hub, alice) == names(hub, BOB)


async def test_a_group_whose_server_is_away_stays_as_its_caller_has_switched_it(tmp_path: Path) -> None:
    carol = a_principal("carol", "both")
    async with running(tmp_path, groups=GROUPS, profiles={"both": {"tools": ["a/*", "b/*"]}}) as hub:
        await hub.catalogs.settled_for(carol)
        hub.groups.reset_for(carol, {"all_of_b": True})
        await hub.switch.disable("b")
        await hub.catalogs.built_for(carol)
        hub.groups.reset_for(carol, {"sums": True})  # she does not see the other group now
        assert "a__add" in names(hub, carol)
        await hub.switch.enable("b")
        await hub.upstreams["b"].attempted.wait()
        await hub.catalogs.built_for(carol)
        assert {"a__add", "b__pid"} <= set(names(hub, carol))
        assert "b__pid" not in names(hub)


async def test_a_modern_request_in_a_session_chooses_for_the_principal_and_not_for_the_session(tmp_path: Path) -> None:
    async with running(tmp_path, groups=GROUPS) as hub:
        principal, dispatcher = Principal("alice"), Dispatcher(hub)
        session = Connection(Caller(principal), not_delivered)
        for era, meta, expected in (("modern", {"_meta": ENVELOPE}, "sums"), ("handshake", {}, "all_of_b")):
            params = {"name": RESET, "arguments": {expected: True}, **meta}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            assert "result" in await dispatcher.answer(session, request, not_delivered, era)
        assert hub.groups.active_for(hub.callers.of(principal)) == ("sums",)
        assert hub.groups.active_for(session.caller) == ("all_of_b",)


async def test_a_resource_of_a_server_that_the_profile_of_a_caller_has_not_is_not_reached(tmp_path: Path) -> None:
    async with running(tmp_path, profiles={"only_b": {"tools": ["b/*"]}}) as hub:
        route = Route("a", RESOURCES, "x:one")
        assert hub.reaches(route, BOB)
        assert not hub.reaches(route, a_principal("carol", "only_b"))


async def test_group_state_dicts_have_the_format_of_a_toolkit(tmp_path: Path) -> None:
    async with running(tmp_path, groups=GROUPS) as hub:
        assert hub.groups.state_dict() == {"active_groups": ["texts"]}
        hub.groups.load_state_dict({"active_groups": ["sums", "of another toolkit"]})
        assert hub.groups.state_dict() == {"active_groups": ["sums"]}
        hub.groups.load_state_dict({"active_groups": ["texts"], "more": 1}, strict=False)
        assert hub.groups.active() == ("texts",)
        for state in ({"active_groups": "texts"}, {}, [], {"active_groups": [1]}, {"active_groups": [], "more": 1}):
            with pytest.raises(ValueError, match="state_dict"):
                hub.groups.load_state_dict(state)  # type: ignore[arg-type]
        assert hub.groups.active() == ("texts",)


async def test_invalid_group_operations_change_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, groups=GROUPS) as hub:
        before, groups = names(hub), hub.groups
        for operation in (
            lambda: groups.create("basic"),
            lambda: groups.create("sums"),
            lambda: groups.create(""),
            lambda: groups.create("x\n"),
            lambda: groups.create("x", tools="a/pid"),
            lambda: groups.create("x", tools=[5]),  # type: ignore[list-item]
            lambda: groups.add("nowhere", tools=["a/pid"]),
            lambda: groups.update(["sums", "nowhere"], active=True),
            lambda: groups.update("sums", active=1),  # type: ignore[arg-type]
            lambda: groups.reset({"sums": True, "nowhere": True}),
            lambda: groups.reset({"sums": "yes"}),  # type: ignore[dict-item]
            lambda: groups.reset_for(ALICE, {"sums": True, "texts": None}),  # type: ignore[dict-item]
            lambda: groups.remove(["sums", "basic"]),
            lambda: groups.remove(["sums", "nowhere"]),
            lambda: groups.notes(["nowhere"]),
        ):
            with pytest.raises(ValueError):
                operation()
        assert names(hub) == names(hub, ALICE) == before
        assert [group.name for group in groups] == list(GROUPS)


async def test_groups_created_at_run_time_survive_a_new_configuration(tmp_path: Path) -> None:
    async with running(tmp_path, groups=GROUPS) as hub:
        hub.groups.create("pids", tools=["*/pid"])
        hub.groups.add("sums", tools=["a/count"])
        hub.groups.remove("all_of_b")
        hub.groups.reset_for(ALICE, {"sums": True, "pids": True})
        notified = Told(hub, SOLE, ALICE)
        await hub.renew(hub.config)
        assert notified.now() == []
        assert [group.name for group in hub.groups] == ["sums", "texts", "pids"]
        assert "a__pid" not in names(hub)
        assert "b__echo" not in names(hub, ALICE)
        assert "a__count" in names(hub, ALICE)
        with pytest.raises(GroupInactive):
            await call(hub, "a__count", {"steps": 1})
        await hub.renew(hub.config.model_copy(update={"groups": ()}))
        assert [group.name for group in hub.groups] == ["pids"]
        assert await notified.soon() == [SOLE, ALICE]
        assert "a__pid" in names(hub, ALICE)
        assert "a__pid" not in names(hub)
        assert await call(hub, "a__count", {"steps": 1}) == "counted"


async def test_a_group_that_was_dropped_from_the_configuration_comes_back_as_it_is_by_default(tmp_path: Path) -> None:
    async with running(tmp_path, groups=GROUPS) as hub:
        config, alice = hub.config, a_principal("alice")
        hub.groups.reset_for(alice, {"sums": True})
        await hub.renew(config.model_copy(update={"groups": ()}))
        await hub.renew(config)
        assert hub.groups.active_for(alice) == hub.groups.active() == ("texts",)


async def test_a_group_created_in_place_of_a_removed_one_of_the_configuration_is_the_new_one(tmp_path: Path) -> None:
    root = {"groups": [{"name": "g", "tools": ["a/echo"]}]}
    async with running(tmp_path, **root) as hub:
        for tool in ("b/echo", "b/add"):
            hub.groups.remove("g")
            hub.groups.create("g", "new", tools=[tool])
            assert (hub.groups["g"].description, hub.groups["g"].tools) == ("new", (tool,))
            await hub.renew(load_config(write_config(tmp_path, {"a": fake("--name", "a")}, **root)))
            assert hub.groups["g"].tools == (tool,)
        hub.groups.remove("g")
        assert "g" not in hub.groups


async def test_default_states_are_saved_and_apply_to_groups_created_later(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    root: dict[str, Any] = {"groups": GROUPS, "state_file": str(state)}
    async with running(tmp_path, **root) as hub:
        hub.groups.create("pids", tools=["*/pid"], active=True)
        for _ in range(20):
            hub.groups.update("pids", active=True)
            hub.groups.update(["pids", "texts"], active=False)
        hub.groups.reset_for(ALICE, {"sums": True})
    assert json.loads(state.read_text())["groups"] == {"pids": False, "texts": False}
    async with running(tmp_path, **root) as hub:
        hub.groups.create("pids", tools=["*/pid"], active=True)
        assert hub.groups.active() == ()
        assert hub.groups.active_for(ALICE) == ()
    state.chmod(0o644)
    async with running(tmp_path, **root) as hub:
        assert hub.groups.active() == ("texts",)  # others may have written it


async def test_views_and_callers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_hub.hub import groups as of_groups
    from mcp_hub.hub.groups import active_groups

    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 3)
    monkeypatch.setattr(active_groups, "MAX_VIEWS", 2)
    async with running(tmp_path, groups=GROUPS) as hub:
        states = [{}, {"sums": True}, {"texts": True}, {"all_of_b": True}, {"sums": True, "texts": True}]
        principals = [Principal(f"p{n}") for n in range(5)]
        for principal, state in zip(principals, states, strict=True):
            hub.groups.reset_for(hub.callers.of(principal), state)
        assert [len(hub.groups.active_for(hub.callers.of(principal))) for principal in principals[2:]] == [1, 1, 2]
        forgotten = [hub.groups.active_for(hub.callers.of(principal)) for principal in principals[:2]]
        assert forgotten == [("texts",), ("texts",)]
        sessions = [Caller() for _ in states]
        for session, state in zip(sessions, states, strict=True):
            hub.groups.reset_for(session, state)
        views = [names(hub, session) for session in sessions]
        assert views == [names(hub, session) for session in sessions]
        hub.groups.create("one more")
        with monkeypatch.context() as patch:
            patch.setattr(of_groups, "MAX_GROUPS", 4)
            with pytest.raises(ValueError, match="4 groups"):
                hub.groups.create("too many")


async def test_a_running_task_survives_the_removal_of_its_group(tmp_path: Path) -> None:
    async with running(tmp_path, groups=GROUPS) as hub:
        route = await hub.route(TOOLS, "a__add", "modern")
        # The server of this test has no tasks, and says so itself.
        for method, error in (("tools/call", GroupInactive), ("tasks/get", UpstreamAnswered)):
            with pytest.raises(error):
                await hub.act(Call(method, "a__add", route, {"name": "add"}, "modern", Envelope()))


def test_without_groups_their_modules_are_not_imported() -> None:
    import subprocess
    import sys

    program = (
        "import sys, mcp_hub.cli.serve, mcp_hub.downstream.stdio\n"
        "from mcp_hub.config.models import Config\n"
        "from mcp_hub.hub import Engine\n"
        "Engine(Config())\n"
        "print([name for name in sys.modules if name.startswith('mcp_hub') and 'group' in name])"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert completed.stdout.strip() == "[]"
    assert Config().groups == ()


async def test_groups_can_be_switched_before_the_hub_runs(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    config = load_config(write_config(tmp_path, {"a": fake()}, groups=GROUPS, state_file=str(state)))
    hub = Engine(config)
    await asyncio.to_thread(hub.groups.update, "sums", True)
    assert json.loads(state.read_text())["groups"] == {"sums": True}
    async with hub, asyncio.timeout(PATIENCE):
        await hub.settled_catalog()
        assert "a__add" in names(hub)


async def test_a_state_file_that_cannot_be_written_does_not_fail_calls(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with running(tmp_path, groups=GROUPS, state_file=str(tmp_path / "file" / "state.json")) as hub:
        hub.groups.update("sums", active=True)
        assert await call(hub, "a__add", {"a": 1, "b": 1}) == "2"


def test_the_example_of_the_documentation_can_be_loaded(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "groups.md").read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    config = tmp_path / "servers.yaml"
    config.write_text(f"servers:\n  playwright: {{command: x}}\n  chrome-dev: {{command: x}}\n{example}")
    config.chmod(0o600)
    assert [(group.name, group.active) for group in load_config(config).groups] == [
        ("browser", False),
        ("numbers", True),
    ]
